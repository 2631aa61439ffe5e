"""Splines compared with clipping on multi-class predictions, as in B. Lucena's paper.

The networks of the paper are not available. Its claims are tested on predictions of other networks
instead, calibrated with their validation rows; without validation rows, each half of the test rows
of each class calibrates the other half. They are also tested on small networks trained here, epoch
by epoch (``_spline_training``).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from bayescal import Isotonic, OneVsRest, Spline, Temperature, metrics
from benchmarks.studies._measures import EPS, brier_of_rows
from benchmarks.studies._networks import Network, find_networks, read_network
from benchmarks.studies._spline_forest import find_forest, run_forest
from benchmarks.studies._spline_training import CHECKPOINTS, ROWS, train
from benchmarks.studies.paired import paired, row_losses, verdict
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["CLAIMS", "METHODS", "clip", "run"]

#: Minimal probabilities of clipping, as published.
P_MIN = (0.01, 0.001, 0.0001, 0.00001)
#: Methods with the published options, except "default rule"; "logit spline, unity prior" has the
#: options of the author's package.
METHODS: dict[str, Callable[[], Any]] = {
    "temperature": Temperature,
    "isotonic": lambda: OneVsRest(Isotonic()),
    "spline": lambda: OneVsRest(Spline(None, penalty="coefficients", rule="best")),
    "compact spline": lambda: OneVsRest(
        Spline("compact_logit", penalty="coefficients", rule="best")
    ),
    "compact spline, default rule": lambda: OneVsRest(
        Spline("compact_logit", penalty="coefficients")
    ),
    "logit spline, unity prior": lambda: OneVsRest(
        Spline("logit", 30, "coefficients", rule="best", unity_prior_weight=20.0)
    ),
}
_PACKAGE = "splinecalib 0.0.13"
#: With more classes, only the methods that occur in claims are fitted.
_MAX_CLASSES_ALL_METHODS = 10
MEASURES = ("log_loss", "accuracy", "brier_score", "class_wise_ece")
#: Claims that the first method has less loss than the second: measure and both methods.
CLAIMS: dict[str, tuple[str, str, str]] = {
    "log loss: spline below uncalibrated": ("log_loss", "compact spline", "uncalibrated"),
    "log loss: spline below clipping": ("log_loss", "compact spline", "clipped, best"),
    "log loss: spline below isotonic": ("log_loss", "compact spline", "isotonic"),
    "log loss: compact logit below probability": ("log_loss", "compact spline", "spline"),
    "errors: spline below uncalibrated": ("error", "compact spline", "uncalibrated"),
}
#: Methods that are fitted to small networks: the published one, and one for few rows.
_TRAINED = ("compact spline", "logit spline, unity prior")
#: The network whose curves are stored, and the log odds at which they are evaluated.
_CURVES_NETWORK = "kull_densenet40_c10"
_CURVES_LOG_ODDS = np.linspace(-14, 14, 57)


def clip(probs: np.ndarray, p_min: float) -> np.ndarray:
    """Raise probabilities (n, k) to a minimum, and normalize the rows.

    Examples
    --------
    >>> clip(np.array([[1.0, 0.0]]), 0.25).tolist()
    [[0.8, 0.2]]
    """
    raised = np.maximum(probs, p_min)
    return raised / raised.sum(axis=1, keepdims=True)


def run(
    data: str | Path,
    out: str | Path,
    *,
    networks: Sequence[str] | None = None,
    seeds: int = 5,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Calibrate every network by every method, train small networks, and test the claims.

    Parameters
    ----------
    data : path
        Folder as for :func:`benchmarks.studies.cnn.run`, optionally with
        ``adult_randomforest.npz``.
    out : path
        Folder for ``splines.json`` and ``parts``, created if it is missing.
    networks : sequence of str, optional
        Names of networks; by default all.
    seeds : int
        Number of seeds of the small networks. A seed determines the split of the images, the
        initial weights and the order of batches.
    about : mapping of str to str, optional
        Versions and similar facts that results depend on; written to the summary.
    progress : callable, optional
        Called with the next step, the number of finished parts and the total number of parts.

    Returns
    -------
    dict
        The content of ``splines.json``. ``networks``, by name: numbers of rows, ``methods`` with
        their measures, ``claims`` with differences, standard errors over rows and verdicts, and
        ``curves`` of one network. ``training``: losses and accuracies by epoch and seed.
        ``forest``: log losses and claims for a random forest, or None if its file is missing.

    Raises
    ------
    ValueError
        If a file cannot be read, or a network is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    "clipped, best" uses the best of the four minimal probabilities on the test rows, as published;
    "clipped" uses the best on the calibration rows. Log losses are clipped at 1e-15.

    References
    ----------
    B. Lucena (2018), Spline-based probability calibration, sections 6 and 7.

    Examples
    --------
    >>> run("data", "out")["networks"]["kull_densenet40_c10"]["methods"]  # doctest: +SKIP
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    paths = find_networks(Path(data), networks)
    store = Results("splines", out, about)
    steps: list[str | int] = [*paths, *range(seeds)]
    results: dict[str, Any] = {}
    trained = []

    def describe(step: str | int) -> str:
        return f"training, seed {step}" if isinstance(step, int) else step

    for step in counted(steps, describe, progress):
        if isinstance(step, int):
            name = f"splines-training-{step}"
            question = {"seed": step, "epochs": list(CHECKPOINTS), "methods": list(_TRAINED)}
            trained.append(store.part(name, question, lambda old, seed=step: old or _train(seed)))
            continue
        network = read_network(step, paths[step])
        names = methods_of(network)
        question = {"network": step, "data": network.digest, "methods": names}
        results[step] = store.part(
            f"splines-{step}",
            question,
            lambda old, network=network, names=names: old or evaluate(network, names),
        )
    training = {"checkpoints": list(CHECKPOINTS), "rows": ROWS, "seeds": trained}
    summary = {"eps": EPS, "p_min": list(P_MIN), "networks": results, "training": training}
    forest = find_forest(Path(data))
    summary["forest"] = None if forest is None else run_forest(forest)
    return store.summary("splines", summary)


def methods_of(network: Network) -> list[str]:
    """Select the methods to fit.

    The author's package is slow, so it is included only if a single fit suffices, and only if it is
    installed.
    """
    if network.scores.shape[1] > _MAX_CLASSES_ALL_METHODS:
        in_claims = {name for _, *pair in CLAIMS.values() for name in pair}
        return [name for name in METHODS if name in in_claims]
    run_package = network.split == "validation rows" and find_spec("splinecalib") is not None
    return [*METHODS, *[_PACKAGE] * run_package]


def evaluate(network: Network, names: Sequence[str]) -> dict[str, Any]:
    """Compute the measures of methods on one network, and test the claims on its rows."""
    calibration = network.scores, network.y
    test = network.test_scores, network.test_y
    pairs = (
        [(calibration, test)]
        if network.split == "validation rows"
        else [(calibration, test), (test, calibration)]
    )
    y = np.concatenate([rows[1] for _, rows in pairs])
    k = network.scores.shape[1]
    probs: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}
    uncalibrated = [[_probabilities(rows[0], network.inputs) for rows in pair] for pair in pairs]
    probs["uncalibrated"] = np.concatenate([test for _, test in uncalibrated])
    probs |= clipped(uncalibrated, [pair[0][1] for pair in pairs], y)
    for name in names:
        make = _Package if name == _PACKAGE else METHODS[name]
        start = time.perf_counter()
        parts = []
        for ((scores, labels), (test_scores, _)), probability_pair in zip(
            pairs, uncalibrated, strict=True
        ):
            fitted = make()
            if isinstance(fitted, _Package):
                parts.append(
                    fitted.fit(probability_pair[0], labels).predict_proba(probability_pair[1])
                )
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    options = {"inputs": network.inputs, "classes": range(k)}
                    fitted.set_params(**options).fit(scores, labels)
                parts.append(fitted.predict_proba(test_scores))
        probs[name] = np.concatenate(parts)
        seconds[name] = round((time.perf_counter() - start) / len(pairs), 2)
    methods = {name: measures(p, y) | {"seconds": seconds.get(name)} for name, p in probs.items()}
    answer = {
        "rows": {"calibration": len(network.y), "test": len(y)},
        "classes": k,
        "split": network.split if len(pairs) == 1 else "each half of the test rows the other",
        "methods": methods,
        "claims": judge(probs, y),
    }
    if network.name == _CURVES_NETWORK:
        answer["curves"] = curves(network)
    return answer


def clipped(
    uncalibrated: Sequence[Sequence[np.ndarray]], labels: Sequence[np.ndarray], y: np.ndarray
) -> dict[str, np.ndarray]:
    """Clip probabilities at the minimum that is best on test rows, and on calibration rows."""
    candidates = [np.concatenate([clip(test, p) for _, test in uncalibrated]) for p in P_MIN]
    best = min(candidates, key=lambda p: row_losses(p, y, EPS).mean())
    parts = []
    for (calibration, test), label in zip(uncalibrated, labels, strict=True):
        p_min = min(P_MIN, key=lambda p: row_losses(clip(calibration, p), label, EPS).mean())
        parts.append(clip(test, p_min))
    return {"clipped, best": best, "clipped": np.concatenate(parts)}


def measures(probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Compute log loss, accuracy, Brier score and class-wise ECE of probabilities (n, k)."""
    return {
        "log_loss": metrics.log_loss(probs, y, eps=EPS),
        "accuracy": metrics.accuracy(probs, y),
        "brier_score": brier_of_rows(probs, y),
        "class_wise_ece": metrics.ece(probs, y, kind="classwise"),
    }


