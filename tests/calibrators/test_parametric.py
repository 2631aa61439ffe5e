"""Logistic, quadratic and beta calibration against SciPy and quadrature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.diagnostics import effective_sample_size
from scipy import optimize, stats
from scipy.special import expit, logit
from sklearn.base import clone

import bayescal as bc
from bayescal._core.minimization.optimize import Status
from bayescal._core.numerics import sigmoid
from bayescal.calibrators import Beta, Logistic, Quadratic, Temperature
from bayescal.calibrators.base.table import look_up, tabulate
from bayescal.calibrators.binary import log_odds
from bayescal.calibrators.binary.log_odds import LogOddsCalibrator
from bayescal.data.rows import Rows
from bayescal.inference.parameters import ParameterPosterior
from bayescal.regression import draws as tempered
from bayescal.regression.binary.posterior import Draws
from bayescal.smoothing import instance_targets, platt_targets
from tests.calibrators.brute import mean_and_ends
from tests.differences import curvature

Array = np.ndarray


def make_log_odds(n: int, seed: int = 0, slope: float = 0.7) -> tuple[Array, Array, Array]:
    """Return log odds, labels and weights."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n) * 2 + 0.5
    return z, (rng.random(n) < expit(slope * z - 0.4)).astype(int), rng.uniform(0.2, 3, n)


def columns(name: str, z: Array) -> Array:
    """Return the columns of each map according to its formula."""
    one, log_p, log_rest = np.ones_like(z), -np.logaddexp(0, -z), -np.logaddexp(0, z)
    return np.stack(
        {
            "logistic": [one, z],
            "quadratic": [one, z, z**2],
            "beta 3": [one, log_p, -log_rest],
            "beta 2": [np.log(2) + log_p, -np.log(2) - log_rest],
            "beta 1": [z],
        }[name]
    )


MAPS: dict[str, LogOddsCalibrator] = {
    "logistic": Logistic(),
    "quadratic": Quadratic(),
    "beta 3": Beta(),
    "beta 2": Beta(2),
    "beta 1": Beta(1),
}
#: Coefficients that must not be negative.
LIMITED = {
    "logistic": [0, 0],
    "quadratic": [0, 0, 0],
    "beta 3": [0, 1, 1],
    "beta 2": [1, 1],
    "beta 1": [1],
}


def loss(theta: Array, x: Array, y: Array, w: Array) -> float:
    line = theta @ x
    return float(w @ (np.logaddexp(0, line) - y * line))


def slope(theta: Array, x: Array, y: Array, w: Array) -> Array:
    return x @ (w * (expit(theta @ x) - y))


def reference(name: str, x: Array, y: Array, w: Array, iterations: int = 10_000) -> float:
    """Return the smallest loss that SciPy finds within the bounds."""
    limited = LIMITED[name]
    bounds = [(0, None) if positive else (None, None) for positive in limited]
    fits = [
        optimize.minimize(
            loss, start * np.ones(len(limited)), (x, y, w), "L-BFGS-B", slope, bounds=bounds,
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": iterations},
        )
        for start in (0.0, 0.5)
    ]  # fmt: skip
    return min(float(fit.fun) for fit in fits)


KINDS = {
    "good": lambda z, y, rng: y,
    "reversed": lambda z, y, rng: 1 - y,
    "noise": lambda z, y, rng: rng.integers(0, 2, len(z)),
    "extremes": lambda z, y, rng: (np.abs(z - 0.5) + rng.normal(size=len(z)) > 2).astype(int),
    "middle": lambda z, y, rng: (np.abs(z - 0.5) + rng.normal(size=len(z)) < 2).astype(int),
    "low half": lambda z, y, rng: np.where(z < 0, y, 1 - y),
    "high half": lambda z, y, rng: np.where(z > 0, y, 1 - y),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MAPS)
