"""One binary calibrator for each class or pair of classes: fitted separately, then combined."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit, softmax
from sklearn.base import clone

import bayescal.calibrators as bc
from bayescal import load, save
from bayescal.calibrators import Calibrator

Array = np.ndarray


def rows(n: int, k: int = 4, seed: int = 0) -> tuple[Array, Array]:
    """Draw over-confident probabilities and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 2
    drawn = (rng.random((n, 1)) > np.cumsum(softmax(logits / 2, axis=1), axis=1)).sum(axis=1)
    return softmax(logits, axis=1), np.minimum(drawn, k - 1)


P, Y = rows(300)
AT, _ = rows(40, seed=1)


def couple(pairs: Array) -> Array:
    """Couple P(i | i or j) (m, k, k) with the formula of the paper."""
    m, k, _ = pairs.shape
    result = np.empty((m, k))
    for i in range(k):
        others = [j for j in range(k) if j != i]
        result[:, i] = 1 / (sum(1 / pairs[:, i, j] for j in others) - (k - 2))
    return result / result.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "calibrator", [bc.Logistic(), bc.Beta(), bc.Isotonic("laplace"), bc.VennAbers()]
)
def test_each_pair_is_calibrated_alone(calibrator: Calibrator) -> None:
    result = bc.OneVsOne(calibrator).fit(P, Y)
    pairs = np.ones((len(AT), 4, 4))
    for i, j in combinations(range(4), 2):
        in_pair = (Y == i) | (Y == j)
        alone = calibrator.fit(P[in_pair, j] / (P[in_pair, i] + P[in_pair, j]), Y[in_pair] == j)
        pairs[:, j, i] = alone.predict_proba(AT[:, j] / (AT[:, i] + AT[:, j]))[:, 1]
        pairs[:, i, j] = 1 - pairs[:, j, i]
    np.testing.assert_allclose(result.predict_proba(AT), couple(pairs), atol=1e-7)
    assert result.statuses_.tolist() == [0] * 6 and result.status_ == "converged"


def test_two_classes_are_the_calibrator_itself() -> None:
    p, y = rows(200, k=2)
    alone = bc.Isotonic().fit(p[:, 1], y).predict_proba(p[:50, 1])
    np.testing.assert_allclose(
        bc.OneVsOne(bc.Isotonic()).fit(p, y).predict_proba(p[:50]), alone, atol=1e-25
    )


@pytest.mark.parametrize(
    "calibrator",
    [bc.Isotonic("laplace"), bc.ScalingBinning(7), bc.BBQ(), bc.Histogram(7, binning="equal_mass")],
    ids=lambda calibrator: type(calibrator).__name__,
)
def test_permuting_the_classes_permutes_the_result(calibrator: Calibrator) -> None:
    order = np.array([2, 0, 3, 1])
    one = bc.OneVsOne(calibrator).fit(P, Y).predict_proba(AT)
    other = bc.OneVsOne(calibrator).fit(P[:, order], np.argsort(order)[Y])
    np.testing.assert_allclose(other.predict_proba(AT[:, order]), one[:, order], atol=1e-12)


def test_a_pair_has_the_mean_of_both_orders_if_these_matter() -> None:
    result = bc.OneVsOne(bc.ScalingBinning(7)).fit(P, Y)
    pairs = np.ones((len(AT), 4, 4))
    for i, j in combinations(range(4), 2):
        in_pair = (Y == i) | (Y == j)
        scores = np.log(P[in_pair, j] / P[in_pair, i]), np.log(AT[:, j] / AT[:, i])
        means = []
        for sign in (1, -1):
            alone = bc.ScalingBinning(7, inputs="logits")
            alone.fit(sign * scores[0], (Y[in_pair] == j) == (sign == 1))
            means.append(alone.predict_proba(sign * scores[1])[:, ::sign])
        pairs[:, i, j], pairs[:, j, i] = np.mean(means, axis=0).T
    np.testing.assert_allclose(result.predict_proba(AT), couple(pairs), atol=1e-7)


def test_a_class_without_a_label_keeps_shrunk_odds() -> None:
    p, y = rows(300, k=3)
    kept = y < 2
    result = bc.OneVsOne(bc.Isotonic("laplace"), classes=[0, 1, 2]).fit(p[kept], y[kept])
    at = AT[:, :3] / AT[:, :3].sum(axis=1, keepdims=True)
    pairs = np.ones((len(at), 3, 3))
    alone = bc.Isotonic("laplace").fit((p[:, 1] / (p[:, 0] + p[:, 1]))[kept], y[kept])
    pairs[:, 1, 0] = alone.predict_proba(at[:, 1] / (at[:, 0] + at[:, 1]))[:, 1]
    shrunk = at[:, 2] / (1 + p[kept, 2].sum())
    for i in (0, 1):
        pairs[:, 2, i] = shrunk / (shrunk + at[:, i])
    for i, j in combinations(range(3), 2):
        pairs[:, i, j] = 1 - pairs[:, j, i]
    np.testing.assert_allclose(result.predict_proba(at), couple(pairs), atol=1e-9)


