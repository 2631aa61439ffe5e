"""Rows of two classes, gathered in points: what averaged regressions are fitted to."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import namespace, on_host
from bayescal.calibrators.binary.averaged_beta.regressions import FAR, TAILS, Points
from bayescal.data.rows import Rows, Source, Sums

#: So many distinct scores are used as they are; more are gathered in cells, of at most this share
#: of a class and this width in asinh of the log odds.
_MOST, _FINE = 256, (1 / 192, 0.04)
#: More rows than this are counted in so many bins, evenly spaced in asinh of the log odds.
MANY, _BINS = 1 << 15, 1 << 17
_DIGITS = 10
#: Rows that are counted at once.
_AT_ONCE = 1 << 17


def gather(rows: Source) -> Points:
    """Gather log odds (n,), labels 0 and 1 and weights in not many points."""
    if rows.n > MANY:
        return _gather_many(rows)
    z, y, weights = rows.mapped(clip, FAR).all()
    z = np.asarray(z)
    order = np.lexsort((weights, y, z))
    z, weights = z[order], weights[order]
    positives = weights * y[order]
    starts = np.flatnonzero(np.concatenate([[True], z[1:] > z[:-1]]))
    weight, positive = np.add.reduceat(weights, starts), np.add.reduceat(positives, starts)
    return thin(z[starts], weight, positive)


def _gather_many(rows: Source) -> Points:
    """Gather very many rows in bins, and these in not many points.

    The rows of a class in a bin, which is some 1e-4 wide, are one at their mean. O(n) time, and
    memory for the bins alone.
    """
    low, high = np.arcsinh(np.clip(rows.ends, -FAR, FAR))
    step = partial(_bin_sums, low, (_BINS - 1) / (high - low) if high > low else 0.0)
    sums = rows.total(step, numbers=_AT_ONCE)
    used = np.flatnonzero(sums["weight"])
    weight = sums["weight"][used]
    # Sums in another order differ in their last digits, which must not tell equal ones apart.
    z = np.round(sums["moment"][used] / weight, _DIGITS)
    order = np.argsort(z, kind="stable")
    return thin(z[order], weight[order], np.where(used < _BINS, 0.0, weight)[order])


def clip(rows: Rows) -> Rows:
    """Return rows without log odds, of any library, that no probability has."""
    return rows._replace(scores=namespace(rows.scores).clip(rows.scores, -FAR, FAR))


def _bin_sums(low: float, unit: float, z: Any, y: np.ndarray, weights: np.ndarray) -> Sums:
    """Return the weights, and weighted log odds, in the bins of either class."""
    z = namespace(z).clip(z, -FAR, FAR)
    xp: Any = np if on_host(z) else jnp
    place = ((xp.arcsinh(z) - low) * unit).astype(np.int32) + _BINS * (y > 0)
    own = xp.asarray(weights)
    each = {"weight": own, "moment": own * z}
    return {name: np.asarray(xp.bincount(place, one, 2 * _BINS)) for name, one in each.items()}


def thin(z: np.ndarray, weight: np.ndarray, positive: np.ndarray) -> Points:
    """Return distinct log odds, ascending, with their sums of weights, as not many points."""
    points = Points(z, weight, positive, *_tails(z, weight))
    return points if len(z) <= _MOST else condense(points, *_FINE)


def condense(points: Points, share: float, width: float) -> Points:
    """Return two points for each cell of each class: Gauss's rule for the rows in it.

    Their weights have the same sums of cubic functions as those of the rows. No cell reaches
    across the outer quantiles, where the inputs of the Gaussian process are held.
    """
    parts = []
    for own in (points.weights - points.positives, points.positives):
        used = own > 0
        parts.append(_rule(points.z[used], own[used], points.tails[:, 1], share, width))
    z, weights = np.concatenate(parts, axis=1)
    positives = np.where(np.arange(len(z)) < len(parts[0][0]), 0.0, weights)
    order = np.argsort(z, kind="stable")
    return Points(z[order], weights[order], positives[order], *points[3:])


def _rule(
    z: np.ndarray, weight: np.ndarray, borders: np.ndarray, share: float, width: float
) -> np.ndarray:
    """Return nodes and weights (2, m) for the sorted rows of a class."""
    if not len(z):
        return np.empty((2, 0))
    mass = np.cumsum(weight)
    within = np.floor((mass - weight / 2) / mass[-1] / share)
    place = np.floor(np.arcsinh(z) / width)
    side = np.searchsorted(borders, z, side="right")
    starts = np.concatenate([[True], (np.diff([within, place, side]) > 0).any(axis=0)])
    cell = np.cumsum(starts) - 1

    def add(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, values)

    first = z[starts]
    total = add(weight)
    mean = add(weight * (z - first[cell])) / total
    apart = z - first[cell] - mean[cell]
    spread = np.sqrt(add(weight * apart**2) / total)
    double = spread > 1e-9 * (1 + abs(first))
    unit = np.where(double, spread, 1.0)
    skewness = add(weight * (apart / unit[cell]) ** 3) / total
    root = np.sqrt(1 + skewness**2 / 4)
    center, unit = first + mean, np.where(double, spread, 0.0)
    above = np.where(double, total * (1 - skewness / (2 * root)) / 2, 0.0)
    low = np.stack([center + unit * (skewness / 2 - root), total - above])
    high = np.stack([center + unit * (skewness / 2 + root), above])
    return np.concatenate([low, high[:, double]], axis=1)


def _tails(distinct: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores (2, 2) next to the outer quantiles, and where (2,) between them these lie.

    Each is found from its own end, so that exchanging the classes exchanges them.
    """
    low, part = _low_tail(distinct, weight)
    high, rest = _low_tail(-distinct[::-1], weight[::-1])
    return np.stack([low, -high[::-1]]), np.array([part, 1 - rest])


def _low_tail(distinct: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Return two scores (2,) and the part of the way between them where the lower quantile lies.

    The quantile of NumPy, by ranks, if a whole weight repeats its row.
    """
    mass = np.cumsum(weight)
    rank = max(mass[-1] - 1, 0) * TAILS[0]
    below = np.floor(rank)
    # Sums of weights carry rounding errors.
    ranks = np.array([below, below + 1]) + 1e-9 * mass[-1]
    place = np.minimum(np.searchsorted(mass, ranks, side="right"), len(mass) - 1)
    return distinct[place], rank - below
