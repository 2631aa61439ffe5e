"""Padding to common sizes, so that inputs of different lengths share a compilation."""

from __future__ import annotations

import numpy as np


def padded_length(n: int, smallest: int = 16) -> int:
    """Return the smallest of 16, 20, 24, 28, 32, 40, ... that is at least ``n`` and ``smallest``.

    There are four sizes per doubling: at most a quarter is wasted, and similar sizes are equal.
    """
    n = max(n, smallest, 1)
    step = max(1, 1 << max(0, (n - 1).bit_length() - 3))
    return -(-n // step) * step


def pad_axis(array: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Repeat the last entry of ``array`` along ``axis`` until it has ``length`` entries."""
    missing = length - array.shape[axis]
    if missing == 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths, mode="edge")
