"""Interpolation between nodes: exact on polynomials, order six, and a valid error estimate."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from bayescal.inference.engine.interpolate import (
    center_and_scale,
    interpolate,
    interpolation_error,
    left_out_error,
    make_grid,
)

# Use fixed lengths, so that eager operations compile once.
POINTS = 256
INTERVALS = (128, 512)
EPS = float(np.finfo(float).eps)
# Magnification of rounding by powers up to 5**5 of a polynomial through values at 0, ..., 5.
_POWERS = np.vander(np.arange(6.0), increasing=True)
MAGNIFICATION = float((np.abs(_POWERS[-1:]) @ np.abs(np.linalg.inv(_POWERS))).sum())

Curve = Callable[[np.ndarray], np.ndarray]

SMOOTH: dict[str, Curve] = {
    "line": lambda z: 2.5 * z - 1,
    "parabola": lambda z: 0.1 * z**2 - 3 * z + 1,
    "bend": lambda z: 4 * np.tanh(z) + z,
    "soft step": lambda z: np.logaddexp(0, 3 * z) - np.logaddexp(0, -2 * z),
    "wave": lambda z: 3 * np.sin(z),
    "tails of a Student density": lambda z: 3 * (np.log1p((z - 1) ** 2) - np.log1p((z + 1) ** 2)),
    "bump": lambda z: np.exp(-0.5 * (z / 0.3) ** 2),
}
ROUGH: dict[str, Curve] = {
    "sharp bend": lambda z: 4 * np.tanh(40 * z),
    "fast wave": lambda z: 3 * np.sin(30 * z),
    "kink": np.abs,
    "step": lambda z: np.sign(z - 0.1),
}
KINDS = ("plain", "outliers", "huge outlier", "far away", "two groups", "ties")


def make_points(kind: str) -> tuple[np.ndarray, float]:
    """Return points, and the origin of the curves among them."""
    rng = np.random.default_rng(6)
    z = rng.normal(size=POINTS)
    if kind == "outliers":
        z[:5] = [-1e3, 80, 1e4, -40, 25]
    elif kind == "huge outlier":
        z[-1] = 1e30
    elif kind == "far away":
        return z + 1e4, 1e4
    elif kind == "two groups":
        z = 0.1 * z + np.where(rng.random(POINTS) < 0.5, -3, 3)
    elif kind == "ties":
        z[: POINTS * 3 // 4] = 0.5
        z[-1] = 1e4
    return z, 0.0


class Interpolated:
    """A curve interpolated at points: its values, the exact values and the effect of rounding."""

    def __init__(self, curve: Curve, z: np.ndarray, intervals: int, terms: float = 0.0) -> None:
        bulk = center_and_scale(z)
        grid, nodes = make_grid(jnp.asarray(z), jnp.asarray(bulk), intervals)
        self.nodes = np.asarray(nodes)
        values = curve(self.nodes)
        self.found = np.asarray(interpolate(grid, jnp.asarray(values), jnp.asarray(z)))
        self.truth = curve(z)
        self.miss, self.log_miss = (float(v) for v in interpolation_error(jnp.asarray(values)))
        # The position between nodes is known to eps times their number, and less well far from
        # zero. The polynomial's powers magnify the rounding of the values and of their terms.
        jumps = intervals * np.abs(np.diff(values)).max() * (1 + abs(bulk[0]) / bulk[1])
        self.rounding = EPS * (MAGNIFICATION * max(terms, np.abs(values).max()) + 10 * jumps)

    @property
    def accepted(self) -> bool:
        """Whether predictions would use the interpolant instead of evaluating every point."""
        return self.miss <= 1e-6 and self.log_miss <= 1e-3

    @property
    def error(self) -> float:
        expit = scipy.special.expit
        return float(np.abs(expit(self.found) - expit(self.truth)).max())

    @property
    def log_error(self) -> float:
        return float(np.abs(self.found - self.truth).max())


# --- the grid -----------------------------------------------------------------------------------


def test_center_and_scale_of_a_normal_sample() -> None:
    rng = np.random.default_rng(0)
    z = 3 + 2 * rng.normal(size=100_000)
    center, scale = center_and_scale(z)
    # Median and MAD of at most 4,096 sampled values have standard errors below 2.6 / 60.
    assert center == pytest.approx(3, abs=5 * 2.6 / 60)
    assert scale == pytest.approx(2, abs=5 * 2.6 / 60)


def test_center_and_scale_by_hand() -> None:
    # Median 3; distances 2, 1, 1, 97 without the tie.
    center, scale = center_and_scale(np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 100.0]], np.float32))
    assert (center, scale) == (3.0, 1.4826 * 1.5)
    np.testing.assert_array_equal(center_and_scale(np.full(7, -2)), [-2, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intervals", INTERVALS)
def test_grid_covers_the_points(x64: None, kind: str, intervals: int) -> None:
    z, _ = make_points(kind)
    center, scale = bulk = center_and_scale(z)
    _, nodes = make_grid(jnp.asarray(z), jnp.asarray(bulk), intervals)
    t = np.arcsinh((z - center) / scale)
    expected = center + scale * np.sinh(np.linspace(t.min(), t.max(), intervals + 1))
    # sinh magnifies the rounding of t by a factor of t, here at most 71.
    np.testing.assert_allclose(nodes, expected, rtol=71 * 4 * EPS, atol=10 * EPS * np.abs(center))
    assert np.all(np.diff(nodes) > 0)


@pytest.mark.parametrize("kind", KINDS)
def test_most_nodes_lie_among_most_points(x64: None, kind: str) -> None:
    z, _ = make_points(kind)
    _, nodes = make_grid(jnp.asarray(z), jnp.asarray(center_and_scale(z)), 512)
    low, high = np.quantile(z, [0.05, 0.95])
    inside = (np.asarray(nodes) >= low) & (np.asarray(nodes) <= high)
    # A point at 1e30 is at t = 70, in units where most points are within about 4.
    assert inside.sum() >= 16


# --- the polynomial -----------------------------------------------------------------------------


@pytest.mark.parametrize("intervals", INTERVALS)
def test_polynomials_of_degree_five_are_exact(x64: None, intervals: int) -> None:
    z, _ = make_points("plain")
    center, scale = center_and_scale(z)
    ends = np.arcsinh((z - center) / scale)
    rng = np.random.default_rng(2)
    for _ in range(5):
        coefficients = rng.normal(size=6)

        def curve(z0: np.ndarray, c: np.ndarray = coefficients) -> np.ndarray:
            t = (np.arcsinh((z0 - center) / scale) - ends.min()) / np.ptp(ends)
            return np.polynomial.polynomial.polyval(t, c)

        result = Interpolated(curve, z, intervals)
        assert result.log_error <= result.rounding


def test_polynomials_of_degree_six_are_not_exact(x64: None) -> None:
    z, _ = make_points("plain")
    center, scale = center_and_scale(z)
    # Few nodes show this best.
    sixth = Interpolated(lambda z0: np.arcsinh((z0 - center) / scale) ** 6, z, 32)
    assert sixth.log_error > sixth.rounding


def test_nodes_get_their_own_values(x64: None) -> None:
    z, _ = make_points("outliers")
    grid, nodes = make_grid(jnp.asarray(z), jnp.asarray(center_and_scale(z)), 128)
    values = np.random.default_rng(4).normal(size=129)
    actual = interpolate(grid, jnp.asarray(values), nodes)
    # Random values have slopes of a few hundred over the range of t, about 20.
    np.testing.assert_allclose(actual, values, rtol=0, atol=128 * 20 * 10 * EPS)


def test_constant_points(x64: None) -> None:
    result = Interpolated(lambda z: 2 * z - 1, np.full(POINTS, 3.25), 128)
    assert result.accepted
    np.testing.assert_allclose(result.found, 5.5, rtol=1e-12)


# --- its error ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intervals", INTERVALS)
def test_error_is_below_its_bound_where_it_is_accepted(
    x64: None, kind: str, intervals: int
) -> None:
    z, origin = make_points(kind)
    accepted = set()
    for name, curve in (SMOOTH | ROUGH).items():
        result = Interpolated(lambda z0, c=curve: c(z0 - origin), z, intervals)
        if result.accepted:
            accepted.add(name)
            assert result.error <= result.miss + result.rounding, name
            assert result.log_error <= result.log_miss + result.rounding, name
    if intervals == 512 and kind in ("plain", "far away", "two groups"):
        assert accepted == set(SMOOTH)
    if intervals == 512 and kind in ("outliers", "ties"):
        assert {"line", "bend", "tails of a Student density"} <= accepted


def neville(nodes: np.ndarray, values: np.ndarray, at: float) -> float:
    """Evaluate the polynomial through the values with Neville's recursion."""
    table = list(values)
    for width in range(1, len(nodes)):
        for i in range(len(nodes) - width):
            left, right = nodes[i], nodes[i + width]
            table[i] = ((at - right) * table[i] + (left - at) * table[i + 1]) / (left - right)
    return table[0]


