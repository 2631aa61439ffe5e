"""K. Valk (2022): calibration of several classes by neighbors."""

from __future__ import annotations

from typing import Any

from benchmarks.papers._common import Finding, Page, bullets, counted, read, table
from benchmarks.papers._networks import METRICS, every, network_tables, remarks

# Tables 5 to 10 are of CIFAR-10, 11 to 16 of other data; one for each metric.
_ALONE, _AFTER = "Valk, table 4", "Valk"


def page() -> Page:
    text = f"""\
## Networks

Tables 5 to 16: each method after temperature scaling.

{network_tables(_AFTER)}

Table 4: without.

{network_tables(_ALONE)}

{bullets(list(dict.fromkeys([*remarks(_AFTER), *remarks(_ALONE)])))}

## Three classes with a known truth

Table 1. The published true map, a forest fitted to five million predictions, is not to be had; ours
is another, smooth one, with the same distribution of predictions and the same sizes. So numbers
differ, and orders of methods can be compared. Published options are fixed; ours are chosen by
cross-validation where a method has that.

{_simplex()}

Spearman's correlation of the methods' mean ranks, published and ours, is {_correlation():.2f}.
"""
    after = every(_AFTER)
    findings = [
        Finding(
            "table 1, order of methods", "8 methods", f"rank correlation {_correlation():.2f}", ""
        ),
        counted("table 4", every(_ALONE)),
    ]
    for metric in (
        "accuracy",
        "ece_mass",
        "class_wise_ece_mass",
        "brier_score",
        "log_loss",
        "loss_gap",
    ):
        name = METRICS[metric]
        rows = [row for row in after if row.what.endswith(f"`, {name}")]
        findings.append(counted(f"tables 5 to 16, {name}", rows))
    return Page("valk", "Valk (2022): calibration of several classes", text, findings)


def _simplex() -> str:
    study = read("simplex")
    names = list(study["published"]["temperature"])
    rows = []
    for method, known in study["published"].items():
        own = study["maps"][method]
        cells = [
            f"{known[name]:.3f} / {own[name]:.3f}" if name in own else f"{known[name]:.3f}"
            for name in names
        ]
        rows.append([f"`{method}`", *cells])
    return table(["published / ours", *(METRICS[name] for name in names)], rows)


def _correlation() -> float:
    """Return Spearman's correlation of the methods' mean ranks, published and ours."""
    import numpy as np
    from scipy.stats import rankdata

    study = read("simplex")
    methods = [name for name in study["published"] if name != "truth"]
    names = [name for name in study["published"]["temperature"] if name in study["maps"]["truth"]]

    def mean_rank(values: dict[str, dict[str, float]]) -> Any:
        signs = [-1 if name == "accuracy" else 1 for name in names]
        columns = [
            rankdata([sign * values[method][name] for method in methods])
            for sign, name in zip(signs, names, strict=True)
        ]
        return sum(columns) / len(columns)

    theirs, ours = mean_rank(study["published"]), mean_rank(study["maps"])
    return float(np.corrcoef(rankdata(theirs), rankdata(ours))[0, 1])
