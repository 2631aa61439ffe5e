"""Summarize many tables: means, ranks, and comparisons with published means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.studies._real_claims import PUBLISHED_RANKS, rank_tables

#: M. Maher (2020), tables 9 and 10: means over 40 tables.
PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "svm": {
        "log_loss": {
            "normal": 0.1480,
            "platt": 0.1323,
            "smoothed": 0.1325,
            "L1": 0.1324,
            "L2": 0.1330,
            "ibls": 0.1323,
            "cauchy_map": 0.5055,
        },
        "ece": {
            "normal": 0.0180,
            "platt": 0.0180,
            "smoothed": 0.0164,
            "L1": 0.0169,
            "L2": 0.0175,
            "ibls": 0.0174,
            "cauchy_map": 0.1337,
        },
    },
    "multivariate": {
        "log_loss": {
            "normal": 0.7419,
            "platt": 0.6665,
            "smoothed": 0.6433,
            "L1": 0.6658,
            "L2": 0.6405,
            "ibls": 0.6738,
            "cauchy_map": 0.6470,
        },
        "ece": {
            "normal": 0.1002,
            "platt": 0.1050,
            "smoothed": 0.0902,
            "L1": 0.0990,
            "L2": 0.0791,
            "ibls": 0.0895,
            "cauchy_map": 0.1000,
        },
    },
}
PUBLISHED_TABLES = 40
#: Published tables whose data are still available in the form that the source used.
KNOWN_TABLES = frozenset(
    "aecoli auto_price banana bodyfat cleve dataset_43_haberman fried kin8nm magictelescope "
    "mindcave2 phoneme planning_relax quake satellite space_ga sylvine tokyo1 vowel "
    "wisconsin".split()
)
#: Methods whose published means are far from all others and from the results of the method.
_MISPRINTED = ("cauchy_map",)
#: Relative difference up to which a published log loss may actually be a Brier score.
_NEAR_RATIO = 0.02
_HIGHER_IS_BETTER = ("accuracy",)
_TITLES = {"log_loss": "log loss", "ece": "ECE"}


def summarize(
    rows: Sequence[Sequence[Any]], experiments: Sequence[str], metrics: Sequence[str]
) -> dict[str, Any]:
    """Compute means, ranks and wins by experiment, metric and method.

    Each of ``rows`` has table, split, experiment, method, the metrics, and the status of the fit.
    """
    summary: dict[str, Any] = {}
    for experiment in experiments:
        of_experiment = [row for row in rows if row[2] == experiment]
        methods = list(dict.fromkeys(row[3] for row in of_experiment))
        num_without_optimum = {
            m: sum(row[3] == m and row[-1] != "converged" for row in of_experiment) for m in methods
        }
        summary[experiment] = {"without_finite_optimum": num_without_optimum} if methods else {}
        for column, metric in enumerate(metrics, 4) if methods else ():
            by_table = _means(of_experiment, column)
            values = np.array([[by_method[m] for m in methods] for by_method in by_table.values()])
            better = -values if metric in _HIGHER_IS_BETTER else values
            best = (better == better.min(axis=1, keepdims=True)).sum(axis=0)
            columns = {
                "mean": values.mean(axis=0),
                "deviation": values.std(axis=0),
                "mean_rank": _ranks(better).mean(axis=0),
                "best": best,
            }
            facts = {
                key: dict(zip(methods, column.tolist(), strict=True))
                for key, column in columns.items()
            }
            published = PUBLISHED.get(experiment, {}).get(metric, {})
            facts["published"] = {m: published[m] for m in methods if m in published}
            ranking = rank_tables(by_table)
            if ranking and metric in _TITLES:
                published_ranks = PUBLISHED_RANKS.get(experiment, {}).get(metric, {})
                best = [ranking.p(method, ranking.methods[0]) for method in ranking.methods]
                facts["seven"] = {
                    **ranking.summary(),
                    "p_best": best,
                    "published_ranks": published_ranks,
                }
            summary[experiment][metric] = {**facts, "by_table": by_table}
        if methods:
            remarks = [_remark(summary[experiment], metric) for metric in _TITLES]
            counts = ", ".join(
                f"{method} {count}" for method, count in num_without_optimum.items() if count
            )
            remarks.append(f"Fits without finite optimum: {counts}." if counts else "")
            summary[experiment]["remarks"] = [line for line in remarks if line]
    return summary


def _remark(facts: dict[str, Any], metric: str) -> str:
    """Explain why published means contradict ours on the shared tables; empty if they do not.

    Losses are not negative, so our sum over the shared tables must not exceed the published sum
    over all tables. If our sum is much smaller, the unavailable tables would have to be worse than
    even odds.
    """
    by_table = facts[metric]["by_table"]
    known_tables = [values for name, values in by_table.items() if name in KNOWN_TABLES]
    published = {m: v for m, v in facts[metric]["published"].items() if m not in _MISPRINTED}
    others = PUBLISHED_TABLES - len(known_tables)
    if not known_tables or not published or not others:
        return ""
    our_sums = {method: sum(values[method] for values in known_tables) for method in published}
    smallest_sum = sum(min(values.values()) for values in known_tables)
    largest = max(published.values())
    if smallest_sum > PUBLISHED_TABLES * largest:
        return (
            f"Published means of the {_TITLES[metric]}, but that of cauchy_map, are at most "
            f"{largest:.4f}, so that 40 tables sum to {PUBLISHED_TABLES * largest:.2f}. The "
            f"{len(known_tables)} of them here sum to {smallest_sum:.2f} even with the best method "
            "of each: the published means are of something else, or of other data."
            f"{_hint(facts, metric, published)}"
        )
    implied = {m: (PUBLISHED_TABLES * v - our_sums[m]) / others for m, v in published.items()}
    worst = max(implied, key=lambda method: implied[method])
    if metric == "log_loss" and implied[worst] > np.log(2):
        return (
            f"By the published log loss of {worst}, {published[worst]:.4f}, and ours on the "
            f"{len(known_tables)} tables here, the other {others} would lose {implied[worst]:.3f} "
            "each on average, more than even odds do (0.693)."
        )
    return ""


def _hint(facts: dict[str, Any], metric: str, published: dict[str, float]) -> str:
    """Compare the published log losses with our Brier scores, in a sentence."""
    if metric != "log_loss" or "brier_score" not in facts:
        return ""
    brier = {method: facts["brier_score"]["mean"][method] for method in published}
    num_near = sum(
        abs(value / brier[method] - 1) <= _NEAR_RATIO for method, value in published.items()
    )
    return (
        f" Brier scores here are {min(brier.values()):.4f} to {max(brier.values()):.4f}: "
        f"{num_near} of {len(published)} published means are these within {_NEAR_RATIO:.0%}."
    )


def _means(rows: Sequence[Sequence[Any]], column: int) -> dict[str, dict[str, float]]:
    """Compute means over splits by table and method."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        values.setdefault(row[0], {}).setdefault(row[3], []).append(row[column])
    return {
        table: {method: float(np.mean(of_splits)) for method, of_splits in methods.items()}
        for table, methods in values.items()
    }


def _ranks(values: np.ndarray) -> np.ndarray:
    """Compute ranks along rows, 1 for the smallest; ties share their mean rank."""
    below = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    return below + (equal + 1) / 2
