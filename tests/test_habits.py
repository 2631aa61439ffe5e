"""Names and arguments that users of other libraries try first work, or errors name ours."""

import inspect
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB

import bayescal as bc
from bayescal.calibrators.catalog import METHODS

RNG = np.random.default_rng(0)
Z = RNG.normal(size=200)
Y = (RNG.random(200) < 1 / (1 + np.exp(-Z))).astype(int)
P = 1 / (1 + np.exp(-2 * Z))
LOGITS = RNG.normal(size=(60, 5))
PRIOR = bc.GaussianPrior(dist.Normal(-1, 1), dist.Normal(1, 1), 1.0)
FEW = Z[:20], Y[:20]


# --- keywords -----------------------------------------------------------------------------------


def test_keywords_of_calibrated_classifier_cv() -> None:
    X = Z[:, None]
    ours = bc.CalibratedClassifier(LogisticRegression(), method="sigmoid")
    assert ours.calibrator == "sigmoid" and clone(ours).calibrator == "sigmoid"
    same = bc.CalibratedClassifier(LogisticRegression(), "platt").fit(X, Y)
    np.testing.assert_array_equal(ours.fit(X, Y).predict_proba(X), same.predict_proba(X))
    search = GridSearchCV(ours, {"calibrator": ["beta", "isotonic"]}, cv=2).fit(X, Y)
    assert search.best_params_["calibrator"] in ("beta", "isotonic")


@pytest.mark.parametrize("binning", [("uniform", "equal_width"), ("quantile", "equal_mass")])
def test_keywords_of_calibration_curve(binning: tuple[str, str]) -> None:
    theirs: Any = {"n_bins": 7, "strategy": binning[0]}
    ours: Any = {"bins": 7, "binning": binning[1]}
    for name in ("ece", "debiased_ece", "reliability_curve"):
        function = getattr(bc.metrics, name)
        np.testing.assert_array_equal(function(P, Y, **theirs), function(P, Y, **ours))
    assert bc.metrics.interval("ece", P, Y, **theirs) == bc.metrics.interval("ece", P, Y, **ours)
    first, second = (bc.plots.reliability(P, Y, **options) for options in (theirs, ours))
    assert len(first.lines) == len(second.lines)
    for a, b in zip(first.lines, second.lines, strict=True):
        np.testing.assert_array_equal(a.get_data(), b.get_data())
    assert bc.Histogram(**theirs).get_params() == bc.Histogram(**ours).get_params()
    assert bc.evaluate(P, Y, n_bins=7).to_dict() == bc.evaluate(P, Y, bins=7).to_dict()  # pyright: ignore[reportCallIssue]


def test_one_seed_by_all_its_names() -> None:
    assert bc.Beta(seed=3).random_state == 3  # pyright: ignore[reportCallIssue]
    options: Any = [{"random_state": 3}, {"seed": 3}, {"key": 3}]
    result = [bc.posterior_predict(PRIOR, FEW, [0.0], num_samples=1000, **o).probs for o in options]
    assert result[0] == result[1] == result[2]
    result = [bc.metrics.interval("ece", P, Y, **o) for o in options]
    assert result[0] == result[1] == result[2]
    generator = np.random.default_rng(0)
    first, second = (
        bc.posterior_predict(PRIOR, FEW, [0.0], num_samples=1000, key=generator) for _ in "ab"
    )
    assert first.probs != second.probs


def test_estimators_beside_the_calibrators() -> None:
    options: Any = {"n_bins": 4, "tol": 0.1}
    made = bc.Multicalibration(**options)
    assert (made.bins, made.tolerance) == (4, 0.1)
    options = {"priors": 0.2, "seed": 7}
    shift = bc.PriorShift(**options)
    assert (shift.class_prior, shift.random_state) == (0.2, 7)
    for kind in (bc.Multicalibration, bc.PartialPooling, bc.PriorShift):
        assert not {"n_bins", "tol", "seed", "priors"} & {*inspect.signature(kind).parameters}
        assert clone(kind()).get_params() == kind().get_params()
        with pytest.raises(TypeError, match="n_buckets"):
            kind(n_buckets=3)