def test_sure_pairs_leave_probabilities() -> None:
    p = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    result = bc.OneVsOne(bc.Isotonic()).fit(p, [0, 1, 2])
    np.testing.assert_allclose(result.predict_proba(p), np.eye(3), atol=1e-25)


@pytest.mark.parametrize("kind", [bc.OneVsOne, bc.OneVsRest])
def test_what_is_combined(kind: Any) -> None:
    for bad in (bc.KNN(), "isotonic", bc.Isotonic):
        with pytest.raises(TypeError, match="calibrator of binary scores, as Isotonic"):
            kind(bad).fit(P, Y)
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        kind(bc.Histogram(0)).fit(P, Y)
    with pytest.raises(ValueError, match="inference must be"):
        kind(bc.Beta(inference="none")).fit(P, Y)


def test_intervals_of_pairs_share_the_errors_of_a_class(tmp_path: Path) -> None:
    """Compare with sums over pairs that are fitted alone."""
    calibrator = bc.Beta(inference="laplace", num_samples=200, random_state=0)
    result: Any = bc.OneVsOne(calibrator).fit(P, Y)
    counts = np.bincount(Y)
    odds, sizes = np.zeros((4, 4, len(AT))), np.zeros((2, 4, 4, len(AT)))
    for i, j in combinations(range(4), 2):
        in_pair = (Y == i) | (Y == j)
        scores = P[in_pair, j] / (P[in_pair, i] + P[in_pair, j])
        alone: Any = clone(calibrator).fit(scores, Y[in_pair] == j)
        at = AT[:, j] / (AT[:, i] + AT[:, j])
        probs = logit(alone.predict_proba(at)[:, 1])
        low, high = np.abs(logit(np.stack(alone.predict_interval(at, 0.8))) - probs)
        odds[i, j], odds[j, i] = np.exp(probs), np.exp(-probs)
        sizes[:, j, i], sizes[:, i, j] = (low, high), (high, low)
    probs = result.predict_proba(AT)
    ends = np.stack(result.predict_interval(AT, 0.8))
    for i in range(4):
        others = [j for j in range(4) if j != i]
        share = odds[i, others] / odds[i, others].sum(axis=0)
        common = counts[others] / (counts[i] + counts[others])
        for end, sign in ((0, -1), (1, 1)):
            parts = share * sizes[end, i, others]
            # Errors of pairs (a, b) have the correlation of the rows of class i.
            covariance = np.sqrt(np.outer(common, common))
            np.fill_diagonal(covariance, 1.0)
            distance = np.sqrt(np.einsum("am,ab,bm->m", parts, covariance, parts))
            expected = expit(logit(probs[:, i]) + sign * distance)
            np.testing.assert_allclose(ends[end][:, i], expected, atol=1e-6)
    save(result, tmp_path / "fitted.npz")
    for again in (load(tmp_path / "fitted.npz").predict_interval, result.as_function().interval):
        np.testing.assert_allclose(np.stack(again(AT, 0.8)), ends, atol=1e-12)


def test_intervals_of_two_classes_are_those_of_the_calibrator() -> None:
    p, y = rows(200, k=2)
    calibrator = bc.Logistic(inference="laplace", num_samples=200, random_state=0)
    alone = clone(calibrator).fit(p[:, 1], y).predict_interval(p[:50, 1])
    pair: Any = bc.OneVsOne(calibrator).fit(p, y)
    np.testing.assert_allclose(pair.predict_interval(p[:50]), alone, atol=1e-9)
    first_version = {n: v for n, v in pair.state_.items() if n != "class_weights"}
    pair.state_ = first_version
    assert not pair.as_function().has_interval
    with pytest.raises(ValueError, match="the file of this calibrator has no intervals"):
        pair.predict_interval(p)


def test_intervals_of_classes_without_labels_are_those_of_their_rates() -> None:
    """Compare with draws of the rates, which have exponential posteriors."""
    calibrator: Any = bc.OneVsOne(bc.AveragedBeta(), classes=[0, 1, 2])
    p = P[:, :3] / P[:, :3].sum(axis=1, keepdims=True)
    at = np.array([[0.4, 0.3, 0.3], [0.1, 0.8, 0.1], [0.8, 0.15, 0.05]])
    rates = stats.expon.rvs(size=(1_000_000, 2), random_state=0) / (1 + p[:, 1:].sum(axis=0))
    fitted = calibrator.fit(p, np.zeros(len(p), int))
    for row, *ends in zip(at, *fitted.predict_interval(at, 0.8), strict=True):
        drawn = np.hstack([np.full((len(rates), 1), row[0]), row[1:] * rates])
        drawn /= drawn.sum(axis=1, keepdims=True)
        expected = np.quantile(drawn, [0.1, 0.9], axis=0)
        np.testing.assert_allclose(logit(ends)[:, 1:], logit(expected)[:, 1:], atol=0.1)


