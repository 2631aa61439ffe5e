"""What many tables say together: means, ranks, and how that compares with what was published."""

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
#: Those of the published tables whose data can still be had in the form used there.
KNOWN_TABLES = frozenset(
    "aecoli auto_price banana bodyfat cleve dataset_43_haberman fried kin8nm magictelescope "
    "mindcave2 phoneme planning_relax quake satellite space_ga sylvine tokyo1 vowel "
    "wisconsin".split()
)
#: Far from all others, and from what the method yields.
_MISPRINTED = ("cauchy_map",)
#: How close a published log loss is to the Brier score that it may be.
_NEAR = 0.02
_HIGHER_IS_BETTER = ("accuracy",)
_TITLES = {"log_loss": "log loss", "ece": "ECE"}


def summarize(
    rows: Sequence[Sequence[Any]], experiments: Sequence[str], metrics: Sequence[str]
) -> dict[str, Any]:
    """Return means, ranks and wins by experiment, metric and method.

    ``rows`` are table, split, experiment, method, the metrics, and the status of the fit.
    """
    summary: dict[str, Any] = {}
    for experiment in experiments:
        mine = [row for row in rows if row[2] == experiment]
        methods = list(dict.fromkeys(row[3] for row in mine))
        unfit = {m: sum(row[3] == m and row[-1] != "converged" for row in mine) for m in methods}
        summary[experiment] = {"without_finite_optimum": unfit} if methods else {}
        for place, metric in enumerate(metrics, 4) if methods else ():
            by_table = _means(mine, place)
            values = np.array([[found[m] for m in methods] for found in by_table.values()])
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
            ranked = rank_tables(by_table)
            if ranked and metric in _TITLES:
                known = PUBLISHED_RANKS.get(experiment, {}).get(metric, {})
                best = [ranked.p(method, ranked.methods[0]) for method in ranked.methods]
                facts["seven"] = {**ranked.summary(), "p_best": best, "published_ranks": known}
            summary[experiment][metric] = {**facts, "by_table": by_table}
        if methods:
            said = [_remark(summary[experiment], metric) for metric in _TITLES]
            counts = ", ".join(f"{method} {count}" for method, count in unfit.items() if count)
            said.append(f"Fits without finite optimum: {counts}." if counts else "")
            summary[experiment]["remarks"] = [line for line in said if line]
    return summary


def _remark(found: dict[str, Any], metric: str) -> str:
    """Say if published means cannot well be those of tables that include ours, else nothing.

    Losses are not negative, so ours must not sum to more than the published ones do. And if they
    sum to much less, the tables that are not here would have to be worse than even odds.
    """
    by_table = found[metric]["by_table"]
    known = [values for name, values in by_table.items() if name in KNOWN_TABLES]
    published = {m: v for m, v in found[metric]["published"].items() if m not in _MISPRINTED}
    others = PUBLISHED_TABLES - len(known)
    if not known or not published or not others:
        return ""
    here = {method: sum(values[method] for values in known) for method in published}
    least, most = sum(min(values.values()) for values in known), max(published.values())
    if least > PUBLISHED_TABLES * most:
        return (
            f"Published means of the {_TITLES[metric]}, but that of cauchy_map, are at most "
            f"{most:.4f}, so that 40 tables sum to {PUBLISHED_TABLES * most:.2f}. The {len(known)} "
            f"of them here sum to {least:.2f} even with the best method of each: the published "
            f"means are of something else, or of other data.{_hint(found, metric, published)}"
        )
    left = {m: (PUBLISHED_TABLES * v - here[m]) / others for m, v in published.items()}
    worst = max(left, key=lambda method: left[method])
    if metric == "log_loss" and left[worst] > np.log(2):
        return (
            f"By the published log loss of {worst}, {published[worst]:.4f}, and ours on the "
            f"{len(known)} tables here, the other {others} would lose {left[worst]:.3f} each on "
            "average, more than even odds do (0.693)."
        )
    return ""


def _hint(found: dict[str, Any], metric: str, published: dict[str, float]) -> str:
    """Say how close what is published as log loss is to Brier scores."""
    if metric != "log_loss" or "brier_score" not in found:
        return ""
    brier = {method: found["brier_score"]["mean"][method] for method in published}
    near = sum(abs(value / brier[method] - 1) <= _NEAR for method, value in published.items())
    return (
        f" Brier scores here are {min(brier.values()):.4f} to {max(brier.values()):.4f}: "
        f"{near} of {len(published)} published means are these within {_NEAR:.0%}."
    )


def _means(rows: Sequence[Sequence[Any]], place: int) -> dict[str, dict[str, float]]:
    """Return means over splits by table and method."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        values.setdefault(row[0], {}).setdefault(row[3], []).append(row[place])
    return {
        table: {method: float(np.mean(some)) for method, some in methods.items()}
        for table, methods in values.items()
    }


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks along rows, 1 for the least; equals share the mean of theirs."""
    below = (values[:, None, :] < values[:, :, None]).sum(axis=2)
    equal = (values[:, None, :] == values[:, :, None]).sum(axis=2)
    return below + (equal + 1) / 2
