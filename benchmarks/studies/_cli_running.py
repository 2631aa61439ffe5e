"""Common parts of the commands: progress, versions, and errors and warnings in one line."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from benchmarks.studies.printing import progress_bar
from benchmarks.studies.store import Progress

PROGRAM = "python -m benchmarks.studies"
_INTERRUPTED = 130
#: Names of packages that differ from the names of their modules.
_PACKAGES = {"orbax": "orbax-checkpoint"}


class CommandError(Exception):
    """Error for invalid input from the user; the message tells what to change."""


class OneLineErrors(TyperGroup):
    """Group of commands that prints every input error in one line, including parser errors."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except typer.Abort:
            code = _INTERRUPTED
        except Exception as error:
            # The errors of the command line's parser have no public base class.
            describe = getattr(error, "format_message", None)
            if describe is None and not isinstance(error, CommandError):
                raise
            _say(f"error: {error if describe is None else describe()}")
            code = 2
        code = code if isinstance(code, int) else 0
        if code == _INTERRUPTED:
            _say("interrupted")
        if standalone_mode:
            sys.exit(code)
        return code


@contextlib.contextmanager
def end_interrupted() -> Iterator[None]:
    """Exit an interrupted program immediately.

    JAX may still compute in other threads, and a regular exit of Python could then crash.
    """
    try:
        yield
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(_INTERRUPTED)
        raise


@contextlib.contextmanager
def running() -> Iterator[Progress]:
    """Show progress on standard error, and convert errors of a study to errors of the command."""
    with progress_bar("reading") as report:
        with _warnings_in_one_line():
            try:
                yield report
            except (TypeError, ValueError) as error:
                raise CommandError(str(error)) from error
            except OSError as error:
                path = error.filename or "results"
                reason = error.strerror or error
                raise CommandError(f"{path}: cannot write the results: {reason}") from error


def needs(*modules: str) -> None:
    """Raise an error of the command if one of the modules is not installed."""
    from importlib.util import find_spec

    for module in modules:
        if find_spec(module) is None:
            package = _PACKAGES.get(module, module)
            raise CommandError(f"needs {package}: pip install {package}")


def versions(*more: str) -> dict[str, str]:
    """Collect versions that results depend on: bayescal, its dependencies, and more packages."""
    from importlib.metadata import version

    from bayescal import __version__

    others = ("jax", "numpy", "scikit-learn", "scipy")
    return {"bayescal": __version__, **{name: version(name) for name in (*others, *more)}}


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    from bayescal import AccuracyWarning, SamplingWarning

    def show(message: Warning | str, *_: object, **__: object) -> None:
        _say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", SamplingWarning)
        warnings.simplefilter("always", AccuracyWarning)
        warnings.showwarning = show
        yield


def _say(message: str) -> None:
    """Print one line to standard error."""
    print("studies: " + " ".join(message.split()), file=sys.stderr)
