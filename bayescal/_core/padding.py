"""Padding to shared sizes, so that inputs of different lengths use one compilation."""

from __future__ import annotations

import numpy as np


def padded_length(n: int, smallest: int = 16) -> int:
    """Return the smallest power of two that is at least ``n`` and ``smallest``."""
    return max(smallest, 1 << (max(n, 1) - 1).bit_length())


def pad_axis(array: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Repeat the last entry of ``array`` along ``axis`` until it has ``length`` entries."""
    missing = length - array.shape[axis]
    if missing == 0:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths, mode="edge")
