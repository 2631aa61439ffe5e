"""Files of scores and labels, text or Arrow's: small ones whole, large ones in blocks."""

from __future__ import annotations

import contextlib
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayescal.cli._columns import empty_label, label_texts
from bayescal.cli._errors import CommandError
from bayescal.cli._files import (
    PLAIN,
    Format,
    Show,
    Table,
    begins_with,
    find_column,
    ignore,
    is_zipped,
    numeric_column,
    read_table,
    stream_tables,
    unpacked,
)

#: Bytes, of Parquet 16 for each cell, up to which a file is read at once; zipped ones
#: hold several times as many.
LARGE, ZIPPED = 1 << 26, 1 << 24
#: Rows of a block, and bytes of one that Arrow reads.
ROWS, BYTES = 1 << 17, 1 << 23
#: Rows of a Parquet file that say which of its columns hold numbers.
_HEAD = 1000


class UnreadableError(Exception):
    """Arrow does not read a CSV file, or finds what is no number: Python's reader says where."""


class Rows(NamedTuple):
    """Some of the rows: labels that occur, which each row has (n,), scores (n, k), weights (n,).

    ``where`` says where they stand, for messages; Arrow does not know it of CSV files.
    """

    labels: list[str]
    place: np.ndarray
    scores: np.ndarray
    weights: np.ndarray | None
    where: Table | None = None


class RowFile(ABC):
    """A file of rows."""

    path: Path
    #: The names of columns, and all rows, or the first ones of a large file.
    head: Table
    #: Whether it is rather read in blocks, more than once.
    large: bool
    #: Whether Arrow reads it.
    fast = True

    @abstractmethod
    def rows(
        self,
        label: str,
        scores: Sequence[str],
        weights: str | None,
        show: Show = ignore,
        option: str = "--columns",
    ) -> Iterator[Rows]:
        """Yield the rows of some columns, in blocks if many; an option named those of scores."""

    @abstractmethod
    def tables(self, show: Show = ignore) -> Iterator[Table]:
        """Yield all columns as text."""


def open_rows(path: Path, form: Format = PLAIN) -> RowFile:
    """Return a file in the form that it has; what is no regular file is read at once, as text."""
    if path.is_file():
        for magic, kind in ((b"PAR1", ParquetFile), (b"ARROW1", FeatherFile)):
            if begins_with(path, magic):
                return kind(path)
    return CsvFile(path, form)


class CsvFile(RowFile):
    """Text, plain or compressed with gzip; large ones are read by Arrow where it is installed."""

    def __init__(self, path: Path, form: Format) -> None:
        self.path, self._form = path, form
        size = path.stat().st_size if path.is_file() else 0
        self.large = size > LARGE or (size > ZIPPED and is_zipped(path))
        self.head = next(self._stream()) if self.large else read_table(path, form)

    def rows(
        self,
        label: str,
        scores: Sequence[str],
        weights: str | None,
        show: Show = ignore,
        option: str = "--columns",
    ) -> Iterator[Rows]:
        find_column(self.head, label, "--label")
        if self.large and self.fast and (arrow := _arrow()) is not None:
            yield from self._rows_of_arrow(arrow, label, scores, weights, show, option)
            return
        for table in self.tables(show):
            numbers = [numeric_column(table, name, option) for name in scores]
            own = None if weights is None else numeric_column(table, weights, "--weights")
            found, place = label_texts(table, label)
            yield Rows(found, place, _stacked(numbers, len(place)), own, table)

    def tables(self, show: Show = ignore) -> Iterator[Table]:
        return self._stream(show) if self.large else iter([self.head])

    def _stream(self, show: Show = ignore) -> Iterator[Table]:
        return stream_tables(self.path, ROWS, show, self._form)

    def _rows_of_arrow(
        self,
        arrow: Any,
        label: str,
        scores: Sequence[str],
        weights: str | None,
        show: Show,
        option: str,
    ) -> Iterator[Rows]:
        from pyarrow import csv

        def named(name: str, option: str) -> str:
            # As it stands in the file, with spaces.
            return self.head.header[find_column(self.head, name, option)]

        marks = named(label, "--label")
        numbers = [named(name, option) for name in scores]
        heavy = [] if weights is None else [named(weights, "--weights")]
        types = {**dict.fromkeys([*numbers, *heavy], arrow.float64()), marks: arrow.string()}
        if marks in (*numbers, *heavy):
            raise UnreadableError  # one column, two types
        total = self.path.stat().st_size
        try:
            with self.path.open("rb") as file:
                checked = _Checked(unpacked(self.path, file))
                reader = csv.open_csv(
                    checked,
                    csv.ReadOptions(block_size=BYTES, encoding=self._form.encoding or "utf8"),
                    csv.ParseOptions(delimiter=self.head.sep, newlines_in_values=True),
                    csv.ConvertOptions(include_columns=list(types), column_types=types),
                )
                for batch in reader:
                    show(file.tell(), total)
                    labels, place, empty = _labels(batch.column(marks))
                    read = [_numbers(batch.column(name)) for name in [*numbers, *heavy]]
                    if empty is not None or not np.isfinite(read).all():
                        raise UnreadableError
                    own = read.pop() if heavy else None
                    if len(place):
                        yield Rows(labels, place, _stacked(read, len(place)), own)
                if checked.quotes % 2 or checked.zeros:
                    raise UnreadableError
        except (arrow.ArrowException, OSError, EOFError, zlib.error) as error:
            raise UnreadableError from error


