"""Averages over the nearest of many points: a search for the largest inner products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, matmul, namespace, take_in_rows
from bayescal._core.execution.chunks import slices

#: Number of closenesses in memory at once: 32 MiB.
_ELEMENTS = 1 << 22
#: Number of points from which a threshold is guessed if neighbors are a small part of all points.
_SAMPLE = 4096
#: Relative difference below which closenesses are ties: rounding depends on the order of classes
#: and on the position of rows in a block.
_TIE = 64 * float(np.finfo(np.float64).eps)
#: Relative tolerance of sums of weights that reach a number of neighbors.
_WEIGHT_TOLERANCE = 1e-9


class Index(NamedTuple):
    """Points to search: the nearest one to q has the largest ``q . key + bias``.

    Keys are (k, m), biases and weights (m,) and values (m, v).
    """

    keys: np.ndarray
    bias: np.ndarray
    #: Bound of the sum of absolute products; zero if all products have the sign of their sum.
    scale: float
    weights: np.ndarray
    values: np.ndarray


class Candidates(NamedTuple):
    """The nearest points (b, c) of each query, nearest first, padded with weight zero."""

    closeness: np.ndarray
    point: np.ndarray
    weights: np.ndarray
    #: Cumulative sums of the weights.
    total: np.ndarray


def neighbor_means(
    index: Index, queries: np.ndarray, numbers: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield means over neighbors (g, b, v) for successive parts of the queries (q, k).

    Neighbors are the nearest points whose weights sum to the number. The last counts in part;
    equally distant points share that part. ``numbers`` (g,) ascend; a large number means all
    points.
    """
    from scipy.sparse import csr_array

    m = len(index.weights)
    # Even the lightest points reach the largest number with this many neighbors.
    cumulative = np.cumsum(np.sort(index.weights))
    count = min(m, int(np.searchsorted(cumulative, numbers.max())) + 1)
    for part in slices(len(queries), max(1, _ELEMENTS // m)):
        closeness = queries[part] @ index.keys + index.bias
        candidates = _candidates(index, closeness, count)
        rows = len(closeness)
        means, sums, first, previous = [], 0.0, 0, np.zeros((rows, 0))
        for number in numbers:
            weights = _neighbor_weights(candidates, number, index.scale)
            # The nearest points already count with all of their weight.
            change = weights[:, first:].copy()
            change[:, : previous.shape[1] - first] -= previous[:, first:]
            point = candidates.point[:, first : weights.shape[1]].reshape(-1)
            # All rows have equally many entries, some of which are zero.
            ends = np.arange(rows + 1) * change.shape[1]
            sums = sums + csr_array((change.reshape(-1), point, ends), (rows, m)) @ index.values
            means.append(sums / weights.sum(axis=1, keepdims=True))
            full = (weights == candidates.weights[:, : weights.shape[1]]).all(axis=0)
            first, previous = int(np.argmin(np.append(full, False))), weights
        yield part, np.stack(means)


def sorted_means(
    closeness: XArray, weights: XArray, values: XArray, number: AnyArray, scale: AnyArray
) -> XArray:
    """Compute means over neighbors (q, v) for one number, with arrays of any library.

    ``scale`` bounds products that were subtracted on the host; zero if there were none.
    """
    xp, m, number = namespace(closeness), weights.shape[0], float(number)
    order = xp.argsort(-closeness, axis=1)
    closest = take_in_rows(closeness, order)
    flat = xp.take(weights, xp.reshape(order, (-1,)), axis=0)
    total = xp.cumulative_sum(xp.reshape(flat, (-1, m)), axis=1)
    is_short = xp.astype(total < number * (1 - _WEIGHT_TOLERANCE), order.dtype)
    short = xp.clip(xp.sum(is_short, axis=1, keepdims=True), 0, m - 1)
    border = take_in_rows(closest, xp.astype(short, order.dtype))
    tie = 64 * float(xp.finfo(closest.dtype).eps) * xp.abs(border) + _TIE * scale
    nearer, zero = closeness > border + tie, xp.zeros_like(closeness)
    inside = xp.where(nearer, weights, zero)
    ties = xp.where(~nearer & (closeness >= border - tie), weights, zero)
    remaining = number - xp.sum(inside, axis=1, keepdims=True)
    used = inside + xp.clip(remaining / xp.sum(ties, axis=1, keepdims=True), 0.0, 1.0) * ties
    return matmul(used, values) / xp.sum(used, axis=1, keepdims=True)


def _candidates(index: Index, closeness: np.ndarray, most: int) -> Candidates:
    """Find at least ``most`` nearest points of each query, with all ties of the last one."""
    queries, m = closeness.shape
    if 2 * most >= m:
        points = np.argsort(-closeness, axis=1)
        closest, weights = np.take_along_axis(closeness, points, axis=1), index.weights[points]
        return Candidates(closest, points, weights, np.cumsum(weights, axis=1))
    lowest = _thresholds(closeness, most)
    flat = np.flatnonzero(closeness >= lowest - _TIE * (np.abs(lowest) + index.scale))
    row, point = np.divmod(flat, m)
    count = np.bincount(row, minlength=queries)
    width = int(count.max())
    column = np.arange(len(flat)) - np.repeat(np.cumsum(count) - count, count)
    distance = np.full((queries, width), np.inf)
    distance[row, column] = -closeness.reshape(-1)[flat]
    points = np.zeros((queries, width), np.int32 if m < 1 << 31 else np.int64)
    points[row, column] = point
    order = np.argsort(distance, axis=1)
    closest = -np.take_along_axis(distance, order, axis=1)
    points = np.take_along_axis(points, order, axis=1)
    weights = index.weights[points]
    weights[np.arange(width) >= count[:, None]] = 0
    return Candidates(closest, points, weights, np.cumsum(weights, axis=1))


def _thresholds(closeness: np.ndarray, most: int) -> np.ndarray:
    """Compute a closeness (b, 1) for each query that at least ``most``, but not many more, reach.

    Points are in random order, so a quantile of the first, with five standard errors, is a bound.
    """
    m = closeness.shape[1]
    rank = most * _SAMPLE / m
    rank = int(np.ceil(rank + 5 * np.sqrt(rank) + 5))
    if m < 4 * _SAMPLE or rank > _SAMPLE // 2:
        return np.partition(closeness, m - most, axis=1)[:, m - most, None]
    sample = np.partition(closeness[:, :_SAMPLE], _SAMPLE - rank, axis=1)
    threshold = sample[:, _SAMPLE - rank, None]
    short = np.count_nonzero(closeness >= threshold, axis=1) < most
    if short.any():
        threshold[short] = np.partition(closeness[short], m - most, axis=1)[:, m - most, None]
    return threshold


def _neighbor_weights(candidates: Candidates, number: float, scale: float) -> np.ndarray:
    """Compute the weights (b, w) of the first candidates for a number of neighbors."""
    closest, _, weights, total = candidates
    short = np.count_nonzero(total < number * (1 - _WEIGHT_TOLERANCE), axis=1)
    # If the total weight is too small, the last candidate is the border.
    border = closest[np.arange(len(closest)), np.minimum(short, closest.shape[1] - 1)][:, None]
    tie = np.where(np.isfinite(border), _TIE * (np.abs(border) + scale), 0)
    width = int(np.count_nonzero(closest >= border - tie, axis=1).max())
    closest, weights = closest[:, :width], weights[:, :width]
    nearer = closest > border + tie
    inside = np.where(nearer, weights, 0)
    ties = np.where(nearer, 0, np.where(closest >= border - tie, weights, 0))
    remaining = number - inside.sum(axis=1, keepdims=True)
    weight = ties.sum(axis=1, keepdims=True)
    part = np.divide(remaining, weight, out=np.zeros_like(remaining), where=weight > 0)
    return inside + np.clip(part, 0, 1) * ties
