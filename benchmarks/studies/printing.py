"""Print the results of studies: tables, plain lines, and progress."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.studies import store

_WIDTH = 118


def make_console() -> Console:
    """Make a console that is wide enough for the tables."""
    return Console(width=max(Console().width, _WIDTH))


def say(console: Console, line: str) -> None:
    """Print a line unchanged, without colors."""
    console.print(line, highlight=False, markup=False)


def show_table(
    console: Console,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str | None = None,
    words: int = 1,
    last: Sequence[str] = (),
) -> None:
    """Print a table.

    The first columns, ``words`` in number, are text and left-aligned; all others are numbers and
    right-aligned. ``last`` is a final row below a line.
    """
    table = Table(
        title=title,
        caption=caption,
        caption_justify="left",
        padding=(0, 0, 0, 1),
        min_width=len(title),
    )
    for column, heading in enumerate(headings):
        table.add_column(heading, justify="left" if column < words else "right")
    for row in rows:
        table.add_row(*row)
    if last:
        table.add_section()
        table.add_row(*last)
    console.print(table)


@contextlib.contextmanager
def progress_bar(first: str) -> Iterator[store.Progress]:
    """Show a progress bar if standard error is a terminal, with ``first`` before the first step."""
    terminal = Console(stderr=True)
    with Progress(
        TextColumn("{task.description:<38}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    ) as bar:
        task = bar.add_task(first, total=None)
        yield lambda name, done, total: bar.update(
            task, description=name, completed=done, total=total
        )
