"""Averages over the nearest of many points: a search for the largest inner products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.arrays import matmul, namespace, take_in_rows
from bayescal._core.chunks import slices

#: Closenesses held at once: 32 MiB.
_ELEMENTS = 1 << 22
#: A threshold is first guessed from so many points, where the neighbors are few of all.
_SAMPLE = 4096
#: Closenesses that differ by less, relative to their scale, are ties: sums of products are rounded
#: differently in another order of classes, and where rows take another place in a block.
_TIE = 64 * float(np.finfo(np.float64).eps)
#: Sums of weights that miss a number of neighbors by less, relative to it, reach it.
_ENOUGH = 1e-9


class Index(NamedTuple):
    """Points to search: that one is nearest to q whose ``q . key + bias`` is largest.

    Keys are (k, m), biases and weights (m,) and values (m, v).
    """

    keys: Any
    bias: Any
    #: Sizes of products sum to so much at most; zero if all have the sign of the sum.
    scale: float
    weights: Any
    values: Any


class Candidates(NamedTuple):
    """The nearest points (b, c) of each query, nearest first; filled up with weight zero."""

    closeness: np.ndarray
    place: np.ndarray
    weights: np.ndarray
    #: Cumulative sums of the weights.
    total: np.ndarray


def neighbor_means(
    index: Index, queries: np.ndarray, numbers: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield means over neighbors (g, b, v) for one part of the queries (q, k) after another.

    Neighbors are the nearest points whose weights sum to the number: the last one counts in part,
    and those as far as the last one share that part in proportion to their weights. Numbers (g,)
    ascend; more than there is means all points. O(q m k) time, of which the search for neighbors
    is a small part; memory is a block of queries times points.
    """
    from scipy.sparse import csr_array

    m = len(index.weights)
    # However light the neighbors are, so many have the weight that is asked for.
    reached = np.cumsum(np.sort(index.weights))
    most = min(m, int(np.searchsorted(reached, numbers.max())) + 1)
    for part in slices(len(queries), max(1, _ELEMENTS // m)):
        closeness = queries[part] @ index.keys + index.bias
        candidates = _candidates(index, closeness, most)
        rows = len(closeness)
        means, sums, first, before = [], 0.0, 0, np.zeros((rows, 0))
        for number in numbers:
            shares = _shares(candidates, number, index.scale)
            # The nearest count as they did among fewer: all of their weight.
            added = shares[:, first:].copy()
            added[:, : before.shape[1] - first] -= before[:, first:]
            place = candidates.place[:, first : shares.shape[1]].reshape(-1)
            # Every row has as many entries, some of them zero.
            ends = np.arange(rows + 1) * added.shape[1]
            sums = sums + csr_array((added.reshape(-1), place, ends), (rows, m)) @ index.values
            means.append(sums / shares.sum(axis=1, keepdims=True))
            whole = (shares == candidates.weights[:, : shares.shape[1]]).all(axis=0)
            first, before = int(np.argmin(np.append(whole, False))), shares
        yield part, np.stack(means)


def sorted_means(index: Index, queries: Any, number: Any) -> Any:
    """Return the same means (q, v) for one number, with arrays of any library.

    All points are sorted, so that time is O(q m (k + log m)); memory is of queries times points.
    """
    xp, m, number = namespace(queries), index.weights.shape[0], float(number)
    closeness = matmul(queries, index.keys) + index.bias
    order = xp.argsort(-closeness, axis=1)
    near = take_in_rows(closeness, order)
    flat = xp.take(index.weights, xp.reshape(order, (-1,)), axis=0)
    total = xp.cumulative_sum(xp.reshape(flat, (-1, m)), axis=1)
    lacking = xp.astype(total < number * (1 - _ENOUGH), order.dtype)
    short = xp.clip(xp.sum(lacking, axis=1, keepdims=True), 0, m - 1)
    border = take_in_rows(near, xp.astype(short, order.dtype))
    tie = 64 * float(xp.finfo(near.dtype).eps) * (xp.abs(border) + index.scale)
    nearer, zero = closeness > border + tie, xp.zeros_like(closeness)
    inside = xp.where(nearer, index.weights, zero)
    ties = xp.where(~nearer & (closeness >= border - tie), index.weights, zero)
    left = number - xp.sum(inside, axis=1, keepdims=True)
    shares = inside + xp.clip(left / xp.sum(ties, axis=1, keepdims=True), 0.0, 1.0) * ties
    return matmul(shares, index.values) / xp.sum(shares, axis=1, keepdims=True)


def _candidates(index: Index, closeness: np.ndarray, most: int) -> Candidates:
    """Return the ``most`` nearest points of each query, or more, and all as far as the last."""
    queries, m = closeness.shape
    if 2 * most >= m:
        places = np.argsort(-closeness, axis=1)
        near, weights = np.take_along_axis(closeness, places, axis=1), index.weights[places]
        return Candidates(near, places, weights, np.cumsum(weights, axis=1))
    lowest = _thresholds(closeness, most)
    flat = np.flatnonzero(closeness >= lowest - _TIE * (np.abs(lowest) + index.scale))
    row, place = np.divmod(flat, m)
    count = np.bincount(row, minlength=queries)
    width = int(count.max())
    column = np.arange(len(flat)) - np.repeat(np.cumsum(count) - count, count)
    far = np.full((queries, width), np.inf)
    far[row, column] = -closeness.reshape(-1)[flat]
    places = np.zeros((queries, width), np.int32 if m < 1 << 31 else np.int64)
    places[row, column] = place
    order = np.argsort(far, axis=1)
    near = -np.take_along_axis(far, order, axis=1)
    places = np.take_along_axis(places, order, axis=1)
    weights = index.weights[places]
    weights[np.arange(width) >= count[:, None]] = 0
    return Candidates(near, places, weights, np.cumsum(weights, axis=1))


def _thresholds(closeness: np.ndarray, most: int) -> np.ndarray:
    """Return for each query (b, 1) a closeness that at least ``most`` points reach.

    Not many more do: points are in random order, and a quantile of the first ones, five standard
    errors to the safe side, is a bound that needs no look at the others, save to count them.
    """
    m = closeness.shape[1]
    rank = most * _SAMPLE / m
    rank = int(np.ceil(rank + 5 * np.sqrt(rank) + 5))
    if m < 4 * _SAMPLE or rank > _SAMPLE // 2:
        return np.partition(closeness, m - most, axis=1)[:, m - most, None]
    sample = np.partition(closeness[:, :_SAMPLE], _SAMPLE - rank, axis=1)
    found = sample[:, _SAMPLE - rank, None]
    short = np.count_nonzero(closeness >= found, axis=1) < most
    if short.any():
        found[short] = np.partition(closeness[short], m - most, axis=1)[:, m - most, None]
    return found


def _shares(candidates: Candidates, number: float, scale: float) -> np.ndarray:
    """Return the weights (b, w) with which the first candidates count among so many neighbors."""
    near, _, weights, total = candidates
    short = np.count_nonzero(total < number * (1 - _ENOUGH), axis=1)
    # Without enough of them, the last candidate is one of all points, or filling.
    border = near[np.arange(len(near)), np.minimum(short, near.shape[1] - 1)][:, None]
    tie = np.where(np.isfinite(border), _TIE * (np.abs(border) + scale), 0)
    width = int(np.count_nonzero(near >= border - tie, axis=1).max())
    near, weights = near[:, :width], weights[:, :width]
    nearer = near > border + tie
    inside = np.where(nearer, weights, 0)
    ties = np.where(nearer, 0, np.where(near >= border - tie, weights, 0))
    left = number - inside.sum(axis=1, keepdims=True)
    weight = ties.sum(axis=1, keepdims=True)
    part = np.divide(left, weight, out=np.zeros_like(left), where=weight > 0)
    return inside + np.clip(part, 0, 1) * ties