def test_objective_is_scipys_constrained_optimum(name: str, kind: str) -> None:
    for weighted in (False, True):
        z, y, w = make_log_odds(200, int(weighted))
        y = KINDS[kind](z, y, np.random.default_rng(100 + weighted))
        w = w if weighted else np.ones(200)
        calibration = MAPS[name]
        state = calibration._fit(Rows(z, y, w), 0)
        x, theta = columns(name, z), state["theta"]
        assert int(state["status"]) == Status.CONVERGED
        assert (theta[np.array(LIMITED[name], bool)] >= 0).all()
        assert float(state["objective"]) * w.sum() == pytest.approx(loss(theta, x, y, w), rel=1e-12)
        assert float(state["objective"]) * w.sum() <= reference(name, x, y, w) * (1 + 1e-10)
        np.testing.assert_allclose(calibration.apply(state, z)[:, 1], expit(theta @ x), rtol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_objective_of_many_rows_is_scipys_optimum(name: str) -> None:
    """Check rows whose columns are computed in parts."""
    z, y, w = make_log_odds(40_000, slope=2.0)
    state = MAPS[name]._fit(Rows(z, y, w), 0)
    x = columns(name, z)
    assert float(state["objective"]) * w.sum() == pytest.approx(
        loss(state["theta"], x, y, w), rel=1e-12
    )
    assert float(state["objective"]) * w.sum() <= reference(name, x, y, w) * (1 + 1e-10)


@pytest.mark.parametrize("name", ["platt", "beta 3", "beta 2"])
def test_very_many_rows_in_bins_have_scipys_optimum(name: str) -> None:
    """Check wide bins and steep maps, in which the rows of a bin differ most."""
    rng = np.random.default_rng(0)
    z, w = rng.normal(0, 2, 300_000), rng.uniform(0.2, 3, 300_000)
    z[:100] = np.linspace(-300, 300, 100)
    y = (rng.random(len(z)) < expit(3.8 * z - 0.1)).astype(int)
    platt = name == "platt"
    calibration = Logistic(smoothing="platt") if platt else MAPS[name]
    name, targets = ("logistic", platt_targets(y, w)) if platt else (name, y)
    rows = Rows(z, y, w)
    assert calibration._in_narrow_bins(rows) is not None
    state, exact, new = calibration._fit(rows, 0), calibration._fit_rows(rows), np.linspace(-5, 5)
    assert 3 < np.abs(state["theta"][-1]) < 4
    probs = (calibration.apply(part, new)[:, 1] for part in (state, exact))
    assert np.abs(np.subtract(*probs)).max() < 1e-8
    x = columns(name, z)
    assert loss(state["theta"], x, targets, w) <= reference(name, x, targets, w) * (1 + 1e-8)
    assert state["objective"] == pytest.approx(float(exact["objective"]), rel=1e-7)


@pytest.mark.parametrize("kind", ["steep", "separated", "far", "scores", "few"])
def test_other_rows_are_not_counted_in_bins(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a fit is exactly that of all rows if bins would be too wide, or need not be."""
    monkeypatch.setattr(log_odds, "_MAX_DIRECT_ROWS", 5_000 if kind == "few" else 1_000)
    z, y, w = make_log_odds(4_000, slope=15.0 if kind == "steep" else 0.7)
    y = (z > 0.3).astype(int) if kind == "separated" else y
    z = np.append(z[:-1], 1e9) if kind == "far" else z
    calibration = Logistic(inputs="scores" if kind == "scores" else "logits")
    rows = Rows(z, y, w)
    state, exact = calibration._fit(rows, 0), calibration._fit_rows(rows)
    assert int(state["status"]) == (Status.UNBOUNDED if kind == "separated" else Status.CONVERGED)
    np.testing.assert_array_equal(state["theta"], exact["theta"])
    assert state["objective"] == exact["objective"]


ROWS = st.lists(
    st.tuples(st.integers(-30, 30), st.integers(0, 1), st.integers(1, 5)), min_size=2, max_size=15
)


@settings(max_examples=40)
@given(ROWS)
@pytest.mark.parametrize("name", ["beta 1", "beta 3", "beta 2"])
def test_any_few_rows_meet_the_conditions_of_optimality(
    name: str, rows: list[tuple[int, int, int]]
) -> None:
    z, y, w = np.array(rows, float).T
    z = z / 5
    state = MAPS[name]._fit(Rows(z, y, w), 0)
    theta, x, limited = state["theta"], columns(name, z), np.array(LIMITED[name], bool)
    assert (theta[limited] >= 0).all()
    if int(state["status"]) == Status.CONVERGED:
        # The objective is convex, so these conditions are necessary and sufficient.
        gradient = slope(theta, x, y, w) / (1e-9 + np.sqrt(x**2 @ w))
        held = limited & (theta == 0)
        assert (np.abs(gradient[~held]) < 1e-4).all() and (gradient[held] > -1e-4).all()
    else:
        assert int(state["status"]) == Status.UNBOUNDED
        assert float(state["objective"]) * w.sum() <= reference(name, x, y, w, 100) + 1e-4 * w.sum()


@pytest.mark.parametrize("seed", range(4))
def test_beta_of_one_parameter_is_temperature(seed: int) -> None:
    z, y, w = make_log_odds(80, seed)
    one = Beta(1, inputs="logits").fit(z, y, w)
    other = Temperature(inputs="logits").fit(z, y, w)
    assert one.a_ == one.b_ and one.c_ == 0
    # Both solvers stop where a step improves the loss by less than a relative 1e-14.
    assert other.temperature_ == pytest.approx(1 / one.a_, rel=1e-6)
    np.testing.assert_allclose(one.predict_proba(z), other.predict_proba(z), rtol=1e-6)
    two = Beta(2, inputs="logits").fit(z, y, w)
    line = two.b_ * np.logaddexp(0, z) - two.a_ * np.logaddexp(0, -z) + two.c_
    np.testing.assert_allclose(two.predict_proba(z)[:, 1], expit(line), rtol=1e-9)


@pytest.mark.parametrize(
    ("z", "y"),
    [
        ([-1.0, 1.0], [1, 0]),
        ([-2.0, 0.5, 3.0], [1, 1, 0]),
        ([1.0, -1.0, 1.0, -1.0], [0, 0, 1, 1]),
        ([1.0, 2.0, 3.0], [0, 0, 0]),
    ],
    ids=["reversed", "worse", "exactly chance", "one class"],
)
def test_scores_no_better_than_chance_have_infinite_temperature(z: Any, y: Any) -> None:
    fitted = Temperature(inputs="logits", classes=[0, 1]).fit(z, y)
    assert fitted.temperature_ == np.inf and fitted.status_ == "converged"
    np.testing.assert_array_equal(fitted.predict_proba([-1e3, 0.0, 5.0]), 0.5)
    assert fitted.objective_ == pytest.approx(np.log(2), rel=1e-14)


def make_weighted_rows(z: Array, counts: list[tuple[int, int]]) -> tuple[Array, Array, Array]:
    """Return rows, as weights, with given numbers of negatives and positives at each score."""
    return z.repeat(2), np.tile([0, 1], len(z)), np.array(counts, float).ravel()


def test_saturated_maps_by_hand() -> None:
    """Check that maps with as many parameters as scores reproduce the label frequencies."""
    z = np.array([-4.0, 4.0])
    temperature = (
        Temperature(inputs="logits").fit(*make_weighted_rows(z, [(3, 1), (1, 3)])).temperature_
    )
    assert temperature == pytest.approx(4 / np.log(3), rel=1e-8)
    z = np.array([-1.0, 2.0])
    state = Logistic()._fit(Rows(*make_weighted_rows(z, [(3, 2), (1, 4)])), 0)
    line = np.log([2 / 3, 4])
    assert float(state["slope"]) == pytest.approx((line[1] - line[0]) / 3, rel=1e-8)
    assert float(state["intercept"]) == pytest.approx((2 * line[0] + line[1]) / 3, rel=1e-8)
    state = Quadratic()._fit(
        Rows(*make_weighted_rows(np.array([-1.0, 0.0, 1.0]), [(1, 1), (3, 1), (1, 5)])), 0
    )
    result = [float(state[name]) for name in ("intercept", "slope", "curvature")]
    expected = [-np.log(3), np.log(5) / 2, np.log(5) / 2 + np.log(3)]
    np.testing.assert_allclose(result, expected, rtol=1e-8)
    p = np.array([0.2, 0.8])
    state = Beta(2)._fit(Rows(*make_weighted_rows(logit(p), [(2, 1), (1, 3)])), 0)
    design = np.stack([np.log(2 * p), -np.log(2 - 2 * p)], axis=1)
    a, b = np.linalg.solve(design, np.log([1 / 2, 3]))
    np.testing.assert_allclose([float(state["a"]), float(state["b"])], [a, b], rtol=1e-8)
    assert float(state["c"]) == pytest.approx((a - b) * np.log(2), rel=1e-8)
    half = Beta(2).fit([0.1, 0.4, 0.35, 0.8, 0.7], [0, 0, 1, 1, 1]).predict_proba([0.5])
    np.testing.assert_allclose(half, 0.5, rtol=1e-15)
    p = np.array([0.2, 0.5, 0.9])
    state = Beta(3)._fit(Rows(*make_weighted_rows(logit(p), [(5, 1), (2, 1), (1, 6)])), 0)
    design = np.stack([np.log(p), -np.log1p(-p), np.ones(3)], axis=1)
    expected = np.linalg.solve(design, np.log([1 / 5, 1 / 2, 6]))
    assert (expected[:2] > 0).all()
    np.testing.assert_allclose([float(state[k]) for k in "abc"], expected, rtol=1e-7)


@pytest.mark.parametrize("name", MAPS)
def test_separable_data_are_said_to_be_and_predictions_are_sensible(name: str) -> None:
    z = np.array([-3.0, -2.0, -0.5, 0.5, 1.0, 4.0])
    y = (z > 0).astype(int)
    state = MAPS[name]._fit(Rows(z, y, np.ones(6)), 0)
    assert int(state["status"]) == Status.UNBOUNDED
    assert np.isfinite(state["theta"]).all()
    probs = MAPS[name].apply(state, z)[:, 1]
    assert (probs[y == 0] < 0.01).all() and (probs[y == 1] > 0.99).all()


@pytest.mark.parametrize("name", ["logistic", "quadratic", "beta 3"])
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only_is_said_and_predicted(name: str, label: int) -> None:
    z = np.array([-1.0, 0.3, 2.0])
    state = MAPS[name]._fit(Rows(z, np.full(3, label), np.ones(3)), 0)
    assert int(state["status"]) == Status.UNBOUNDED
    np.testing.assert_allclose(MAPS[name].apply(state, z)[:, 1], label, atol=1e-4)


def test_a_constant_score_gives_the_share_of_class_one() -> None:
    z, y = np.full(5, 0.7), np.array([0, 1, 1, 1, 1])
    for name in ("logistic", "quadratic", "beta 3", "beta 2"):
        state = MAPS[name]._fit(Rows(z, y, np.ones(5)), 0)
        assert int(state["status"]) == Status.CONVERGED
        np.testing.assert_allclose(MAPS[name].apply(state, z)[:, 1], 0.8, rtol=1e-7)


def test_logistic_fits_its_soft_targets() -> None:
    z, y, w = make_log_odds(120, seed=6)
    ones, zeros = w @ y, w @ (1 - y)
    targets = {
        "platt": np.where(y == 1, (ones + 1) / (ones + 2), 1 / (zeros + 2)),
        0.1: np.where(y == 1, 0.9, 0.1),
        "instance": instance_targets(z, y, w),
        None: y,
    }
    for smoothing, t in targets.items():
        state = Logistic(smoothing)._fit(Rows(z, y, w), 0)
        x, theta = columns("logistic", z), state["theta"]
        assert float(state["objective"]) * w.sum() == pytest.approx(loss(theta, x, t, w), rel=1e-12)
        assert float(state["objective"]) * w.sum() <= reference("logistic", x, t, w) * (1 + 1e-10)


def test_soft_targets_keep_separable_data_finite() -> None:
    z = np.array([-3.0, -2.0, -0.5, 0.5, 1.0, 4.0])
    y = (z > 0).astype(int)
    for smoothing in ("platt", 0.01):
        state = Logistic(smoothing)._fit(Rows(z, y, np.ones(6)), 0)
        assert int(state["status"]) == Status.CONVERGED
    # There are two scores, so the targets 4 / 5 and 1 / 5 are reached exactly.
    state = Logistic("platt")._fit(
        Rows(np.repeat([-1.0, 1.0], 3), np.repeat([0, 1], 3), np.ones(6)), 0
    )
    assert float(state["slope"]) == pytest.approx(np.log(4), rel=1e-8)


def test_sigmoid_is_precise_at_both_ends() -> None:
    line = np.array([-800.0, -700.0, -40.0, -1e-20, 0.0, 1e-9, 30.0, 37.0, 800.0])
    np.testing.assert_allclose(sigmoid(line), expit(line), rtol=1e-15)
    assert sigmoid(np.array([-np.inf, np.inf])).tolist() == [0, 1]


# Posteriors with the weak prior: columns, except ones and those with positive coefficients, are
# centered and scaled to a standard deviation of one half. Slopes have the prior Cauchy(0, 2.5), the
# intercept Cauchy(0, 10), and logarithms of positive coefficients Normal(0, 1.5).


def sample(
    calibrator: LogOddsCalibrator, inference: str, count: int, z: Array, y: Array, w: Array
) -> Draws:
    """Draw from the posterior of a calibrator with the given options."""
    calibrator = clone(calibrator).set_params(inference=inference, num_samples=count)
    return calibrator._sample(calibrator._fit(Rows(z, y, w), 0), Rows(z, y, w), 0)


def standardized(name: str, z: Array, w: Array) -> tuple[Array, Array, Array]:
    """Return the standardized columns with their means and scales."""
    raw = columns(name, z)
    plain = np.array(LIMITED[name], bool) | (raw == 1).all(axis=1)
    mean = np.average(raw, axis=1, weights=w)
    sd = np.sqrt(np.average((raw - mean[:, None]) ** 2, axis=1, weights=w))
    mean, scale = np.where(plain, 0, mean), np.where(plain, 1, 2 * sd)
    return (raw - mean[:, None]) / scale[:, None], mean, scale


def log_posterior(u: Array, name: str, x: Array, y: Array, w: Array) -> Array:
    """Return the log posterior of u (..., p), in which positive coefficients are exp(u)."""
    positive = np.array(LIMITED[name], bool)
    lines = np.where(positive, np.exp(u), u) @ x
    total = -(np.logaddexp(0, lines) - y * lines) @ w
    for j in range(len(positive)):
        if positive[j]:
            total = total + stats.norm.logpdf(u[..., j], 0, 1.5)
        else:
            total = total + stats.cauchy.logpdf(u[..., j], 0, 10 if j == 0 else 2.5)
    return total


def to_u(name: str, theta: Array, mean: Array, scale: Array) -> Array:
    """Convert draws (n, p) of a map's coefficients to u for the standardized columns."""
    positive = np.array(LIMITED[name], bool)
    with np.errstate(invalid="ignore"):
        u = np.where(positive, np.log(theta), theta * scale)
    if not positive[0]:
        u[:, 0] = theta @ np.where(np.arange(len(mean)) == 0, 1, mean)
    return u


@pytest.mark.parametrize(
    ("name", "labels"),
    [*((name, "mixed") for name in MAPS), ("quadratic", "separable"), ("beta 2", "one class")],
)
def test_laplace_is_normal_at_the_mode_of_the_documented_posterior(
    name: str, labels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempered, "_NORMAL", np.inf)
    z, y, w = make_log_odds(50, seed=4)
    y = {"mixed": y, "separable": (z > 0.3).astype(int), "one class": np.ones(50, int)}[labels]
    calibration = MAPS[name]
    draws = sample(calibration, "laplace", 20_000, z, y, w)
    assert draws.coefficients.shape == (1, 20_000, len(LIMITED[name]))
    x, mean, scale = standardized(name, z, w)
    u = to_u(name, draws.coefficients[0], mean, scale)
    assert np.isfinite(u).all()

    def value(at: Array) -> float:
        return -float(log_posterior(at, name, x, y, w))

    # Draws lie in pairs on both sides of the mode.
    mode, p = u.mean(axis=0), u.shape[1]
    starts = np.concatenate([np.zeros((1, p)), 2 * np.eye(p), -2 * np.eye(p)])
    best = min(optimize.minimize(value, s, options={"gtol": 1e-6}).fun for s in starts)
    assert value(mode) <= best + 1e-9 * abs(best)
    unit = u.std(axis=0)
    hessian = curvature(value, mode, unit)
    white = (u - mode) / unit @ np.linalg.cholesky(hessian)
    error = np.sqrt((1 + np.eye(p)) / (len(u) / 2))
    assert (np.abs(white.T @ white / len(u) - np.eye(p)) < 4.5 * error).all()


class Grid:
    """A posterior of one to three parameters u on a grid."""

    def __init__(self, name: str, z: Array, y: Array, w: Array, axes: list[Array]) -> None:
        x, self.mean, self.scale = standardized(name, z, w)
        self.u = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
        log = log_posterior(self.u, name, x, y, w)
        mass = np.exp(log - log.max())
        self.mass = mass / mass.sum()
        edge = np.zeros(len(mass), bool)
        for j, axis in enumerate(axes):
            edge |= (self.u[:, j] == axis[0]) | (self.u[:, j] == axis[-1])
        # The density outside is negligible, and the grid is dense enough for an exact sum.
        assert self.mass[edge].sum() < 1e-6 and self.mass.max() < 0.05

    def average(self, values: Array) -> Array:
        return self.mass @ values


def check(draws: Array, expected: float) -> None:
    """Compare the mean of draws (chains, n) with a number, up to its standard error."""
    ess = float(effective_sample_size(draws[..., None])[0])
    assert ess > 400
    assert abs(draws.mean() - expected) < 4.5 * draws.std() / np.sqrt(ess)


def check_curves(draws: Array, name: str, at: Array, grid: Grid, theta: Array) -> None:
    """Compare probabilities and credible intervals with sums over the grid."""
    mean, lower, upper = mean_and_ends(MAPS[name], {"theta_draws": draws}, at, 0.8)
    probs = expit(theta @ columns(name, at))
    curves = expit(draws @ columns(name, at))
    for j in range(len(at)):
        np.testing.assert_allclose(mean[j], [(1 - curves[..., j]).mean(), curves[..., j].mean()])
        check(curves[..., j], grid.average(probs[:, j]))
        for end, level in ((lower[j, 1], 0.1), (upper[j, 1], 0.9)):
            below = grid.mass[probs[:, j] <= end].sum()
            ess = float(effective_sample_size((curves[..., j] <= end)[..., None] * 1.0)[0])
            error = np.sqrt(level * (1 - level) / ess)
            assert abs(below - level) < 4.5 * error + grid.mass.max()


@pytest.mark.slow
def test_chains_of_one_slope_against_quadrature() -> None:
    z, y, w = make_log_odds(25, seed=1, slope=0.5)
    fitted = Beta(1, inputs="logits", inference="nuts", num_samples=4000, random_state=0).fit(
        z, y, w
    )
    posterior, draws = fitted.posterior_, fitted.state_["theta_draws"]
    grid = Grid("beta 1", z, y, w, [np.linspace(-9, 3, 1501)])
    a = np.exp(grid.u)
    assert draws.shape == (4, 1000, 1) and posterior.divergences == 0
    assert posterior.r_hat[0] < 1.01 and posterior.ess[0] > 400
    np.testing.assert_allclose(posterior.draws["a"], draws[..., 0], rtol=1e-14)
    result, mean = draws[..., 0], grid.average(a[:, 0])
    check(result, mean)
    check((result - mean) ** 2, grid.average((a[:, 0] - mean) ** 2))
    check(np.log(result), grid.average(grid.u[:, 0]))
    check(np.log(result) ** 2, grid.average(grid.u[:, 0] ** 2))
    at = np.array([-3.0, 0.4, 2.0])
    check_curves(draws, "beta 1", at, grid, a)
    np.testing.assert_allclose(fitted.predict_proba(at)[:, 1], expit(draws * at).mean((0, 1)))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "width", "points"), [("beta 2", 14, 161), ("quadratic", 8, 41)])