def judge(probs: Mapping[str, np.ndarray], y: np.ndarray) -> dict[str, Any]:
    """Test each claim: compute the difference, its standard error over rows, and the verdict."""
    result = {}
    for claim, (measure, first, second) in CLAIMS.items():
        if measure == "log_loss":
            values = [row_losses(probs[name], y, EPS) for name in (first, second)]
        else:
            values = [(probs[name].argmax(axis=1) != y).astype(float) for name in (first, second)]
        comparison = paired(*values)
        result[claim] = {**comparison, "verdict": verdict(comparison)}
    return result


def curves(network: Network) -> dict[str, Any]:
    """Compute the calibration curve of each class by log odds, before rows are normalized."""
    probs = _probabilities(network.scores, network.inputs)
    points = 1 / (1 + np.exp(-_CURVES_LOG_ODDS))
    probabilities = []
    for j in range(probs.shape[1]):
        spline = Spline("compact_logit", penalty="coefficients", rule="best").fit(
            probs[:, j], (network.y == j).astype(int)
        )
        probabilities.append(spline.predict_proba(points)[:, 1].round(5).tolist())
    spans = [np.quantile(probs[:, j], [0.001, 0.999]).tolist() for j in range(probs.shape[1])]
    return {"log_odds": _CURVES_LOG_ODDS.tolist(), "probabilities": probabilities, "spans": spans}


