"""How rows are put in order, tied ones merged, and borders set between them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.binning import is_single, single_above
from bayescal.data.blocks.reader import RowBlocks
from bayescal.data.order.cells import Cells, even_cells, quantile_cells, relative_cells
from bayescal.data.order.classes import canonical_order, class_moments, order_by_moments
from bayescal.data.rows import Rows, Source, Sums

# Up to so many rows in memory, sorting all of them at once costs least; of more, so many share a
# cell.
_FEW = 20_000
_ROWS_PER_CELL = 16
#: So many distinct scores of rows in blocks are held at most, and so many cells counted.
_MOST, _CELLS = 1 << 22, 1 << 20


def order_of_classes(rows: Source) -> np.ndarray:
    """Order the classes (k,), of blocks in one pass; see ``canonical_order``."""
    if isinstance(rows, Rows):
        return canonical_order(*rows)
    moments = rows.total(partial(class_moments, rows.weight, rows.largest))["moments"]
    return order_by_moments(moments)


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


def single_middles(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Place borders half-way between scores, rounded up to single precision where there is room.

    Then a score lies on the same side of a border in programs in single precision and elsewhere.
    """
    middle = middles(below, above)
    single = single_above(middle)
    lowest = np.where(is_single(below) & is_single(above), below, middle)
    with np.errstate(over="ignore"):
        exact = middle.astype(np.float16) == middle
    return np.where(exact, middle, np.where(single < above, single, lowest))


class Groups(NamedTuple):
    """Rows put together, in ascending order of score (g,); no score lies in two groups."""

    #: The least and greatest score; not known (NaN) where ``whole`` and all rows are in memory.
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
    return _singles(_merge(np.argsort(scores), scores, weights, weights * y))


def distinct_scores(rows: Source, name: str) -> Groups:
    """Return all distinct scores, in one pass over blocks.

    Raises
    ------
    ValueError
        If they are too many to be held, where rows come in blocks, for what is named.
    """
    groups = _singles(rows.total(partial(_gather, None, None), partial(_join, _MOST)))
    if isinstance(rows, RowBlocks) and len(groups.weight) > _MOST:
        raise ValueError(
            f"scores must have at most {_MOST:,} distinct values where they come in blocks and "
            f"{name} is fitted, got more; round them, or take Isotonic or Auto"
        )
    return groups


def merged_rows(rows: Source, name: str) -> Rows:
    """Hold all rows in memory: those in blocks as one for each distinct score and label."""
    if isinstance(rows, Rows):
        return rows
    groups = distinct_scores(rows, name)
    negative = groups.weight - groups.positive
    scores, weights = np.tile(groups.lowest, 2), np.concatenate([negative, groups.positive])
    used = weights > 0
    return Rows(scores[used], np.repeat([0, 1], len(negative))[used], weights[used])


