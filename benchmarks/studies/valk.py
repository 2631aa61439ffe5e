"""Explain differences from the figures of K. Valk (2022) by the options of its code, one by one.

Decision calibration with soft borders is also compared with hard borders, on held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

import bayescal as bc
from bayescal.calibrators.multiclass.decision import partition as _partition
from bayescal.datasets.simplex import sample
from benchmarks.studies import _as_published as published
from benchmarks.studies._measures import EPS, MEASURES
from benchmarks.studies._networks import find_networks, read_network
from benchmarks.studies._published import published_figures
from benchmarks.studies.store import Progress, Results, counted

__all__ = ["run"]

_NETWORK = "kull_densenet40_c10"
_KEYS = ("accuracy", "ece_mass", "class_wise_ece_mass", "brier_score", "log_loss", "loss_gap")
_STEPS = (1, 2, 5, 10)
#: Numbers of fitted and of predicted rows with a known truth.
_ROWS = 5000, 20_000


def run(
    data: str | Path,
    out: str | Path,
    *,
    seeds: int = 3,
    sets: int = 5,
    about: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compute the published figures of DenseNet-40 as the published code does, and write them.

    Parameters
    ----------
    data, out : path
        Folders as in ``benchmarks.studies.cnn.run``; the results are written to ``valk.json``.
    seeds : int
        Number of seeds of decision calibration and order-preserving networks.
    sets : int
        Number of folds of the calibration rows, and of data sets with a known truth, on which soft
        and hard partitions are compared.
    about : mapping of str to str, optional
    progress : callable, optional
        As in ``benchmarks.studies.cnn.run``.

    Returns
    -------
    dict
        The content of ``valk.json``: ``maps``, metrics by map; ``order_preserving`` and
        ``decision``, metrics for each setting and seed; ``published`` figures; ``partitions``, by
        data and number of steps, the mean metrics of each kind of border on held-out rows, and the
        mean and standard error of the paired differences, hard minus soft.

    Raises
    ------
    ValueError
        If the network's file is missing or cannot be read.
    """
    store = Results("valk", out, about)
    network = read_network(_NETWORK, find_networks(Path(data), [_NETWORK])[_NETWORK])
    z, y, test, test_y = network.scores, network.y, network.test_scores, network.test_y
    row_index, random_losses = np.arange(len(y)), published.losses(z.shape[1])

    def measured(probs: np.ndarray) -> dict[str, float]:
        values = {key: MEASURES[key](probs, test_y) for key in _KEYS[:-1]}
        return values | {"loss_gap": bc.metrics.loss_gap(probs, test_y, losses=random_losses)}

    def loss(inverse: float) -> float:
        return -float(log_softmax(inverse * z.astype(float), axis=1)[row_index, y].mean())

    optimum: Any = minimize_scalar(loss, (0.1, 1.0), method="brent")
    inverse = float(optimum.x)
    maps = published.maps(z, y, test, inverse)
    scaled, queries = (published.probabilities(rows * np.float32(inverse)) for rows in (z, test))

    def networks() -> list[dict[str, float]]:
        runs = product(range(5), range(seeds))
        return [measured(published.order_preserving(z, y, test, fold, seed)) for fold, seed in runs]

    def decided(clipped: bool, squares: bool) -> list[dict[str, Any]]:
        results = []
        for seed in range(seeds):
            by_floor = published.decisions(scaled, y, queries, test_y, clipped, squares, seed)
            for floor, (probs, count) in by_floor.items():
                options = {"clipped": clipped, "least_squares": squares, "floor": floor}
                results.append({**options, "seed": seed, "steps": count, **measured(probs)})
        return results

    steps: dict[str, Callable[[], Any]] = {
        **{name: lambda fit=fit: measured(fit(z, y, test)) for name, fit in maps.items()},
        "order_preserving": networks,
        "decision": lambda: decided(False, False),
        "decision, clipped": lambda: decided(True, False),
        "decision, clipped, squares": lambda: decided(True, True),
        "folds": lambda: _compare(_folds(z, y, sets)),
        "simplex": lambda: _compare(_known(sets)),
    }
    answers = {}
    question = {"data": network.digest, "seeds": seeds, "sets": sets}
    for name, step in counted(steps.items(), lambda pair: pair[0], progress):
        answers[name] = store.part(
            f"valk-{name.replace(', ', '-')}",
            {"part": name, **question},
            lambda old, step=step: old or step(),
        )
    summary = {
        "maps": {name: answers[name] for name in maps},
        "order_preserving": answers["order_preserving"],
        "decision": [row for name in steps if name.startswith("decision") for row in answers[name]],
        "partitions": {name: answers[name] for name in ("folds", "simplex")},
    }
    figures = [figure._asdict() for figure in published_figures(_NETWORK, Path(data))]
    figures = [figure for figure in figures if figure["source"].startswith("Valk")]
    return store.summary(
        "valk", {"eps": EPS, "seeds": seeds, "sets": sets, "published": figures, **summary}
    )


