"""Checks that all metrics share: what comes from a user leaves as float64 NumPy arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import ArrayLike, accelerated
from bayescal._core.checks import (
    SUM_TOLERANCE,
    as_numpy,
    check_finite,
    check_labels,
    check_real,
    check_row_sums,
    check_weights,
    column_names,
    in_order,
    precision,
)
from bayescal._core.precision import float64

__all__ = [
    "EPS",
    "Predictions",
    "check_anywhere",
    "check_eps",
    "check_many_labels",
    "check_norm",
    "check_positive",
    "check_predictions",
    "check_truth",
]

#: Clipping distance of probabilities of any type: a copy in another costs the same.
EPS = 2.0**-52
# Rounding that is forgiven of one probability outside [0, 1].
_RANGE_TOLERANCE = 1e-6


class Predictions(NamedTuple):
    """Checked predictions of n cases with positive weight."""

    #: P(y = 1), (n,), or one row per case, (n, k); float64.
    probs: Any
    #: Integers (n,), or (n, l) for many labels.
    y: Any
    #: Of float64, (n,); ones where the user gave none.
    weights: Any
    #: At which distance from 0 and 1 logarithms clip probabilities.
    eps: float

    def part(self, rows: slice) -> Predictions:
        """Return some of the cases."""
        return Predictions(self.probs[rows], self.y[rows], self.weights[rows], self.eps)

    @property
    def columns(self) -> int | None:
        """Number of columns, None where there is one probability for each case."""
        return None if self.probs.ndim == 1 else self.probs.shape[1]

    @property
    def whole(self) -> bool:
        """Whether weights are whole numbers that can be counted, hence counts."""
        total = float(self.weights.sum())
        return total < 2**53 and bool((self.weights == np.floor(self.weights)).all())


def check_predictions(
    probs: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None
) -> Predictions:
    """Check probabilities, labels and weights; leave out the cases of weight zero.

    Columns of a data frame that have the classes' codes as names may stand in any order.
    """
    names = column_names(probs)
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
    eps = precision(probs.dtype)
    classes = 2 if probs.ndim == 1 else probs.shape[1]
    probs = in_order(probs, names, range(classes))
    probs, y, weights = _counted(probs, y, weights)
    return Predictions(_check_probs(probs, eps), check_labels(y, classes, "y"), weights, EPS)


def check_anywhere(probs: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None) -> Predictions:
    """Do as :func:`check_predictions`, but leave probabilities on an accelerator where they are.

    Then predictions are JAX's arrays in float64, with those of weight zero; what is wrong is said
    as on the host.
    """
    there: Any = accelerated(probs)
    if there is None or there.ndim not in (1, 2) or 1 in there.shape[1:] or not there.size:
        return check_predictions(probs, y, weights)
    with float64():
        found = there.astype(float)
        good = jnp.all((found >= 0) & (found <= 1))
        if found.ndim == 2:
            most = max(SUM_TOLERANCE, found.shape[1] * precision(there.dtype))
            good &= jnp.all(jnp.abs(found.sum(axis=1) - 1.0) <= most)
        if not good or np.shape(y) != found.shape[:1]:
            return check_predictions(np.asarray(there), y, weights)
        labels = check_labels(as_numpy(y, "y"), 2 if found.ndim == 1 else found.shape[1], "y")
        own = check_weights(weights, len(labels), "weights", match="probs")
        return Predictions(found, jnp.asarray(labels), jnp.asarray(own), EPS)


def check_many_labels(
    probs: ArrayLike, y: ArrayLike, weights: ArrayLike | None = None
) -> Predictions:
    """Check probabilities (n, l) and labels (n, l) that do not exclude each other, and weights.

    Columns of two data frames are matched by their names, if these are equal.
    """
    names, labels = column_names(probs), column_names(y)
    probs, y = as_numpy(probs, "probs"), as_numpy(y, "y")
    if probs.ndim != 2:
        raise ValueError(f"probs must have shape (n, labels), got {probs.shape}")
    if probs.size == 0:
        raise ValueError("probs must not be empty")
    if y.shape != probs.shape:
        raise ValueError(f"y must have shape {probs.shape} to match probs, got {y.shape}")
    if labels is not None:
        probs = in_order(probs, names, labels)
    probs, y, weights = _counted(probs, y, weights)
    return Predictions(_check_range(probs), check_labels(y, 2, "y"), weights, EPS)


def check_truth(truth: ArrayLike, probs: np.ndarray, weights: ArrayLike | None) -> np.ndarray:
    """Check probabilities that are compared with ``probs``; weights of zero leave rows out."""
    truth = as_numpy(truth, "true_probs")
    if weights is not None and truth.shape[:1] == np.shape(weights):
        truth = truth[as_numpy(weights, "weights") > 0]
    if truth.shape != probs.shape:
        raise ValueError(f"true_probs must have shape {probs.shape}, got {truth.shape}")
    return _check_probs(truth.astype(np.float64), precision(truth.dtype), "true_probs")


def _counted(
    probs: np.ndarray, y: np.ndarray, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check weights and leave out the cases of weight zero; copy nothing that need not be."""
    weights = check_weights(weights, len(probs), "weights", match="probs")
    if not weights.all():
        counted = weights > 0
        probs, y, weights = probs[counted], y[counted], weights[counted]
    return probs.astype(np.float64, copy=False), y, weights


def check_eps(eps: float | None, default: float) -> float:
    """Return the distance from 0 and 1 at which probabilities are clipped."""
    if eps is None:
        return default
    check_real(eps, "eps")
    if not 0 <= eps < 0.5:
        raise ValueError(f"eps must lie in [0, 0.5), got {eps}")
    return float(eps)


def check_norm(norm: float) -> float:
    """Return the order of a norm, at least one; infinity is the maximum."""
    wanted = "a number of at least 1 or math.inf"
    check_real(norm, "norm", wanted)
    if math.isnan(norm) or norm < 1:
        raise ValueError(f"norm must be {wanted}, got {norm}")
    return float(norm)


def _check_range(probs: np.ndarray, name: str = "probs") -> np.ndarray:
    low, high = probs.min(), probs.max()
    # NaN is neither below nor above: it comes out of both.
    if not (np.isfinite(low) and np.isfinite(high)):
        check_finite(probs, name)
    if low < -_RANGE_TOLERANCE or high > 1 + _RANGE_TOLERANCE:
        wrong = low if low < -_RANGE_TOLERANCE else high
        raise ValueError(
            f"{name} must lie in [0, 1], got {wrong:g}; pass probabilities, not scores"
        )
    return probs if low >= 0 and high <= 1 else np.clip(probs, 0.0, 1.0)


def _check_probs(probs: np.ndarray, eps: float, name: str = "probs") -> np.ndarray:
    clipped = _check_range(probs, name)
    if probs.ndim == 2:
        check_row_sums(probs, name, eps=eps)
    return clipped


def check_positive(value: float, name: str) -> float:
    """Return a positive, finite number."""
    check_real(value, name, "a positive number")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive, got {value}")
    return float(value)