def test_chains_of_more_coefficients_against_quadrature(name: str, width: int, points: int) -> None:
    z, y, w = make_log_odds(80, seed=6)
    calibration = MAPS[name]
    draws = sample(calibration, "nuts", 4000, z, y, w)
    assert draws.divergences == 0 and draws.status == Status.CONVERGED
    assert (draws.r_hat < 1.01).all() and (draws.ess > 400).all()
    p = len(LIMITED[name])
    _, mean, scale = standardized(name, z, w)
    u = to_u(name, draws.coefficients.reshape(-1, p), mean, scale)
    unit = np.linspace(-width, width, points)
    axes = [m + s * unit for m, s in zip(u.mean(axis=0), u.std(axis=0), strict=True)]
    grid = Grid(name, z, y, w, axes)
    for j in range(p):
        exact = grid.average(grid.u[:, j])
        result = u[:, j].reshape(4, 1000)
        check(result, exact)
        check((result - exact) ** 2, grid.average((grid.u[:, j] - exact) ** 2))


def test_normal_approximation_against_quadrature_where_it_is_good() -> None:
    """Check 2,000 rows, whose posterior is nearly normal, and the mean of the mode exactly."""
    z, y, w = make_log_odds(2000, seed=3)
    draws = sample(Logistic(), "laplace", 20_000, z, y, w)
    _, mean, scale = standardized("logistic", z, w)
    u = to_u("logistic", draws.coefficients[0], mean, scale)
    axes = [np.linspace(m - 6 * s, m + 6 * s, 49) for m, s in zip(u.mean(0), u.std(0), strict=True)]
    grid = Grid("logistic", z, y, w, axes)
    # The theoretical error is of the order 1 / n relative to the spread.
    exact = grid.average(grid.u)
    sd = np.sqrt(grid.average((grid.u - exact) ** 2))
    assert (np.abs(u.mean(axis=0) - exact) < 0.05 * sd).all()
    np.testing.assert_allclose(u.std(axis=0), sd, rtol=4.5 / np.sqrt(20_000) + 0.005)


