"""Helpers for commands that must fail."""

from __future__ import annotations

from typer.testing import CliRunner

from benchmarks.studies.app import app


def check_error(line: list[str], message: str) -> None:
    """Check that a command fails with one line on standard error that contains ``message``."""
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("studies: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
