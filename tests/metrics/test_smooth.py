"""Kernel calibration errors against quadrature over all rows, and known values."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from bayescal import metrics
from bayescal.metrics.kernels import smooth as _smooth


def make_probs(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    probs = rng.beta(0.6, 0.8, n)
    return probs, (rng.random(n) < 0.2 + 0.5 * probs**2).astype(int)


def reflected_kernel(density: Callable, points: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Sum the kernel (t, points) over all mirror images within reach."""
    images = [s * points + 2 * m for m in range(-2, 3) for s in (1, -1)]
    return sum(density(t[:, None] - image) for image in images)  # type: ignore[return-value]


def brute_smooth(probs: np.ndarray, y: np.ndarray, sigma: float, weights: np.ndarray) -> float:
    def residual(t: float) -> float:
        kernel = reflected_kernel(stats.norm(scale=sigma).pdf, probs, np.array([t]))[0]
        return abs(kernel @ (weights * (probs - y))) / weights.sum()

    grid = np.linspace(0, 1, 400)
    signed = reflected_kernel(stats.norm(scale=sigma).pdf, probs, grid) @ (weights * (probs - y))
    crossings = np.flatnonzero(np.diff(np.sign(signed)))
    points = sorted(grid[crossings])
    return integrate.quad(residual, 0, 1, points=points, limit=500, epsabs=1e-9)[0]


@pytest.mark.parametrize("sigma", [0.1, 0.4])
def test_smooth_error_equals_quadrature(sigma: float) -> None:
    probs, y = make_probs(40)
    weights = np.random.default_rng(1).exponential(size=40)
    expected = brute_smooth(probs, y, sigma, weights)
    value = metrics.smooth_ece(probs, y, bandwidth=sigma, weights=weights)
    assert value == pytest.approx(expected, rel=2e-5)


def test_bandwidth_is_the_value() -> None:
    probs, y = make_probs()
    value = metrics.smooth_ece(probs, y)
    assert metrics.smooth_ece(probs, y, bandwidth=value) == pytest.approx(value, abs=1e-10)
    root = optimize.brentq(
        lambda s: metrics.smooth_ece(probs, y, bandwidth=s) - s, 1e-3, 1, xtol=1e-12
    )
    assert value == pytest.approx(root, abs=1e-10)


def test_bandwidth_where_steps_run_out_is_the_last_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    probs, y = make_probs()
    monkeypatch.setattr(_smooth, "_STEPS", 4)
    value = metrics.smooth_ece(probs, y)
    monkeypatch.undo()
    assert value == pytest.approx(metrics.smooth_ece(probs, y), rel=0.05)
    assert value != metrics.smooth_ece(probs, y)


def test_smooth_error_of_a_constant_is_the_gap() -> None:
    """Check that a reflected kernel loses no mass: the error equals the gap for any width."""
    for gap in (0.5, 0.05, 0.003):
        y = np.zeros(1000, int)
        assert metrics.smooth_ece(np.full(1000, gap), y) == pytest.approx(gap, rel=1e-6)
        assert metrics.smooth_ece(np.full(1000, 1 - gap), 1 - y) == pytest.approx(gap, rel=1e-6)


def test_far_apart_gaps_add_and_near_ones_cancel() -> None:
    probs, y = np.array([0.1, 0.9]), np.array([1, 0])
    # Residuals -0.9 and 0.9, smoothed by a kernel whose width is the result.
    value = metrics.smooth_ece(probs, y)
    assert value == pytest.approx(brute_smooth(probs, y, value, np.ones(2)), rel=1e-4)
    near = metrics.smooth_ece([0.5 - 1e-3, 0.5 + 1e-3], [1, 0])
    assert near < 0.03 < metrics.ece([0.5 - 1e-3, 0.5 + 1e-3], [1, 0], bins=2)


def test_confidence_is_the_binary_error_of_being_right() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=100)
    y = rng.integers(0, 4, 100)
    top, right = probs.max(axis=1), (probs.argmax(axis=1) == y).astype(int)
    for metric in (metrics.smooth_ece, metrics.kde_ece):
        assert metric(probs, y) == pytest.approx(metric(top, right), rel=1e-12)


def triweight(width: float) -> Callable:
    def density(u: np.ndarray) -> np.ndarray:
        z = u / (3 * width)
        return np.where(np.abs(z) < 1, 35 / 32 * (1 - z**2) ** 3, 0) / (3 * width)

    return density


@pytest.mark.parametrize(
    ("width", "kernel", "norm"),
    [
        (None, "triweight", 1),
        (None, "gaussian", 2),
        (0.05, "triweight", 2),
        (0.05, "gaussian", 1),
        (0.5, "triweight", 1),
        (0.5, "gaussian", 1),
    ],
)
def test_density_error_equals_a_sum_over_cases(width: float | None, kernel: str, norm: int) -> None:
    probs, y = make_probs(60)
    h = 1.06 * probs.std() * len(probs) ** -0.2 if width is None else width
    density = triweight(h) if kernel == "triweight" else stats.norm(scale=h).pdf
    t = (np.arange(4000) + 0.5) / 4000
    near = reflected_kernel(density, probs, t)
    mass = near.mean(axis=1)
    frequency = np.divide(near @ y, near.sum(axis=1), out=np.zeros_like(t), where=mass > 1e-12)
    expected = np.mean(np.abs(t - frequency) ** norm * mass) ** (1 / norm)
    value = metrics.kde_ece(probs, y, kernel=kernel, norm=norm, bandwidth=width)  # type: ignore[arg-type]
    assert value == pytest.approx(expected, rel=1e-4)


def test_density_error_finds_the_truth() -> None:
    """Compare with the errors 1 / 6 and 1 / sqrt(30) of P(y = 1 | p) = p**2 for uniform p."""
    rng = np.random.default_rng(0)
    probs = rng.random(200_000)
    y = (rng.random(200_000) < probs**2).astype(int)
    assert metrics.kde_ece(probs, y) == pytest.approx(1 / 6, abs=0.004)
    assert metrics.kde_ece(probs, y, norm=2) == pytest.approx(math.sqrt(1 / 30), abs=0.004)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bandwidth": 0}, ValueError, "bandwidth must be positive, got 0"),
        ({"bandwidth": "wide"}, TypeError, "bandwidth must be a positive number, got 'wide'"),
        ({"kind": "classwise"}, ValueError, "kind must be one of 'binary', 'confidence'"),
        ({"kernel": "box"}, ValueError, "kernel must be one of 'triweight', 'gaussian'"),
        ({"norm": 3}, ValueError, "norm must be one of 1, 2, got 3"),
    ],
)
def test_bad_options_are_errors(options: dict, error: type[Exception], message: str) -> None:
    for metric in (metrics.smooth_ece, metrics.kde_ece):
        if metric is metrics.kde_ece or ("kernel" not in message and "norm" not in message):
            with pytest.raises(error, match=message):
                metric([0.2, 0.7], [0, 1], **options)