def test_summaries_of_draws_by_hand() -> None:
    a = np.arange(12.0).reshape(2, 6)
    posterior = ParameterPosterior({"a": a, "b": a[..., None] * [1, 2]}, "nuts", a, a, 3)
    assert float(posterior.mean()["a"]) == 5.5
    assert float(posterior.sd()["a"]) == pytest.approx(np.sqrt(143 / 12))
    assert posterior.mean()["b"].tolist() == [5.5, 11.0]
    lower, upper = posterior.interval(0.5)["a"]
    assert (lower, upper) == (2.75, 8.25)
    assert posterior.interval(0.5)["b"].tolist() == [[2.75, 5.5], [8.25, 16.5]]
    assert repr(posterior) == "ParameterPosterior(nuts: a = 5.5 ± 3.5, b: 2 values)"
    assert posterior.divergences == 3
    tree = posterior.to_arviz()
    assert tree.posterior["a"].shape == (2, 6) and tree.posterior["b"].shape == (2, 6, 2)


def test_curves_of_draws_do_not_depend_on_blocks() -> None:
    rng = np.random.default_rng(0)
    theta, at = rng.normal(size=(300_000, 2)), rng.normal(size=11)
    x = columns("logistic", at)
    mean, lower, upper = mean_and_ends(Logistic(), {"theta_draws": theta}, at, 0.5)
    probs = expit(theta @ x)
    expected = np.stack([expit(-theta @ x).mean(axis=0), probs.mean(axis=0)], axis=1)
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    ends = np.quantile(probs, [0.25, 0.75], axis=0)
    np.testing.assert_allclose([lower[:, 1], upper[:, 1]], ends, rtol=1e-4)


