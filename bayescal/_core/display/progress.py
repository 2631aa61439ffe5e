"""Progress of long computations: a bar, or a user's function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

#: Called with the name of the step, the number of finished steps, and their total.
Progress: TypeAlias = Callable[[str, int, int], None]


@contextlib.contextmanager
def showing(progress: bool | Progress) -> Iterator[Progress | None]:
    """Show a bar on standard error, or pass on the user's function."""
    if callable(progress):
        yield progress
        return
    if not isinstance(progress, (bool, np.bool_)) and progress is not None:
        raise TypeError(f"progress must be True, False or a function, got {progress!r}")
    if not progress:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description:<30}"), BarColumn(), MofNCompleteColumn()
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as p:
        task = p.add_task("starting", total=None)
        yield lambda name, done, total: p.update(
            task, description=name, completed=done, total=total
        )