def test_left_out_error_by_another_algorithm(x64: None) -> None:
    values = np.cumsum(np.random.default_rng(7).normal(size=33))
    kept = np.arange(0, 33, 2)
    worst, log_worst = 0.0, 0.0
    for node in range(1, 33, 2):
        start = min(max(node // 2 - 2, 0), len(kept) - 6)
        use = kept[start : start + 6]
        guess = neville(use, values[use], node)
        gap = abs(scipy.special.expit(guess) - scipy.special.expit(values[node]))
        worst, log_worst = max(worst, gap), max(log_worst, abs(guess - values[node]))
    miss, log_miss = left_out_error(jnp.asarray(values))
    assert float(miss) == pytest.approx(worst, rel=1e-9)
    assert float(log_miss) == pytest.approx(log_worst, rel=1e-9)


@pytest.mark.parametrize("node", [0, 41, 128])
def test_values_that_are_not_finite_are_never_accepted(x64: None, node: int) -> None:
    for value in (np.nan, np.inf, -np.inf):
        values = np.linspace(-1, 1, 129)
        values[node] = value
        _, log_miss = interpolation_error(jnp.asarray(values))
        assert not float(log_miss) <= 1e-3


# Averages over a posterior look like log odds of two Gaussian mixtures.
MIXTURES = st.lists(
    st.tuples(st.floats(-3, 3), st.floats(0.3, 3), st.floats(0.05, 1)), min_size=1, max_size=4
)


@pytest.mark.slow
@settings(max_examples=50)
@given(MIXTURES, MIXTURES, st.integers(0, 2**31), st.sampled_from([0.0, 30.0, 1e3, 1e9]))
def test_bound_holds_on_log_odds_of_mixtures(
    zero: list, one: list, seed: int, outlier: float
) -> None:
    def log_density(parts: list, z: np.ndarray) -> np.ndarray:
        mean, deviation, weight = np.array(parts).T
        logs = -0.5 * ((z[:, None] - mean) / deviation) ** 2 - np.log(deviation) + np.log(weight)
        return scipy.special.logsumexp(logs, axis=1)

    z = np.random.default_rng(seed).normal(size=POINTS)
    z[0] += outlier
    with jax.enable_x64(True):
        terms = max(np.abs(log_density(parts, z)).max() for parts in (zero, one))
        result = Interpolated(
            lambda z0: log_density(one, z0) - log_density(zero, z0), z, 128, terms
        )
    if result.accepted:
        assert result.error <= result.miss + result.rounding
        assert result.log_error <= result.log_miss + result.rounding
