"""What isotonic regression and its relatives share: pooling, and lines between points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from bayescal._core.arrays import namespace, on_host, search
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.monotone import OrderCalibrator
from bayescal.data.checks import check_choice
from bayescal.data.order.ranking import Groups, Ranking
from bayescal.data.scores import two_columns


@dataclass(eq=False, repr=False)
class MonotoneCalibrator(OrderCalibrator):
    """A calibrator of two classes that is linear between points of rising probability."""

    bounds: Literal["none", "laplace"] = "none"

    thresholds_: np.ndarray = field(init=False)
    values_: np.ndarray = field(init=False)

    monotone: ClassVar[bool] = True
    _domain = "order"

    def _check_options(self) -> None:
        check_choice(self.bounds, "bounds", ("none", "laplace"))

    def _apply(self, state: State, scores: Any) -> Any:
        return two_columns(interpolate(scores, state["thresholds"], state["values"]))


def pool(weight: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pool neighboring groups until their shares of class 1 increase.

    Given are sums (g,) of weights of all rows and of those of class 1, in ascending order of score.
    Returns the first group of each block, and its share of class 1, strictly increasing.

    Examples
    --------
    >>> import numpy as np
    >>> pool(np.array([1.0, 1, 2, 1]), np.array([0.0, 1, 1, 1]))
    (array([0, 1, 3]), array([0.    , 0.6667, 1.    ]))
    """
    from scipy.optimize import isotonic_regression

    starts = isotonic_regression(positive / weight, weights=weight).blocks[:-1].astype(np.intp)
    values = np.add.reduceat(positive, starts) / np.add.reduceat(weight, starts)
    # Rounding must not tell apart, or swap, what is equal.
    rises = np.diff(np.maximum.accumulate(values)) > 1e-15 * values[1:]
    if not rises.all():
        starts = starts[np.append(True, rises)]
        values = np.add.reduceat(positive, starts) / np.add.reduceat(weight, starts)
    return starts, np.maximum.accumulate(values)


def pool_ranking(ranking: Ranking) -> tuple[np.ndarray, np.ndarray]:
    """Pool the groups of a ranking, in which cells are sorted until no block can end in another.

    Returns what :func:`pool` does.
    """
    while True:
        groups = ranking.groups
        starts, values = pool(groups.weight, groups.positive)
        unsettled = _unsettled(groups, starts, values)
        if not unsettled.any():
            return starts, values
        ranking.refine(unsettled)


def interpolate(at: Any, thresholds: Any, values: Any) -> Any:
    """Interpolate linearly, constant outside, such that rounding never makes the result decrease.

    Points (m,) are finite numbers of any size; thresholds (k,) strictly increase, where the result
    is exactly the values (k,), which never decrease.

    Examples
    --------
    >>> import numpy as np
    >>> interpolate(np.array([-9.0, 0.5, 2.0]), np.array([0.0, 2.0]), np.array([0.0, 1.0])).tolist()
    [0.0, 0.25, 1.0]
    """
    xp, first, last = namespace(at), thresholds[0], thresholds[-1]
    if thresholds.shape[0] == 1:
        return xp.zeros_like(at) + values[0]
    at = xp.clip(at, first, last)
    if not on_host(at) or last / 2 - first / 2 > np.finfo(np.float64).max / 2:
        # Differences would overflow; halves of subnormal numbers may coincide, to no effect.
        at, thresholds = at / 2, thresholds / 2
    left = xp.clip(search(thresholds, at, "right") - 1, 0, thresholds.shape[0] - 2)
    start, low, high = (xp.take(own, left, axis=0) for own in (thresholds, values, values[1:]))
    width = xp.take(thresholds[1:], left, axis=0) - start
    part = (at - start) / xp.where(width > 0, width, 1.0)
    # Where the part is less than one, rounding never carries the sum past ``high``.
    return xp.where((part >= 1) | (width <= 0), high, low + part * (high - low))


def distinct_points(thresholds: np.ndarray, values: np.ndarray) -> State:
    """Return the state of a map, without the second end of blocks that are one point."""
    new = np.append(True, np.diff(thresholds) > 0)
    return {"thresholds": thresholds[new], "values": values[new]}


def pool_again(groups: Groups, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add a row of each class to blocks of one class, and pool what then decreases."""
    weight = np.add.reduceat(groups.weight, starts)
    positive = np.add.reduceat(groups.positive, starts)
    pure = (positive == 0) | (positive == weight)
    merged, values = pool(weight + 2 * pure, positive + pure)
    return starts[merged], values


def _unsettled(groups: Groups, starts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mark the cells in which a block could end, or next to which one does.

    The blocks are the edges of the greatest convex minorant of the cumulative sums. A cell that
    is not sorted lies above it for sure if it does with all its rows of class 0 first.
    """
    if not groups.whole.any():
        return groups.whole
    weight = np.cumsum(groups.weight) - groups.weight
    positive = np.cumsum(groups.positive) - groups.positive
    sizes = np.diff(starts, append=len(weight))
    along = weight + groups.weight - groups.positive - weight[starts].repeat(sizes)
    dips = positive < positive[starts].repeat(sizes) + values.repeat(sizes) * along
    dips[starts] = dips[starts + sizes - 1] = True
    return groups.whole & dips
