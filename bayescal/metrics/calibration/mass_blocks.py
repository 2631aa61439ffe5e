"""Sums over bins of equal mass of predictions that come in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.binning import cut_cells, mass_borders
from bayescal.data.blocks.predictions import PredictionBlocks
from bayescal.data.predictions import Predictions
from bayescal.data.rows import Sums

__all__ = ["mass_sums_of_blocks"]

#: Calls for groups of predictions, outcomes and weights.
Split: TypeAlias = Callable[[Predictions, Any], Iterable[tuple[np.ndarray, ...]]]
#: Keys are cut to this many binary digits less: then there are some 260,000. Of several groups,
#: cells of all together are as many as 16 times that.
_SHIFT, _GROUPS = 45, 16
_ONE_HALF = 0x3FE << 52
#: Rows that are looked at one by one, and digits by which keys are made finer where there are more.
_ROWS, _DIGITS = 1 << 21, 12
#: Cells up to which there is a table of those that matter.
_TABLE = 1 << 20


class _Items(NamedTuple):
    """Cells of one group in ascending order: keys (m,), and sums (4, m).

    Of weights, of these times predictions and times outcomes, and of rows.
    """

    keys: np.ndarray
    sums: np.ndarray


def mass_sums_of_blocks(
    split: Split,
    groups: int,
    bins: int,
    data: PredictionBlocks,
    least: Callable[[float], float | None],
) -> tuple[np.ndarray, float]:
    """Return sums (3, groups * bins), and the number of cases for a weight of one.

    Of this ``least`` makes the least mass of bins.

    A pass counts cases in cells that are fine beside 0 and 1 as between; another looks at the cells
    in which borders lie, so that the sums are those of all cases at once. If these cells hold very
    many cases, they are divided first.
    """
    shift = _SHIFT + max(0, int(np.ceil(np.log2(groups / _GROUPS))))
    found = data.total(partial(_count, split, groups, shift))
    whole = bool(found["fractions"] == 0)
    ratio = 1.0 if whole else float(found["weight"] / found["squares"])
    every = []
    for sums in found["sums"].reshape(4, groups, -1).swapaxes(0, 1):
        used = np.flatnonzero(sums[3])
        every.append(_Items(used, sums[:, used]))
    while shift:
        cut = [_cut(own, bins, whole, least(ratio)) for own in every]
        rows = sum(int(own.sums[3, place].sum()) for own, place in zip(every, cut, strict=True))
        finer = 0 if rows <= _ROWS else max(0, shift - _DIGITS)
        keys = [own.keys[place] for own, place in zip(every, cut, strict=True)]
        inside = data.total(partial(_look, split, keys, shift, finer), _merge)
        every = [
            _replace(
                own, place, shift - finer, _Items(*_gather(inside[f"keys{g}"], inside[f"sums{g}"]))
            )
            for g, (own, place) in enumerate(zip(every, cut, strict=True))
        ]
        shift = finer
    filled = (own.sums[:3] for own in every if len(own.keys))
    sums = [cut_cells(own, bins, whole, np, least(ratio)) for own in filled]
    return np.concatenate(sums, axis=1), ratio


def _keys(predicted: np.ndarray) -> np.ndarray:
    """Return integers in the order of probabilities, by the exponent and digits of the float."""
    # From one half on by the distance from one, which is exact.
    near = np.ascontiguousarray(np.minimum(predicted, 1 - predicted) + 0.0).view(np.int64)
    return np.where(predicted < 0.5, near, 2 * _ONE_HALF - near)


def _rows(group: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    predicted, observed, weights = group
    return weights, weights * predicted, weights * observed, np.ones(len(weights))


def _count(split: Split, groups: int, shift: int, data: Predictions) -> Sums:
    cells = (2 * _ONE_HALF >> shift) + 1
    sums = np.zeros((4, groups, cells))
    for g, group in enumerate(split(data, np)):
        cell = _keys(group[0]) >> shift
        for own, row in zip(sums, _rows(group), strict=True):
            own[g] = np.bincount(cell, row, cells)
    weights = data.weights
    return {
        "sums": sums,
        "fractions": np.asarray(np.count_nonzero(weights != np.floor(weights))),
        "weight": weights.sum(),
        "squares": weights @ weights,
    }


def _cut(items: _Items, bins: int, whole: bool, least: float | None) -> np.ndarray:
    """Return the places of the cells in which a border lies."""
    if not len(items.keys):
        return np.zeros(0, int)
    mass = np.concatenate([[0.0], np.cumsum(items.sums[0])])
    borders = mass_borders(mass[-1], bins, whole, np, least)
    # Sums in another order differ in their last digits: the cells beside count, too.
    near = np.concatenate([borders * (1 - 1e-12), borders * (1 + 1e-12)])
    return np.unique(np.clip(np.searchsorted(mass, near) - 1, 0, len(items.keys) - 1))


def _look(split: Split, keys: list[np.ndarray], shift: int, finer: int, data: Predictions) -> Sums:
    """Return sums by finer keys of the cases that lie in some cells."""
    found: Sums = {}
    for g, group in enumerate(split(data, np)):
        own = _keys(group[0])
        cell = own >> shift
        inside = _among(keys[g], cell, (2 * _ONE_HALF >> shift) + 1)
        rows = np.stack([row[inside] for row in _rows(group)])
        found[f"keys{g}"], found[f"sums{g}"] = _gather(own[inside] >> finer, rows)
    return found


def _among(keys: np.ndarray, cell: np.ndarray, cells: int) -> np.ndarray:
    """Return which cells (n,), of so many, are among the keys, which ascend."""
    if cells <= _TABLE:
        marked = np.zeros(cells, bool)
        marked[keys] = True
        return marked[cell]
    if not len(keys):
        return np.zeros(len(cell), bool)
    return keys[np.minimum(np.searchsorted(keys, cell), len(keys) - 1)] == cell


def _gather(keys: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different keys in ascending order, and sums of rows (4, n) by key."""
    distinct, place = np.unique(keys, return_inverse=True)
    return distinct, np.stack([np.bincount(place, row, len(distinct)) for row in rows])


def _merge(first: Sums, second: Sums) -> Sums:
    """Return both, put together but where they are many: each time would take too long."""
    found: Sums = {}
    for g in range(len(first) // 2):
        names = f"keys{g}", f"sums{g}"
        both = [np.concatenate([first[name], second[name]], axis=-1) for name in names]
        if len(both[0]) > 2 * _ROWS:
            both = _gather(*both)
        found[names[0]], found[names[1]] = both
    return found


def _replace(items: _Items, cut: np.ndarray, digits: int, inside: _Items) -> _Items:
    """Return cells with finer ones in the place of some, at whose level keys now are."""
    kept = np.ones(len(items.keys), bool)
    kept[cut] = False
    keys = np.concatenate([items.keys[kept] << digits, inside.keys])
    order = np.argsort(keys, kind="stable")
    sums = np.concatenate([items.sums[:, kept], inside.sums], axis=1)
    return _Items(keys[order], sums[:, order])