def test_whole_numbers_in_floating_point() -> None:
    a, b = (bc.posterior_predict(PRIOR, FEW, [0.0], num_samples=n) for n in (1e3, 1000))  # pyright: ignore[reportArgumentType]
    assert a.probs == b.probs
    with pytest.raises(TypeError, match=r"must be an integer, got 1000\.5"):
        bc.posterior_predict(PRIOR, FEW, [0.0], num_samples=1000.5)  # pyright: ignore[reportArgumentType]


# --- names --------------------------------------------------------------------------------------


def test_names_of_metrics_in_other_libraries() -> None:
    assert bc.metrics.interval("nll", P, Y) == bc.metrics.interval("log_loss", P, Y)
    expected = bc.metrics.ece(P, Y, norm=np.inf)
    assert bc.metrics.interval("mce", P, Y, replicates=20).value == expected
    assert bc.metrics.mce(P, Y) == expected  # pyright: ignore[reportAttributeAccessIssue]
    assert bc.metrics.nll is bc.metrics.log_loss  # pyright: ignore[reportAttributeAccessIssue]
    report = bc.metrics.report(P, Y, metrics=["nll", "brier"], replicates=20)
    assert report.intervals["model"]["brier"].value == bc.metrics.brier_score(P, Y)
    total = bc.metrics.Accumulator(["nll"])
    total.add(P, Y)
    assert total.result()["nll"] == pytest.approx(bc.metrics.log_loss(P, Y), rel=1e-12)
    model = LogisticRegression().fit(Z[:, None], Y)
    scorers = (bc.metrics.scorer(name) for name in ("neg_nll", "nll", "log_loss"))
    assert len({scorer(model, Z[:, None], Y) for scorer in scorers}) == 1
    with pytest.raises(ValueError, match="did you mean 'brier_score'"):
        bc.metrics.interval("brier_scor", P, Y)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("auc", "roc_auc"), ("AUROC", "roc_auc"), ("auprc", "average_precision"), ("ecee", "ece")],
)
def test_similar_names_of_metrics(name: str, meant: str) -> None:
    hint = f"did you mean '{meant}'"
    with pytest.raises(ValueError, match=hint):
        bc.metrics.interval(name, P, Y)
    with pytest.raises(AttributeError, match=hint):
        getattr(bc.metrics, name)
    with pytest.raises(ValueError, match=hint):
        bc.sweep(PRIOR, methods=["platt"], metrics=[name], num_datasets=2)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PlattScaling", "Logistic"),
        ("TemperatureScaling", "Temperature"),
        ("IsotonicRegression", "Isotonic"),
        ("BetaCalibration", "Beta"),
        ("CalibratedClassifierCV", "CalibratedClassifier"),
        ("Isotonik", "Isotonic"),
        ("ece", "metrics.ece"),
        ("reliability", "plots.reliability"),
        ("focal", "losses.focal"),
    ],
)
def test_similar_names_of_the_package(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"did you mean {meant}\?$"):
        getattr(bc, name)


def test_names_of_calibrators() -> None:
    model = bc.CalibratedClassifier(LogisticRegression(), "platt").fit(Z[:, None], Y)
    assert model.calibrators_[0].smoothing == "platt"
    with pytest.raises(ValueError, match="did you mean 'isotonic'"):
        bc.CalibratedClassifier(LogisticRegression(), "isotonik").fit(Z[:, None], Y)


