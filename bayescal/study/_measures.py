"""What studies of several classes measure: fractions, not percent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bayescal import metrics

#: At which probabilities are clipped where their logarithm is taken.
EPS = 1e-15


def class_wise_ece(
    probs: np.ndarray, y: np.ndarray, *, bins: int = 15, binning: str = "equal_width"
) -> float:
    """Return the mean over classes of the calibration error of each against the others."""
    errors = [
        metrics.ece(probs[:, j], (y == j).astype(int), bins=bins, binning=binning)  # type: ignore[arg-type]
        for j in range(probs.shape[1])
    ]
    return float(np.mean(errors))


def average_loss_gap(
    probs: np.ndarray, y: np.ndarray, *, functions: int = 500, decisions: int = 2, seed: int = 0
) -> float:
    r"""Return the mean over random losses of how far expected and actual loss are apart.

    .. math:: \frac1F \sum_f \Big| \frac1n \sum_i \sum_j (p_{ij} - y_{ij})
        \,\ell_f(j, \delta_f(p_i)) \Big|, \qquad
        \delta_f(p) = \arg\min_d \sum_j p_j \ell_f(j, d), \qquad \ell_f(j, d) \sim N(0, 1)

    Parameters
    ----------
    probs : array of shape (n, k)
    y : array of shape (n,) or (n, k)
        Labels, or the true probabilities of the classes.
    functions, decisions, seed : int
        Number F of random losses, and how they are drawn.

    References
    ----------
    S. Zhao et al. (2021), Calibrating predictions to decisions. K. Valk (2022), Calibration of
    multi-class probabilistic classifiers, University of Tartu, section 2.6.
    """
    k = probs.shape[1]
    losses = np.random.default_rng(seed).normal(size=(functions, k, decisions))
    errors = probs - (np.eye(k)[y] if y.ndim == 1 else y)
    gaps = np.empty(functions)
    for f, loss in enumerate(losses):
        chosen = (probs @ loss).argmin(axis=1)
        sums = [errors[chosen == d].sum(axis=0) @ loss[:, d] for d in range(decisions)]
        gaps[f] = abs(sum(sums)) / len(probs)
    return float(gaps.mean())


#: Of probabilities (n, k) and labels (n,), in the order of the tables.
MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": metrics.accuracy,
    "ece": metrics.ece,
    "ece_mass": partial(metrics.ece, binning="equal_mass"),
    "ece_25": partial(metrics.ece, bins=25),
    "class_wise_ece": class_wise_ece,
    "class_wise_ece_mass": partial(class_wise_ece, binning="equal_mass"),
    "brier_score": metrics.brier_score,
    "log_loss": partial(metrics.log_loss, eps=EPS),
    "loss_gap": average_loss_gap,
}


def measure_known(probs: np.ndarray, y: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return distances from the true probabilities, and scores in their expectation.

    Only the binned errors are those of labels.
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
        "ece": metrics.ece(probs, y),
        "ece_mass": metrics.ece(probs, y, binning="equal_mass"),
        "loss_gap": average_loss_gap(probs, truth),
    }
