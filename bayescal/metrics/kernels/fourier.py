"""Rows on a fine grid, smoothed by Fourier transforms.

Each row is divided between the two neighboring nodes of the grid in proportion, so that sums over
rows are smoothed. Kernels are reflected at 0 and 1, so that none of their mass is lost. On an
interval that is continued as an even, periodic function, this multiplies the Fourier coefficients
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
    """Find the two nodes beside each prediction, and the weight of each node."""
    position = predicted * GRID
    integer = np.intp if xp is np else jnp.int32
    lower = xp.clip(position.astype(integer), 0, GRID - 1)
    upper = position - lower.astype(position.dtype)
    return xp.stack([lower, lower + 1], axis=1), xp.stack([1 - upper, upper], axis=1)


def transform(rows: Float[Array, "*rows nodes"], xp: ModuleType) -> Float[AnyArray, "*rows nodes"]:
    """Compute the real Fourier coefficients of values at nodes, continued as an even function.

    With jax.numpy, ``rows`` is a single row.
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
    """Compute densities from Fourier coefficients."""
    if xp is np:
        from scipy.fft import dct

        return np.asarray(dct(spectra, type=1, workers=-1)) / 2
    return xp.fft.irfft(spectra, 2 * GRID)[: GRID + 1] * GRID


def integral(values: Float[Array, "*rows nodes"], xp: ModuleType) -> Float[AnyArray, "*rows"]:
    """Integrate over [0, 1] by the trapezoidal rule."""
    ends = values[..., 0] + values[..., -1]
    return (values.sum(axis=-1) - ends / 2) / (values.shape[-1] - 1)


def gaussian(width: Float[Array, ""] | float, xp: ModuleType) -> Float[AnyArray, " nodes"]:
    """Compute the characteristic function of a Gaussian at multiples of pi."""
    frequency = xp.asarray(np.pi * np.arange(GRID + 1), dtype=float)
    return xp.exp(-((frequency * width) ** 2) / 2)