class Ranking:
    """Rows in ascending order of score, many of them sorted no further than is asked for.

    Many rows are first counted in cells, in O(n), and :meth:`refine` sorts those of the cells that
    matter. Few rows, and scores whose range cannot be divided, are sorted at once. ``groups`` are
    distinct scores of cells that have been sorted, and the other cells as a whole.

    In memory cells are of equal width. Of blocks they are finer where scores are dense, and each
    of these steps is a pass. Up to 2**22 rows are sorted at once; and where cells to be sorted hold
    more, they are first divided, down to 2**-21 of what they were.
    """

    def __init__(self, rows: Source, at_once: bool = False, probabilities: bool = False) -> None:
        """Count rows; ``at_once`` sorts all of them that are in memory.

        Cells of ``probabilities`` in memory are as fine beside 0 and 1 as between.
        """
        self._rows = rows
        self._single = _singles(_NOTHING)
        self._cells: Cells | None = None
        if isinstance(rows, RowBlocks):
            if rows.n > _MOST:
                count = min(_CELLS, rows.n // _ROWS_PER_CELL)
                self._cells = quantile_cells(rows.sample.scores, rows.low, rows.high, count)
        elif not at_once and rows.n > _FEW:
            make_cells = relative_cells if probabilities else even_cells
            self._cells = make_cells(rows.all().scores, rows.n / _ROWS_PER_CELL)
        if self._cells is None:
            self.groups = self._single = self._gathered(None)
            return
        self._sorted = np.zeros(self._cells.count, bool)
        self._count()

    def refine(self, which: np.ndarray) -> None:
        """Sort the rows of the cells among the groups that ``which`` (g,) marks, or divide these.

        Cells are divided where they hold too many rows to be sorted.
        """
        cells = self._cells
        assert cells is not None
        names = self._names[which & self.groups.whole]
        if "rows" in self._sums:
            held = self._sums["rows"][names].sum() + len(self._single.weight)
            most = min(2 * _CELLS, int(held))
            finer = cells.divided(names, most) if held > _MOST else None
            if finer is not None:
                self._cells, parent = finer
                self._sorted = self._sorted[parent]
                self._count()
                return
        wanted = np.zeros(cells.count, bool)
        wanted[names] = True
        found = self._gathered(wanted)
        self._sorted |= wanted
        joined = [np.concatenate(pair) for pair in zip(self._single, found, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        self._single = Groups(*(own[order] for own in joined))
        self._assemble()

    def score_sums(self) -> np.ndarray:
        """Sum weights times scores over each group (g,), in a pass if some are cells."""
        groups = self.groups
        sums = groups.weight * groups.lowest
        if self._cells is None or not groups.whole.any():
            return sums
        of_cells = self._rows.total(partial(_score_sums, self._cells))["scores"]
        return np.where(groups.whole, of_cells[self._names], sums)

    def _gathered(self, wanted: np.ndarray | None) -> Groups:
        """Return the distinct scores in the cells that are marked (cells,), or all of them."""
        gather = partial(_gather, self._cells, wanted)
        return _singles(self._rows.total(gather, partial(_join, None)))

    def _count(self) -> None:
        """Count the rows in the cells."""
        assert self._cells is not None
        ends = isinstance(self._rows, RowBlocks)
        self._sums = self._rows.total(partial(_count, self._cells, ends), _add_counts)
        self._sorted |= self._sums["weight"] == 0
        self._assemble()

    def _assemble(self) -> None:
        """Put together the single scores and the cells that are not sorted yet."""
        assert self._cells is not None
        cells = np.flatnonzero(~self._sorted)
        own = {name: value[cells] for name, value in self._sums.items()}
        lowest = own.get("lowest", np.full(len(cells), np.nan))
        highest = own.get("highest", lowest)
        # A cell that holds one score only is as good as sorted.
        whole = ~(lowest == highest)
        groups = Groups(lowest, highest, own["weight"], own["positive"], whole)
        names = np.concatenate([self._cells.place(self._single.lowest), cells])
        order = np.argsort(names, kind="stable")
        self._names = names[order]
        pairs = zip(self._single, groups, strict=True)
        self.groups = Groups(*(np.concatenate(pair)[order] for pair in pairs))


_NOTHING: Sums = {name: np.empty(0) for name in ("scores", "weight", "positive")}


def _singles(sums: Sums) -> Groups:
    scores = sums["scores"]
    return Groups(scores, scores, sums["weight"], sums["positive"], np.zeros(len(scores), bool))


def _merge(order: np.ndarray, scores: np.ndarray, weight: np.ndarray, positive: np.ndarray) -> Sums:
    """Return distinct scores, and the sums over each, of rows that an order sorts."""
    distinct, weight, positive = scores[order], weight[order], positive[order]
    first = np.ones(len(order), bool)
    np.not_equal(distinct[1:], distinct[:-1], out=first[1:])
    if not first.all():
        starts = np.flatnonzero(first)
        distinct = distinct[starts]
        weight, positive = np.add.reduceat(weight, starts), np.add.reduceat(positive, starts)
    return {"scores": distinct, "weight": weight, "positive": positive}


def _gather(
    cells: Cells | None,
    wanted: np.ndarray | None,
    scores: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
) -> Sums:
    """Return the distinct scores in some cells, or all of them, with their sums."""
    if cells is not None and wanted is not None:
        rows = np.flatnonzero(wanted[cells.place(scores)])
        scores, y, weights = scores[rows], y[rows], weights[rows]
    return _merge(np.argsort(scores), scores, weights, weights * y)


def _join(most: int | None, first: Sums, second: Sums) -> Sums:
    """Merge distinct scores, of which there are at most one more than ``most``."""
    joined = {name: np.concatenate([own, second[name]]) for name, own in first.items()}
    merged = _merge(np.argsort(joined["scores"], kind="stable"), **joined)
    return merged if most is None else {name: own[: most + 1] for name, own in merged.items()}


def _count(
    cells: Cells, ends: bool, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> Sums:
    """Return sums over the rows in each cell, with their number and ``ends`` if these matter."""
    place, count = cells.place(scores), cells.count
    sums = {
        "weight": np.bincount(place, weights, count),
        "positive": np.bincount(place, weights * y, count),
    }
    if ends:
        lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(lowest, place, scores)
        np.maximum.at(highest, place, scores)
        sums |= {"rows": np.bincount(place, minlength=count), "lowest": lowest, "highest": highest}
    return sums


def _score_sums(cells: Cells, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Sums:
    return {"scores": np.bincount(cells.place(scores), weights * scores, cells.count)}


def _add_counts(first: Sums, second: Sums) -> Sums:
    merged = {name: own + second[name] for name, own in first.items()}
    merged["lowest"] = np.minimum(first["lowest"], second["lowest"])
    merged["highest"] = np.maximum(first["highest"], second["highest"])
    return merged
