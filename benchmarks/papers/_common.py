"""Tables and lists of published figures and ours, in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import result, table

ROOT = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """A published figure, ours, and one unit of the last published digit."""

    what: str
    published: float
    ours: float
    unit: float

    @property
    def agrees(self) -> bool:
        return abs(self.ours - self.published) <= 1.001 * self.unit

    def cells(self) -> list[str]:
        digits = max(len(f"{self.unit:.10f}".rstrip("0").partition(".")[2]), 1)
        difference = self.ours - self.published
        verdict = "agrees" if self.agrees else f"{difference:+.{digits}f}"
        return [self.what, f"{self.published:.{digits}f}", f"{self.ours:.{digits}f}", verdict]


class Finding(NamedTuple):
    """A result on a table, a figure or a claim of a paper: a row of the table of all papers."""

    figure: str
    published: str
    ours: str
    verdict: str


class Page(NamedTuple):
    """The page of a paper: docs/papers/NAME.md."""

    name: str
    title: str
    text: str
    findings: list[Finding]


def read(name: str) -> dict[str, Any]:
    """Read the results of a study."""
    return result(f"study_{name}")


def comparison_table(rows: list[Row]) -> str:
    """Arrange rows as a table with published figures, ours and differences."""
    return table(["", "published", "ours", ""], [row.cells() for row in rows])


def crossed_table(rows: list[Row]) -> str:
    """Arrange rows named "METHOD, METRIC" as a table with a column for each metric."""
    by_name = {tuple(row.what.split(", ", 1)): row for row in rows}
    methods, metrics = (list(dict.fromkeys(parts)) for parts in zip(*by_name, strict=True))

    def cell(row: Row | None) -> str:
        if row is None:
            return ""
        _, published, ours, _ = row.cells()
        return f"{published} / {ours}" if row.agrees else f"{published} / **{ours}**"

    lines = [[name, *(cell(by_name.get((name, metric))) for metric in metrics)] for name in methods]
    return table(["published / ours", *metrics], lines)


def bullets(lines: list[str]) -> str:
    """Format lines as a bulleted list."""
    return "\n".join(f"- {line}" for line in lines)


def agreement(figure: str, rows: list[Row]) -> Finding:
    """Count the figures of a table that agree, and name the one that differs most."""
    agree = sum(row.agrees for row in rows)
    if agree == len(rows):
        verdict = "agrees"
    else:
        furthest = max(rows, key=lambda row: abs(row.ours - row.published) / row.unit)
        verdict = f"furthest: {furthest.what}, {furthest.cells()[-1]}"
    return Finding(figure, f"{len(rows)} figures", f"{agree} agree", verdict)
