"""Read weights of rows, and count the rows that they stand for."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayLike
from bayescal._core.numerics import effective_size
from bayescal.data.checks import as_numpy, check_finite

#: Larger numbers are all integers in double precision, so they are no counts.
_MAX_COUNT = 2.0**53
#: Bounds of the largest weight of a batch, within which squares of sums of weights keep all digits.
_BATCH_WEIGHTS = 1e-140, 1e140


def check_weights(
    weights: ArrayLike | None, n: int, name: str = "sample_weight", *, match: str = "y"
) -> np.ndarray:
    """Read weights (n,) of all rows in float64: ones if none are given, never all zero.

    Weights are multiplied by a power of two if the largest is too large for sums of its powers, or
    negligible beside any prior.
    """
    if weights is None:
        return np.ones(n)
    array = check_weights_of(weights, n, name, match=match)
    if not (array > 0).any():
        raise ValueError(f"{name} must not all be zero, got only zeros")
    power = power_of_weights(float(array.max()))
    array = np.ldexp(array, power) if power else array
    # Weights this small do not change any sum, but their squares must not vanish.
    least = np.ldexp(1.0, int(np.frexp(array.max())[1]) - 400)
    return np.where(array > 0, np.maximum(array, least), 0.0)


def check_batch_weights(weights: Array) -> None:
    """Raise if squares of weights (n,) of a batch vanish or overflow: batches have one scale."""
    (low, high), heaviest = _BATCH_WEIGHTS, float(weights.max())
    if not low <= heaviest <= high:
        raise ValueError(
            f"weights must have a maximum from {low:.0e} to {high:.0e} in each batch, got "
            f"{heaviest:g}; multiply the weights of all batches by one number"
        )


def check_weights_of(weights: ArrayLike, n: int, name: str, *, match: str = "y") -> np.ndarray:
    """Read weights (n,) of one block of rows in float64, without scaling them."""
    array = as_numpy(weights, name).astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},) to match {match}, got {array.shape}")
    check_finite(array, name)
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, got {array.min():g}")
    return array


def power_of_weights(heaviest: float) -> int:
    """Compute the power of two by which to multiply weights, from the largest of them."""
    exponent = int(np.frexp(heaviest)[1])
    return min(max(exponent, -40), 160) - exponent


def weighted_rows(
    probs: np.ndarray, y: np.ndarray, weights: ArrayLike | None, whole: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drop rows of weight zero; return float64 probabilities, labels and weights.

    ``whole`` tells whether these are all rows, not a block of them. Arrays are copied only if they
    have to be.
    """
    if weights is None:
        return probs.astype(np.float64, copy=False), y, ones(len(probs))
    check = check_weights if whole else check_weights_of
    checked = check(weights, len(probs), "weights", match="probs")
    if not checked.all():
        used = checked > 0
        probs, y, checked = probs[used], y[used], checked[used]
    return probs.astype(np.float64, copy=False), y, as_ones(checked)


def of_all_rows(values: np.ndarray, weights: np.ndarray, fill: float) -> np.ndarray:
    """Insert entries for the rows of weight zero that :func:`weighted_rows` has dropped."""
    rows = np.full((len(weights), *values.shape[1:]), fill, values.dtype)
    rows[weights > 0] = values
    return rows


def ones(n: int) -> np.ndarray:
    """Make read-only unit weights (n,) that take no memory."""
    return np.broadcast_to(1.0, n)


def as_ones(weights: np.ndarray) -> np.ndarray:
    """Replace weights that are all 1 by :func:`ones`."""
    return ones(len(weights)) if (weights == 1).all() else weights


def are_ones(weights: np.ndarray) -> bool:
    """Return whether weights come from :func:`ones`, so that no product with them is needed."""
    return weights.strides == (0,) and bool((weights[:1] == 1).all())


def are_counts(weights: Array, xp: ModuleType = np) -> AnyArray:
    """Return whether weights are integers small enough to be counted, hence counts."""
    return (weights.sum() < _MAX_COUNT) & (weights == xp.floor(weights)).all()


def are_no_counts(weights: Array) -> AnyArray:
    """Mark weights (n,) that are fractions, or too large for double precision to have any."""
    return (weights != weights.round()) | (weights >= _MAX_COUNT)


def as_counts(
    weights: np.ndarray, predicted: np.ndarray, happened: np.ndarray, size: float | None = None
) -> np.ndarray:
    """Count the rows that each row (n,) stands for; integer weights are counts already.

    Other weights are worth ``size`` rows in total, by default their effective sample size. These
    rows are spread evenly over all rows in the order of label and prediction.
    """
    if are_counts(weights):
        return weights
    if size is None:
        size = float(effective_size(weights.sum(), weights @ weights))
    size = max(1.0, np.rint(size))
    order = np.lexsort((predicted, happened))
    # Each counted row lies in the middle of its proportion of the weights.
    sums = np.cumsum(weights[order])
    ends = np.floor(sums * (size / sums[-1]) + 0.5)
    counts = np.empty(len(order))
    counts[order] = np.diff(ends, prepend=0.0)
    return counts
