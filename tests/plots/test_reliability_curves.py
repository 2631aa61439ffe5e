"""Curves and bands of reliability diagrams against independent computations."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats
from matplotlib.axes import Axes
from sklearn.isotonic import IsotonicRegression

import bayescal as bc
from bayescal import plots
from tests.calibrators.discrete import add_rounding_errors


@pytest.fixture
def forecasts() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    probs = rng.beta(0.7, 0.9, size=300).round(2)
    return probs, (rng.random(300) < probs**1.3).astype(int)


def line(ax: Axes) -> np.ndarray:
    (result,) = [item for item in ax.lines if item.get_gid() == "bayescal-series"]
    return np.asarray(result.get_xydata())


def band(ax: Axes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions, lower and upper ends of the only band, which has no gap."""
    (path,) = ax.collections[0].get_paths()
    corners = path.vertices[:-1]
    x = np.unique(corners[:, 0])
    ends = [[f(corners[corners[:, 0] == at, 1]) for at in x] for f in (np.min, np.max)]
    return x, *np.array(ends)


def isotonic_by_formula(y: np.ndarray) -> np.ndarray:
    """Compute the isotonic regression of y with the max-min formula."""
    total = np.append(0, np.cumsum(y))
    n = len(y)
    means = np.array(
        [[(total[b + 1] - total[a]) / (b + 1 - a) if b >= a else 2 for b in range(n)]
         for a in range(n)]
    )  # fmt: skip
    return np.array([means[: i + 1, i:].min(axis=1).max() for i in range(n)])


def kernel_regression(probs: np.ndarray, y: np.ndarray, t: np.ndarray, width: float) -> np.ndarray:
    """Compute kernel averages at t from all mirror images, row by row."""
    images = np.concatenate([s * probs + 2 * m for s in (1, -1) for m in range(-3, 4)])
    kernels = np.exp(-((t[:, None] - images) ** 2) / (2 * width**2))
    return kernels @ np.tile(y, 14) / kernels.sum(axis=1)


# --- curves -------------------------------------------------------------------------------------


def test_corp_of_predictions_that_are_equal_up_to_rounding(
    forecasts: tuple[np.ndarray, np.ndarray],
) -> None:
    probs, y = forecasts
    near = add_rounding_errors(probs, np.random.default_rng(0)).clip(0, 1)
    lines = [line(plots.reliability(p, y, method="corp", level=None)) for p in (probs, near)]
    np.testing.assert_allclose(*lines, atol=1e-12)


def test_corp_is_the_greatest_of_the_least_averages() -> None:
    rng = np.random.default_rng(3)
    probs = rng.permutation(60) / 60
    y = (rng.random(60) < probs).astype(int)
    result = line(plots.reliability(probs, y, method="corp", level=None))
    order = np.argsort(probs)
    np.testing.assert_allclose(
        np.interp(probs[order], *result.T), isotonic_by_formula(y[order]), atol=1e-12
    )
    assert len(result) < 40  # only the ends of constant blocks


def test_corp_with_ties_is_that_of_scikit_learn(forecasts: Any) -> None:
    probs, y = forecasts
    result = line(plots.reliability(probs, y, method="corp", level=None))
    model = IsotonicRegression(out_of_bounds="clip").fit(probs, y)
    t = np.linspace(probs.min(), probs.max(), 997)
    np.testing.assert_allclose(np.interp(t, *result.T), model.predict(t), atol=1e-12)


def test_smooth_is_kernel_regression(forecasts: Any) -> None:
    probs, y = forecasts
    result = line(plots.reliability(probs, y, method="smooth", level=None, bandwidth=0.07))
    x, share = result.T
    assert not np.isnan(share).any()
    # The predictions are at grid nodes.
    np.testing.assert_allclose(share, kernel_regression(probs, y, x, 0.07), atol=1e-9)


def test_default_bandwidth_is_the_smoothed_residual(forecasts: Any) -> None:
    probs, y = forecasts
    t = np.linspace(0, 1, 2001)
    positions, index = np.unique(probs, return_inverse=True)
    images = np.concatenate([s * positions + 2 * m for s in (1, -1) for m in range(-3, 4)])
    residual = np.tile(np.bincount(index, weights=probs - y), 14)

    def error(width: float) -> float:
        kernels = np.exp(-(((t[:, None] - images) / width) ** 2) / 2)
        density = kernels @ residual / (len(y) * width * np.sqrt(2 * np.pi))
        return float(np.trapezoid(np.abs(density), t))

    low, high = 0.001, 1.0
    for _ in range(16):
        middle = (low + high) / 2
        low, high = (middle, high) if error(middle) > middle else (low, middle)
    default, given = (
        line(plots.reliability(probs, y, method="smooth", level=None, bandwidth=width))
        for width in (None, (low + high) / 2)
    )
    np.testing.assert_allclose(default, given, atol=2e-4)


