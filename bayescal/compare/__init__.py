"""Comparison of methods over many data sets: ranks, tests of differences, and probabilities.

Functions take a table of scores with one row for each data set and one column for each method, or a
mapping from names to columns, and return NumPy arrays in float64. Columns whose entries have names,
such as the index of a pandas Series, are matched by name. Scores on one data set that are equal up
to rounding errors are ties in all tests.
"""

from bayescal.compare._bayes import SignedRankMatrix as SignedRankMatrix
from bayescal.compare._bayes import SignedRankPosterior as SignedRankPosterior
from bayescal.compare._bayes import bayesian_signed_rank as bayesian_signed_rank
from bayescal.compare._bayes import bayesian_signed_rank_matrix as bayesian_signed_rank_matrix
from bayescal.compare._cliques import cliques as cliques
from bayescal.compare._nemenyi import Nemenyi as Nemenyi
from bayescal.compare._nemenyi import nemenyi as nemenyi
from bayescal.compare._ranks import Friedman as Friedman
from bayescal.compare._ranks import average_ranks as average_ranks
from bayescal.compare._ranks import friedman as friedman
from bayescal.compare._wilcoxon import Wilcoxon as Wilcoxon
from bayescal.compare._wilcoxon import wilcoxon as wilcoxon
from bayescal.compare.comparison import Comparison as Comparison
from bayescal.compare.comparison import Improvement as Improvement
from bayescal.compare.comparison import compare as compare
