"""Spline calibration against the raw natural cubic basis and explicit cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy import integrate, optimize, stats
from scipy.special import expit, logit

from bayescal._core.minimization.optimize import Status
from bayescal.calibrators.binary import log_odds as _log_odds
from bayescal.calibrators.binary.spline import calibrator as spline_module
from bayescal.calibrators.binary.spline import points as _spline_points
from bayescal.calibrators.binary.spline.basis import choose_knots, make_basis
from bayescal.calibrators.binary.spline.calibrator import Spline, compact_logit
from bayescal.data.rows import Rows
from bayescal.regression.binary.fit import fit_single
from bayescal.regression.binary.objective import Regression
from bayescal.regression.binary.posterior import Target, find_mode
from bayescal.regression.binary.ridge import RidgePath, ridge_path
from bayescal.regression.draws import Draws, one_chain
from benchmarks.coverage_bands import study

Array = np.ndarray
GRID = np.linspace(0.001, 0.999, 200)

PENALTIES = ("symmetric", "curvature", "coefficients")


def make_probs(n: int, seed: int = 0, wiggle: float = 2.0) -> tuple[Array, Array, Array]:
    """Draw probabilities, labels and weights; the true log odds are a line plus a wave."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(size=n)
    y = rng.uniform(size=n) < expit(6 * (p - 0.5) + wiggle * np.sin(9 * p))
    return p, y.astype(int), rng.uniform(0.5, 2, n)


def natural_basis(x: Array, k: Array, derivative: int = 0) -> Array:
    """Return the raw natural cubic basis (knots, m) of the published method, or its derivatives."""
    factor = {0: 1, 2: 6}[derivative]

    def cube(knot: float) -> Array:
        return factor * np.maximum(x - knot, 0) ** (3 - derivative)

    d = [(cube(knot) - cube(k[-1])) / (k[-1] - knot) for knot in k[:-1]]
    line = [np.ones_like(x), x] if derivative == 0 else [0 * x, 0 * x]
    return np.stack([*line, *(part - d[-1] for part in d[:-1])])


def penalty_matrix(k: Array, penalty: str) -> Array:
    if penalty == "coefficients":
        return np.diag([0.0] + [1.0] * (len(k) - 1))
    if penalty == "symmetric":
        # The coefficients in the mirrored basis: the slope at the right end, and the jumps of the
        # third derivative, times the distance to the left end.
        jumps = np.zeros((len(k), len(k) - 2))
        jumps[:-2] = np.diag(1 / (k[-1] - k[:-2]))
        jumps[-2] = -1 / (k[-1] - k[-2])
        jumps[-1] = -jumps.sum(axis=0)
        turn = np.zeros((len(k) - 1, len(k)))
        turn[0, 1], turn[0, 2:] = 1, 3 * (k[-2] - k[:-2])
        turn[1:, 2:] = jumps[2:] * (k[2:] - k[0])[:, None]
        return (penalty_matrix(k, "coefficients") + turn.T @ turn) / 2
    # Simpson's rule is exact, since second derivatives are linear between knots.
    h, middle = np.diff(k), (k[1:] + k[:-1]) / 2
    parts = ((k[:-1], 1 / 6), (middle, 4 / 6), (k[1:], 1 / 6))
    second = [(natural_basis(at, k, 2), share) for at, share in parts]
    return np.sum([(b * h * share) @ b.T for b, share in second], axis=0)


def reference(x: Array, y: Array, w: Array, k: Array, penalty: str, strength: float) -> Any:
    """Minimize over the raw basis with SciPy, each function scaled."""
    basis = natural_basis(x, k)
    unit = 1 / np.sqrt((basis**2).mean(axis=1))
    basis = basis * unit[:, None]
    quadratic = strength * penalty_matrix(k, penalty) * unit[:, None] * unit

    def loss(t: Array) -> float:
        line = t @ basis
        return float(w @ (np.logaddexp(0, line) - y * line) + t @ quadratic @ t / 2)

    def slope(t: Array) -> Array:
        return basis @ (w * (expit(t @ basis) - y)) + quadratic @ t

    def hessian(t: Array) -> Array:
        p = expit(t @ basis)
        return (basis * (w * p * (1 - p))) @ basis.T + quadratic

    result = optimize.minimize(
        loss, np.zeros(len(k)), jac=slope, hess=hessian, method="trust-exact",
        options={"gtol": 1e-7, "maxiter": 1000},
    )  # fmt: skip
    return result.fun, result.x * unit


def rescale_probs(calibration: Spline, state: Any, p: Array) -> Array:
    if calibration.rescale == "logit":
        epsilon = float(state["epsilon"])
        return logit(np.clip(p, epsilon, 1 - epsilon))
    return compact_logit(p, float(state["epsilon"])) if calibration.rescale else p


def log_odds(calibration: Spline, state: Any, p: Array) -> Array:
    return logit(calibration.apply(state, p)[:, 1])


#: All combinations of penalty, rescaling and knots, each with one of the strengths.
COMBINED = [
    (penalty, rescale, knots, (1e-4, 0.01, 1.0, 100.0)[(i + j + 2 * number) % 4])
    for i, penalty in enumerate(PENALTIES)
    for j, rescale in enumerate([None, "compact_logit", "logit"])
    for number, knots in enumerate([4, 30])
]


