"""Columns of groups: labels as levels, numbers cut at quantiles, and crossings of columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import UserData
from bayescal._core.shapes import Int
from bayescal.data.checks import check_unmasked
from bayescal.data.label_names import as_array, column_names

#: Numeric columns with at most this many distinct values have a level for each value.
FEW_VALUES = 8
#: Crossings with more levels than this are omitted.
MOST_CROSSED = 1000
UNKNOWN = -1
_DATES = date, np.datetime64


class Column(NamedTuple):
    """Mapping from the values of a column to levels: a table of labels, or cuts of numbers.

    The level of a number is the count of cuts below it, so that bins are (lower, upper]; the last
    level is that of NaN.
    """

    levels: dict[object, int] | None
    cuts: np.ndarray | None

    @property
    def size(self) -> int:
        return len(self.cuts) + 2 if self.cuts is not None else len(self.levels or ())

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Find the level (n,) of each value, or -1 for labels that were not in the fit.

        Raise if one has the text of a label of another type in the fit, such as "1" and 1.
        """
        if self.cuts is not None:
            try:
                if values.dtype.kind == "O":
                    values = np.array([*map(_label, values.tolist())], object)
                numbers = values.astype(float)
            except (TypeError, ValueError) as error:
                raise ValueError(f"groups must be numbers as in the fit: {error}") from None
            codes = np.searchsorted(self.cuts, numbers)
            return np.where(np.isnan(numbers), len(self.cuts) + 1, codes)
        labels, index = _distinct(values)
        levels = self.levels or {}
        if values.dtype.kind == "M" or any(isinstance(label, _DATES) for label in labels):
            # Dates are equal in all types and units; their texts are not.
            labels = [*map(_shortest, labels)]
            levels = {_shortest(label): code for label, code in levels.items()}
        codes = np.array([levels.get(label, UNKNOWN) for label in labels], np.intp)
        if (codes == UNKNOWN).any():
            texts = {str(level): level for level in levels if level is not None}
            for label, code in zip(labels, codes, strict=True):
                if code == UNKNOWN and label is not None and str(label) in texts:
                    raise ValueError(
                        f"groups must have labels of the same type as in the fit, got {label!r} in "
                        f"place of {texts[str(label)]!r}"
                    )
        return codes[index]

    def names(self) -> list[object]:
        """Name the levels: labels, and bounds of numbers."""
        if self.cuts is None:
            return list(self.levels or ())
        ends = [f"{cut:.4g}" for cut in self.cuts]
        if not ends:
            return ["all", "missing"]
        inner = [f"({low}, {high}]" for low, high in pairwise(ends)]
        return [f"<= {ends[0]}", *inner, f"> {ends[-1]}", "missing"]


class Grouping(NamedTuple):
    """Columns that are crossed, by position, and the sorted keys of the levels of the fit."""

    columns: tuple[int, ...]
    keys: np.ndarray

    def codes(
        self, by_column: Int[np.ndarray, "columns rows"], counts: Sequence[int]
    ) -> Int[np.ndarray, " rows"]:
        """Find levels (m,) from those of all columns (columns, m); -1 if not in the fit."""
        keys = self.keys_of(by_column, counts)
        positions = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = (self.keys[positions] == keys) & (by_column[list(self.columns)] >= 0).all(axis=0)
        return np.where(known, positions, UNKNOWN)

    def keys_of(
        self, by_column: Int[np.ndarray, "columns rows"], counts: Sequence[int]
    ) -> Int[np.ndarray, " rows"]:
        """Make a key (m,) of each combination of levels."""
        shape = [counts[column] for column in self.columns]
        keys = np.zeros(by_column.shape[1], np.int64)
        for column, count in zip(self.columns, shape, strict=True):
            keys = keys * count + by_column[column]
        return keys

    def levels(self, columns: Sequence[Column]) -> list[tuple[object, ...]]:
        """Name each level of the fit by the levels of its columns."""
        shape = [columns[column].size for column in self.columns]
        names = [columns[column].names() for column in self.columns]
        codes = np.unravel_index(self.keys, shape)
        rows = zip(*(c.tolist() for c in codes), strict=True)
        return [tuple(names[i][level] for i, level in enumerate(row)) for row in rows]


def read_columns(groups: UserData, n: int) -> tuple[list[np.ndarray], list[object] | None]:
    """Read columns (n,) of groups of n rows, and their names if they come from a data frame."""
    check_unmasked(groups, "groups")
    names = column_names(groups)
    if names is not None and len(getattr(groups, "shape", ())) == 2:
        if len(set(map(str, names))) < len(names):
            raise ValueError(f"groups must have different names, got {names}")
        columns = [as_array(groups[name]) for name in names]
    else:
        array = groups if hasattr(groups, "shape") else np.array(groups, object)
        array = as_array(array)
        if array.ndim not in (1, 2):
            raise ValueError(f"groups must have shape (n,) or (n, g), got {array.shape}")
        columns = [array] if array.ndim == 1 else list(array.T)
    columns = [_as_numbers(column) for column in columns]
    if not columns or any(len(column) != n for column in columns):
        rows = len(columns[0]) if columns else 0
        raise ValueError(f"groups must have {n} rows to match the scores, got {rows}")
    return columns, names