@pytest.mark.parametrize("shift", [1e6, -1e9])
@pytest.mark.parametrize("name", ["quadratic", "logistic"])
def test_raw_scores_far_from_zero_against_scipy(name: str, shift: float) -> None:
    z, y, w = make_log_odds(200)
    expected = optimize.minimize(
        loss,
        np.zeros(len(columns(name, z))),
        (columns(name, z), y, w),
        jac=slope,
        method="BFGS",
        options={"gtol": 1e-9},
    ).x
    model = clone(MAPS[name]).set_params(inputs="scores").fit(z + shift, y, sample_weight=w)
    truth = expit(expected @ columns(name, z))
    result = model.predict_proba(z + shift)[:, 1]
    np.testing.assert_allclose(result, truth, rtol=0, atol=1e-6 + np.spacing(abs(shift)))
    np.testing.assert_allclose(model.as_function()(z + shift)[:, 1], result, rtol=0, atol=1e-12)
    parts = [slice(i, i + 50) for i in range(0, 200, 50)]
    blocks = bc.Blocks(lambda: ((z[rows] + shift, y[rows], w[rows]) for rows in parts))
    again = clone(model).fit(blocks).predict_proba(z + shift)[:, 1]
    np.testing.assert_allclose(again, result, rtol=0, atol=1e-7)


