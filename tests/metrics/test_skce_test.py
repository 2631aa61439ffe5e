"""Kernel tests of calibration against eigenvalues, simulations and closed forms."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bayescal import metrics
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.predictions import PLAIN
from bayescal.metrics.kernels.skce import make_skce
from bayescal.metrics.sums import compute
from bayescal.metrics.uncertainty.replicates import redraw

Array = np.ndarray


def draw_probs(rng: np.random.Generator, n: int, k: int = 3) -> tuple[Array, Array]:
    probs = rng.dirichlet(np.ones(k), size=n)
    return probs, (probs.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def kernel_matrix(probs: Array, y: Array, width: float) -> Array:
    residual = np.eye(probs.shape[1])[y] - probs
    gaps = np.abs(probs[:, None] - probs).sum(axis=2) / 2
    return np.exp(-gaps / width) * (residual @ residual.T)


@pytest.mark.parametrize("power", [1.0, 1.6])
def test_draws_have_the_law_of_the_eigenvalues(power: float) -> None:
    probs, y = draw_probs(np.random.default_rng(3), 150)
    probs = probs**power / (probs**power).sum(axis=1, keepdims=True)
    result = metrics.skce_test(probs, y, method="asymptotic", bandwidth=0.4, resamples=4000)
    h = kernel_matrix(probs, y, 0.4)
    n = len(y)
    statistic = (h.sum() - np.trace(h)) / (n - 1)
    assert result.statistic == pytest.approx(statistic / n, rel=1e-9)
    values = np.linalg.eigvalsh(h / n)
    squares = np.random.default_rng(0).chisquare(1, (20_000, n)) - 1
    expected = np.mean(squares @ values >= statistic)
    error = np.sqrt(expected * (1 - expected) * (1 / 4000 + 1 / 20_000))
    assert abs(result.p_value - expected) < 4 * error + 1 / 4000


@pytest.mark.parametrize("estimator", ["unbiased", "biased", "linear"])
@pytest.mark.parametrize("k", [2, 3])
def test_p_values_of_all_possible_labels(estimator: Any, k: int) -> None:
    """Weigh the statistics of all labels by their probabilities."""
    n = 6 if k == 2 else 4
    probs, y = draw_probs(np.random.default_rng(4), n, k)
    every = np.array([*product(range(k), repeat=n)])
    chances = probs[np.arange(n), every].prod(axis=1)
    values = np.array(
        [metrics.skce(probs, z, estimator=estimator, bandwidth=0.4, classes=k) for z in every]
    )
    order = np.argsort(values)
    for quantile in (0.3, 0.9):
        y = every[order[np.searchsorted(chances[order].cumsum(), quantile)]]
        options = {"bandwidth": 0.4, "resamples": 4000, "classes": k}
        result = metrics.skce_test(probs, y, estimator=estimator, **options)
        expected = chances[values >= result.statistic - 1e-12].sum()
        error = np.sqrt(expected * (1 - expected) / 4000)
        assert abs(result.p_value - expected) < 4 * error + 1 / 4000


@pytest.mark.parametrize("weighted", [False, True])
def test_drawn_labels_have_the_statistic_of_their_rows(weighted: bool) -> None:
    """Compare means and variances of statistics with labels drawn one set at a time."""
    probs, y = draw_probs(np.random.default_rng(6), 40)
    w = np.random.default_rng(7).uniform(0.2, 3, 40) if weighted else None
    data = as_predictions(probs, y, w, PLAIN)
    metric = make_skce(data, bandwidth=0.3)
    rng = np.random.default_rng(8)
    drawn = metric.draw(data, 1000, rng)
    single = [compute(metric, redraw(data, rng)) for _ in range(1000)]
    assert stats.ks_2samp(drawn, single).pvalue > 0.001


@pytest.mark.parametrize("estimator", ["unbiased", "linear"])
def test_rare_events_are_rejected_as_often_as_they_should(estimator: Any) -> None:
    rng, rejected = np.random.default_rng(0), 0
    for seed in range(60):
        p = rng.uniform(0.001, 0.003, 50)
        y = rng.random(50) < p
        options = {"estimator": estimator, "resamples": 99, "seed": seed, "classes": [0, 1]}
        rejected += metrics.skce_test(p, y, **options).p_value <= 0.05
    # Of a binomial distribution with probability 0.05, 99.9 % is at most 9.
    assert rejected <= 9


@pytest.mark.parametrize("estimator", ["unbiased", "linear"])
def test_calibrated_predictions_are_rejected_as_often_as_they_should(estimator: Any) -> None:
    rng, runs = np.random.default_rng(0), 150
    how: dict[str, Any] = {"estimator": estimator, "bandwidth": 0.4, "resamples": 39}
    values = [
        metrics.skce_test(*draw_probs(rng, 60), **how, seed=run).p_value for run in range(runs)
    ]
    for level in (0.1, 0.5):
        error = np.sqrt(level * (1 - level) / runs)
        assert abs(np.mean(np.array(values) <= level) - level) < 4 * error


def test_overconfidence_is_found() -> None:
    probs, y = draw_probs(np.random.default_rng(1), 400)
    sharp = probs**3 / (probs**3).sum(axis=1, keepdims=True)
    assert metrics.skce_test(sharp, y, resamples=199).p_value == 1 / 200
    both = metrics.skce_test(sharp[:, :2] / sharp[:, :2].sum(axis=1, keepdims=True), y % 2)
    column = sharp[:, 1] / sharp[:, :2].sum(axis=1)
    assert metrics.skce_test(column, y % 2) == pytest.approx(both, rel=1e-9)


def test_bounds() -> None:
    probs, y = draw_probs(np.random.default_rng(2), 101)
    y = probs.argmin(axis=1)
    sharp = probs**4 / (probs**4).sum(axis=1, keepdims=True)
    for estimator in ("unbiased", "linear"):
        t, p = metrics.skce_test(sharp, y, estimator=estimator, method="bound")  # type: ignore[arg-type]
        assert t > 0 and p == pytest.approx(np.exp(-50 * t**2 / 8), rel=1e-12)
    t, p = metrics.skce_test(sharp, y, estimator="biased", method="bound")
    assert 101 * t / 2 > 1
    assert p == pytest.approx(np.exp(-((np.sqrt(101 * t / 2) - 1) ** 2) / 2), rel=1e-12)
    t, p = metrics.skce_test(np.full((9, 2), 0.5), np.arange(9) % 2, method="bound")
    assert t < 0 and p == 1


@pytest.mark.parametrize("n", [6, 200])
def test_the_mean_over_pairs_has_students_law(n: int) -> None:
    probs, y = draw_probs(np.random.default_rng(5), n)
    h = kernel_matrix(probs, y, 0.3)[np.arange(0, n, 2), np.arange(1, n, 2)]
    options = {"estimator": "linear", "method": "asymptotic", "bandwidth": 0.3}
    result = metrics.skce_test(probs, y, **options)
    assert result.statistic == pytest.approx(h.mean(), rel=1e-9)
    expected = stats.ttest_1samp(h, 0, alternative="greater").pvalue
    assert result.p_value == pytest.approx(expected, rel=1e-9)
    certain = np.eye(2)[[0, 0, 1, 1]]
    for labels in ([0, 0, 1, 1], [1, 1, 0, 0]):
        assert metrics.skce_test(certain, labels, **options).p_value == 1
    wrong = metrics.skce_test(certain, [1, 1, 0, 0], estimator="linear", resamples=99)
    assert wrong.p_value == 0.01


def test_counts_repeat_cases() -> None:
    probs, y = draw_probs(np.random.default_rng(7), 60)
    sharp = probs**1.5 / (probs**1.5).sum(axis=1, keepdims=True)
    counts = np.random.default_rng(8).integers(1, 4, 60)
    rows = np.repeat(np.arange(60), counts)
    one = metrics.skce_test(sharp, y, weights=counts, bandwidth=0.4, resamples=4000)
    other = metrics.skce_test(sharp[rows], y[rows], bandwidth=0.4, resamples=4000)
    assert one.statistic == pytest.approx(other.statistic, rel=1e-9)
    assert one.p_value == pytest.approx(other.p_value, abs=4 * np.sqrt(0.5 / 4000))


def test_what_is_not_provided() -> None:
    probs, y = draw_probs(np.random.default_rng(0), 8)
    with pytest.raises(ValueError, match="estimator must be"):
        metrics.skce_test(probs, y, estimator="biased", method="asymptotic")
    with pytest.raises(ValueError, match="weights must be left out"):
        metrics.skce_test(probs, y, method="bound", weights=np.ones(8))
    with pytest.raises(ValueError, match="two pairs"):
        metrics.skce_test(probs[:3], y[:3], estimator="linear")
    with pytest.raises(ValueError, match="method must be"):
        metrics.skce_test(probs, y, method="exact")  # type: ignore[arg-type]
