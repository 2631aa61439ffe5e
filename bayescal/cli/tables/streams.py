"""Files of scores and labels, as text or Arrow: small ones read at once, large ones in blocks."""

from __future__ import annotations

import contextlib
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayescal._core.display.tables import shorten
from bayescal.cli._errors import CommandError
from bayescal.cli.tables.cells import advise, find_column, numeric_column
from bayescal.cli.tables.columns import empty_label, label_texts
from bayescal.cli.tables.files import (
    INSTALL_FILES,
    PIPED,
    PLAIN,
    FileTable,
    Format,
    Show,
    begins_with,
    ignore,
    read_table,
    rows_of_block,
    stream_tables,
    unpacked,
)

if TYPE_CHECKING:
    from pyarrow import Array, DataType, RecordBatch, Schema

    from bayescal.cli.tables.files import Stream

#: Uncompressed bytes (for Parquet 16 per cell) up to which a file is read at once.
LARGE = 1 << 26
#: Rows of a block, and bytes of a block that Arrow reads.
ROWS, BYTES = 1 << 17, 1 << 23
#: Number of rows of a Parquet file by which columns of numbers are recognized.
_HEAD = 1000


class UnreadableError(Exception):
    """Arrow cannot read a CSV file or finds no number in a cell; Python's reader reports where."""


class StreamedRows(NamedTuple):
    """A block of rows: distinct labels, the index of each row's (n,), scores (n, k), weights (n,).

    ``where`` gives positions for messages; Arrow does not know them for CSV files.
    """

    labels: list[str]
    label_index: np.ndarray
    scores: np.ndarray
    weights: np.ndarray | None
    where: FileTable | None = None


class Wanted(NamedTuple):
    """Columns to read: labels, scores and weights."""

    label: str
    scores: Sequence[str]
    weights: str | None
    #: The option that named the scores.
    option: str = "--columns"
    #: Whether labels may be missing, which are then empty.
    missing: bool = False


class RowFile(ABC):
    """A file of rows."""

    path: Path
    form: Format
    #: The names of columns, and all rows, or the first ones of a large file.
    head: FileTable
    #: Whether the file is read in blocks, more than once.
    large: bool
    #: Whether Arrow reads the file.
    fast = True

    @abstractmethod
    def rows(self, wanted: Wanted, show: Show = ignore) -> Iterator[StreamedRows]:
        """Yield the wanted columns, in blocks if rows are many."""

    @abstractmethod
    def tables(self, show: Show = ignore) -> Iterator[FileTable]:
        """Yield all columns as text."""

    def stack(self, columns: list[np.ndarray], n: int) -> np.ndarray:
        """Stack columns of scores to rows (n, k)."""
        if not columns:
            return np.empty((n, 0))
        scores = np.stack(columns, axis=1)
        return scores / np.float32(100) if self.form.percent else scores


def open_rows(path: Path, form: Format = PLAIN) -> RowFile:
    """Open a file in its format; input that is not a regular file is read at once, as text."""
    if path.is_file():
        for magic, kind in ((b"PAR1", ParquetFile), (b"ARROW1", FeatherFile)):
            if begins_with(path, magic):
                return kind(path, form)
    return CsvFile(path, form)


