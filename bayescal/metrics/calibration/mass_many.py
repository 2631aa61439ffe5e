"""Sums over bins of equal mass for many vectors of weights at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.binning import SLACK, mass_borders, nearer_end
from bayescal._core.shapes import Bool, Float, Int, Shaped

#: Rows of a bucket, ties apart.
_BUCKET = 32


class _Buckets(NamedTuple):
    """Predictions in ascending order with their outcomes, in buckets that never part ties."""

    predicted: Float[np.ndarray, " cases"]
    observed: Float[np.ndarray, " cases"]
    #: The rows of weights that are theirs.
    rows: Int[np.ndarray, " cases"]
    #: Where buckets begin, and the end of the last.
    start: Int[np.ndarray, " 1+buckets"]
    #: Whether all predictions of a bucket are the same.
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
    """Return sums (b, 3, bins) over bins of equal mass, for weights (n, b) of all cases.

    With the ``least`` mass (b,) of bins, equal predictions stay in one bin.

    Predictions and outcomes are those of some ``rows``. Sums over buckets of some neighbors find
    the bucket in which a border lies; single cases are looked at only there.
    """
    from scipy.sparse import csr_array

    order = np.argsort(predicted)
    buckets = _divide(predicted[order], observed[order], np.asarray(rows)[order])
    predicted, observed, rows, start, flat = buckets
    parts = (np.ones(len(rows)), predicted, observed)
    shape = len(flat), len(weights)
    totals = np.stack([csr_array((part, rows, start), shape=shape) @ weights for part in parts])
    before = np.zeros((3, len(flat) + 1, weights.shape[1]))
    np.cumsum(totals, axis=1, out=before[:, 1:])
    mass = np.ascontiguousarray(before[0].T)
    smallest = None if least is None else least[:, None]
    borders = mass_borders(mass[:, -1:], bins, whole, np, smallest)
    place = np.stack([np.searchsorted(m, cut) for m, cut in zip(mass, borders, strict=True)]) - 1
    place = np.clip(place, 0, len(flat) - 1)
    replicate = np.arange(len(mass))[:, None]
    need = borders - mass[replicate, place]
    slack = None if least is None else SLACK / bins * mass[:, -1:]
    inside = _inside(buckets, weights, place, need, slack)
    extent = totals[:, place, replicate]
    share = _share(need, extent[0], slack)
    inside = np.where(flat[place], share * extent, inside)
    at_border = before[:, place, replicate] + inside
    if least is None:
        at_border[0] = borders
    return np.diff(np.swapaxes(at_border, 0, 1), axis=2)


def _share(
    need: Float[np.ndarray, " draws *borders"],
    extent: Float[np.ndarray, " draws *borders"],
    slack: Float[np.ndarray, " draws *ones"] | None,
) -> Float[np.ndarray, " draws *borders"]:
    """Return which share of ties with so much mass lies below borders; all or none, with slack."""
    if slack is not None:
        return nearer_end(need, extent, slack)
    return np.clip(need / np.where(extent > 0, extent, 1), 0, 1)


def _divide(
    predicted: Float[np.ndarray, " cases"],
    observed: Float[np.ndarray, " cases"],
    rows: Int[np.ndarray, " cases"],
) -> _Buckets:
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
    buckets: _Buckets,
    weights: Shaped[np.ndarray, "rows draws"],
    place: Int[np.ndarray, "draws borders"],
    need: Float[np.ndarray, "draws borders"],
    slack: Float[np.ndarray, "draws 1"] | None,
) -> Float[np.ndarray, "3 draws borders"]:
    """Return sums (3, b, borders) of weights, predictions and outcomes up to a border."""
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
    share = _share(
        need[..., None] - begin, end - begin, None if slack is None else slack[..., None]
    )
    found = []
    for values in (np.ones_like(value), value, outcome):
        sums = np.concatenate([zero, np.cumsum(own * values, axis=2)], axis=2)
        begin, end = (np.take_along_axis(sums, edge, axis=2) for edge in (low, high))
        found.append((begin + share * (end - begin))[..., 0])
    return np.stack(found)
