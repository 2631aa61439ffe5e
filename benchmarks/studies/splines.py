"""Splines on predictions of several classes, clipped ones beside them, as B. Lucena compares.

His networks are not to be had. So what he claims of them is judged on predictions of others, where
validation rows calibrate, or where there are none one half of the test rows of each class the other
half; and on small networks trained here, epoch by epoch (``_spline_training``).
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
#: As published, but "default"; and "logit, unity prior" is as the author's package has it.
METHODS: dict[str, Callable[[], Any]] = {
    "temperature": Temperature,
    "isotonic": lambda: OneVsRest(Isotonic()),
    "spline": lambda: OneVsRest(Spline(penalty="coefficients", rule="best")),
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
#: Of more classes than this only methods that claims are about are fitted.
_FEW = 10
MEASURES = ("log_loss", "accuracy", "brier_score", "class_wise_ece")
#: Claims that one is less than another: what is compared, and which methods.
CLAIMS: dict[str, tuple[str, str, str]] = {
    "log loss: spline below uncalibrated": ("log_loss", "compact spline", "uncalibrated"),
    "log loss: spline below clipping": ("log_loss", "compact spline", "clipped, best"),
    "log loss: spline below isotonic": ("log_loss", "compact spline", "isotonic"),
    "log loss: compact logit below probability": ("log_loss", "compact spline", "spline"),
    "errors: spline below uncalibrated": ("error", "compact spline", "uncalibrated"),
}
#: Methods of small networks: as published, and the one for few rows.
_TRAINED = ("compact spline", "logit spline, unity prior")
#: Whose curves are kept, and at which log odds.
_DRAWN = "kull_densenet40_c10"
_AT = np.linspace(-14, 14, 57)


def clip(probs: np.ndarray, p_min: float) -> np.ndarray:
    """Raise probabilities (n, k) to a minimum, and divide rows by their sum.

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
    """Calibrate every network by every method, train small ones, and judge the claims.

    Parameters
    ----------
    data : path
        As for :func:`benchmarks.studies.cnn.run`; and ``adult_randomforest.npz`` there.
    out : path
        Folder for ``splines.json`` and ``parts``, made if it is missing.
    networks : sequence of str, optional
        Names of networks; by default all.
    seeds : int
        Of the small networks: splits of the images, first weights and orders of batches.
    about : mapping of str to str, optional
        Versions and the like that results depend on; written to the summary.
    progress : callable, optional
        Called with what is done, the number of parts done and that of all parts.

    Returns
    -------
    dict
        The content of ``splines.json``. ``networks``, by name: numbers of rows, ``methods`` with
        their measures, ``claims`` with differences, standard errors over rows and verdicts, and
        ``curves`` of one network. ``training``: losses and accuracies by epoch and seed.
        ``forest``: log losses and claims of a random forest, None if its file is not there.

    Raises
    ------
    ValueError
        If a file cannot be read, or a network is unknown.
    OSError
        If results cannot be written.

    Notes
    -----
    "clipped, best" is the best on the test rows of the four minimal probabilities, as published;
    "clipped" the best on the calibration rows. Log losses are clipped at 1e-15.

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
    kept = Results("splines", out, about)
    steps: list[str | int] = [*paths, *range(seeds)]
    found: dict[str, Any] = {}
    trained = []

    def describe(step: str | int) -> str:
        return f"training, seed {step}" if isinstance(step, int) else step

    for step in counted(steps, describe, progress):
        if isinstance(step, int):
            name = f"splines-training-{step}"
            question = {"seed": step, "epochs": list(CHECKPOINTS), "methods": list(_TRAINED)}
            trained.append(kept.part(name, question, lambda old, seed=step: old or _train(seed)))
            continue
        network = read_network(step, paths[step])
        names = methods_of(network)
        question = {"network": step, "data": network.digest, "methods": names}
        found[step] = kept.part(
            f"splines-{step}",
            question,
            lambda old, network=network, names=names: old or evaluate(network, names),
        )
    training = {"checkpoints": list(CHECKPOINTS), "rows": ROWS, "seeds": trained}
    summary = {"eps": EPS, "p_min": list(P_MIN), "networks": found, "training": training}
    forest = find_forest(Path(data))
    summary["forest"] = None if forest is None else run_forest(forest)
    return kept.summary("splines", summary)


def methods_of(network: Network) -> list[str]:
    """Return the methods to fit; the author's package, which is slow, where it is and fits once."""
    if network.scores.shape[1] > _FEW:
        claimed = {name for _, *pair in CLAIMS.values() for name in pair}
        return [name for name in METHODS if name in claimed]
    once = network.split == "validation rows" and find_spec("splinecalib") is not None
    return [*METHODS, *[_PACKAGE] * once]


