"""Cases on a fine grid, smoothed by Fourier transforms.

Cases are split between the two nodes of the grid beside them, in proportion: so what is smoothed
are sums over cases. Kernels are reflected at 0 and 1 again and again, so that none of their mass is
lost; on an interval that is continued evenly and periodically, that multiplies Fourier coefficients
by the kernel's characteristic function.
"""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

import numpy as np

from bayescal._core.arrays import AnyArray, Array
from bayescal._core.lazy import jnp
from bayescal._core.shapes import Float, Int

A = TypeVar("A", bound=Array)
#: Cells of the grid; there is one node more.
GRID = 1 << 14


def split_nodes(
    predicted: Float[A, " rows"], xp: ModuleType
) -> tuple[Int[A, "rows 2"], Float[A, "rows 2"]]:
    """Return the two nodes beside each prediction, and the share of it at each."""
    place = predicted * GRID
    integer = np.intp if xp is np else jnp.int32
    lower = xp.clip(place.astype(integer), 0, GRID - 1)
    upper = place - lower.astype(place.dtype)
    return xp.stack([lower, lower + 1], axis=1), xp.stack([1 - upper, upper], axis=1)


def transform(rows: Float[Array, "*rows nodes"], xp: ModuleType) -> Float[AnyArray, "*rows nodes"]:
    """Return the real Fourier coefficients of what stands at nodes, continued evenly.

    With jax.numpy ``rows`` is a single one.
    """
    if xp is np:
        from scipy.fft import dct

        # An end and its mirror image are one node.
        ends = np.zeros_like(rows)
        ends[..., [0, -1]] = rows[..., [0, -1]]
        return np.asarray(dct(rows + ends, type=1, workers=-1))
    mirrored = xp.concatenate([2 * rows[:1], rows[1:-1], 2 * rows[-1:], rows[-2:0:-1]])
    return xp.fft.rfft(mirrored).real


def smooth(spectra: Float[Array, "*rows nodes"], xp: ModuleType) -> Float[AnyArray, "*rows nodes"]:
    """Return densities from Fourier coefficients."""
    if xp is np:
        from scipy.fft import dct

        return np.asarray(dct(spectra, type=1, workers=-1)) / 2
    return xp.fft.irfft(spectra, 2 * GRID)[: GRID + 1] * GRID


def integral(values: Float[Array, "*rows nodes"], xp: ModuleType) -> Float[AnyArray, "*rows"]:
    """Return the integral over [0, 1] by the trapezoidal rule."""
    ends = values[..., 0] + values[..., -1]
    return (values.sum(axis=-1) - ends / 2) / (values.shape[-1] - 1)


def gaussian(width: Float[Array, ""] | float, xp: ModuleType) -> Float[AnyArray, " nodes"]:
    """Return the characteristic function of a Gaussian at multiples of pi."""
    frequency = xp.asarray(np.pi * np.arange(GRID + 1), dtype=float)
    return xp.exp(-((frequency * width) ** 2) / 2)
