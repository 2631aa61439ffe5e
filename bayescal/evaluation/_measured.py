"""Base of ``Evaluation``: the attributes from which numbers, text and page are made."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

from bayescal._core.tables import printable
from bayescal.evaluation._events import Events
from bayescal.evaluation._findings import Finding, describe
from bayescal.metrics import Report


@dataclass(frozen=True, repr=False)
class Measured(ABC):
    """The attributes of an :class:`Evaluation`, without its page, which is made from them."""

    report: Report
    findings: dict[str, Finding]
    classes: tuple[str, ...]
    bins: int
    replicates: int
    seed: int
    events: dict[str, Events]

    def summary(self) -> dict[str, str]:
        """Return, by model, the finding in plain sentences."""
        return {
            name: describe(
                finding,
                self.report.intervals[name]["ECE"],
                f"class {self.classes[-1]}",
                f"{self.report.cases:,} cases"
                + ("" if self.report.clusters is None else f" in {self.report.clusters:,} groups"),
                self.report.level,
            )
            for name, finding in self.findings.items()
        }

    def __repr__(self) -> str:
        lines = (f"{name}: {text}" for name, text in self.summary().items())
        return "\n".join([printable("\n".join(lines)), repr(self.report)])
