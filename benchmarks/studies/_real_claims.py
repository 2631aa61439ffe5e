"""What section 7.2 of the thesis says of real tables, judged by ranks and tests over ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bayescal.compare import wilcoxon
from benchmarks.figures import p_text
from benchmarks.studies._rankings import LEVEL, Ranking, ranking

#: The methods that the thesis ranks.
SEVEN = ("normal", "platt", "smoothed", "L1", "L2", "ibls", "cauchy_map")
_SOFT = ("platt", "smoothed", "ibls")
_BUT_CAUCHY = SEVEN[:-1]
#: Average ranks that the thesis's published diagrams show (its figures 26 and 27), read off images
#: by eye. There a higher rank is better; here it is worse, as everywhere else: 8 minus theirs. The
#: panel of features and ECE is a copy of that of log loss.
PUBLISHED_RANKS: dict[str, dict[str, dict[str, float]]] = {
    experiment: {
        metric: {method: round(8 - rank, 2) for method, rank in ranks.items()}
        for metric, ranks in metrics.items()
    }
    for experiment, metrics in {
        "svm": {
            "log_loss": {
                "cauchy_map": 1.05,
                "L1": 4.1,
                "normal": 4.2,
                "L2": 4.5,
                "smoothed": 4.6,
                "platt": 4.75,
                "ibls": 4.85,
            },
            "ece": {
                "cauchy_map": 1.3,
                "smoothed": 4.05,
                "L2": 4.3,
                "normal": 4.4,
                "L1": 4.6,
                "platt": 4.65,
                "ibls": 4.7,
            },
        },
        "multivariate": {
            "log_loss": {
                "platt": 3.1,
                "L1": 3.3,
                "smoothed": 4.0,
                "normal": 4.1,
                "ibls": 4.4,
                "cauchy_map": 4.5,
                "L2": 4.55,
            },
        },
    }.items()
}
#: Values by table and method.
ByTable = Mapping[str, Mapping[str, float]]


class Place(NamedTuple):
    """An experiment and metric: the ranking of the seven, and their means over tables."""

    ranking: Ranking
    means: Mapping[str, float]
    by_table: ByTable


#: Returns a verdict and its figures.
Check = Callable[[Place], tuple[str, str]]


class Claim(NamedTuple):
    """A sentence of the thesis in our words, and the experiments and metrics that it is about.

    ``ranked`` are the methods whose published ranks it is about, if it is about ranks.
    """

    words: str
    experiments: tuple[str, ...]
    metrics: tuple[str, ...]
    check: Check
    ranked: tuple[str, ...] = ()


def _ahead(first: tuple[str, ...], by: str = "rank", behind: tuple[str, ...] = ()) -> Check:
    """Claim that some methods come before others, by default all others.

    It holds if all these pairs differ, does not hold if the first one's last differs from the
    others' best and comes behind it, and else is not clear.
    """

    def check(place: Place) -> tuple[str, str]:
        others = behind or tuple(method for method in SEVEN if method not in first)
        order = place.ranking.rank if by == "rank" else place.means.__getitem__
        last, rival = max(first, key=order), min(others, key=order)
        p = place.ranking.p(last, rival)
        if order(last) >= order(rival):
            verdict = "does not hold" if p <= LEVEL else "not clear"
        else:
            clear = all(place.ranking.p(a, b) <= LEVEL for a in first for b in others)
            verdict = "holds" if clear else "not clear"
        digits = 2 if by == "rank" else 4
        said = f"{by} of {last} {order(last):.{digits}f}, of {rival} {order(rival):.{digits}f}"
        if len(first) > 1 or len(others) > 1:
            return verdict, f"{said}, {p_text(p)}"
        pair = np.array([[own[last], own[rival]] for own in place.by_table.values()])
        wins, alone = np.sum(pair[:, 0] < pair[:, 1]), float(wilcoxon(pair).p_value[0, 1])
        said += f", lower in {wins} of {len(pair)} tables"
        return verdict, f"{said}, {p_text(p)} ({alone:.3f} uncorrected)"

    return check


def _last(method: str) -> Check:
    """Claim that every other method beats one."""

    def check(place: Place) -> tuple[str, str]:
        others = _but(method)
        count = sum(place.ranking.beats(other, method) for other in others)
        least = min(others, key=lambda other: place.ranking.p(method, other))
        rank, p = place.ranking.rank(method), place.ranking.p(method, least)
        said = f"rank of {method} {rank:.2f}, {count} of {len(others)} beat it; {least} {p_text(p)}"
        return "holds" if count == len(others) else "does not hold", said

    return check


def _alike(methods: tuple[str, ...]) -> Check:
    """Claim that no pair of some methods differs."""

    def check(place: Place) -> tuple[str, str]:
        pairs = [(a, b) for i, a in enumerate(methods) for b in methods[i + 1 :]]
        differ = sum(place.ranking.p(*pair) <= LEVEL for pair in pairs)
        least = min(pairs, key=lambda pair: place.ranking.p(*pair))
        said = f"{differ} of {len(pairs)} pairs differ; {' and '.join(least)}"
        said += f" {p_text(place.ranking.p(*least))}"
        return "does not hold" if differ else "holds", said

    return check


def _but(method: str) -> tuple[str, ...]:
    return tuple(other for other in SEVEN if other != method)


def _order(
    words: str,
    experiments: tuple[str, ...],
    metrics: tuple[str, ...],
    first: tuple[str, ...],
    behind: tuple[str, ...] = (),
) -> Claim:
    """Claim an order of ranks, and name the methods that it is about."""
    named = first + behind if len(first) < len(SEVEN) - 1 else behind
    return Claim(words, experiments, metrics, _ahead(first, behind=behind), named)


_BOTH, _LOSS, _SVM, _FEATURES = ("log_loss", "ece"), ("log_loss",), ("svm",), ("multivariate",)
CLAIMS = (
    Claim("no methods but cauchy_map differ", _SVM, _BOTH, _alike(_BUT_CAUCHY)),
    _order("ibls has the best rank", _SVM, _BOTH, ("ibls",)),
    _order("platt ranks before smoothed", _SVM, _BOTH, ("platt",), ("smoothed",)),
    Claim("every method beats cauchy_map", _SVM, _BOTH, _last("cauchy_map"), ("cauchy_map",)),
    Claim("ibls and platt have the lowest means", _SVM, _LOSS, _ahead(("ibls", "platt"), "mean")),
    Claim("smoothed has the lowest mean", _SVM, _BOTH[1:], _ahead(("smoothed",), "mean")),
    Claim("no methods differ", _FEATURES, _BOTH, _alike(SEVEN)),
    _order("L2 and cauchy_map have the best ranks", _FEATURES, _BOTH, ("L2", "cauchy_map")),
    Claim("L2 has the lowest mean", _FEATURES, _BOTH, _ahead(("L2",), "mean")),
    _order("L2 ranks before L1", _FEATURES, _BOTH, ("L2",), ("L1",)),
    _order("platt has the worst rank", _FEATURES, _BOTH, _but("platt"), ("platt",)),
    Claim("normal has the highest mean", _FEATURES, _LOSS, _ahead(_but("normal"), "mean")),
    _order("ibls ranks before platt", _SVM + _FEATURES, _BOTH, ("ibls",), ("platt",)),
)
_MOVED = "soft targets rank worse with features than with scores"


def rank_tables(by_table: ByTable) -> Ranking | None:
    """Rank the seven methods over tables, if they are all there and there are two tables."""
    if len(by_table) < 2 or any(set(SEVEN) - set(own) for own in by_table.values()):
        return None
    return ranking({m: np.array([own[m] for own in by_table.values()]) for m in SEVEN})


def conclude(summary: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return each claim by experiment and metric: a verdict and its figures.

    ``summary`` has means and values by table, by experiment and metric. p-values are Wilcoxon's for
    all 21 pairs, with Holm's correction, at 0.05. What lacks one of the seven methods is left out.
    """
    found = []
    for claim in CLAIMS:
        for experiment in claim.experiments:
            for metric in claim.metrics:
                own = summary.get(experiment, {}).get(metric)
                ranked = rank_tables(own["by_table"]) if own else None
                if own and ranked:
                    said = claim.check(Place(ranked, own["mean"], own["by_table"]))
                    known = PUBLISHED_RANKS[experiment].get(metric, {})
                    ranks = {method: known[method] for method in claim.ranked if known}
                    found.append(_line(claim.words, experiment, metric, *said, ranks))
    both = [summary.get(experiment, {}) for experiment in (*_SVM, *_FEATURES)]
    for metric in _BOTH:
        tables = [own[metric]["by_table"] for own in both if metric in own]
        if len(tables) == 2 and all(rank_tables(each) for each in tables):
            found.append(_line(_MOVED, "both", metric, *_moved(*tables)))
    return found


def _line(
    words: str,
    experiment: str,
    metric: str,
    verdict: str,
    said: str,
    ranks: Mapping[str, float] | None = None,
) -> dict[str, str]:
    shown = ", ".join(f"{method} {rank:.2f}" for method, rank in (ranks or {}).items())
    return {
        "claim": words,
        "experiment": experiment,
        "metric": metric,
        "published": f"ranks: {shown}" if shown else "stated",
        "verdict": verdict,
        "figures": said,
    }


def _moved(scores: ByTable, features: ByTable) -> tuple[str, str]:
    """Compare the mean rank of the methods with soft targets, table by table."""
    from scipy.stats import rankdata

    soft = [SEVEN.index(method) for method in _SOFT]
    ranks = [
        np.array([rankdata([table[name][m] for m in SEVEN])[soft].mean() for name in scores])
        for table in (scores, features)
    ]
    before, after = (each.mean() for each in ranks)
    p = float(wilcoxon(np.stack(ranks, axis=1)).p_value[0, 1])
    verdict = "not clear" if p > LEVEL else "holds" if after > before else "does not hold"
    return verdict, f"mean rank {before:.2f} with scores, {after:.2f} with features, {p_text(p)}"