def test_arguments_by_name() -> None:
    p, y = P.tolist(), Y.tolist()
    fitted = bc.Beta().fit(scores=p, y=y)
    np.testing.assert_array_equal(fitted.predict_proba(scores=p), fitted.predict_proba(p))
    with pytest.raises(TypeError, match="'scores'"):
        fitted.predict_proba()  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("calibrator", "probs"),
    [
        (bc.Isotonic(), P),
        (bc.Beta(), np.stack([1 - P, P], axis=1)),
        (bc.Auto(), P),
        (bc.Temperature(inputs="logits"), np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)),
    ],
    ids=str,
)
@pytest.mark.parametrize("text", [False, True])
def test_a_fit_names_the_mistake_of_labels_before_scores(
    calibrator: Any, probs: np.ndarray, text: bool
) -> None:
    labels = probs.argmax(axis=1) if probs.ndim > 1 else Y
    y = labels.astype(str) if text else labels
    if not (probs.ndim == 2 == probs.shape[1] and not text):  # fractional labels
        with pytest.raises(ValueError, match="scores must come first, then y"):
            clone(calibrator).fit(y, probs)


def test_what_has_no_intervals_says_what_has() -> None:
    advice = r"no predict_interval: it has no posterior; .* use Auto\(\), or"
    for calibrator in (bc.BBQ(), bc.BBQ().fit(P, Y), bc.KNN()):
        assert not hasattr(calibrator, "predict_interval")
        with pytest.raises(AttributeError, match=advice):
            calibrator.predict_interval  # noqa: B018
    model = bc.CalibratedClassifier(LogisticRegression(), "bbq").fit(Z[:, None], Y)
    with pytest.raises(AttributeError, match="its calibrator, BBQ, has no posterior"):
        model.predict_interval(Z[:, None])
    with pytest.raises(AttributeError, match="in calibrators_"):
        model.calibrator_  # noqa: B018
    with pytest.raises(AttributeError, match="'Isotonic' object has no attribute 'anything'"):
        bc.Isotonic().anything  # noqa: B018


def test_what_runs_on_known_values_says_so_of_traced_ones() -> None:
    with pytest.raises(TypeError, match=r"bayescal\.losses work inside"):
        jax.jit(lambda p: bc.metrics.log_loss(p, Y))(P)
    with pytest.raises(TypeError, match=r"bayescal\.losses work inside"):
        jax.grad(lambda p: bc.metrics.ece(p, Y))(jnp.asarray(P))
    for options in ((Z, Y), (LOGITS, np.arange(60) % 5)):
        calibrator = bc.Temperature(inputs="logits")
        with pytest.raises(TypeError, match=r"as_function\(\) of a fitted calibrator works"):
            jax.jit(lambda s, y=options[1], c=calibrator: c.fit(s, y).temperature_)(options[0])
        with pytest.raises(TypeError, match=r"as_function\(\) of a fitted calibrator works"):
            jax.jit(calibrator.fit(*options).predict_proba)(options[0])


def test_posteriors_within_jit_name_as_function() -> None:
    post = bc.posterior(PRIOR, FEW, num_samples=1000)
    calls = [post.predict, lambda x: bc.posterior_predict(PRIOR, FEW, x, num_samples=1000)]
    for call in calls:
        with pytest.raises(TypeError, match=r"x must be an array with known.*as_function\(\)"):
            jax.jit(lambda x, call=call: call(x).probs)(jnp.zeros(3))


def test_names_of_pickles_warn(tmp_path: Path) -> None:
    fitted = bc.Beta().fit(P, Y)
    with pytest.warns(UserWarning, match="in the safetensors format, which pickle"):
        bc.save(fitted, tmp_path / "beta.pkl")
    np.testing.assert_array_equal(
        bc.load(tmp_path / "beta.pkl").predict_proba(P), fitted.predict_proba(P)
    )


# --- labels and shapes --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Temperature", "Vector", "Auto", "Dirichlet"])
def test_labels_are_positions_where_a_class_is_absent(name: str) -> None:
    y = RNG.integers(0, 4, 60)
    make = getattr(bc, name)
    given = make(inputs="logits", classes=5).fit(LOGITS, y)
    assumed = make(inputs="logits").fit(LOGITS, y)
    assert assumed.classes_.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(assumed.predict_proba(LOGITS), given.predict_proba(LOGITS))