# --- soft and hard borders ----------------------------------------------------------------------

#: Probabilities and labels of fitted rows; probabilities and true probabilities of test rows.
_Pair = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _folds(z: np.ndarray, y: np.ndarray, count: int) -> Iterator[_Pair]:
    """Yield the pairs of fitted rows and test rows of each fold, after temperature scaling."""
    for fold in range(count):
        held_out = np.arange(len(y)) % count == fold
        scaling = bc.Temperature(inputs="logits").fit(z[~held_out], y[~held_out])
        calibrated, test = (scaling.predict_proba(rows) for rows in (z[~held_out], z[held_out]))
        yield calibrated, y[~held_out], test, np.eye(z.shape[1])[y[held_out]]


def _known(count: int) -> Iterator[_Pair]:
    """Yield data sets with a known truth."""
    test = sample(_ROWS[1], seed=1_000_000)
    for seed in range(count):
        data = sample(_ROWS[0], seed=seed)
        yield data.probs, data.y, test.probs, test.truth


def _compare(pairs: Iterator[_Pair]) -> dict[str, Any]:
    """Fit decision calibration with soft and hard borders, and compare the two."""
    values: dict[int, list[tuple[dict[str, float], dict[str, float]]]] = {n: [] for n in _STEPS}
    for seed, (probs, y, test, truth) in enumerate(pairs):
        for count in _STEPS:
            measured = []
            for kind in ("soft", "hard"):
                model = bc.Decision(steps=count, partition=kind, random_state=seed)
                measured.append(_measure(model.fit(probs, y).predict_proba(test), truth))
            values[count].append((measured[0], measured[1]))
    answer = {}
    for count, pairs_of_values in values.items():
        answer[str(count)] = {}
        for key in pairs_of_values[0][0]:
            soft, hard = np.array([[result[key] for result in pair] for pair in pairs_of_values]).T
            differences = hard - soft
            answer[str(count)][key] = {
                "soft": float(soft.mean()),
                "hard": float(hard.mean()),
                "difference": float(differences.mean()),
                "standard_error": float(differences.std(ddof=1) / np.sqrt(len(differences))),
            }
    return answer


def _measure(probs: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compute losses and the violation of the worst hard partition."""
    errors, rng = (truth - probs) / len(probs), np.random.default_rng(0)
    worst = _partition.worst_partition(probs, errors, 2, rng, hard=True)
    logs = np.log(np.clip(probs, EPS, 1.0))
    return {
        "log_loss": float(-(truth * logs).sum(axis=1).mean()),
        "brier_score": float((probs**2 - 2 * probs * truth).sum(axis=1).mean() + 1),
        "loss_gap": bc.metrics.loss_gap(probs, truth),
        "worst_hard_violation": worst.violation,
    }
