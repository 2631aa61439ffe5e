"""CSV files: read with errors that name the row, written in one piece or not at all."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from bayescal._core import files
from bayescal.cli._errors import CommandError

_GZIP_MAGIC = b"\x1f\x8b"
_QUOTE = '"'
_SPECIAL = re.compile(r'[,"\r\n]')

#: Called with how much of a file was read, and with all that there is.
Show = Callable[[int, int], object]


def ignore(done: int, total: int) -> None:
    """Show nothing."""


class Table(NamedTuple):
    """Rows of a file: its name, column names, rows of text, and the line on which each row ends.

    ``first`` is the number of rows before them; of files without lines these are left out.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    first: int = 0

    def place(self, row: int) -> str:
        """Return which row it is, for messages."""
        line = f" (line {self.lines[row]})" if self.lines else ""
        return f"row {self.first + row + 1}{line}"


def read_table(path: Path) -> Table:
    """Read a CSV file with a header, plain or compressed with gzip."""
    return next(_tables(path, io.StringIO(_read_text(path), newline="")))


def stream_tables(path: Path, size: int, show: Show = ignore) -> Iterator[Table]:
    """Yield so many rows at a time of a CSV file that may be larger than memory.

    Calls ``show`` with the bytes that were read, and with all that there are.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            total, zipped = path.stat().st_size, is_zipped(path)
            stream = gzip.GzipFile(fileobj=file) if zipped else file
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")  # type: ignore[arg-type]
            for table in _tables(path, _without_zeros(path, text), size):
                show(file.tell(), total)
                yield table
        except UnicodeDecodeError as error:
            raise CommandError(f"{path}: not a CSV file in UTF-8: {error.reason}") from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise CommandError(f"{path}: damaged gzip file: {error}") from error
        except OSError as error:
            problem = error.strerror or error
            raise CommandError(f"{path}: cannot read the file: {problem}") from error


def is_zipped(path: Path) -> bool:
    """Whether a file is compressed with gzip."""
    return begins_with(path, _GZIP_MAGIC)


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether a file begins with some bytes; one that cannot be read does not."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(magic)) == magic
    return False


def _without_zeros(path: Path, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if "\0" in line:
            raise CommandError(f"{path}: not a CSV file: it holds zero bytes")
        yield line


def _tables(path: Path, text: Iterable[str], size: int = sys.maxsize) -> Iterator[Table]:
    """Yield so many rows at a time, or all at once."""
    reader = csv.reader(text, strict=True)
    rows, lines, first = [], [], 0
    try:
        full = filter(None, reader)
        header = next(full, [])
        for row in full:
            if len(row) != len(header):
                raise CommandError(
                    f"{path}: every row must have {len(header)} cells as the header has, got "
                    f"{len(row)} in row {first + len(rows) + 1} (line {reader.line_num})"
                )
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) == size:
                yield Table(path, header, rows, lines, first)
                rows, lines, first = [], [], first + size
    except csv.Error as error:
        raise CommandError(f"{path}: not a CSV file: {error} (line {reader.line_num})") from error
    if not header:
        raise CommandError(f"{path}: the file must not be empty")
    if rows:
        yield Table(path, header, rows, lines, first)
    elif not first:
        raise CommandError(f"{path}: the file must have rows below its header")


def numeric_column(table: Table, name: str, option: str) -> np.ndarray:
    """Return one column as finite numbers (n,); ``option`` is the option that named it."""
    index = find_column(table, name, option)
    cells = [row[index] for row in table.rows]
    with contextlib.suppress(ValueError):
        values = np.array([*map(float, cells)])
        if np.isfinite(values).all() and not any("_" in cell for cell in cells):
            return values
    values = np.empty(len(table.rows))
    for i, row in enumerate(table.rows):
        try:
            values[i] = _number(row[index])
        except ValueError:
            raise CommandError(
                f"{table.path}: column {name!r} must hold finite numbers, got "
                f"{_shorten(row[index])!r} in {table.place(i)}"
            ) from None
    return values


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def label_column(table: Table, name: str, option: str) -> np.ndarray:
    """Return one column as labels (n,), integers 0 or 1."""
    values = numeric_column(table, name, option)
    check_values(table, name, values, (values == 0) | (values == 1), "labels 0 or 1")
    return values.astype(np.int64)


def check_values(table: Table, name: str, values: np.ndarray, good: np.ndarray, what: str) -> None:
    """Raise if not all numbers (n,) of a column are good; ``what`` it must hold."""
    if not good.all():
        i = int(np.argmin(good))
        raise CommandError(
            f"{table.path}: column {name!r} must hold {what}, got {values[i]:g} in {table.place(i)}"
        )


def is_standard_output(path: Path) -> bool:
    """Whether the path is ``-``, which stands for standard output."""
    return str(path) == "-"


def check_target(path: Path) -> None:
    """Raise if a file cannot be written there, before any work is done."""
    if is_standard_output(path):
        return
    if path.exists() and not path.is_file():
        raise CommandError(f"{path}: the output must be a file, not a folder or device")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise CommandError(f"{path}: the folder {folder} does not exist")


def check_new_columns(table: Table, advice: Mapping[str, str]) -> None:
    """Raise if the table has one of the columns already; ``advice`` says by name what to do."""
    header = [column.strip() for column in table.header]
    for name, remedy in advice.items():
        if name in header:
            raise CommandError(f"{table.path}: the file has a column {name!r} already; {remedy}")


def append_columns(table: Table, values: np.ndarray) -> Iterator[list[str]]:
    """Yield the rows of a table, each with its own of the values (n, columns)."""
    for row, own in zip(table.rows, values.tolist(), strict=True):
        yield [*row, *map(repr, own)]


def write_table(path: Path, header: Sequence[str], rows: Iterator[Sequence[str]]) -> None:
    """Write a CSV file atomically, compressed if its name ends in .gz; ``-`` is standard output."""

    def write_rows(stream: io.TextIOBase) -> None:
        stream.write(_line(header))
        stream.writelines(map(_line, rows))

    if is_standard_output(path):
        write_rows(sys.stdout)  # type: ignore[arg-type]
        return

    def write(stream: BinaryIO) -> None:
        with contextlib.ExitStack() as stack:
            if path.suffix.lower() == ".gz":
                # Without name and time, equal rows make equal files.
                zipped = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
                stream = stack.enter_context(zipped)  # type: ignore[assignment]
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            write_rows(text)
            text.flush()
            text.detach()

    write_atomically(path, write)


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have ``write`` fill a temporary file beside ``path`` and put it in place when it is complete.

    Whatever happens before that, an interrupt too, leaves ``path`` as it was and no other file.
    """
    check_target(path)
    try:
        with files.write_atomically(path) as partial, open(partial, "xb") as stream:
            write(stream)
    except OSError as error:
        raise CommandError(f"{path}: cannot write the file: {error.strerror or error}") from error


