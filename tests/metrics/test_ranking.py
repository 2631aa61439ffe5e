"""Ranking metrics against scikit-learn, finite differences and sampling distributions."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy.stats import t
from sklearn.metrics import average_precision_score, roc_auc_score

import bayescal as bc
from bayescal.data.predictions import Predictions
from bayescal.metrics.scores.ranking import rank
from bayescal.metrics.uncertainty.ranking import MeasuredRanking

PEERS: Any = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}
RNG = np.random.default_rng(5)
P = np.round(RNG.random(120), 1)
Y = (RNG.random(120) < P).astype(int)
W = RNG.uniform(0.1, 2, 120)

names = pytest.mark.parametrize("name", PEERS)


def as_predictions(p: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Predictions:
    return Predictions(p, y, np.ones(len(y)) if weights is None else weights, 1e-16)


@names
def test_scikit_learn(name: str) -> None:
    ours: Any = getattr(bc.metrics, name)
    assert ours(P, Y) == pytest.approx(PEERS[name](Y, P), rel=1e-12)
    expected = PEERS[name](Y, P, sample_weight=W)
    assert ours(P, Y, weights=W) == pytest.approx(expected, rel=1e-12)
    labels = np.array(["a", "b"])[Y]
    rows = np.stack([1 - P, P], axis=1)
    assert ours(rows, labels, weights=W) == pytest.approx(expected, rel=1e-12)
    distinct = RNG.permutation(120) / 120
    assert ours(distinct, Y) == pytest.approx(PEERS[name](Y, distinct), rel=1e-12)


@names
def test_derivatives(name: str) -> None:
    ranked = rank(name, as_predictions(P, Y, W))
    assert W @ ranked.influence == pytest.approx(0, abs=1e-12)
    for i in range(0, 120, 17):
        step = np.zeros(120)
        step[i] = 1e-6
        ends = [rank(name, as_predictions(P, Y, W + s * step)).value for s in (1, -1)]
        assert ranked.influence[i] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-8)


def test_area_has_the_variance_of_delong() -> None:
    """Compare with the definition by DeLong: variances of placements in both classes."""
    ones, zeros = P[Y == 1], P[Y == 0]
    wins = (ones[:, None] > zeros) + (ones[:, None] == zeros) / 2
    variance = wins.mean(axis=1).var() / len(ones) + wins.mean(axis=0).var() / len(zeros)
    result = MeasuredRanking("roc_auc", as_predictions(P, Y)).interval(0.9)
    assert result.standard_error == pytest.approx(np.sqrt(variance), rel=1e-12)


@names
def test_counts_are_repeated_rows(name: str) -> None:
    counts = RNG.integers(1, 4, 120)
    first = bc.metrics.interval(name, P, Y, weights=counts)
    second = bc.metrics.interval(name, np.repeat(P, counts), np.repeat(Y, counts))
    np.testing.assert_allclose(first[:6], second[:6], rtol=1e-10)


@names
def test_increasing_maps_differ_by_nothing(name: str) -> None:
    result = bc.metrics.difference(name, P**3, P, Y)
    assert (result.value, result.lower, result.upper, result.p_value) == (0, 0, 0, 1)


@names
def test_a_difference_has_the_p_value_at_whose_level_its_interval_ends_at_zero(name: str) -> None:
    noisy = np.clip(P + np.random.default_rng(1).normal(0, 0.4, 120), 0, 1)
    result = bc.metrics.difference(name, P, noisy, Y)
    assert 1e-4 < result.p_value < 0.5 and result.value > 0
    # Degrees of freedom: the number of rows of the rarer class minus one.
    cases = min(Y.sum(), (1 - Y).sum())
    error = result.standard_error
    assert result.p_value == pytest.approx(2 * t.sf(result.value / error, cases - 1), rel=1e-9)


@names
def test_equal_scores_say_nothing_of_the_ranking(name: str) -> None:
    result = bc.metrics.interval(name, np.full(120, 0.3), Y)
    assert result.value == pytest.approx(0.5 if name == "roc_auc" else Y.mean())
    assert 0.02 < result.value - result.lower and 0.02 < result.upper - result.value


@names
def test_perfect_and_reversed_rankings(name: str) -> None:
    result = bc.metrics.interval(name, Y.astype(float), Y)
    assert result.value == result.upper == 1 and 0.9 < result.lower < 1
    assert bc.metrics.interval(name, 1.0 - Y, Y).lower < 0.5


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("gap", [0.5, 1.0])
def test_differences_that_are_equal_for_all_rows(gap: float, rows: int) -> None:
    """Compare a perfect ranking with none, and with the reversed one."""
    y, p = np.repeat([0, 1], rows), np.linspace(0.2, 0.8, 2 * rows)
    result = bc.metrics.difference("roc_auc", p, 1 - p if gap == 1 else np.full(2 * rows, 0.5), y)
    assert result.value == gap
    # Differences in [-1, 1] of a mean m are all at least the gap with this chance at most.
    chance = ((1 + np.array([result.lower, 0.0])) / (1 + gap)) ** rows
    assert 2 * chance == pytest.approx([0.1, result.p_value])
    assert 1 - result.upper == pytest.approx((1 - gap) * 0.05 ** (1 / rows))


@names
def test_what_is_refused(name: str) -> None:
    function: Any = getattr(bc.metrics, name)
    with pytest.raises(ValueError, match="both classes"):
        function(P, np.ones(120, int))
    with pytest.raises(ValueError, match="two classes"):
        function(np.full((3, 3), 1 / 3), [0, 1, 2])
    with pytest.raises(TypeError, match="in memory"):
        bc.metrics.interval(name, bc.Blocks([(P, Y)]))
    with pytest.raises(TypeError, match=f"arrays in memory for {name}, which sorts all rows"):
        function(bc.Blocks([(P, Y)]), None)
    with pytest.raises(ValueError, match="analytic"):
        bc.metrics.interval(name, P, Y, method="bootstrap")


def test_reports_have_them_beside_calibration() -> None:
    report = bc.metrics.report({"a": P, "b": 1 - P}, Y, replicates=20)
    assert report.intervals["a"]["ROC AUC"] == bc.metrics.interval("roc_auc", P, Y)
    gap = bc.metrics.difference("average_precision", 1 - P, P, Y)
    assert report.differences["b"]["average precision"] == gap
    page = bc.evaluate(P, Y, replicates=20).to_html()
    assert "Area under the ROC curve" in page
    rows = RNG.dirichlet(np.ones(3), 60)
    several = bc.metrics.report(rows, np.arange(60) % 3, replicates=20)
    assert "ROC AUC" not in several.intervals["model"]
    one = bc.metrics.report(P, np.ones(120, int), replicates=20)
    assert "ROC AUC" not in one.intervals["model"]


@pytest.mark.slow
@names
@pytest.mark.parametrize(
    ("n", "prevalence", "shift", "steps"), [(100, 0.5, 1, 0), (300, 0.1, 1, 8)]
)
def test_intervals_cover(name: str, n: int, prevalence: float, shift: float, steps: int) -> None:
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = (rng.random(n) < prevalence).astype(int)
        z = rng.normal(size=n) + shift * y
        both = [1 / (1 + np.exp(-s)) for s in (z, z + rng.normal(size=n))]
        return *(np.ceil(p * steps) / steps if steps else p for p in both), y  # type: ignore[return-value]

    p, q, y = draw(400_000)
    truth = rank(name, as_predictions(p, y)).value
    gap = rank(name, as_predictions(q, y)).value - truth
    covered, compared = [], []
    for _ in range(600):
        p, q, y = draw(n)
        first, second = (MeasuredRanking(name, as_predictions(x, y)) for x in (p, q))
        interval, less = first.interval(0.9), second.less(first, 0.9)
        covered.append(interval.lower <= truth <= interval.upper)
        compared.append(less.lower <= gap <= less.upper)
    # Four standard errors of 600 simulations are 0.05.
    assert 0.85 <= np.mean(covered) <= 0.95 and 0.85 <= np.mean(compared) <= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("ones", "zeros"), [(3, 27), (15, 15), (8, 92)])
@pytest.mark.parametrize("area", [0.97, 0.9999])
def test_intervals_of_nearly_perfect_rankings_cover(ones: int, zeros: int, area: float) -> None:
    """Check samples that are often ranked perfectly, where the standard error is zero."""
    distance = 2**0.5 * NormalDist().inv_cdf(area)
    y = np.repeat([0, 1], [zeros, ones])
    covered = []
    for seed in range(400):
        z = np.random.default_rng(seed).normal(size=len(y)) + distance * y
        result = bc.metrics.interval("roc_auc", 1 / (1 + np.exp(-z / 4)), y)
        covered.append(result.lower <= area <= result.upper)
    assert np.mean(covered) > 0.85


@names
def test_few_rows_of_a_class_tell_no_difference(name: str) -> None:
    y = np.arange(120) == 7
    for result, low in (
        (bc.metrics.interval(name, P, y), 0.0),
        (bc.metrics.difference(name, P, 0.9 * P**2, y), -1.0),
    ):
        assert (result.lower, result.upper, result.standard_error) == (low, 1.0, np.inf)
    assert result.p_value == 1.0
    assert result.value == getattr(bc.metrics, name)(P, y) - getattr(bc.metrics, name)(
        0.9 * P**2, y
    )
