"""Published figures on predictions of networks, from the results of the study `cnn`."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.papers._common import Row, crossed_table, read

METRICS = {
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
# First words of general remarks, and the methods that they refer to.
_TOPICS = {
    "ODIR": {"matrix_odir", "dirichlet_odir"},
    "Vector": {"vector"},
    "Forest alone": {"forest"},
    "Forest after": {"temperature+forest"},
    "KNN": {"knn"},
    "Kernel": {"kernel", "temperature+kernel"},
    "Weights": {"weight_scaling_bins", "binwise_temperature", "binwise_confidence"},
    "Decision": {"temperature+decision_cv"},
    "IOP": {"order_preserving"},
}


@cache
def networks() -> dict[str, dict[str, Any]]:
    """Read the results of the study `cnn` for all networks."""
    return read("cnn")["networks"] | read("cnn_others")["networks"]


def figures(source: str) -> dict[str, list[Row]]:
    """Collect the figures that a source prints for each network, with ours."""
    by_network = {}
    for network, facts in networks().items():
        rows = [
            Row(
                f"`{figure['method']}`, {METRICS[figure['metric']]}",
                figure["value"],
                figure["ours"],
                figure["unit"],
            )
            for figure in facts["published"]["figures"]
            if figure["source"] == source
        ]
        if rows:
            by_network[network] = rows
    return by_network


def all_figures(source: str) -> list[Row]:
    """Collect the figures that a source prints for all networks, with ours."""
    return [row for rows in figures(source).values() for row in rows]


def network_tables(source: str) -> str:
    """Write a table of published figures and ours for each network of a source."""
    return "\n\n".join(
        f"**{NETWORKS[network]}**\n\n{crossed_table(rows)}"
        for network, rows in figures(source).items()
    )


def remarks(source: str) -> list[str]:
    """Select the remarks on the figures that a source prints for DenseNet-40."""
    published = networks()["kull_densenet40_c10"]["published"]
    source_prefixes = ("Valk, table 4:", "Valk:", "Kull:", "weight scaling:", "SCTL:")
    matching = [text for text in published["remarks"] if text.startswith(f"{source}:")]
    general = [text for text in published["remarks"] if not text.startswith(source_prefixes)]
    shown = {figure["method"] for figure in published["figures"] if figure["source"] == source}
    topics = dict(_TOPICS)
    if source.startswith("Valk"):
        topics["Loss gap"] = {"knn", "kernel"}
    matching += [
        text
        for text in general
        for key, methods in topics.items()
        if text.startswith(key) and methods & shown
    ]
    return matching
