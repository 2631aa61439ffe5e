"""What every calibrator promises, for each map in the registry and each of its options.

A new map is found by itself: its options are read off its fields.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import io
import pickle
import warnings
from typing import Any, NamedTuple, get_args, get_type_hints

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import bayescal as bc
from bayescal import estimators, maps
from bayescal.estimators._calibrator import Calibrator, ParametricCalibrator, warn_of_chains
from bayescal.maps._inputs import convert

Array = np.ndarray


class Case(NamedTuple):
    """An estimator and some of its options."""

    estimator: type[Calibrator]
    options: dict[str, Any]

    def __call__(self, **more: Any) -> Any:
        return self.estimator(**{**self.options, **more})

    @property
    def domain(self) -> str:
        return self()._map().domain


def other_values(field: dataclasses.Field, hint: Any) -> list[Any]:
    """Return values for an option beside its default: each choice, and one number."""
    parts = [hint, *get_args(hint)]
    values = [v for part in parts for v in get_args(part) if isinstance(v, str | int)]
    values += [None] * (type(None) in parts) + [3] * (int in parts)
    if float in parts:
        values.append(2 * field.default if isinstance(field.default, float) else 0.25)
    return [value for value in values if value != field.default]


def options_of(method: type[maps.Map]) -> list[dict[str, Any]]:
    """Return the defaults, and every other value of every option."""
    hints = get_type_hints(method)
    others = [
        {field.name: value}
        for field in dataclasses.fields(method)  # pyright: ignore[reportArgumentType]
        for value in other_values(field, hints[field.name])
    ]
    return [{}, *others]


def describe(case: Case) -> str:
    options = ",".join(f"{name}={value}" for name, value in case.options.items())
    return f"{case.estimator.__name__}({options})"


CASES = [
    Case(getattr(estimators, method.__name__), options)
    for method in maps.REGISTRY.values()
    for options in options_of(method)
]
DEFAULTS = [case for case in CASES if not case.options]
PARAMETRIC = [case for case in DEFAULTS if issubclass(case.estimator, ParametricCalibrator)]

each = pytest.mark.parametrize("case", CASES, ids=describe)
each_default = pytest.mark.parametrize("case", DEFAULTS, ids=describe)
each_parametric = pytest.mark.parametrize("case", PARAMETRIC, ids=describe)


def make(n: int = 120, seed: int = 0, power: float = 1.6) -> tuple[Array, Array, Array]:
    """Return probabilities, some of them tied, labels and weights."""
    rng = np.random.default_rng(seed)
    p = np.clip(rng.beta(0.9, 0.9, size=n), 0.002, 0.998).round(3)
    return p, (rng.uniform(size=n) < p**power).astype(int), rng.uniform(0.5, 2, n)


P, Y, W = make()
#: Not on the borders of bins.
AT = np.sort(np.random.default_rng(9).uniform(0.001, 0.999, 77))


def positive(estimator: Any, at: Any = AT) -> Array:
    return estimator.predict_proba(at)[:, 1]


# --- the registry and the estimators agree ------------------------------------------------------


def test_there_are_maps_and_options() -> None:
    assert {"logistic", "isotonic", "histogram"} <= maps.REGISTRY.keys()
    names = [describe(case) for case in CASES]
    assert len(set(names)) == len(names)
    assert {"Beta(parameters=2)", "Histogram(bins=3)", "BBQ(prior_weight=4.0)"} <= set(names)
    assert {"Spline(strength=0.25)", "Spline(rescale=compact_logit)"} <= set(names)


@pytest.mark.parametrize("name", maps.REGISTRY)
def test_every_map_has_an_estimator_with_its_options(name: str) -> None:
    method = maps.REGISTRY[name]
    estimator = getattr(estimators, method.__name__)
    assert method.name == name and estimator._method is method
    assert getattr(bc, method.__name__) is estimator and method.__name__ in bc.__all__
    parameters = inspect.signature(estimator.__init__).parameters
    for field in dataclasses.fields(method):  # pyright: ignore[reportArgumentType]
        assert parameters[field.name].default == field.default
        assert parameters[field.name].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = {"self", "inputs", "classes", *(f.name for f in dataclasses.fields(method))}  # pyright: ignore[reportArgumentType]
    if issubclass(estimator, ParametricCalibrator):
        own |= {"inference", "num_samples", "random_state"}
    if name == "temperature":
        own |= {"objective"}  # of the map of several classes, which it is too
    assert parameters.keys() == own
    assert parameters["inputs"].default == "probs" and parameters["classes"].default is None


# --- probabilities ------------------------------------------------------------------------------


@each
def test_predictions_are_probabilities_of_both_classes(case: Case) -> None:
    estimator = case()
    assert estimator.fit(P, Y) is estimator
    at = np.concatenate([[0.0, 1.0], AT])
    probs = estimator.predict_proba(at)
    assert probs.shape == (79, 2) and probs.dtype == np.float64
    assert ((probs >= 0) & (probs <= 1)).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_array_equal(estimator.predict(at), (probs[:, 1] > probs[:, 0]).astype(int))
    assert estimator.classes_.tolist() == [0, 1]
    assert estimator.status_ == "converged"
    # Better than one probability for all, on the data themselves.
    assert np.mean((positive(estimator, P) - Y) ** 2) < 0.8 * Y.var()


@each
def test_predictions_are_those_of_the_map(case: Case) -> None:
    method = case()._map()
    state = method.fit(convert(P, "probs", method.domain), Y, W)
    expected = method.apply(state, convert(AT, "probs", method.domain))
    np.testing.assert_allclose(positive(case().fit(P, Y, W)), expected, rtol=1e-13, atol=1e-15)


@each
def test_all_kinds_of_input_that_mean_the_same_give_the_same(case: Case) -> None:
    """But for rounding, which cross-validation magnifies."""
    case = without_folds(case)
    expected = positive(case().fit(P, Y, W))
    z, z_at = (np.log(p) - np.log1p(-p) for p in (P, AT))
    zero = np.full_like(z, 0.3), np.full_like(z_at, -5.0)
    same = [
        ("probs", P[:, None], AT[:, None]),
        ("probs", np.stack([1 - P, P], axis=1), np.stack([1 - AT, AT], axis=1)),
    ]
    if case.domain != "any":
        # Otherwise borders lie elsewhere between the same neighbours.
        same.append(("logits", z, z_at))
        same.append(("logits", np.stack([zero[0], z + 0.3], 1), np.stack([zero[1], z_at - 5], 1)))
    if case.domain == "real":
        same.append(("scores", z, z_at))
    for inputs, scores, at in same:
        fitted = case(inputs=inputs).fit(scores, Y, W)
        np.testing.assert_allclose(positive(fitted, at), expected, atol=1e-8)
        assert fitted.n_features_in_ == (scores.shape[1] if scores.ndim == 2 else 1)


@each
def test_order_is_all_that_counts_for_some_maps(case: Case) -> None:
    if case.domain == "any":
        expected = positive(case().fit(P, Y, W), P)
        for inputs, scores in (("scores", P * 7 - 100), ("logits", P - 0.3)):
            found = positive(case(inputs=inputs).fit(scores, Y, W), scores)
            np.testing.assert_allclose(found, expected, atol=1e-12)
    elif case.domain in ("probability", "log_odds"):
        with pytest.raises(ValueError, match="inputs must be 'probs' or 'logits' for a map of"):
            case(inputs="scores").fit(P, Y)


# --- rows and weights ---------------------------------------------------------------------------


@each
def test_the_order_of_rows_does_not_matter(case: Case) -> None:
    order = np.random.default_rng(1).permutation(len(P))
    found = positive(case().fit(P[order], Y[order], W[order]))
    np.testing.assert_allclose(found, positive(case().fit(P, Y, W)), atol=1e-8)


def without_folds(case: Case) -> Case:
    """Return a case whose result does not depend on how rows are dealt out to folds."""
    if case.options.get("strength", "cv") == "cv" and hasattr(case(), "strength"):
        return Case(case.estimator, {**case.options, "strength": 0.1})
    return case


@each
def test_whole_weights_are_repetitions(case: Case) -> None:
    """But for cross-validation, where repeated rows fall in different folds."""
    case = without_folds(case)
    rows = np.sort(np.random.default_rng(2).integers(0, len(P), len(P)))
    counts = np.bincount(rows, minlength=len(P))
    weighted, repeated = case().fit(P, Y, counts), case().fit(P[rows], Y[rows])
    np.testing.assert_allclose(positive(weighted), positive(repeated), atol=1e-8)
    assert np.abs(positive(weighted) - positive(case().fit(P, Y))).max() > 1e-3


@each
def test_rows_without_weight_are_left_out(case: Case) -> None:
    others, at = np.random.default_rng(3).uniform(size=(2, 40)).round(2), np.arange(40) * 3
    p, y = np.insert(P, at, others[0]), np.insert(Y, at, others[1] < 0.5)
    found = positive(case().fit(p, y, np.insert(W, at, 0.0)))
    np.testing.assert_array_equal(found, positive(case().fit(P, Y, W)))


@each
def test_equal_weights_are_none(case: Case) -> None:
    np.testing.assert_array_equal(
        positive(case().fit(P, Y, np.ones(len(P)))), positive(case().fit(P, Y))
    )


# --- shape --------------------------------------------------------------------------------------


@each
def test_a_monotone_map_never_falls(case: Case) -> None:
    fine = np.concatenate([[0.0, 1e-300, 1e-17], np.linspace(1e-4, 1 - 1e-4, 999), [1 - 1e-16, 1]])
    falls = False
    for seed in range(4):
        p, y, w = make(120, seed)
        for label in (y, 1 - y, np.random.default_rng(seed).integers(0, 2, 120)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                steps = np.diff(positive(case().fit(p, label, w), fine))
            falls |= bool((steps < -1e-9).any())
            # Rounding of log odds is no fall.
            assert not case.estimator._method.monotone or (steps > -1e-15).all()
    assert falls == (not case.estimator._method.monotone)


def lopsided(case: Case) -> bool:
    """Tell whether a map sees the ends of [0, 1] differently.

    The published basis of splines starts at the left, and epsilon is that of scores near one.
    """
    method = case()._map()
    basis, rescale = (getattr(method, name, None) for name in ("penalty", "rescale"))
    return basis == "coefficients" or rescale is not None


@each
def test_exchanging_the_classes_gives_the_complement(case: Case) -> None:
    p, fixed = np.clip(P, 0.02, 1), without_folds(case)
    # An odd number, so that the middle one is the same from both sides.
    assert len(np.unique(p)) % 2 == 1
    one, other = fixed().fit(p, Y, W), fixed().fit(1 - p, 1 - Y, W)
    difference = np.abs(positive(one) + positive(other, 1 - AT) - 1).max()
    if lopsided(case):
        assert difference > 1e-6
    else:
        assert difference < 1e-7


@each
def test_single_precision_costs_no_more_than_its_digits(case: Case) -> None:
    single = case().fit(P.astype(np.float32), Y, W.astype(np.float32))
    found = positive(single, AT.astype(np.float32))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, positive(case().fit(P, Y, W)), atol=1e-4)


# --- scikit-learn -------------------------------------------------------------------------------


@each
def test_the_callers_arrays_stay_as_they_are(case: Case) -> None:
    pair = np.stack([1 - P, P], axis=1)
    for scores in (P, pair):
        arrays = [scores.copy(), Y.copy(), W.copy()]
        for array in arrays:
            array.flags.writeable = False
        fitted = case().fit(*arrays)
        fitted.predict_proba(arrays[0])
        for array, before in zip(arrays, (scores, Y, W), strict=True):
            np.testing.assert_array_equal(array, before)


@each
def test_parameters_are_kept_and_cloned(case: Case) -> None:
    estimator = case(inputs="logits", classes=(0, 1))
    parameters = estimator.get_params()
    assert parameters["inputs"] == "logits" and parameters["classes"] == (0, 1)
    assert case.options.items() <= parameters.items()
    fresh = case.estimator().set_params(**parameters)
    assert fresh.get_params() == parameters
    z = np.log(P) - np.log1p(-P)
    twin = clone(estimator.fit(z, Y))
    assert twin.get_params() == parameters and not hasattr(twin, "classes_")
    assert not hasattr(twin, "status_")
    np.testing.assert_array_equal(positive(twin.fit(z, Y)), positive(estimator))
    for name, value in case.options.items():
        assert f"{name}={value!r}" in repr(estimator)


@each
def test_another_fit_leaves_nothing_of_the_first(case: Case) -> None:
    p, y, _ = make(120, seed=5)
    fitted = case().fit(p, y)
    again = fitted.fit(P, Y, W)
    fresh = case().fit(P, Y, W)
    np.testing.assert_array_equal(positive(again), positive(fresh))
    assert dir(again) == dir(fresh)


LABELS = {
    "strings": (np.array(["no", "yes"]), np.asarray),
    "objects": (np.array(["no", "yes"], object), np.asarray),
    "booleans": (np.array([False, True]), np.asarray),
    "signs": (np.array([-1, 1]), np.asarray),
    "integers": (np.array([3, 7], np.uint8), np.asarray),
    "floats": (np.array([0.0, 1.0]), np.asarray),
    "a list": (np.array(["a", "b"]), list),
    "a series of strings": (np.array(["no", "yes"]), lambda y: pd.Series(y, dtype="str")),
    "a categorical": (np.array(["no", "yes"]), lambda y: pd.Series(pd.Categorical(y))),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind(kind: str) -> None:
    for case in DEFAULTS:
        check_labels(case, *LABELS[kind])


def check_labels(case: Case, names: Array, wrap: Any) -> None:
    fitted, plain = case().fit(P, wrap(names[Y])), case().fit(P, Y)
    assert fitted.classes_.tolist() == names.tolist()
    np.testing.assert_array_equal(positive(fitted), positive(plain))
    np.testing.assert_array_equal(fitted.predict(AT), names[plain.predict(AT)])
    turned = case(classes=names[::-1].tolist()).fit(P, wrap(names[1 - Y]))
    assert turned.classes_.tolist() == names[::-1].tolist()
    np.testing.assert_array_equal(positive(turned), positive(plain))
    assert fitted.score(P, wrap(names[Y])) == pytest.approx(np.mean(plain.predict(P) == Y))


@each_default
def test_containers_of_any_kind(case: Case) -> None:
    expected = positive(case().fit(P, Y, W))
    for wrap in (list, pd.Series, lambda p: pd.DataFrame({"p": p}), lambda p: [[v] for v in p]):
        weights = pd.Series(W) if wrap is pd.Series else list(W)
        fitted = case().fit(wrap(P), pd.Series(Y), weights)
        np.testing.assert_array_equal(positive(fitted, wrap(AT)), expected)
    strange = pd.Series(P, index=np.arange(len(P))[::-1])
    np.testing.assert_array_equal(positive(case().fit(strange, pd.Series(Y), W)), expected)


@each_default
def test_names_and_number_of_features_are_kept(case: Case) -> None:
    pair = pd.DataFrame({"no": 1 - P, "yes": P})
    fitted = case().fit(pair, Y)
    assert fitted.feature_names_in_.tolist() == ["no", "yes"] and fitted.n_features_in_ == 2
    assert fitted.predict_proba(pair).shape == (len(P), 2)
    with pytest.raises(ValueError, match="feature names should match those that were passed"):
        fitted.predict_proba(pair.rename(columns={"no": "other"}))
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        fitted.predict_proba(pair[["yes", "no"]])
    with pytest.raises(ValueError, match="X has 1 features, but .* is expecting 2 features"):
        case().fit(pair.to_numpy(), Y).predict(P)
    single = case().fit(P, Y)
    assert single.n_features_in_ == 1 and not hasattr(single, "feature_names_in_")
    with pytest.raises(ValueError, match="X has 2 features, but .* is expecting 1 feature"):
        single.predict(pair.to_numpy())


@each_default
def test_weights_are_routed(case: Case) -> None:
    scores, weights = P[:, None], np.random.default_rng(0).integers(0, 3, len(P))
    with sklearn.config_context(enable_metadata_routing=True):
        asked = case().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        pipe = make_pipeline(FunctionTransformer(), asked).fit(scores, Y, sample_weight=weights)
        np.testing.assert_array_equal(
            positive(pipe, scores), positive(case().fit(P, Y, weights), P)
        )
        found = cross_validate(
            asked, scores, Y, params={"sample_weight": weights}, return_estimator=True, cv=2,
            return_indices=True,
        )  # fmt: skip
        rows = found["indices"]["train"][0]
        expected = case().fit(P[rows], Y[rows], weights[rows])
        np.testing.assert_array_equal(
            positive(found["estimator"][0], scores), positive(expected, P)
        )


@each
def test_what_the_map_found_is_an_attribute(case: Case) -> None:
    method, fitted = case()._map(), case().fit(P, Y, W)
    state = method.fit(convert(P, "probs", method.domain), Y, W)
    assert state
    for name, value in state.items():
        if name != "status":
            np.testing.assert_array_equal(getattr(fitted, f"{name}_"), value)
        assert f"{name}_" in dir(fitted)
        assert not hasattr(case(), f"{name}_") and f"{name}_" not in dir(case())
    with pytest.raises(AttributeError, match=f"'{type(fitted).__name__}' object has no attribute"):
        fitted.nothing_  # noqa: B018
    assert not hasattr(fitted, "_nothing") and not hasattr(fitted, "__nothing__")


@each
def test_fitted_estimators_are_pickled_and_copied(case: Case) -> None:
    fitted = case().fit(P, Y, W)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    for twin in (pickle.loads(pickle.dumps(fitted)), joblib.load(file), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(positive(twin), positive(fitted))
        assert twin.get_params() == fitted.get_params() and twin.status_ == "converged"


#: Without an intercept one half stays one half, whatever the labels.
CENTRED = ("Temperature()", "Beta(parameters=1)")


@each
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only_needs_to_be_said(case: Case, label: int) -> None:
    y = np.full(len(P), label)
    with pytest.raises(ValueError, match="y must hold two classes, got only one class, "):
        case().fit(P, y)
    with warnings.catch_warnings():
        # Parameters may have no finite optimum.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = case(classes=(0, 1)).fit(P, y)
    assert fitted.classes_.tolist() == [0, 1] and np.isfinite(positive(fitted)).all()
    if describe(case) in CENTRED:
        assert fitted.predict_proba([0.5])[0].tolist() == [0.5, 0.5]
    else:
        assert (fitted.predict(P) == label).all()


@each_default
def test_what_is_not_fitted_predicts_nothing(case: Case) -> None:
    for method in ("predict", "predict_proba", "predict_interval"):
        if hasattr(case.estimator, method):
            with pytest.raises(NotFittedError):
                getattr(case(), method)(P)
    if hasattr(case.estimator, "posterior_"):
        with pytest.raises(NotFittedError):
            case().posterior_  # noqa: B018


NAN = np.where(np.arange(len(P)) == 4, np.nan, P)


BAD: list[tuple[Any, Any, Any, str]] = [
    (NAN, Y, None, "NaN"),
    (np.where(NAN > 0, P, np.inf), Y, None, "infinity"),
    (P + 1, Y, None, r"scores must lie in \[0, 1\] for inputs='probs'"),
    (np.tile(P[:, None], 3), Y, None, r"scores must have shape \(n,\), \(n, 1\) or \(n, 2\)"),
    (np.tile(P[:, None], 2), Y, None, "scores must have rows that sum to one"),
    (P[:, None, None], Y, None, "dim"),
    (P[:0], Y[:0], None, "0 sample"),
    (P, Y[:-1], None, "y must have 120 labels to match the scores, got 119"),
    (P, None, None, "requires y to be passed, but the target y is None"),
    (P, np.stack([Y, Y], 1), None, r"y must have shape \(n,\), got \(120, 2\)"),
    (P, np.arange(120) % 3, None, "y must hold two classes, got 3"),
    (P, P, None, "Unknown label type"),
    (P, NAN, None, "NaN"),
    (P, np.where(Y == 1, np.inf, 0.0), None, "infinity"),
    (P, Y, W[:-1], r"sample_weight must have shape \(120,\) to match y, got \(119,\)"),
    (P, Y, -W, "sample_weight must not be negative"),
    (P, Y, 0 * W, "sample_weight must not all be zero"),
    (P, Y, W * NAN, "sample_weight must be finite, got NaN at position 4"),
]


@each_default
def test_errors_say_what_is_wrong(case: Case) -> None:
    for scores, y, weights, message in BAD:
        if "or \\(n, 2" in message and case.estimator is estimators.Temperature:
            continue  # it takes any number of columns
        with pytest.raises(ValueError, match=message):
            case().fit(scores, y, weights)


@each_default
def test_errors_of_options(case: Case) -> None:
    with pytest.raises(ValueError, match="inputs must be one of 'probs', 'logits', 'scores', got"):
        case(inputs="probabilities").fit(P, Y)
    with pytest.raises(ValueError, match=r"y must hold only the classes \[1, 2\], got"):
        case(classes=(1, 2)).fit(P, Y)
    for classes in ((0, 0), (0, 1, 2), 0):
        with pytest.raises(ValueError, match="classes must be two different labels, got"):
            case(classes=classes).fit(P, Y)
    with pytest.raises(ValueError, match="y must hold only the classes"):
        case(classes=("a", "b")).fit(P, Y)
    with pytest.warns(DataConversionWarning, match="column-vector y") as record:
        case().fit(P, Y[:, None])
    # It points to the line above.
    assert record[0].filename == __file__


# --- posteriors ---------------------------------------------------------------------------------


@each_parametric
def test_posteriors_and_intervals(case: Case) -> None:
    fitted = case(inference="laplace", num_samples=400, random_state=0).fit(P, Y, W)
    posterior = fitted.posterior_
    assert posterior.inference == "laplace" and posterior.divergences == 0
    described = fitted._map().describe(fitted.theta_draws_)
    assert posterior.draws.keys() == described.keys() and described
    for name, draws in posterior.draws.items():
        assert draws.shape[:2] == (1, 400) and draws.shape[2:] == np.shape(
            getattr(fitted, f"{name}_")
        )
        np.testing.assert_array_equal(draws, described[name])
    probs, before = positive(fitted), (0.0, 1.0)
    columns = fitted._map().columns(fitted._state, convert(AT, "probs", case.domain))
    curves = 1 / (1 + np.exp(-fitted.theta_draws_[0] @ columns))
    np.testing.assert_allclose(probs, curves.mean(axis=0), rtol=1e-10)
    for level in (0.99, 0.9, 0.5, 0.1):
        lower, upper = fitted.predict_interval(AT, level=level)
        assert lower.shape == upper.shape == (77,)
        ends = np.quantile(curves, [(1 - level) / 2, (1 + level) / 2], axis=0)
        np.testing.assert_allclose([lower, upper], ends, atol=1e-3)
        assert (before[0] <= lower).all() and (upper <= before[1]).all()
        assert ((lower > 0) & (lower < upper) & (upper < 1)).all()
        if level >= 0.9:
            assert ((lower < probs) & (probs < upper)).all()
        before = lower, upper
    default = fitted.predict_interval(AT)
    np.testing.assert_array_equal(default, fitted.predict_interval(AT, level=0.9))
    twin = case(inference="laplace", num_samples=400, random_state=0).fit(P, Y, W)
    np.testing.assert_array_equal(positive(twin), probs)
    other = case(inference="laplace", num_samples=400, random_state=1).fit(P, Y, W)
    assert (positive(other) != probs).any()
    np.testing.assert_array_equal(positive(pickle.loads(pickle.dumps(fitted))), probs)
    for level in (0.0, 1.0, -3, np.nan):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1, got"):
            fitted.predict_interval(AT, level)


@each_parametric
def test_posteriors_of_data_without_a_finite_optimum(case: Case) -> None:
    p = np.linspace(0.05, 0.95, 40)
    options = {"inference": "laplace", "random_state": 0, "classes": (0, 1)}
    for y in (p > 0.5, p > 2, p < 2):
        fitted = case(**options).fit(p, y.astype(int))
        lower, upper = fitted.predict_interval(p)
        assert fitted.status_ == "converged" and np.isfinite(positive(fitted, p)).all()
        assert ((lower >= 0) & (lower < upper) & (upper <= 1)).all()


@each_parametric
def test_without_a_posterior_there_is_no_interval(case: Case) -> None:
    fitted = case().fit(P, Y)
    message = "posterior_ needs inference='laplace' or 'nuts'; this was fitted by 'map'"
    with pytest.raises(AttributeError, match=message):
        fitted.posterior_  # noqa: B018
    with pytest.raises(AttributeError, match=message):
        fitted.predict_interval(P)
    with pytest.raises(ValueError, match="inference must be one of 'map', 'laplace', 'nuts', got"):
        case(inference="mcmc").fit(P, Y)
    for samples in (0, -1):
        with pytest.raises(ValueError, match="num_samples must be at least 1"):
            case(inference="laplace", num_samples=samples).fit(P, Y)


def test_bad_chains_are_said_to_be() -> None:
    for r_hat, ess in ((1.2, 1000.0), (1.0, 99.0)):
        with pytest.warns(bc.SamplingWarning, match="Temperature: .*raise num_samples"):
            warn_of_chains(bc.Temperature(), np.array([1.0, r_hat]), np.array([1000.0, ess]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_chains(bc.Temperature(), np.array([1.0]), np.array([101.0]))


def test_separable_scores_warn_and_say_what_to_do() -> None:
    p = np.array([0.1, 0.2, 0.8, 0.9])
    with pytest.warns(
        ConvergenceWarning, match="the scores separate the labels.*laplace"
    ) as record:
        fitted = bc.Logistic().fit(p, [0, 0, 1, 1])
    assert fitted.status_ == "unbounded" and record[0].filename == __file__
    assert fitted.predict(p).tolist() == [0, 0, 1, 1]
