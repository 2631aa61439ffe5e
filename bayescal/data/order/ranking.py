"""Order of rows by score: tied rows are merged, and borders are placed between scores."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.binning import SINGLE, TIE, begins_score, is_single, single_beyond
from bayescal.data.blocks.reader import RowBlocks
from bayescal.data.order.cells import Cells, covered, even_cells, quantile_cells, relative_cells
from bayescal.data.rows import Rows, Source, Sums

#: Rows in memory that are sorted at once; more rows are counted in cells, with this mean number of
#: rows in a cell.
_MAX_SORTED_ROWS = 20_000
_ROWS_PER_CELL = 16
#: Maximal number of distinct scores of rows in blocks that are held, and of cells.
_MAX_DISTINCT, _MAX_CELLS = 1 << 22, 1 << 20


def middles(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Compute borders half-way between scores, always below the upper score.

    Examples
    --------
    >>> import numpy as np
    >>> middles(np.array([1.0, 1.0]), np.array([2.0, np.nextafter(1, 2)])).tolist()
    [1.5, 1.0]
    """
    middle = np.clip(below / 2 + above / 2, below, above)
    return np.where(middle < above, middle, below)


def single_middles(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Compute borders half-way between scores, rounded up to single precision if possible.

    Scores in single and in double precision are then on the same side of a border.
    """
    middle = middles(below, above)
    single = single_beyond(middle, np.inf)
    lowest = np.where(is_single(below) & is_single(above), below, middle)
    with np.errstate(over="ignore"):
        exact = middle.astype(np.float16) == middle
    return np.where(exact, middle, np.where(single < above, single, lowest))


#: Halvings of an interval until it has no inner number.
_BISECTIONS = 70


class Groups(NamedTuple):
    """Groups of rows (g,) in ascending order of scores; no score is in two groups.

    Scores that are equal up to rounding are in one group; see ``begins_score``.
    """

    #: Smallest and largest score; unknown (NaN) if ``whole`` and all rows are in memory.
    lowest: np.ndarray
    highest: np.ndarray
    #: Sums of weights of all rows and of rows of class 1.
    weight: np.ndarray
    positive: np.ndarray
    #: Whether the group is a whole cell of a :class:`Ranking` instead of a single score.
    whole: np.ndarray


def distinct_scores(rows: Source, name: str) -> Groups:
    """Find all distinct scores, in one pass over blocks.

    If rows in blocks have too many, an error says so and names the calibrator ``name``.

    Examples
    --------
    >>> import numpy as np
    >>> rows = Rows(np.array([2.0, 1.0, 2.0]), np.array([1, 0, 0]), np.ones(3))
    >>> groups = distinct_scores(rows, "Isotonic")
    >>> groups.lowest.tolist(), groups.weight.tolist(), groups.positive.tolist()
    ([1.0, 2.0], [1.0, 2.0], [0.0, 1.0])
    """
    groups = _singles(rows.total(partial(_gather, None, None), partial(_join, _MAX_DISTINCT)))
    if isinstance(rows, RowBlocks) and len(groups.weight) > _MAX_DISTINCT:
        raise ValueError(
            f"scores in blocks must have at most {_MAX_DISTINCT:,} distinct values to fit {name}, "
            "got more; round them, or use Isotonic or Auto"
        )
    return _merge_near(groups)[0]


def merged_rows(rows: Source, name: str) -> Rows:
    """Return all rows in memory; rows in blocks are merged by score and label.

    Of scores that are equal up to rounding, the one closest to 0 or 1 is taken.
    """
    if isinstance(rows, Rows):
        return rows
    groups = distinct_scores(rows, name)
    negative = groups.weight - groups.positive
    scores = np.tile(np.where(groups.lowest < 0.5, groups.lowest, groups.highest), 2)
    weights = np.concatenate([negative, groups.positive])
    used = weights > 0
    return Rows(scores[used], np.repeat([0, 1], len(negative))[used], weights[used])


class Ranking:
    """Rows in ascending order of scores, sorted only where needed.

    Many rows are first counted in cells, in O(n), and :meth:`refine` sorts the rows of selected
    cells. Few rows, and scores whose range cannot be divided, are sorted at once. ``groups`` are
    the distinct scores of sorted cells, and all other cells.

    Cells in memory have equal width. Cells of blocks are finer where scores are dense, and each
    step is a pass. Up to 2**22 rows are sorted at once. If the selected cells contain more rows,
    they are first divided, down to 2**-21 of their width.
    """

    def __init__(
        self,
        rows: Source,
        at_once: bool = False,
        probabilities: bool = False,
        log_odds: bool = False,
    ) -> None:
        """Count rows in cells; ``at_once`` sorts all rows in memory.

        Cells of ``probabilities`` in memory have high resolution close to 0 and 1, and only equal
        ones are merged. ``log_odds`` are those of given probabilities.
        """
        self._tied = _alone if probabilities else partial(_merge_near, log_odds=log_odds)
        self._rows = rows
        self._single = _singles(_EMPTY_SUMS)
        self._cells: Cells | None = None
        if isinstance(rows, RowBlocks):
            if rows.n > _MAX_DISTINCT:
                count = min(_MAX_CELLS, rows.n // _ROWS_PER_CELL)
                self._cells = quantile_cells(rows.sample.scores, rows.low, rows.high, count)
        elif not at_once and rows.n > _MAX_SORTED_ROWS:
            make_cells = relative_cells if probabilities else even_cells
            self._cells = make_cells(rows.all().scores, rows.n / _ROWS_PER_CELL)
        if self._cells is None:
            self._single = self._distinct_in(None)
            self.groups, _ = self._tied(self._single)
            return
        self._sorted = np.zeros(self._cells.count, bool)
        self._count()

    def refine(self, mask: np.ndarray) -> None:
        """Sort the rows of the cells in ``mask`` (groups,), or divide these if rows are many."""
        cells = self._cells
        assert cells is not None
        names = self._names[mask & self.groups.whole]
        if "rows" in self._sums:
            held = self._sums["rows"][names].sum() + len(self._single.weight)
            most = min(2 * _MAX_CELLS, int(held))
            finer = cells.divided(names, most) if held > _MAX_DISTINCT else None
            if finer is not None:
                self._cells, parent = finer
                self._sorted = self._sorted[parent]
                self._count()
                return
        wanted = np.zeros(cells.count, bool)
        wanted[names] = True
        groups = self._distinct_in(wanted)
        self._sorted |= wanted
        joined = [np.concatenate(pair) for pair in zip(self._single, groups, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        self._single = Groups(*(column[order] for column in joined))
        self._assemble()

    def mark_near(self, mask: np.ndarray, reach: float) -> np.ndarray:
        """Mark the groups in ``mask``, and cells that may hold scores within reach of theirs."""
        scores = self.groups.lowest[mask & ~self.groups.whole]
        if self._cells is None or not len(scores):
            return mask
        first, last = self._cells.assign(scores - reach), self._cells.assign(scores + reach)
        first = np.searchsorted(self._names, first)
        last = np.searchsorted(self._names, last, "right")
        return mask | covered(first, last, len(mask))

    def score_sums(self) -> np.ndarray:
        """Sum weights times scores over each group (g,), in a pass if some are cells."""
        groups = self.groups
        sums = groups.weight * groups.lowest
        if self._cells is None or not groups.whole.any():
            return sums
        cell_sums = self._rows.total(partial(_score_sums, self._cells))["scores"]
        return np.where(groups.whole, cell_sums[self._names], sums)

    def range_of(self, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the smallest score of groups ``first`` (m,) and the largest of groups ``last`` (m,).

        Where it is unknown, it is the one that the group's cell could hold.
        """
        lowest, highest = self.groups.lowest[first], self.groups.highest[last]
        for result, groups, upper in ((lowest, first, False), (highest, last, True)):
            unknown = np.isnan(result)
            if unknown.any():
                result[unknown] = self._cell_end(self._names[groups[unknown]], upper)
        return lowest, highest

    def _cell_end(self, names: np.ndarray, upper: bool) -> np.ndarray:
        """Find the smallest or the largest number that each cell could hold."""
        cells = self._cells
        assert cells is not None
        low, high = (np.full(len(names), end) for end in self._rows.ends)
        for _ in range(_BISECTIONS):
            middle = low + (high - low) / 2
            cell = cells.assign(middle)
            left = cell <= names if upper else cell < names
            low, high = np.where(left, middle, low), np.where(left, high, middle)
        return low if upper else high

    def _distinct_in(self, wanted: np.ndarray | None) -> Groups:
        """Find the distinct scores in the marked cells (cells,), or in all cells."""
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
        """Merge the single scores and the unsorted cells into groups."""
        assert self._cells is not None
        cells = np.flatnonzero(~self._sorted)
        unsorted = {name: value[cells] for name, value in self._sums.items()}
        lowest = unsorted.get("lowest", np.full(len(cells), np.nan))
        highest = unsorted.get("highest", lowest)
        # A cell with a single score needs no sorting.
        whole = ~(lowest == highest)
        groups = Groups(lowest, highest, unsorted["weight"], unsorted["positive"], whole)
        names = np.concatenate([self._cells.assign(self._single.lowest), cells])
        order = np.argsort(names, kind="stable")
        pairs = zip(self._single, groups, strict=True)
        self.groups, starts = self._tied(Groups(*(np.concatenate(pair)[order] for pair in pairs)))
        self._names = names[order][starts]


def equal_scores(
    lowest: np.ndarray, highest: np.ndarray, probabilities: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the smallest and the largest score that count as equal to each tie.

    These are the scores of the tie, from ``lowest`` to ``highest`` (m,), and their neighbors in
    single precision, so that scores in single and in double precision tie with the same rows. For
    probabilities, those that differ by the rounding of one minus them count, too, so that exchanged
    classes have the same ties. If ties are nearly as close as that, fewer scores count: those
    that differ by the rounding of double precision, the nearer neighbors, or only the tie.
    """
    gap = lowest[1:] / 1024 - highest[:-1] / 1024
    before, after = np.append(np.inf, gap), np.append(gap, np.inf)
    below, above = [single_beyond(lowest, -np.inf)], [single_beyond(highest, np.inf)]
    if probabilities:
        below += [lowest - SINGLE, lowest - TIE]
        above += [highest + SINGLE, highest + TIE]
    first, last = lowest, highest
    for low in np.sort(below, axis=0)[::-1]:
        first = np.where(lowest - low <= before, low, first)
    for high in np.sort(above, axis=0):
        last = np.where(high - highest <= after, high, last)
    return first, last


_EMPTY_SUMS: Sums = {name: np.empty(0) for name in ("scores", "weight", "positive")}


def _singles(sums: Sums) -> Groups:
    scores = sums["scores"]
    return Groups(scores, scores, sums["weight"], sums["positive"], np.zeros(len(scores), bool))


def _alone(groups: Groups) -> tuple[Groups, slice]:
    return groups, slice(None)


def _merge_near(groups: Groups, log_odds: bool = False) -> tuple[Groups, np.ndarray | slice]:
    """Merge single scores that are equal up to rounding; also return where merged groups start."""
    scores = np.where(groups.whole, np.nan, groups.lowest) if groups.whole.any() else groups.lowest
    begins = begins_score(scores, log_odds)
    if begins.all():
        return _alone(groups)
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(begins)) - 1
    weight, positive = (np.add.reduceat(s, starts) for s in (groups.weight, groups.positive))
    ties = groups.lowest[starts], groups.highest[ends], weight, positive, groups.whole[starts]
    return Groups(*ties), starts


def _merge(order: np.ndarray, scores: np.ndarray, weight: np.ndarray, positive: np.ndarray) -> Sums:
    """Compute distinct scores and their sums of weights, given the sorting order of rows."""
    distinct, weight, positive = scores[order], weight[order], positive[order]
    first = np.ones(len(order), bool)
    np.not_equal(distinct[1:], distinct[:-1], out=first[1:])
    if not first.all():
        starts = np.flatnonzero(first)
        distinct = distinct[starts]
        weight, positive = np.add.reduceat(weight, starts), np.add.reduceat(positive, starts)
    return {"scores": distinct, "weight": weight, "positive": positive}


def _gather(cells: Cells | None, wanted: np.ndarray | None, rows: Rows) -> Sums:
    """Find the distinct scores in the marked cells, or in all cells, with their sums."""
    if cells is not None and wanted is not None:
        rows = rows.take(np.flatnonzero(wanted[cells.assign(rows.scores)]))
    scores, y, weights = rows
    return _merge(np.argsort(scores), scores, weights, weights * y)


def _join(most: int | None, first: Sums, second: Sums) -> Sums:
    """Merge distinct scores; keep at most ``most`` + 1 of them."""
    joined = {name: np.concatenate([value, second[name]]) for name, value in first.items()}
    merged = _merge(np.argsort(joined["scores"], kind="stable"), **joined)
    return merged if most is None else {name: value[: most + 1] for name, value in merged.items()}


def _count(cells: Cells, ends: bool, rows: Rows) -> Sums:
    """Sum weights over the rows in each cell; with ``ends`` also count rows and find extremes."""
    scores, y, weights = rows
    cell, count = cells.assign(scores), cells.count
    sums = {
        "weight": np.bincount(cell, weights, count),
        "positive": np.bincount(cell, weights * y, count),
    }
    if ends:
        lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(lowest, cell, scores)
        np.maximum.at(highest, cell, scores)
        sums |= {"rows": np.bincount(cell, minlength=count), "lowest": lowest, "highest": highest}
    return sums


def _score_sums(cells: Cells, rows: Rows) -> Sums:
    cell, products = cells.assign(rows.scores), rows.weights * rows.scores
    return {"scores": np.bincount(cell, products, cells.count)}


def _add_counts(first: Sums, second: Sums) -> Sums:
    merged = {name: value + second[name] for name, value in first.items()}
    merged["lowest"] = np.minimum(first["lowest"], second["lowest"])
    merged["highest"] = np.maximum(first["highest"], second["highest"])
    return merged
