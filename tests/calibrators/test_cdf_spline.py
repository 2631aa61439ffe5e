"""The spline through the cumulative labels against least squares by other means, and by hand."""

import tracemalloc

import numpy as np
import pytest
from scipy.interpolate import CubicSpline, PPoly
from scipy.special import softmax

from bayescal import OneVsRest
from bayescal.calibrators.binary.cdf_spline import CDFSpline
from bayescal.data.rows import Rows
from bayescal.metrics import brier_score, log_loss


def truncated_powers(t: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the natural cubic basis 1, t, d_k - d_last at the points (n,)."""

    def power(k: int) -> np.ndarray:
        return np.maximum(t - knots[k], 0) ** 3

    last = len(knots) - 1
    d = [(power(k) - power(last)) / (knots[last] - knots[k]) for k in range(last)]
    return np.stack([np.ones_like(t), t, *(d[k] - d[last - 1] for k in range(last - 1))], axis=1)


def least_squares(
    scores: np.ndarray, y: np.ndarray, weights: np.ndarray, number: int
) -> CubicSpline:
    """Fit a spline to h by piecewise Gauss quadrature and a truncated power basis."""
    _, index = np.unique(scores, return_inverse=True)
    weight, positive = np.bincount(index, weights), np.bincount(index, weights * y)
    t = np.concatenate([[0.0], np.cumsum(weight) / weight.sum()])
    h = np.concatenate([[0.0], np.cumsum(positive) / weight.sum()])
    knots = np.linspace(0, 1, number)
    borders = np.unique(np.concatenate([t, knots]))
    nodes, node_weights = np.polynomial.legendre.leggauss(5)
    half = np.diff(borders)[:, None] / 2
    at = (borders[:-1, None] + half * (1 + nodes)).ravel()
    root = np.sqrt((half * node_weights).ravel())
    basis = truncated_powers(at, knots)
    # The values at 0 and 1 are fixed: combine one solution that has them with the null space.
    ends = truncated_powers(np.array([0.0, 1.0]), knots)
    start = np.linalg.lstsq(ends, h[[0, -1]], rcond=None)[0]
    free = np.linalg.svd(ends)[2][2:].T
    rest = np.interp(at, t, h) - basis @ start
    part = np.linalg.lstsq(root[:, None] * (basis @ free), root * rest, rcond=None)[0]
    values = truncated_powers(knots, knots) @ (start + free @ part)
    return CubicSpline(knots, values, bc_type="natural")


def middle_ranks(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the rank in [0, 1] of each score by counting lower and equal scores."""
    below = np.array([weights[scores < s].sum() for s in scores])
    beside = np.array([weights[scores == s].sum() for s in scores])
    return (below + beside / 2) / weights.sum()


@pytest.mark.parametrize("knots", [2, 3, 4, 6, 11])
@pytest.mark.parametrize("kind", ["spread", "ties", "weights"])
def test_slope_equals_least_squares_by_other_means(kind: str, knots: int) -> None:
    rng = np.random.default_rng(knots)
    scores = rng.integers(0, 25, 300) / 3 if kind == "ties" else rng.normal(size=300)
    y = (rng.uniform(size=300) < 1 / (1 + np.exp(-scores))).astype(float)
    weights = rng.uniform(0.1, 3, 300) if kind == "weights" else np.ones(300)
    chosen = CDFSpline(knots)
    values = chosen.apply(chosen._fit(Rows(scores, y, weights), 0), scores)[:, 1]
    spline = least_squares(scores, y, weights, knots)
    # Weights with mean 1.55, some of them at most one, are counts.
    floor = 0.5 / (weights.sum() + 1)
    expected = np.clip(spline(middle_ranks(scores, weights), 1), floor, 1 - floor)
    np.testing.assert_allclose(values, expected, atol=1e-10)


def test_three_knots_by_hand() -> None:
    # Labels 0 and 1: h is 0 up to 1/2, then t - 1/2. With t = (1 + u) / 2 and v = |u|, the spline
    # through (-1, 0), (0, a), (1, 1/2) deviates from its line by d times f = 1 - 3/2 v^2 + 1/2 v^3,
    # h by (v - 1) / 4. Over [0, 1] f times v - 1 integrates to -2/5, f squared to 17/35, so that
    # d = -1/10 * 35/17 = -7/34. At v = 1/2 f changes by 9/8 for each unit of u, which is half of t.
    state = CDFSpline(3)._fit(Rows(np.array([1.0, 2.0]), np.array([0, 1]), np.ones(2)), 0)
    change = 2 * -7 / 34 * 9 / 8
    slope = PPoly(state["coefficients"], state["knots"])([0.25, 0.5, 0.75])
    np.testing.assert_allclose(slope, [1 / 2 + change, 1 / 2, 1 / 2 - change], rtol=1e-12)
    values = CDFSpline(3).apply(state, np.array([1.0, 1.5, 2.0]))[:, 1]
    np.testing.assert_allclose(values, [1 / 6, 1 / 2, 5 / 6], rtol=1e-12)


def test_ranks_are_middles_and_linear_in_between() -> None:
    scores, y = np.array([0.0, 1, 1, 3]), np.array([0, 1, 0, 1])
    state = CDFSpline(4)._fit(Rows(scores, y, np.array([1.0, 1, 2, 4])), 0)
    np.testing.assert_array_equal(state["scores"], [0, 1, 3])
    np.testing.assert_allclose(state["ranks"], [1 / 16, 5 / 16, 12 / 16])
    slope = PPoly(state["coefficients"], state["knots"])
    at = np.array([-5, 0.5, 2, 2.5, 99])
    ranks = np.array([2, 6, 17, 20.5, 24]) / 32
    values = CDFSpline(4).apply(state, at)[:, 1]
    np.testing.assert_allclose(values, np.clip(slope(ranks), 1 / 18, 17 / 18))


def test_few_distinct_scores_lower_the_number_of_knots() -> None:
    for distinct, knots in ((1, 2), (2, 3), (4, 5), (5, 6), (9, 6)):
        scores = np.arange(30.0) % distinct
        state = CDFSpline()._fit(Rows(scores, np.arange(30) % 2, np.ones(30)), 0)
        assert len(state["knots"]) == knots


def test_one_row_of_a_class_takes_memory_and_time_linear_in_the_knots() -> None:
    rng = np.random.default_rng(0)
    scores, y = np.r_[rng.beta(1, 30, 19_999), 0.2], np.arange(20_000) == 19_999
    tracemalloc.start()
    fitted = CDFSpline().fit(scores, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(fitted.state_["knots"]) == 2561 and peak < 3e7
    slope = PPoly(fitted.state_["coefficients"], fitted.state_["knots"])
    assert slope.integrate(0, 1) == pytest.approx(1 / 20_000)
    expected = least_squares(scores[-300:], y[-300:], np.ones(300), 31)
    few = CDFSpline(31)._fit(Rows(scores[-300:], y[-300:], np.ones(300)), 0)
    at = np.linspace(0, 1, 300)
    np.testing.assert_allclose(
        PPoly(few["coefficients"], few["knots"])(at), expected(at, 1), atol=1e-7
    )


def test_the_floor_for_weights_of_any_size() -> None:
    scores, y, weights = np.arange(40) / 40, np.arange(40) > 35, np.tile([1.0, 3.0], 20)
    # (1 + 3)**2 / (1 + 9) * 20 = 32 rows are effective.
    for size, count in ((1.0, 80), (0.5, 40), (1 / 80, 32), (1e-300, 32), (1e20, 8e21)):
        result = CDFSpline().fit(scores, y, size * weights).predict_proba(scores)[:, 1]
        assert result.min() == pytest.approx(0.5 / (count + 1), rel=1e-9)


def test_one_class_among_many() -> None:
    """Check rare positives: with six knots the log loss was 0.55 and the Brier score 0.25."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, 10, n)
        z = rng.normal(size=(n, 10))
        z[np.arange(n), y] += 4
        return softmax(1.7 * z, axis=1), y

    (p, y), (new, truth) = draw(5000), draw(5000)
    result = OneVsRest(CDFSpline()).fit(p, y).predict_proba(new)
    assert brier_score(result, truth) < 0.9 * brier_score(new, truth)
    assert log_loss(result, truth) < log_loss(new, truth)
    # Balanced classes and classes that scores do not separate keep their knots.
    for score, label in ((p[:, 0], y < 5), (rng.random(5000), y == 0)):
        assert len(CDFSpline().fit(score, label).state_["knots"]) == 6
