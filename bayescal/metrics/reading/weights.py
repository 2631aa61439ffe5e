"""Weights of cases: checked, and left out where they are zero or say nothing."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import check_weights, check_weights_of


def counted(
    probs: np.ndarray, y: np.ndarray, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check weights and leave out the cases of weight zero; copy nothing that need not be."""
    if weights is None:
        return probs.astype(np.float64, copy=False), y, ones(len(probs))
    return _weighted(probs, y, check_weights(weights, len(probs), "weights", match="probs"))


def counted_of_block(
    probs: np.ndarray, y: np.ndarray, weights: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Do the same with weights as they are: others know what all of them are."""
    if weights is None:
        return counted(probs, y, None)
    return _weighted(probs, y, check_weights_of(weights, len(probs), "weights", match="probs"))


def ones(n: int) -> np.ndarray:
    """Return weights (n,) of one, which take no memory and can't be written to."""
    return np.broadcast_to(1.0, n)


def lightened(weights: np.ndarray) -> np.ndarray:
    """Return weights as they are, or as :func:`ones` if they are such."""
    return ones(len(weights)) if (weights == 1).all() else weights


def are_ones(weights: np.ndarray) -> bool:
    """Return whether weights are those, so that no product with them is needed."""
    return weights.strides == (0,) and bool((weights[:1] == 1).all())


def _weighted(
    probs: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not weights.all():
        used = weights > 0
        probs, y, weights = probs[used], y[used], weights[used]
    return probs.astype(np.float64, copy=False), y, lightened(weights)
