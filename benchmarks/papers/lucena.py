"""B. Lucena (2018): calibration by splines."""

from __future__ import annotations

from benchmarks.papers._common import Page, Row, bullets, compared, counted, read


def page() -> Page:
    study = read("adult")
    rows = [
        Row(f"{name}, log loss on Adult", own["published"], own["cross_validated"], 1e-4)
        for name, own in study["methods"].items()
        if own["published"] is not None and not name.endswith(("coefficients", "curvature"))
    ]
    text = f"""\
## Table 1

{compared(rows)}

{bullets(study["remarks"])}

The other half of table 1 needs records of patients (MIMIC-III) that are not free.
"""
    return Page("lucena", "Lucena (2018): splines", text, [counted("table 1, Adult", rows)])
