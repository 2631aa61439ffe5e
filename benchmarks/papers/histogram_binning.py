"""Histogram binning for multi-label problems (anonymous)."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import table
from benchmarks.papers._common import Finding, Page, bullets, read

_METRICS = {
    "ece_total": "ECE, total",
    "ece_weighted": "ECE, weighted",
    "hamming_loss": "Hamming loss",
    "log_loss": "log loss",
}
#: Figures of tables 1 and 2 before and after binning.
_PUBLISHED: dict[str, dict[str, tuple[str, str]]] = {
    "Kaggle images, ResNet-50": {
        "ece_weighted": ("0.0406", "0.014"),
        "ece_total": ("0.20", "0.12"),
        "hamming_loss": ("0.0379", "0.03552"),
    },
    "PASCAL-VOC, ResNet-50": {
        "ece_weighted": ("0.03819", ".22"),
        "ece_total": ("0.2851", ".207"),
        "hamming_loss": ("0.0711", "0.07"),
    },
    "Propaganda, BERT": {
        "ece_weighted": ("0.037", "0.0214"),
        "ece_total": ("0.202", "0.11"),
        "hamming_loss": ("0.0242", "0.0229"),
    },
}
_BINS = {"ece": "ECE", "hamming_loss": "Hamming loss", "brier_score": "Brier score"}
_BINS["log_loss"] = "log loss"


def page() -> Page:
    """Write the page."""
    study = read("multilabel")
    data = study["data"]
    bins = {name: facts["bins"] for name, facts in data.items()}
    labels = sum(facts["labels"] for facts in bins.values())
    better = {metric: _lower(data, "histogram", metric) for metric in _METRICS}
    prior = _lower(data, "histogram_prior", "log_loss")
    text = f"""\
The data of the paper are not available. We use two tables with two classifiers each, and
predictions of a network for electrocardiograms, and report means over {study["splits"]} splits. The
figures are therefore not expected to agree. They show the metrics before and after calibration, in
{study["bins"]} bins of equal width as in the paper.

## Tables 1 and 2

{_tables(data)}

The paper says that both errors fall in all three of its data sets. As printed, the weighted ECE of
PASCAL-VOC rises from 0.03819 to 0.22. With 0.022 it would agree with the text.

Here the total ECE falls in {better["ece_total"]} of {len(data)} cases, the weighted ECE in
{better["ece_weighted"]}, the Hamming loss in {better["hamming_loss"]}, and the log loss in
{better["log_loss"]}.

## Theorems 2 and 4

The theorems say that binned probabilities are always better calibrated and at least as accurate.
The proof treats the frequency of class 1 in a bin as its limit for infinitely many rows. The table
shows how many of {labels} labels (one for each label, case and split) have a greater value after
binning:

{_rises(bins, labels)}

{bullets(_statements(bins, study["exact"]))}

## When the log loss rises

If all fitted rows of a bin belong to one class, the bin predicts 0 or 1, and a new row of the other
class in it has a loss of 34.5 nats (1e-15). The table shows sums of log losses over the labels of
new rows, by the kind of bin:

{_kinds(bins)}

{_share(bins)}

## A prior solves the problem

`Histogram(prior_weight=1)` adds one row with the bin's center to each bin, so that no bin predicts
0 or 1.

{_prior(data)}

