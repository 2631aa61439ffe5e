"""What the studies of the command line share: the console, progress, errors, versions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bayescal.cli._errors import CommandError, library_call

_WIDTH = 118


def make_console() -> Console:
    """Return a console wide enough for the tables."""
    return Console(width=max(Console().width, _WIDTH))


@contextlib.contextmanager
def running() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on standard error, and make the errors of a study those of the command."""
    terminal = Console(stderr=True)
    with Progress(
        TextColumn("{task.description:<36}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    ) as progress:
        task = progress.add_task("reading", total=None)

        def show(name: str, done: int, total: int) -> None:
            progress.update(task, description=name, completed=done, total=total)

        with library_call():
            try:
                yield show
            except OSError as error:
                place = error.filename or "results"
                reason = error.strerror or error
                raise CommandError(f"{place}: cannot write the results: {reason}") from error


def versions() -> dict[str, str]:
    """Return what results depend on."""
    from importlib.metadata import version

    from bayescal import __version__

    others = ("jax", "numpy", "scikit-learn", "scipy")
    return {"bayescal": __version__, **{name: version(name) for name in others}}