def test_a_vocabulary_of_which_few_tokens_occur() -> None:
    logits = RNG.normal(size=(50, 3000)).astype("f4")
    y = RNG.integers(0, 3000, 50)
    assert len(bc.Temperature(inputs="logits").fit(logits, y).classes_) == 3000


@pytest.mark.parametrize("name", ["Temperature", "StackedScaling", "Vector"])
def test_functions_of_one_row(name: str) -> None:
    f = getattr(bc, name)(inputs="logits").fit(LOGITS, np.arange(60) % 5).as_function()
    rows = f(LOGITS)
    np.testing.assert_allclose(f(LOGITS[0]), rows[0], rtol=1e-12)
    mapped = jax.jit(jax.vmap(f))(jnp.asarray(LOGITS))
    assert mapped.shape == (60, 5)
    np.testing.assert_allclose(mapped, rows, atol=2e-6)


def test_functions_of_one_score() -> None:
    f = bc.Beta(inference="laplace", random_state=0).fit(P, Y).as_function()
    mapped = jax.vmap(f)(jnp.asarray(P))
    np.testing.assert_allclose(mapped, f(P), atol=2e-6)
    low, _ = f.interval(jnp.asarray(P[0]))
    np.testing.assert_allclose(low, f.interval(P)[0][0], atol=2e-6)


@pytest.mark.parametrize(
    "names", [("a", "b"), (-1, 1), (False, True), ("2020-01-01", "2021-01-01")]
)
def test_posteriors_of_labels_of_any_kind(names: tuple[Any, Any]) -> None:
    labels = np.array(names)[FEW[1]]
    labels = labels.astype("M8[D]") if "2020-01-01" in names else labels
    expected = bc.posterior_predict(PRIOR, FEW, [0.3], integrator="quadrature")
    result = bc.posterior_predict(PRIOR, (FEW[0], labels), [0.3], integrator="quadrature")
    assert result.probs == expected.probs
    if names[0] != False:  # noqa: E712  booleans are the numbers 0 and 1
        assert result.posterior.classes.tolist() == np.unique(labels).tolist()
    listed = bc.posterior(PRIOR, [(FEW[0], labels.tolist())] * 2, integrator="quadrature")
    assert listed.predict([0.3]).probs == pytest.approx([float(expected.probs[0])] * 2)


# --- posteriors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "integrator",
    [
        "montecarlo",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("quadrature", "importance")),
    ],
)
@pytest.mark.parametrize(
    "method",
    ["coeffs", "map", *(pytest.param(n, marks=pytest.mark.slow) for n in ("predictive", "preds"))],
)
def test_posterior_as_function(integrator: str, method: str) -> None:
    post = bc.posterior(PRIOR, FEW, integrator=integrator, num_samples=2000)
    x = np.linspace(-2, 2, 7)
    f = post.as_function(method)
    expected = post.predict(x, method=method).probs
    np.testing.assert_allclose(f(x), expected, atol=2e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(jnp.asarray(x)), expected, atol=2e-6)
    step = 1e-2
    slope = (f(0.3 + step) - f(0.3 - step)) / (2 * step)
    assert jax.grad(f)(0.3) == pytest.approx(float(slope), rel=1e-2)


@pytest.mark.slow
def test_posterior_as_function_in_closed_form_and_for_a_grid() -> None:
    prior = bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=2)
    post = bc.posterior(prior, FEW, integrator="closed_form")
    x = np.linspace(-2, 2, 7)
    np.testing.assert_allclose(post.as_function()(x), post.predict(x).probs, atol=2e-6)
    grid = {"a": PRIOR, "b": bc.GaussianPrior(dist.Normal(-2, 1), dist.Normal(2, 1), 1.0)}
    many = bc.posterior(grid, FEW, integrator="quadrature")
    np.testing.assert_allclose(many.as_function(index="b")(x), many.predict(x).probs[1], atol=2e-6)


