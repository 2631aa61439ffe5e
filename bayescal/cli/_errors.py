"""Output of the command line: results, progress, and one-line errors and warnings.

All text goes through :func:`show` and :func:`say`, and rows through :func:`write_rows`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from bayescal._core.display.tables import printable, shorten
from bayescal._core.warnings import AccuracyWarning, SamplingWarning

if TYPE_CHECKING:
    from typing import TextIO

    from bayescal.inference.result import Posterior

#: Seconds between lines of progress.
SECONDS = 5.0
#: Largest number of characters in a line on a terminal.
_MAX_LINE = 2000
_MAX_NAME = 80


class CommandError(Exception):
    """Wrong input from the user; the message says what to change."""


def say(message: object, severity: str = "") -> None:
    """Print one line to standard error, if that is open."""
    prefix = f"bayescal: {severity}: " if severity else "bayescal: "
    line = shorten(printable(" ".join(str(message).split())), _MAX_LINE)
    with contextlib.suppress(OSError):
        _print(sys.stderr, f"{prefix}{line}\n")


def show(*parts: object, wrap: bool = False) -> None:
    """Print text, whose lines may be wrapped, and rich tables to standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console(color_system=None, highlight=False, markup=False, emoji=False)
    # Never cut a table, which would lose figures.
    wide = console.options.update(width=10_000)
    tables = [part for part in parts if isinstance(part, Table)]
    widths = [console.measure(table, options=wide).maximum for table in tables]
    console.width = max(console.width, *widths, 0)
    with console.capture() as capture:
        for part in parts:
            if isinstance(part, Table):
                console.print(part)
                continue
            lines = (shorten(line, _MAX_LINE) for line in printable(str(part)).split("\n"))
            console.print("\n".join(lines), soft_wrap=not wrap)
    with _output():
        _print(sys.stdout, capture.get())


def plain(name: str) -> str:
    """Return a name in one line, abbreviated if it is very long."""
    return shorten(printable(" ".join(name.split())), _MAX_NAME)


def write_rows(lines: Iterable[str]) -> None:
    """Write lines to standard output: in UTF-8, like files, but escaped on a terminal."""
    stream = sys.stdout
    if stream is None:
        raise CommandError("standard output is closed; write to a file")
    with _output():
        terminal = stream.isatty()
    raw = None if terminal else getattr(stream, "buffer", None)
    for line in lines:
        with _output():
            if raw is None:
                _print(stream, printable(line) if terminal else line)
            else:
                raw.write(line.encode())
    with _output():
        stream.flush()


def end_output() -> None:
    """Flush standard output, and discard the rest without a traceback if that fails."""
    stream = sys.stdout
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def describe(error: Exception) -> str | None:
    """Describe an error of the user, the system or the parser; return None for other errors."""
    # The parser's errors have no public base class.
    parser = getattr(error, "format_message", None)
    if parser is not None:
        return parser()
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "out of memory; use a smaller file or a machine with more memory"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, (OSError, UnicodeError)):
        return str(error)
    return None


@contextlib.contextmanager
def _output() -> Iterator[None]:
    """Convert errors of standard output to errors of the command."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has closed the pipe
    except OSError as error:
        problem = error.strerror or error
        raise CommandError(f"cannot write to standard output: {problem}") from error


def _print(stream: TextIO | None, text: str) -> None:
    """Write text to a stream, if that is open, with characters that its encoding has."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeError:
        text = text.replace("±", "+/-").encode(encoding, "replace").decode(encoding)
    stream.write(text)
    stream.flush()


@contextlib.contextmanager
def library_call() -> Iterator[None]:
    """Convert the library's input errors to errors of the command, and warnings to single lines."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(message, "warning")

    with warnings.catch_warnings():
        warnings.simplefilter("always", SamplingWarning)
        warnings.simplefilter("always", AccuracyWarning)
        warnings.showwarning = show
        try:
            yield
        except (ImportError, OSError, TypeError, ValueError) as error:
            raise CommandError(str(error)) from error


@contextlib.contextmanager
def watched() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress as a bar on a terminal, and elsewhere as a line every few seconds."""
    from rich.console import Console

    last_line = time.monotonic()

    def show_line(name: str, done: int, total: int) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= SECONDS:
            last_line = time.monotonic()
            say(f"{name}: {done / max(total, 1):.0%}")

    console = Console(stderr=True)
    if not console.is_terminal:
        yield show_line
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = TextColumn("{task.description:<40}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*bar, console=console, transient=True) as progress:
        task = progress.add_task("reading", total=None)

        def show_bar(name: str, done: int, total: int) -> None:
            # The resamples are one long step: its length is unknown until it ends.
            length = total if done else None
            progress.update(task, description=printable(name), completed=done, total=length)

        yield show_bar


def quality(posterior: Posterior) -> str:
    """Describe the quality of the integration by its diagnostics, each after a comma."""
    facts = [
        ("effective sample size", posterior.ess, ",.0f"),
        ("Pareto k", posterior.pareto_k, ".2f"),
        ("log evidence", posterior.log_evidence, ".2f"),
    ]
    return "".join(f", {name} {value:{form}}" for name, value, form in facts if value == value)
