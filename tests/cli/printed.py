"""Helpers that read the output of commands."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from bayescal.cli import app


def cells(text: str, name: str) -> list[list[str]]:
    """Return the remaining cells of the printed table rows that begin with ``name``."""
    actual = [line.split("│")[1:-1] for line in text.splitlines() if "│" in line]
    rows = [[cell.strip() for cell in row] for row in actual]
    return [row[1:] for row in rows if row[0] == name]


def check_failure(result: Result, message: str) -> None:
    """Check that a command failed with a one-line error, and printed nothing else."""
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("bayescal: error: ") and message in result.stderr


def check_error(line: list[str], message: str) -> None:
    """Check that a command fails with one line on standard error that contains ``message``."""
    check_failure(CliRunner().invoke(app, line), message)