def test_parameters_of_raw_scores_are_those_of_the_formula() -> None:
    z, y, w = make_log_odds(200)
    for name in ("quadratic", "logistic"):
        model = clone(MAPS[name]).set_params(inputs="scores").fit(z + 3, y, sample_weight=w)
        names = ["intercept_", "slope_", *(["curvature_"] if name == "quadratic" else [])]
        line = np.array([getattr(model, attribute) for attribute in names]) @ columns(name, z + 3)
        np.testing.assert_allclose(expit(line), model.predict_proba(z + 3)[:, 1], rtol=1e-12)


@pytest.mark.parametrize(
    "calibrator",
    [
        bc.Beta(inputs="logits"),
        bc.Quadratic(inputs="logits"),
        bc.Temperature(inputs="logits"),
        bc.EnsembleTemperature(inputs="logits"),
    ],
    ids=repr,
)
def test_many_scores_have_the_values_that_few_have(calibrator: Any) -> None:
    """Check posterior means that are read from a table unless their curve is too steep."""
    rng = np.random.default_rng(0)
    e = rng.normal(size=40_000)
    far = 3 * e
    far[:4] = 99, -99.5, 400, -1e5
    tied = np.round(e)
    calibrator.set_params(inference="laplace", num_samples=200)
    for z in (far, tied, 0 * e + 0.3, 1e-12 * e, 2e-9 * e, 3 + 1e-9 * e):
        y = (rng.random(40) < expit(0.6 * e[-40:] - 0.3)).astype(int)
        calibrator.fit(z[-40:], y)
        parts = np.split(np.arange(2000), 4)
        exact = np.concatenate([calibrator.predict_proba(z[part]) for part in parts])
        for _ in range(2):  # before and after the table is built
            mean = calibrator.predict_proba(z)[:2000]
            np.testing.assert_allclose(mean, exact, atol=1e-10)
        function = calibrator.as_function()
        np.testing.assert_allclose(function(z)[:2000], exact, atol=1e-10)
        assert np.isnan(function(np.append(z, np.nan))[-1]).all()


