"""Checks that all metrics share: what comes from a user leaves as float64 NumPy arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayescal._core.checks import as_numpy, check_finite, check_labels

# Rounding that is forgiven: of one probability outside [0, 1], and of a row's sum.
_RANGE_TOLERANCE = 1e-6
_SUM_TOLERANCE = 1e-4


class Predictions(NamedTuple):
    """Checked predictions of n cases with positive weight.

    Attributes
    ----------
    probs : array of shape (n,), P(y = 1), or (n, k), one row per case; float64
    y : array of shape (n,), integers
    weights : array of shape (n,), positive, float64; ones where the user gave none
    eps : float
        Relative precision of the type in which the probabilities came.
    """

    probs: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    eps: float


def check_predictions(probs: Any, y: Any, weights: Any = None) -> Predictions:
    """Check probabilities, labels and weights; leave out the cases of weight zero."""
    probs, y = as_numpy(probs, "probs"), as_numpy(y, "y")
    if probs.ndim not in (1, 2):
        raise ValueError(f"probs must have shape (n,) or (n, k), got {probs.shape}")
    if probs.ndim == 2 and probs.shape[1] < 2:
        raise ValueError(
            f"probs must have a column for each class, got shape {probs.shape}; "
            "for two classes pass P(y = 1) with shape (n,)"
        )
    if len(probs) == 0:
        raise ValueError("probs must not be empty")
    if y.shape != probs.shape[:1]:
        raise ValueError(f"y must have shape ({len(probs)},) to match probs, got {y.shape}")
    eps = _precision(probs.dtype)
    weights = _check_weights(weights, len(probs))
    counted = weights > 0
    probs, y, weights = probs[counted].astype(np.float64), y[counted], weights[counted]
    classes = 2 if probs.ndim == 1 else probs.shape[1]
    return Predictions(
        _check_probs(probs, eps), check_labels(y, classes, "y"), weights.astype(np.float64), eps
    )


def check_eps(eps: Any, default: float) -> float:
    """Return the distance from 0 and 1 at which probabilities are clipped."""
    if eps is None:
        return default
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.number)):
        raise TypeError(f"eps must be a number, got {eps!r}")
    if not 0 <= eps < 0.5:
        raise ValueError(f"eps must lie in [0, 0.5), got {eps}")
    return float(eps)


def check_norm(norm: Any) -> float:
    """Return the order of a norm, at least one; infinity is the maximum."""
    if isinstance(norm, bool) or not isinstance(norm, (int, float, np.number)):
        raise TypeError(f"norm must be a number of at least 1 or math.inf, got {norm!r}")
    if math.isnan(norm) or norm < 1:
        raise ValueError(f"norm must be a number of at least 1 or math.inf, got {norm}")
    return float(norm)


def _precision(dtype: np.dtype) -> float:
    """Return the machine epsilon of floats, or of float64 for integers and booleans."""
    return float(jnp.finfo(dtype).eps) if jnp.issubdtype(dtype, jnp.floating) else 2.0**-52


def _check_weights(weights: Any, n: int) -> np.ndarray:
    if weights is None:
        return np.ones(n)
    array = as_numpy(weights, "weights").astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"weights must have shape ({n},) to match probs, got {array.shape}")
    check_finite(array, "weights")
    if (array < 0).any():
        raise ValueError(f"weights must not be negative, got {array.min():g}")
    if not (array > 0).any():
        raise ValueError("weights must not all be zero")
    return array


def _check_probs(probs: np.ndarray, eps: float) -> np.ndarray:
    check_finite(probs, "probs")
    low, high = probs.min(), probs.max()
    if low < -_RANGE_TOLERANCE or high > 1 + _RANGE_TOLERANCE:
        wrong = low if low < -_RANGE_TOLERANCE else high
        raise ValueError(f"probs must lie in [0, 1], got {wrong:g}; pass probabilities, not scores")
    if probs.ndim == 2:
        error = np.abs(probs.sum(axis=1) - 1)
        tolerance = max(_SUM_TOLERANCE, probs.shape[1] * eps)
        if error.max() > tolerance:
            row = int(error.argmax())
            total = probs[row].sum()
            raise ValueError(f"probs must have rows that sum to one, got a sum of {total:g}")
    return np.clip(probs, 0.0, 1.0)
