"""Folds for cross-validation that depend on the content of rows, not on their order.

Rows with equal scores are one *cell*. The units of weight of a cell, each with its label, are dealt
to the folds in turn, in random order, so a cell with more than one unit is never held out whole. A
fit without a fold thus still knows every frequent score, and the held-out labels of a score are a
random sample. Two shortcuts would be wrong. If a cell went to one fold, fits would be judged by
scores that they never saw. If the units of each label of a cell were dealt separately, the held-out
proportions of labels would copy those of the fit, and overfitting would not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, X, XArray, matmul, namespace
from bayescal._core.numerics import FLOOR
from bayescal._core.shapes import Float, Int
from bayescal.data.order.classes import bounded, canonical_order
from bayescal.data.order.equal_rows import distinct_rows, is_first

#: Keys that differ by less than this, relative to their size, form one cell: a classifier's scores
#: of a row may vary in their last digits with the rest of its batch.
_ROUNDING = 1e-8
#: Maximum number of units that are dealt: NumPy does not draw from larger populations.
_MAX_UNITS = 10**8
#: Binary digits to which positions within a label's weight in a cell are rounded.
_POSITION_BITS = 40


@dataclass(frozen=True)
class FoldedRows:
    """Rows with one fold each.

    Equal rows with equal labels are merged into one entry for each fold that holds some of their
    weight.
    """

    #: The row that each entry copies.
    index: Int[np.ndarray, " entries"]
    #: The fold of each entry.
    fold: Int[np.ndarray, " entries"]
    weights: Float[np.ndarray, " entries"]
    #: The set of equal rows of each entry. Sets are sorted by content.
    members: Int[np.ndarray, " entries"]
    #: The set of each input row.
    sets: Int[np.ndarray, " rows"]

    @property
    def count(self) -> int:
        """The number of folds."""
        return int(self.fold.max()) + 1

    def take(self, scores: X, y: np.ndarray) -> tuple[X, np.ndarray, np.ndarray]:
        """Select the scores, labels and weights of the entries."""
        if self.sets is self.members:
            return scores, y, self.weights
        return scores[self.index], y[self.index], self.weights

    def representatives(self) -> tuple[np.ndarray, np.ndarray]:
        """Return one row (s,) of each set, and the weight (s,) of the set."""
        first = np.unique(self.members, return_index=True)[1]
        return self.index[first], np.bincount(self.members, self.weights)

    def of_rows(self, values: np.ndarray) -> np.ndarray:
        """Average values (m,) of entries over the entries of each input row: (n,)."""
        if self.sets is self.members:
            return values  # the entries are the rows
        total = np.bincount(self.members, self.weights)
        return (np.bincount(self.members, self.weights * values) / total)[self.sets]


def fold_scores(
    scores: XArray,
    y: np.ndarray,
    weights: np.ndarray,
    count: int,
    *,
    probabilities: bool = False,
    stratify: bool = True,
) -> FoldedRows:
    """Deal rows of scores (n, k), or of log odds (n,), to folds.

    The folds depend neither on the order of rows nor on that of classes, and a row of weight 2
    counts as two rows. Labels (n,) are positions among the classes; scores are NumPy's or JAX's.
    See :func:`deal_rows`.

    Weights are positive. There are fewer than ``count`` folds if the rows have fewer units. The
    logarithms of ``probabilities`` distinguish confident rows. With ``stratify``, rows that are
    alone in their cell are dealt class by class.

    Examples
    --------
    >>> import numpy as np
    >>> scores, y = np.array([0.1, 0.5, 0.1, 0.7, 0.9]), np.array([0, 1, 0, 1, 1])
    >>> folds = fold_scores(scores, y, np.ones(5), 2)
    >>> folds.count, np.bincount(folds.fold, folds.weights).tolist()
    (2, [3.0, 2.0])
    """
    xp = namespace(scores)
    if scores.ndim == 1:
        scores = xp.stack([-scores, scores], axis=1) / 2
    values = xp.log(xp.maximum(scores, FLOOR)) if probabilities else scores
    order = canonical_order(values, y, weights)
    key = np.asarray(score_keys(values, order))
    return deal_rows(key, scores, np.argsort(order)[y], weights, count, stratify)


def fold_features(x: np.ndarray, y: np.ndarray, weights: np.ndarray, count: int) -> FoldedRows:
    """Deal rows of features (n, d) to folds, stratified by labels (n,); see :func:`fold_scores`."""
    size = np.abs(x).max(axis=0, initial=0)
    scaled = bounded(x) / np.where(size > 0, size, 1.0)
    key = scaled @ np.sqrt(np.arange(1, x.shape[1] + 1))
    # Order the classes independently of their names.
    codes = np.unique(y, return_inverse=True)[1].reshape(-1)
    share = weights / weights.sum()
    size = np.bincount(codes, share)
    center = np.bincount(codes, share * key) / size
    rank = np.argsort(np.lexsort((size.round(10), center.round(10))))
    return deal_rows(key, x, rank[codes], weights, count)


def score_keys(scores: XArray, order: XArray) -> AnyArray:
    """Combine the scores (n, k) of each row in a canonical order of the classes: (n,)."""
    return matmul(bounded(scores)[:, order], np.sqrt(np.arange(1, scores.shape[1] + 1)))


def deal_rows(
    key: np.ndarray,
    rows: AnyArray,
    label: np.ndarray,
    weights: np.ndarray,
    count: int,
    stratify: bool = True,
) -> FoldedRows:
    """Deal the units of each cell's weight to the folds in turn, in random order.

    Rows (n, d) with equal keys (n,) are one cell. Labels (n,) are numbers whose order depends only
    on the content of the classes. A unit is 1 if all weights are integers, so that a weight is a
    count of rows; otherwise it is the mean weight. A cell of a single unit is left out whole; such
    cells are dealt class by class if folds are to be stratified. Of any other cell the folds get
    equal numbers of units, give or take one, and the labels of these units are random: their counts
    have the multivariate hypergeometric distribution. O(n (k + log n)) time; O(n) memory, and an
    entry for each fold of rows that are repeated or weigh more than a unit.
    """
    cells = _find_cells(key, rows, label, weights)
    rng = np.random.default_rng(0)
    entries = _deal(cells, rng, count, stratify)
    if len(cells.row) == len(label) and (np.bincount(entries.set) == 1).all():
        # Every row has one fold, so rows keep their order.
        fold, sets = np.empty(len(label), int), np.empty(len(label), int)
        fold[cells.row[entries.set]], sets[cells.row] = entries.fold, np.arange(len(label))
        return FoldedRows(np.arange(len(label)), fold, weights.astype(float), sets, sets)
    set_of_row = np.empty(len(label), int)
    set_of_row[cells.order] = cells.set_of_ordered
    return FoldedRows(
        cells.row[entries.set], entries.fold, entries.weights, entries.set, set_of_row
    )


class _Cells(NamedTuple):
    """Sets of equal rows with equal labels, in the order of cells, and of labels within a cell."""

    #: Rows (n,) in the order of cells, labels and sets, and the set of each of these.
    order: np.ndarray
    set_of_ordered: np.ndarray
    #: For each set (s,): one of its rows, its weight, and its outcome, a label within a cell.
    row: np.ndarray
    weights: np.ndarray
    outcome: np.ndarray
    #: For each outcome (o,): its cell, the rank of its label, its weight, and its units.
    cell: np.ndarray
    label: np.ndarray
    outcome_weights: np.ndarray
    units: np.ndarray


class _Entries(NamedTuple):
    set: np.ndarray
    fold: np.ndarray
    weights: np.ndarray


def _find_cells(key: np.ndarray, rows: XArray, label: np.ndarray, weights: np.ndarray) -> _Cells:
    by_key = np.argsort(key, kind="stable")
    ordered = key[by_key]
    unit = min(1.0, float(np.abs(key).max(initial=0)))
    distinct = ~(np.diff(ordered) <= _ROUNDING * (unit + np.abs(ordered[1:])))
    cell = np.empty(len(label), int)
    cell[by_key] = np.concatenate([[0], np.cumsum(distinct)])
    order, equal = by_key, np.zeros(len(label), int)
    if not distinct.all():
        together = np.flatnonzero(np.bincount(cell)[cell] > 1)
        repeated = rows[together]
        equal[together] = distinct_rows(repeated if repeated.ndim == 2 else repeated[:, None])[1]
        order = np.lexsort((equal, label, cell))
    cell, label, equal, weights = (a[order] for a in (cell, label, equal, weights))
    new_outcome = is_first(cell) | is_first(label)
    new_set = new_outcome | is_first(equal)
    starts, set_starts = np.flatnonzero(new_outcome), np.flatnonzero(new_set)
    total = np.add.reduceat(weights, starts)
    if (weights == np.floor(weights)).all():
        units = total
    else:
        # Sums of weights carry rounding errors.
        units = np.maximum(1, np.floor(total / weights.mean() + 1e-9))
    return _Cells(
        order,
        np.cumsum(new_set) - 1,
        order[set_starts],
        np.add.reduceat(weights, set_starts),
        np.cumsum(new_outcome)[set_starts] - 1,
        np.cumsum(is_first(cell[starts])) - 1,
        label[starts],
        total,
        units,
    )


def _deal(cells: _Cells, rng: np.random.Generator, count: int, stratify: bool) -> _Entries:
    cell_units = np.bincount(cells.cell, cells.units)
    count = int(max(1, min(count, cell_units.sum())))
    single = cell_units[cells.cell] == 1
    alone, several = np.flatnonzero(single), np.flatnonzero(~single)
    alone = rng.permutation(alone)
    if stratify:
        alone = alone[np.argsort(cells.label[alone], kind="stable")]
    fold_of_alone = np.arange(len(alone)) % count
    table = deal_units(cells.cell[several], cells.units[several], len(alone), count, rng)
    outcome, fold, share = _entries_of_table(table)
    outcome = several[outcome]
    # Almost all outcomes consist of one set.
    first = np.flatnonzero(is_first(cells.outcome))
    lone = np.diff(np.append(first, len(cells.outcome))) == 1
    single_set = lone[outcome]
    entries = [
        _Entries(first[alone], fold_of_alone, cells.weights[first[alone]]),
        _Entries(
            first[outcome[single_set]],
            fold[single_set],
            cells.outcome_weights[outcome[single_set]] * share[single_set],
        ),
    ]
    # Other rows of cells of a single unit equal its first row up to rounding.
    fold_of_outcome = np.full(len(first), -1)
    fold_of_outcome[alone] = fold_of_alone
    fold_of_set = fold_of_outcome[cells.outcome]
    fold_of_set[first] = -1
    others = np.flatnonzero(fold_of_set >= 0)
    if len(others):
        entries.append(_Entries(others, fold_of_set[others], cells.weights[others]))
    mixed = several[~lone[several]]
    if len(mixed):
        entries.append(_divide(cells, mixed, first, table[~lone[several]]))
    return _Entries(*(np.concatenate(parts) for parts in zip(*entries, strict=True)))


def deal_units(
    cell: np.ndarray, units: np.ndarray, start: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw the units (o, count) of each outcome in each fold.

    Cells (o,) are sorted. The folds are filled in turn, cell by cell in random order, from fold
    ``start`` on.
    """
    if not len(cell):
        return np.zeros((0, count), int)
    begins = np.flatnonzero(is_first(cell))
    sizes = np.diff(np.append(begins, len(cell)))
    total = np.add.reduceat(units, begins)
    shrink = np.maximum(total / _MAX_UNITS, 1)
    units = np.maximum(1, np.round(units / np.repeat(shrink, sizes))).astype(np.int64)
    total = np.add.reduceat(units, begins)
    turn = rng.permutation(len(begins))
    offset = np.empty(len(begins), np.int64)
    offset[turn] = (start + np.cumsum(total[turn]) - total[turn]) % count
    folds = np.arange(count)
    one_more = (folds - offset[:, None]) % count < total[:, None] % count
    remaining = total[:, None] // count + one_more
    table = np.zeros((len(cell), count), np.int64)
    for rank in range(int(sizes.max())):
        selected = np.flatnonzero(sizes > rank)
        outcome = begins[selected] + rank
        wanted = units[outcome].copy()
        for fold in range(count):
            available = remaining[selected, fold]
            later = remaining[selected, fold + 1 :].sum(axis=1)
            drawn = rng.hypergeometric(available, later, wanted) if fold < count - 1 else wanted
            table[outcome, fold] = drawn
            remaining[selected, fold] -= drawn
            wanted = wanted - drawn
    return table


