"""Sums over bins of equal mass: only rows in cells with a border of bins are sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.binning import (
    ONE_HALF,
    SINGLE,
    TIE,
    begins_tie,
    cut_cells,
    equal_mass_sums,
    is_single,
    mass_borders,
    relative_cell,
    tie_precision,
)
from bayescal.data.blocks.predictions import PredictionBlocks
from bayescal.data.order.cells import covered
from bayescal.data.order.ranking import Ranking
from bayescal.data.predictions import Predictions
from bayescal.data.rows import Rows, Sums
from bayescal.data.weights import are_no_counts

#: Yields predictions, outcomes and weights of each group, with separate bins.
Split: TypeAlias = Callable[[Predictions, ModuleType], Iterable[tuple[np.ndarray, ...]]]
#: Up to this many rows, sorting all of them costs least.
_MAX_SORTED_ROWS = 20_000
#: Keys lose this many binary digits, which leaves 260,000 cells. Of more than this many groups each
#: has fewer cells.
_SHIFT, _GROUPS = 45, 16
#: Rows of blocks that are held one by one, and digits by which cells of more rows are divided.
_ROWS, _DIGITS = 1 << 21, 12
#: Scores that decide what is tied with a score are within this many times the precision of it.
REACH = 3
#: If more cells are as near as that to a border, they are dense, and nothing is tied.
_MAX_NEAR_CELLS = 1 << 12
#: Up to this many cells, a table marks those that are looked at.
_MAX_TABLE_CELLS = 1 << 20


def mass_sums(
    predicted: np.ndarray,
    observed: np.ndarray,
    weights: np.ndarray,
    bins: int,
    whole: bool,
    least: float | None = None,
) -> np.ndarray:
    """Sum weights, and weights times predictions and outcomes, over bins of equal mass (3, bins).

    The arguments are those of :func:`bayescal._core.binning.equal_mass_sums`.
    """
    if len(predicted) <= _MAX_SORTED_ROWS:
        sums = equal_mass_sums(predicted, observed, weights, bins, whole, np, least)
        return np.asarray(sums)
    precision = tie_precision(predicted, np)
    ranking = Ranking(Rows(predicted, observed, weights), probabilities=True)
    while True:
        groups = ranking.groups
        held = _hold_borders(groups.weight, bins, whole, least)
        unsorted = groups.whole & ranking.mark_near(held, REACH * precision)
        if not unsorted.any():
            break
        ranking.refine(unsorted)
    sums = np.stack([groups.weight, ranking.score_sums(), groups.positive])
    begins = begins_tie(groups.lowest, precision, np)
    return np.asarray(cut_cells(sums, bins, whole, np, least, begins))


def _hold_borders(weight: np.ndarray, bins: int, whole: bool, least: float | None) -> np.ndarray:
    """Find which cells (m,), in ascending order, hold a border of bins."""
    mass = np.concatenate([[0.0], np.cumsum(weight)])
    borders = mass_borders(mass[-1], bins, whole, np, least)
    # Sums in another order differ in their last digits, so neighboring cells count as well.
    around = np.concatenate([borders * (1 - 1e-12), borders * (1 + 1e-12)])
    held = np.zeros(len(weight), bool)
    held[np.clip(np.searchsorted(mass, around) - 1, 0, len(weight) - 1)] = True
    return held


class GroupCells(NamedTuple):
    """Cells of one group that hold rows, in ascending order."""

    #: Keys (m,), as many digits as the cells tell apart.
    keys: np.ndarray
    #: Sums (4, m) of weights, weights times predictions and times outcomes, and rows.
    sums: np.ndarray

    def replaced(self, mask: np.ndarray, digits: int, finer: GroupCells) -> GroupCells:
        """Put finer cells, whose keys have more digits, for those that are marked (m,)."""
        keys = np.concatenate([self.keys[~mask] << digits, finer.keys])
        sums = np.concatenate([self.sums[:, ~mask], finer.sums], axis=1)
        order = np.argsort(keys, kind="stable")
        return GroupCells(keys[order], sums[:, order])


def mass_sums_of_blocks(
    split: Split,
    groups: int,
    bins: int,
    data: PredictionBlocks,
    least: Callable[[float], float | None],
) -> tuple[np.ndarray, float]:
    """Sum over bins of equal mass (3, groups * bins); also return the rows per unit of weight.

    ``least`` computes the least mass of bins from the latter. One pass counts rows in cells that
    are as fine beside 0 and 1 as between. Another looks at the rows of cells that hold a border, so
    that the sums are those of all rows at once. Cells with very many rows are divided first.
    """
    shift = first_shift(groups)
    counts = data.total(partial(count_cells, split, groups, shift))
    whole = bool(counts["fractions"] == 0)
    ratio = 1.0 if whole else float(counts["weight"] / counts["squares"])
    rule = bins, whole, least(ratio)
    precision = np.where(counts["double"] == 0, SINGLE, TIE)
    cells, begins = [], []
    for sums in counts["sums"].reshape(4, groups, -1).swapaxes(0, 1):
        used = np.flatnonzero(sums[3])
        cells.append(GroupCells(used, sums[:, used]))
    while shift:
        held = [_hold_borders(c.sums[0], *rule) if len(c.keys) else c.keys > 0 for c in cells]
        near = [
            cells_near(c.keys, mask, shift, REACH * eps)
            for c, mask, eps in zip(cells, held, precision, strict=True)
        ]
        rows = sum(int(c.sums[3, mask].sum()) for c, mask in zip(cells, held, strict=True))
        finer = 0 if rows <= _ROWS else max(0, shift - _DIGITS)
        inside = data.total(partial(look_inside, split, near, shift, finer), merge_keys)
        for g, part in enumerate(near):
            sums = GroupCells(*sum_by_key(inside[f"keys{g}"], inside[f"sums{g}"]))
            cells[g] = cells[g].replaced(part.marked, shift - finer, sums)
            if not finer:
                values = part.values(cells[g].keys, shift)
                values[np.isin(cells[g].keys >> shift, part.dense)] = np.nan
                begins.append(begins_tie(values, precision[g], np))
        shift = finer
    filled = ((c.sums[:3], first) for c, first in zip(cells, begins, strict=True) if len(c.keys))
    parts = [cut_cells(sums, *rule[:2], np, rule[2], first) for sums, first in filled]
    return np.concatenate(parts, axis=1), ratio


class NearCells(NamedTuple):
    """Cells of one group whose rows are looked at, because they may be tied with rows of others."""

    #: Which of the cells (m,) these are.
    marked: np.ndarray
    #: Their keys (c,).
    keys: np.ndarray
    #: First and last key (c,) of their rows that are too far away, or -1 and -2 if none is.
    first: np.ndarray
    last: np.ndarray
    #: Keys of cells so dense that none of their rows are tied.
    dense: np.ndarray

    def values(self, keys: np.ndarray, shift: int) -> np.ndarray:
        """Compute the probabilities (n,) with these keys, or NaN where rows are not looked at."""
        return np.where(np.isin(keys >> shift, self.keys), values_of(keys), np.nan)


def cells_near(keys: np.ndarray, held: np.ndarray, shift: int, reach: float) -> NearCells:
    """Find the cells (m,) that are ``held``, and those with scores within reach of them.

    Where there are too many of the latter, they are omitted. Rows that are too far away count as
    one, which is farther from the held cells than anything that decides what is tied in them.
    """
    lowest = values_of(keys << shift)
    end = np.minimum((keys + 1 << shift) - 1, 2 * ONE_HALF)
    highest = values_of(end)
    near, far = lowest[held] - reach, highest[held] + reach
    start, stop = np.searchsorted(highest, near), np.searchsorted(lowest, far, "right")
    dense = stop - start > _MAX_NEAR_CELLS
    marked = covered(start[~dense], stop[~dense], len(held)) | held
    # Other rows of these cells lie between those near the held cells below and above.
    above = np.searchsorted(np.flatnonzero(held), np.flatnonzero(marked))
    first = np.append(-1, relative_cell(np.minimum(far, 1), 0))[above] + 1
    last = np.append(relative_cell(np.maximum(near, 0), 0), 2 * ONE_HALF + 1)[above] - 1
    first, last = np.maximum(first, keys[marked] << shift), np.minimum(last, end[marked])
    none = first > last  # also for held cells
    first[none], last[none] = -1, -2
    return NearCells(marked, keys[marked], first, last, keys[held][dense])


def first_shift(groups: int) -> int:
    """Compute the digits that keys lose at first: more for many groups, which have fewer cells."""
    return _SHIFT + max(0, int(np.ceil(np.log2(groups / _GROUPS))))


def values_of(keys: np.ndarray) -> np.ndarray:
    """Compute the probabilities that have these keys."""
    distance = np.minimum(keys, 2 * ONE_HALF - keys).view(float)
    return np.where(keys < ONE_HALF, distance, 1 - distance)


def _addends(group: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    predicted, observed, weights = group
    return weights, weights * predicted, weights * observed, np.ones(len(weights))


def count_cells(split: Split, groups: int, shift: int, data: Predictions) -> Sums:
    """Sum the rows of each group by cell; also weights, their squares, and rows with fractions.

    ``double`` counts the rows of each group that single precision does not represent.
    """
    cells = (2 * ONE_HALF >> shift) + 1
    sums, double = np.zeros((4, groups, cells)), np.zeros(groups)
    for g, group in enumerate(split(data, np)):
        cell = relative_cell(group[0], 0) >> shift
        double[g] = len(cell) - np.count_nonzero(is_single(group[0]))
        for of_groups, addend in zip(sums, _addends(group), strict=True):
            of_groups[g] = np.bincount(cell, addend, cells)
    weights = data.weights
    return {
        "sums": sums,
        "double": double,
        "fractions": np.asarray(np.count_nonzero(are_no_counts(weights))),
        "weight": weights.sum(),
        "squares": weights @ weights,
    }


def look_inside(
    split: Split, cells: list[NearCells], shift: int, finer: int, data: Predictions
) -> Sums:
    """Sum the rows in some cells by finer keys, and those that are too far away by cell."""
    sums: Sums = {}
    for g, (group, part) in enumerate(zip(split(data, np), cells, strict=True)):
        keys = relative_cell(group[0], 0)
        inside = _among(part.keys, keys >> shift, (2 * ONE_HALF >> shift) + 1)
        addends = np.stack([addend[inside] for addend in _addends(group)])
        keys = keys[inside]
        if not finer:
            at = np.searchsorted(part.keys, keys >> shift)
            first = part.first[at]
            keys = np.where((keys >= first) & (keys <= part.last[at]), first, keys)
        sums[f"keys{g}"], sums[f"sums{g}"] = sum_by_key(keys >> finer, addends)
    return sums


def _among(keys: np.ndarray, cell: np.ndarray, cells: int) -> np.ndarray:
    """Find which cells (n,), of this many, are among the keys, which ascend."""
    if cells <= _MAX_TABLE_CELLS:
        marked = np.zeros(cells, bool)
        marked[keys] = True
        return marked[cell]
    if not len(keys):
        return np.zeros(len(cell), bool)
    return keys[np.minimum(np.searchsorted(keys, cell), len(keys) - 1)] == cell


def sum_by_key(keys: np.ndarray, addends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct keys in ascending order, and sum addends (4, n) by key."""
    distinct, index = np.unique(keys, return_inverse=True)
    return distinct, np.stack([np.bincount(index, addend, len(distinct)) for addend in addends])


def merge_keys(first: Sums, second: Sums) -> Sums:
    """Join sums by key; equal keys are merged only where there are many, as it takes long."""
    joined: Sums = {}
    for g in range(len(first) // 2):
        names = f"keys{g}", f"sums{g}"
        pair = [np.concatenate([first[name], second[name]], axis=-1) for name in names]
        joined[names[0]], joined[names[1]] = sum_by_key(*pair) if len(pair[0]) > 2 * _ROWS else pair
    return joined
