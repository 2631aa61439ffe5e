"""How studies print: one kind of table, and plain lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

_WIDTH = 118


def make_console() -> Console:
    """Return a console wide enough for the tables."""
    return Console(width=max(Console().width, _WIDTH))


def say(console: Console, line: str) -> None:
    """Print a line as it is, without colours."""
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
