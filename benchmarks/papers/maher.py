"""M. Maher (2020): tables of real data."""

from __future__ import annotations

from benchmarks.papers._common import Page, Row, bullets, compared, counted, read

_EXPERIMENTS = {"svm": "scores of SVMs", "multivariate": "features"}
_METRICS = {"log_loss": "log loss", "ece": "ECE"}


def page() -> Page:
    rows: dict[str, list[Row]] = {}
    remarks = []
    for name, own in read("real")["experiments"].items():
        data = _EXPERIMENTS[name]
        for metric, shown in _METRICS.items():
            each = own[metric]
            rows[f"{data}, {shown}"] = [
                Row(f"`{method}`, {data}, {shown}", value, mean, 1e-4)
                for method, value in each["published"].items()
                if (mean := each["mean"].get(method)) is not None
            ]
        remarks += own["remarks"]
    text = f"""\
The synthetic study has [a page of its own](reproduction.md).

## Real tables

Published are means over 40 tables, of which 19 can be had: means need not agree, and what they
cannot both be is said.

{compared([row for own in rows.values() for row in own])}

{bullets(remarks)}
"""
    findings = [counted(f"real tables, {name}", own) for name, own in rows.items()]
    return Page("maher", "Maher (2020): instance-based label smoothing", text, findings)
