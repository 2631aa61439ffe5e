"""Weighted points that summarize binary rows, for the fit of averaged regressions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.shapes import Float
from bayescal.calibrators.binary.averaged_beta.regressions import FAR, TAILS, Nodes, Points
from bayescal.data.order.equal_rows import is_first
from bayescal.data.rows import Rows, Source
from bayescal.regression.binary.compress import count_in_bins, gauss_points

#: Arrays by their axes.
PerRow: TypeAlias = 'Float[np.ndarray, " rows"]'
PerScore: TypeAlias = 'Float[np.ndarray, " distinct"]'


#: More distinct scores than this are summarized by cells, which hold at most this proportion of a
#: class and have at most this width in asinh of the log odds.
_MAX_POINTS, _CELL = 256, (1 / 128, 0.03)
#: With more points than this, a fit starts from coarse cells of all rows, and with more than
#: ``_MAX_POINTS`` it continues with finer cells; their proportions and widths.
_MAX_DIRECT_POINTS, _COARSE_CELL, _FINE_CELL = 100, (1 / 40, 0.2), (1 / 96, 0.06)
#: More rows than this are counted in bins, evenly spaced in asinh of the log odds.
MAX_SORTED_ROWS, _BINS = 1 << 15, 1 << 17
_DIGITS = 10


def summarize(rows: Source) -> Points:
    """Summarize log odds (n,), labels 0 and 1 and weights by a limited number of points."""
    if rows.n > MAX_SORTED_ROWS:
        # Bins are about 1e-4 wide. Sums in different orders differ in their last digits, which must
        # not separate equal means.
        means, y, weights = count_in_bins(rows, _BINS, FAR)
        z = np.round(means, _DIGITS)
        order = np.argsort(z, kind="stable")
        z, weights, positives = z[order], weights[order], (weights * y)[order]
    else:
        z, y, weights = rows.mapped(clip, FAR).all()
        z = np.asarray(z)
        order = np.lexsort((weights, y, z))
        z, weights = z[order], weights[order]
        starts = np.flatnonzero(is_first(z))
        positives = np.add.reduceat(weights * y[order], starts)
        z, weights = z[starts], np.add.reduceat(weights, starts)
    points = Points(z, weights, positives, *_tails(z, weights))
    return points if len(z) <= _MAX_POINTS else _condense(points)


def clip(rows: Rows) -> Rows:
    """Clip log odds of any library to the range of probabilities."""
    return rows._replace(scores=namespace(rows.scores).clip(rows.scores, -FAR, FAR))


def make_nodes(points: Points) -> tuple[Nodes | None, Nodes | None]:
    """Return nodes for many points, and coarse ones from which a fit may start."""

    def cells(proportion: float, width: float) -> Nodes:
        rule = _rule(points.z, points.weights, points.tails[:, 1], proportion, width)
        return Nodes(*rule[:, np.argsort(rule[0], kind="stable")])

    nodes = None if len(points.z) <= _MAX_POINTS else cells(*_FINE_CELL)
    return nodes, None if len(points.z) <= _MAX_DIRECT_POINTS else cells(*_COARSE_CELL)


def _condense(points: Points) -> Points:
    """Replace the rows in each cell of each class by two points with equal sums of cubic functions.

    No cell contains an outer quantile, beyond which the Gaussian process has constant inputs.
    """
    parts = []
    for class_weights in (points.weights - points.positives, points.positives):
        # Positions are several times faster than a mask, which no processor foresees.
        used = np.flatnonzero(class_weights > 0)
        parts.append(_rule(points.z[used], class_weights[used], points.tails[:, 1], *_CELL))
    z, weights = np.concatenate(parts, axis=1)
    positives = np.where(np.arange(len(z)) < len(parts[0][0]), 0.0, weights)
    order = np.argsort(z, kind="stable")
    return Points(z[order], weights[order], positives[order], *points[3:])


def _rule(
    z: PerRow, weight: PerRow, borders: np.ndarray, proportion: float, width: float
) -> Float[np.ndarray, "2 nodes"]:
    if not len(z):
        return np.empty((2, 0))
    mass = np.cumsum(weight)
    cell = np.floor((mass - weight / 2) / mass[-1] / proportion + np.arcsinh(z) / width)
    side = np.searchsorted(borders, z, side="right")
    starts = is_first(cell) | is_first(side)
    return gauss_points(z, weight, starts)


def _tails(
    distinct: PerScore, weight: PerScore
) -> tuple[Float[np.ndarray, "2 2"], Float[np.ndarray, " 2"]]:
    """Return the scores (2, 2) around the outer quantiles, and the positions (2,) between them.

    Each is computed from its end, so that exchanging the classes exchanges the quantiles.
    """
    low, part = _low_tail(distinct, weight)
    high, rest = _low_tail(-distinct[::-1], weight[::-1])
    return np.stack([low, -high[::-1]]), np.array([part, 1 - rest])


def _low_tail(distinct: PerScore, weight: PerScore) -> tuple[Float[np.ndarray, " 2"], float]:
    """Return the two scores (2,) around the lower quantile, and its position between them.

    This is NumPy's quantile if integer weights are expanded to repeated rows.
    """
    mass = np.cumsum(weight)
    rank = max(mass[-1] - 1, 0) * TAILS[0]
    below = np.floor(rank)
    # Sums of weights carry rounding errors.
    ranks = np.array([below, below + 1]) + 1e-9 * mass[-1]
    index = np.minimum(np.searchsorted(mass, ranks, side="right"), len(mass) - 1)
    return distinct[index], rank - below
