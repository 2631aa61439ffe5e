"""Text files with columns: read in bounded memory, written completely or not at all."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TextIO, TypeAlias

from bayescal._core import files
from bayescal.cli._errors import CommandError, write_rows
from bayescal.cli.tables.json_lines import is_json, parse_objects

if TYPE_CHECKING:
    from pyarrow import CompressedInputStream

_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_QUOTE = '"'
_PIECE = 1 << 20
#: Cells without a number, in lower case.
MISSING = {"", "na", "n/a", "nan", "null", "none"}
#: Largest number of bytes of input that is not a regular file and can be read only once.
PIPED = 1 << 28
#: The remedy if pyarrow is missing.
INSTALL_FILES = 'run pip install "bayescal[files]"'
#: Largest number of characters of a line, and of cells of a block.
LINE, CELLS = 1 << 26, 1 << 22

#: Called with the number of bytes that were read, and the total.
Show = Callable[[int, int], object]


@dataclass(frozen=True)
class Format:
    """Layout of text: by default a tab separates cells in .tsv files, and a comma in others."""

    sep: str | None = None
    encoding: str | None = None
    decimal: str = "."
    #: Whether scores are percentages, with or without a percent sign.
    percent: bool = False
    #: Whether cells without a number, empty or NA, are read as NaN.
    skip_missing: bool = False

    def __post_init__(self) -> None:
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '\r\n"\0'):
            raise CommandError(f"--sep must be one character, got {self.sep!r}")
        if self.decimal not in (".", ","):
            raise CommandError(f"--decimal must be . or , (a comma), got {self.decimal!r}")
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise CommandError(
                f"--encoding must be one that Python knows, as latin-1, got {self.encoding!r}"
            ) from None

    def between(self, path: Path) -> str:
        """Return the separator of cells."""
        tabbed = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
        return self.sep or ("\t" if tabbed else ",")

    @property
    def text(self) -> str:
        """The encoding, without a byte order mark."""
        return self.encoding or "utf-8-sig"

    def parse(self, cell: str) -> float:
        """Return the finite number in a cell, or NaN to be skipped; else raise ValueError."""
        if self.skip_missing and cell.strip().lower() in MISSING:
            return math.nan
        if self.percent:
            cell = cell.strip().removesuffix("%")
        if self.decimal == ",":
            # A point would separate thousands.
            cell = cell.replace(".", "_").replace(",", ".")
        value = float(cell)
        if "_" in cell or not math.isfinite(value):  # Python reads 1_000, CSV files do not
            raise ValueError(cell)
        return value

    def print(self, value: float) -> str:
        """Return a cell with a number; NaN gives an empty cell."""
        return "" if math.isnan(value) else repr(value).replace(".", self.decimal)


PLAIN = Format()


def ignore(done: int, total: int) -> None:
    """Show nothing."""


class FileTable(NamedTuple):
    """Rows of a file: its name, column names, rows of text, and the line at which each row ends.

    ``first`` is the number of rows before them; ``lines`` is empty for files without lines.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    first: int = 0
    form: Format = PLAIN
    #: The lines of rows that are JSON objects, unchanged.
    objects: Sequence[str] = ()

    def position(self, row: int) -> str:
        """Describe the position of a row, for messages."""
        line = f" (line {self.lines[row]})" if self.lines else ""
        return f"row {self.first + row + 1}{line}"


def read_table(path: Path, form: Format = PLAIN, limit: int = PIPED) -> FileTable | None:
    """Read text in columns with a header, plain or compressed with gzip or zstd; - is the input.

    Returns None if there are more bytes than the limit, compressed or not.
    """
    text = _read_text(path, form, limit)
    return None if text is None else next(_tables(path, io.StringIO(text, newline=""), form))


def stream_tables(
    path: Path, size: int, show: Show = ignore, form: Format = PLAIN
) -> Iterator[FileTable]:
    """Yield at most ``size`` rows at a time of a CSV file that may be larger than memory."""
    with _explaining(path, form), path.open("rb") as file:
        total, stream = path.stat().st_size, unpacked(path, file)
        text = io.TextIOWrapper(stream, encoding=form.text, newline="")
        for table in _tables(path, text, form, size):
            show(file.tell(), total)
            yield table


@contextlib.contextmanager
def _explaining(path: Path, form: Format) -> Iterator[None]:
    """Convert errors of reading a file to errors of the command."""
    try:
        yield
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file") from None
    except UnicodeError as error:
        raise _no_text(path, form, getattr(error, "reason", error)) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CommandError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise CommandError(f"{path}: cannot read the file: {error.strerror or error}") from error


