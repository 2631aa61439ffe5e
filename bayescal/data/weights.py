"""Weights as counts of cases."""

from __future__ import annotations

import numpy as np

__all__ = ["as_counts", "effective_size"]


def effective_size(weights: np.ndarray) -> float:
    """Return how many cases of equal weight weights are worth."""
    return float(weights.sum() ** 2 / (weights @ weights))


def as_counts(
    weights: np.ndarray, predicted: np.ndarray, happened: np.ndarray, size: float | None = None
) -> np.ndarray:
    """Return for how many cases each row (n,) stands, whole weights as they are.

    Others are worth so many cases as ``size`` says, by default the effective sample size, which
    are chosen evenly over rows in the order of label and prediction.
    """
    if (weights == np.floor(weights)).all():
        return weights
    size = max(1.0, np.rint(effective_size(weights) if size is None else size))
    order = np.lexsort((predicted, happened))
    # Each case stands in the middle of its share of the weights.
    sums = np.cumsum(weights[order])
    ends = np.floor(sums * (size / sums[-1]) + 0.5)
    counts = np.empty(len(order))
    counts[order] = np.diff(ends, prepend=0.0)
    return counts