def test_smooth_line_ends_where_there_are_no_cases() -> None:
    probs = np.repeat([0.2, 0.9], 50)
    y = np.tile([0, 1], 50)
    x, share = line(plots.reliability(probs, y, method="smooth", level=None, bandwidth=0.02)).T
    cases = sum(50 * np.exp(-((x - p) ** 2) / (2 * 0.02**2)) for p in (0.2, 0.9))
    # Leave out the border itself.
    clear = np.abs(cases - 1) > 1e-6
    np.testing.assert_array_equal(np.isnan(share)[clear], (cases < 1)[clear])
    np.testing.assert_allclose(share[~np.isnan(share)], 0.5)


def test_curves_of_confidence() -> None:
    rng = np.random.default_rng(5)
    probs = rng.dirichlet(np.ones(3), size=100)
    y = rng.integers(0, 3, size=100)
    ax = plots.reliability(probs, y, method="corp", level=None)
    right = (probs.argmax(axis=1) == y).astype(int)
    expected = plots.reliability(probs.max(axis=1), right, method="corp", level=None)
    np.testing.assert_array_equal(line(ax), line(expected))
    assert ax.get_xlabel() == "Confidence"
    assert ax.get_ylabel() == "Accuracy"
    # Binary predictions in one column and in two.
    p = probs[:, 0]
    for given in (p, np.stack([1 - p, p], axis=1)):
        ax = plots.reliability(given, y == 1, kind="confidence", method="corp", level=None)
        np.testing.assert_allclose(line(ax)[0, 0], np.maximum(p, 1 - p).min())


# --- bands --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_of_bins_are_those_of_wilson(forecasts: Any, level: float) -> None:
    probs, y = forecasts
    ax = plots.reliability(probs, y, bins=6, band="confidence", level=level)
    part_of = np.clip(np.ceil(probs * 6).astype(int), 1, 6)
    for b, segment in enumerate(ax.collections[0].get_segments(), start=1):
        outcomes = y[part_of == b]
        test = scipy.stats.binomtest(int(outcomes.sum()), len(outcomes))
        interval = test.proportion_ci(level, method="wilson")
        np.testing.assert_allclose(segment[:, 1], [interval.low, interval.high], atol=1e-12)


def quantile_errors(draws: int, level: float) -> tuple[list[float], list[float]]:
    """Return the range of levels of each interval end, left once in 10,000 samples of draws."""
    tails = (1 - level) / 2, (1 + level) / 2
    chance = [scipy.stats.binom(draws, q).ppf([5e-5, 1 - 5e-5]) / draws for q in tails]
    return list(chance[0]), list(chance[1])


@pytest.mark.parametrize("method", ["corp", "smooth"])
def test_bands_of_consistency_are_quantiles_over_data_sets(forecasts: Any, method: str) -> None:
    probs, _ = forecasts
    options: dict[str, Any] = {"bandwidth": 0.05} if method == "smooth" else {}
    ax = plots.reliability(*forecasts, method=method, level=0.8, seed=4, **options)
    x, lower, upper = band(ax)
    rng = np.random.default_rng(11)
    at = np.searchsorted(x, [0.2, 0.5, 0.8])
    draws = []
    for _ in range(1000):
        y = (rng.random(len(probs)) < probs).astype(int)
        if method == "corp":
            model = IsotonicRegression(out_of_bounds="clip").fit(probs, y)
            draws.append(model.predict(x[at]))
        else:
            draws.append(kernel_regression(probs, y, x[at], 0.05))
    # Ends from 200 draws have random quantile levels; 0.04 is four standard errors for the shares
    # of 1,000 draws.
    for (least, most), ends in zip(quantile_errors(200, 0.8), (lower, upper), strict=True):
        for position, end in zip(at, ends[at], strict=True):
            simulated = np.array(draws)[:, list(at).index(position)]
            assert (simulated < end - 1e-9).mean() <= most + 0.04
            assert (simulated <= end + 1e-9).mean() >= least - 0.04