#: Bytes of a file, unpacked if it is compressed.
Stream: TypeAlias = "BinaryIO | gzip.GzipFile | CompressedInputStream"


def unpacked(path: Path, file: Stream) -> Stream:
    """Return a stream of the content of a compressed file, or the file if it is not compressed."""
    magic = file.read(len(_ZSTD_MAGIC))
    file.seek(0)
    if magic.startswith(_GZIP_MAGIC):
        return gzip.GzipFile(fileobj=file)
    return _zstd(path).CompressedInputStream(file, "zstd") if magic == _ZSTD_MAGIC else file


def _zstd(path: Path) -> ModuleType:
    try:
        import pyarrow
    except ImportError:
        raise CommandError(f"{path}: files of zstd need pyarrow: {INSTALL_FILES}") from None
    return pyarrow


def _no_text(path: Path, form: Format, reason: object) -> CommandError:
    problem = f"not text in {form.encoding or 'UTF-8'}: {reason}"
    return CommandError(
        f"{path}: {problem}; pass its encoding with --encoding, such as utf-16 or latin-1"
    )


def begins_with(path: Path, magic: bytes) -> bool:
    """Whether a file begins with some bytes; False if it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(magic)) == magic
    return False


def _lines(path: Path, text: TextIO) -> Iterator[str]:
    """Yield lines of bounded length."""
    number = 0
    while line := text.readline(LINE):
        number += 1
        if "\0" in line:
            raise CommandError(f"{path}: not a CSV file: it holds zero bytes")
        if len(line) == LINE and line[-1] not in "\r\n":
            raise CommandError(
                f"{path}: not a CSV file: line {number} has more than {LINE:,} characters"
            )
        yield line


def rows_of_block(size: int, columns: int) -> int:
    """Return how many rows fit into a block of at most ``size`` rows."""
    return max(1, min(size, CELLS // max(columns, 1)))


def _tables(path: Path, text: TextIO, form: Format, size: int | None = None) -> Iterator[FileTable]:
    """Yield at most ``size`` rows at a time, or all at once."""
    lines_of_text = _lines(path, text)
    # Encodings other than the default keep a byte order mark.
    start = next(lines_of_text, "").removeprefix("\ufeff")
    lines_of_text = chain([start], lines_of_text)
    if is_json(path, start):
        yield from _object_tables(path, lines_of_text, form, size)
        return
    reader = csv.reader(lines_of_text, strict=True, delimiter=form.between(path))
    rows, lines, first = [], [], 0
    try:
        full = filter(None, reader)
        header = next(full, [])
        size = sys.maxsize if size is None else rows_of_block(size, len(header))
        for row in full:
            if len(row) != len(header):
                raise CommandError(
                    f"{path}: every row must have as many cells as the header, {len(header)}, got "
                    f"{len(row)} in row {first + len(rows) + 1} (line {reader.line_num})"
                    f"{advise_sep(header)}"
                )
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) == size:
                yield FileTable(path, header, rows, lines, first, form)
                rows, lines, first = [], [], first + size
    except csv.Error as error:
        raise CommandError(f"{path}: not a CSV file: {error} (line {reader.line_num})") from error
    if not header:
        raise CommandError(f"{path}: the file must not be empty")
    if rows:
        yield FileTable(path, header, rows, lines, first, form)
    elif not first:
        raise CommandError(f"{path}: the file must have rows below its header")


def _object_tables(
    path: Path, lines: Iterable[str], form: Format, size: int | None
) -> Iterator[FileTable]:
    """Yield rows of JSON lines. Objects in the first block must have all names of columns."""
    header: list[str] | None = None
    parsed, first = parse_objects(path, lines, form.decimal), 0
    for start in parsed:
        count = None if size is None else rows_of_block(size, len(start[2])) - 1
        numbers, objects, values = zip(start, *islice(parsed, count), strict=True)
        header = [*dict.fromkeys(chain(*values))] if header is None else header
        rows = [[values_by_name.get(name, "") for name in header] for values_by_name in values]
        yield FileTable(path, header, rows, list(numbers), first, form, objects)
        first += len(rows)
    if header is None:
        raise CommandError(f"{path}: the file must not be empty")


def is_standard_output(path: Path) -> bool:
    """Whether the path is ``-``, which means standard output."""
    return str(path) == "-"


def check_source(path: Path) -> None:
    """Raise if there is no such file, before anything slow is imported."""
    if not path.exists():
        raise CommandError(f"{path}: no such file")


def check_target(path: Path | None, option: str = "") -> None:
    """Raise if a file cannot be written at that path, before any work is done.

    None is no file. The path may be standard output unless its ``option`` is named.
    """
    if path is None:
        return
    if is_standard_output(path):
        if option:
            raise CommandError(f"{option} must be a file, got -")
        return
    if path.exists() and not path.is_file():
        raise CommandError(f"{path}: the output must be a file, not a folder or device")
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise CommandError(f"{path}: the symbolic links lead in a circle")
    folder = Path(target).parent
    if not folder.is_dir():
        raise CommandError(f"{path}: the folder {folder} does not exist")


def check_new_columns(table: FileTable, advice: Mapping[str, str]) -> None:
    """Raise if the table already has one of the columns; ``advice`` maps names to remedies."""
    header = [column.strip() for column in table.header]
    for name, remedy in advice.items():
        if name in header:
            raise CommandError(f"{table.path}: the file has a column {name!r} already; {remedy}")


def write_json(path: Path, values: object) -> None:
    """Write values as JSON; - prints."""
    # Printed text must be readable in any encoding, and must not control the terminal.
    printed = is_standard_output(path)
    text = json.dumps(values, indent=2, allow_nan=False, ensure_ascii=printed) + "\n"
    if printed:
        write_rows([text])
    else:
        write_atomically(path, lambda stream: stream.write(text.encode()))


def write_table(
    path: Path, header: Sequence[str], rows: Iterator[Sequence[str]], sep: str = ","
) -> None:
    """Write text in columns; see :func:`write_lines`."""
    line = partial(_line, sep, re.compile(rf'[{re.escape(sep)}"\r\n]'))
    write_lines(path, map(line, chain([header], rows)))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines atomically, compressed if the name ends in .gz or .zst; - prints."""
    if is_standard_output(path):
        write_rows(lines)
        return

    def write(stream: BinaryIO) -> None:
        with contextlib.ExitStack() as stack:
            if path.suffix.lower() == ".gz":
                # Without name and time, equal rows give equal files.
                zipped = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
                stream = stack.enter_context(zipped)  # type: ignore[assignment]
            elif path.suffix.lower() == ".zst":
                stream = stack.enter_context(_zstd(path).CompressedOutputStream(stream, "zstd"))
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            text.writelines(lines)
            text.flush()
            text.detach()

    write_atomically(path, write)


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a file that replaces ``path`` when it is complete, and only then."""
    check_target(path)
    try:
        with files.write_atomically(path) as unfinished, open(unfinished, "xb") as stream:
            write(stream)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"{path}: cannot write the file: {reason}") from error


def _line(sep: str, special: re.Pattern[str], cells: Sequence[str]) -> str:
    # Python's writer does not quote a lone carriage return before 3.13: readers see two rows.
    quoted = [f'"{c.replace(_QUOTE, 2 * _QUOTE)}"' if special.search(c) else c for c in cells]
    return (sep.join(quoted) or '""') + "\n"


def _read_text(path: Path, form: Format, limit: int) -> str | None:
    """Read a text; return None if it has more bytes than the limit, compressed or not."""
    with _explaining(path, form):
        if str(path) == "-":
            if sys.stdin is None:
                raise CommandError("-: standard input is closed")
            packed = _read_bytes(sys.stdin.buffer, limit)
        else:
            with path.open("rb") as file:
                packed = _read_bytes(file, limit)
        content = packed and _read_bytes(unpacked(path, io.BytesIO(packed)), limit)
        try:
            return None if content is None else content.decode(form.text)
        except UnicodeDecodeError as error:
            raise _no_text(path, form, f"byte {error.start + 1} is no text") from None


def _read_bytes(stream: Stream, limit: int) -> bytes | None:
    """Read all bytes of a stream; return None if there are more than the limit."""
    # Read in pieces, because a buffered stream reserves memory for all that is requested.
    content = bytearray()
    while piece := stream.read(_PIECE):
        content += piece
        if len(content) > limit:
            return None
    return bytes(content)


def advise_sep(header: Sequence[str]) -> str:
    """Suggest another separator if one cell may contain all names."""
    other = [sep for sep in ";\t|," if sep in header[0]] if len(header) == 1 else []
    return f"; if {other[0]!r} separates cells, pass --sep" if other else ""
