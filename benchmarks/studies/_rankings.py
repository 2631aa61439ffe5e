"""Average ranks of methods over data sets, and tests of their differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bayescal.compare import average_ranks, cliques, friedman, wilcoxon

#: Level of the tests.
LEVEL = 0.05


class Ranking(NamedTuple):
    """Ranks of methods by a metric, and tests of their differences.

    Attributes
    ----------
    methods : tuple of str
        Best rank first.
    ranks : array of shape (k,)
    adjusted : array of shape (k, k)
        p-values of Wilcoxon's test for each pair, with Holm's correction.
    statistic, p_value : float
        Friedman's chi square.
    """

    methods: tuple[str, ...]
    ranks: np.ndarray
    adjusted: np.ndarray
    statistic: float
    p_value: float

    def rank(self, method: str) -> float:
        """Return the average rank of a method."""
        return float(self.ranks[self.methods.index(method)])

    def p(self, first: str, second: str) -> float:
        """Return the corrected p-value of a pair."""
        return float(self.adjusted[self.methods.index(first), self.methods.index(second)])

    def beats(self, first: str, second: str) -> bool:
        """Check whether the first method ranks significantly before the second."""
        return self.rank(first) < self.rank(second) and self.p(first, second) <= LEVEL

    def summary(self) -> dict[str, Any]:
        """Return JSON-compatible values, without the pairs, which have a separate file."""
        groups = cliques(self.ranks, self.adjusted <= LEVEL)
        return {
            "ranks": dict(zip(self.methods, self.ranks.tolist(), strict=True)),
            "friedman": {"statistic": self.statistic, "p_value": self.p_value},
            "groups": [[self.methods[i] for i in group] for group in groups],
        }


def ranking(table: Mapping[str, np.ndarray]) -> Ranking:
    """Rank two or more methods by their values (data sets,); lower values are better."""
    overall, pairs = friedman(table), wilcoxon(table)
    ranks = average_ranks(table)
    order = np.argsort(ranks, kind="stable")
    names = list(table)
    return Ranking(
        tuple(names[i] for i in order),
        ranks[order],
        pairs.adjusted[np.ix_(order, order)],
        overall.statistic,
        overall.p_value,
    )
