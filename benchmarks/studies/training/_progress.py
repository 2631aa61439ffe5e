"""A bar on standard error, or what the user puts in its place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benchmarks.studies.printing import progress_bar
from benchmarks.studies.store import Progress as Report


@contextlib.contextmanager
def showing(progress: bool | Report) -> Iterator[Report | None]:
    """Show a bar on standard error, or pass on the user's own function."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield None
        return
    with progress_bar("compiling") as bar:
        yield bar
