"""A bar on standard error, or what the user puts in its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

Report = Callable[[str, int, int], None]


@contextlib.contextmanager
def showing(progress: bool | Report) -> Iterator[Report | None]:
    """Show a bar on standard error, or pass on the user's own function."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description:<38}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("compiling", total=None)
        yield lambda name, done, total: bar.update(
            task, description=name, completed=done, total=total
        )
