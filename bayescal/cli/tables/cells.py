"""Columns of a table: lookup by name, and conversion to numbers with errors that show the cell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bayescal._core.display.tables import shorten
from bayescal.cli._errors import CommandError
from bayescal.cli.tables.files import MISSING, PLAIN, FileTable, Format, advise_sep

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_PERCENTAGE = re.compile(r"\d*[.,]?\d+ ?%")


def find_column(table: FileTable, name: str, option: str) -> int:
    """Return the index of a column; ``option`` is the option that named it."""
    names = [column.strip() for column in table.header]
    count = names.count(name.strip())
    if count != 1:
        problem = "no column" if count == 0 else f"{count} columns"
        raise CommandError(
            f"{table.path}: {problem} named {shorten(name)!r} ({option}); the columns are "
            f"{enumerate_names(names)}{advise_sep(names)}"
        )
    return names.index(name.strip())


def numeric_column(table: FileTable, name: str, option: str) -> np.ndarray:
    """Return the column that an option named as finite numbers (n,), or NaN to be skipped."""
    index = find_column(table, name, option)
    parse = replace(
        table.form, skip_missing=table.form.skip_missing and option != "--weights"
    ).parse
    cells = [row[index] for row in table.rows]
    if table.form.decimal == "." and not table.form.percent:
        with contextlib.suppress(ValueError):
            values = np.array([*map(float, cells)])
            if np.isfinite(values).all() and not any("_" in cell for cell in cells):
                return values
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            values[i] = parse(cell)
        except ValueError:
            advice = advise(cell, table.form, option)
            raise CommandError(
                f"{table.path}: column {shorten(name)!r} must hold finite numbers, got "
                f"{shorten(cell)!r} in {table.position(i)}{advice and f'; {advice}'}"
            ) from None
    return values


def is_number(cell: str, form: Format = PLAIN) -> bool:
    """Whether a cell is a finite number."""
    try:
        return np.isfinite(form.parse(cell)).item()
    except ValueError:
        return False


def describe_text(table: FileTable, name: str, option: str) -> tuple[str, str]:
    """Describe a column without numbers by a cell, and how it could be read, or an empty text."""
    index = [column.strip() for column in table.header].index(name)
    cell = next((row[index] for row in table.rows if row[index].strip()), "")
    held = f"column {shorten(name)!r} holds {shorten(cell)!r}, which is not a number"
    return held, advise(cell, table.form, option) if cell else ""


def advise(cell: str, form: Format, option: str) -> str:
    """Suggest how to read a cell that is not a number, if there is a way."""
    cell = cell.strip()
    comma, point = _DECIMAL_COMMA.fullmatch(cell), _DECIMAL_POINT.fullmatch(cell)
    if form.decimal == "." and _THOUSANDS.fullmatch(cell):
        return "for decimal commas pass --decimal ,; commas between thousands must be removed"
    if form.decimal == "." and comma:
        return "for decimal commas pass --decimal ,"
    if form.decimal == "," and point:
        return "for decimal points leave out --decimal"
    if not form.percent and _PERCENTAGE.fullmatch(cell) and option in ("--model", "--columns"):
        more = " and --decimal ," if "," in cell and form.decimal == "." else ""
        return f"for percentages pass --inputs percent{more}"
    if re.match(r"[\[({]", cell):
        return "write one number in each cell, with a column for each class"
    if cell.lower() in MISSING and not form.skip_missing and option in ("--model", "--columns"):
        return "pass --skip-missing to skip rows without scores"
    return ""


def label_column(table: FileTable, name: str, option: str) -> np.ndarray:
    """Return one column as integer labels (n,), 0 or 1."""
    values = numeric_column(table, name, option)
    check_values(table, name, values, (values == 0) | (values == 1), "labels 0 or 1")
    return values.astype(np.int64)


def check_values(
    table: FileTable, name: str, values: np.ndarray, good: np.ndarray, what: str
) -> None:
    """Raise if numbers (n,) of a column are invalid; ``what`` describes what it must contain."""
    if not good.all():
        i = int(np.argmin(good))
        raise CommandError(
            f"{table.path}: column {shorten(name)!r} must hold {what}, got {values[i]:g} in "
            f"{table.position(i)}"
        )


def enumerate_names(
    names: Sequence[str], write: Callable[[str], str] = repr, limit: int = 20
) -> str:
    """Join names, by default in quotes; at most ``limit`` of them are listed."""
    shown = ", ".join(write(shorten(name)) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
