"""What commands print, taken apart."""

from __future__ import annotations

from typer.testing import CliRunner

from bayescal.cli import app


def cells(text: str, name: str) -> list[list[str]]:
    """Return the other cells of the rows of printed tables that begin with ``name``."""
    actual = [line.split("│")[1:-1] for line in text.splitlines() if "│" in line]
    rows = [[cell.strip() for cell in row] for row in actual]
    return [row[1:] for row in rows if row[0] == name]


def check_error(line: list[str], message: str) -> None:
    """Check that a command fails as a wrong line should, with this in its message."""
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("bayescal: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
