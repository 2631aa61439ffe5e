"""Published results of M. Kull et al. (2019) and S. Jung et al. (2023) on available networks.

Calibrators are fitted with the published strengths of penalties, to all rows, and as means over the
fits of five folds, as in the first source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

import bayescal as bc
from bayescal import metrics
from bayescal._core.numerics import softmax
from bayescal.data.checks import check_count
from benchmarks.studies._measures import EPS
from benchmarks.studies._networks import Network, find_networks, read_network
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["KULL", "METRICS", "SCTL", "run"]

NETWORK = "kull_densenet40_c10"
#: Units of the last printed digit. Metrics are fractions; the class-wise ECE is a sum over classes.
METRICS = {
    "accuracy": 1e-6,
    "ece": 1e-6,
    "class_wise_ece": 1e-6,
    "maximum_error": 1e-6,
    "log_loss": 1e-6,
    "brier_score": 1e-5,
}
#: Cell 42 of the published outputs. Cells 49 and 52 show only two figures for vector scaling.
KULL: dict[str, dict[str, float]] = {
    "uncalibrated": dict(
        zip(METRICS, (0.9242, 0.055003, 0.114303, 0.333955, 0.428207, 0.12738), strict=True)
    ),
    "temperature": dict(
        zip(METRICS, (0.9242, 0.009464, 0.039768, 0.099293, 0.225086, 0.10998), strict=True)
    ),
    "dirichlet_odir": dict(
        zip(METRICS, (0.9247, 0.010973, 0.036866, 0.078576, 0.223705, 0.10970), strict=True)
    ),
    "matrix_odir": dict(
        zip(METRICS, (0.9250, 0.009879, 0.036776, 0.112970, 0.222400, 0.10965), strict=True)
    ),
    "vector": {"log_loss": 0.222396},
}
#: Chosen strengths of both penalties for this network, from cells 15 and 17.
STRENGTHS = {"dirichlet_odir": (1000.0, 0.01), "matrix_odir": (250.0, 0.0001)}
#: Logs of the loss "CE": ECE in 15 bins after temperature and ensemble temperature scaling.
SCTL = {
    "kull_densenet40_c10": {"accuracy": 0.9242, "temperature": 0.0096, "ensemble": 0.0097},
    "sctl_densenet40_c10_LT": {"accuracy": 0.7211, "temperature": 0.0616, "ensemble": 0.0615},
    "sctl_resnet110_c10_LT": {"accuracy": 0.7597, "temperature": 0.0594, "ensemble": 0.0593},
}
_FOLDS = 5
#: Number of gradient steps, steps between two measurements, and learning rate.
_STEPS, _EVERY, _RATE = 3000, 20, 0.003


def run(
    data: str | Path,
    out: str | Path,
    *,
    repeats: int = 5,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fit the published calibrators of DenseNet-40 with the published strengths of penalties.

    Parameters
    ----------
    data : path
        Folder of predictions of the networks, as in :func:`benchmarks.studies.cnn.run`.
    out : path
        Folder for ``kull.json``; created if it is missing.
    repeats : int
        Number of random divisions into five folds, as the published division is not available.
    about : mapping of str to str, optional
        Versions and similar facts, written to the summary.
    progress : callable, optional
        Called with the next step, the number of finished fits and the total number.

    Returns
    -------
    dict
        The content of ``kull.json``. ``methods`` contains the metrics of one fit to all rows
        (``whole``), those of the mean probabilities of five fits to four folds each, for each
        division (``folds``), and the ``published`` ones. ``stopped``: the step at which a fit by
        gradient descent comes closest to the published log loss. ``sctl``: fits to all rows of the
        three networks of the second source.

    Raises
    ------
    ValueError
        If a network is missing.
    OSError
        If results cannot be written.

    References
    ----------
    M. Kull et al. (2019), Beyond temperature scaling: obtaining well-calibrated multi-class
    probabilities with Dirichlet calibration. S. Jung et al. (2023), Scaling of class-wise training
    losses for post-hoc calibration.

    Examples
    --------
    The example is not run, because it needs the files:

    >>> result = run("data", "out")  # doctest: +SKIP
    >>> result["methods"]["temperature"]["whole"]["log_loss"]  # doctest: +SKIP
    0.225086
    """
    repeats = check_count(repeats, "repeats")
    paths = find_networks(Path(data), list(SCTL))
    store = Results("kull", out, about)
    network = read_network(NETWORK, paths[NETWORK])
    by_method: dict[str, Any] = {}
    for method in counted(list(KULL), str, progress):
        entry: dict[str, Any] = {
            "published": KULL[method],
            "whole": measured(_whole(network, method), network),
        }
        if method != "uncalibrated":
            entry["folds"] = [
                measured(_by_folds(network, method, s), network) for s in range(repeats)
            ]
        by_method[method] = entry
    stopped = {method: _stopped(network, method) for method in ("matrix_odir", "vector")}
    logs = {name: _logs(read_network(name, path)) for name, path in paths.items()}
    sctl = {name: {"published": SCTL[name], "whole": errors} for name, errors in logs.items()}
    summary = {
        "strengths": STRENGTHS,
        "units": METRICS,
        "methods": by_method,
        "stopped": stopped,
        "sctl": sctl,
    }
    return store.summary("kull", summary)


