"""K. Valk (2022): multi-class calibration by neighbors.

The results are those of `python -m benchmarks.studies cnn` and `valk`, and of `simplex --datasets
10 --test-rows 20000` with the maps of table 1 (study_simplex_table1.json).
"""

from __future__ import annotations

from typing import Any

from benchmarks.figures import table
from benchmarks.papers import _valk_table_1 as table_1
from benchmarks.papers._common import Finding, Page, Row, agreement, bullets, comparison_table, read
from benchmarks.papers._networks import METRICS, all_figures, network_tables, remarks

# Sources of figures: table 4, and tables 5 to 16.
_ALONE, _AFTER = "Valk, table 4", "Valk"
# Numbers of the two tables of each metric: 5 to 10 compare with other methods, 11 to 16 compare the
# methods of the thesis.
_TABLES = {
    "ece_mass": "5 and 11",
    "class_wise_ece_mass": "6 and 12",
    "brier_score": "7 and 13",
    "log_loss": "8 and 14",
    "accuracy": "9 and 15",
    "loss_gap": "10 and 16",
}
_DECISION = "temperature+decision_cv"
#: The methods of tables 5 to 10.
_COMPARED = (
    "uncalibrated",
    "dirichlet_odir",
    "matrix_odir",
    "vector",
    "order_preserving",
    "temperature",
    _DECISION,
    "temperature+knn",
)


def page() -> Page:
    """Write the page."""
    text = f"""\
## Tables 4 to 16: networks

One of the six networks, DenseNet-40 on CIFAR-10, is available. Our figures use the defaults of
bayescal, which choose hyperparameters by cross-validation. In tables 5 to 16 the methods of the
thesis follow temperature scaling:

{network_tables(_AFTER)}

In table 4 they do not:

{network_tables(_ALONE)}

{bullets(_remarks())}

## With the options of the published code

The published code of the thesis differs from its text in places. With the options of the code,
{sum(row.agrees for row in _as_published())} of {len(_as_published())} figures agree; with our \
options {_agreeing()} do. These do not agree:

{comparison_table([row for row in _as_published() if not row.agrees])}

{bullets(_explanations())}

## Hard and soft borders of decision calibration

Algorithm 1 divides the simplex by planes. The published code, and `Decision` by default, use soft
borders. The table shows means over {_sets()} held-out folds of the calibration rows of DenseNet-40
(after temperature scaling), and over {_sets()} data sets with a known truth. Differences are hard
minus soft, with standard errors of pairs, which ignore that folds share rows. "Worst violation" is
that of the worst hard partition that we found for the held-out rows.

{_borders()}

Soft borders have the lower loss if the truth is smooth and the predictions cover the simplex. If
the predictions are near the corners, as those of the network, there is no difference. Therefore
"soft" is the default.

## Table 1: three classes with a known truth

The published true map, a forest fitted to five million predictions, is not available. We use a
different, smooth map with the same distribution of predictions and the same sizes. The numbers
therefore differ, but the rankings of the methods can be compared. The first table shows published /
our figures with the published fixed options, ± standard errors over {table_1.count()} data sets.
The second shows what cross-validation chooses.

{table_1.values()}

{table_1.chosen()}

The next table shows mean ranks over the six metrics, for eight methods with the published options.
Ours are means over data sets, ± the standard deviation of a single data set, because the published
ranks are those of one data set.

{table_1.ranks()}

{table_1.order()}
"""
    after = all_figures(_AFTER)
    findings = [*table_1.findings(), agreement("table 4", all_figures(_ALONE))]
    for metric, numbers in _TABLES.items():
        name = METRICS[metric]
        rows = [row for row in after if row.what.endswith(f"`, {name}")]
        findings.append(agreement(f"tables {numbers}, {name}", rows))
    findings += [
        agreement("tables 4 to 16, with the options of the published code", _as_published()),
        *_claims(),
    ]
    return Page("valk", "Valk (2022): multi-class calibration", text, findings)


