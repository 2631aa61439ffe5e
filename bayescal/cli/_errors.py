"""What goes to standard error: progress, and errors and warnings in one line each."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from bayescal._core.warnings import AccuracyWarning, SamplingWarning

#: Between lines of progress.
SECONDS = 5.0


class CommandError(Exception):
    """Wrong input from the user; the message says what to change."""


def say(message: object, severity: str = "") -> None:
    """Print one line to standard error."""
    prefix = f"bayescal: {severity}: " if severity else "bayescal: "
    print(prefix + " ".join(str(message).split()), file=sys.stderr)


@contextlib.contextmanager
def library_call() -> Iterator[None]:
    """Make the library's input errors errors of the command, and its warnings single lines."""

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
def running() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description:<40}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("reading", total=None)

        def show(name: str, done: int, total: int) -> None:
            # The resamples are one long step: until it ends nothing is known of its length.
            progress.update(task, description=name, completed=done, total=total if done else None)

        yield show


@contextlib.contextmanager
def watched() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress as a bar on a terminal, and elsewhere as a line every few seconds."""
    from rich.console import Console

    if Console(stderr=True).is_terminal:
        with running() as bar:
            yield bar
        return
    said = time.monotonic()

    def show(name: str, done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= SECONDS:
            said = time.monotonic()
            say(f"{name}: {done / max(total, 1):.0%}")

    yield show


def quality(posterior: Any) -> str:
    """Describe how trustworthy the integration is: what the integrator can tell, after commas."""
    facts = [
        ("effective sample size", posterior.ess, ",.0f"),
        ("Pareto k", posterior.pareto_k, ".2f"),
        ("log evidence", posterior.log_evidence, ".2f"),
    ]
    return "".join(f", {name} {value:{form}}" for name, value, form in facts if value == value)
