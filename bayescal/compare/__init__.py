"""Comparison of methods over many data sets: ranks, tests of differences, and probabilities.

Functions take a table of scores with one row for each data set and one column for each method, or a
mapping from names to columns, and return NumPy arrays in float64. Columns whose entries have names,
such as the index of a pandas Series, are matched by name. Scores on one data set that are equal up
to rounding errors are ties in all tests.
"""

from bayescal.compare._bayes import (
    SignedRankMatrix,
    SignedRankPosterior,
    bayesian_signed_rank,
    bayesian_signed_rank_matrix,
)
from bayescal.compare._cliques import cliques
from bayescal.compare._ranks import Friedman, Nemenyi, average_ranks, friedman, nemenyi
from bayescal.compare._wilcoxon import Wilcoxon, wilcoxon
from bayescal.compare.comparison import Comparison, Improvement, compare

__all__ = [
    "Comparison",
    "Friedman",
    "Improvement",
    "Nemenyi",
    "SignedRankMatrix",
    "SignedRankPosterior",
    "Wilcoxon",
    "average_ranks",
    "bayesian_signed_rank",
    "bayesian_signed_rank_matrix",
    "cliques",
    "compare",
    "friedman",
    "nemenyi",
    "wilcoxon",
]


def __dir__() -> list[str]:
    return __all__
