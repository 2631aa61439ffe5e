"""Check the conclusions of the thesis against the figures of the synthetic study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.figures import p_text
from benchmarks.studies._rankings import Ranking
from benchmarks.studies._synthetic_cells import INFORMED, TEN, UNINFORMED

_TITLES = {"log_loss": "log loss", "ece": "ECE"}
_BOTH = tuple(_TITLES)
#: Differences of mean log loss up to this many nats count as equal.
_CLOSE = 1e-3


class MethodResults(NamedTuple):
    """Results of the ten methods in one configuration by one metric, to check a claim on."""

    ranking: Ranking
    means: Mapping[str, float]


#: Checks a claim on results: returns whether it holds, and the figures as text.
Check = Callable[[MethodResults], tuple[bool, str]]


class Claim(NamedTuple):
    """A conclusion of the thesis.

    Attributes
    ----------
    words : str
        The conclusion, paraphrased.
    where : tuple of str
        Configurations in which it is checked.
    metrics : tuple of str
        Metrics by which it is checked.
    check : callable
    """

    words: str
    where: tuple[str, ...]
    metrics: tuple[str, ...]
    check: Check


def _best_of(method: str, among: Sequence[str], significant: bool = False) -> Check:
    """Claim that a method ranks before others; optionally, significantly before each of them."""

    def check(results: MethodResults) -> tuple[bool, str]:
        ranking = results.ranking
        others = [other for other in among if other != method]
        rival = min(others, key=ranking.rank)
        ahead = ranking.rank(method) < ranking.rank(rival)
        figures = (
            f"{method} {ranking.rank(method):.2f}, {rival} {ranking.rank(rival):.2f}, "
            f"{p_text(ranking.p(method, rival))}"
        )
        if significant:
            ahead = all(ranking.beats(method, other) for other in others)
        return ahead, figures

    return check


def _informed_first(results: MethodResults) -> tuple[bool, str]:
    """Claim that each method that knows the prior significantly beats each one that does not."""
    ranking = results.ranking
    last, best = max(INFORMED, key=ranking.rank), min(UNINFORMED, key=ranking.rank)
    holds = all(ranking.beats(one, other) for one in INFORMED for other in UNINFORMED)
    return holds, (
        f"{last} {ranking.rank(last):.2f}, {best} {ranking.rank(best):.2f}, "
        f"{p_text(ranking.p(last, best))}"
    )


def _last(method: str) -> Check:
    """Claim that a method has the worst rank of the methods that do not know the prior."""

    def check(results: MethodResults) -> tuple[bool, str]:
        worst = max(UNINFORMED, key=results.ranking.rank)
        ranks = sorted((results.ranking.rank(m), m) for m in UNINFORMED)
        number = 1 + [m for _, m in ranks].index(method)
        figures = f"{method} is number {number} of 7, {worst} the last"
        return worst == method, figures

    return check


def _lowest_mean(method: str) -> Check:
    """Claim that a method has the lowest mean of the methods that do not know the prior."""

    def check(results: MethodResults) -> tuple[bool, str]:
        best = min(UNINFORMED, key=lambda m: results.means[m])
        figures = f"{method} {results.means[method]:.4f}, {best} {results.means[best]:.4f}"
        return best == method, figures

    return check


def _highest_mean(method: str) -> Check:
    """Claim that a method has the highest mean of the ten methods."""

    def check(results: MethodResults) -> tuple[bool, str]:
        worst = max(TEN, key=lambda m: results.means[m])
        figures = f"{method} {results.means[method]:.4f}, {worst} {results.means[worst]:.4f}"
        return worst == method, figures

    return check


def _close(results: MethodResults) -> tuple[bool, str]:
    """Claim that "coeffs" and "preds" have nearly equal means."""
    gap = results.means["coeffs"] - results.means["preds"]
    return abs(gap) <= _CLOSE, f"{gap:+.5f}"


def _imbalanced(results: MethodResults) -> tuple[bool, str]:
    """Claim that both methods with soft targets beat both penalties and the Cauchy prior."""
    ranking = results.ranking
    others = "L1", "L2", "cauchy_map"
    holds = all(ranking.beats(one, other) for one in ("platt", "ibls") for other in others)
    figures = ", ".join(f"{m} {ranking.rank(m):.2f}" for m in ("platt", "ibls", *others))
    return holds, figures


_Q1 = tuple(f"1{letter}" for letter in "abcde")
_ALL = (*_Q1, *(f"{q}{letter}" for q in (2, 3) for letter in "abcdef"))
_UNDER_500 = "2a", "2b", "2d", "2e"
_BY_LOSS = ("log_loss",)
CLAIMS = (
    Claim("preds ranks first, before every other", _Q1, _BOTH, _best_of("preds", TEN, True)),
    Claim("preds, coeffs and map beat all uninformed methods", _ALL, _BOTH, _informed_first),
    Claim("coeffs loses at most 0.001 to preds", _ALL, _BY_LOSS, _close),
    Claim("ibls beats platt", _ALL, _BOTH, _best_of("ibls", ("platt",), True)),
    Claim("ibls has the lowest mean of the uninformed", _Q1, _BY_LOSS, _lowest_mean("ibls")),
    Claim("cauchy_map has the highest mean", _Q1[:4], _BY_LOSS, _highest_mean("cauchy_map")),
    *(
        Claim(f"{method} is the best uninformed {which}", where, by, _best_of(method, UNINFORMED))
        for method, which, where, by in (
            ("smoothed", "in 1a", ("1a",), _BY_LOSS),
            ("normal", "in 1c", ("1c",), _BY_LOSS),
            ("ibls", "below 500 rows", _UNDER_500, _BOTH),
            ("normal", "at 500 rows", ("2c", "2f"), _BOTH),
        )
    ),
    Claim("normal is the worst uninformed in 1d and 1e", ("1d", "1e"), _BY_LOSS, _last("normal")),
    Claim(
        "platt and ibls beat L1, L2 and cauchy_map at 90 % of class 1",
        ("3c", "3f"),
        _BY_LOSS,
        _imbalanced,
    ),
)


def conclude(facts: Mapping[str, Any], rankings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Check all claims: return where each holds, and the figures that decide it.

    A claim is omitted if none of its configurations has results for all ten methods.
    """
    conclusions = []
    for claim in CLAIMS:
        checks = []
        for name in claim.where:
            for metric in claim.metrics:
                ranking = rankings.get(name, {}).get(metric, {}).get("ten")
                if ranking is None or set(ranking.methods) != set(TEN):
                    continue
                means = {m: facts[name]["metrics"][metric][m]["mean"] for m in TEN}
                holds, figures = claim.check(MethodResults(ranking, means))
                where = f"{name} {_TITLES[metric]}" if len(claim.metrics) > 1 else name
                checks.append({"where": where, "holds": holds, "figures": figures})
        if checks:
            count = sum(check["holds"] for check in checks)
            verdict = "holds" if count == len(checks) else "fails" if count == 0 else "in part"
            conclusions.append(
                {
                    "claim": claim.words,
                    "verdict": verdict,
                    "holds_in": count,
                    "of": len(checks),
                    "checks": checks,
                }
            )
    return conclusions