def _probabilities(scores: np.ndarray, inputs: str) -> np.ndarray:
    if inputs == "logits":
        return softmax(scores, axis=1)
    return scores / scores.sum(axis=1, keepdims=True)


def _train(seed: int) -> dict[str, Any]:
    """Train networks with one seed, and compute losses and accuracies by epoch."""
    result: dict[str, Any] = {}
    for scheme, steps in train(seed).items():
        table: dict[str, list[dict[str, float]]] = {}
        for calibration, labels, test, y in steps:
            probs = {"uncalibrated": test, **clipped([(calibration, test)], [labels], y)}
            for name in _TRAINED:
                fitted = METHODS[name]().set_params(classes=range(calibration.shape[1]))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    probs[name] = fitted.fit(calibration, labels).predict_proba(test)
            for name, p in probs.items():
                table.setdefault(name, []).append(measures(p, y))
        result[scheme] = {
            name: {key: [row[key] for row in rows] for key in ("log_loss", "accuracy")}
            for name, rows in table.items()
        }
    return result


class _Package:
    """The author's package, with its default options."""

    def fit(self, probs: np.ndarray, y: np.ndarray) -> _Package:
        from splinecalib import SplineCalib  # pyright: ignore[reportMissingImports]

        self._one = SplineCalib()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            self._one.fit(probs, y)
        return self

    def predict_proba(self, probs: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return self._one.calibrate(probs)
