"""LogisticRegression: its methods against SciPy and scikit-learn, and invalid arguments."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.utils.estimator_checks import check_estimator

import bayescal as bc
from bayescal.data.folds.deal import fold_features
from bayescal.regression.method import PRESETS, SMOOTHINGS, STRENGTHS

Array = np.ndarray


def make_features(n: int = 80, d: int = 2, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.arange(1, d + 1) + 1
    y = (rng.random(n) < expit(1.2 * (x[:, 0] - 1))).astype(int)
    return x, y, rng.uniform(0.2, 2, n)


def minimum(value: Any, size: int) -> Any:
    return optimize.minimize(value, np.zeros(size), method="BFGS", options={"gtol": 1e-9})


def cross_entropy(beta: Array, x: Array, t: Array, w: Array) -> float:
    line = beta[0] + x @ beta[1:]
    return float(np.sum(w * (np.logaddexp(0, line) - t * line)))


@pytest.mark.parametrize("preset", ["normal", "platt", "ibls"])
def test_targets(preset: str) -> None:
    x, y, w = make_features()
    targets = {
        "normal": y.astype(float),
        "platt": bc.smoothing.platt_targets(y, w),
        "ibls": bc.smoothing.instance_targets(x, y, w, scale="pooled"),
    }[preset]
    model = bc.LogisticRegression.preset(preset).fit(x, y, sample_weight=w)
    expected = minimum(lambda b: cross_entropy(b, x, targets, w), 3)
    assert model.objective_ == pytest.approx(expected.fun / w.sum(), rel=1e-9)
    np.testing.assert_allclose(np.r_[model.intercept_, model.coef_[0]], expected.x, atol=1e-5)


@pytest.mark.parametrize(
    ("rate", "inference", "loc"),
    [
        (0.3, "map", 0.0),
        (3.0, "laplace", 0.0),
        (30.0, "map", 0.0),
        (np.array([0.3, 3.0, 30.0, 8.0]), "laplace", 0.0),
        (30.0, "map", 0.7),
        (np.array([0.3, 3.0, 60.0, 99.0]), "laplace", np.array([1.0, -2.0, 0.3, 0.2])),
    ],
    ids=repr,
)
def test_a_laplace_prior_has_its_mode_at_the_kink(rate: Any, inference: Any, loc: Any) -> None:
    """Check the slope of the log density at the mode: within the rates at the kink.

    Parameters
    ----------
    rate : float or array of shape (4,)
        Inverse scales of the prior.
    inference : {"map", "laplace"}
    loc : float or array of shape (4,)
        Locations of the prior, where its density has a kink.
    """
    x, y, w = make_features(d=4)
    rate, loc = np.broadcast_to(rate, 4), np.broadcast_to(loc, 4)
    model = bc.LogisticRegression(coef_prior=dist.Laplace(loc, 1 / rate), inference=inference)
    model.set_params(random_state=0).fit(x, y, w)
    assert model.status_ == "converged"
    coef = model.coef_[0]
    center = w @ x / w.sum()
    middle = model.intercept_[0] + coef @ center
    residual = w * (expit(x @ coef + model.intercept_[0]) - y)
    slope = residual @ (x - center)
    kink = coef == loc
    np.testing.assert_allclose(slope[~kink], -(rate * np.sign(coef - loc))[~kink], rtol=1e-5)
    assert (np.abs(slope) <= rate)[kink].all()
    assert residual.sum() == pytest.approx(-2 * middle / (100 + middle**2), abs=1e-5)
    value = cross_entropy(np.r_[model.intercept_, coef], x, y, w)
    value -= stats.laplace(loc, 1 / rate).logpdf(coef).sum() + stats.cauchy(0, 10).logpdf(middle)
    assert model.objective_ * w.sum() == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("inference", ["laplace", pytest.param("nuts", marks=pytest.mark.slow)])
def test_a_prior_with_one_scale_per_column_equals_scaled_features(inference: Any) -> None:
    x, y, w = make_features(d=3)
    scale = np.array([0.1, 1.0, 4.0])
    options: dict[str, Any] = {"inference": inference, "num_samples": 200, "random_state": 0}
    model = bc.LogisticRegression(coef_prior=dist.Normal(0.0, scale), **options).fit(x, y, w)
    scaled = bc.LogisticRegression(penalty="l2", strength=1.0, **options).fit(x * scale, y, w)
    np.testing.assert_allclose(model.predict_proba(x), scaled.predict_proba(x * scale), rtol=1e-6)


def test_draws_under_a_laplace_prior_against_quadrature() -> None:
    x, y = np.array([-1.5, -0.5, -0.2, 0.3, 0.6, 1.3]), np.array([0, 1, 0, 0, 1, 1])
    model = bc.LogisticRegression(
        coef_prior=dist.Laplace(0.0, 0.5), inference="laplace", num_samples=4000, random_state=0
    ).fit(x[:, None], y)
    a, b = np.linspace(-20, 20, 801)[:, None], np.linspace(-8, 8, 801)
    log_density = stats.cauchy(0, 10).logpdf(a) + stats.laplace(0, 0.5).logpdf(b)
    for row, label in zip(x, y, strict=True):
        log_density = log_density - np.logaddexp(0, (1 - 2 * label) * (a + b * row))
    mass = np.exp(log_density)
    mean = np.sum(mass * expit(a + b)) / mass.sum()
    spread = np.sqrt(np.sum(mass * expit(a + b) ** 2) / mass.sum() - mean**2)
    error = 4 * spread / np.sqrt(model.posterior_.ess.min())
    assert model.predict_proba([[1.0]])[0, 1] == pytest.approx(mean, abs=error)


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (dist.Laplace, stats.laplace),
        pytest.param(dist.Normal, stats.norm, marks=pytest.mark.slow),
        pytest.param(partial(dist.StudentT, 3.0), stats.t(3), marks=pytest.mark.slow),
    ],
)
def test_tails_of_the_intercept_beside_a_prior_of_numpyro(family: Any, kind: Any) -> None:
    """Weight draws of the prior by the likelihood of labels of one class.

    Parameters
    ----------
    family : function of location and scale
        Makes the NumPyro distribution. Student's t has no quantiles (``icdf``).
    kind : distribution of SciPy
    """
    x, scale, n = make_features(20, 5)[0], np.linspace(0.2, 2.0, 5), 400_000
    model = bc.LogisticRegression(
        coef_prior=family(0.0, scale),
        inference="laplace",
        classes=[0, 1],
        random_state=0,
        num_samples=4000,
    ).fit(x, np.ones(20))
    center = x.mean(axis=0)
    middle = stats.cauchy.rvs(scale=10, size=n, random_state=0)
    coef = scale * kind.rvs(size=(n, 5), random_state=1)
    mass = np.exp(-np.logaddexp(0, -middle[:, None] - coef @ (x - center).T).sum(axis=1))
    order = np.argsort(middle)
    quantiles = middle[order][np.searchsorted(np.cumsum(mass[order]) / mass.sum(), [0.1, 0.5, 0.9])]
    theta = model.state_["theta_draws"].reshape(-1, 6)
    below = (theta[:, 0] + theta[:, 1:] @ center)[:, None] < quantiles
    error = 0.5 / np.sqrt(model.posterior_.ess.min())
    np.testing.assert_allclose(below.mean(axis=0), [0.1, 0.5, 0.9], atol=4 * error)


def test_cauchy_prior_in_its_own_scaling() -> None:
    """Check the objective, written out, on a feature with two values and a constant one."""
    x, y, w = make_features(60, 4)
    x[:, 1] = (x[:, 1] > 0) * 3.0 + 2
    x[:, 2] = 7.0
    share = w / w.sum()
    mean = share @ x
    sd = np.sqrt(share @ (x - mean) ** 2)
    z = (x - mean) / [2 * sd[0], 3.0, 1.0, 2 * sd[3]]

    def loss(b: Array) -> float:
        prior = stats.cauchy.logpdf(b[0], scale=10) + stats.cauchy.logpdf(b[1:], scale=2.5).sum()
        return cross_entropy(b, z, y, w) - prior

    model = bc.LogisticRegression.preset("cauchy_map").fit(x, y, sample_weight=w)
    expected = minimum(loss, 5)
    assert model.objective_ == pytest.approx(expected.fun / w.sum(), rel=1e-9)
    np.testing.assert_allclose(
        model.decision_function(x), expected.x[0] + z @ expected.x[1:], atol=1e-4
    )


def test_modes_under_a_cauchy_prior_of_numpyro_are_no_saddle_points() -> None:
    """Compare with the preset, whose scaling changes nothing here, for two equal columns."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(200, 1)), 2, axis=1)
    x = 0.5 * (x - x.mean(axis=0)) / x.std(axis=0)
    y = (rng.random(200) < expit(12 * x[:, 0])).astype(int)
    expected = bc.LogisticRegression.preset("cauchy_map").fit(x, y)
    model = bc.LogisticRegression(coef_prior=dist.Cauchy(0.0, 2.5)).fit(x, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)


