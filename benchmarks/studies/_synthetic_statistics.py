"""Means, ranks and tests of the synthetic study, by configuration and by question."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from bayescal._core.minimization.optimize import Status
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

#: Ranked methods, by the name of the ranking.
RANKED = {"ten": TEN, "with_predictive": (*TEN, PREDICTIVE)}
#: Values (data sets, metrics) by method.
Values = Mapping[str, np.ndarray]


def rank(values: Values, methods: Sequence[str], metric: str) -> Ranking | None:
    """Rank methods over data sets; None if fewer than two of the methods were run."""
    column = list(METRICS).index(metric)
    table = {m: values[m][:, column] for m in methods if m in values}
    if len(table) < 2:
        return None
    return ranking(table)


@cache
def floor_of(name: str) -> float:
    """Compute the expected log loss of the true parameters under the prior of a given name."""
    return bayes_optimal_log_loss(priors()[name])


def describe(
    configurations: Sequence[Configuration],
    values: Mapping[str, Values],
    status: Mapping[str, Values],
) -> dict[str, Any]:
    """Summarize the results of each configuration, as JSON-compatible values by its name.

    ``values`` contains log loss and ECE (data sets, metrics), and ``status`` the status of each fit
    (data sets,), both by configuration and method.
    """
    facts: dict[str, Any] = {}
    first: dict[Any, str] = {}
    for configuration in configurations:
        floor = floor_of(configuration.prior)
        by_method, fit_status = values[configuration.name], status[configuration.name]
        first_name = first.setdefault(configuration.data, configuration.name)
        facts[configuration.name] = {
            "question": configuration.question,
            "letter": configuration.letter,
            "prior": configuration.prior,
            "describe": configuration.describe,
            "n_train": configuration.cell.n_train,
            "class_ratio": configuration.cell.class_ratio,
            "data_of": first_name,
            "floor": floor,
            "metrics": {
                metric: {m: _moments(by_method[m][:, column]) for m in by_method}
                for column, metric in enumerate(METRICS)
            },
            "without_finite_optimum": {
                m: _share(fit_status[m], Status.UNBOUNDED) for m in by_method
            },
            "stopped_early": {m: _share(fit_status[m], Status.LIMIT) for m in by_method},
            "published": _published(configuration, by_method, floor),
        }
    return facts


def rankings(
    configurations: Sequence[Configuration], values: Mapping[str, Values]
) -> dict[str, Any]:
    """Rank methods by scope, metric and name of the ranking.

    A scope is a configuration, or a question, such as "1", with all its configurations.
    """
    scopes: dict[str, Values] = {
        configuration.name: values[configuration.name] for configuration in configurations
    }
    for question in dict.fromkeys(configuration.question for configuration in configurations):
        members = [
            values[configuration.name]
            for configuration in configurations
            if configuration.question == question
        ]
        scopes[str(question)] = {m: np.concatenate([v[m] for v in members]) for m in members[0]}
    result: dict[str, Any] = {}
    for scope, members in scopes.items():
        result[scope] = {}
        for metric in METRICS:
            ranked = {name: rank(members, methods, metric) for name, methods in RANKED.items()}
            result[scope][metric] = {name: value for name, value in ranked.items() if value}
    return result


def pair_rows(by_scope: Mapping[str, Any]) -> list[list[Any]]:
    """List all pairs: scope, metric, ranking, better and worse method, their ranks, p-value."""
    return [
        [scope, metric, name, *pair]
        for scope, metrics in by_scope.items()
        for metric, by_ranking in metrics.items()
        for name, result in by_ranking.items()
        for pair in _pairs(result)
    ]


def _pairs(ranking: Ranking) -> list[list[Any]]:
    count = len(ranking.methods)
    return [
        [
            ranking.methods[i],
            ranking.methods[j],
            float(ranking.ranks[i]),
            float(ranking.ranks[j]),
            float(ranking.adjusted[i, j]),
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


def _share(status: np.ndarray, outcome: Status) -> float:
    return float(np.mean(status == int(outcome)))


def _published(configuration: Configuration, values: Values, floor: float) -> dict[str, Any]:
    """Look up published figures by metric and method; None stands for infinite values."""
    deviation = float(values[OPTIMAL][:, 0].std(ddof=1)) if OPTIMAL in values else 0.0
    return {
        metric: {
            method: {
                "mean": figure.mean if math.isfinite(figure.mean) else None,
                "deviation": figure.deviation if math.isfinite(figure.deviation) else None,
                "impossible": metric == "log_loss" and impossible(figure.mean, floor, deviation),
            }
            for method, figure in published_of(
                configuration.question, configuration.letter, metric
            ).items()
        }
        for metric in METRICS
    }
