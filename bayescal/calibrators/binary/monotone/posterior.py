"""Posterior of a non-decreasing map: draws for cells of neighboring scores, made monotone."""

from __future__ import annotations

import numpy as np

from bayescal.calibrators.base.calibrator import State
from bayescal.data.order.equal_rows import is_first
from bayescal.data.order.ranking import Ranking
from bayescal.data.rows import Source, weight_of_row

#: The number of cells of n rows is this factor times this power of n.
_FACTOR, _POWER = 1.5, 0.4
#: Rows of each class that the prior counts for, in all cells together.
_PRIOR_ROWS = 2.0
#: More rows than this count as this many: their probabilities are known.
_MOST_ROWS = 1e15


def count_cells(rows: Source, ranking: Ranking) -> State:
    """Count the rows of both classes in cells that hold about equally many rows.

    Returns the smallest and largest scores of cells, and weights of each class in units of rows.
    """
    groups = ranking.groups
    unit = weight_of_row(rows)
    mass = np.cumsum(groups.weight)
    count = np.ceil(_FACTOR * (mass[-1] / unit) ** _POWER)
    cell = np.floor((mass - groups.weight / 2) / mass[-1] * count)
    starts = np.flatnonzero(is_first(cell))
    unit = max(unit, mass[-1] / _MOST_ROWS)
    positive = np.add.reduceat(groups.positive, starts) / unit
    weight = np.add.reduceat(groups.weight, starts) / unit
    last = np.append(starts[1:], len(cell)) - 1
    first, last = ranking.range_of(starts, last)
    return {
        "cell_starts": first,
        "cell_ends": last,
        "cell_counts": np.stack([np.maximum(weight - positive, 0.0), positive]),
    }


def draw_maps(counts: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """Draw non-decreasing probabilities (draws, cells) of class 1.

    Draws from the Beta posteriors of cells are moved to the nearest non-decreasing ones, weighted
    by the rows of cells (2, cells). Exchanged classes in reverse order give exactly reversed draws.
    """
    from scipy.optimize import isotonic_regression

    reverse = counts[::-1, ::-1]
    if tuple(counts.ravel()) > tuple(reverse.ravel()):
        return 1 - draw_maps(reverse, draws, seed)[:, ::-1]
    prior = _PRIOR_ROWS / counts.shape[1]
    negative, positive = counts + prior
    probs = np.random.default_rng(seed).beta(positive, negative, (draws, counts.shape[1]))
    weights = counts.sum(axis=0)
    return np.stack([isotonic_regression(row, weights=weights).x for row in probs])