@pytest.mark.parametrize(("penalty", "ratio"), [("l1", 1.0), ("l2", 0.0), ("elasticnet", 0.3)])
def test_penalties_against_scikit_learn(penalty: Any, ratio: float) -> None:
    x, y, w = make_features(100, 5)
    ours = bc.LogisticRegression(penalty=penalty, strength=2.0, l1_ratio=0.3).fit(x, y, w)
    theirs = Plain(
        C=0.5, l1_ratio=ratio, solver="saga", tol=1e-10, max_iter=100_000, random_state=0
    )
    theirs.fit(x, y, sample_weight=w)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)


@pytest.mark.parametrize("preset", ["smoothed", "L2", "L1"])
def test_cross_validation_done_by_hand(preset: str) -> None:
    """Compare the losses of candidates on folds with fits by scikit-learn."""
    x, y, _ = make_features(60)
    model = bc.LogisticRegression.preset(preset, folds=4).fit(x, y)
    fold = fold_features(x - x.mean(axis=0), y, np.ones(60), 4).fold
    grid = SMOOTHINGS if preset == "smoothed" else STRENGTHS
    assert model.cv_losses_.shape == (len(grid), 4)
    # Where all coefficients are zero, saga stops before it has found the intercept.
    for row in (0, len(grid) // 2, len(grid) - (3 if preset == "L1" else 1)):
        for out in (0, 3):
            train, held = fold != out, fold == out
            t, rows = y[train], x[train]
            if preset == "smoothed":
                # A soft target is two weighted rows.
                t = np.repeat([1, 0], train.sum())
                soft = y[train] + grid[row] * (1 - 2 * y[train])
                theirs = Plain(C=np.inf, tol=1e-10, max_iter=10_000).fit(
                    np.vstack([rows, rows]), t, sample_weight=np.r_[soft, 1 - soft]
                )
            else:
                options = {"l1_ratio": 1.0, "solver": "saga"} if preset == "L1" else {}
                theirs = Plain(
                    C=1 / grid[row], tol=1e-10, max_iter=100_000, random_state=0, **options
                )
                theirs.fit(rows, t)
            p = theirs.predict_proba(x[held])[:, 1]
            expected = -np.mean(np.log(np.where(y[held] == 1, p, 1 - p)))
            assert model.cv_losses_[row, out] == pytest.approx(expected, rel=1e-4)
    sizes = np.bincount(fold)
    best = np.argmin(model.cv_losses_ @ sizes)
    chosen = model.smoothing_ if preset == "smoothed" else model.strength_
    assert chosen == pytest.approx(grid[best])


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "cauchy"])
def test_whole_weights_are_repetitions(preset: str) -> None:
    """Check cross-validated choices too: equal rows share a fold, and the order does not matter."""
    x, y, _ = make_features(60)
    counts = np.random.default_rng(1).integers(0, 4, 60)
    one = bc.LogisticRegression.preset(preset, folds=4).fit(x, y, counts)
    rows = np.random.default_rng(2).permutation(np.repeat(np.arange(60), counts))
    other = bc.LogisticRegression.preset(preset, folds=4).fit(x[rows], y[rows])
    assert (one.strength_, one.smoothing_) == (other.strength_, other.smoothing_)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-9)
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-6)


