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
    values_of,
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
    return np.maximum(sums.max(axis=-1), 0), np.minimum(sums.min(axis=-1), 0)


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
    """Compute the excursions (4, groups) of predictions in blocks, in two passes.

    The first pass sums rows in cells, between which the cumulative differences are known. The
    second looks only into cells in which they might rise or fall farther.
    """
    shift = first_shift(groups)
    counts = data.total(partial(count_cells, split, groups, shift))["sums"]
    cells, excursions = [], np.zeros((4, groups))
    for sums in counts.swapaxes(0, 1):
        used = np.flatnonzero(sums[3])
        cells.append(GroupCells(used, sums[:, used]))
    reach = [_may_turn(c, shift) for c in cells]
    keys = [c.keys[mask] for c, mask in zip(cells, reach, strict=True)]
    inside = data.total(partial(look_inside, split, keys, shift, 0), merge_keys)
    for g, mask in enumerate(reach):
        parts = GroupCells(*sum_by_key(inside[f"keys{g}"], inside[f"sums{g}"]))
        merged = cells[g].replaced(mask, shift, parts)
        mass, predicted, happened, _ = merged.sums
        if len(mass):
            # Cells into which the second pass did not look tie with no others.
            inside_cells = np.isin(merged.keys, parts.keys)
            last = _is_last(np.where(inside_cells, values_of(merged.keys), np.nan))
            sums = np.cumsum(happened - predicted)[last]
            excursions[:, g] = max(sums.max(), 0), min(sums.min(), 0), mass.sum(), happened.sum()
    return excursions


def _may_turn(cells: GroupCells, shift: int) -> np.ndarray:
    """Tell in which cells (m,) the cumulative differences may reach the extremes of all ends.

    Cells whose predictions may tie with one in these cells are among them.
    """
    keys, sums = cells
    if not sums.size:
        return np.zeros(0, bool)
    after = np.cumsum(sums[2] - sums[1])
    before = np.append(0.0, after[:-1])
    rise, fall = steepest(sums)
    # Sums in another order differ in their last digits.
    slack = 1e-12 * sums[0].sum()
    high = before + rise >= max(after.max(), 0) - slack
    low = before - fall <= min(after.min(), 0) + slack
    return high | low | cells_near(keys, high | low, shift, REACH * SINGLE)[0]


def steepest(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bound how far cumulative differences rise and fall within cells of sums (3, m)."""
    mass, predicted, happened = sums[:3]
    rise = np.minimum(happened, np.maximum(mass - predicted, 0))
    return rise, np.minimum(predicted, np.maximum(mass - happened, 0))
