"""Bootstrapped differences and biases against the normal distribution and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayescal import metrics

REPLICATES = 20_000


@pytest.mark.parametrize("z", [0.5, 1.0, -1.5])
def test_p_values_are_two_sided(z: float) -> None:
    """Compare p-values with twice the normal tail, for Brier scores z standard errors apart.

    The differences are symmetric about their mean, so the bootstrap distribution is normal up to
    terms of the order 1 / n.
    """
    n = 2000
    spread = np.repeat([-1.0, 1.0], n // 2) * np.tile(np.linspace(0.1, 1, n // 2), 2)
    gaps = 0.1 * (spread + z * spread.std() / np.sqrt(n))
    # With label 0 the score is the squared probability.
    second = np.full(n, 0.5)
    first = np.sqrt(0.25 + gaps)
    y = np.zeros(n, int)
    result = metrics.difference("brier_score", first, second, y, replicates=REPLICATES)
    score = metrics.brier_score(first, y) - metrics.brier_score(second, y)
    assert result.value == pytest.approx(score, rel=1e-9)
    assert score / result.standard_error == pytest.approx(z, rel=5 / np.sqrt(2 * REPLICATES))
    error = 2 * stats.norm.pdf(z) * abs(z) / np.sqrt(2 * REPLICATES)
    assert result.p_value == pytest.approx(2 * stats.t.sf(abs(z), n - 1), abs=4 * error)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_estimate_is_less_what_chance_adds(weighted: bool) -> None:
    """Check the root mean square of gaps in bins against the closed form of its bias.

    With n_b rows in bin b, labels drawn from the predictions p_b have the mean square sum_b p_b (1
    - p_b) / n; the observed residuals have another variance.
    """
    n, bins = 2000, 10
    centers = (np.arange(bins) + 0.5) / bins
    shares = np.where(centers < 0.5, centers + 0.1, centers - 0.1)
    p = np.repeat(centers, n // bins)
    y = np.concatenate([np.arange(n // bins) < round(q * n / bins) for q in shares]).astype(int)
    weights = None
    if weighted:
        rows = np.concatenate([p, y]).reshape(2, -1).T
        rows, weights = np.unique(rows, axis=0, return_counts=True)
        p, y = rows[:, 0], rows[:, 1].astype(int)
    chance = np.sum(centers * (1 - centers)) / n
    squares = shares * (1 - centers) ** 2 + (1 - shares) * centers**2
    chance *= squares.sum() / np.sum(centers * (1 - centers))
    result = metrics.interval("ece", p, y, bins=bins, norm=2, weights=weights)
    value = np.sqrt(np.mean((centers - shares) ** 2))
    assert result.value == pytest.approx(value, rel=1e-9)

    def left(chance: float) -> float:
        return (value**2.5 - chance**1.25) ** 0.4

    # The mean square is one of 64 sums of ten squares of normal numbers.
    error = 4 * np.sqrt(2 / (64 * bins))
    assert left(chance * (1 + error)) < result.estimate < left(chance * (1 - error)) < value
    assert result.lower < result.estimate < result.upper


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), [("ece", 30), ("debiased_ece", 100)])
def test_few_true_nulls_are_rejected_and_intervals_hold(name: str, n: int) -> None:
    """Compare two equally over-confident models, and an over-confident with a calibrated model."""
    rng = np.random.default_rng(5)
    rejected, held, runs = 0, 0, 300
    for run in range(runs):
        y = rng.integers(0, 2, n)
        first, second = (1 / (1 + np.exp(-4 * (2 * y - 1 + rng.normal(size=n)))) for _ in "ab")
        gap = metrics.difference(name, first, second, y, replicates=100, seed=run)
        rejected += gap.p_value <= 0.05
        even = 1 / (1 + np.exp(-2 * (2 * y - 1 + rng.normal(size=n))))
        interval = metrics.interval(name, even, y, replicates=100, seed=run)
        held += interval.lower <= 1e-4
    assert rejected <= 0.08 * runs
    assert held >= 0.86 * runs
