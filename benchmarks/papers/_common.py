"""Published figures beside ours, in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import result, table

ROOT = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """A published figure beside ours, and one unit of its last digit."""

    what: str
    published: float
    ours: float
    unit: float

    @property
    def agrees(self) -> bool:
        return abs(self.ours - self.published) <= 1.001 * self.unit

    def cells(self) -> list[str]:
        digits = max(len(f"{self.unit:.10f}".rstrip("0").partition(".")[2]), 1)
        apart = self.ours - self.published
        verdict = "agrees" if self.agrees else f"{apart:+.{digits}f}"
        return [self.what, f"{self.published:.{digits}f}", f"{self.ours:.{digits}f}", verdict]


class Finding(NamedTuple):
    """A table, a figure or a claim of a paper: a line of the table over all papers."""

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
    """Return the results of a study."""
    return result(f"study_{name}")


def compared(rows: list[Row]) -> str:
    return table(["", "published", "ours", ""], [row.cells() for row in rows])


def crossed(rows: list[Row]) -> str:
    """Return a table of "METHOD, METRIC" with metrics side by side."""
    found = {tuple(row.what.split(", ", 1)): row for row in rows}
    methods, metrics = (list(dict.fromkeys(own)) for own in zip(*found, strict=True))

    def cell(row: Row | None) -> str:
        if row is None:
            return ""
        _, published, ours, _ = row.cells()
        return f"{published} / {ours}" if row.agrees else f"{published} / **{ours}**"

    lines = [[name, *(cell(found.get((name, own))) for own in metrics)] for name in methods]
    return table(["published / ours", *metrics], lines)


def bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def counted(figure: str, rows: list[Row]) -> Finding:
    """Say of a table how many of its figures agree, and which one is furthest."""
    agree = sum(row.agrees for row in rows)
    if agree == len(rows):
        verdict = "agrees"
    else:
        far = max(rows, key=lambda row: abs(row.ours - row.published) / row.unit)
        verdict = f"furthest: {far.what}, {far.cells()[-1]}"
    return Finding(figure, f"{len(rows)} figures", f"{agree} agree", verdict)