class CsvFile(RowFile):
    """Text, plain or compressed; large CSV files are read by Arrow if it is installed."""

    def __init__(self, path: Path, form: Format) -> None:
        self.path, self.form = path, form
        if path.is_file():
            fits = path.stat().st_size <= LARGE
            table = read_table(path, form, LARGE) if fits else None
        elif (table := read_table(path, form, PIPED)) is None:
            raise CommandError(
                f"{path}: input that is not a regular file must have at most {PIPED >> 20} MiB, "
                "packed and unpacked; save it as a file, which is read in blocks"
            )
        self.large = table is None
        self.head = next(self._stream()) if table is None else table
        # Arrow parses JSON objects differently, and takes only separators of ASCII.
        self.fast = not self.head.objects and form.between(path).isascii()

    def rows(self, wanted: Wanted, show: Show = ignore) -> Iterator[StreamedRows]:
        label, scores, weights, option, missing = wanted
        find_column(self.head, label, "--label")
        if self.large and self.fast and (arrow := _arrow()) is not None:
            yield from self._rows_of_arrow(arrow, wanted, show)
            return
        for table in self.tables(show):
            numbers = [numeric_column(table, name, option) for name in scores]
            weight = None if weights is None else numeric_column(table, weights, "--weights")
            labels, label_index = label_texts(table, label, missing)
            yield StreamedRows(
                labels, label_index, self.stack(numbers, len(label_index)), weight, table
            )

    def tables(self, show: Show = ignore) -> Iterator[FileTable]:
        return self._stream(show) if self.large else iter([self.head])

    def _stream(self, show: Show = ignore) -> Iterator[FileTable]:
        return stream_tables(self.path, ROWS, show, self.form)

    def _rows_of_arrow(
        self, arrow: ModuleType, wanted: Wanted, show: Show
    ) -> Iterator[StreamedRows]:
        from pyarrow import csv

        def named(name: str, option: str) -> str:
            # The name in the file, including spaces.
            return self.head.header[find_column(self.head, name, option)]

        marks = named(wanted.label, "--label")
        numbers = [named(name, wanted.option) for name in wanted.scores]
        heavy = [] if wanted.weights is None else [named(wanted.weights, "--weights")]
        types = {**dict.fromkeys([*numbers, *heavy], arrow.float64()), marks: arrow.string()}
        if marks in (*numbers, *heavy):
            raise UnreadableError  # one column, two types
        total = self.path.stat().st_size
        try:
            with self.path.open("rb") as file:
                sep = self.form.between(self.path)
                checked = _Checked(unpacked(self.path, file), sep)
                reader = csv.open_csv(
                    checked,
                    csv.ReadOptions(block_size=BYTES, encoding=self.form.encoding or "utf8"),
                    csv.ParseOptions(delimiter=sep, newlines_in_values=True),
                    csv.ConvertOptions(
                        include_columns=list(types),
                        column_types=types,
                        decimal_point=self.form.decimal,
                    ),
                )
                for batch in reader:
                    show(file.tell(), total)
                    labels, label_index, empty = _labels(batch.column(marks))
                    read = [_numbers(batch.column(name)) for name in [*numbers, *heavy]]
                    if (empty is not None and not wanted.missing) or not np.isfinite(read).all():
                        raise UnreadableError
                    weight = read.pop() if heavy else None
                    if len(label_index):
                        yield StreamedRows(
                            labels, label_index, self.stack(read, len(label_index)), weight
                        )
                if checked.strange:
                    raise UnreadableError
        except (arrow.ArrowException, OSError, EOFError, zlib.error) as error:
            raise UnreadableError from error


class _Checked(io.RawIOBase):
    """A stream that detects what Arrow accepts as text: zero bytes and strange quotes.

    Quotes are strange if their number is odd, or if text stands between the end of a quoted cell
    and the next separator. Arrow then takes the rows between two such quotes for one cell.
    """

    def __init__(self, stream: Stream, sep: str) -> None:
        self._stream, self._quotes, self._strange = stream, 0, False
        #: Which bytes may come after a quote that ends a cell.
        self._after = np.zeros(256, bool)
        self._after[[*b'"\r\n', ord(sep)]] = True
        #: Whether the last byte is such a quote.
        self._ended = False

    @property
    def strange(self) -> bool:
        """Whether there were zero bytes or strange quotes in what was read."""
        return self._strange or self._quotes % 2 == 1

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        codes = np.frombuffer(content, np.uint8)
        quotes = np.flatnonzero(codes == ord('"'))
        # Every second quote ends a cell, or is followed by one that it escapes.
        after = quotes[1 - self._quotes % 2 :: 2] + 1
        if self._ended:
            after = np.append(0, after)
        self._ended = len(after) > 0 and bool(after[-1] == len(codes))
        following = codes[after[: len(after) - self._ended]]
        self._strange |= b"\0" in content or not self._after[following].all()
        self._quotes += len(quotes)
        return content


