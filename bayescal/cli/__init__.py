"""The command line: ``bayescal demo``, ``fit``, ``apply``, ``predict``, ``evaluate``, ``monitor``.

Input errors are reported in one line on standard error, with exit code 2.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from bayescal.cli import _errors
from bayescal.cli._examples import EXAMPLES

__all__ = ["main"]

_INTERRUPTED = 130
#: Module and function of each command, imported when it runs, and the first line of its docstring.
_COMMANDS = {
    "demo": (
        "commands.demo.demo",
        "Calibrate a linear SVM on a built-in data set: a table and a reliability diagram.",
    ),
    "fit": (
        "commands.calibrate.fit_file",
        "Fit a calibrator to scores from a file, and report what to expect.",
    ),
    "apply": ("commands.calibrate.apply_file", "Calibrate the scores in a file."),
    "methods": ("commands.methods.list_methods", "List the calibrators that fit --method accepts."),
    "export": (
        "commands.calibrate.export_file",
        "Write a calibrator as a program that runs without bayescal.",
    ),
    "predict": (
        "commands.predict.predict",
        "Predict from a prior and labeled scores, without a fit: a generative model.",
    ),
    "evaluate": (
        "commands.evaluate.evaluate_file",
        "Evaluate probabilities: metrics with intervals, tests, and a self-contained HTML page.",
    ),
    "monitor": (
        "commands.monitor.monitor_file",
        "Test whether probabilities stay calibrated; the exit code is 3 after an alarm.",
    ),
}


class _Command(TyperCommand):
    """A command that shows examples below its help, never wrapped, so that they can be copied."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.write(f"\nExamples:\n{EXAMPLES[self.name or ''].rstrip()}")


class _Group(TyperGroup):
    """The group of commands; it reports input errors in one line and imports commands lazily."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            module, _, function = _COMMANDS[command.name or ""][0].rpartition(".")
            typer_app = typer.Typer(add_completion=False)
            run = getattr(import_module(f"{__name__}.{module}"), function)
            typer_app.command(command.name, cls=_Command)(run)
            command = typer.main.get_command(typer_app)
        return name, command, rest

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> object:
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except _errors.CommandError as error:
            _errors.say(error, "error")
            code = 2
        except typer.Abort:
            code = _INTERRUPTED
        except Exception as error:
            message = _errors.describe(error)
            if message is None:
                raise
            _errors.say(message, "error")
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
    epilog="For examples of a command: bayescal COMMAND --help",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from bayescal import __version__

        _errors.show(f"bayescal {__version__}")
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
        _errors.show(context.get_help())


for _name, (_, _line) in _COMMANDS.items():
    app.command(_name, help=_line)(lambda: None)


def main() -> None:
    """Run the command line, as the program ``bayescal`` does.

    Raises
    ------
    SystemExit
        Always: with 0 on success, 2 after an error, which is one line on standard error, 3 after
        an alarm of ``bayescal monitor``, and 130 if interrupted.

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
            # JAX may still compute in other threads, and Python's regular exit would crash.
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(_INTERRUPTED)
        raise
    finally:
        _errors.end_output()
