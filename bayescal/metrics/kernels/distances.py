"""Residuals (outcomes minus probabilities), their lengths, and distances of all pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TypeAlias, TypeVar

import numpy as np

from bayescal._core.arrays import AnyArray, Array
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.execution.threads import threads
from bayescal._core.shapes import Float
from bayescal.data.predictions import Predictions, as_rows

#: Arrays by their axes.
Distances: TypeAlias = 'Float[np.ndarray, "block later"]'
Probs: TypeAlias = 'Float[np.ndarray, "rows classes"]'
PerRow: TypeAlias = 'Float[np.ndarray, " rows"]'

T = TypeVar("T")
A = TypeVar("A", bound=Array)
#: Pairs of a block, which fit into the processor's cache.
_BLOCK = 1 << 17
#: Rows up to which the distances of all pairs are sorted at once.
_MAX_SORTED_ROWS = 1000
_CELLS = 1 << 16
#: Median distance up to which most rows are equal but for rounding.
_NEAR = 1e-8


def residuals(data: Predictions, xp: ModuleType = np) -> Float[AnyArray, "rows classes"]:
    """Compute outcomes minus probabilities."""
    probs = as_rows(data.probs, xp)
    return (data.y[:, None] == xp.arange(probs.shape[1])).astype(probs.dtype) - probs


def lengths(
    difference: Float[A, "*pairs classes"], distance: str, xp: ModuleType
) -> Float[A, " *pairs"]:
    """Compute the lengths of differences."""
    if distance == "total_variation":
        return xp.abs(difference).sum(axis=-1) / 2
    squares = (difference**2).sum(axis=-1)
    return xp.where(squares > 0, xp.sqrt(xp.where(squares > 0, squares, 1)), 0)


def over_pairs(
    probs: Probs,
    distance: str,
    function: Callable[[int, int, Distances], T],
    pairs: int | None = None,
) -> Iterator[T]:
    """Apply a function to blocks of the distances of all pairs of rows, in several threads.

    Its arguments are the first row of a block, the row after its last, and the distances
    (last - first, n - first) of the block's rows to themselves and all later rows.
    """
    from scipy.spatial.distance import cdist

    name = "cityblock" if distance == "total_variation" else "euclidean"
    n, ends, pairs = len(probs), [0], pairs or _BLOCK
    while ends[-1] < n:
        ends.append(min(n, ends[-1] + max(pairs // (n - ends[-1]), 1)))

    def apply(first: int, last: int) -> T:
        gaps = cdist(probs[first:last], probs[first:], name)
        if distance == "total_variation":
            gaps /= 2
        return function(first, last, gaps)

    with single_threaded_blas(), threads() as map_fn:
        yield from map_fn(apply, ends[:-1], ends[1:])


def median_distance(probs: Probs, weights: PerRow, distance: str) -> float:
    """Compute the weighted median distance of all pairs, or their mean if it is below ``_NEAR``.

    With many pairs, a histogram finds the cell of the median, and a second one divides this cell.
    The error is below 1e-9, and no distances are kept.
    """
    if len(probs) <= _MAX_SORTED_ROWS:
        median = _small_median(probs, weights, distance)
    else:
        low, high = 0.0, 1.0 if distance == "total_variation" else np.sqrt(2)
        below, half = 0.0, weights.sum() ** 2 / 2
        for _ in range(2):
            counts = below + np.cumsum(_histogram(probs, weights, distance, low, high))
            cell = min(int(np.searchsorted(counts, half)), _CELLS - 1)
            below = counts[cell - 1] if cell else below
            step = (high - low) / _CELLS
            low, high = low + cell * step, low + (cell + 1) * step
        median = (low + high) / 2
    if median > _NEAR:
        return float(median)

    def add(first: int, last: int, gaps: Distances) -> float:
        row_weights = weights[first:last]
        return float(
            row_weights @ (2 * gaps @ weights[first:] - gaps[:, : last - first] @ row_weights)
        )

    mean = sum(over_pairs(probs, distance, add)) / weights.sum() ** 2
    return float(mean) if mean > 0 else 1.0


def _small_median(probs: Probs, weights: PerRow, distance: str) -> float:
    def flatten(
        first: int, last: int, gaps: Distances
    ) -> tuple[Float[np.ndarray, " pairs"], Float[np.ndarray, " pairs"]]:
        return gaps.ravel(), _pair_weights(weights, first, last).ravel()

    gap_blocks, weight_blocks = zip(*over_pairs(probs, distance, flatten), strict=True)
    gaps, masses = np.concatenate(gap_blocks), np.concatenate(weight_blocks)
    order = np.argsort(gaps)
    cumulative = np.cumsum(masses[order])
    half = cumulative[-1] / 2
    # Half of the mass may end between two distances.
    slack = 1e-12 * half
    lower = np.searchsorted(cumulative, half - slack)
    upper = min(np.searchsorted(cumulative, half + slack, side="right"), len(order) - 1)
    return float(gaps[order[lower]] + gaps[order[upper]]) / 2


def _histogram(
    probs: Probs, weights: PerRow, distance: str, low: float, high: float
) -> Float[np.ndarray, " cells"]:
    """Sum the weights of ordered pairs by cells of their distance in [low, high]."""
    scale = _CELLS / (high - low)
    unit = weights[0] ** 2 if (weights == weights[0]).all() else None

    def count(first: int, last: int, gaps: Distances) -> Float[np.ndarray, " cells"]:
        gaps -= low
        gaps *= scale
        np.clip(gaps, -1, _CELLS, out=gaps)
        cell = np.floor(gaps, out=gaps).astype(np.intp) + 1
        if unit is None:
            mass = _pair_weights(weights, first, last).ravel()
            return np.bincount(cell.ravel(), mass, minlength=_CELLS + 2)
        within = np.bincount(cell[:, : last - first].ravel(), minlength=_CELLS + 2)
        return unit * (2 * np.bincount(cell.ravel(), minlength=_CELLS + 2) - within)

    counts = sum(over_pairs(probs, distance, count, 4 * _BLOCK), np.zeros(_CELLS + 2))
    if high - low >= 1:
        # Rounding may take a distance past the ends of the whole range.
        counts[1] += counts[0]
        counts[-2] += counts[-1]
    return counts[1:-1]


def _pair_weights(weights: PerRow, first: int, last: int) -> Distances:
    """Compute weights of pairs: in both orders, or in one if both rows are in the block."""
    products = 2 * np.outer(weights[first:last], weights[first:])
    products[:, : last - first] /= 2
    return products
