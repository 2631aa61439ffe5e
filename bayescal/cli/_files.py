"""Files of text in columns: read with errors that name the row, written whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bayescal._core import files
from bayescal.cli._errors import CommandError

_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_QUOTE = '"'

#: Called with how much of a file was read, and with all that there is.
Show = Callable[[int, int], object]


@dataclass(frozen=True)
class Format:
    """How text is laid out: between cells by default a tab in files .tsv, and else a comma."""

    sep: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '\r\n"\0'):
            raise CommandError(f"--sep must be one character, got {self.sep!r}")
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise CommandError(
                f"--encoding must be one that Python knows, as latin-1, got {self.encoding!r}"
            ) from None

    def between(self, path: Path) -> str:
        """Return what stands between cells."""
        tabbed = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
        return self.sep or ("\t" if tabbed else ",")

    @property
    def text(self) -> str:
        """The encoding; a byte order mark is no text."""
        return self.encoding or "utf-8-sig"


PLAIN = Format()


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
    #: What stands between cells.
    sep: str = ","

    def place(self, row: int) -> str:
        """Return which row it is, for messages."""
        line = f" (line {self.lines[row]})" if self.lines else ""
        return f"row {self.first + row + 1}{line}"


def read_table(path: Path, form: Format = PLAIN) -> Table:
    """Read text in columns with a header, plain or compressed with gzip or zstd; - is the input."""
    return next(_tables(path, io.StringIO(_read_text(path, form), newline=""), form))


def stream_tables(
    path: Path, size: int, show: Show = ignore, form: Format = PLAIN
) -> Iterator[Table]:
    """Yield so many rows at a time of a CSV file that may be larger than memory.

    Calls ``show`` with the bytes that were read, and with all that there are.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            total, stream = path.stat().st_size, unpacked(path, file)
            text = io.TextIOWrapper(stream, encoding=form.text, newline="")
            for table in _tables(path, _without_zeros(path, text), form, size):
                show(file.tell(), total)
                yield table
        except UnicodeError as error:
            raise _no_text(path, form, getattr(error, "reason", error)) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise CommandError(f"{path}: damaged gzip file: {error}") from error
        except OSError as error:
            problem = error.strerror or error
            raise CommandError(f"{path}: cannot read the file: {problem}") from error


def is_zipped(path: Path) -> bool:
    """Whether a file is compressed with gzip or zstd."""
    return begins_with(path, _GZIP_MAGIC) or begins_with(path, _ZSTD_MAGIC)


def unpacked(path: Path, file: BinaryIO) -> Any:
    """Return a stream of what a file that is compressed holds, or else the file."""
    magic = file.read(len(_ZSTD_MAGIC))
    file.seek(0)
    if magic.startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=file)
    return _zstd(path).CompressedInputStream(file, "zstd") if magic == _ZSTD_MAGIC else file


def _zstd(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise CommandError(f"{path}: files of zstd need pyarrow; see bayescal[files]") from None
    return pyarrow


def _no_text(path: Path, form: Format, reason: object) -> CommandError:
    said = f"not text in {form.encoding or 'UTF-8'}: {reason}"
    return CommandError(f"{path}: {said}; say what it is in with --encoding, as utf-16 or latin-1")


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


def _tables(
    path: Path, text: Iterable[str], form: Format, size: int = sys.maxsize
) -> Iterator[Table]:
    """Yield so many rows at a time, or all at once."""
    sep = form.between(path)
    reader = csv.reader(text, strict=True, delimiter=sep)
    rows, lines, first = [], [], 0
    try:
        full = filter(None, reader)
        header = next(full, [])
        for row in full:
            if len(row) != len(header):
                raise CommandError(
                    f"{path}: every row must have {len(header)} cells as the header has, got "
                    f"{len(row)} in row {first + len(rows) + 1} (line {reader.line_num})"
                    f"{_advice(header)}"
                )
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) == size:
                yield Table(path, header, rows, lines, first, sep)
                rows, lines, first = [], [], first + size
    except csv.Error as error:
        raise CommandError(f"{path}: not a CSV file: {error} (line {reader.line_num})") from error
    if not header:
        raise CommandError(f"{path}: the file must not be empty")
    if rows:
        yield Table(path, header, rows, lines, first, sep)
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


def check_source(path: Path) -> None:
    """Raise if there is no such file, before anything that takes long is imported."""
    if not path.exists():
        raise CommandError(f"{path}: no such file")


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


def write_table(
    path: Path, header: Sequence[str], rows: Iterator[Sequence[str]], sep: str = ","
) -> None:
    """Write text in columns atomically, compressed where the name ends in .gz or .zst; - prints."""
    line = partial(_line, sep, re.compile(rf'[{re.escape(sep)}"\r\n]'))

    def write_rows(stream: io.TextIOBase) -> None:
        stream.write(line(header))
        stream.writelines(map(line, rows))

    if is_standard_output(path):
        write_rows(sys.stdout)  # type: ignore[arg-type]
        return

    def write(stream: BinaryIO) -> None:
        with contextlib.ExitStack() as stack:
            if path.suffix.lower() == ".gz":
                # Without name and time, equal rows make equal files.
                zipped = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
                stream = stack.enter_context(zipped)  # type: ignore[assignment]
            elif path.suffix.lower() == ".zst":
                stream = stack.enter_context(_zstd(path).CompressedOutputStream(stream, "zstd"))
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
        with files.write_atomically(path) as unfinished, open(unfinished, "xb") as stream:
            write(stream)
    except OSError as error:
        raise CommandError(f"{path}: cannot write the file: {error.strerror or error}") from error


def _line(sep: str, special: re.Pattern[str], cells: Sequence[str]) -> str:
    """Return one line of text in columns.

    Python's own writer leaves a lone carriage return bare before 3.13, and readers then see two
    rows.
    """
    quoted = [f'"{c.replace(_QUOTE, 2 * _QUOTE)}"' if special.search(c) else c for c in cells]
    return (sep.join(quoted) or '""') + "\n"


def _read_text(path: Path, form: Format) -> str:
    try:
        whole = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        content = unpacked(path, io.BytesIO(whole)).read()
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CommandError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise CommandError(f"{path}: cannot read the file: {error.strerror or error}") from error
    try:
        text = content.decode(form.text)
    except UnicodeError as error:
        place = getattr(error, "start", None)
        reason = error if place is None else f"byte {place + 1} is no text"
        raise _no_text(path, form, reason) from None
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
            f"{enumerate_names(names)}{_advice(names)}"
        )
    return names.index(name.strip())


def _advice(header: Sequence[str]) -> str:
    """Return what is to be added where one cell may hold all names."""
    other = [own for own in ";\t|," if own in header[0]] if len(header) == 1 else []
    return f"; if {other[0]!r} stands between cells, pass --sep" if other else ""


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
