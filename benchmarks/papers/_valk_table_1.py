"""Table 1 of K. Valk (2022) with standard errors over data sets, and claims of the thesis on it."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from benchmarks.figures import table
from benchmarks.papers._common import Finding, read
from benchmarks.papers._networks import METRICS
from benchmarks.studies._calibrators import FIXED

TRUTH, NONE, BEST, SECOND = "truth", "uncalibrated", "kernel", "dirichlet"
#: Published methods, and ours with the published options.
_OURS: dict[str, str] = {
    "order_preserving_full": "order_preserving_fixed",
    "forest": "forest_fixed",
    "knn_euclidean": "knn_fixed",
    "kernel": "kernel_fixed",
}
#: Results with other amplitudes of the wave in the true map.
_WAVES = ("wave_05", "wave_0")
assert set(_OURS.values()) == set(FIXED)


@cache
def _study(name: str = "table1") -> dict[str, Any]:
    return read(f"simplex_{name}")


def count(name: str = "table1") -> int:
    """Return the number of data sets."""
    return _study(name)["datasets"]


def _methods() -> list[str]:
    return [name for name in _study()["published"] if name != TRUTH]


def _metrics() -> list[str]:
    return list(_study()["published"][TRUTH])


def _values_of(method: str, metric: str, name: str = "table1") -> np.ndarray:
    """Collect the values (s,) of a metric over data sets."""
    facts = _study(name)["maps"][method]
    return np.array(facts["each"][metric] if "each" in facts else [facts[metric]] * count(name))


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _cell(values: np.ndarray) -> str:
    return f"{values.mean():.4f} ± {_error(values):.4f}"


def values() -> str:
    """Arrange published values and our means with the published options as a table."""
    rows = []
    for method, figures in _study()["published"].items():
        our_method = _OURS[method] if method in _OURS else method
        cells = [f"{figures[key]:.3f} / {_cell(_values_of(our_method, key))}" for key in _metrics()]
        rows.append([f"`{method}`", *cells])
    return table(["published / ours", *(METRICS[key] for key in _metrics())], rows)


def chosen() -> str:
    """Arrange our means with options chosen by cross-validation as a table."""
    rows = [
        [f"`{method}`", *(_cell(_values_of(method, key)) for key in _metrics())] for method in _OURS
    ]
    return table(["chosen", *(METRICS[key] for key in _metrics())], rows)


def _mean_ranks(by_metric: dict[str, np.ndarray]) -> np.ndarray:
    """Compute mean ranks (methods, s) of values (methods, s); ties share the best rank."""
    total = 0.0
    for key, values in by_metric.items():
        signed = -values if key == "accuracy" else values
        total = total + 1 + (signed[None] < signed[:, None]).sum(axis=1)
    return np.asarray(total) / len(by_metric)


def _published_ranks() -> np.ndarray:
    """Compute the mean ranks (methods,) of the published values."""
    known = _study()["published"]
    return _mean_ranks(
        {key: np.array([[known[m][key]] for m in _methods()]) for key in _metrics()}
    )[:, 0]


def _our_ranks(name: str = "table1") -> np.ndarray:
    """Compute our mean ranks (methods, s) in each data set, from values rounded as published."""
    by_metric = {}
    for key in _metrics():
        values = np.array([_values_of(_OURS.get(m, m), key, name) for m in _methods()])
        by_metric[key] = values.round(3)
    return _mean_ranks(by_metric)


def ranks() -> str:
    """Arrange published mean ranks and ours as a table."""
    theirs, ours = _published_ranks(), _our_ranks()
    rows = []
    for method, published, our_ranks in zip(_methods(), theirs, ours, strict=True):
        chance_deviation = our_ranks.std(ddof=1) * math.sqrt(1 + 1 / count())
        deviations = (
            (published - our_ranks.mean()) / chance_deviation if chance_deviation > 0 else math.inf
        )
        verdict = "within chance" if abs(deviations) < 2 else f"{deviations:+.1f} deviations"
        value_range = f"{our_ranks.min():.1f} to {our_ranks.max():.1f}"
        cell = f"{our_ranks.mean():.1f} ± {our_ranks.std(ddof=1):.1f}"
        rows.append([f"`{method}`", f"{published:.1f}", cell, value_range, verdict])
    return table(["", "published", "ours", "least to greatest", ""], rows)


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def correlations() -> tuple[float, list[float], list[float]]:
    """Compute rank correlations with the published ranks, and between our data sets.

    They are those of our mean ranks, of the ranks in each data set, and of all pairs of data sets.
    """
    theirs, ours = _published_ranks(), _our_ranks()
    by_data_set = [_spearman(theirs, our_ranks) for our_ranks in ours.T]
    among = [_spearman(ours[:, i], ours[:, j]) for i in range(count()) for j in range(i)]
    return _spearman(theirs, ours.mean(axis=1)), by_data_set, among


def order() -> str:
    """Compare the published ranking with ours, in sentences."""
    mean, by_data_set, among = correlations()
    return f"""\
