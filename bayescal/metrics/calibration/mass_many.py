"""Sums over bins of equal mass for many vectors of weights at once."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.binning import SLACK, begins_tie, mass_borders, nearer_end, tie_precision
from bayescal._core.shapes import Bool, Float, Int, Shaped
from bayescal.data.order.equal_rows import is_first

#: Arrays by their axes.
PerBorder: TypeAlias = 'Float[np.ndarray, " draws *borders"]'
#: Rows of a bucket, unless more are tied.
_BUCKET = 32


class _Buckets(NamedTuple):
    """Predictions in ascending order with their outcomes, in buckets that never split ties."""

    predicted: Float[np.ndarray, " cases"]
    observed: Float[np.ndarray, " cases"]
    #: The row of the matrix of weights for each prediction.
    rows: Int[np.ndarray, " cases"]
    #: Where buckets begin, and the end of the last.
    start: Int[np.ndarray, " 1+buckets"]
    #: The number of the tie that each prediction belongs to.
    tie: Int[np.ndarray, " cases"]
    #: Whether all predictions of a bucket are tied.
    flat: Bool[np.ndarray, " buckets"]


def mass_sums_many(
    predicted: Float[np.ndarray, " cases"],
    observed: Float[np.ndarray, " cases"],
    rows: Int[np.ndarray, " cases"],
    weights: Shaped[np.ndarray, "rows draws"],
    bins: int,
    whole: bool,
    least: Float[np.ndarray, " draws"] | None = None,
) -> Float[np.ndarray, "draws 3 bins"]:
    """Compute sums over bins of equal mass, for many weights of each row.

    Predictions and outcomes are those of some ``rows`` of the weights. With the ``least`` mass of
    bins, equal predictions stay in one bin. Sums over buckets of neighboring rows find the bucket
    with a border, and only its rows are then searched.
    """
    from scipy.sparse import csr_array

    order = np.argsort(predicted)
    buckets = _make_buckets(predicted[order], observed[order], np.asarray(rows)[order])
    predicted, observed, rows, start, _, flat = buckets
    parts = (np.ones(len(rows)), predicted, observed)
    shape = len(flat), len(weights)
    totals = np.stack([csr_array((part, rows, start), shape=shape) @ weights for part in parts])
    before = np.zeros((3, len(flat) + 1, weights.shape[1]))
    np.cumsum(totals, axis=1, out=before[:, 1:])
    mass = np.ascontiguousarray(before[0].T)
    min_masses = None if least is None else least[:, None]
    borders = mass_borders(mass[:, -1:], bins, whole, np, min_masses)
    bucket = np.stack([np.searchsorted(m, cut) for m, cut in zip(mass, borders, strict=True)]) - 1
    bucket = np.clip(bucket, 0, len(flat) - 1)
    draw = np.arange(len(mass))[:, None]
    missing = borders - mass[draw, bucket]
    slack = None if least is None else SLACK / bins * mass[:, -1:]
    inside = _sums_in_buckets(buckets, weights, bucket, missing, slack)
    extent = totals[:, bucket, draw]
    fraction = _fraction_below(missing, extent[0], slack)
    inside = np.where(flat[bucket], fraction * extent, inside)
    at_border = before[:, bucket, draw] + inside
    if least is None:
        at_border[0] = borders
    return np.diff(np.swapaxes(at_border, 0, 1), axis=2)


def _fraction_below(missing: PerBorder, extent: PerBorder, slack: np.ndarray | None) -> PerBorder:
    """Compute the fraction of tied rows below a border; all or none of them, with slack."""
    if slack is not None:
        return nearer_end(missing, extent, slack)
    return np.clip(missing / np.where(extent > 0, extent, 1), 0, 1)


def _make_buckets(
    predicted: Float[np.ndarray, " cases"],
    observed: Float[np.ndarray, " cases"],
    rows: Int[np.ndarray, " cases"],
) -> _Buckets:
    """Make buckets of tied rows: many tied rows are one bucket, and others share buckets."""
    n = len(predicted)
    begins = begins_tie(predicted, tie_precision(predicted, np), np)
    tie = np.flatnonzero(begins)
    size = np.diff(np.append(tie, n))
    large = size > _BUCKET
    # A bucket begins with each large tie, after it, and when the previous bucket is full.
    new = large | np.append(True, large[:-1]) | is_first(tie // _BUCKET)
    start = tie[new]
    flat = np.add.reduceat(size, np.flatnonzero(new)) == size[new]
    return _Buckets(predicted, observed, rows, np.append(start, n), np.cumsum(begins), flat)


def _sums_in_buckets(
    buckets: _Buckets,
    weights: Shaped[np.ndarray, "rows draws"],
    bucket: Int[np.ndarray, "draws borders"],
    missing: Float[np.ndarray, "draws borders"],
    slack: Float[np.ndarray, "draws 1"] | None,
) -> Float[np.ndarray, "3 draws borders"]:
    """Sum weights, predictions and outcomes within buckets up to the borders."""
    predicted, observed, rows, start, tie, flat = buckets
    first, last, tied = start[bucket], start[bucket + 1], flat[bucket]
    width = int(np.where(tied, 1, last - first).max())
    position = first[..., None] + np.arange(width)
    # The caller divides buckets of tied rows in proportion.
    valid = (position < last[..., None]) & ~tied[..., None]
    position = np.minimum(position, len(rows) - 1)
    draw = np.arange(len(bucket))[:, None, None]
    row_weights = np.where(valid, weights[rows[position], draw], 0)
    value, outcome, number = predicted[position], observed[position], tie[position]
    zero = np.zeros((*bucket.shape, 1))
    mass = np.concatenate([zero, np.cumsum(row_weights, axis=2)], axis=2)
    # The row with the border, and all rows that are tied with it.
    row = np.clip((mass < missing[..., None]).sum(axis=2) - 1, 0, last - first - 1)[..., None]
    row = np.minimum(row, width - 1)
    equal = (number == np.take_along_axis(number, row, axis=2)) & valid
    low = np.argmax(equal, axis=2)[..., None]
    high = low + equal.sum(axis=2)[..., None]
    begin, end = (np.take_along_axis(mass, edge, axis=2) for edge in (low, high))
    fraction = _fraction_below(
        missing[..., None] - begin, end - begin, None if slack is None else slack[..., None]
    )
    parts = []
    for values in (np.ones_like(value), value, outcome):
        sums = np.concatenate([zero, np.cumsum(row_weights * values, axis=2)], axis=2)
        begin, end = (np.take_along_axis(sums, edge, axis=2) for edge in (low, high))
        parts.append((begin + fraction * (end - begin))[..., 0])
    return np.stack(parts)
