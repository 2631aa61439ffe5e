"""Cumulative differences of outcomes and predictions, in ascending order of the predictions."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import numpy as np

from bayescal._core.arrays import AnyArray, Array
from bayescal._core.binning import SINGLE, begins_score
from bayescal.data.blocks.predictions import PredictionBlocks
from bayescal.data.order.equal_mass import (
    REACH,
    GroupCells,
    Split,
    cells_near,
    count_cells,
    first_shift,
    look_inside,
    merge_keys,
    sum_by_key,
)
from bayescal.data.rows import compiled

#: Predictions are rounded to multiples of its inverse, so that equal ones are tied in any source.
_GRID = 2.0**46


def without_rounding_errors(predicted: np.ndarray) -> np.ndarray:
    """Round predictions so that those that differ only in their last digits become equal."""
    return np.round(predicted * _GRID) / _GRID


def excursions(predicted: Array, observed: Array, weights: Array, xp: ModuleType = np) -> Array:
    """Compute how far the cumulative differences rise and fall; also the mass and the outcomes.

    The result (4,) holds the greatest and the least sum of weights times (observed - predicted)
    over the rows up to a prediction, starting from zero, then the sums of weights and of weights
    times outcomes. Rows with predictions that are equal up to rounding are one step.
    """
    compute = _excursions if xp is np else compiled(_excursions, ("xp",))
    return compute(predicted, observed, weights, xp=xp)


def _excursions(predicted: Array, observed: Array, weights: Array, xp: ModuleType) -> Array:
    order = xp.argsort(predicted)
    ends = _is_last(predicted[order], xp)
    sums = xp.where(ends, xp.cumsum((weights * (observed - predicted))[order]), 0)
    return xp.stack([sums.max(initial=0), sums.min(initial=0), weights.sum(), weights @ observed])


def _is_last(ordered: Array, xp: ModuleType = np) -> AnyArray:
    """Find which of ascending predictions (n,) are the last of those that are tied."""
    return xp.append(begins_score(ordered)[1:], True)


def turns(residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the greatest and the least cumulative sum (...,) of steps (..., m), with zero."""
    sums = np.cumsum(residuals, axis=-1)
    return sums.max(axis=-1, initial=0), sums.min(axis=-1, initial=0)


def excursions_of_many(
    predicted: np.ndarray, observed: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Compute the excursions (4, b) for many weights (n, b) of the same rows."""
    order = np.argsort(predicted)
    ends = np.flatnonzero(_is_last(predicted[order]))
    steps = weights[order] * (observed - predicted)[order, None]
    sums = np.cumsum(steps, axis=0)[ends]
    high, low = np.maximum(sums.max(axis=0), 0), np.minimum(sums.min(axis=0), 0)
    return np.stack([high, low, weights.sum(axis=0), observed @ weights])


def sums_by_prediction(predicted: np.ndarray, addends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find predictions (m,) that differ by more than rounding, and sum addends (r, n) by them."""
    order = np.argsort(predicted)
    ordered = predicted[order]
    starts = np.flatnonzero(begins_score(ordered))
    return ordered[starts], np.add.reduceat(addends[:, order], starts, axis=1)


def excursions_of_blocks(split: Split, groups: int, data: PredictionBlocks) -> np.ndarray:
    """Compute the excursions (4, groups) of predictions in blocks, in two or three passes.

    The first pass sums rows in cells, between which the cumulative differences are known. The
    second looks only into cells in which they might rise or fall farther. If a cell ends within a
    tie, its end does not count, and another pass looks into further cells.
    """
    shift = first_shift(groups)
    counts = data.total(partial(count_cells, split, groups, shift))["sums"]
    cells = []
    for sums in counts.swapaxes(0, 1):
        used = np.flatnonzero(sums[3])
        cells.append(GroupCells(used, sums[:, used]))
    found = np.array([turns(c.sums[2] - c.sums[1]) for c in cells])
    held = [np.zeros(len(c.keys), bool) for c in cells]
    while True:
        more = [_may_turn(c, ends) for c, ends in zip(cells, found, strict=True)]
        if not any((new & ~mask).any() for new, mask in zip(more, held, strict=True)):
            break
        held = [new | mask for new, mask in zip(more, held, strict=True)]
        near = [
            cells_near(c.keys, mask, shift, REACH * SINGLE)
            for c, mask in zip(cells, held, strict=True)
        ]
        inside = data.total(partial(look_inside, split, near, shift, 0), merge_keys)
        for g, (part, mask) in enumerate(zip(near, held, strict=True)):
            parts = GroupCells(*sum_by_key(inside[f"keys{g}"], inside[f"sums{g}"]))
            merged = cells[g].replaced(part.marked, shift, parts)
            if not len(merged.keys):
                continue
            ends = _is_last(part.values(merged.keys, shift))
            ends &= np.isin(merged.keys >> shift, cells[g].keys[mask])
            steps = merged.sums[2] - merged.sums[1]
            sums = np.cumsum(steps)[ends]
            found[g] = sums.max(initial=0), sums.min(initial=0)
    masses = np.array([c.sums[::2].sum(axis=1) for c in cells])
    return np.concatenate([found, masses], axis=1).T


def _may_turn(cells: GroupCells, found: np.ndarray) -> np.ndarray:
    """Find in which cells (m,) the cumulative differences may pass the highest and lowest found."""
    sums, (highest, lowest) = cells.sums, found
    after = np.cumsum(sums[2] - sums[1])
    before = np.append(0.0, after[:-1])
    rise, fall = steepest(sums)
    # Sums in another order differ in their last digits.
    slack = 1e-12 * sums[0].sum()
    return (before + rise >= highest - slack) | (before - fall <= lowest + slack)


def steepest(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bound how far cumulative differences rise and fall within cells of sums (3, m)."""
    mass, predicted, happened = sums[:3]
    rise = np.minimum(happened, np.maximum(mass - predicted, 0))
    return rise, np.minimum(predicted, np.maximum(mass - happened, 0))
