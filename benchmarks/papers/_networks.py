"""Published figures of networks' predictions: parts of the results of the study `cnn`."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.papers._common import Row, crossed, read

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
# General remarks, by how they begin, and the methods that they are about.
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
    return read("cnn")["networks"] | read("cnn_others")["networks"]


def figures(source: str) -> dict[str, list[Row]]:
    """Return what one source prints of each network."""
    found = {}
    for network, own in networks().items():
        rows = [
            Row(
                f"`{each['method']}`, {METRICS[each['metric']]}",
                each["value"],
                each["ours"],
                each["unit"],
            )
            for each in own["published"]["figures"]
            if each["source"] == source
        ]
        if rows:
            found[network] = rows
    return found


def every(source: str) -> list[Row]:
    """Return what one source prints, of all networks."""
    return [row for rows in figures(source).values() for row in rows]


def network_tables(source: str) -> str:
    return "\n\n".join(
        f"**{NETWORKS[network]}**\n\n{crossed(rows)}" for network, rows in figures(source).items()
    )


def remarks(source: str) -> list[str]:
    """Return the remarks that are made on what a source prints of DenseNet-40."""
    own = networks()["kull_densenet40_c10"]["published"]
    others = ("Valk, table 4:", "Valk:", "Kull:", "weight scaling:", "SCTL:")
    mine = [text for text in own["remarks"] if text.startswith(f"{source}:")]
    general = [text for text in own["remarks"] if not text.startswith(others)]
    shown = {each["method"] for each in own["figures"] if each["source"] == source}
    topics = dict(_TOPICS)
    if source.startswith("Valk"):
        topics["Loss gap"] = {"knn", "kernel"}
    mine += [t for t in general for key, own in topics.items() if t.startswith(key) and own & shown]
    return mine