Spearman's correlation of the methods' mean ranks, published and ours, is {mean:.2f}, and
{min(by_data_set):.2f} to {max(by_data_set):.2f} with one of our data sets at a time (mean \
{np.mean(by_data_set):.2f}). Two of our own data sets
have {np.mean(among):.2f} on average ({min(among):.2f} to {max(among):.2f}). So the published \
order {_verdict(mean, by_data_set, among)}.
{_waves()}"""


def _waves() -> str:
    """Describe the ranking with other true maps."""
    theirs, sentences = _published_ranks(), []
    for name in _WAVES:
        ours = _our_ranks(name)
        by_data_set = [_spearman(theirs, our_ranks) for our_ranks in ours.T]
        mean_ranks = dict(zip(_methods(), ours.mean(axis=1), strict=True))
        sentences.append(
            f"{_study(name)['wave']:g} (mean correlation {np.mean(by_data_set):.2f} of "
            f"{count(name)} data sets, {min(by_data_set):.2f} to {max(by_data_set):.2f}; mean "
            f"ranks of Dirichlet {mean_ranks[SECOND]:.1f}, forest {mean_ranks['forest']:.1f}, KNN "
            f"{mean_ranks['knn_euclidean']:.1f}, IOP {mean_ranks['order_preserving_full']:.1f})"
        )
    return (
        "Part of it is our map's wave of amplitude 0.15, which neither Dirichlet nor "
        "order-preserving maps can follow. With less of it Dirichlet calibration comes nearer to "
        f"its published place: for an amplitude of {' and '.join(sentences)}. That forest and KNN "
        "stand before IOP and decision calibration stays, whatever the wave, and is unexplained."
    )


def _verdict(mean: float, by_data_set: list[float], among: list[float]) -> str:
    """Decide whether another draw of our data could give the published ranking."""
    if np.mean(by_data_set) >= np.mean(among) - 2 * np.std(among, ddof=1):
        return "is one that another draw of data can give"
    return "is not one that another draw of our data gives"


def _advantage(first: str, second: str, key: str) -> tuple[float, float]:
    """Compute how much better the first method is on average, and the paired standard error."""
    sign = 1 if key == "accuracy" else -1
    pair = (_values_of(_OURS.get(m, m), key) for m in (first, second))
    differences = sign * np.subtract(*pair)
    return float(differences.mean()), _error(differences)


def _wins(first: str, second: str) -> tuple[int, int]:
    """Count metrics in which the first method is better and worse by two standard errors."""
    differences = [_advantage(first, second, key) for key in _metrics()]
    return sum(d > 2 * e for d, e in differences), sum(d < -2 * e for d, e in differences)


def findings() -> list[Finding]:
    """Collect the findings on table 1."""
    mean, by_data_set, among = correlations()
    others = [m for m in _methods() if m not in (BEST, NONE)]
    against = {m: _wins(BEST, m) for m in others}
    lost = {m: worse for m, (_, worse) in against.items() if worse}
    wins = sum(better for better, _ in against.values())
    improved = [_wins(m, NONE) for m in _methods() if m != NONE]
    total, theirs = 6 * len(others), _our_ranks().mean(axis=1)
    mean_ranks = {m: r for m, r in zip(_methods(), theirs, strict=True)}
    sorted_ranks = sorted(mean_ranks.values())
    neighbors = [1 + sorted_ranks.index(mean_ranks[m]) for m in ("knn_euclidean", "forest")]
    second = _wins(BEST, SECOND)
    correlated = [
        _spearman(a, b)
        for a, b in _pairs(
            [
                np.array([_values_of(_OURS.get(m, m), k).mean() for m in _methods()])
                * (-1 if k == "accuracy" else 1)
                for k in _metrics()
            ]
        )
    ]
    return [
        Finding(
            "table 1, order of 8 methods",
            "1 data set",
            f"rank correlation {mean:.2f}; {np.mean(by_data_set):.2f} by data set, "
            f"{np.mean(among):.2f} between ours",
            _verdict(mean, by_data_set, among),
        ),
        Finding(
            "claim: every method improves every metric, but accuracy is left as it is by some",
            "42 of 42 not worse",
            f"{sum(b for b, _ in improved)} of 42 better, {sum(w for _, w in improved)} worse, by "
            "two standard errors",
            "holds" if not sum(w for _, w in improved) else "holds in part",
        ),
        Finding(
            "claim: the kernel is best overall",
            "mean rank 1.5",
            f"mean rank {mean_ranks[BEST]:.1f}; {wins} of {total} comparisons won by two standard "
            f"errors, {sum(lost.values())} lost",
            "holds" if mean_ranks[BEST] == sorted_ranks[0] else "does not hold",
        ),
        Finding(
            "claim: Dirichlet calibration follows closely",
            "mean rank 2.0",
            f"mean rank {mean_ranks[SECOND]:.1f}, place "
            f"{1 + sorted_ranks.index(mean_ranks[SECOND])}; loses to the kernel in {second[0]} of "
            f"6 metrics, wins in {second[1]}",
            "holds" if sorted_ranks.index(mean_ranks[SECOND]) == 1 else "does not hold here",
        ),
        Finding(
            "claim: KNN and forest are average",
            "mean ranks 4.3 and 4.2",
            f"mean ranks {mean_ranks['knn_euclidean']:.1f} and {mean_ranks['forest']:.1f}, places "
            f"{neighbors[0]} and {neighbors[1]} of 8",
            "holds" if all(3 <= position <= 6 for position in neighbors) else "better here",
        ),
        Finding(
            "claim: metrics rank methods alike",
            "strong correlation",
            f"rank correlations of two metrics {min(correlated):.2f} to {max(correlated):.2f}, "
            f"mean {np.mean(correlated):.2f}",
            "holds" if np.mean(correlated) > 0.6 else "holds in part",
        ),
    ]


def _pairs(some: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(some[i], some[j]) for i in range(len(some)) for j in range(i)]
