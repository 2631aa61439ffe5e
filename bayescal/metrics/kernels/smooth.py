"""The calibration error of residuals smoothed by a kernel as wide as the error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Literal, TypeAlias

import numpy as np

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.shapes import Float
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_positive
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.calibration.ece import SINGLE, find_events, resolve_kind
from bayescal.metrics.kernels.fourier import (
    GRID,
    gaussian,
    integral,
    smooth,
    split_nodes,
    transform,
)
from bayescal.metrics.sums import ManySums, Piece, SumMetric, compute

#: Arrays by their axes.
PerSet: TypeAlias = 'Float[np.ndarray, " sets"]'
Scalar: TypeAlias = 'Float[Array, ""]'

#: Cells of the grid on which the widths of replicates are computed first.
_COARSE = 1 << 11
_TOLERANCE = 1e-12
_STEPS = 60


@ignoring_underflow
def smooth_ece(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    kind: Literal["binary", "confidence"] | None = None,
    bandwidth: float | None = None,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the smooth calibration error, from residuals smoothed by a Gaussian kernel.

    .. math:: \int_0^1 \Big| \frac{\sum_i w_i (p_i - y_i) K_\sigma(t, p_i)}{\sum_i w_i} \Big| dt

    where :math:`K_\sigma` is the Gaussian kernel, reflected at 0 and 1. By default its standard
    deviation :math:`\sigma` equals the integral. The integral decreases as the kernel widens, so
    there is exactly one such :math:`\sigma`.

    Rows are split between nodes of a grid with steps of 1 / 16384. This changes the value v by at
    most about 5e-10 / v; a value below 1e-4 is only known to be below 1e-4. Time O(n), plus 10
    milliseconds.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), or Blocks
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for two
        classes and "confidence" for more.
    bandwidth : float, optional
        Standard deviation of the kernel, positive; by default the value of the error.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or for unknown kinds or bandwidths that are not positive.

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
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    return compute(make_smooth(checked.columns, kind=kind, bandwidth=bandwidth), checked)


def make_smooth(
    columns: int | None, *, kind: str | None = None, bandwidth: float | None = None
) -> SmoothError:
    """Check options, and make the metric for probabilities with this many columns."""
    kind, _ = resolve_kind(kind, None, columns, SINGLE)
    return SmoothError(kind, None if bandwidth is None else check_positive(bandwidth, "bandwidth"))


@dataclass(frozen=True)
class SmoothError(SumMetric):
    """The smooth calibration error, of residuals by node and the sum of weights."""

    kind: str
    bandwidth: float | None = None
    rows = 2

    @property
    def cells(self) -> int:
        return GRID + 1

    def width(self, columns: int) -> int:
        return columns + 4

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        events = find_events(data, self.kind, 1, xp)
        residual = events.predicted - events.happened.astype(events.predicted.dtype)
        node, weight = split_nodes(events.predicted, xp)
        return Piece(node, weight * residual[:, None]), Piece(None, None)

    def value(self, sums: Float[Array, "2 nodes"], xp: ModuleType) -> Scalar:
        if xp is np:
            return self.values(np.asarray(sums)[None], _STEPS)[0]
        spectrum = transform(sums[0] / sums[1, 0], xp)

        def error(width: Scalar | float) -> Scalar:
            return integral(xp.abs(smooth(spectrum * gaussian(width, xp), xp)), xp)

        if self.bandwidth is not None:
            return error(self.bandwidth)
        width = jax.lax.stop_gradient(_fixed_point_jax(error, spectrum.dtype))
        value, slope = jax.jvp(error, (width,), (jnp.ones_like(width),))
        # Newton's step only changes the derivative, to that of the fixed point.
        return width + (value - width) / (1 - jax.lax.stop_gradient(slope))

    def calibrated(self, sums: ManySums) -> ManySums:
        return sums * np.array([[0.0], [1.0]])

    def values(self, sums: Float[np.ndarray, "sets 2 nodes"], steps: int = 1) -> PerSet:
        spectrum = transform(sums[:, 0] / sums[:, 1, :1], np)
        if self.bandwidth is not None:
            return _errors(spectrum, np.full(len(sums), self.bandwidth))
        # Widths from few frequencies, and steps of Newton's method with all of them.
        coarse = spectrum[:, : _COARSE + 1]
        start = _fixed_points(lambda width: _errors(coarse, width), len(coarse), 1e-9)
        shifted = start * (1 + 1e-4)
        slope = (_errors(coarse, shifted) - _errors(coarse, start)) / np.where(
            start > 0, shifted - start, 1
        )
        width = start
        for _ in range(steps):
            excess = _errors(spectrum, width) - width
            width = width + excess / (1 - slope)
            if (np.abs(excess) < _TOLERANCE).all():
                break
        for i in np.flatnonzero(start < 4 / _COARSE):
            alone = spectrum[i : i + 1]
            width[i] = _fixed_points(partial(_errors, alone), 1, _TOLERANCE)[0]
        return width


def _errors(spectra: Float[np.ndarray, "sets frequencies"], width: PerSet) -> PerSet:
    """Compute the smooth errors from coefficients and widths."""
    frequency = np.pi * np.arange(spectra.shape[1])
    # Coefficients beyond these vanish.
    used = int(np.searchsorted(frequency, 9 / max(width.min(), 1e-9))) + 1
    damped = np.zeros_like(spectra)
    factors = np.exp(-((frequency[:used] * width[:, None]) ** 2) / 2)
    damped[:, :used] = spectra[:, :used] * factors
    return integral(np.abs(smooth(damped, np)), np)


def _fixed_points(errors: Callable[[PerSet], PerSet], count: int, tolerance: float) -> PerSet:
    """Find widths in [0, 1] that equal their errors, by the Illinois rule."""
    low, high = np.zeros(count), np.ones(count)
    above, below = errors(low), errors(high) - 1
    side, width = np.zeros(count), low
    for _ in range(_STEPS):
        gap = below - above
        width = np.where(gap < 0, (low * below - high * above) / np.where(gap < 0, gap, 1), 0)
        excess = errors(width) - width
        if ((np.abs(excess) < tolerance) | (high - low < tolerance)).all():
            break
        up = excess > 0
        below = np.where(up, np.where(side > 0, below / 2, below), excess)
        above = np.where(up, excess, np.where(side < 0, above / 2, above))
        low, high = np.where(up, width, low), np.where(up, high, width)
        side = np.where(up, 1, -1)
    return width


def _fixed_point_jax(
    error: Callable[[Float[jax.Array, ""]], Scalar], dtype: np.dtype
) -> Float[jax.Array, ""]:
    """Find the width that equals its error by bisection, which JAX can trace."""

    def halve(_: jax.Array, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) / 2
        above = error(middle) > middle
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    steps = math.ceil(-math.log2(_TOLERANCE))
    bounds = jax.lax.fori_loop(0, steps, halve, (jnp.zeros((), dtype), jnp.ones((), dtype)))
    return (bounds[0] + bounds[1]) / 2