def grid_posterior(x: Array, y: Array, f: Any, penalty: float | None) -> tuple[Array, Array]:
    """Compute the posterior mean and variance of f(a, b) for one feature, over a fine grid."""
    mean, sd = x.mean(), x.std()
    z = (x - mean) / (2 * sd) if penalty is None else x - mean
    a, b = np.meshgrid(np.linspace(-6, 6, 301), np.linspace(-8, 20, 401), indexing="ij")
    log = stats.cauchy.logpdf(a, scale=10)
    if penalty is None:
        log = log + stats.cauchy.logpdf(b, scale=2.5)
    else:
        log = log + stats.norm.logpdf(b, scale=penalty**-0.5)
    for zi, yi in zip(z, y, strict=True):
        line = a + b * zi
        log = log - np.logaddexp(0, -line if yi else line)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    values = f(a, b, z)
    return np.sum(weight * values), np.sum(weight * (values - np.sum(weight * values)) ** 2)


@pytest.mark.slow
def test_posterior_mean_prediction_against_quadrature() -> None:
    x, y, _ = make_features(25, 1)
    model = bc.LogisticRegression.preset("cauchy", num_samples=4000, random_state=0).fit(x, y)
    assert model.posterior_.r_hat.max() < 1.02
    for at in (-1.0, 1.0, 3.0):

        def probability(a: Array, b: Array, z: Array, at: float = at) -> Array:
            return expit(a + b * (at - x.mean()) / (2 * x.std()))

        mean, variance = grid_posterior(x[:, 0], y, probability, None)
        error = np.sqrt(variance / model.posterior_.ess.min())
        assert abs(model.predict_proba([[at]])[0, 1] - mean) < 4 * error
        low, high = model.predict_interval([[at]], level=0.8)
        assert low[0] < mean < high[0]


