"""How rows are put in order, tied ones merged, and borders set between them; and classes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Up to so many rows, sorting all of them at once costs least; of more, so many share a cell.
_FEW = 20_000
_ROWS_PER_CELL = 16
#: Keys are rounded to this, since sums in another order differ in their last digits.
_DIGITS = 10


def canonical_order(scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the classes (k,) in an order that permuting them permutes alike.

    Numbers that are drawn for the classes in this order make a seeded result independent of the
    order of columns. It is by weighted moments of each class's scores and labels, so that neither
    the order of rows matters nor whether they are repeated or weighted. Classes that agree in all
    of them, as in small tables made by hand, keep the order of their columns.
    """
    k = scores.shape[1]
    share = weights / weights.sum()
    bounded = np.clip(scores.astype(float), -1e150, 1e150)
    bounded /= max(float(np.abs(bounded).max()), np.finfo(float).tiny)
    own = np.bincount(y, share * bounded[np.arange(len(y)), y], k)
    frequency = np.bincount(y, share, k)
    moments = np.stack([share @ bounded, frequency, own, share @ bounded**2])
    key = np.sqrt([1, 2, 3, 5]) @ moments
    return np.argsort(key.round(_DIGITS), kind="stable")


def middles(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Return borders half-way between scores, never as far as the upper score.

    Examples
    --------
    >>> import numpy as np
    >>> middles(np.array([1.0, 1.0]), np.array([2.0, np.nextafter(1, 2)])).tolist()
    [1.5, 1.0]
    """
    middle = np.clip(below / 2 + above / 2, below, above)
    return np.where(middle < above, middle, below)


class Groups(NamedTuple):
    """Rows put together, in ascending order of score (g,); no score lies in two groups."""

    #: The least and greatest score, not known (NaN) where ``whole``.
    lowest: np.ndarray
    highest: np.ndarray
    #: Sums of the weights, of all rows and of those of class 1.
    weight: np.ndarray
    positive: np.ndarray
    #: Whether this is a whole cell of a :class:`Ranking`, not a single score.
    whole: np.ndarray


def merge_ties(scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Groups:
    """Sort rows and put those with equal scores together.

    Examples
    --------
    >>> import numpy as np
    >>> groups = merge_ties(np.array([2.0, 1.0, 2.0]), np.array([1, 0, 0]), np.ones(3))
    >>> groups.lowest.tolist(), groups.weight.tolist(), groups.positive.tolist()
    ([1.0, 2.0], [1.0, 2.0], [0.0, 1.0])
    """
    order = np.argsort(scores)
    distinct, weight = scores[order], weights[order]
    positive = weight * y[order]
    first = np.ones(len(order), bool)
    np.not_equal(distinct[1:], distinct[:-1], out=first[1:])
    if not first.all():
        starts = np.flatnonzero(first)
        distinct = distinct[starts]
        weight, positive = np.add.reduceat(weight, starts), np.add.reduceat(positive, starts)
    return Groups(distinct, distinct, weight, positive, np.zeros(len(distinct), bool))


class Ranking:
    """Rows in ascending order of score, many of them sorted no further than is asked for.

    Many rows are first counted in cells of equal width, in O(n), and :meth:`refine` sorts those of
    the cells that matter. Few rows, and scores whose range cannot be divided, are sorted at once.
    ``groups`` are distinct scores of cells that have been sorted, and the other cells as a whole.
    """

    def __init__(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        self._rows = scores, y, weights
        self._low = scores.min()
        with np.errstate(over="ignore", divide="ignore"):
            self._scale = len(scores) / _ROWS_PER_CELL / (scores.max() - self._low)
        if len(scores) <= _FEW or not 0 < self._scale < np.inf:
            self.groups = merge_ties(scores, y, weights)
            return
        self._cell = self._cell_of(scores)
        self._weight = np.bincount(self._cell, weights)
        self._positive = np.bincount(self._cell, weights * y)
        self._sorted = self._weight == 0
        self.groups = self._cells()

    def refine(self, which: np.ndarray) -> None:
        """Sort the rows of the cells among the groups that ``which`` (g,) marks."""
        self._sorted[self._names[which]] = True
        rows = np.flatnonzero(self._sorted[self._cell])
        scores, y, weights = self._rows
        single = merge_ties(scores[rows], y[rows], weights[rows])
        cells = self._cells()
        names = np.concatenate([self._cell_of(single.lowest), self._names])
        order = np.argsort(names, kind="stable")
        self._names = names[order]
        self.groups = Groups(
            *(np.concatenate(pair)[order] for pair in zip(single, cells, strict=True))
        )

    def _cell_of(self, scores: np.ndarray) -> np.ndarray:
        """Return the cell of each score, never less for a greater score."""
        return ((scores - self._low) * self._scale).astype(np.intp)

    def _cells(self) -> Groups:
        """Return the cells that hold rows which are not sorted yet."""
        self._names = np.flatnonzero(~self._sorted)
        unknown = np.full(len(self._names), np.nan)
        weight, positive = self._weight[self._names], self._positive[self._names]
        return Groups(unknown, unknown, weight, positive, np.ones(len(unknown), bool))
