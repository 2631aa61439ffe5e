"""Sums over bins of equal mass for many vectors of weights at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.binning import mass_borders

#: Rows of a bucket, ties apart.
_BUCKET = 32


class _Buckets(NamedTuple):
    """Predictions in ascending order, outcomes and their rows, in m buckets that never part ties.

    ``start`` (m + 1,) is where buckets begin, and the end of the last; ``flat`` (m,) says whether
    all predictions of one are the same.
    """

    predicted: np.ndarray
    observed: np.ndarray
    rows: np.ndarray
    start: np.ndarray
    flat: np.ndarray


def mass_sums_many(
    predicted: np.ndarray,
    observed: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    bins: int,
    whole: bool,
) -> np.ndarray:
    """Return sums (b, 3, bins) over bins of equal mass, for weights (n, b) of all cases.

    Predictions and outcomes are those of some ``rows``. Sums over buckets of some neighbours find
    the bucket in which a border lies; single cases are looked at only there.
    """
    from scipy.sparse import csr_array

    order = np.argsort(predicted)
    buckets = _divide(predicted[order], observed[order], np.asarray(rows)[order])
    predicted, observed, rows, start, flat = buckets
    parts = (np.ones(len(rows)), predicted, observed)
    shape = len(flat), len(weights)
    totals = np.stack([csr_array((part, rows, start), shape=shape) @ weights for part in parts])
    before = np.zeros((3, len(buckets.flat) + 1, weights.shape[1]))
    np.cumsum(totals, axis=1, out=before[:, 1:])
    mass = np.ascontiguousarray(before[0].T)
    borders = np.stack([mass_borders(total, bins, whole, np) for total in mass[:, -1]])
    place = np.stack([np.searchsorted(m, cut) for m, cut in zip(mass, borders, strict=True)]) - 1
    place = np.clip(place, 0, len(buckets.flat) - 1)
    replicate = np.arange(len(mass))[:, None]
    need = borders - mass[replicate, place]
    inside = _inside(buckets, weights, place, need)
    extent = totals[:, place, replicate]
    share = np.clip(need / np.where(extent[0] > 0, extent[0], 1), 0, 1)
    inside = np.where(buckets.flat[place], share * extent[1:], inside)
    at_border = before[1:, place, replicate] + inside
    return np.diff(np.stack([borders, *at_border], axis=1), axis=2)


def _divide(predicted: np.ndarray, observed: np.ndarray, rows: np.ndarray) -> _Buckets:
    """Return buckets of whole ties: many ties are a bucket alone, few are put together."""
    n = len(predicted)
    tie = np.flatnonzero(np.append(True, predicted[1:] != predicted[:-1]))
    size = np.diff(np.append(tie, n))
    large = size > _BUCKET
    # A bucket begins with each large tie, after it, and where so many rows are full.
    new = large | np.append(True, large[:-1]) | np.append(True, np.diff(tie // _BUCKET) > 0)
    start = tie[new]
    flat = np.add.reduceat(size, np.flatnonzero(new)) == size[new]
    return _Buckets(predicted, observed, rows, np.append(start, n), flat)


def _inside(
    buckets: _Buckets, weights: np.ndarray, place: np.ndarray, need: np.ndarray
) -> np.ndarray:
    """Return sums (2, b, borders) of predictions and outcomes up to a mass within a bucket."""
    predicted, observed, rows, start, flat = buckets
    first, last, many = start[place], start[place + 1], flat[place]
    width = int(np.where(many, 1, last - first).max())
    position = first[..., None] + np.arange(width)
    # A bucket of many ties is left to its sums.
    valid = (position < last[..., None]) & ~many[..., None]
    position = np.minimum(position, len(rows) - 1)
    replicate = np.arange(len(place))[:, None, None]
    own = np.where(valid, weights[rows[position], replicate], 0)
    value, outcome = predicted[position], observed[position]
    zero = np.zeros((*place.shape, 1))
    mass = np.concatenate([zero, np.cumsum(own, axis=2)], axis=2)
    # The row in which the border lies; with it, all that predict the same.
    row = np.clip((mass < need[..., None]).sum(axis=2) - 1, 0, last - first - 1)[..., None]
    row = np.minimum(row, width - 1)
    same = (value == np.take_along_axis(value, row, axis=2)) & valid
    low = np.argmax(same, axis=2)[..., None]
    high = low + same.sum(axis=2)[..., None]
    begin, end = (np.take_along_axis(mass, edge, axis=2) for edge in (low, high))
    share = np.clip((need[..., None] - begin) / np.where(end > begin, end - begin, 1), 0, 1)
    found = []
    for values in (value, outcome):
        sums = np.concatenate([zero, np.cumsum(own * values, axis=2)], axis=2)
        begin, end = (np.take_along_axis(sums, edge, axis=2) for edge in (low, high))
        found.append((begin + share * (end - begin))[..., 0])
    return np.stack(found)
