"""``compare``: all statistics of a table of scores in one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayescal._core.display.tables import TextTable
from bayescal._core.keywords import other_words
from bayescal._core.numerics import unit_of
from bayescal.compare._bayes import SignedRankMatrix, posterior_of
from bayescal.compare._cliques import cliques
from bayescal.compare._ranks import Friedman, Nemenyi, friedman_of, nemenyi_of, ranks_of
from bayescal.compare._wilcoxon import Wilcoxon, wilcoxon_of
from bayescal.compare.table import Scores, read_table
from bayescal.data.checks import check_choice, check_level

if TYPE_CHECKING:
    from rich.table import Table

TESTS = ("wilcoxon", "nemenyi")


class Improvement(NamedTuple):
    """Improvement of methods over a baseline.

    Attributes
    ----------
    mean, error : arrays of shape (k,)
        Mean over data sets, positive if the method is better, and its standard error, NaN for a
        single data set.
    wins : array of shape (k,)
        Proportion of data sets on which the method is better, with ties counting half.
    """

    mean: np.ndarray
    error: np.ndarray
    wins: np.ndarray


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """Statistics of k methods on n data sets, returned by :func:`compare`.

    Attributes
    ----------
    names : tuple of str
        Names of the methods, in the order of the table's columns and of all arrays.
    scores : array of shape (n, k)
        The table.
    ranks : array of shape (k,)
        Average ranks, 1 is best.
    friedman : Friedman
        Test of all methods.
    wilcoxon : Wilcoxon
        Tests of all pairs.
    nemenyi : Nemenyi
        Tests of all pairs by average ranks.
    bayesian : SignedRankMatrix
        Probabilities of all pairs.
    level : float
        Level of the tests.
    margin : float
        Largest difference of scores that is practically zero.
    lower_is_better : bool
        Whether a lower score is better.
    baseline : str or None
        The method to which ``improvement`` refers.
    """

    names: tuple[str, ...]
    scores: np.ndarray = field(repr=False)
    ranks: np.ndarray
    friedman: Friedman
    wilcoxon: Wilcoxon
    nemenyi: Nemenyi
    bayesian: SignedRankMatrix
    level: float
    margin: float
    lower_is_better: bool
    baseline: str | None = None

    @property
    def win_rates(self) -> np.ndarray:
        """Proportion of comparisons with other methods and data sets that a method wins, (k,)."""
        return (len(self.names) - self.ranks) / (len(self.names) - 1)

    @property
    def improvement(self) -> Improvement:
        """Improvement of the methods over the baseline.

        If the baseline is the uncalibrated classifier and scores are a proper loss, this is the
        post-hoc improvement.

        Raises
        ------
        AttributeError
            If there is no baseline.

        References
        ----------
        E. Berta, D. Holzmüller, F. Bach and M. I. Jordan (2026), CalArena: a large-scale post-hoc
        calibration benchmark.
        """
        if self.baseline is None:
            raise AttributeError("the improvement needs a baseline: compare(scores, baseline=name)")
        gaps = self.scores[:, [self.names.index(self.baseline)]] - self.scores
        gaps = gaps if self.lower_is_better else -gaps
        n, wins = len(gaps), (0.5 + 0.5 * np.sign(gaps)).mean(axis=0)
        # In units of the largest gap, squares neither overflow nor vanish.
        unit = np.array([unit_of(float(gap), 1e100) for gap in np.abs(gaps).max(axis=0)])
        scaled = gaps / unit
        error = scaled.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(wins), np.nan)
        return Improvement(scaled.mean(axis=0) * unit, error * unit, wins)

    def significant(self, test: str = "wilcoxon") -> np.ndarray:
        """Return which pairs (k, k) differ by "wilcoxon" (with Holm's correction) or "nemenyi"."""
        check_choice(test, "test", TESTS)
        if test == "nemenyi":
            return significant_gaps(self.ranks, self.nemenyi)
        return self.wilcoxon.adjusted <= self.level

    def cliques(self, test: str = "wilcoxon") -> list[tuple[str, ...]]:
        """Return the names of the groups of methods that do not differ; see :func:`cliques`."""
        groups = cliques(self.ranks, self.significant(test))
        return [tuple(self.names[i] for i in group) for group in groups]

    def table(self) -> Table:
        """Make a rich Table of the methods by rank, each compared with the best."""
        return self._lines().for_terminal()

    def _lines(self) -> TextTable:
        order = np.argsort(self.ranks, kind="stable")
        best = order[0]
        title = f"{len(self.names)} methods on {_count(len(self.scores), 'data set')}"
        heads = ["method", "rank", "win rate", "mean"]
        heads += ["improvement"] if self.baseline is not None else []
        heads += ["Wilcoxon-Holm", "Nemenyi", "better", "equal", "worse"]
        means = self.scores.mean(axis=0)
        rows = []
        for i in order.tolist():
            cells = [self.names[i], f"{self.ranks[i]:.2f}", f"{self.win_rates[i]:.2f}"]
            cells.append(f"{means[i]:.4g}")
            if self.baseline is not None:
                gain = self.improvement
                cells += [f"{gain.mean[i]:.2g} ± {gain.error[i]:.1g}"]
            if i == best:
                cells += ["–"] * 5
            else:
                corrected = self.wilcoxon.adjusted, self.nemenyi.p_value
                cells += [_p(float(p[i, best])) for p in corrected]
                cells += [f"{chance[i, best]:.2f}" for chance in self.bayesian[:3]]
            rows.append(cells)
        caption = (
            f"Each method against the first: p-values corrected for all pairs, and probabilities "
            f"to be better, equal within {self.margin:g}, and worse. "
            f"Friedman: chi square {self.friedman.statistic:.2f}, p {_p(self.friedman.p_value)}. "
            f"Critical difference at level {self.level:g}: "
            f"{self.nemenyi.critical_difference:.2f} (Nemenyi)."
        )
        return TextTable(title, heads, rows, caption)

    def __repr__(self) -> str:
        """Return the essentials in one line."""
        best = int(np.argmin(self.ranks))
        return (
            f"Comparison({len(self.names)} methods, {_count(len(self.scores), 'data set')}, "
            f"Friedman p {_p(self.friedman.p_value)}, "
            f"best {self.names[best]} with rank {self.ranks[best]:.2f})"
        )

    def _repr_html_(self) -> str:
        return self._lines().for_notebook()


@other_words
def compare(
    scores: Scores,
    *,
    names: Sequence[object] | None = None,
    level: float = 0.05,
    margin: float = 0.0,
    lower_is_better: bool = True,
    baseline: str | None = None,
    draws: int = 20_000,
    seed: int = 0,
) -> Comparison:
    """Compare methods over data sets: ranks, tests, and probabilities of being better.

    Use it for benchmarks with many data sets; it computes everything that a critical-difference
    diagram shows.

    Parameters
    ----------
    scores : array of shape (n, k), or mapping from names to arrays of shape (n,)
        One row for each data set, one column for each method.
    names : sequence of k names, optional
        Names of the methods, by default the mapping's keys or the data frame's columns, or
        "method 0" and so on.
    level : float, default 0.05
        Level of the tests.
    margin : float, default 0
        Largest difference, in the unit of the scores, that is practically zero; for the Bayesian
        test only.
    lower_is_better : bool, default True
        Whether a lower score is better.
    baseline : str, optional
        The method to which improvements refer, such as the uncalibrated classifier.
    draws : int, default 20000
        Number of Monte Carlo draws of the Bayesian test.
    seed : int, default 0
        Seed of these draws.

    Returns
    -------
    Comparison
        Its attributes are ``ranks``, ``friedman``, ``wilcoxon``, ``nemenyi``, ``bayesian``,
        ``win_rates`` and, with a baseline, ``improvement``; its methods ``significant(test)``,
        ``cliques(test)``, and ``table()`` to print.

    Raises
    ------
    TypeError, ValueError
        If :func:`wilcoxon` would raise, if there are too few or too many names or duplicates, or if
        ``level``, ``margin`` or ``draws`` is out of range.

    See Also
    --------
    bayescal.plots.critical_difference : A diagram of the result.
    wilcoxon, nemenyi, friedman, bayesian_signed_rank_matrix : The tests one by one.

    References
    ----------
    J. Demšar (2006), Statistical comparisons of classifiers over multiple data sets. A. Benavoli,
    G. Corani and F. Mangili (2016), Should we really use post-hoc tests based on mean-ranks?

    Examples
    --------
    >>> loss = {"raw": [3.1, 4.2, 2.9, 5.5, 4.0, 3.7], "beta": [2.8, 4.0, 2.5, 5.1, 3.8, 3.6]}
    >>> result = compare(loss)
    >>> result
    Comparison(2 methods, 6 data sets, Friedman p 0.014, best beta with rank 1.00)
    >>> result.cliques()
    []
    >>> compare(loss, baseline="raw").improvement.mean.round(3).tolist()
    [0.0, 0.267]
    >>> result.table().row_count
    2
    """
    level = check_level(level)
    table = read_table(scores, names, lower_is_better=lower_is_better)
    if baseline is not None:
        check_choice(baseline, "baseline", table.names)
    ranks = ranks_of(table.values)
    return Comparison(
        names=table.names,
        scores=table.values if lower_is_better else -table.values,
        ranks=ranks.mean(axis=0),
        friedman=friedman_of(ranks),
        wilcoxon=wilcoxon_of(table),
        nemenyi=nemenyi_of(ranks, level),
        bayesian=posterior_of(table, margin, 0.5, draws, seed),
        level=level,
        margin=float(margin),
        lower_is_better=lower_is_better,
        baseline=baseline,
    )


def significant_gaps(ranks: np.ndarray, result: Nemenyi) -> np.ndarray:
    """Return which pairs (k, k) are at least a critical difference apart."""
    gaps = np.abs(ranks[:, None] - ranks[None, :])
    return gaps >= result.critical_difference


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"