@pytest.mark.parametrize(("penalty", "rescale", "knots", "strength"), COMBINED)
def test_objective_is_scipys_optimum_over_the_raw_basis(
    penalty: Any, rescale: Any, knots: int, strength: float
) -> None:
    p, y, w = make_probs(300)
    calibration = Spline(rescale, knots, penalty, strength)
    state = calibration._fit(Rows(p, y, w), 0)
    assert int(state["status"]) == Status.CONVERGED and float(state["strength"]) == strength
    assert len(state["knots"]) == knots
    x = rescale_probs(calibration, state, p)
    best, theta = reference(x, y, w, state["knots"], penalty, strength)
    assert float(state["objective"]) * w.sum() == pytest.approx(best, rel=1e-9)
    line = theta @ natural_basis(x, state["knots"])
    np.testing.assert_allclose(calibration.apply(state, p)[:, 1], expit(line), atol=1e-5)


@pytest.mark.parametrize("gap", [1e-3, 1e-9])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_knots_may_lie_close_together(penalty: Any, gap: float) -> None:
    base = np.sort(np.random.default_rng(0).uniform(size=12))
    p = np.tile(np.concatenate([base, base + gap]), 10)
    y = (np.random.default_rng(1).uniform(size=240) < expit(6 * p - 3 + np.sin(9 * p))).astype(int)
    for strength in (0.01, 1.0):
        state = Spline(None, 30, penalty, strength)._fit(Rows(p, y, np.ones(240)), 0)
        best, _ = reference(p, y, np.ones(240), state["knots"], penalty, strength)
        result = float(state["objective"]) * 240
        # The search in the raw basis only comes near the mean of two penalties.
        assert result == pytest.approx(best, rel=1e-6) or (penalty == "symmetric" and result < best)
        assert np.isfinite(state["theta"]).all()


