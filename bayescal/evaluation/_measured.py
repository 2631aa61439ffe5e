"""Base of ``Evaluation``: the attributes from which numbers, text and page are made."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

from bayescal._core.display.tables import TextTable, printable
from bayescal.evaluation._events import ModelEvents
from bayescal.evaluation._findings import Finding, describe
from bayescal.metrics import MetricReport


@dataclass(frozen=True, repr=False)
class Measured(ABC):
    """The attributes of an :class:`Evaluation`, without its page, which is made from them."""

    report: MetricReport
    findings: dict[str, Finding]
    classes: tuple[str, ...]
    bins: int
    replicates: int
    seed: int
    events: dict[str, ModelEvents]
    by: Mapping[str, Measured] = field(default_factory=dict)

    def summary(self) -> dict[str, str]:
        """Return, by model, the finding in plain sentences."""
        return {
            name: describe(
                finding,
                self.report.intervals[name],
                self.classes,
                ("1 case" if self.report.cases == 1 else f"{self.report.cases:,} cases")
                + ("" if self.report.clusters is None else f" in {self.report.clusters:,} groups"),
                self.report.level,
            )
            for name, finding in self.findings.items()
        }

    def __repr__(self) -> str:
        lines = (f"{name}: {text}" for name, text in self.summary().items())
        parts = [printable("\n".join(lines)), repr(self.report)]
        if self.by:
            parts.append(str(self.subgroups()))
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        lines = (f"<p><b>{escape(n)}</b>: {escape(text)}</p>" for n, text in self.summary().items())
        parts = [*lines, self.report._repr_html_()]
        if self.by:
            parts.append(self.subgroups().for_notebook())
        return "".join(parts)

    def subgroups(self) -> TextTable:
        """Make a table with a row for each subgroup and model."""
        binary, several = len(self.classes) == 2, len(self.findings) > 1
        heads = ["subgroup", *["model"] * several, "cases", "log loss", "ECE above chance"]
        heads += ["predicted", "observed"] if binary else ["confidence", "accuracy"]
        rows = []
        for name, part in self.by.items():
            for model, finding in part.findings.items():
                metrics = part.report.intervals[model]
                ece = metrics["ECE"]
                shown = finding.confidence, finding.accuracy
                if binary:
                    shown = finding.predicted, finding.observed
                cells = [name, *[model] * several, f"{part.report.cases:,}"]
                cells.append(f"{metrics['log loss'].value:.4f}")
                cells.append(f"{ece.estimate:.3f} [{ece.lower:.3f}, {ece.upper:.3f}]")
                verdict = "no error found" if finding.verdict == "no evidence" else finding.verdict
                cells += [*(f"{value:.3f}" for value in shown), verdict]
                rows.append(cells)
        caption = (
            f"Predicted and observed: mean probability and frequency of class {self.classes[-1]}. "
            if binary
            else ""
        )
        caption += (
            f"In brackets: {self.report.level:.0%} intervals. Verdicts are not corrected for the "
            "number of subgroups."
        )
        return TextTable("By subgroup", [*heads, "verdict"], rows, caption)
