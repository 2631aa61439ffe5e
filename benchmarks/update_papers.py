"""Write docs/papers/figures.md from the results kept in benchmarks/results.

    python benchmarks/update_papers.py [--check]

With --check it changes nothing, and fails if the page is not that of the results. To renew these
first: python -m benchmarks.studies NAME --data DIR --out DIR, with NAME real, adult, cnn, simplex
or multilabel, and DIR/NAME.json copied to benchmarks/results/study_NAME.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "papers" / "figures.md"
RESULTS = ROOT / "benchmarks" / "results"
NAMES = {
    "accuracy": "accuracy",
    "brier_score": "Brier score",
    "class_wise_ece_mass": "class-wise ECE, equal mass",
    "class_wise_error": "class-wise calibration error",
    "confidence_error": "confidence calibration error",
    "ece": "ECE, 15 bins",
    "ece_25": "ECE, 25 bins",
    "ece_mass": "ECE, equal mass",
    "log_loss": "log loss",
    "loss_gap": "average loss gap",
}
NETWORKS = {
    "kull_densenet40_c10": "DenseNet-40, CIFAR-10",
    "sctl_densenet40_c10_LT": "DenseNet-40, long-tailed CIFAR-10",
    "sctl_resnet110_c10_LT": "ResNet-110, long-tailed CIFAR-10",
}


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


def read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"study_{name}.json").read_text(encoding="utf-8"))


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def compared(rows: list[Row]) -> str:
    return table(["", "published", "ours", ""], [row.cells() for row in rows])


def bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def networks() -> dict[str, dict[str, Any]]:
    return read("cnn")["networks"] | read("cnn_others")["networks"]


def figures(source: str) -> dict[str, list[Row]]:
    """Return what one source prints of each network."""
    found = {}
    for network, own in networks().items():
        rows = [
            Row(f"`{each['method']}`, {NAMES[each['metric']]}", *values(each))
            for each in own["published"]["figures"]
            if each["source"].startswith(source)
        ]
        if rows:
            found[network] = rows
    return found


def values(each: dict[str, Any]) -> tuple[float, float, float]:
    return each["value"], each["ours"], each["unit"]


def remarks(source: str) -> list[str]:
    """Return the remarks that are made on what a source prints of DenseNet-40."""
    own = networks()["kull_densenet40_c10"]["published"]
    others = ("Valk, table 4:", "Valk:", "Kull:", "weight scaling:", "SCTL:")
    mine = [text for text in own["remarks"] if text.startswith(source)]
    general = [text for text in own["remarks"] if not text.startswith(others)]
    shown = {each["method"] for each in own["figures"] if each["source"].startswith(source)}
    topics = {
        "ODIR": {"matrix_odir", "dirichlet_odir"},
        "Vector": {"vector"},
        "Forest alone": {"forest"},
        "Forest after": {"temperature+forest"},
        "KNN": {"knn"},
        "Kernel": {"kernel", "temperature+kernel"},
        "Weights": {"weight_scaling_bins", "binwise_temperature", "binwise_confidence"},
        "Decision": {"temperature+decision_cv"},
        "IOP": {"order_preserving"},
        "Loss gap": {"knn", "kernel"} if source.startswith("Valk") else set(),
    }
    mine += [t for t in general for key, own in topics.items() if t.startswith(key) and own & shown]
    return mine


def network_tables(source: str) -> str:
    return "\n\n".join(
        f"**{NETWORKS[network]}**\n\n{compared(rows)}" for network, rows in figures(source).items()
    )


def adult() -> tuple[list[Row], list[str]]:
    study = read("adult")
    rows = [
        Row(f"{name}, log loss on Adult", own["published"], own["cross_validated"], 1e-4)
        for name, own in study["methods"].items()
        if own["published"] is not None and not name.endswith(("coefficients", "curvature"))
    ]
    return rows, study["remarks"]


def real() -> tuple[list[Row], list[str]]:
    rows, texts = [], []
    for name, own in read("real")["experiments"].items():
        scores = "scores of SVMs" if name == "svm" else "features"
        for metric in ("log_loss", "ece"):
            each = own[metric]
            rows += [
                Row(
                    f"`{method}`, {scores}, {'ECE' if metric == 'ece' else 'log loss'}",
                    value,
                    mean,
                    1e-4,
                )
                for method, value in each["published"].items()
                if (mean := each["mean"].get(method)) is not None
            ]
        texts += own["remarks"]
    return rows, texts


def simplex() -> str:
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
    return table(["published / ours", *(NAMES[name] for name in names)], rows)


def ranks() -> str:
    """Say how the order of methods by their mean rank compares."""
    from scipy.stats import rankdata, spearmanr

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
    return (
        f"Spearman's correlation of the methods' mean ranks, published and ours, is "
        f"{spearmanr(theirs, ours).statistic:.2f} ({len(methods)} methods)."
    )


def multilabel() -> tuple[str, dict[str, int], int]:
    """Return a table of histogram binning, and in how many data sets of how many it helps."""
    data = read("multilabel")["data"]
    metrics = ("ece_total", "ece_weighted", "hamming_loss", "log_loss")
    rows, better = [], dict.fromkeys((*metrics, "beta"), 0)
    for name, own in data.items():
        before, after = (own["methods"][m]["mean"] for m in ("uncalibrated", "histogram"))
        for metric in metrics:
            better[metric] += after[metric] < before[metric]
        better["beta"] += own["methods"]["beta"]["mean"]["log_loss"] < before["log_loss"]
        rows.append([name, *(f"{before[m]:.4f} → {after[m]:.4f}" for m in metrics)])
    heads = ["", "ECE, total", "ECE, weighted", "Hamming loss", "log loss"]
    return table(heads, rows), better, len(data)


def summary(parts: dict[str, list[Row]]) -> str:
    rows = [
        [name, str(len(own)), str(sum(row.agrees for row in own))] for name, own in parts.items()
    ]
    return table(["", "figures compared", "agree"], rows)


def page() -> str:
    valk, kull, weights, sctl = (
        [row for rows in figures(source).values() for row in rows]
        for source in ("Valk", "Kull", "weight scaling", "SCTL")
    )
    spline, spline_remarks = adult()
    tables, table_remarks = real()
    labels, better, count = multilabel()
    parts = {
        "Maher (2020), real tables": tables,
        "Valk (2022), tables 4 to 16": valk,
        "Lucena (2018), table 1": spline,
        "Weight scaling (2023), table 2": weights,
        "Kull et al. (2019)": kull,
        "Jung et al. (2023)": sctl,
    }
    return f"""\
