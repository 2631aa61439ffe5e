"""Weight scaling (anonymous submission to ICLR 2023)."""

from __future__ import annotations

from benchmarks.papers._common import Page, bullets, counted
from benchmarks.papers._networks import every, network_tables, remarks

_SOURCE = "weight scaling"


def page() -> Page:
    text = f"""\
## Table 2

{network_tables(_SOURCE)}

{bullets(remarks(_SOURCE))}

The predictions behind the other networks of table 2, and behind tables 1 and 3, are not among those
that can be had.
"""
    findings = [counted("table 2, DenseNet-40", every(_SOURCE))]
    return Page("weight-scaling", "Weight scaling (anonymous, 2023)", text, findings)