@pytest.mark.parametrize("rescale", [None, "compact_logit"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_functions_left_out_of_200_knots_cost_little(penalty: Any, rescale: Any) -> None:
    """Check the loss of dropping functions of 200 knots, at the cross-validated strength."""
    p, y, w = make_probs(1000)
    calibration = Spline(rescale, penalty=penalty)
    state = calibration._fit(Rows(p, y, w), 0)
    assert len(state["knots"]) == 200 and len(state["theta"]) == 30
    x, strength = rescale_probs(calibration, state, p), float(state["strength"])
    best, _ = reference(x, y, w, state["knots"], penalty, strength)
    excess = float(state["objective"]) * w.sum() - best
    # In nats over all rows; a spare parameter gains half a nat by chance.
    assert -1e-6 * best < excess < 0.5


@pytest.mark.parametrize("penalty", PENALTIES)
def test_log_odds_are_a_natural_cubic_spline(penalty: Any) -> None:
    """Check interpolation in the raw basis, which is smooth inside and linear outside the knots."""
    p, y, w = make_probs(200)
    p = 0.2 + 0.6 * p
    calibration = Spline(None, 8, penalty, 1e-3)
    state = calibration._fit(Rows(p, y, w), 0)
    k = state["knots"]
    assert (k[0], k[-1]) == (p.min(), p.max()) and np.isin(k, p).all()
    theta = np.linalg.solve(natural_basis(k, k).T, log_odds(calibration, state, k))
    at = np.linspace(0, 1, 501)
    np.testing.assert_allclose(
        log_odds(calibration, state, at), theta @ natural_basis(at, k), atol=1e-8
    )
    for outside in (np.linspace(0, k[0], 9), np.linspace(k[-1], 1, 9)):
        line = log_odds(calibration, state, outside)
        np.testing.assert_allclose(np.diff(line, 2), 0, atol=1e-9)
        assert abs(line[-1] - line[0]) > 1e-3


def test_the_penalty_is_the_integral_of_the_squared_second_derivative() -> None:
    p, y, w = make_probs(200)
    calibration = Spline(None, 7, "curvature", 0.02)
    state = calibration._fit(Rows(p, y, w), 0)
    k = state["knots"]
    theta = np.linalg.solve(natural_basis(k, k).T, log_odds(calibration, state, k))

    def squared(x: float) -> float:
        return float((theta @ natural_basis(np.array([x]), k, 2))[0] ** 2)

    rough, _ = integrate.quad(squared, 0, 1, points=k, limit=500)
    line = log_odds(calibration, state, p)
    expected = w @ (np.logaddexp(0, line) - y * line) + 0.02 / 2 * rough
    assert float(state["objective"]) * w.sum() == pytest.approx(expected, rel=1e-8)


def test_strong_and_weak_penalties_have_known_limits() -> None:
    p, y, w = make_probs(150)
    line = fit_single(Regression(p[:, None], y * 1.0, w, 0.0, 0.0))
    stiff = Spline(None, penalty="curvature", strength=1e12)
    result = log_odds(stiff, stiff._fit(Rows(p, y, w), 0), p)
    np.testing.assert_allclose(result, line.x[0] + line.x[1] * p, atol=1e-5)
    flat = Spline(None, penalty="coefficients", strength=1e12)
    np.testing.assert_allclose(
        flat.apply(flat._fit(Rows(p, y, w), 0), p)[:, 1], np.average(y, weights=w), atol=1e-5
    )
    # With three distinct scores and no penalty, predictions are the label frequencies.
    p = np.repeat([0.2, 0.5, 0.9], [4, 5, 3])
    y = np.array([0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0])
    for penalty in PENALTIES:
        free = Spline(penalty=penalty, strength=0.0)
        state = free._fit(Rows(p, y, np.ones(12)), 0)
        at = np.array([0.2, 0.5, 0.9])
        np.testing.assert_allclose(free.apply(state, at)[:, 1], [1 / 4, 3 / 5, 2 / 3], rtol=1e-7)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_two_distinct_scores_leave_a_line(penalty: Any) -> None:
    p, y = np.repeat([0.2, 0.6], 5), np.array([0, 0, 0, 0, 1, 1, 1, 1, 0, 0])
    state = Spline(None, penalty=penalty, strength=0.5)._fit(Rows(p, y, np.ones(10)), 0)
    l2 = 0.0 if penalty == "curvature" else 0.5
    best = fit_single(Regression(p[:, None], y * 1.0, np.ones(10), 0.0, l2))
    assert float(state["objective"]) * 10 == pytest.approx(float(best.value), rel=1e-9)


@pytest.mark.parametrize(("penalty", "rule"), [("symmetric", "best"), ("curvature", "one_se")])
@pytest.mark.parametrize(
    ("rescale", "epsilon"), [(None, "auto"), ("logit", "auto"), ("compact_logit", 0.01)]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_exchanged_classes_have_the_mirrored_curve(
    penalty: Any, rule: Any, rescale: Any, epsilon: Any
) -> None:
    """Check ties, more points than are kept, weights, few scores and nearly equal scores."""
    rng = np.random.default_rng(0)
    near = np.concatenate([np.full(9, 0.3), 0.3 + np.arange(9) * 1e-8, np.arange(1, 11) / 20])
    sets = (
        (rng.beta(0.5, 1.5, 300), 200),
        (rng.beta(0.5, 1.5, 1500), 200),
        (rng.integers(1, 20, 3000) / 20, 200),
        (rng.uniform(0.1, 0.9, 64).round(2), 9),
        (near, 25),
        (np.array([0.2, 0.2, 0.6, 0.6, 0.7]), 4),
    )
    # Combine every data set and option with every kind of weights.
    for number, (p, most) in enumerate(sets, 1 + (penalty == "curvature")):
        p = np.clip(p, 1e-6, 1 - 1e-6)
        y = (rng.random(len(p)) < p**1.5).astype(int)
        y[:4] = 0, 1, 1, 0
        calibration = Spline(rescale, most, penalty, epsilon=epsilon, rule=rule)
        kinds = np.ones(len(p)), rng.integers(1, 4, len(p)), rng.uniform(0.5, 2, len(p))
        w = kinds[number % 3]
        one = calibration.fit(p, y, w).predict_proba(GRID)
        other = calibration.fit(1 - p, 1 - y, w).predict_proba(1 - GRID)[:, ::-1]
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_one_distinct_score_leaves_a_constant() -> None:
    p, y = np.full(8, 0.3), np.array([0, 0, 1, 0, 1, 0, 0, 0])
    for penalty in PENALTIES:
        for rescale in (None, "compact_logit"):
            calibration = Spline(rescale, penalty=penalty)
            state = calibration._fit(Rows(p, y, np.ones(8)), 0)
            at = np.array([0.0, 0.3, 1.0])
            np.testing.assert_allclose(calibration.apply(state, at)[:, 1], 0.25, rtol=1e-8)


def test_compact_logit_by_hand() -> None:
    p = np.array([0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.9999, 1.0])
    # Within [0.01, 0.99]: 0.98 / (2 log 99) logit(p) + 1 / 2.
    middle = 0.5 + 0.98 / (2 * np.log(99)) * np.array([-np.log(9), 0, np.log(9)])
    expected = [0, 0.001, 0.01, *middle, 0.99, 0.9999, 1]
    np.testing.assert_allclose(compact_logit(p, 0.01), expected, rtol=1e-13)
    at = np.linspace(0, 1, 10_001)
    assert (np.diff(compact_logit(at, 1e-3)) > 0).all()
    np.testing.assert_allclose(compact_logit(at, 1e-3) + compact_logit(1 - at, 1e-3), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("largest", "epsilon"), [(0.5, 1e-2), (0.97, 1e-3), (0.995, 1e-4), (1 - 2.5e-7, 1e-8)]
)
def test_epsilon_is_a_tenth_of_the_power_below_the_least_distance_to_one(
    largest: float, epsilon: float
) -> None:
    p = np.array([0.1, 0.2, largest, 1.0, 1.0])
    state = Spline("compact_logit", strength=1.0)._fit(
        Rows(p, np.array([0, 1, 0, 1, 1]), np.ones(5)), 0
    )
    assert float(state["epsilon"]) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("largest", [1 - 1e-12, 1 - 1e-15, 1 - 2**-53])
def test_scores_next_to_one_stay_finite(largest: float) -> None:
    p, y = np.array([0.1, 0.4, 0.7, largest, 1.0]), np.array([0, 1, 0, 1, 1])
    calibration = Spline("compact_logit", strength=1.0)
    probs = calibration.apply(
        calibration._fit(Rows(p, y, np.ones(5)), 0), np.append(p, [0.0, 0.5])
    )[:, 1]
    assert np.isfinite(probs).all()


def test_knots_are_quantiles_of_the_distinct_scores() -> None:
    p = np.concatenate([np.full(500, 0.4), np.arange(1, 100) / 100])
    y = (np.arange(599) % 3 == 0).astype(int)
    state = Spline(None, 9, strength=1.0)._fit(Rows(p, y, np.ones(599)), 0)
    # 99 distinct scores: ranks 0, 12.25, 24.5, ... to the nearest.
    np.testing.assert_allclose(
        state["knots"], [0.01, 0.13, 0.25, 0.38, 0.5, 0.62, 0.75, 0.87, 0.99]
    )
    every = Spline(None, 200, strength=1.0)._fit(Rows(p, y, np.ones(599)), 0)["knots"]
    np.testing.assert_array_equal(every, np.unique(p))


@pytest.mark.parametrize("knots", [(0.1, 0.5, 0.9), [0.95, 0.02, 0.3, 0.6, 0.3]])
@pytest.mark.parametrize("rescale", [None, "logit"])
def test_knots_may_be_given(rescale: Any, knots: Any) -> None:
    """Check knots given as probabilities, with scores between and beyond them."""
    p, y, w = make_probs(300)
    calibration = Spline(rescale, knots, strength=0.1, epsilon=0.03)
    state = calibration._fit(Rows(p, y, w), 0)
    k = rescale_probs(calibration, state, np.unique(knots))
    np.testing.assert_allclose(state["knots"], k, rtol=1e-12)
    x = rescale_probs(calibration, state, p)
    best, theta = reference(x, y, w, k, calibration.penalty, 0.1)
    assert float(state["objective"]) * w.sum() == pytest.approx(best, rel=1e-9)
    expected = expit(theta @ natural_basis(x, k))
    np.testing.assert_allclose(calibration.apply(state, p)[:, 1], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("scores", "epsilon"),
    [
        # Half the power of two next to the smallest distance, 2 ** -7.97 and 2 ** -16.6.
        ([0.0, 0.3, 0.004, 0.98, 1.0], 1e-4),
        ([0.3, 1e-5, 0.9], 2.0**-18),
        ([0.3, 1 - 1e-5, 0.9], 2.0**-18),
        ([0.3, 1e-30, 0.9], 1e-16),
        ([0.0, 1.0, 1.0], 1e-4),
    ],
)
def test_where_the_logit_is_clipped(scores: list[float], epsilon: float) -> None:
    p = np.array(scores)
    calibration = Spline("logit", strength=1.0)
    state = calibration._fit(Rows(p, np.arange(len(p)) % 2, np.ones(len(p))), 0)
    assert float(state["epsilon"]) == pytest.approx(epsilon, rel=1e-12)
    at = np.array([0.0, epsilon / 2, epsilon, 1 - epsilon, 1 - epsilon / 2, 1.0])
    result = calibration.apply(state, at)[:, 1]
    np.testing.assert_allclose(result[:3], result[0], rtol=1e-12)
    np.testing.assert_allclose(result[3:], result[3], rtol=1e-12)


def unity_rows() -> tuple[Array, Array]:
    """Return probabilities (135,) of the identity with their shares of its weight."""
    tail = [10.0 ** (-8 + i / 3) for i in range(18)]
    p = np.array([*tail, *(i / 100 for i in range(1, 100)), *(1 - t for t in tail)])
    share = np.array([1 / 18] * 18 + [1.0] * 99 + [1 / 18] * 18)
    return p, share / share.sum()


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("rescale", [None, "logit"])
def test_the_unity_prior_is_rows_whose_labels_are_as_they_say(rescale: Any, penalty: Any) -> None:
    p, y, w = make_probs(100)
    calibration = Spline(rescale, 5, penalty, 0.5, unity_prior_weight=20.0)
    state = calibration._fit(Rows(p, y, w), 0)
    line, share = unity_rows()
    scores, targets = np.concatenate([p, line]), np.concatenate([y, line])
    weights = np.concatenate([w, 20 * share])
    x = rescale_probs(calibration, state, scores)
    best, theta = reference(x, targets, weights, state["knots"], penalty, 0.5)
    assert float(state["objective"]) * weights.sum() == pytest.approx(best, rel=1e-9)
    at = rescale_probs(calibration, state, p)
    np.testing.assert_allclose(
        calibration.apply(state, p)[:, 1],
        expit(theta @ natural_basis(at, state["knots"])),
        atol=1e-5,
    )
    # Knots are scores.
    np.testing.assert_allclose(state["knots"][[0, -1]], [at.min(), at.max()])


def test_a_heavy_unity_prior_leaves_probabilities_as_they_are() -> None:
    """Check the identity, which is a line in logits without curvature and so costs nothing."""
    p, y, w = make_probs(200)
    at = np.linspace(0.01, 0.99, 99)
    for strength in (0.0, 1.0, "cv"):
        calibration = Spline("logit", 8, "curvature", strength, unity_prior_weight=1e7)
        state = calibration._fit(Rows(p, y, w), 0)
        np.testing.assert_allclose(calibration.apply(state, at)[:, 1], at, atol=1e-3)


@pytest.mark.parametrize("rule", ["best", "one_se"])
def test_candidates_may_be_given_and_prior_rows_are_never_held_out(
    rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Array, ...]] = []

    def spy(*arguments: Array) -> RidgePath:
        calls.append(arguments)
        return ridge_path(*arguments)

    monkeypatch.setattr(_spline_points, "ridge_path", spy)
    p, y, w = make_probs(150)
    grid = [0.01, 1.0, 0.1, 100.0]
    options: Any = {"strengths": grid, "unity_prior_weight": 5.0, "folds": 3, "rule": rule}
    calibration = Spline("logit", 12, **options)
    state = calibration._fit(Rows(p, y, w), 0)
    ((columns, weights, positives, penalties),) = calls
    line, share = unity_rows()
    assert weights[3].sum() == pytest.approx(5) and not weights[3, :150].any()
    assert positives[3].sum() == pytest.approx(5 * share @ line)
    np.testing.assert_allclose(weights[:3, 150:], 0)
    at = np.concatenate([np.sort(p), line, line])
    np.testing.assert_allclose(columns, calibration._columns(state, at), atol=1e-9)
    candidates = np.array([100.0, 1.0, 0.1, 0.01])
    np.testing.assert_allclose(penalties, candidates[:, None] * state["roughness"])
    losses, _ = ridge_path_by_loop(columns, weights, positives, penalties)
    losses, share = losses[:, :3], weights[:3].sum(axis=1) / weights[:3].sum()
    worse = losses - losses[np.argmin(losses @ share)]
    mean = worse @ share
    error = np.sqrt((worse - mean[:, None]) ** 2 @ share / 2)
    near = mean <= (error if rule == "one_se" else 1e-9)
    assert float(state["strength"]) == candidates[np.argmax(near)]


@pytest.mark.parametrize("rescale", [None, "compact_logit", "logit"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_rounding_of_scores_and_weights_does_not_matter(penalty: Any, rescale: Any) -> None:
    """Check scores near zero as well, where truncated cubes are nearly dependent."""
    rng = np.random.default_rng(4)
    z = 3 * rng.normal(size=300) - 4
    p, y, w = expit(z), (rng.random(300) < expit(z / 2)).astype(int), rng.exponential(size=300)
    spline, at = Spline(rescale, penalty=penalty), np.geomspace(1e-6, 0.9, 20)
    expected = spline.fit(p, y, w).predict_proba(at)[:, 1]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        near, weights = (a * (1 + rng.integers(-1, 2, 300) * 2.0**-53) for a in (p, w))
        result = spline.fit(near, y, weights).predict_proba(at)[:, 1]
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("digits", [9, 1])
def test_whole_weights_are_repetitions(digits: int, penalty: Any) -> None:
    p, y, _ = make_probs(700)
    p = p.round(digits)
    counts = np.random.default_rng(1).integers(1, 4, 700)
    calibration, at = Spline(penalty=penalty), np.linspace(0, 1, 51)
    one = calibration._fit(Rows(p, y, counts.astype(float)), 0)
    two = calibration._fit(Rows(p.repeat(counts), y.repeat(counts), np.ones(counts.sum())), 0)
    assert float(one["objective"]) == pytest.approx(float(two["objective"]), rel=1e-9)
    np.testing.assert_allclose(
        calibration.apply(one, at)[:, 1], calibration.apply(two, at)[:, 1], atol=1e-7
    )


def test_many_rows_of_few_scores_get_their_shares() -> None:
    """Check that folds contain both labels at each score and the weakest penalty is weak enough."""
    p = np.repeat([0.3, 0.6], 50_000)
    y = np.arange(100_000) % 50_000 < np.repeat([10_000, 22_500], 50_000)
    for penalty in PENALTIES:
        result = Spline(penalty=penalty).fit(p, y).predict_proba([0.3, 0.6])[:, 1]
        # The standard error of shares of 50,000 rows is 0.002.
        np.testing.assert_allclose(result, [0.2, 0.45], atol=0.004)


def ridge_path_by_loop(
    columns: Array, weights: Array, positives: Array, penalties: Array
) -> tuple[Array, Array]:
    """Compute ``ridge_path`` one fit at a time."""

    def fit(cases: Array, ones: Array, strength: Array) -> Array:
        share = ones / np.where(cases > 0, cases, 1)
        return fit_single(Regression(columns[1:].T, share, cases, 0.0, strength[1:])).x

    losses, theta = [], []
    for strength in penalties:
        theta.append(fit(weights.sum(axis=0), positives.sum(axis=0), strength))
        for f in range(len(weights)):
            train = np.arange(len(weights)) != f
            line = fit(weights[train].sum(axis=0), positives[train].sum(axis=0), strength) @ columns
            loss = weights[f] @ np.logaddexp(0, line) - positives[f] @ line
            losses.append(loss / weights[f].sum())
    return np.reshape(losses, (len(penalties), len(weights))), np.array(theta)


def test_ridge_path_is_fits_one_by_one() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 90))
    columns = np.concatenate([np.ones((1, 90)), x])
    weights = rng.uniform(0, 2, (3, 90)) * (rng.uniform(size=(3, 90)) < 0.7)
    positives = weights * (rng.uniform(size=(3, 90)) < expit(x[0] - 0.5 * x[1]))
    penalties = np.geomspace(1e-3, 1e4, 6)[:, None] * np.array([0, 1, 3, 0.1, 10])
    result = ridge_path(columns, weights, positives, penalties)
    losses, theta = ridge_path_by_loop(columns, weights, positives, penalties)
    np.testing.assert_allclose(result.losses, losses, rtol=1e-6)
    np.testing.assert_allclose(result.theta, theta, atol=1e-5)


@pytest.mark.parametrize("kind", ["separable", "one class", "all in one fold", "tiny weights"])
def test_ridge_path_of_hard_data_stays_finite(kind: str) -> None:
    x = np.linspace(-1, 1, 20)
    weights = np.zeros((4, 20))
    weights[np.arange(20) % 4, np.arange(20)] = 1.0
    kinds: dict[str, Array] = {"separable": x > 0.1, "one class": x > -9}
    share = kinds.get(kind, np.arange(20) % 3 == 0)
    if kind == "all in one fold":
        weights = np.array([np.ones(20), *np.zeros((3, 20))])
    elif kind == "tiny weights":
        weights = weights * 1e-12
    penalties = np.array([[0.0, 0.0], [0.0, 1e-3], [0.0, 10.0]])
    result = ridge_path(np.stack([np.ones(20), x]), weights, weights * share, penalties)
    assert np.isfinite(result.losses).all() and np.isfinite(result.theta).all()
    assert (result.losses >= 0).all()


@pytest.mark.parametrize("rule", ["best", "one_se"])
@pytest.mark.parametrize(("penalty", "n"), [*((p, 60) for p in PENALTIES), ("symmetric", 1500)])
def test_the_strength_is_that_of_the_rule(
    n: int, penalty: Any, rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Array, ...]] = []

    def spy(*arguments: Array) -> RidgePath:
        calls.append(arguments)
        return ridge_path(*arguments)

    monkeypatch.setattr(_spline_points, "ridge_path", spy)
    p, y, w = make_probs(n)
    calibration = Spline(penalty=penalty, folds=4, rule=rule)
    state = calibration._fit(Rows(p, y, w), 0)
    ((columns, weights, positives, penalties),) = calls
    # Cross-validation uses the rows, grouped into at most 512 points.
    assert weights.shape == positives.shape == (4, min(n, 512))
    assert weights.sum() == pytest.approx(w.sum(), rel=1e-12)
    assert positives.sum() == pytest.approx(w @ y, rel=1e-12)
    assert ((positives >= 0) & (positives <= weights * (1 + 1e-12))).all()
    for label, share in ((1, positives), (0, weights - positives)):
        fold_share = share.sum(axis=1) / w[y == label].sum()
        assert (np.abs(fold_share - 1 / 4) < 0.2).all()
    if n <= 512:
        order = np.argsort(p)
        np.testing.assert_allclose(columns, calibration._columns(state, p[order]), atol=1e-9)
        np.testing.assert_allclose(weights.sum(axis=0), w[order], rtol=1e-12)
        np.testing.assert_allclose(positives.sum(axis=0), (w * y)[order], rtol=1e-12)
    candidates = penalties[:, -1] / state["roughness"][-1]
    np.testing.assert_allclose(penalties, candidates[:, None] * state["roughness"], rtol=1e-9)
    assert len(candidates) == 17 and (np.diff(candidates) < 0).all()
    losses, _ = ridge_path_by_loop(columns, weights, positives, penalties)
    share = weights.sum(axis=1) / weights.sum()
    worse = losses - losses[np.argmin(losses @ share)]
    mean = worse @ share
    error = np.sqrt((worse - mean[:, None]) ** 2 @ share / 3)
    near = mean <= (error if rule == "one_se" else 1e-9)
    assert float(state["strength"]) == pytest.approx(candidates[np.argmax(near)], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("wiggle", [0.0, 2.0], ids=["line", "wave"])
def test_losses_held_out_are_honest(wiggle: float) -> None:
    """Check the excess loss: 30 free functions would cost 15 nats, and these cost far less."""
    excess, at = [], np.linspace(0.001, 0.999, 999)
    truth = expit(6 * (at - 0.5) + wiggle * np.sin(9 * at))
    # Expected means are 2.4 and 5.3, with standard errors 0.3 and 0.8.
    for seed in range(30 if wiggle else 10):
        p, y, _ = make_probs(3000, seed, wiggle)
        calibration = Spline()
        result = calibration.apply(calibration._fit(Rows(p, y, np.ones(3000)), 0), at)[:, 1]
        excess.append(3000 * stats.entropy([truth, 1 - truth], [result, 1 - result]).mean())
    assert np.mean(excess) < 6


def test_the_mode_is_that_of_the_documented_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the mode with the penalty as the prior of curves, and the weak prior for the line."""
    p, y, w = make_probs(80, seed=2)
    strength = 0.02
    calibration = Spline(None, 6, "curvature", strength, inference="laplace")
    state = calibration._fit(Rows(p, y, w), 0)

    def mode_alone(target: Target, *_: object) -> Draws:
        result = find_mode(target)[0]
        return one_chain(result.x[None], int(result.status))

    monkeypatch.setattr(_log_odds, "sample", mode_alone)
    mode = calibration._sample(state, Rows(p, y, w), 0).coefficients[0, 0]
    mode = mode @ calibration._columns(state, p)
    k = state["knots"]
    basis, matrix = natural_basis(p, k), penalty_matrix(k, "curvature")
    share = w / w.sum()
    sd = np.sqrt(share @ (p - share @ p) ** 2)

    def value(theta: Array) -> float:
        line = theta @ basis
        mean = share @ line
        # The least-squares slope for a standard deviation of one half.
        slope = 2 * share @ ((line - mean) * (p - share @ p)) / sd
        prior = stats.cauchy.logpdf(mean, 0, 10) + stats.cauchy.logpdf(slope, 0, 2.5)
        fit = w @ (np.logaddexp(0, line) - y * line)
        return float(fit + strength / 2 * theta @ matrix @ theta - prior)

    ours = np.linalg.lstsq(basis.T, mode, rcond=None)[0]
    np.testing.assert_allclose(ours @ basis, mode, atol=1e-8)
    _, start = reference(p, y, w, k, "curvature", strength)
    unit = 1 / np.abs(basis).max(axis=1)
    best = min(
        optimize.minimize(lambda t: value(t * unit), s / unit, options={"gtol": 1e-6}).fun
        for s in (start, ours)
    )
    assert value(ours) <= best + 1e-7
    assert value(start) > best + 1e-3


def log_posterior(
    theta: Array, p: Array, y: Array, w: Array, k: Array, penalty: str, strength: float
) -> Array:
    """Compute the log posterior of raw coefficients (m, knots), up to a constant."""
    lines = theta @ natural_basis(p, k)
    share = w / w.sum()
    mean = lines @ share
    fit = np.logaddexp(0, lines) @ w - lines @ (w * y)
    rough = np.einsum("mi,ij,mj->m", theta, penalty_matrix(k, penalty), theta)
    prior = stats.cauchy.logpdf(mean, 0, 10) - strength / 2 * rough
    if penalty == "curvature":
        # The least-squares slope for a standard deviation of one half.
        off = p - share @ p
        slope = 2 * (lines - mean[:, None]) @ (share * off) / np.sqrt(share @ off**2)
        prior += stats.cauchy.logpdf(slope, 0, 2.5)
    return prior - fit


def curves_by_quadrature(
    at: Array, p: Array, y: Array, w: Array, k: Array, penalty: str, strength: float
) -> tuple[Array, Array]:
    """Compute the posterior mean and variance of the curve on a grid of all coefficients.

    Grid steps are a quarter of a standard deviation of the normal approximation, out to eight.
    """
    problem = (p, y, w, k, penalty, strength)
    _, begin = reference(p, y, w, k, penalty, strength)
    unit = 1 / np.abs(natural_basis(p, k)).max(axis=1)
    result = optimize.minimize(
        lambda u: -log_posterior((u * unit)[None], *problem)[0], begin / unit, method="BFGS"
    )
    # A sum over a grid is valid for any axes; these keep it small.
    factor = np.linalg.cholesky(result.hess_inv)
    steps = np.linspace(-8, 8, 65)
    z = np.stack(np.meshgrid(*[steps] * len(k), indexing="ij"), axis=-1).reshape(-1, len(k))
    total, first, second = 0.0, np.zeros(len(at)), np.zeros(len(at))
    for part in np.array_split(z, 40):
        theta = (result.x + part @ factor.T) * unit
        mass = np.exp(log_posterior(theta, *problem) + result.fun)
        curve = expit(theta @ natural_basis(at, k))
        total += mass.sum()
        first += mass @ curve
        second += mass @ curve**2
    return first / total, second / total - (first / total) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(("penalty", "strength"), [("curvature", 0.005), ("coefficients", 0.02)])
def test_nuts_has_the_moments_of_the_documented_posterior(penalty: Any, strength: float) -> None:
    """Compare with sums over a grid of three coefficients, on few rows."""
    p, y, w = make_probs(25, seed=4)
    calibration = Spline(None, 3, penalty, strength, inference="nuts", num_samples=8000)
    state = calibration._fit(Rows(p, y, w), 0)
    at = np.array([0.02, 0.3, 0.5, 0.8, 0.99])
    mean, variance = curves_by_quadrature(at, p, y, w, state["knots"], penalty, strength)
    draws = calibration._sample(state, Rows(p, y, w), 0)
    assert draws.r_hat.max() < 1.02
    curves = expit(draws.coefficients @ calibration._columns(state, at))
    for ours, exact in ((curves, mean), ((curves - mean) ** 2, variance)):
        error = ours.std(axis=(0, 1)) / np.sqrt(effective_sample_size(ours))
        assert (np.abs(ours.mean(axis=(0, 1)) - exact) < 4.5 * error).all()


def test_draws_are_averaged_over_the_strength() -> None:
    """Check weights proportional to the square root of the evidence, on a grid for two knots."""
    rng = np.random.default_rng(0)
    x = np.repeat([0.2, 0.8], 20)
    y = (rng.random(40) < x).astype(int)
    strengths = [0.5, 50.0]
    calibration = Spline(
        None, inference="laplace", strengths=strengths, num_samples=4000, random_state=0
    ).fit(x, y)
    steps = np.linspace(-12, 12, 1201)
    slope, middle = np.meshgrid(steps, steps)
    evidence, means = [], []
    for strength in strengths:
        # The slope of the probability is penalized; the log odds at the middle have Cauchy's prior.
        log = stats.norm.logpdf(slope, 0, strength**-0.5) + stats.cauchy.logpdf(middle, 0, 10)
        for at, label in ((0.2, y[x == 0.2]), (0.8, y[x == 0.8])):
            line = middle + slope * (at - 0.5)
            log += label.sum() * line - len(label) * np.logaddexp(0, line)
        mass = np.exp(log - log.max())
        evidence.append(log.max() + np.log(mass.sum()))
        means.append((mass * expit(middle + 0.3 * slope)).sum() / mass.sum())
    share = np.exp(0.5 * (np.array(evidence) - max(evidence)))
    expected = share @ means / share.sum()
    result = calibration.predict_proba([0.8])[0, 1]
    assert result == pytest.approx(expected, abs=0.01)
    assert abs(means[0] - means[1]) > 0.1  # the strengths disagree
    given = Spline(None, inference="laplace", strength=0.5, num_samples=4000, random_state=0)
    assert given.fit(x, y).predict_proba([0.8])[0, 1] == pytest.approx(means[0], abs=0.01)


@pytest.mark.parametrize(
    ("center", "spread", "slope"), [(-5.0, 1.5, 1.0), (5.0, 1.5, 1.0), (0.0, 4.0, 0.5)]
)
def test_probabilities_near_zero_and_one_are_calibrated(
    center: float, spread: float, slope: float
) -> None:
    """Check rare events and sharp scores, whose true log odds are a line in those of the score."""
    at = center + spread * stats.norm.ppf((np.arange(21) + 0.5) / 21)
    truth = expit(slope * at)
    excess, covered = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        z = rng.normal(center, spread, 2000)
        y = (rng.random(2000) < expit(slope * z)).astype(int)
        calibration = Spline(inference="laplace", random_state=0).fit(expit(z), y)
        result = calibration.predict_proba(expit(at))[:, 1]
        excess.append(stats.entropy([truth, 1 - truth], [result, 1 - result]).mean())
        lower, upper = calibration.predict_interval(expit(at), 0.9)
        covered.append(((lower <= truth) & (truth <= upper)).mean())
    # A line would cost 1 / n. Splines of the probability cost 4.5 / n or more, and cover 0.6.
    assert np.mean(excess) < 3 / 2000
    assert np.mean(covered) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("truth", ["calibrated", "slope", "bent", "flat"])
def test_bands_cover_about_their_level(truth: str) -> None:
    """Check mean coverage; with the cross-validated strength alone it was 0.65 to 0.76."""
    result = study("Spline", truth, 100, 30)
    assert 0.78 < result["coverage"] < 0.99


@pytest.mark.parametrize(("rescale", "sharp"), [(None, False), ("logit", False), ("logit", True)])
@pytest.mark.parametrize("ties", [False, True])
def test_cells_of_very_many_rows_lose_nothing(
    ties: bool, rescale: Any, sharp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    p = expit(rng.normal(0, 12, 12_000)) if sharp else rng.beta(0.3, 0.6, 12_000)
    p = p.round(3) if ties else p
    y = (rng.random(len(p)) < p.clip(0.02, 0.98) ** 1.5).astype(int)
    weights = rng.integers(1, 3, len(p)) if ties else None
    at = np.linspace(0, 1, 1001)
    cells = Spline(rescale).fit(p, y, weights)
    monkeypatch.setattr(spline_module, "_MAX_ROWS", len(p))
    rows = Spline(rescale).fit(p, y, weights)
    assert abs(cells.objective_ - rows.objective_) < 1e-12
    assert abs(cells.predict_proba(at) - rows.predict_proba(at)).max() < 1e-9


@pytest.mark.parametrize(
    "scores",
    [
        np.r_[0.0, 0.2, 0.5 - 1e-8, 0.5 + 1e-8, 0.8, 1.0],
        np.r_[0.0, 0.2, 0.5 - 1e-8, 0.5, 0.5 + 1e-8, 0.8, 1.0],
        np.r_[0.0, 1e-9, 0.3, 0.9, 1.0],
        np.r_[0.0, 0.5, 0.5 + 1e-7, 1.0],
        np.r_[0.0, 0.5 - 1e-7, 0.5, 1.0],
        np.linspace(0, 1, 9),
    ],
)
def test_knots_are_never_too_close_and_mirrored_with_the_scores(scores: np.ndarray) -> None:
    knots = choose_knots(scores, 20)
    least = 1e-6 * (scores[-1] - scores[0])
    assert (np.diff(knots) >= 0.999 * least).all()
    assert {knots[0], knots[-1]} == {0.0, 1.0}
    np.testing.assert_allclose(1 - choose_knots((1 - scores)[::-1], 20)[::-1], knots, atol=1e-12)
    # Left-out scores lie next to a knot.
    assert np.abs(scores[:, None] - knots).min(axis=1).max() <= 2 * least


def test_where_all_weight_is_at_one_score_nothing_but_a_constant_is_fitted() -> None:
    knots = np.array([0.0, 0.5, 1.0])
    values, roughness = make_basis(knots, knots, np.array([0.0, 3.0, 0.0]), "curvature")
    assert (values.tolist(), roughness.tolist()) == ([[1.0]] * 3, [0.0])