def test_confidence_of_an_isotonic_curve_is_that_of_the_calibrator(forecasts: Any) -> None:
    ax = plots.reliability(*forecasts, method="corp", band="confidence", level=0.8)
    x, lower, upper = band(ax)
    np.testing.assert_array_equal(x, np.unique(forecasts[0]))
    expected = bc.Isotonic().fit(*forecasts).predict_interval(x, 0.8)
    np.testing.assert_array_equal((lower, upper), expected)


@pytest.mark.parametrize("width", [0.01, 0.4])
def test_confidence_of_a_smooth_curve_is_wilson_s_interval(forecasts: Any, width: float) -> None:
    """Compare with the effective number of rows, from each row's kernel and its images."""
    probs, y = forecasts
    probs = np.round(probs, 3)
    ax = plots.reliability(probs, y, method="smooth", band="confidence", bandwidth=width)
    x, lower, upper = band(ax)
    images = np.concatenate([probs + shift for shift in range(-6, 7, 2)])
    images = np.stack([images, -images])
    z = scipy.stats.norm.ppf(0.95)
    for i in np.flatnonzero(np.isfinite(lower))[::40]:
        density = scipy.stats.norm.pdf(x[i], images, width).sum(axis=0)
        kernel = density.reshape(-1, len(probs)).sum(axis=0)
        size = kernel.sum() ** 2 / (kernel**2).sum()
        share = kernel @ y / kernel.sum()
        # Wilson's ends are the solutions of a quadratic equation.
        ends = np.roots([1 + z**2 / size, -2 * share - z**2 / size, share**2])
        np.testing.assert_allclose((lower[i], upper[i]), np.sort(ends.real), atol=1e-6)


@pytest.mark.parametrize("method", ["corp", "smooth"])
def test_bands_of_confidence_hold_frequencies_of_rare_events(method: str) -> None:
    held = []
    options: Any = {"bandwidth": 0.004} if method == "smooth" else {}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        probs = rng.choice([0.002, 0.008, 0.02], 300)
        y = (rng.random(300) < 1.5 * probs).astype(int)
        ax = plots.reliability(probs, y, method=method, band="confidence", **options)
        x, lower, upper = band(ax)
        at = [int(np.argmin(abs(x - p))) for p in (0.008, 0.02)]
        truth = 1.5 * x[at]
        if method == "smooth":
            truth = kernel_regression(probs, 1.5 * probs, x[at], 0.004)
        held += [*((lower[at] <= truth) & (truth <= upper[at]))]
        plt.close("all")
    # 40 intervals of level 0.9; less than once in 10,000 times fewer than 28 hold.
    assert sum(held) >= 28


def test_many_distinct_predictions_are_pooled_for_the_band_alone() -> None:
    rng = np.random.default_rng(1)
    probs = rng.random(12_000)
    y = (rng.random(12_000) < probs).astype(int)
    ax = plots.reliability(probs, y, method="corp")
    x, lower, upper = band(ax)
    assert 4000 < len(x) <= 4096
    assert np.abs((lower + upper) / 2 - x).max() < 0.05
    model = IsotonicRegression(out_of_bounds="clip").fit(probs, y)
    result = np.interp(probs, *line(ax).T)
    np.testing.assert_allclose(result, model.predict(probs), atol=1e-12)


def test_seed_decides_the_band(forecasts: Any) -> None:
    ends = [
        band(plots.reliability(*forecasts, method="smooth", seed=seed))[1] for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(ends[0], ends[1])
    assert (ends[0] != ends[2]).any()


@pytest.mark.parametrize("method", ["binned", "corp", "smooth"])
@pytest.mark.parametrize("kind", ["consistency", "confidence"])
def test_tiny_data_are_drawn(method: str, kind: str) -> None:
    for p, y in (([0.5], [1]), ([0.0, 0.0], [0, 0]), ([0.0, 1.0], [0, 1]), ([0.3] * 3, [0, 1, 1])):
        ax = plots.reliability(p, y, method=method, band=kind)
        assert np.isfinite(line(ax)).any()
        if method == "binned" and kind == "confidence" and p == [0.0, 1.0]:
            low, high = ax.collections[0].get_segments()
            assert low[0, 1] == 0 and high[1, 1] == 1
    ax.figure.canvas.draw()