# --- networks -----------------------------------------------------------------------------------


def _remarks() -> list[str]:
    """Select the remarks of the study of networks on effects of our options."""
    all_remarks = dict.fromkeys([*remarks(_AFTER), *remarks(_ALONE)])
    return [
        text
        for text in all_remarks
        if text.startswith(("Valk", "Vector", "Forest alone", "Kernel"))
    ]


def _mean(results: list[dict[str, Any]], key: str) -> float:
    return sum(entry[key] for entry in results) / len(results)


def _maps() -> dict[str, dict[str, float]]:
    """Collect metrics with the options of the published code; random maps are means over seeds."""
    study = read("valk")
    keys = list(_TABLES)
    decision = _decisions(True, True, True)
    networks = study["order_preserving"]
    random_maps = {"order_preserving": networks, _DECISION: decision}
    return study["maps"] | {
        m: {k: _mean(by_run, k) for k in keys} for m, by_run in random_maps.items()
    }


def _decisions(clipped: bool, squares: bool, lower_floor: bool) -> list[dict[str, Any]]:
    """Select the runs of decision calibration with given options."""
    results = read("valk")["decision"]
    floor = (min if lower_floor else max)(entry["floor"] for entry in results)
    options = {"clipped": clipped, "least_squares": squares, "floor": floor}
    return [
        entry for entry in results if all(entry[key] == value for key, value in options.items())
    ]


def _as_published() -> list[Row]:
    """Compare published figures with ours, with the options of the published code."""
    maps, study = _maps(), read("valk")
    return [
        Row(
            f"`{figure['method']}`, {METRICS[figure['metric']]}",
            figure["value"],
            maps[figure["method"]][figure["metric"]],
            figure["unit"],
        )
        for figure in study["published"]
    ]


def _agreeing() -> int:
    """Count the figures that agree with our options."""
    return sum(row.agrees for row in [*all_figures(_AFTER), *all_figures(_ALONE)])


def _explanations() -> list[str]:
    """Explain the differences between the published code and our options, in sentences."""
    maps, networks = _maps(), read("valk")["order_preserving"]

    def pair(results: list[dict[str, Any]]) -> str:
        return f"{_mean(results, 'log_loss'):.3f} (ECE {_mean(results, 'ece_mass'):.4f})"

    def spread(key: str) -> str:
        values = [entry[key] for entry in networks]
        return f"{min(values):.4f} to {max(values):.4f}"

    as_in_code = _decisions(True, True, True)
    variants = {
        "with neither": _decisions(False, False, False),
        "with the floor": _decisions(False, False, True),
        "with clipped steps": _decisions(True, False, False),
        "with both": _decisions(True, False, True),
        "with both, and least squares as in the code": as_in_code,
    }
    by_steps = [f"{entry['log_loss']:.3f} after {entry['steps']}" for entry in as_in_code]
    variant_texts = "; ".join(f"{name} {pair(results)}" for name, results in variants.items())
    return [
        "Loss gap: its 500 losses are those of NumPy's seed 0. With these loss gaps agree wherever "
        "the maps do.",
        "Floor: probabilities below 0 become 1e-4, but those between 0 and 1e-4 stay.",
        "Decision: whatever falls below 1e-7 becomes 1e-7, not 1e-4, and each step of the code "
        "sees probabilities clipped there but moves them as they are, so that what fell below 0 is "
        f"never pushed back. Log losses (ECEs), means over {len(as_in_code)} seeds: "
        f"{variant_texts}; published .264 (.0120). The number of steps has the least Brier score "
        "on the test rows, which hardly tells numbers apart; the log loss then rises with them: "
        f"by seed {', '.join(by_steps)}. Hard borders explain nothing, as the code has none.",
        "Forest after temperature scaling: trees have a depth, with fewer leaves than that allows; "
        "of depth 7, drawn with the published seed, all its figures are the published ones.",
        "Forest alone: trees of depths up to 12 have an ECE of about "
        f"{maps['forest']['ece_mass']:.4f}, not .0320: unexplained. Trees of 256 leaves come "
        "closer (above).",
        "KNN alone: probabilities are float32, of one maximum for all rows, so that some are 0, "
        "and such rows are infinitely far from all others. Differences that are left are in the "
        "last digits.",
        "IOP: two hidden layers of two units, fitted to four fifths of the rows (of five such "
        f"networks the last is used). Of {len(networks)} such fits the log loss is "
        f"{spread('log_loss')}, the ECE {spread('ece_mass')}, the loss gap {spread('loss_gap')}.",
        "ODIR: with the published strengths, 250 and 1e-4 for matrices, 1000 and .01 for Dirichlet "
        "maps, ours stay where they were: so not strengths are the difference, but where fits end; "
        "ours are exact minima.",
    ]