@pytest.mark.slow
def test_posterior_as_function_of_several_features_and_classes() -> None:
    prior = bc.DirichletPrior([dist.Gamma(2.0, 0.5)] * 3)
    rng = np.random.default_rng(1)
    x, y = rng.dirichlet([1, 2, 3], 9), np.arange(9) % 3
    post = bc.posterior(prior, (x, y), integrator="importance", num_samples=4000)
    f = post.as_function()
    np.testing.assert_allclose(f(x), post.predict(x).probs, atol=1e-5)
    np.testing.assert_allclose(f(x[0]), f(x)[0], atol=1e-6)


@pytest.mark.slow
def test_posterior_as_function_is_exported() -> None:
    from jax import export

    f = bc.posterior(PRIOR, FEW, num_samples=4000).as_function()
    program = export.export(jax.jit(f))(jax.ShapeDtypeStruct((3,), jnp.float32))
    x = jnp.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(export.deserialize(program.serialize()).call(x), f(x), atol=1e-6)


def test_prior_sample() -> None:
    draws = bc.GaussianPrior(dist.Normal(-1, 1), 2.0, dist.HalfNormal(1)).sample(4000, key=1)
    assert draws["mu0"].mean() == pytest.approx(-1, abs=4 / np.sqrt(4000))
    assert draws["mu1"].tolist() == [2.0] * 4000 and draws["sigma"].min() > 0
    many = bc.DirichletPrior([dist.Gamma(2.0, 0.5)] * 3).sample(5, dim=3)
    assert next(iter(many.values())).shape == (5, 3)


@pytest.mark.slow
def test_plots_of_posteriors_and_predictions() -> None:
    post = bc.posterior(PRIOR, FEW, integrator="quadrature")
    prediction = post.predict(np.linspace(-2, 2, 9))
    ax = prediction.plot(label="mine")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), prediction.probs)
    assert len(ax.collections) == 1
    ax = post.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["mu0", "mu1"]
    grid = {"a": PRIOR, "b": bc.GaussianPrior(dist.Normal(-2, 1), dist.Normal(2, 1), 1.0)}
    ax = bc.posterior_predict(grid, FEW, [-1.0, 0, 1], integrator="quadrature").plot(level=None)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]
    with pytest.raises(ValueError, match="one data set"):
        bc.posterior_predict(PRIOR, [FEW, FEW], [0.0], num_samples=4000).plot()
    ax = bc.plots.curve(prediction, label="mine")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), prediction.probs)
    with pytest.raises(ValueError, match="left out for a Prediction"):
        bc.plots.curve(prediction, [0.5])
    assert len(bc.plots.parameters(post).get_yticklabels()) == 2
    fitted = bc.Beta(inference="laplace", random_state=0).fit(P, Y)
    assert len(bc.plots.parameters(fitted).get_yticklabels()) == 3
    with pytest.raises(TypeError, match="fitted with inference='laplace' or 'nuts', got Beta"):
        bc.plots.parameters(bc.Beta().fit(P, Y))


@pytest.mark.slow
def test_xarray_has_an_index_of_points() -> None:
    x = np.linspace(-1, 1, 5)
    result = bc.posterior_predict(PRIOR, FEW, x, integrator="quadrature").to_xarray()
    assert float(result.sel(x=0.1, method="nearest").x) == 0
    batch = bc.posterior_predict(PRIOR, [FEW, FEW], x, integrator="quadrature").to_xarray()
    assert batch.sel(dataset=1, x=0.5).probs.shape == ()


