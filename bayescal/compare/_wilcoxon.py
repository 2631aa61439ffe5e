"""Wilcoxon's signed-rank test of all pairs of methods, with Holm's correction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.numerics import holm
from bayescal.compare.table import Scores, Table, differences, read_table

#: Number of data sets up to which the null distribution is computed exactly.
EXACT = 100


class Wilcoxon(NamedTuple):
    """Result of Wilcoxon's signed-rank test of all pairs.

    Attributes
    ----------
    p_value : array of shape (k, k)
        Two-sided p-values, one on the diagonal.
    adjusted : array of shape (k, k)
        p-values after Holm's correction for all pairs: a pair differs at a level if its adjusted
        p-value is at most that level.
    better : array of shape (k, k)
        Sum of the ranks of the data sets on which the row's method is better than the column's,
        plus half of the ranks of zeros.
    """

    p_value: np.ndarray
    adjusted: np.ndarray
    better: np.ndarray


def wilcoxon(scores: Scores, *, lower_is_better: bool = True) -> Wilcoxon:
    r"""Test all pairs of methods by Wilcoxon's signed-rank test, with Holm's correction.

    For each pair, absolute differences are ranked over data sets; under the null hypothesis each
    has either sign with probability one half. Ties get their mean rank. Zeros are ranked with the
    rest and count on neither side (J. W. Pratt's method; splitting them between both sides gives
    the same p-values). Differences that are equal up to rounding errors of the scores are ties.

    Up to 100 data sets the p-value is exact given the ranks, with or without ties and zeros; for
    more it is the normal approximation with the exact variance and no continuity correction. If all
    differences are zero, or there is one data set, it is 1.

    Holm's correction sorts the m p-values and takes
    :math:`\tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1) p_{(j)})`.

    Parameters
    ----------
    scores : array of shape (n, k), or mapping from names to arrays of shape (n,)
        One row for each data set, one column for each method.
    lower_is_better : bool, default True
        Whether a lower score is better; the p-values do not depend on it.

    Returns
    -------
    Wilcoxon
        Matrices ``p_value``, ``adjusted`` and ``better``.

    Raises
    ------
    TypeError, ValueError
        If :func:`average_ranks` would raise, or for infinite scores.

    See Also
    --------
    bayesian_signed_rank_matrix : Probabilities instead of p-values.
    nemenyi : A test by average ranks.
    compare : All statistics of a table.

    References
    ----------
    F. Wilcoxon (1945), Individual comparisons by ranking methods. J. W. Pratt (1959), Remarks on
    zeros and ties in the Wilcoxon signed rank procedures. S. Holm (1979), A simple sequentially
    rejective multiple test procedure.

    Examples
    --------
    >>> scores = [[1, 2, 2.5], [1, 3, 2.6], [1, 4, 4.3], [1, 5, 4.8], [1, 6, 6.6], [1, 7, 7.7]]
    >>> result = wilcoxon(scores)
    >>> result.p_value[0]
    array([1.     , 0.03125, 0.03125])
    >>> result.adjusted[0]
    array([1.     , 0.09375, 0.09375])
    """
    return wilcoxon_of(read_table(scores, lower_is_better=lower_is_better))


def wilcoxon_of(table: Table) -> Wilcoxon:
    """Test all pairs of columns of a checked table, lower is better."""
    values = table.values
    k = values.shape[1]
    rows, columns = np.triu_indices(k, 1)
    p_value, adjusted = np.ones((k, k)), np.ones((k, k))
    better = np.zeros((k, k))
    for i, j in zip(rows, columns, strict=True):
        first, second, p = signed_rank_test(differences(values[:, j], values[:, i], table.eps))
        better[i, j], better[j, i] = first, second
        p_value[i, j] = p_value[j, i] = p
    adjusted[rows, columns] = adjusted[columns, rows] = holm(p_value[rows, columns])
    np.fill_diagonal(better, len(values) * (len(values) + 1) / 4)
    return Wilcoxon(p_value, adjusted, better)


def signed_rank_test(difference: np.ndarray) -> tuple[float, float, float]:
    """Compute the rank sums of positive and negative differences, and the two-sided p-value."""
    from scipy.special import ndtr
    from scipy.stats import rankdata

    ranks = rankdata(np.abs(difference))
    signs = difference < 0, difference == 0, difference > 0
    negative, zeros, positive = (float(ranks[sign].sum()) for sign in signs)
    signed = ranks[difference != 0]
    if len(signed) == 0:
        p = 1.0
    elif len(difference) <= EXACT:
        p = _exact(signed, min(positive, negative))
    else:
        centered = min(positive, negative) - signed.sum() / 2
        p = 2 * float(ndtr(2 * centered / np.sqrt(np.square(signed).sum())))
    return positive + zeros / 2, negative + zeros / 2, p


def _exact(ranks: np.ndarray, smaller: float) -> float:
    """Compute twice the probability that random signs of ranks sum to ``smaller`` or less."""
    doubled = np.rint(2 * ranks).astype(int)
    end = round(2 * smaller)
    chance = np.zeros(end + 1)
    chance[0] = 1.0
    for rank in doubled:
        with_rank = chance[: max(end + 1 - rank, 0)] / 2
        chance = chance / 2
        chance[len(chance) - len(with_rank) :] += with_rank
    return min(1.0, 2 * float(chance.sum()))