# --- one versus the rest ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "calibrator", [bc.Logistic(), bc.Beta(), bc.Isotonic(), bc.Histogram(5), bc.VennAbers()]
)
def test_each_class_is_calibrated_alone(calibrator: Calibrator) -> None:
    result = bc.OneVsRest(calibrator).fit(P, Y)
    alone = [calibrator.fit(P[:, j], Y == j).predict_proba(AT[:, j])[:, 1] for j in range(4)]
    expected = np.stack(alone, axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.predict_proba(AT), expected, atol=1e-7)
    assert result.statuses_.tolist() == [0] * 4 and result.status_ == "converged"


@pytest.mark.parametrize(
    "calibrator",
    [bc.Beta(inference="laplace", num_samples=200, random_state=0), bc.AveragedBeta()],
)
def test_the_other_classes_fill_the_remainder_of_an_interval(
    calibrator: Any, tmp_path: Path
) -> None:
    result: Any = bc.OneVsRest(calibrator).fit(P, Y)
    alone: list[Any] = [clone(calibrator).fit(P[:, j], Y == j) for j in range(4)]
    g = np.stack([a.predict_proba(AT[:, j])[:, 1] for j, a in enumerate(alone)], axis=1)
    each = np.stack([a.predict_interval(AT[:, j], 0.8) for j, a in enumerate(alone)], axis=2)
    np.testing.assert_allclose(
        result.predict_proba(AT), g / g.sum(axis=1, keepdims=True), atol=1e-7
    )
    others = (g.sum(axis=1, keepdims=True) - g) / (1 - g)  # relative to the remainder
    expected = each / (each + others * (1 - each))
    ends = np.stack(result.predict_interval(AT, 0.8))
    np.testing.assert_allclose(ends, expected, atol=1e-6)
    save(result, tmp_path / "fitted.npz")
    for again in (load(tmp_path / "fitted.npz").predict_interval, result.as_function().interval):
        np.testing.assert_allclose(np.stack(again(AT, 0.8)), ends, atol=1e-12)


def test_what_has_no_posterior_within_has_no_intervals() -> None:
    for calibrator, kind in product(
        (None, bc.Isotonic(), bc.Temperature()), (bc.OneVsOne, bc.OneVsRest)
    ):
        assert not hasattr(kind(calibrator).fit(P, Y), "predict_interval")


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("kind", [bc.OneVsOne, bc.OneVsRest])
def test_intervals_of_three_classes_contain_the_truth(kind: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    calibrator = kind(bc.Logistic(inference="laplace", num_samples=400, random_state=0))
    covered = []
    for _ in range(60):
        # Equal scores up to noise: rows of a class have one frequency, and the map is right.
        truth = rng.dirichlet([3.0, 3.0, 3.0])
        p = rng.dirichlet([50.0, 50.0, 50.0], size=n)
        y = rng.choice(3, p=truth, size=n)
        lower, upper = calibrator.fit(p, y).predict_interval([[1 / 3, 1 / 3, 1 / 3]])
        covered.append((lower[0] <= truth) & (truth <= upper[0]))
    assert 0.84 < np.mean(covered) < 0.96


def test_the_interval_of_a_class_without_a_label_is_that_of_its_rate() -> None:
    y = np.where(Y == 3, 0, Y)
    calibrator: Any = bc.OneVsRest(bc.AveragedBeta(), classes=[0, 1, 2, 3]).fit(P, y)
    lower, upper = calibrator.predict_interval(AT, 0.8)
    rate = stats.gamma(1, scale=1 / (1 + P[:, 3].sum()))
    probs = calibrator.predict_proba(AT)[:, 3]
    others = probs / (1 - probs) / (AT[:, 3] * rate.mean() / (1 - AT[:, 3] * rate.mean()))
    for end, level in ((lower, 0.1), (upper, 0.9)):
        expected = AT[:, 3] * rate.ppf(level)
        odds = others * expected / (1 - expected)
        np.testing.assert_allclose(end[:, 3], odds / (1 + odds), rtol=1e-6)


def test_a_class_without_a_label_keeps_a_shrunk_probability() -> None:
    y = np.where(Y == 3, 0, Y)
    result = bc.OneVsRest(bc.Isotonic("laplace"), classes=[0, 1, 2, 3]).fit(P, y)
    others = [
        bc.Isotonic("laplace").fit(P[:, j], y == j).predict_proba(AT[:, j])[:, 1] for j in range(3)
    ]
    expected = np.stack([*others, AT[:, 3] / (1 + P[:, 3].sum())], axis=1)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.predict_proba(AT), expected, atol=1e-9)


def test_rows_of_which_no_class_is_likely_keep_their_probabilities() -> None:
    p = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    result = bc.OneVsRest(bc.Isotonic()).fit(p, [0, 1, 2])
    at = np.array([[0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(result.predict_proba(at), [[0, 0, 1], [1 / 3, 1 / 3, 1 / 3]])
    steps = bc.OneVsRest(bc.Histogram(2)).fit(p, [0, 1, 2])
    flat = np.array([[0.5, 0.3, 0.2]])
    np.testing.assert_allclose(steps.predict_proba(flat), flat)
