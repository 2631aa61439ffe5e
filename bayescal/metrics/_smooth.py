"""Calibration errors from kernels instead of bins, on a fine grid by Fourier transforms.

Cases are split between the two nodes of the grid beside them, in proportion: so both errors are
functions of sums over cases. Kernels are reflected at 0 and 1 again and again, so that none of
their mass is lost; on an interval that is continued evenly and periodically, that multiplies
Fourier coefficients by the kernel's characteristic function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.checks import check_choice
from bayescal.metrics._events import find_events, resolve_kind
from bayescal.metrics._inputs import Predictions, check_positive, check_predictions
from bayescal.metrics._sums import Piece, SumMetric, evaluate, size_pieces, sizes

__all__ = ["kde_ece", "smooth_ece"]

#: Cells of the grid; there is one node more.
_GRID = 1 << 14
#: The least standard deviation of a kernel of a density estimate, in cells.
_NARROWEST = 4
_TOLERANCE = 1e-12
_STEPS = 60


def smooth_ece(
    probs: Any,
    y: Any,
    *,
    kind: Literal["binary", "confidence"] | None = None,
    bandwidth: float | None = None,
    weights: Any = None,
) -> float:
    r"""Return the smooth calibration error: that of residuals smoothed by a Gaussian kernel.

    .. math:: \int_0^1 \Big| \frac{\sum_i w_i (p_i - y_i) K_\sigma(t, p_i)}{\sum_i w_i} \Big| dt

    where :math:`K_\sigma` is the Gaussian kernel, reflected at 0 and 1. By default its standard
    deviation :math:`\sigma` is the value of the integral, which falls as the kernel widens: so
    there is one such :math:`\sigma`, and nothing to choose.

    The cases are split between nodes of a grid with steps of 1 / 16384. That changes the value v by
    at most about 5e-10 / v; a value below 1e-4 is only known to be so. Time O(n), besides 10
    milliseconds.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for shape
        (n,) and "confidence" for shape (n, k).
    bandwidth : float, optional
        Standard deviation of the kernel, positive; by default the value of the error.
    weights : array of shape (n,), optional
        Non-negative case weights; only their ratios matter.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        As :func:`log_loss`, and for unknown kinds or bandwidths that are not positive.

    References
    ----------
    J. Błasiok and P. Nakkiran (2023), Smooth ECE: principled reliability diagrams via kernel
    smoothing.

    Examples
    --------
    Predictions near 0.1 and 0.9 where the frequencies are 0.3 and 0.7:

    >>> probs, y = np.repeat([0.1, 0.9], 10), [1] * 3 + [0] * 7 + [1] * 7 + [0] * 3
    >>> smooth_ece(probs, y)
    0.19216...
    """
    checked = check_predictions(probs, y, weights)
    columns = None if checked.probs.ndim == 1 else checked.probs.shape[1]
    return evaluate(make_smooth(columns, kind=kind, bandwidth=bandwidth), checked)


def kde_ece(
    probs: Any,
    y: Any,
    *,
    kind: Literal["binary", "confidence"] | None = None,
    kernel: Literal["triweight", "gaussian"] = "triweight",
    bandwidth: float | None = None,
    norm: int = 1,
    weights: Any = None,
) -> float:
    r"""Return the calibration error from kernel density estimates.

    .. math:: \Big( \int_0^1 |z - \hat\pi(z)|^q \hat f(z)\,dz \Big)^{1/q}, \qquad
        \hat f(z) = \frac{\sum_i w_i K_h(z, p_i)}{\sum_i w_i}, \qquad
        \hat\pi(z) = \frac{\sum_i w_i y_i K_h(z, p_i)}{\sum_i w_i K_h(z, p_i)}

    with the kernel reflected at 0 and 1, and q the ``norm``. Its standard deviation is by default
    :math:`h = 1.06\,s\,n^{-1/5}`, where s is the standard deviation of the predictions. The
    triweight kernel, proportional to :math:`(1 - u^2)^3`, ends at 3 h.

    The cases are split between nodes of a grid with steps of 1 / 16384; bandwidths are at least
    four steps. As the kernel has a width, the error is not zero where all predictions are 0 or 1
    and right: :math:`z - \hat\pi(z)` is not, near the ends.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for shape
        (n,) and "confidence" for shape (n, k).
    kernel : {"triweight", "gaussian"}
        Shape of the kernel.
    bandwidth : float, optional
        Standard deviation of the kernel, positive; by default the rule above.
    norm : {1, 2}
        Order of the norm.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole weights are counts; for others n in the rule is
        :math:`(\sum w)^2 / \sum w^2`.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        As :func:`log_loss`, and for unknown options or bandwidths that are not positive.

    References
    ----------
    J. Zhang, B. Kailkhura and T. Y.-J. Han (2020), Mix-n-Match: ensemble and compositional methods
    for uncertainty calibration in deep learning.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.random(1000)
    >>> y = (rng.random(1000) < probs**2).astype(int)
    >>> kde_ece(probs, y)  # the integral of z - z**2 is 1/6
    0.1496...
    """
    checked = check_predictions(probs, y, weights)
    columns = None if checked.probs.ndim == 1 else checked.probs.shape[1]
    metric = make_kde(columns, kind=kind, kernel=kernel, bandwidth=bandwidth, norm=norm)
    return evaluate(metric, checked)


def make_smooth(columns: int | None, *, kind: Any = None, bandwidth: Any = None) -> SmoothError:
    """Check options, and return the metric for probabilities with so many columns."""
    kind = _check_kind(kind, columns)
    return SmoothError(kind, None if bandwidth is None else check_positive(bandwidth, "bandwidth"))


def make_kde(
    columns: int | None,
    *,
    kind: Any = None,
    kernel: Any = "triweight",
    bandwidth: Any = None,
    norm: Any = 1,
) -> DensityError:
    """Check options, and return the metric for probabilities with so many columns."""
    kind = _check_kind(kind, columns)
    check_choice(kernel, "kernel", ("triweight", "gaussian"))
    check_choice(norm, "norm", (1, 2))
    width = None if bandwidth is None else check_positive(bandwidth, "bandwidth")
    return DensityError(kind, kernel, width, int(norm))


def _check_kind(kind: Any, columns: int | None) -> str:
    if kind is not None:
        check_choice(kind, "kind", ("binary", "confidence"))
    return resolve_kind(kind, None, columns)[0]


@dataclass(frozen=True)
class SmoothError(SumMetric):
    """The smooth calibration error, of residuals by node and the sum of weights."""

    kind: str
    bandwidth: float | None = None

    @property
    def cells(self) -> int:
        return _GRID + 1

    @property
    def rows(self) -> int:
        return 2

    def width(self, columns: int) -> int:
        return columns + 4

    def pieces(self, data: Predictions, xp: Any) -> tuple[Piece, ...]:
        events = find_events(data, self.kind, 1, xp)
        residual = events.predicted - events.happened.astype(events.predicted.dtype)
        node, share = _split(events.predicted, xp)
        return Piece(node, share * residual[:, None]), Piece(None, None)

    def value(self, sums: Any, xp: Any) -> Any:
        spectrum = _transform(sums[0] / sums[1, 0], xp)

        def error(width: Any) -> Any:
            return _integral(xp.abs(_smooth(spectrum, _gaussian(width, xp), xp)), xp)

        if self.bandwidth is not None:
            return error(self.bandwidth)
        if xp is np:
            return _fixed_point(error)
        width = jax.lax.stop_gradient(_fixed_point_jax(error, spectrum.real.dtype))
        value, slope = jax.jvp(error, (width,), (jnp.ones_like(width),))
        # Newton's step changes nothing but the derivative, which is that of the fixed point.
        return width + (value - width) / (1 - jax.lax.stop_gradient(slope))


@dataclass(frozen=True)
class DensityError(SumMetric):
    """The error from density estimates: mass and outcomes by node, moments, and sizes."""

    kind: str
    kernel: str = "triweight"
    bandwidth: float | None = None
    norm: int = 1

    @property
    def cells(self) -> int:
        return _GRID + 1

    @property
    def rows(self) -> int:
        return 7

    def width(self, columns: int) -> int:
        return columns + 6

    def pieces(self, data: Predictions, xp: Any) -> tuple[Piece, ...]:
        events = find_events(data, self.kind, 1, xp)
        node, share = _split(events.predicted, xp)
        happened = events.happened.astype(events.predicted.dtype)
        # Around one half squares of deviations keep their digits.
        centred = events.predicted - 0.5
        return (
            Piece(node, share),
            Piece(node, share * happened[:, None]),
            Piece(None, None),
            Piece(None, centred),
            Piece(None, centred**2),
            *size_pieces(None, data.weights),
        )

    def value(self, sums: Any, xp: Any) -> Any:
        mass = sums[2, 0]
        width = self.bandwidth
        if width is None:
            variance = xp.maximum(sums[4, 0] / mass - (sums[3, 0] / mass) ** 2, 0)
            size = sizes(mass, sums[5, 0], sums[6, 0], xp)
            width = 1.06 * xp.sqrt(variance) * size**-0.2
        width = xp.maximum(width, _NARROWEST / _GRID)
        factors = (_triweight if self.kernel == "triweight" else _gaussian)(width, xp)
        density, happened = (
            xp.maximum(_smooth(_transform(row / mass, xp), factors, xp), 0) for row in sums[:2]
        )
        nodes = xp.arange(_GRID + 1).astype(sums.dtype) / _GRID
        gap = xp.abs(nodes * density - happened)
        if self.norm == 1:
            return _integral(gap, xp)
        filled = density > 1e-12
        return xp.sqrt(_integral(xp.where(filled, gap**2 / xp.where(filled, density, 1), 0), xp))


def _split(predicted: Any, xp: Any) -> tuple[Any, Any]:
    """Return the two nodes (n, 2) beside each prediction, and the share of it at each."""
    place = predicted * _GRID
    integer = np.intp if xp is np else jnp.int32
    lower = xp.clip(place.astype(integer), 0, _GRID - 1)
    upper = place - lower.astype(place.dtype)
    return xp.stack([lower, lower + 1], axis=1), xp.stack([1 - upper, upper], axis=1)


def _transform(row: Any, xp: Any) -> Any:
    """Return the Fourier coefficients of what stands at nodes, continued evenly."""
    # An end and its mirror image are one node.
    return xp.fft.rfft(xp.concatenate([2 * row[:1], row[1:-1], 2 * row[-1:], row[-2:0:-1]]))


def _smooth(spectrum: Any, factors: Any, xp: Any) -> Any:
    """Return the density at the nodes."""
    # Coefficients of what is even are real.
    smoothed = (spectrum.real * factors).astype(spectrum.dtype)
    return xp.fft.irfft(smoothed, 2 * _GRID)[: _GRID + 1] * _GRID


def _integral(values: Any, xp: Any) -> Any:
    """Return the integral over [0, 1] by the trapezoidal rule."""
    return (values.sum() - (values[0] + values[-1]) / 2) / _GRID


def _gaussian(width: Any, xp: Any) -> Any:
    """Return the characteristic function of a Gaussian at multiples of pi."""
    frequency = xp.asarray(np.pi * np.arange(_GRID + 1), dtype=float)
    return xp.exp(-((frequency * width) ** 2) / 2)


def _triweight(width: Any, xp: Any) -> Any:
    """Return that of a triweight kernel, 105 j_3(s) / s**3 with a spherical Bessel function."""
    frequency = xp.asarray(np.pi * np.arange(_GRID + 1), dtype=float)
    s = 3 * width * frequency
    near = s < 1
    small, large = xp.where(near, s, 0), xp.where(near, 1, s)
    series, term = xp.ones_like(small), xp.ones_like(small)
    for m in range(1, 10):
        term = term * (-(small**2)) / (2 * m * (2 * m + 7))
        series = series + term
    bessel = (15 / large**4 - 6 / large**2) * xp.sin(large)
    bessel = bessel - (15 / large**3 - 1 / large) * xp.cos(large)
    return xp.where(near, series, 105 * bessel / large**3)


def _fixed_point(error: Callable[[Any], Any]) -> float:
    """Return the width that equals its error, by the Illinois rule between 0 and 1."""
    low, high = 0.0, 1.0
    above, below = error(low), error(high) - 1.0
    if above <= 0:
        return 0.0
    side = 0
    for _ in range(_STEPS):
        width = (low * below - high * above) / (below - above)
        excess = error(width) - width
        if excess > 0:
            low, above = width, excess
            below = below / 2 if side > 0 else below
            side = 1
        else:
            high, below = width, excess
            above = above / 2 if side < 0 else above
            side = -1
        if abs(excess) < _TOLERANCE or high - low < _TOLERANCE:
            return float(width)
    return float((low + high) / 2)


def _fixed_point_jax(error: Callable[[Any], Any], dtype: Any) -> Any:
    """Return the same by halving."""

    def halve(_: Any, bounds: Any) -> Any:
        low, high = bounds
        middle = (low + high) / 2
        above = error(middle) > middle
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    steps = math.ceil(-math.log2(_TOLERANCE))
    bounds = jax.lax.fori_loop(0, steps, halve, (jnp.zeros((), dtype), jnp.ones((), dtype)))
    return (bounds[0] + bounds[1]) / 2