def same_columns(
    groups: object, n: int, names: list[object] | None, count: int
) -> list[np.ndarray]:
    """Read the columns of a fit, in its order; columns of data frames are matched by name."""
    columns, given = read_columns(groups, n)
    if given is not None and names is not None:
        positions = {str(name): position for position, name in enumerate(given)}
        missing = [name for name in names if str(name) not in positions]
        if missing:
            raise ValueError(f"groups must have the columns {names} of the fit, got {given}")
        return [columns[positions[str(name)]] for name in names]
    if len(columns) != count:
        raise ValueError(f"groups must have {count} columns as in the fit, got {len(columns)}")
    return columns


def make_column(values: np.ndarray, weights: np.ndarray, bins: int) -> Column:
    """Make levels of a column: a level for each label; numbers are cut at quantiles."""
    if values.dtype.kind != "f":
        labels, _ = _distinct(values)
        return Column({label: code for code, label in enumerate(labels)}, None)
    known = ~np.isnan(values)
    order = np.argsort(values[known])
    numbers, mass = values[known][order], weights[known][order]
    distinct = np.unique(numbers)
    if len(distinct) <= FEW_VALUES:
        return Column(None, _between(distinct, np.arange(len(distinct) - 1)))
    # The smallest number that at least this proportion of the weight does not exceed.
    below = np.cumsum(mass) / mass.sum()
    positions = np.searchsorted(below, np.arange(1, bins) / bins - 1e-12)
    lower = np.unique(np.searchsorted(distinct, numbers[positions]))
    return Column(None, _between(distinct, lower[lower < len(distinct) - 1]))


def _between(values: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Compute cuts halfway from sorted values to the next ones, so that rounding moves no value."""
    middle = values[lower] / 2 + values[lower + 1] / 2
    return np.where(np.isfinite(middle), middle, values[lower])


def cross(
    by_column: np.ndarray, counts: Sequence[int], interactions: int
) -> tuple[list[Grouping], np.ndarray]:
    """Choose groupings, and find the level (groupings, n) of each row or cell.

    Groupings are single columns, and crossings of up to ``interactions`` columns.
    """
    groupings, codes = [], []
    for size in range(1, interactions + 1):
        for columns in combinations(range(len(counts)), size):
            if np.prod([float(counts[column]) for column in columns]) > 2.0**62:
                continue
            keys = Grouping(columns, np.empty(0)).keys_of(by_column, counts)
            distinct, code = np.unique(keys, return_inverse=True)
            if size == 1 or len(distinct) <= MOST_CROSSED:
                groupings.append(Grouping(columns, distinct))
                codes.append(code)
    return groupings, np.stack(codes)


def number_cells(
    codes: Int[np.ndarray, "groupings rows"],
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " cells"]]:
    """Find distinct columns of codes (q, n): the cell (n,) of each row, and a row of each cell."""
    n, size = codes.shape[1], 1
    cell = np.zeros(n, np.intp)
    for row in codes:
        low = row.min(initial=0)
        width = int(row.max(initial=0) - low) + 1
        keys = cell * width + (row - low)
        if size * width > 4 * n + 1000:
            cell = np.unique(keys, return_inverse=True)[1]
            size = int(cell.max(initial=-1)) + 1
            continue
        # If there are at most as many keys as rows, sorting is unnecessary.
        present = np.zeros(size * width, bool)
        present[keys] = True
        cell = (np.cumsum(present) - 1)[keys]
        size = int(np.count_nonzero(present))
    first = np.empty(size, np.intp)
    first[cell[::-1]] = np.arange(n)[::-1]
    return cell, first


def _distinct(values: np.ndarray) -> tuple[list[object], np.ndarray]:
    """Find the sorted distinct labels (None if missing) and their indices."""
    if values.dtype.kind == "M":
        texts = np.datetime_as_string(values).astype(object)
        texts[np.isnat(values)] = None
        values = texts
    if values.dtype.kind != "O":
        labels, index = np.unique(values, return_inverse=True)
        return [_label(label) for label in labels.tolist()], index
    numbers: dict[object, int] = {}
    rows = values.tolist()
    try:
        codes = {
            value: numbers.setdefault(_label(value), len(numbers)) for value in dict.fromkeys(rows)
        }
    except TypeError as error:
        raise TypeError(f"groups must hold hashable labels: {error}") from None
    index = np.fromiter(map(codes.__getitem__, rows), np.intp, len(rows))
    labels = sorted(numbers, key=lambda label: (type(label).__name__, str(label)))
    position = np.empty(len(labels), np.intp)
    position[[numbers[label] for label in labels]] = np.arange(len(labels))
    return labels, position[index]


def _shortest(label: object) -> object:
    """Return the shortest text of a date, in UTC, or the label if it is none."""
    if isinstance(label, datetime) and label.tzinfo is not None:
        label = label.astimezone(UTC).replace(tzinfo=None)
    if not isinstance(label, _DATES) and not (isinstance(label, str) and label[:1].isdigit()):
        return label
    try:
        return str(np.datetime_as_string(np.datetime64(label), "auto"))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return label


def _as_numbers(column: np.ndarray) -> np.ndarray:
    """Convert objects that are all numbers, some of them floats, to an array of floats."""
    if column.dtype.kind != "O":
        return column
    kinds = set(map(type, column))
    return column.astype(float) if float in kinds <= {float, int} else column


def _label(value: object) -> object:
    """Return a label, or None if it is missing: NaN, or NA or NaT of pandas."""
    if isinstance(value, float) and value != value:
        return None
    return None if type(value).__name__ in ("NAType", "NaTType") else value
