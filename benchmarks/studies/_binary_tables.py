"""Binary tables: find and read the files, and split the rows."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.studies.data import choose, digest, find_files

_LABEL = "class"
_SUFFIXES = (".csv", ".csv.gz")
_MIN_CLASS_ROWS = 5


class BinaryTable(NamedTuple):
    """Features (n, d), labels (n,) of 0 and 1, and the name of their file."""

    name: str
    x: np.ndarray
    y: np.ndarray

    @property
    def digest(self) -> str:
        """Hash of the shape, features and labels."""
        return digest((self.x, self.y))


def find_tables(folder: Path, names: Sequence[str] | None, beneath: Path) -> dict[str, Path]:
    """Find the files of the tables by name, in ``folder`` or in its subfolder ``beneath``."""
    paths = find_files(
        folder,
        beneath,
        "*.csv*",
        "tables, .csv or .csv.gz",
        lambda path: path.name.endswith(_SUFFIXES),
    )
    by_name = {path.name.removesuffix(".gz").removesuffix(".csv"): path for path in paths}
    if len(by_name) < len(paths):
        raise ValueError(f"{paths[0].parent} must hold each table once, as .csv or as .csv.gz")
    return {name: by_name[name] for name in choose(names, by_name, "table")}


def read_rows(path: Path) -> list[list[str]]:
    """Read the cells of a CSV file, plain or compressed; skip blank lines and strip cells."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, skipinitialspace=True, strict=True)
            return [[cell.strip() for cell in row] for row in rows if row]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot read the file: {error}") from error


def read_table(name: str, path: Path) -> BinaryTable:
    """Read a table with a header, numeric features and a column ``class`` of 0 and 1."""
    header, *rows = read_rows(path) or [[]]
    if header.count(_LABEL) != 1:
        raise ValueError(f"{path}: the header must name one column {_LABEL!r}, got {header}")
    wrong = next((row for row in rows if len(row) != len(header)), None)
    if wrong is not None:
        raise ValueError(f"{path}: rows must have {len(header)} cells, got {len(wrong)}")
    try:
        values = np.array(rows, float).reshape(len(rows), len(header))
    except ValueError as error:
        raise ValueError(f"{path}: cells must be numbers: {error}") from None
    if not np.isfinite(values).all():
        raise ValueError(f"{path}: cells must be finite numbers")
    column = header.index(_LABEL)
    label = values[:, column]
    if not np.isin(label, (0, 1)).all():
        raise ValueError(f"{path}: column {_LABEL!r} must hold 0 and 1 only")
    y = label.astype(int)
    counts = np.bincount(y, minlength=2)
    if counts.min() < _MIN_CLASS_ROWS:
        raise ValueError(
            f"{path}: each class must have {_MIN_CLASS_ROWS} rows or more, got {counts.min()}"
        )
    if len(header) < 2:
        raise ValueError(f"{path}: there must be a feature beside the column {_LABEL!r}")
    return BinaryTable(name, np.delete(values, column, axis=1), y)


def split_rows(
    y: np.ndarray, rows: np.ndarray, share: float, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Split rows at random, stratified by class, into the rest and a share.

    The sizes depend on the class counts alone, so all splits have equal sizes.
    """
    rest, taken = [], []
    for label in np.unique(y[rows]):
        class_rows = random.permutation(rows[y[rows] == label])
        count = round(share * len(class_rows))
        taken.append(class_rows[:count])
        rest.append(class_rows[count:])
    return np.sort(np.concatenate(rest)), np.sort(np.concatenate(taken))
