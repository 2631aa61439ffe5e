"""Kernel density estimates against SciPy, loops and closed forms, and their memory use."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from bayescal._core.execution import chunks
from bayescal.smoothing import _kernels as kernels


def draw_features(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Draw correlated features of different scales, away from zero."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(d) + 0.3 * rng.normal(size=(d, d))
    return rng.normal(size=(n, d)) @ mixing * 3.0 ** np.arange(d) + 5


def weights_of(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=n)


def log_density_by_loop(
    x: np.ndarray, weights: np.ndarray, scale: np.ndarray, x_new: np.ndarray
) -> np.ndarray:
    """Compute the log density with a double loop over points and kernels."""
    covariance = np.diag(scale**2) if scale.ndim == 1 else scale @ scale.T
    share = weights / weights.sum()
    log_norm = 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    result = []
    for point in x_new:
        terms = [
            np.log(share[i]) - 0.5 * (point - x[i]) @ np.linalg.solve(covariance, point - x[i])
            for i in range(len(x))
            if share[i] > 0
        ]
        result.append(scipy.special.logsumexp(terms) - log_norm)
    return np.array(result)


# --- against SciPy ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weighted", "bandwidth"), [(True, "silverman"), (False, "scott"), (True, 0.3)]
)
@pytest.mark.parametrize("d", [1, 3, 10])
def test_density_is_that_of_scipy(d: int, weighted: bool, bandwidth: str | float) -> None:
    x, x_new = draw_features(300, d), draw_features(70, d, seed=2)
    weights = weights_of(300) if weighted else None
    expected = scipy.stats.gaussian_kde(x.T, bw_method=bandwidth, weights=weights).logpdf(x_new.T)
    result = kernels.kernel_log_density(x, x_new, weights, bandwidth)  # type: ignore[arg-type]
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)
    # A single feature needs no ridge, so all digits agree.
    if d == 1:
        np.testing.assert_allclose(np.exp(result), np.exp(expected), rtol=1e-12)


@pytest.mark.parametrize(("n", "on_cpu"), [(5003, True), (20_011, False)])
def test_many_blocks_of_kernels_and_points(
    monkeypatch: pytest.MonkeyPatch, n: int, on_cpu: bool
) -> None:
    """Check the block sizes of a CPU and of an accelerator."""
    monkeypatch.setattr(chunks, "_on_cpu", lambda: on_cpu)
    x, x_new = draw_features(n, 2), draw_features(1301, 2, seed=2)
    expected = scipy.stats.gaussian_kde(x.T).logpdf(x_new.T)
    result = kernels.kernel_log_density(x, x_new, bandwidth="scott")
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)


def test_factors_are_those_of_scipy(x64: None) -> None:
    for d in (1, 4):
        x, weights = draw_features(50, d), weights_of(50)
        reference = scipy.stats.gaussian_kde(x.T, weights=weights)
        size = kernels.size_of_shares(jnp.asarray(weights))
        assert float(size) == pytest.approx(reference.neff, rel=1e-14)
        result = kernels.silverman_bandwidth(size, d), kernels.scott_bandwidth(size, d)
        expected = reference.silverman_factor(), reference.scotts_factor()
        np.testing.assert_allclose(result, expected, rtol=1e-14)


# --- against loops and closed forms -------------------------------------------------------------


@pytest.mark.parametrize("shape", ["full", "diagonal"])
@pytest.mark.parametrize("d", [1, 11])
def test_density_is_that_of_a_double_loop(x64: None, d: int, shape: str) -> None:
    x, x_new, weights = draw_features(23, d), draw_features(17, d, seed=2), weights_of(23)
    weights[::5] = 0
    scale = np.linspace(0.5, 2, d)
    if shape == "full":
        scale = np.linalg.cholesky(np.diag(scale) + 0.2)
    result = kernels.gaussian_log_density(*map(jnp.asarray, (x, weights, scale, x_new)))
    np.testing.assert_allclose(result, log_density_by_loop(x, weights, scale, x_new), rtol=1e-12)


@pytest.mark.parametrize("distance", [1e1, 1e3, 1e5, 1e8])
def test_far_points_have_the_exact_log_density(distance: float) -> None:
    x = draw_features(200, 2)
    x_new = x.mean(axis=0) + distance * np.array([[1.0, 0.3], [-1.0, 2.0], [0.0, -1.0]])
    scale = 0.4 * x.std(axis=0, ddof=1)
    result = kernels.kernel_log_density(x, x_new, bandwidth=0.4, covariance="diagonal")
    np.testing.assert_allclose(
        result, log_density_by_loop(x, np.ones(200), scale, x_new), rtol=1e-12
    )


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1e300), (np.float32, 1e38)])
def test_log_density_is_finite_however_far(dtype: type, most: float, covariance: str) -> None:
    x_new = np.array([[-most, 0.0], [most, -most], [0.0, most], [1e20, 1e20]], dtype)
    result = kernels.kernel_log_density(draw_features(30, 2), x_new, covariance=covariance)  # type: ignore[arg-type]
    assert np.isfinite(result).all()
    assert (result < -1e25).all()


def test_density_integrates_to_one() -> None:
    x = draw_features(40, 1)
    grid = np.linspace(x.min() - 8, x.max() + 8, 4001)
    density = np.exp(kernels.kernel_log_density(x, grid[:, None], weights_of(40)))
    assert scipy.integrate.simpson(density, x=grid) == pytest.approx(1, abs=1e-9)


# --- degenerate data ----------------------------------------------------------------------------


def test_one_point_is_one_kernel_of_unit_scale() -> None:
    x_new = np.linspace(-3, 3, 7)
    result = kernels.kernel_log_density(np.array([[0.5]]), x_new[:, None])
    expected = scipy.stats.norm.logpdf(x_new, 0.5, 0.75**-0.2)
    np.testing.assert_allclose(result, expected, rtol=1e-14)
    result = kernels.kernel_log_density(
        np.array([[0.5]]), x_new[:, None], bandwidth=0.5, unit=np.array([4.0])
    )
    np.testing.assert_allclose(result, scipy.stats.norm.logpdf(x_new, 0.5, 2), rtol=1e-14)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9, -1e-300])
def test_feature_that_does_not_vary_has_unit_scale(value: float) -> None:
    x = draw_features(30, 2)
    x_new = draw_features(9, 2, seed=2)
    expected = kernels.kernel_log_density(x[:, :1], x_new[:, :1], bandwidth=0.5)
    x[:, 1] = value
    x_new[:, 1] = value + np.arange(9)
    step = x_new[:, 1] - value
    for covariance in ("full", "diagonal"):
        result = kernels.kernel_log_density(x, x_new, bandwidth=0.5, covariance=covariance)
        other = scipy.stats.norm.logpdf(step, scale=0.5)
        np.testing.assert_allclose(result, expected + other, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("n", [2, 3, 50])
def test_dependent_features_give_finite_densities(n: int) -> None:
    x = draw_features(n, 4)
    x[:, 3] = x[:, 0] - 2 * x[:, 1]
    result = kernels.kernel_log_density(x, x)
    assert np.isfinite(result).all()
    # Away from the plane of the observations the density is negligible.
    away = kernels.kernel_log_density(x, x + np.array([0, 0, 0, 100.0]))
    assert (away < result - 1e6).all()


def test_no_weight_is_no_density(x64: None) -> None:
    x = jnp.asarray(draw_features(8, 2))
    result = kernels.fitted_log_density(
        x, jnp.zeros(8), x, jnp.asarray(1.0), jnp.ones(2), "cv", "full", counts=True
    )
    np.testing.assert_array_equal(result, np.full(8, -np.inf))


# --- weights ------------------------------------------------------------------------------------


def test_weights_below_one_count_as_shares(x64: None) -> None:
    weights = jnp.asarray(weights_of(20))
    shares = weights / jnp.sum(weights)
    expected = kernels.size_of_shares(weights)
    assert float(kernels.counted_size(shares)) == pytest.approx(float(expected), rel=1e-14)
    assert float(kernels.counted_size(jnp.asarray([3.0, 0.0, 2.0]))) == 5


@settings(max_examples=30)
@given(
    st.integers(1, 16), st.integers(0, 2**31), st.floats(1e-3, 1e3), st.floats(-100, 100), st.data()
)
def test_shares_order_and_units_do_not_matter(
    n: int, seed: int, unit: float, shift: float, data: st.DataObject
) -> None:
    # A few observations may nearly lie on a line, where full covariances magnify rounding.
    x, x_new, weights = (
        draw_features(n, 2, seed),
        draw_features(5, 2, seed + 1),
        weights_of(n, seed),
    )
    expected = kernels.kernel_log_density(x, x_new, weights, covariance="diagonal")
    order = np.array(data.draw(st.permutations(range(n))))
    result = kernels.kernel_log_density(x[order], x_new, 7 * weights[order], covariance="diagonal")
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    moved = kernels.kernel_log_density(
        unit * x + shift,
        unit * x_new + shift,
        weights,
        covariance="diagonal",
        unit=np.full(2, unit),
    )
    # A shift rounds differences of the data by its ratio to their scale.
    rounding = 1e-9 * (1 + abs(shift) / unit)
    np.testing.assert_allclose(moved + 2 * np.log(unit), expected, rtol=rounding, atol=rounding)


# --- cross-validated bandwidth ------------------------------------------------------------------


def left_out_score(x: np.ndarray, weights: np.ndarray, scale: np.ndarray) -> float:
    """Compute the mean log density of each value under the kernels at all other values."""
    score = 0.0
    for i in range(len(x)):
        others = (x != x[i]).any(axis=1)
        score += (
            weights[i] * log_density_by_loop(x[others], weights[others], scale, x[i : i + 1])[0]
        )
    return score


@pytest.mark.parametrize("tied", [False, True])
def test_bandwidth_has_the_largest_leave_one_out_likelihood(x64: None, tied: bool) -> None:
    x = draw_features(25, 2)
    if tied:
        x = np.concatenate([x, x[:10], x[:5]])
    weights = weights_of(len(x))
    scale = x.std(axis=0)
    grid = np.geomspace(0.1, 2, 9)
    scores = [left_out_score(x, weights, h * scale) for h in grid]
    result = kernels.cross_validated_bandwidth(*map(jnp.asarray, (x, weights, scale, grid)))
    assert 0 < np.argmax(scores) < 8
    assert float(result) == grid[np.argmax(scores)]


@pytest.mark.parametrize("shift", [1e3, -1e6])
def test_ties_far_from_zero_are_left_out(shift: float) -> None:
    # Multiples of 1/8 are not rounded by shifts.
    x = np.round(8 * np.repeat(draw_features(30, 2), 3, axis=0)) / 8
    expected = kernels.kernel_log_density(x, x, bandwidth="cv")
    result = kernels.kernel_log_density(x + shift, x + shift, bandwidth="cv")
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-8)
    once = kernels.kernel_log_density(x[::3], x, bandwidth="cv")
    # A threefold size changes Silverman's factor, and so the grid, by less than a fifth.
    assert abs(expected.mean() - once.mean()) < 0.5


@pytest.mark.parametrize("n", [1, 2, 6])
def test_equal_observations_take_silverman_s_bandwidth(n: int) -> None:
    x, x_new = np.full((n, 1), 2.5), np.linspace(0, 5, 9)[:, None]
    result = kernels.kernel_log_density(x, x_new, bandwidth="cv")
    np.testing.assert_allclose(result, kernels.kernel_log_density(x, x_new), rtol=1e-14)


# --- how it runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("bandwidth", ["cv", 0.5])
def test_nearby_sizes_and_other_numbers_share_a_compilation(
    compilations: Any, bandwidth: str | float
) -> None:
    def job(n: int, m: int, factor: float = 1.0) -> None:
        width = bandwidth if isinstance(bandwidth, str) else factor * bandwidth
        x, x_new = draw_features(n, 5), draw_features(m, 5)
        kernels.kernel_log_density(x, x_new, weights_of(n), bandwidth=width)  # type: ignore[arg-type]

    with compilations() as first:
        job(250, 120)
    assert len(first) == 1, first
    with compilations() as more:
        job(226, 113, 2.0)
        job(256, 128, 3.0)
    assert not more, more


# The peak reported by getrusage includes that of the parent process.
PROGRAM = """
import numpy as np
from bayescal.smoothing._kernels import kernel_log_density

x = np.random.default_rng(0).normal(size=(30_000, 1))
found = kernel_log_density(x, x)
assert found.shape == (30_000,)
assert np.isfinite(found).all()
with open("/proc/self/status") as status:
    (line,) = [line for line in status if line.startswith("VmHWM:")]
print(int(line.split()[1]) / 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_thirty_thousand_squared_stay_under_a_gigabyte() -> None:
    # All pairs would take 7 GB, and half of that in single precision.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1000