@pytest.mark.slow
def test_xarray_has_intervals_and_errors() -> None:
    prediction = bc.posterior_predict(PRIOR, [FEW, FEW], [-1.0, 0.5], num_samples=4000)
    result = prediction.to_xarray(level=0.8)
    lower, upper = prediction.interval(0.8)
    for name, values in {"lower": lower, "upper": upper, "mcse": prediction.mcse}.items():
        assert result[name].dims == ("dataset", "point")
        np.testing.assert_array_equal(result[name], values)
    assert result.attrs["level"] == 0.8
    assert not {"lower", "upper", "mcse"} & {*prediction.to_xarray(level=None)}
    mode = bc.posterior_predict(PRIOR, FEW, [0.5], method="map", num_samples=4000).to_xarray()
    assert "lower" not in mode and "level" not in mode.attrs and np.isnan(mode.mcse).all()
    rows = LOGITS[:9, :3], np.arange(9) % 3
    three = bc.DirichletPrior([dist.Gamma(2.0, 0.5)] * 3)
    shares = np.exp(rows[0]) / np.exp(rows[0]).sum(axis=1, keepdims=True)
    options: Any = {"integrator": "importance", "num_samples": 4000}
    many = bc.posterior_predict(three, (shares, rows[1]), **options).to_xarray()
    assert many.upper.dims == ("point", "class") and (many.lower <= many.upper).all()


def test_representations_leave_out_a_pareto_k_that_is_reliable() -> None:
    assert "Pareto k" not in repr(bc.posterior(PRIOR, FEW, num_samples=4000))
    far = Z[:20] + 20, Y[:20]
    with pytest.warns(bc.SamplingWarning):
        poor = bc.posterior(PRIOR, far, num_samples=1000)
    assert poor.pareto_k > 0.7 and "Pareto k" in repr(poor)


# --- sweeps -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sweeps_know_calibrators_and_select_by_name() -> None:
    methods = ["platt", "beta", bc.Isotonic(inputs="scores")]
    result = bc.sweep(
        PRIOR,
        n_train=20,
        methods=methods,
        num_datasets=2,
        n_test=50,
        metrics=["brier"],
        progress=False,
    )
    assert result.calibrator.values.tolist() == ["platt", "beta", "Isotonic"]
    one = result.value.sel(calibrator="beta")
    assert "calibrator" not in one.dims and one.notnull().all()
    with pytest.raises(ValueError, match="did you mean 'isotonic'"):
        bc.sweep(PRIOR, methods=["isotonik"], num_datasets=2)


# --- tab completion -----------------------------------------------------------------------------


def test_no_internals_in_tab_completion() -> None:
    assert not {"Any", "TYPE_CHECKING", "find_spec", "import_module", "sys"} & {*dir(bc)}
    assert {"Beta", "evaluate", "metrics", "__version__"} <= {*dir(bc)}
    post = bc.posterior(PRIOR, FEW, num_samples=4000)
    assert not {"alone", "facts", "layout", "problem", "setup", "work"} & {*dir(post)}
    assert {"predict", "log_evidence", "ess", "plot"} <= {*dir(post)}
    for module in (bc.metrics, bc.plots, bc.losses, bc.compare, bc.smoothing, bc.datasets):
        public = {name for name in dir(module) if name[0] != "_"}
        assert public == {*module.__all__}
    assert dir(bc.adapters) == ["ProbmetricsCalibrator", "TorchMetric"]


@pytest.mark.parametrize("name", [*METHODS, "CalibratedClassifier", "Prior", "PredictFunction"])
def test_signatures_are_those_of_the_constructors(name: str) -> None:
    """Check signatures as shown by ``help``, editors and the reference."""
    cls = getattr(bc, name)
    assert isinstance(cls.__signature__, inspect.Signature)  # before ``__new__``, for Sphinx
    shown, made = inspect.signature(cls), inspect.signature(cls.__init__)
    assert [*shown.parameters] == [*made.parameters][1:]