def _line(cells: Sequence[str]) -> str:
    """Return one line of a CSV file.

    Python's own writer leaves a lone carriage return bare before 3.13, and readers then see two
    rows.
    """
    quoted = [f'"{c.replace(_QUOTE, 2 * _QUOTE)}"' if _SPECIAL.search(c) else c for c in cells]
    return (",".join(quoted) or '""') + "\n"


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CommandError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise CommandError(f"{path}: cannot read the file: {error.strerror or error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(
            f"{path}: not a CSV file in UTF-8: byte {error.start + 1} is no text"
        ) from None
    if "\0" in text:
        raise CommandError(f"{path}: not a CSV file: it holds zero bytes")
    return text


def find_column(table: Table, name: str, option: str) -> int:
    """Return the place of a column; ``option`` is the option that named it."""
    names = [column.strip() for column in table.header]
    count = names.count(name.strip())
    if count != 1:
        problem = "no column" if count == 0 else f"{count} columns"
        raise CommandError(
            f"{table.path}: {problem} named {name!r} ({option}); the columns are "
            f"{enumerate_names(names)}"
        )
    return names.index(name.strip())


def _number(cell: str) -> float:
    if "_" in cell:  # Python reads 1_000, CSV files do not
        raise ValueError(cell)
    value = float(cell)
    if not np.isfinite(value):
        raise ValueError(cell)
    return value


def _shorten(text: str, length: int = 40) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def enumerate_names(names: Sequence[str], most: int = 20) -> str:
    """Return names in quotes, the first of them if they are many."""
    shown = ", ".join(repr(_shorten(name)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
