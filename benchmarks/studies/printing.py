"""How studies print: one kind of table, plain lines, and progress."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.studies import store

_WIDTH = 118


def make_console() -> Console:
    """Return a console wide enough for the tables."""
    return Console(width=max(Console().width, _WIDTH))


def say(console: Console, line: str) -> None:
    """Print a line as it is, without colors."""
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
    """Print a table whose first columns are ``words`` and all others numbers.

    ``last`` is a row below a line.
    """
    table = Table(
        title=title,
        caption=caption,
        caption_justify="left",
        padding=(0, 0, 0, 1),
        min_width=len(title),
    )
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < words else "right")
    for row in rows:
        table.add_row(*row)
    if last:
        table.add_section()
        table.add_row(*last)
    console.print(table)


@contextlib.contextmanager
def progress_bar(first: str) -> Iterator[store.Progress]:
    """Show a bar on standard error, if that is a terminal; ``first`` stands there until a step."""
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
