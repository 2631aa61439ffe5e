"""Logistic regression fits against SciPy in float64, and optimality."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from bayescal._core.minimization.optimize import Status
from bayescal.regression.binary.fit import Fit, fit_many, fit_single
from bayescal.regression.binary.objective import CoefficientPrior, Regression
from tests.regression.problems import loss, make_rows, slope

pytestmark = pytest.mark.usefixtures("x64")

Array = np.ndarray


def fit(
    x: Array, t: Array, w: Array | None = None, l1: float = 0.0, l2: float = 0.0, **options: Any
) -> tuple[Array, Fit]:
    """Fit one data set, and return (intercept, coef...) with the fit."""
    w = np.ones(len(t)) if w is None else w
    row = [jnp.asarray(a, jnp.float64)[None] for a in (x, t, w, l1, l2)]
    result = fit_many(Regression(*row, **options), lasso=l1 > 0)
    return np.concatenate([result.intercept, result.coef[0]]), result


def scipy_minimum(x: Array, t: Array, w: Array, l2: float) -> float:
    actual = optimize.minimize(
        loss, np.zeros(x.shape[1] + 1), (x, t, w, l2), "BFGS", slope,
        options={"gtol": 1e-9, "maxiter": 10_000},
    )  # fmt: skip
    return float(actual.fun)


@pytest.mark.parametrize(
    ("d", "l2", "soft"),
    [(1, 0.0, False), (1, 10.0, True), (3, 1e-3, True), (25, 0.0, True), (25, 10.0, False)],
)
def test_smooth_fits_reach_scipys_optimum(d: int, l2: float, soft: bool) -> None:
    x, t, w = make_rows(400, d)
    t = 0.9 * t + 0.03 if soft else t
    beta, result = fit(x, t, w, l2=l2)
    assert int(result.status[0]) == Status.CONVERGED
    assert float(result.value[0]) == pytest.approx(loss(beta, x, t, w, l2=l2), rel=1e-12)
    assert float(result.value[0]) <= scipy_minimum(x, t, w, l2) * (1 + 1e-10)
    assert np.abs(slope(beta, x, t, w, l2=l2)).max() < 1e-5


@pytest.mark.parametrize(
    ("l1", "l2"), [(1e-3, 0.0), (1.0, 0.0), (10.0, 0.0), (1.0, 1.0), (5.0, 0.1), (1e3, 0.0)]
)
@pytest.mark.parametrize("d", [1, 30])
def test_elastic_net_meets_the_conditions_of_optimality(d: int, l1: float, l2: float) -> None:
    x, t, w = make_rows(150, d)
    x[:, -1] = x[:, 0] + 0.1 * x[:, -1]
    beta, result = fit(x, t, w, l1, l2)
    assert int(result.status[0]) == Status.CONVERGED
    gradient = slope(beta, x, t, w, l2=l2)
    assert abs(gradient[0]) < 1e-5
    zero = beta[1:] == 0
    # The objective is convex, so these conditions are necessary and sufficient.
    assert (np.abs(gradient[1:][zero]) <= l1 + 1e-5).all()
    np.testing.assert_allclose(gradient[1:][~zero], -l1 * np.sign(beta[1:][~zero]), atol=1e-5)
    assert zero.all() == (l1 == 1e3)


def test_elastic_net_against_scikit_learn() -> None:
    x, t, w = make_rows(200, 8)
    for l1, l2 in ((1.0, 0.0), (3.0, 2.0)):
        model = LogisticRegression(
            C=1 / (l1 + l2),
            l1_ratio=l1 / (l1 + l2),
            solver="saga",
            tol=1e-10,
            max_iter=100_000,
            random_state=0,
        ).fit(x, t, sample_weight=w)
        theirs = loss(np.r_[model.intercept_, model.coef_[0]], x, t, w, l1=l1, l2=l2)
        beta, result = fit(x, t, w, l1, l2)
        assert float(result.value[0]) == pytest.approx(theirs, rel=1e-8)
        np.testing.assert_allclose(beta[1:], model.coef_[0], atol=1e-4)


@pytest.mark.slow
def test_any_prior_of_the_coefficients_against_scipy() -> None:
    x, t, w = make_rows(30, 2, seed=3)
    pairs = {
        "cauchy": (dist.Cauchy(0.0, 2.5), stats.cauchy(0, 2.5)),
        "student": (dist.StudentT(4.0, 1.0, 0.5), stats.t(4, 1, 0.5)),
        "normal": (dist.Normal(-1.0, 0.3), stats.norm(-1, 0.3)),
    }
    wide = dist.Cauchy(0.0, 10.0), stats.cauchy(0, 10)
    for prior, law in pairs.values():
        beta, result = fit(x, t, w, prior=prior, intercept_prior=wide[0])

        def total(b: Array, law: Any = law) -> float:
            return loss(b, x, t, w) - wide[1].logpdf(b[0]) - law.logpdf(b[1:]).sum()

        starts = [np.zeros(3), np.ones(3), -np.ones(3)]
        best = min(optimize.minimize(total, s, options={"gtol": 1e-7}).fun for s in starts)
        assert int(result.status[0]) == Status.CONVERGED
        assert total(beta) <= best + 1e-6 * abs(best)
        assert float(result.value[0]) == pytest.approx(total(beta), rel=1e-9)


@pytest.mark.parametrize("weight", [1e4, 1e10, 1e13])
def test_rows_of_little_weight_beside_heavy_ones_converge(weight: float) -> None:
    x = np.array([0.0, 0, -1, 1, -1, 1, -1, 1, 1])[:, None]
    t, w = np.array([0.0, 1, 0, 1, 1, 0, 0, 1, 1]), np.array([weight, weight, *np.ones(7)])
    result = fit_single(Regression(x, t, w, 0.0, 0.0))
    # The heavy rows fix the intercept at zero. Five of the other rows agree with their sign.
    assert result.status == Status.CONVERGED
    np.testing.assert_allclose(result.x, [0, np.log(5 / 2)], rtol=1e-4, atol=1e-4)
    separable = fit_single(Regression(x, np.where(x[:, 0] == 0, t, x[:, 0] > 0), w, 0.0, 0.0))
    assert separable.status == Status.UNBOUNDED


def test_equal_columns_under_cauchy_priors_reach_a_mode() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    t = (rng.random(200) < expit(6 * x)) * 1.0
    columns, prior = np.stack([x, x], axis=1), CoefficientPrior(0.0, 1.0, 1.0)
    problem = Regression(columns, t, np.ones(200), 0.0, 0.0, None, prior, prior)

    def loss(beta: np.ndarray) -> float:
        line = beta[0] + columns @ beta[1:]
        return np.sum(np.logaddexp(0, line) - t * line) - stats.cauchy.logpdf(beta).sum()

    fit = fit_single(problem)
    best = min(optimize.minimize(loss, start).fun for start in ([0, 5, 0], [0, 0, 5], [0, 2, 2.1]))
    assert fit.status == Status.CONVERGED
    assert fit.value == pytest.approx(best, abs=1e-6)
    # The classes are exchangeable.
    other = fit_single(problem._replace(targets=1 - t))
    np.testing.assert_allclose(other.x, -fit.x, rtol=1e-5)


@pytest.mark.slow
def test_a_cauchy_prior_tames_separable_data() -> None:
    x = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    t = np.array([0.0, 0.0, 1.0, 1.0])
    priors = {"prior": dist.Cauchy(0.0, 2.5), "intercept_prior": dist.Cauchy(0.0, 10.0)}
    beta, result = fit(x, t, **priors)

    def total(b: Array) -> float:
        law = stats.cauchy(0, 10).logpdf(b[0]) + stats.cauchy(0, 2.5).logpdf(b[1])
        return loss(b, x, t, np.ones(4)) - law

    grid = np.linspace(0, 12, 2001)
    best = min(total(np.array([0.0, g])) for g in grid)
    assert int(result.status[0]) == Status.CONVERGED
    assert total(beta) <= best + 1e-9
    assert 0 < beta[1] < 12


@pytest.mark.parametrize(
    ("x", "t"),
    [
        ([[-1.0], [1.0]], [0, 1]),
        ([[-2.0], [-1.0], [0.5], [3.0]], [0, 0, 1, 1]),
        # Only ties at the border: the slope diverges, although the loss stays positive.
        ([[-2.0], [0.0], [0.0], [3.0]], [0, 0, 1, 1]),
        ([[1e6], [2e6], [3e6]], [0, 1, 1]),
        # One class: the intercept diverges with or without a penalty on slopes.
        ([[0.3], [0.5]], [1, 1]),
    ],
    ids=["two points", "gap", "ties at the border", "large scores", "one class"],
)
def test_no_finite_optimum_is_said_and_the_fit_stays_finite(x: Any, t: Any) -> None:
    beta, result = fit(np.array(x), np.array(t, float))
    assert int(result.status[0]) == Status.UNBOUNDED
    assert np.isfinite(beta).all()
    line = beta[0] + np.array(x) @ beta[1:]
    wrong = np.where(np.array(t) == 1, line < -1e-3, line > 1e-3)
    assert not wrong.any()


@pytest.mark.parametrize("intercept_prior", [None, CoefficientPrior(0.0, 10.0, 1.0)])
def test_rows_of_weight_zero_may_hold_any_number(intercept_prior: Any) -> None:
    x, t, _ = make_rows(40, 2)
    priors = None, CoefficientPrior(0.0, 2.5, 1.0), intercept_prior
    expected = fit_single(Regression(x, t, np.ones(40), 0.0, 0.0, *priors)).x
    x, t = np.r_[x, np.full((1, 2), 1e250)], np.r_[t, 1.0]
    actual = fit_single(Regression(x, t, np.r_[np.ones(40), 0.0], 0.0, 0.0, *priors)).x
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_a_batch_gives_what_each_gives_alone_in_one_compilation() -> None:
    sets = [make_rows(60, 2, seed) for seed in range(8)]
    l2 = np.geomspace(1e-3, 10, 8)
    columns = [jnp.asarray(np.stack(part)) for part in zip(*sets, strict=True)]
    batch = fit_many(Regression(*columns, jnp.zeros(8), jnp.asarray(l2)))
    before = fit_many._cache_size()
    fit_many(Regression(*columns, jnp.zeros(8), jnp.asarray(2 * l2)))
    assert fit_many._cache_size() == before
    for i, (x, t, w) in enumerate(sets):
        alone, _ = fit(x, t, w, l2=l2[i])
        np.testing.assert_allclose(batch.intercept[i], alone[0], rtol=1e-9)
        np.testing.assert_allclose(batch.coef[i], alone[1:], rtol=1e-9)


ROWS = st.tuples(
    st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, 1e-300])),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.sampled_from([0.0, 1e-2, 1.0, 1e2]),
)


@settings(max_examples=150)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_never_nan_and_never_worse_than_no_slope(rows: list[tuple[float, float, float]]) -> None:
    padded = np.zeros((12, 3))
    padded[: len(rows)] = rows
    with jax.enable_x64(True):
        beta, result = fit(padded[:, :1], padded[:, 1], padded[:, 2])
    assert np.isfinite(beta).all()
    x, t, w = padded[:, :1], padded[:, 1], padded[:, 2]
    value = loss(beta, x, t, w)
    total = max(w.sum(), 1e-300)
    mean = np.clip((w * t).sum() / total, 1e-9, 1 - 1e-9)
    start = loss(np.array([np.log(mean / (1 - mean)), 0.0]), x, t, w)
    assert value <= start + 1e-6 * w.sum() + 1e-12
    assert int(result.status[0]) != Status.INVALID
    # A row a million times as far out as others may use up the iterations, as the status says.
    if np.abs(x[w > 0]).max(initial=0) <= 1e4:
        assert int(result.status[0]) in (Status.CONVERGED, Status.UNBOUNDED)


@pytest.mark.parametrize("l1", [0.0, 0.7])
@pytest.mark.parametrize("shift", [1e5, 1e9])
def test_features_far_from_zero_have_the_optimum_of_centered_ones(shift: float, l1: float) -> None:
    x, t, w = make_rows(120, 3)
    near = x - w @ x / w.sum()
    expected, _ = fit(near, t, w, l1, 0.3)
    actual, result = fit(x + shift, t, w, l1, 0.3)
    np.testing.assert_allclose(actual[1:], expected[1:], rtol=1e-9 + np.spacing(shift) * 10)
    line = actual[0] + (x + shift) @ actual[1:]
    np.testing.assert_allclose(line, expected[0] + near @ expected[1:], atol=1e-9 + shift * 1e-14)
    assert result.status[0] == Status.CONVERGED