class _Checked(io.RawIOBase):
    """A stream that notices what Arrow takes for text: a quote that nothing ends, zero bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.quotes, self.zeros = stream, 0, False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(size)
        self.quotes += found.count(b'"')
        self.zeros |= b"\0" in found
        return found


class ParquetFile(RowFile):
    """A file of Parquet."""

    def __init__(self, path: Path) -> None:
        if _arrow() is None:
            raise CommandError(f"{path}: Parquet and Feather need pyarrow; see bayescal[files]")
        self.path = path
        self.schema, self._count = self._size()
        if not self._count:
            raise CommandError(f"{path}: the file must have rows")
        self.large = 16 * self._count * len(self.schema.names) > LARGE
        self.head = _table(path, next(self.batches()).slice(0, _HEAD), 0)

    def _size(self) -> tuple[Any, int]:
        with self._open() as file:
            return file.schema_arrow, file.metadata.num_rows

    def rows(
        self,
        label: str,
        scores: Sequence[str],
        weights: str | None,
        show: Show = ignore,
        option: str = "--columns",
    ) -> Iterator[Rows]:
        columns = {name: self._named(name, option) for name in scores}
        if weights is not None:
            columns[weights] = self._named(weights, "--weights")
        first, marks = 0, self._named(label, "--label")
        for batch in self.batches(list(dict.fromkeys([marks, *columns.values()])), show):
            labels, place, empty = _labels(batch.column(marks))
            where = self.head._replace(first=first)
            if empty is not None:
                raise CommandError(empty_label(where, label, empty))
            read = [self.numbers(batch, name, first, "") for name in columns.values()]
            own = None if weights is None else read[list(columns).index(weights)]
            read = [read[list(columns).index(name)] for name in scores]
            yield Rows(labels, place, _stacked(read, len(place)), own, where)
            first += batch.num_rows

    def tables(self, show: Show = ignore) -> Iterator[Table]:
        first = 0
        for batch in self.batches(None, show):
            yield _table(self.path, batch, first)
            first += batch.num_rows

    def batches(self, columns: list[str] | None = None, show: Show = ignore) -> Iterator[Any]:
        """Yield the rows as Arrow has them."""
        done = 0
        with self._open() as file:
            for batch in self._batches(file, columns):
                done += batch.num_rows
                show(done, self._count)
                yield batch

    def _batches(self, file: Any, columns: list[str] | None) -> Iterator[Any]:
        return file.iter_batches(ROWS, columns=columns)

    def numbers(self, batch: Any, name: str, first: int, option: str) -> np.ndarray:
        """Return a column as finite numbers (n,); ``first`` is the number of rows before it."""
        found = batch.column(self._named(name, option))
        try:
            values = _numbers(found)
        except (ValueError, NotImplementedError):
            raise CommandError(
                f"{self.path}: column {name!r} must hold finite numbers, got {found.type}"
            ) from None
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            place = self.head._replace(first=first).place(row)
            raise CommandError(
                f"{self.path}: column {name!r} must hold finite numbers, got {found[row]} in "
                f"{place}"
            )
        return values

    def _named(self, name: str, option: str) -> str:
        return self.head.header[find_column(self.head, name, option)]

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                yield file
        except (pyarrow.ArrowException, OSError) as error:
            raise CommandError(f"{self.path}: cannot read the file: {error}") from error


class FeatherFile(ParquetFile):
    """A file of Arrow, which Feather is, too."""

    def _size(self) -> tuple[Any, int]:
        with self._open() as file:
            rows = sum(file.get_batch(j).num_rows for j in range(file.num_record_batches))
            return file.schema, rows

    def _batches(self, file: Any, columns: list[str] | None) -> Iterator[Any]:
        for j in range(file.num_record_batches):
            batch = file.get_batch(j)
            batch = batch if columns is None else batch.select(columns)
            for first in range(0, batch.num_rows, ROWS):
                yield batch.slice(first, ROWS)

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow
        from pyarrow import ipc

        try:
            with pyarrow.memory_map(str(self.path)) as source, ipc.open_file(source) as file:
                yield file
        except (pyarrow.ArrowException, OSError) as error:
            raise CommandError(f"{self.path}: cannot read the file: {error}") from error


def _arrow() -> Any:
    """Return Arrow, or None where it is not installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def _labels(column: Any) -> tuple[list[str], np.ndarray, int | None]:
    """Return the texts that occur, which of them each row has, and the first row without one."""
    encoded = column if hasattr(column, "indices") else column.dictionary_encode()
    place = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    used, place = np.unique(place, return_inverse=True)
    texts = ["" if j < 0 else str(encoded.dictionary[j].as_py()).strip() for j in used.tolist()]
    empty = [int(np.argmax(place == j)) for j, text in enumerate(texts) if not text]
    return texts, place, min(empty, default=None)


def _numbers(column: Any) -> np.ndarray:
    """Return numbers (n,), NaN where there is nothing; single precision stays what it is."""
    if str(column.type) == "float":
        return column.to_numpy(zero_copy_only=False)
    return column.cast("float64", safe=False).to_numpy(zero_copy_only=False)


def _stacked(columns: list[np.ndarray], n: int) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.empty((n, 0))


def _table(path: Path, batch: Any, first: int) -> Table:
    """Return rows as text, and no lines."""
    columns = [["" if c is None else str(c) for c in own.to_pylist()] for own in batch.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Table(path, list(batch.schema.names), rows, [], first)