# The papers, figure by figure

What five papers print, and two on whose predictions they build, beside what this library computes
from the same predictions and data, where these can be had. A figure *agrees* if it differs by one
unit of its last printed digit at most. Reasons that experiments showed stand below each table; a
difference without one is unexplained. The synthetic study of Maher (2020) has
[a page of its own](reproduction.md).

This page is written by `python benchmarks/update_papers.py` from `benchmarks/results`.

{summary(parts)}

## Maher (2020): real tables

Published are means over 40 tables, of which 19 can be had: means need not agree, and what they
cannot both be is said.

{compared(tables)}

{bullets(table_remarks)}

## Valk (2022): networks

{network_tables("Valk")}

{bullets(remarks("Valk"))}

## Valk (2022): three classes with a known truth

Table 1. The published true map, a forest fitted to five million predictions, is not to be had; ours
is another, smooth one, with the same distribution of predictions and the same sizes. So numbers
differ, and orders of methods can be compared. Published options are fixed; ours are chosen by
cross-validation where a method has that.

{simplex()}

{ranks()}

## Lucena (2018): splines

{compared(spline)}

{bullets(spline_remarks)}

The other half of table 1 needs records of patients (MIMIC-III) that are not free.

## Weight scaling (anonymous, 2023)

{network_tables("weight scaling")}

{bullets(remarks("weight scaling"))}

The predictions behind the other networks of table 2, and behind tables 1 and 3, are not among those
that can be had.

## Histogram binning of several labels (anonymous)

The paper's data cannot be had. Two of its theorems say that histogram binning always makes
probabilities better calibrated and never less accurate. On three other data sets, means over five
splits, before and after:

{labels}

The total ECE falls in {better["ece_total"]} of {count} cases and the weighted one in
{better["ece_weighted"]}, the Hamming loss in {better["hamming_loss"]}, the log loss in
{better["log_loss"]}. The theorems hold for the rows that are fitted, where a bin's share of labels
is its own; of new rows a bin of few cases is often all of one kind, predicts 0 or 1, and pays for
it in log loss. Beta calibration lowers it in {better["beta"]} of {count}.

## Kull et al. (2019) and Jung et al. (2023)

{network_tables("Kull")}

{bullets(remarks("Kull"))}

{network_tables("SCTL")}
"""


if __name__ == "__main__":
    new = page()
    if "--check" in sys.argv:
        old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        sys.exit(f"{PAGE} is not up to date: run {sys.argv[0]}" if new != old else 0)
    PAGE.write_text(new, encoding="utf-8")
