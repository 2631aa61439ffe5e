"""Kernel tests of calibration against eigenvalues, simulations and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayescal import metrics

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
    result = metrics.skce_test(probs, y, bandwidth=0.4, resamples=4000)
    h = kernel_matrix(probs, y, 0.4)
    n = len(y)
    statistic = (h.sum() - np.trace(h)) / (n - 1)
    assert result.statistic == pytest.approx(statistic / n, rel=1e-9)
    values = np.linalg.eigvalsh(h / n)
    squares = np.random.default_rng(0).chisquare(1, (20_000, n)) - 1
    expected = np.mean(squares @ values >= statistic)
    error = np.sqrt(expected * (1 - expected) * (1 / 4000 + 1 / 20_000))
    assert abs(result.p_value - expected) < 4 * error + 1 / 4000


@pytest.mark.parametrize("estimator", ["unbiased", "linear"])
def test_calibrated_predictions_are_rejected_as_often_as_they_should(estimator: str) -> None:
    rng = np.random.default_rng(0)
    runs = 300
    values = [
        metrics.skce_test(
            *draw_probs(rng, 100),
            estimator=estimator,  # type: ignore[arg-type]
            bandwidth=0.4,
            resamples=99,
            seed=run,
        ).p_value
        for run in range(runs)
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
    result = metrics.skce_test(probs, y, estimator="linear", bandwidth=0.3)
    assert result.statistic == pytest.approx(h.mean(), rel=1e-9)
    expected = stats.ttest_1samp(h, 0, alternative="greater").pvalue
    assert result.p_value == pytest.approx(expected, rel=1e-9)
    certain = np.eye(2)[[0, 0, 1, 1]]
    assert metrics.skce_test(certain, [0, 0, 1, 1], estimator="linear").p_value == 1
    assert metrics.skce_test(certain, [1, 1, 0, 0], estimator="linear").p_value == 0


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
        metrics.skce_test(probs, y, estimator="biased")
    with pytest.raises(ValueError, match="weights must be left out"):
        metrics.skce_test(probs, y, method="bound", weights=np.ones(8))
    with pytest.raises(ValueError, match="two pairs"):
        metrics.skce_test(probs[:3], y[:3], estimator="linear")
    with pytest.raises(ValueError, match="method must be"):
        metrics.skce_test(probs, y, method="exact")  # type: ignore[arg-type]