def _entries_of_table(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """List the nonzero entries: row, column, and proportion of the sum of the row."""
    row, fold = np.nonzero(table)
    return row, fold, table[row, fold] / table.sum(axis=1)[row]


def _divide(cells: _Cells, mixed: np.ndarray, first: np.ndarray, table: np.ndarray) -> _Entries:
    """Divide the units of outcomes that several sets share: rows that are equal but for rounding.

    The weights of the sets of an outcome form consecutive intervals, as do the units of its folds.
    """
    ends = np.append(first[1:], len(cells.outcome))[mixed]
    sizes = ends - first[mixed]
    sets = np.repeat(first[mixed] - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    number = np.repeat(np.arange(len(mixed)), sizes)
    whole = 1 << _POSITION_BITS

    def positions(number: np.ndarray, parts: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Compute the ends of intervals as integers; those of outcome j are from j to j + 1."""
        begins = np.flatnonzero(is_first(number))
        summed = np.cumsum(parts)
        summed -= np.repeat(summed[begins] - parts[begins], np.diff(np.append(begins, len(parts))))
        inside = np.round(summed / total[number] * whole).astype(np.int64)
        return number * whole + np.minimum(inside, whole)

    set_ends = positions(number, cells.weights[sets], cells.outcome_weights[mixed])
    row, fold = np.nonzero(table)
    fold_ends = positions(row, table[row, fold].astype(float), table.sum(axis=1))
    ends = np.unique(np.concatenate([set_ends, fold_ends]))
    lengths = np.diff(ends, prepend=0)
    # Rounding errors of a set are not entries, unless they are all that remains of the set.
    ends, lengths = ends[lengths > 16], lengths[lengths > 16]
    part = np.minimum(np.searchsorted(set_ends, ends), len(set_ends) - 1)
    weights = lengths / whole * cells.outcome_weights[mixed][number[part]]
    missing = np.setdiff1d(np.arange(len(sets)), part)
    part, ends = np.concatenate([part, missing]), np.concatenate([ends, set_ends[missing]])
    weights = np.concatenate([weights, cells.weights[sets[missing]]])
    fold_index = np.minimum(np.searchsorted(fold_ends, ends), len(fold_ends) - 1)
    return _Entries(sets[part], fold[fold_index], weights)
