"""A progress bar on standard error, or a function of the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benchmarks.studies.printing import progress_bar
from benchmarks.studies.store import Progress as Report


@contextlib.contextmanager
def showing(progress: bool | Report) -> Iterator[Report | None]:
    """Show a progress bar on standard error, or call the user's function."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield None
        return
    with progress_bar("compiling") as bar:
        yield bar