The log loss falls in {prior} of {len(data)} cases instead of {better["log_loss"]}. Beta calibration
lowers it in {_lower(data, "beta", "log_loss")}.
"""
    return Page(
        "histogram-binning", "Histogram binning for multi-label problems", text, _findings(study)
    )


def _lower(data: dict[str, Any], method: str, metric: str) -> int:
    """Count the data sets in which a method lowers a metric."""
    pairs = (facts["methods"] for facts in data.values())
    return sum(m[method]["mean"][metric] < m["uncalibrated"]["mean"][metric] for m in pairs)


def _tables(data: dict[str, Any]) -> str:
    metrics = [name for name in _METRICS if name != "log_loss"]
    rows = [
        [name, *(" → ".join(facts[metric]) for metric in metrics), ""]
        for name, facts in _PUBLISHED.items()
    ]
    for name, facts in data.items():
        before, after = (facts["methods"][m]["mean"] for m in ("uncalibrated", "histogram"))
        rows.append([f"ours: {name}", *(f"{before[m]:.4f} → {after[m]:.4f}" for m in _METRICS)])
    return table(["", *_METRICS.values()], rows)


def _rises(bins: dict[str, Any], labels: int) -> str:
    rows = []
    for part, name in (("fitted", "fitted rows"), ("new", "new rows")):
        counts = [sum(facts[part][key] for facts in bins.values()) for key in _BINS]
        rows.append([name, *(f"{count} of {labels}" for count in counts)])
    return table(["", *_BINS.values()], rows)


def _statements(bins: dict[str, Any], exact: dict[str, Any]) -> list[str]:
    """Explain for which rows the theorems hold."""
    greatest = max(facts["fitted_ece"] for facts in bins.values())
    return [
        "On the fitted rows the calibration error is zero for any scores, because the predicted "
        f"frequencies and the labels of a bin have the same sum. The largest error is "
        f"{greatest:.0e}.",
        "On the fitted rows the Hamming loss cannot rise if 1/2 is a border of bins, as it is with "
        "ten bins: all rows of a bin had the same predicted label before, and have the label of "
        "the majority after. With an odd number of bins it can rise. For two rows in one bin, with "
        f"scores 0.4 and 0.6 and labels 0 and 1, it is {_odd(exact, 'hamming_loss')}.",
        "On the fitted rows the Brier score can rise, because one frequency replaces the scores "
        f"that separated the rows of the bin. For the same two rows it is "
        f"{_odd(exact, 'brier_score')}. The theorems make no claim about it.",
        "For new rows nothing is guaranteed. If the scores are already calibrated, the error is "
        f"zero before binning. After binning, with {', '.join(exact['rows'])} rows in a bin with "
        f"frequency {exact['share']}, it is {_errors(exact)} on average, and with probability "
        f"{_chances(exact)} the bin is on the wrong side of 1/2 (computed from the binomial "
        "distribution).",
        "The claim about accuracy rests on a lemma that rows of one bin are close to each other. "
        "It needs injective classifiers, and bins whose rows form convex sets. Binning only sees "
        "scores, and the Hamming loss of new rows shows the consequence.",
    ]


def _odd(exact: dict[str, Any], metric: str) -> str:
    before, after = exact["odd_bins"][metric]
    return f"{before:.2g} before and {after:.2g} after"


def _errors(exact: dict[str, Any]) -> str:
    return ", ".join(f"{effects['error']:.3f}" for effects in exact["rows"].values())


def _chances(exact: dict[str, Any]) -> str:
    return ", ".join(f"{effects['worse']:.2g}" for effects in exact["rows"].values())


def _total(bins: dict[str, Any], kind: str, key: str) -> float:
    return sum(facts["kinds"][kind][key] for facts in bins.values())


def _kinds(bins: dict[str, Any]) -> str:
    rows = []
    for name, facts in bins.items():
        kinds = facts["kinds"]
        for kind in ("mixed", "pure", "empty"):
            k = kinds[kind]
            change = k["after"] - k["before"]
            cells = [f"{k['cells']:,}", f"{k['contradicted']:,}", f"{k['before']:,.0f}"]
            rows.append([f"{name}, {kind}", *cells, f"{k['after']:,.0f}", f"{change:+,.0f}"])
    return table(["bins", "labels of rows", "contradicted", "before", "after", "change"], rows)


def _share(bins: dict[str, Any]) -> str:
    lines = []
    for name, facts in bins.items():
        kinds = facts["kinds"]
        change = {kind: k["after"] - k["before"] for kind, k in kinds.items()}
        total = sum(change.values())
        cells = sum(k["cells"] for k in kinds.values())
        pure, others = kinds["pure"], total - change["pure"]
        lines.append(
            f"{name}: {pure['cells'] / cells:.1%} of labels fall in bins of one class, "
            f"{pure['contradicted']} of them contradict it; these bins change the sum by "
            f"{change['pure']:+,.0f}, all others by {others:+,.0f}."
        )
    return bullets(lines)


def _prior(data: dict[str, Any]) -> str:
    methods = ("uncalibrated", "histogram", "histogram_prior")
    rows = []
    for name, facts in data.items():
        means = [facts["methods"][m]["mean"] for m in methods]
        rows.append(
            [name, *(" → ".join(f"{mean[metric]:.4f}" for mean in means) for metric in _METRICS)]
        )
    return table(["uncalibrated → binned → with the prior", *_METRICS.values()], rows)


def _findings(study: dict[str, Any]) -> list[Finding]:
    data = study["data"]
    bins = {name: facts["bins"] for name, facts in data.items()}
    labels = sum(facts["labels"] for facts in bins.values())
    count = len(data)
    num_rises = {
        part: {key: sum(facts[part][key] for facts in bins.values()) for key in _BINS}
        for part in ("fitted", "new")
    }
    findings = [
        Finding(
            f"table {number}, {_METRICS[metric]}",
            f"falls in {published} of 3",
            f"falls in {_lower(data, 'histogram', metric)} of {count}",
            "other data",
        )
        for number, metric, published in (
            ("1", "ece_total", 3),
            ("1", "ece_weighted", "2 (a misprint?)"),
            ("2", "hamming_loss", 3),
        )
    ]
    for key, theorem in (("ece", "better calibrated"), ("hamming_loss", "at least as accurate")):
        for part, name in (("fitted", "fitted"), ("new", "new")):
            findings.append(
                Finding(
                    f"theorems 2 and 4: {theorem}, {name} rows",
                    "always",
                    f"worse for {num_rises[part][key]} of {labels} labels",
                    "fails" if num_rises[part][key] else "holds",
                )
            )
    pure = sum(
        facts["kinds"]["pure"]["after"] - facts["kinds"]["pure"]["before"]
        for facts in bins.values()
    )
    total = sum(
        k["after"] - k["before"] for facts in bins.values() for k in facts["kinds"].values()
    )
    findings.append(
        Finding(
            "log loss",
            "not printed",
            f"falls in {_lower(data, 'histogram', 'log_loss')} of {count}; with a prior of one row "
            f"in {_lower(data, 'histogram_prior', 'log_loss')}",
            f"bins of one class: {pure:+,.0f} nats of {total:+,.0f}",
        )
    )
    return findings
