"""Compare methods over many data sets: ranks, tests of their differences, and probabilities.

Every function takes a table of scores, one row for each data set and one column for each method,
or a mapping from names to columns; computes in float64 with NumPy; and returns plain arrays.
"""

from bayescal.compare._bayes import (
    SignedRankMatrix,
    SignedRankPosterior,
    bayesian_signed_rank,
    bayesian_signed_rank_matrix,
)
from bayescal.compare._cliques import cliques
from bayescal.compare._nemenyi import Nemenyi, nemenyi
from bayescal.compare._ranks import Friedman, average_ranks, friedman
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
