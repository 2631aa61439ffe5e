"""Isotonic regression, as a step function and centred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.checks import check_choice
from bayescal.maps._groups import Groups, Ranking, merge_ties
from bayescal.maps._map import Domain, Map, State, register

__all__ = ["CenteredIsotonic", "Isotonic", "interpolate", "pool"]

Bounds = Literal["none", "laplace"]


@register
@dataclass(frozen=True)
class Isotonic(Map):
    r"""Isotonic regression: the most likely map among all that never decrease.

    .. math:: \min_{f_1 \le \dots \le f_n} \sum_i w_i (y_i - f_i)^2
              \qquad (s_1 \le \dots \le s_n)

    Tied scores share one value. The solution is constant on blocks of neighbouring scores, where it
    is the share of class 1; it is interpolated linearly between blocks and constant outside.

    Scores below the least of class 1 get probability 0 and scores above the greatest of class 0
    get 1, so that one row on the wrong side makes the log loss infinite. With ``bounds="laplace"``
    such a block, all of one class, counts one more row of each class (Laplace's rule of
    succession), and blocks that then decrease are pooled again: the map still never decreases, and
    stays away from 0 and 1.

    Parameters
    ----------
    bounds : {"none", "laplace"}
        What becomes of the values 0 and 1.

    Notes
    -----
    The state is ``thresholds`` (k,), ascending, the ends of the blocks, and ``values`` (k,).
    Fitting n rows takes O(n log n) comparisons at most. Of many rows whose scores are spread out
    most are only counted: a cell of neighbouring scores is sorted where a block could end in it.
    Predicting takes O(log k) for each score.

    References
    ----------
    B. Zadrozny and C. Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates.

    Examples
    --------
    >>> import numpy as np
    >>> scores, y = np.array([1.0, 2, 3, 4]), np.array([0, 1, 0, 1])
    >>> fitted = Isotonic().fit(scores, y, np.ones(4))
    >>> fitted["thresholds"].tolist(), fitted["values"].tolist()
    ([1.0, 2.0, 3.0, 4.0], [0.0, 0.5, 0.5, 1.0])
    >>> Isotonic().apply(fitted, np.array([0.0, 1.5, 2.5])).tolist()
    [0.0, 0.25, 0.5]
    >>> Isotonic(bounds="laplace").fit(scores, y, np.ones(4))["values"].round(3).tolist()
    [0.333, 0.5, 0.5, 0.667]
    """

    name: ClassVar[str] = "isotonic"
    monotone: ClassVar[bool] = True

    bounds: Bounds = "none"

    def __post_init__(self) -> None:
        check_choice(self.bounds, "bounds", ("none", "laplace"))

    @property
    def domain(self) -> Domain:
        return "any"

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        ranking = Ranking(scores, y, weights)
        while True:
            groups = ranking.groups
            starts, values = pool(groups.weight, groups.positive)
            open_cells = _unsettled(groups, starts, values)
            if not open_cells.any():
                break
            ranking.refine(open_cells)
        if self.bounds == "laplace":
            starts, values = _pool_again(groups, starts)
        ends = np.append(starts[1:], len(groups.weight)) - 1
        thresholds = np.stack([groups.lowest[starts], groups.highest[ends]], axis=1).ravel()
        return _distinct_points(thresholds, values.repeat(2))

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        return interpolate(scores, state["thresholds"], state["values"])


@register
@dataclass(frozen=True)
class CenteredIsotonic(Map):
    r"""Centred isotonic regression: straight lines through the centres of the isotonic blocks.

    Every block of isotonic regression, with neighbours of equal value taken together, becomes one
    point: its value at

    .. math:: \bar s_b = \frac{\sum_{i \in b} w_i s_i}{\sum_{i \in b} w_i}.

    Between these points the map is linear, thus strictly increasing, and outside it is constant.
    A first block of value 0 or a last one of value 1 keeps both its ends, since no probability
    lies beyond. Fewer scores get the same probability than by isotonic regression, and where the
    true map increases the error is less.

    Parameters
    ----------
    bounds : {"none", "laplace"}
        What becomes of the values 0 and 1, as for :class:`Isotonic`. With "laplace" no block has
        such a value, and all become points.

    Notes
    -----
    The state is ``thresholds`` (k,), ascending, and ``values`` (k,). Fitting n rows takes
    O(n log n), predicting O(log k) for each score.

    References
    ----------
    A. P. Oron and N. Flournoy (2017), Centered isotonic regression: point and interval estimation
    for dose-response studies.

    Examples
    --------
    >>> import numpy as np
    >>> scores, y = np.array([1.0, 2, 3, 4, 5]), np.array([0, 1, 0, 1, 1])
    >>> fitted = CenteredIsotonic().fit(scores, y, np.ones(5))
    >>> fitted["thresholds"].tolist(), fitted["values"].tolist()
    ([1.0, 2.5, 4.0, 5.0], [0.0, 0.5, 1.0, 1.0])
    """

    name: ClassVar[str] = "centered_isotonic"
    monotone: ClassVar[bool] = True

    bounds: Bounds = "none"

    def __post_init__(self) -> None:
        check_choice(self.bounds, "bounds", ("none", "laplace"))

    @property
    def domain(self) -> Domain:
        return "any"

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        groups = merge_ties(scores, y, weights)
        starts, values = pool(groups.weight, groups.positive)
        if self.bounds == "laplace":
            starts, values = _pool_again(groups, starts)
        sizes = np.diff(starts, append=len(groups.weight))
        lowest, highest = groups.lowest[starts], groups.highest[starts + sizes - 1]
        # Shares of the block first: no sum of scores overflows.
        share = groups.weight / np.add.reduceat(groups.weight, starts).repeat(sizes)
        centre = np.clip(np.add.reduceat(share * groups.lowest, starts), lowest, highest)
        at_limit = (values == 0) | (values == 1)
        first, last = np.where(at_limit, lowest, centre), np.where(at_limit, highest, centre)
        return _distinct_points(np.stack([first, last], axis=1).ravel(), values.repeat(2))

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        return interpolate(scores, state["thresholds"], state["values"])


def pool(weight: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pool neighbouring groups until their shares of class 1 increase.

    Parameters
    ----------
    weight, positive : arrays of shape (g,)
        Sums of weights of all rows and of those of class 1, in ascending order of score.

    Returns
    -------
    starts : array of int of shape (blocks,)
        The first group of each block.
    values : array of shape (blocks,)
        The share of class 1, strictly increasing.

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


def interpolate(at: np.ndarray, thresholds: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Interpolate linearly, constant outside, such that rounding never makes the result decrease.

    Parameters
    ----------
    at : array of shape (m,)
        Finite numbers of any size.
    thresholds : array of shape (k,)
        Strictly increasing.
    values : array of shape (k,)
        Never decreasing.

    Returns
    -------
    array of shape (m,)
        Exactly ``values`` at ``thresholds``.

    Examples
    --------
    >>> import numpy as np
    >>> interpolate(np.array([-9.0, 0.5, 2.0]), np.array([0.0, 2.0]), np.array([0.0, 1.0])).tolist()
    [0.0, 0.25, 1.0]
    """
    first, last = thresholds[0], thresholds[-1]
    if len(thresholds) == 1:
        return np.full(len(at), values[0])
    at = np.clip(at, first, last)
    if last / 2 - first / 2 > np.finfo(np.float64).max / 2:
        # Differences would overflow; halves of subnormal numbers may coincide, to no effect.
        at, thresholds = at / 2, thresholds / 2
    left = np.minimum(np.searchsorted(thresholds, at, side="right"), len(thresholds) - 1) - 1
    start, low, high = thresholds[left], values[left], values[left + 1]
    width = thresholds[left + 1] - start
    part = np.divide(at - start, width, out=np.ones_like(at), where=width > 0)
    # Where the part is less than one, rounding never carries the sum past ``high``.
    return np.where(part == 1, high, low + part * (high - low))


def _distinct_points(thresholds: np.ndarray, values: np.ndarray) -> State:
    """Return the state of a map, without the second end of blocks that are one point."""
    new = np.append(True, np.diff(thresholds) > 0)
    return {"thresholds": thresholds[new], "values": values[new]}


def _pool_again(groups: Groups, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