def test_docstrings_of_estimators_describe_every_parameter() -> None:
    entry = re.compile(r"^(\w[\w, ]*) : ", re.MULTILINE)
    for name in bc.__all__:
        kind = getattr(bc, name)
        if not (inspect.isclass(kind) and issubclass(kind, BaseEstimator)):
            continue
        text = (inspect.getdoc(kind) or "").partition("Parameters\n----------\n")[2]
        text = re.split(r"^\w[^\n]*\n-{3,}$", text, maxsplit=1, flags=re.MULTILINE)[0]
        described = [each for names in entry.findall(text) for each in names.split(", ")]
        assert sorted(described) == sorted(inspect.signature(kind).parameters), name


def test_labels_of_multi_label_problems_are_named_like_all_labels() -> None:
    scores, labels = np.column_stack([P, P]), np.column_stack([Y, 1 - Y])
    for fitted in (
        bc.MultiLabel(bc.Beta()).fit(scores=scores, y=labels),
        bc.MultiLabel(bc.Beta()).fit(scores, Y=labels),
    ):
        assert fitted.predict_proba(scores).shape == labels.shape


def test_proportions_and_partial_fits_are_advised() -> None:
    with pytest.raises(ValueError, match=r"Unknown label type.*pass rows \(1 - y, y\)"):
        bc.Beta().fit(P, np.where(Y, 0.9, 0.25) * P)
    rows = np.column_stack([1 - P, P])
    assert bc.Beta().fit(P, rows).predict_proba(P).shape == rows.shape
    with pytest.raises(AttributeError, match="Isotonic has no partial_fit: use AveragedBeta"):
        bc.Isotonic().partial_fit(P, Y)
    assert not hasattr(bc.Isotonic(), "partial_fit")


def test_classifiers_in_the_wrong_place_are_explained(tmp_path: Path) -> None:
    X, model = np.column_stack([Z, P]), GaussianNB().fit(np.column_stack([Z, P]), Y)
    with pytest.raises(NotFittedError, match=r"FrozenEstimator\(classifier\.fit\(X, y\)\)"):
        bc.CalibratedClassifier(FrozenEstimator(GaussianNB())).fit(X, Y)
    with pytest.raises(TypeError, match=r"GaussianNB; pass its probabilities, predict_proba\(X\)"):
        bc.metrics.log_loss(model, Y)
    fitted = bc.CalibratedClassifier(FrozenEstimator(model)).fit(X, Y)
    with pytest.raises(AttributeError, match="use that of the calibrators_"):
        fitted.as_function()
    with pytest.raises(TypeError, match="got CalibratedClassifier; export its calibrators_"):
        bc.export(fitted, tmp_path / "c.onnx")
    with pytest.warns(UserWarning, match="not the classifier"):
        bc.save(fitted, tmp_path / "c.safetensors")
    with pytest.raises(TypeError, match=r"pass estimators=\[classifier\]"):
        bc.load(tmp_path / "c.safetensors", estimators=model)
    with pytest.raises(ValueError, match="scikit-learn has the scorer 'roc_auc'"):
        bc.metrics.scorer("roc_auc")


def fit(calibrator: Any, *data: Any) -> Any:
    return lambda: calibrator.fit(*data)


def temperature(**options: Any) -> bc.Temperature:
    return bc.Temperature(inputs="logits", **options)


