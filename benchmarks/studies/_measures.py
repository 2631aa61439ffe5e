"""Measures of multi-class studies, as fractions rather than percent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bayescal import metrics

#: Probabilities are clipped at this value before taking logarithms.
EPS = 1e-15


def brier_of_rows(probs: np.ndarray, y: np.ndarray) -> float:
    """Compute the Brier score summed over all classes, also for two classes, as in the studies."""
    return metrics.brier_score(probs, y) * (2 if probs.shape[1] == 2 else 1)


#: Functions of probabilities (n, k) and labels (n,), in the order of the tables.
MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": metrics.accuracy,
    "ece": partial(metrics.ece, kind="confidence"),
    "ece_mass": partial(metrics.ece, kind="confidence", binning="equal_mass"),
    "ece_25": partial(metrics.ece, kind="confidence", bins=25),
    "class_wise_ece": partial(metrics.ece, kind="classwise"),
    "class_wise_ece_mass": partial(metrics.ece, kind="classwise", binning="equal_mass"),
    "brier_score": brier_of_rows,
    "log_loss": partial(metrics.log_loss, eps=EPS),
    "loss_gap": metrics.loss_gap,
}


def measure_known(probs: np.ndarray, y: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compute distances from the true probabilities, and expected scores under them.

    Only the binned errors use labels.
    """
    error = probs - truth
    rows = np.arange(len(probs))
    top = probs.argmax(axis=1)
    logs = np.log(np.clip(probs, EPS, 1 - EPS))
    return {
        "distance_l1": float(np.abs(error).sum(axis=1).mean()),
        "distance_l2": float(np.sqrt((error**2).sum(axis=1)).mean()),
        "confidence_error": float(np.abs(error[rows, top]).mean()),
        "class_wise_error": float(np.abs(error).mean()),
        "log_loss": float(-(truth * logs).sum(axis=1).mean()),
        "brier_score": float(((probs**2).sum(axis=1) - 2 * (probs * truth).sum(axis=1) + 1).mean()),
        "accuracy": float(truth[rows, top].mean()),
        "ece": metrics.ece(probs, y, kind="confidence"),
        "ece_mass": metrics.ece(probs, y, kind="confidence", binning="equal_mass"),
        "loss_gap": metrics.loss_gap(probs, truth),
    }