def measured(probs: np.ndarray, network: Network) -> dict[str, float]:
    """Compute the metrics of predicted probabilities of the test rows."""
    y, classes = network.test_y, probs.shape[1]
    return {
        "accuracy": metrics.accuracy(probs, y),
        "ece": metrics.ece(probs, y),
        # The source's fifteen borders make fourteen bins.
        "class_wise_ece": classes * metrics.ece(probs, y, kind="classwise", bins=14),
        "maximum_error": metrics.ece(probs, y, norm=math.inf),
        "log_loss": metrics.log_loss(probs, y, eps=EPS),
        "brier_score": metrics.brier_score(probs, y),
    }


def _make(method: str, classes: int) -> bc.Calibrator:
    options: dict[str, Any] = {"inputs": "logits", "classes": tuple(range(classes))}
    if method in STRENGTHS:
        calibrator_class = bc.Dirichlet if method == "dirichlet_odir" else bc.Matrix
        off_diagonal, intercept = STRENGTHS[method]
        return calibrator_class(off_diagonal=off_diagonal, intercept=intercept, **options)
    return bc.Vector(**options) if method == "vector" else bc.Temperature(**options)


def _whole(network: Network, method: str) -> np.ndarray:
    """Fit a method to all rows, and predict the test rows."""
    if method == "uncalibrated":
        return softmax(network.test_scores)
    model = _make(method, network.scores.shape[1]).fit(network.scores, network.y)
    return model.predict_proba(network.test_scores)


def _by_folds(network: Network, method: str, seed: int) -> np.ndarray:
    """Average the predictions of the test rows over fits to four of five folds each."""
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    probs = []
    for rows, _ in folds.split(network.scores, network.y):
        model = _make(method, network.scores.shape[1]).fit(network.scores[rows], network.y[rows])
        probs.append(model.predict_proba(network.test_scores))
    return np.mean(probs, axis=0)


def _stopped(network: Network, method: str) -> dict[str, float]:
    """Run Adam from the identity, and find the step closest to the published log loss.

    ``excess`` is the objective at this step above the smallest objective of all measured steps.
    ``log_loss`` is the log loss of the test rows at this step, and ``least_log_loss`` the one at
    the step with the smallest objective.
    """
    z, k = network.scores, network.scores.shape[1]
    one_hot = np.eye(k)[network.y]
    off_diagonal, intercept = STRENGTHS.get(method, (0.0, 0.0))
    off_diagonal_mask = 1 - np.eye(k)
    theta = np.column_stack([np.eye(k), np.zeros(k)])
    free = np.ones_like(theta)
    if method == "vector":
        free[:, :k] = np.eye(k)
    penalty = np.column_stack(
        [off_diagonal / (k * (k - 1)) * off_diagonal_mask, np.full(k, intercept / k)]
    )
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    path = []
    for step in range(1, _STEPS + 1):
        probs = softmax(z @ theta[:, :k].T + theta[:, k])
        error = (probs - one_hot) / len(z)
        gradient = np.column_stack([error.T @ z, error.sum(axis=0)]) + 2 * penalty * theta
        gradient *= free
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        scale = np.sqrt(second / (1 - 0.999**step)) + 1e-8
        theta = theta - _RATE * first / (1 - 0.9**step) / scale
        if step % _EVERY == 0:
            test = softmax(network.test_scores @ theta[:, :k].T + theta[:, k])
            probs = softmax(z @ theta[:, :k].T + theta[:, k])
            objective = metrics.log_loss(probs, network.y, eps=EPS) + (penalty * theta**2).sum()
            loss = metrics.log_loss(test, network.test_y, eps=EPS)
            path.append((step, objective, loss))
    least = min(path, key=lambda at: at[1])
    step, objective, loss = min(path, key=lambda at: abs(at[2] - KULL[method]["log_loss"]))
    return {
        "steps": step,
        "excess": float(objective - least[1]),
        "log_loss": float(loss),
        "least_log_loss": float(least[2]),
    }


def _logs(network: Network) -> dict[str, Any]:
    """Fit temperature and ensemble temperature scaling, and compute accuracy and ECE."""
    options: dict[str, Any] = {
        "inputs": "logits",
        "classes": tuple(range(network.scores.shape[1])),
    }
    models: dict[str, Any] = {
        "temperature": bc.Temperature(**options),
        "ensemble": bc.EnsembleTemperature(**options),
    }
    result: dict[str, Any] = {
        "accuracy": metrics.accuracy(softmax(network.test_scores), network.test_y)
    }
    for name, model in models.items():
        probs = model.fit(network.scores, network.y).predict_proba(network.test_scores)
        result[name] = metrics.ece(probs, network.test_y)
    return {**result, "mixture": models["ensemble"].mixture_.tolist()}