def _sets() -> int:
    return read("valk")["sets"]


def _borders() -> str:
    """Arrange the comparison of soft and hard borders as a table."""
    names = {
        "log_loss": "log loss",
        "brier_score": "Brier score",
        "loss_gap": "loss gap",
        "worst_hard_violation": "worst violation",
    }
    rows = []
    for data, title in (("folds", "DenseNet-40"), ("simplex", "known truth")):
        for steps, by_metric in read("valk")["partitions"][data].items():
            cells = [
                f"{by_metric[key]['soft']:.4f} / {by_metric[key]['hard']:.4f} "
                f"({by_metric[key]['difference']:+.4f} ± {by_metric[key]['standard_error']:.4f})"
                for key in names
            ]
            rows.append([f"{title}, {steps} steps", *cells])
    return table(["soft / hard", *names.values()], rows)


def _claims() -> list[Finding]:
    """Check the claims of the text on DenseNet-40 against our figures."""
    study = read("cnn")["networks"]["kull_densenet40_c10"]["maps"]
    best = min(_COMPARED, key=lambda method: study[method]["ece_mass"])
    ece = "ECE of KNN after temperature scaling is the least of all, by .0028"
    second = sorted(study[method]["ece_mass"] for method in _COMPARED)[1]
    knn, scaled, decision = (study[name] for name in ("temperature+knn", "temperature", _DECISION))
    gains = [
        key
        for key in _TABLES
        if (knn[key] > scaled[key] if key == "accuracy" else knn[key] < scaled[key])
    ]
    alone = [study[name] for name in ("forest", "knn", "kernel")]
    keys = ("ece_mass", "brier_score", "log_loss", "loss_gap")
    better = sum(metrics[key] < study["uncalibrated"][key] for metrics in alone for key in keys)
    worse = sum(metrics[key] > scaled[key] for metrics in alone for key in keys)
    return [
        Finding(
            "claim: forest, KNN and kernel alone improve ECE, Brier score, log loss and loss gap",
            "12 of 12",
            f"{better} of 12",
            "holds" if better == 12 else "holds in part",
        ),
        Finding(
            "claim: temperature scaling beats all three by far",
            "12 of 12",
            f"{worse} of 12",
            "holds" if worse == 12 else "holds in part",
        ),
        Finding(
            f"claim: {ece}",
            ".0052 against .0080",
            f"{study[best]['ece_mass']:.4f} against {second:.4f}",
            "holds" if best == "temperature+knn" else "does not hold",
        ),
        Finding(
            "claim: KNN after temperature scaling improves every metric but the log loss",
            "not the Brier score, which ties",
            f"{len(gains)} of 6",
            "holds" if set(_TABLES) - set(gains) == {"log_loss"} else "holds in part",
        ),
        Finding(
            "claim: decision calibration makes the log loss much worse",
            "+.039",
            f"{decision['log_loss'] - scaled['log_loss']:+.3f}",
            "holds of the published code; less with ours",
        ),
    ]