def test_separable_data() -> None:
    x, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    with pytest.warns(ConvergenceWarning, match="a plane separates the labels"):
        model = bc.LogisticRegression().fit(x, y)
    assert model.status_ == "unbounded"
    assert np.isfinite(model.coef_).all()
    assert model.predict(x).tolist() == y
    for options in ({"coef_prior": dist.Normal(0, 1)}, {"penalty": "l2", "strength": 1e-12}):
        with pytest.warns(ConvergenceWarning, match="the prior or penalty is too weak"):
            bc.LogisticRegression(**options).fit(1e6 * x, y)
    for preset in PRESETS:
        if preset in ("normal", "cauchy"):
            continue
        finite = bc.LogisticRegression.preset(preset, random_state=0, folds=2).fit(x, y)
        assert finite.status_ == "converged", preset
        assert np.isfinite(finite.predict_proba(x)).all()


def test_two_rows_constant_features_and_one_class() -> None:
    platt = bc.LogisticRegression.preset("platt")
    assert np.isfinite(platt.fit([[0.0], [1.0]], [0, 1]).predict_proba([[0.5]])).all()
    flat = platt.fit(np.ones((4, 2)), [0, 1, 1, 1])
    np.testing.assert_allclose(flat.predict_proba([[1.0, 1.0]])[0, 1], (3 * 0.8 + 1 / 3) / 4)
    with pytest.raises(ValueError, match="got only one class, 1; .* classes="):
        platt.fit([[0.0], [1.0]], [1, 1])
    fitted = bc.LogisticRegression.preset("cauchy_map", classes=(0, 1)).fit([[0.0], [1.0]], [1, 1])
    assert 0.5 < fitted.predict_proba([[0.0]])[0, 1] < 1


