"""The command line: ``bayescal demo``, ``fit``, ``apply``, ``methods``, ``predict``, ``evaluate``.

Input errors end with one line on standard error and exit code 2.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bayescal.cli import _calibrate, _demo, _errors, _evaluate, _predict

__all__ = ["main"]

_INTERRUPTED = 130


class _Group(TyperGroup):
    """Says every input error in one line, those of the command line itself too."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except _errors.CommandError as error:
            _errors.say(error, "error")
            code = 2
        except typer.Abort:
            code = _INTERRUPTED
        except Exception as error:
            # The errors of the command line's parser have no public base class.
            describe = getattr(error, "format_message", None)
            if describe is None:
                raise
            _errors.say(describe(), "error")
            code = 2
        code = code if isinstance(code, int) else 0
        if code == _INTERRUPTED:
            _errors.say("interrupted")
        if standalone_mode:
            sys.exit(code)
        return code


app = typer.Typer(
    cls=_Group,
    pretty_exceptions_enable=False,
    help="Bayesian calibration of the probabilities of classifiers.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from bayescal import __version__

        print(f"bayescal {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("demo")(_demo.demo)
app.command("fit")(_calibrate.fit_file)
app.command("apply")(_calibrate.apply_file)
app.command("methods")(_calibrate.list_methods)
app.command("export")(_calibrate.export_file)
app.command("predict")(_predict.predict)
app.command("evaluate")(_evaluate.evaluate_file)


def main() -> None:
    """Run the command line, as the program ``bayescal`` does.

    Raises
    ------
    SystemExit
        Always: with 0 on success, 2 on wrong input and 130 if interrupted.

    Examples
    --------
    >>> import contextlib, sys, unittest.mock
    >>> with unittest.mock.patch.object(sys, "argv", ["bayescal", "--version"]):
    ...     with contextlib.suppress(SystemExit):
    ...         main()
    bayescal ...
    """
    try:
        app(prog_name="bayescal")
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            # JAX may still compute in other threads, and Python's own end under them is a crash.
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(_INTERRUPTED)
        raise
