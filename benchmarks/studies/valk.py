"""What explains differences from K. Valk (2022): its code's own options, one at a time.

Decision calibration is compared with itself too: soft and hard borders on rows apart.
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
#: Rows with a known truth, that are fitted and that are predicted.
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
        As in ``benchmarks.studies.cnn.run``; written is ``valk.json``.
    seeds : int
        Of decision calibration and order-preserving networks.
    sets : int
        Folds of the calibration rows, and data sets with a known truth, on which soft and hard
        partitions are compared.
    about : mapping of str to str, optional
    progress : callable, optional
        As in ``benchmarks.studies.cnn.run``.

    Returns
    -------
    dict
        The content of ``valk.json``: ``maps``, metrics by map; ``order_preserving`` and
        ``decision``, the same for each setting and seed; ``published`` figures; ``partitions``, by
        data and number of steps the means of each kind of border on held-out rows, and mean and
        standard error of the paired difference, hard minus soft.

    Raises
    ------
    ValueError
        If the network's file is not there or cannot be read.
    """
    kept = Results("valk", out, about)
    network = read_network(_NETWORK, find_networks(Path(data), [_NETWORK])[_NETWORK])
    z, y, test, test_y = network.scores, network.y, network.test_scores, network.test_y
    own, drawn = np.arange(len(y)), published.losses(z.shape[1])

    def measured(probs: np.ndarray) -> dict[str, float]:
        found = {key: MEASURES[key](probs, test_y) for key in _KEYS[:-1]}
        return found | {"loss_gap": bc.metrics.loss_gap(probs, test_y, losses=drawn)}

    def loss(inverse: float) -> float:
        return -float(log_softmax(inverse * z.astype(float), axis=1)[own, y].mean())

    least: Any = minimize_scalar(loss, (0.1, 1.0), method="brent")
    inverse = float(least.x)
    maps = published.maps(z, y, test, inverse)
    scaled, queries = (published.probabilities(rows * np.float32(inverse)) for rows in (z, test))

    def networks() -> list[dict[str, float]]:
        runs = product(range(5), range(seeds))
        return [measured(published.order_preserving(z, y, test, fold, seed)) for fold, seed in runs]

    def decided(clipped: bool, squares: bool) -> list[dict[str, Any]]:
        told = []
        for seed in range(seeds):
            both = published.decisions(scaled, y, queries, test_y, clipped, squares, seed)
            for floor, (probs, count) in both.items():
                about = {"clipped": clipped, "least_squares": squares, "floor": floor}
                told.append({**about, "seed": seed, "steps": count, **measured(probs)})
        return told

    steps: dict[str, Callable[[], Any]] = {
        **{name: lambda own=own: measured(own(z, y, test)) for name, own in maps.items()},
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
        answers[name] = kept.part(
            f"valk-{name.replace(', ', '-')}",
            {"part": name, **question},
            lambda old, step=step: old or step(),
        )
    found = {
        "maps": {name: answers[name] for name in maps},
        "order_preserving": answers["order_preserving"],
        "decision": [own for name in steps if name.startswith("decision") for own in answers[name]],
        "partitions": {name: answers[name] for name in ("folds", "simplex")},
    }
    figures = [own._asdict() for own in published_figures(_NETWORK, Path(data))]
    figures = [own for own in figures if own["source"].startswith("Valk")]
    return kept.summary(
        "valk", {"eps": EPS, "seeds": seeds, "sets": sets, "published": figures, **found}
    )


# --- soft and hard borders ----------------------------------------------------------------------

#: Rows that are fitted with their labels, and others with the truth about them, (m, k).
_Pair = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _folds(z: np.ndarray, y: np.ndarray, count: int) -> Iterator[_Pair]:
    for fold in range(count):
        held = np.arange(len(y)) % count == fold
        scaling = bc.Temperature(inputs="logits").fit(z[~held], y[~held])
        given, others = (scaling.predict_proba(rows) for rows in (z[~held], z[held]))
        yield given, y[~held], others, np.eye(z.shape[1])[y[held]]


def _known(count: int) -> Iterator[_Pair]:
    test = sample(_ROWS[1], seed=1_000_000)
    for seed in range(count):
        own = sample(_ROWS[0], seed=seed)
        yield own.probs, own.y, test.probs, test.truth


def _compare(pairs: Iterator[_Pair]) -> dict[str, Any]:
    values: dict[int, list[tuple[dict[str, float], dict[str, float]]]] = {n: [] for n in _STEPS}
    for seed, (given, y, test, truth) in enumerate(pairs):
        for count in _STEPS:
            both = []
            for kind in ("soft", "hard"):
                own = bc.Decision(steps=count, partition=kind, random_state=seed)
                both.append(_judged(own.fit(given, y).predict_proba(test), truth))
            values[count].append((both[0], both[1]))
    answer = {}
    for count, some in values.items():
        answer[str(count)] = {}
        for key in some[0][0]:
            soft, hard = np.array([[own[key] for own in pair] for pair in some]).T
            apart = hard - soft
            answer[str(count)][key] = {
                "soft": float(soft.mean()),
                "hard": float(hard.mean()),
                "difference": float(apart.mean()),
                "standard_error": float(apart.std(ddof=1) / np.sqrt(len(apart))),
            }
    return answer


def _judged(probs: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    errors, rng = (truth - probs) / len(probs), np.random.default_rng(0)
    worst = _partition.worst_partition(probs, errors, 2, rng, hard=True)
    logs = np.log(np.clip(probs, EPS, 1.0))
    return {
        "log_loss": float(-(truth * logs).sum(axis=1).mean()),
        "brier_score": float((probs**2 - 2 * probs * truth).sum(axis=1).mean() + 1),
        "loss_gap": bc.metrics.loss_gap(probs, truth),
        "worst_hard_violation": worst.violation,
    }