class ParquetFile(RowFile):
    """A file of Parquet."""

    def __init__(self, path: Path, form: Format) -> None:
        if _arrow() is None:
            raise CommandError(f"{path}: Parquet and Feather need pyarrow: {INSTALL_FILES}")
        self.path, self.form = path, form
        self.schema, self._count = self._size()
        if not self._count:
            raise CommandError(f"{path}: the file must have rows")
        self.large = 16 * self._count * len(self.schema.names) > LARGE
        self.head = self._text(next(self.batches()).slice(0, _HEAD), 0)

    def _size(self) -> tuple[Schema, int]:
        with self._open() as file:
            return file.schema_arrow, file.metadata.num_rows

    def rows(self, wanted: Wanted, show: Show = ignore) -> Iterator[StreamedRows]:
        label, scores, weights, option, missing = wanted
        options = dict.fromkeys(scores, option)
        if weights is not None:
            options[weights] = "--weights"
        columns = {
            name: self._named(name, column_option) for name, column_option in options.items()
        }
        first, marks = 0, self._named(label, "--label")
        for batch in self.batches(list(dict.fromkeys([marks, *columns.values()])), show):
            labels, label_index, empty = _labels(batch.column(marks))
            where = self.head._replace(first=first)
            if empty is not None and not missing:
                raise CommandError(empty_label(where, label, empty))
            read = [self.numbers(batch, *column_of, first) for column_of in options.items()]
            weight = None if weights is None else read[list(columns).index(weights)]
            read = [read[list(columns).index(name)] for name in scores]
            yield StreamedRows(
                labels, label_index, self.stack(read, len(label_index)), weight, where
            )
            first += batch.num_rows

    def tables(self, show: Show = ignore) -> Iterator[FileTable]:
        first = 0
        for batch in self.batches(None, show):
            yield self._text(batch, first)
            first += batch.num_rows

    def batches(
        self, columns: list[str] | None = None, show: Show = ignore
    ) -> Iterator[RecordBatch]:
        """Yield the rows as batches of Arrow."""
        done = 0
        with self._open() as file:
            for batch in self._batches(file, columns):
                done += batch.num_rows
                show(done, self._count)
                yield batch

    def _batches(self, file: Any, columns: list[str] | None) -> Iterator[RecordBatch]:
        rows = rows_of_block(ROWS, len(self.schema.names if columns is None else columns))
        return file.iter_batches(rows, columns=columns)

    def numbers(self, batch: RecordBatch, name: str, option: str, first: int) -> np.ndarray:
        """Return a column as numbers (n,); ``first`` is the number of rows before it."""
        selected = batch.select([self._named(name, option)])
        column = selected.column(0)
        try:
            values = None if _is_text(column.type) else _numbers(column)
        except (ValueError, NotImplementedError):
            values = None
        if values is None:
            # Read it as text, which may have another notation, or is shown in the error.
            return numeric_column(self._text(selected, first), name, option)
        skips = self.form.skip_missing and option != "--weights"
        good = np.isfinite(values) | (np.isnan(values) & skips)
        if not good.all():
            row = int(np.argmin(good))
            position = self.head._replace(first=first).position(row)
            advice = advise(str(column[row]), self.form, option)
            raise CommandError(
                f"{self.path}: column {shorten(name)!r} must hold finite numbers, got "
                f"{column[row]} in {position}{advice and f'; {advice}'}"
            )
        return values

    def _text(self, batch: RecordBatch, first: int) -> FileTable:
        """Convert rows to text without lines; ``first`` is the number of rows before them."""
        columns = [[self._cell(value) for value in column.to_pylist()] for column in batch.columns]
        rows = [list(row) for row in zip(*columns, strict=True)]
        return FileTable(self.path, list(batch.schema.names), rows, [], first, self.form)

    def _cell(self, value: object) -> str:
        if isinstance(value, float):
            return self.form.print(value)
        text = "" if value is None else str(value)
        return text.replace(".", self.form.decimal) if isinstance(value, Decimal) else text

    def _named(self, name: str, option: str) -> str:
        return self.head.header[find_column(self.head, name, option)]

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow

        try:
            with self._reader() as file:
                yield file
        except (pyarrow.ArrowException, OSError) as error:
            raise CommandError(f"{self.path}: cannot read the file: {error}") from error

    def _reader(self) -> contextlib.AbstractContextManager[Any]:
        from pyarrow import parquet

        return parquet.ParquetFile(self.path)


class FeatherFile(ParquetFile):
    """A file in Arrow's format, which Feather is."""

    def _size(self) -> tuple[Schema, int]:
        with self._open() as file:
            rows = sum(file.get_batch(j).num_rows for j in range(file.num_record_batches))
            return file.schema, rows

    def _batches(self, file: Any, columns: list[str] | None) -> Iterator[RecordBatch]:
        for j in range(file.num_record_batches):
            batch = file.get_batch(j)
            batch = batch if columns is None else batch.select(columns)
            rows = rows_of_block(ROWS, batch.num_columns)
            for first in range(0, batch.num_rows, rows):
                yield batch.slice(first, rows)

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Any]:
        import pyarrow
        from pyarrow import ipc

        with pyarrow.memory_map(str(self.path)) as source, ipc.open_file(source) as file:
            yield file


def _arrow() -> ModuleType | None:
    """Return Arrow, or None if it is not installed."""
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def _labels(column: Array) -> tuple[list[str], np.ndarray, int | None]:
    """Return distinct texts, the index of each row's text, and the first row without one."""
    encoded = column if hasattr(column, "indices") else column.dictionary_encode()
    index = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    used, index = np.unique(index, return_inverse=True)
    texts = ["" if j < 0 else str(encoded.dictionary[j].as_py()).strip() for j in used.tolist()]
    empty = [int(np.argmax(index == j)) for j, text in enumerate(texts) if not text]
    return texts, index, min(empty, default=None)


def _numbers(column: Array) -> np.ndarray:
    """Convert numbers (n,), with NaN for missing ones; single and half precision stay."""
    if str(column.type) in ("float", "halffloat"):
        return column.to_numpy(zero_copy_only=False)
    return column.cast("float64", safe=False).to_numpy(zero_copy_only=False)


def _is_text(kind: DataType) -> bool:
    """Whether a column contains text, including categories of text."""
    import pyarrow

    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