TOPS = np.tile([0, 1], (6, 1)), np.log(np.full((6, 2), 0.4)), np.log(np.full(6, 0.2))
TOP_LOGITS = "inputs='top_logits' and classes=k.*top_logprobs"
NO_LOGITS = "got .*; pass probabilities, not logits or scores$"
NO_NAME = r"name.* such as 'log_loss'.*, got \w+$"
MODELS: Any = {"raw": P, "new": P[:-1]}
JUDGES: Any = (bc.metrics.report, bc.evaluate, bc.plots.reliability)
HALVES = Y[:, None] == np.array([0, 1])
ECE: Any = bc.metrics.ece
MISTAKES: list[tuple[Any, type[Exception], str]] = [
    (lambda: ECE(P, Y, n_bins=5, bins=5), TypeError, "n_bins is another word for bins"),
    (lambda: ECE(P, Y, n_buckets=5), TypeError, "n_buckets"),
    (lambda: bc.Beta(**{"strategy": "uniform"}), TypeError, "strategy"),
    (lambda: bc.Isotonic(**{"n_bins": 5}), TypeError, "n_bins"),
    (fit(temperature(), TOPS, [0, 1, 0, 1, 0, 1]), ValueError, TOP_LOGITS),
    (fit(temperature(), TOPS[:2], [0, 1, 0, 1, 0, 1]), ValueError, TOP_LOGITS),
    (
        fit(bc.Isotonic(), LOGITS, LOGITS.argmax(axis=1)),
        ValueError,
        r"Auto\(\), OneVsRest\(Beta\(\)\) and others",
    ),
    (fit(bc.Isotonic(), Z, Y), ValueError, "or inputs='scores' for other numbers"),
    (fit(bc.Beta(), Z, Y), ValueError, r"or use Auto\(inputs='scores'\) for other numbers"),
    (
        fit(bc.Temperature(), LOGITS, LOGITS.argmax(axis=1)),
        ValueError,
        "pass inputs='logits' for logits or log odds$",
    ),
    (fit(temperature(), LOGITS, RNG.integers(1, 5, 60)), ValueError, "pass classes=5"),
    (
        fit(temperature(), LOGITS, np.array([*"abcd"])[RNG.integers(0, 4, 60)]),
        ValueError,
        "pass classes=5",
    ),
    (lambda: bc.posterior(PRIOR, (Z[:3], ["a"] * 3)), ValueError, "pass the positions"),
    (lambda: bc.posterior(PRIOR, (Z[:3], [1, 2, 1])), ValueError, r"labels must be in \{0, 1\}"),
    (lambda: bc.Monitor().update(Z, Y), ValueError, NO_LOGITS),
    (lambda: bc.Monitor(task="multilabel").update(LOGITS, LOGITS > 0), ValueError, NO_LOGITS),
    (fit(bc.Multicalibration(), Z, Y, HALVES), ValueError, NO_LOGITS),
    (fit(bc.PriorShift(calibration_shares=0.5), Z), ValueError, NO_LOGITS),
    (lambda: bc.metrics.true_calibration_error(P, Z), ValueError, NO_LOGITS),
    (lambda: bc.metrics.hamming_loss(LOGITS, LOGITS > 0), ValueError, "pass inputs='logits'"),
    (
        fit(temperature(), LOGITS, np.arange(len(LOGITS)) % 9),
        ValueError,
        "pass scores with a column for each class",
    ),
    (lambda: bc.metrics.interval(ECE, P, Y), TypeError, NO_NAME),
    (lambda: bc.metrics.interval(P, Y, "ece"), TypeError, NO_NAME),  # type: ignore[arg-type]
    (lambda: bc.metrics.report(P, Y, metrics=[ECE]), TypeError, NO_NAME),
    (lambda: bc.metrics.scorer(ECE), TypeError, NO_NAME),
    (lambda: bc.metrics.Accumulator([ECE]), TypeError, NO_NAME),
    *(
        (lambda judge=judge: judge(MODELS, Y), ValueError, r"^model 'new': y must have shape")
        for judge in JUDGES
    ),
    *(
        (lambda judge=judge: judge([P, P**2], Y), ValueError, "several models a mapping")
        for judge in JUDGES
    ),
    (
        fit(bc.CalibratedClassifier(), Z[:, None], Y),
        TypeError,
        "estimator must be a classifier.*got None$",
    ),
    (
        fit(bc.CalibratedClassifier(GaussianNB), Z[:, None], Y),
        TypeError,
        r"pass GaussianNB\(\.\.\.\), not the class",
    ),
    (
        lambda: bc.losses.cross_entropy(LOGITS, LOGITS.argmax(axis=1).astype(str)),
        TypeError,
        "labels must be integers, got text; pass their positions",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES)
def test_mistakes_are_explained(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