def test_predictions_are_right_at_both_ends() -> None:
    x, y, _ = make_features()
    model = bc.LogisticRegression(penalty="l2", strength=1.0).fit(x, y)
    far = np.array([[1e3, 0.0], [-1e3, 0.0]])
    line = model.decision_function(far)
    np.testing.assert_allclose(model.predict_proba(far)[:, 0], expit(-line), rtol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(far)[1, 1], line[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": "l3"}, "penalty must be one of"),
        ({"smoothing": "much"}, "smoothing must be one of"),
        ({"smoothing": 0.5}, r"smoothing must lie in \[0, 0.5\)"),
        ({"penalty": "l2", "strength": -1.0}, "strength must be 'cv' or not negative"),
        ({"l1_ratio": 2.0}, "l1_ratio must lie"),
        ({"coef_prior": "normal"}, "coef_prior must be one of"),
        ({"coef_prior": "cauchy", "penalty": "l2"}, "penalty must be None beside coef_prior"),
        ({"smoothing": "cv", "penalty": "l2"}, "strength must be a number beside smoothing='cv'"),
        ({"inference": "laplace"}, "must have a prior; pass coef_prior='cauchy'"),
        (
            {"inference": "laplace", "penalty": "l2", "strength": 0.0},
            "with a positive strength",
        ),
        ({"inference": "vi"}, "inference must be one of"),
        ({"folds": 1}, "folds must be at least 2"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    x, y, _ = make_features(20)
    with pytest.raises(ValueError, match=message):
        bc.LogisticRegression(**options).fit(x, y)
    with pytest.raises(ValueError, match="name must be one of 'normal', 'platt'"):
        bc.LogisticRegression.preset("l2")


def test_posterior_is_asked_for() -> None:
    x, y, _ = make_features(20)
    model = bc.LogisticRegression(penalty="l2", strength=1.0).fit(x, y)
    with pytest.raises(AttributeError, match="inference='laplace' or 'nuts'"):
        model.posterior_  # noqa: B018
    with pytest.raises(AttributeError, match="inference='laplace' or 'nuts'"):
        model.predict_interval(x)


@pytest.mark.parametrize(
    ("options", "unequal"),
    [
        # With 30 features, the 27 rows of the check of weights are separable.
        ({}, "no finite optimum"),
        pytest.param(
            {"coef_prior": "cauchy", "inference": "laplace", "num_samples": 100, "random_state": 0},
            "rounding decides which draws are accepted",
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_scikit_learns_checks(options: dict[str, Any], unequal: str | None) -> None:
    check = "check_sample_weight_equivalence_on_dense_data"
    with warnings.catch_warnings():
        # Some of its data sets are separable.
        warnings.simplefilter("ignore", ConvergenceWarning)
        check_estimator(
            bc.LogisticRegression(**options),
            on_skip=None,
            expected_failed_checks={check: unequal} if unequal else {},
        )


def test_a_mode_that_is_not_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from bayescal.regression.binary import posterior as _posterior

    x, y, _ = make_features(30)
    once = partial(_posterior.newton_on_host, max_iterations=1)
    monkeypatch.setattr(_posterior, "newton_on_host", once)
    model = bc.LogisticRegression(coef_prior="cauchy", inference="laplace", random_state=0)
    with pytest.warns(ConvergenceWarning, match="stopped before its optimum"):
        model.fit(x, y)
    assert model.status_ == "limit"
    with pytest.warns(ConvergenceWarning, match="stopped before its optimum"):
        bc.Logistic(inputs="scores", inference="laplace", random_state=0).fit(x[:, 0], y)


def test_features_and_labels_in_bfloat16() -> None:
    x, y, _ = make_features()
    narrow = jnp.asarray(x, jnp.bfloat16)
    actual = bc.LogisticRegression().fit(narrow, jnp.asarray(y, jnp.bfloat16))
    wide = np.asarray(narrow, float)
    expected = bc.LogisticRegression().fit(wide, y).predict_proba(wide)
    np.testing.assert_array_equal(actual.predict_proba(narrow), expected)


def test_masked_features_are_refused() -> None:
    features = np.ma.array(np.arange(8.0)[:, None], mask=np.arange(8)[:, None] < 1)
    with pytest.raises(ValueError, match="X must not be masked, got 1 masked values"):
        bc.LogisticRegression().fit(features, np.arange(8) % 2)


def test_options_of_no_kind_are_errors_of_their_own() -> None:
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    spike = dist.MixtureGeneral(
        dist.Categorical(probs=np.array([0.5, 0.5])),
        [dist.Delta(0.0), dist.Normal(0.0, 1.0)],
        support=dist.constraints.real,
    )
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"coef_prior": 3}, "coef_prior must be 'cauchy' or a distribution of NumPyro, got 3"),
        ({"coef_prior": dist.Normal(0.0, np.ones(2))}, r"batch shape \(\) or \(1,\) to match X"),
        ({"coef_prior": dist.Laplace(0.0, np.ones(2))}, r"batch shape \(\) or \(1,\) to match X"),
        ({"coef_prior": dist.Cauchy(0, 1).mask(False)}, "coef_prior must have the density of its"),
        ({"coef_prior": spike}, "coef_prior must be without point masses"),
        ({"random_state": "a"}, "'a' cannot be used to seed"),
        ({"smoothing": [0.1]}, "smoothing must be a number"),
        ({"l1_ratio": "a"}, "l1_ratio must be a number"),
    ]
    for options, message in wrong:
        with pytest.raises((TypeError, ValueError), match=message):
            bc.LogisticRegression(**options).fit(X, y)


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "cauchy"])
def test_features_far_from_zero_are_those_near_it(preset: str) -> None:
    """Check time stamps, whose columns differ from the intercept's only in the last digits."""
    (x, y, w), shift = make_features(100), 1e9
    near = bc.LogisticRegression.preset(preset).fit(x, y, sample_weight=w)
    far = bc.LogisticRegression.preset(preset).fit(x + shift, y, sample_weight=w)
    # Adding the shift rounds the features by half a unit in the last place.
    rounding = np.spacing(shift) * np.abs(near.coef_).sum() + 1e-9
    result = far.predict_proba(x + shift)
    np.testing.assert_allclose(result, near.predict_proba(x), rtol=0, atol=rounding)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=rounding)
    assert far.status_ == "converged"


