"""Checks that all kinds of smoothing share; they convert user input to NumPy arrays."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import as_numpy, check_finite, check_labels, check_real

Named = Literal["silverman", "scott", "cv"]
RULES = ("silverman", "scott", "cv")


def check_targets(y: ArrayLike, classes: int) -> np.ndarray:
    """Check the (n,) labels and convert them to integers in {0, ..., classes - 1}."""
    array = as_numpy(y, "y")
    if array.ndim != 1:
        raise ValueError(f"y must have shape (n,), got {array.shape}")
    if len(array) == 0:
        raise ValueError("y must not be empty, got no labels")
    return check_labels(array, classes, "y")


def check_smoothing(smoothing: float) -> float:
    """Check a smoothing factor and convert it to a float in [0, 1)."""
    check_real(smoothing, "smoothing")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must lie in [0, 1), got {smoothing:g}")
    return float(smoothing)


def check_offset(offset: float) -> float:
    """Check an offset and convert it to a finite, non-negative float."""
    check_real(offset, "offset")
    if not 0 <= offset < math.inf:
        raise ValueError(f"offset must be finite and not negative, got {offset:g}")
    return float(offset)


def check_bandwidth(bandwidth: Named | float) -> Named | float:
    """Check a bandwidth: the name of a rule, or a factor, which becomes a positive float."""
    wanted = "'silverman', 'scott', 'cv' or a positive number"
    if isinstance(bandwidth, str):
        if bandwidth not in RULES:
            raise ValueError(f"bandwidth must be {wanted}, got {bandwidth!r}")
        return bandwidth
    check_real(bandwidth, "bandwidth", wanted)
    if not 0 < bandwidth < math.inf:
        raise ValueError(f"bandwidth must be {wanted}, got {bandwidth:g}")
    return float(bandwidth)


def check_features(x: ArrayLike, n: int) -> np.ndarray:
    """Check features (n, d); return them in float32 if they are no wider, else float64."""
    array = as_numpy(x, "x")
    if array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise ValueError(f"x must have shape (n,) or (n, d), got {array.shape}")
    if len(array) != n:
        raise ValueError(f"x must have {n} rows to match y, got {len(array)}")
    check_finite(array, "x")
    return array.reshape(n, -1)