def test_a_table_says_whether_it_is_accurate() -> None:
    for slope, reached in ((0.7, True), (1e4, True), (1e12, False)):

        def log_odds(z: Array, slope: float = slope) -> Array:
            return np.clip(slope * z, -700, 700)

        table, accurate = tabulate(log_odds, np.empty(0), 100.0)
        at = np.random.default_rng(0).normal(size=1000) / slope
        error = np.abs(expit(look_up(table, at)) - expit(slope * at)).max()
        assert accurate == reached == (error < 1e-10)


def test_tables_of_noise_are_limited() -> None:
    rng = np.random.default_rng(0)
    table, accurate = tabulate(lambda z: rng.normal(size=len(z)), np.empty(0), 100.0)
    assert not accurate
    assert table["table_unit"].shape[1] < 40_000


def test_what_a_table_misses_is_computed() -> None:
    """Check that a bump narrower than the distance of table nodes is computed at its scores."""
    calibrator = bc.Quadratic(inputs="logits", inference="laplace", num_samples=200)
    e = np.random.default_rng(0).normal(size=5000)
    y = np.arange(40) % 2
    calibrator.fit(3 * e[:40], y)
    draws = np.broadcast_to(1e12 * np.array([9.0, -6.0, 1.0]) - [1.0, 0, 0], (1, 200, 3))
    calibrator.state_ = {**calibrator.state_, "theta_draws": draws.copy()}
    z = 3 + 1e-6 * e
    exact = np.concatenate([calibrator.predict_proba(part) for part in np.split(z, 10)])
    assert np.ptp(exact[:, 1]) > 0.5
    np.testing.assert_allclose(calibrator.predict_proba(z), exact, atol=1e-9)