def test_time_stamps_against_scikit_learn() -> None:
    x, y, _ = make_features(300)
    stamps = 1.7e9 + 600 * x
    ours = bc.LogisticRegression.preset("normal").fit(stamps, y).predict_proba(stamps)
    theirs = Plain(C=np.inf, tol=1e-10).fit(x - x.mean(axis=0), y)
    np.testing.assert_allclose(ours, theirs.predict_proba(x - x.mean(axis=0)), atol=1e-5)


def test_posteriors_far_from_zero() -> None:
    x, y, _ = make_features(60)
    model = bc.LogisticRegression(penalty="l2", strength=0.5, inference="laplace", random_state=0)
    near = model.fit(x, y).predict_proba(x)
    np.testing.assert_allclose(model.fit(x + 1e8, y).predict_proba(x + 1e8), near, atol=1e-6)


@pytest.mark.parametrize("labels", [[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
def test_coefficients_beside_a_posterior_are_its_mode(labels: list[int]) -> None:
    x, y = np.array([3.3, 4.2, 2.5, 5.0, 2.7]), np.array(labels)
    model = bc.LogisticRegression(
        penalty="l2", strength=2, inference="laplace", num_samples=20, classes=(0, 1)
    ).fit(x[:, None], y)

    def loss(theta: np.ndarray) -> float:
        line = theta[0] + theta[1] * (x - x.mean())
        prior = theta[1] ** 2 + np.log(10 * np.pi) + np.log1p((theta[0] / 10) ** 2)
        return np.sum(np.logaddexp(0, line) - y * line) + prior

    best = minimum(loss, 2)
    result = [model.intercept_[0] + model.coef_[0, 0] * x.mean(), model.coef_[0, 0]]
    np.testing.assert_allclose(result, best.x, atol=1e-5)
    assert model.objective_ == pytest.approx(best.fun / 5, rel=1e-9)
    assert model.status_ == "converged"


def test_log_odds_of_draws_are_those_of_their_mean_probability() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = rng.random(80) < expit(x[:, 0])
    fitted = bc.LogisticRegression(inference="laplace", coef_prior="cauchy", num_samples=200).fit(
        x, y
    )
    p = fitted.predict_proba(x)
    np.testing.assert_allclose(expit(fitted.decision_function(x)), p[:, 1], rtol=1e-9)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(x)), p, rtol=1e-9)
    draws = fitted.state_["theta_draws"].reshape(-1, 3)
    by_hand = expit(draws[:, :1] + draws[:, 1:] @ x.T).mean(axis=0)
    np.testing.assert_allclose(p[:, 1], by_hand, rtol=1e-9)