def evaluate(network: Network, names: Sequence[str]) -> dict[str, Any]:
    """Return measures of methods on one network, and what its rows say of the claims."""
    own = network.scores, network.y
    test = network.test_scores, network.test_y
    pairs = [(own, test)] if network.split == "validation rows" else [(own, test), (test, own)]
    y = np.concatenate([rows[1] for _, rows in pairs])
    k = network.scores.shape[1]
    probs: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}
    plain = [[_probabilities(rows[0], network.inputs) for rows in pair] for pair in pairs]
    probs["uncalibrated"] = np.concatenate([test for _, test in plain])
    probs |= clipped(plain, [pair[0][1] for pair in pairs], y)
    for name in names:
        make = _Package if name == _PACKAGE else METHODS[name]
        start = time.perf_counter()
        parts = []
        for ((scores, labels), (others, _)), both in zip(pairs, plain, strict=True):
            fitted = make()
            if isinstance(fitted, _Package):
                parts.append(fitted.fit(both[0], labels).predict_proba(both[1]))
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    options = {"inputs": network.inputs, "classes": range(k)}
                    fitted.set_params(**options).fit(scores, labels)
                parts.append(fitted.predict_proba(others))
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
    if network.name == _DRAWN:
        answer["curves"] = curves(network)
    return answer


def clipped(
    plain: Sequence[Sequence[np.ndarray]], labels: Sequence[np.ndarray], y: np.ndarray
) -> dict[str, np.ndarray]:
    """Return clipped probabilities: as the test rows prefer, and as the calibration rows do."""
    tried = [np.concatenate([clip(test, p) for _, test in plain]) for p in P_MIN]
    best = min(tried, key=lambda p: row_losses(p, y, EPS).mean())
    own = []
    for (fit, test), label in zip(plain, labels, strict=True):
        chosen = min(P_MIN, key=lambda p: row_losses(clip(fit, p), label, EPS).mean())
        own.append(clip(test, chosen))
    return {"clipped, best": best, "clipped": np.concatenate(own)}


def measures(probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return log loss, accuracy, Brier score and class-wise error of probabilities (n, k)."""
    return {
        "log_loss": metrics.log_loss(probs, y, eps=EPS),
        "accuracy": metrics.accuracy(probs, y),
        "brier_score": brier_of_rows(probs, y),
        "class_wise_ece": metrics.ece(probs, y, kind="classwise"),
    }


def judge(probs: Mapping[str, np.ndarray], y: np.ndarray) -> dict[str, Any]:
    """Return for each claim the difference, its standard error over rows, and the verdict."""
    found = {}
    for claim, (what, first, second) in CLAIMS.items():
        if what == "log_loss":
            values = [row_losses(probs[name], y, EPS) for name in (first, second)]
        else:
            values = [(probs[name].argmax(axis=1) != y).astype(float) for name in (first, second)]
        own = paired(*values)
        found[claim] = {**own, "verdict": verdict(own)}
    return found


def curves(network: Network) -> dict[str, Any]:
    """Return the curve of each class, before rows are divided by their sum, by log odds."""
    probs = _probabilities(network.scores, network.inputs)
    at = 1 / (1 + np.exp(-_AT))
    found = []
    for j in range(probs.shape[1]):
        one = Spline("compact_logit", penalty="coefficients", rule="best").fit(
            probs[:, j], (network.y == j).astype(int)
        )
        found.append(one.predict_proba(at)[:, 1].round(5).tolist())
    spans = [np.quantile(probs[:, j], [0.001, 0.999]).tolist() for j in range(probs.shape[1])]
    return {"log_odds": _AT.tolist(), "probabilities": found, "spans": spans}


def _probabilities(scores: np.ndarray, inputs: str) -> np.ndarray:
    if inputs == "logits":
        return softmax(scores, axis=1)
    return scores / scores.sum(axis=1, keepdims=True)


def _train(seed: int) -> dict[str, Any]:
    """Return losses and accuracies by epoch, of networks that were trained with one seed."""
    found: dict[str, Any] = {}
    for scheme, steps in train(seed).items():
        table: dict[str, list[dict[str, float]]] = {}
        for own, labels, test, y in steps:
            probs = {"uncalibrated": test, **clipped([(own, test)], [labels], y)}
            for name in _TRAINED:
                fitted = METHODS[name]().set_params(classes=range(own.shape[1]))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    probs[name] = fitted.fit(own, labels).predict_proba(test)
            for name, p in probs.items():
                table.setdefault(name, []).append(measures(p, y))
        found[scheme] = {
            name: {key: [row[key] for row in rows] for key in ("log_loss", "accuracy")}
            for name, rows in table.items()
        }
    return found


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
