"""What the synthetic study says of each configuration and question: means, ranks, tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from bayescal._core.optimize import Status
from bayescal.datasets.synthetic import bayes_optimal_log_loss
from benchmarks.studies._published_synthetic import impossible, published_of
from benchmarks.studies._rankings import Ranking, ranking
from benchmarks.studies._synthetic_cells import (
    METRICS,
    OPTIMAL,
    PREDICTIVE,
    TEN,
    Configuration,
    priors,
)

#: Which methods are ranked, by the name of the ranking.
RANKED = {"ten": TEN, "with_predictive": (*TEN, PREDICTIVE)}
#: Values (data sets, metrics) by method.
Values = Mapping[str, np.ndarray]


def rank(values: Values, methods: Sequence[str], metric: str) -> Ranking | None:
    """Rank methods over data sets: nothing if fewer than two of them were run."""
    place = list(METRICS).index(metric)
    table = {m: values[m][:, place] for m in methods if m in values}
    if len(table) < 2:
        return None
    return ranking(table)


@cache
def floor_of(name: str) -> float:
    """Return the expected log loss of the true parameters under a prior, by its name."""
    return bayes_optimal_log_loss(priors()[name])


def describe(
    chosen: Sequence[Configuration],
    values: Mapping[str, Values],
    status: Mapping[str, Values],
) -> dict[str, Any]:
    """Return the facts of each configuration, by its name, as JSON can hold them.

    ``values`` hold log loss and ECE (data sets, metrics), and ``status`` how each fit ended (data
    sets,), by configuration and method.
    """
    found: dict[str, Any] = {}
    first: dict[Any, str] = {}
    for each in chosen:
        floor = floor_of(each.prior)
        own, ended = values[each.name], status[each.name]
        same = first.setdefault(each.data, each.name)
        found[each.name] = {
            "question": each.question,
            "letter": each.letter,
            "prior": each.prior,
            "describe": each.describe,
            "n_train": each.cell.n_train,
            "class_ratio": each.cell.class_ratio,
            "data_of": same,
            "floor": floor,
            "metrics": {
                metric: {m: _moments(own[m][:, place]) for m in own}
                for place, metric in enumerate(METRICS)
            },
            "without_finite_optimum": {m: _share(ended[m], Status.UNBOUNDED) for m in own},
            "stopped_early": {m: _share(ended[m], Status.LIMIT) for m in own},
            "published": _published(each, own, floor),
        }
    return found


def rankings(chosen: Sequence[Configuration], values: Mapping[str, Values]) -> dict[str, Any]:
    """Return rankings by scope (a configuration, or "1" for all of question 1), metric and name."""
    scopes: dict[str, Values] = {each.name: values[each.name] for each in chosen}
    for question in dict.fromkeys(each.question for each in chosen):
        own = [values[each.name] for each in chosen if each.question == question]
        scopes[str(question)] = {m: np.concatenate([v[m] for v in own]) for m in own[0]}
    found: dict[str, Any] = {}
    for scope, own in scopes.items():
        found[scope] = {}
        for metric in METRICS:
            ranked = {name: rank(own, methods, metric) for name, methods in RANKED.items()}
            found[scope][metric] = {name: each for name, each in ranked.items() if each}
    return found


def pair_rows(ranked: Mapping[str, Any]) -> list[list[Any]]:
    """Return scope, metric, ranking, better and worse method, their ranks and p-value of pairs."""
    return [
        [scope, metric, name, *pair]
        for scope, metrics in ranked.items()
        for metric, some in metrics.items()
        for name, each in some.items()
        for pair in _pairs(each)
    ]


def _pairs(each: Ranking) -> list[list[Any]]:
    count = len(each.methods)
    return [
        [
            each.methods[i],
            each.methods[j],
            float(each.ranks[i]),
            float(each.ranks[j]),
            float(each.adjusted[i, j]),
        ]
        for i in range(count)
        for j in range(i + 1, count)
    ]


def _moments(values: np.ndarray) -> dict[str, float]:
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {
        "mean": float(values.mean()),
        "error": deviation / math.sqrt(len(values)),
        "deviation": deviation,
        "median": float(np.median(values)),
    }


def _share(status: np.ndarray, which: Status) -> float:
    return float(np.mean(status == int(which)))


def _published(each: Configuration, own: Values, floor: float) -> dict[str, Any]:
    """Return published figures by metric and method; infinite ones as None."""
    deviation = float(own[OPTIMAL][:, 0].std(ddof=1)) if OPTIMAL in own else 0.0
    return {
        metric: {
            method: {
                "mean": known.mean if math.isfinite(known.mean) else None,
                "deviation": known.deviation if math.isfinite(known.deviation) else None,
                "impossible": metric == "log_loss" and impossible(known.mean, floor, deviation),
            }
            for method, known in published_of(each.question, each.letter, metric).items()
        }
        for metric in METRICS
    }
