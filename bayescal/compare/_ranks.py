"""Average ranks, and Friedman's test of whether they differ at all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal.compare.table import Scores, read_table


class Friedman(NamedTuple):
    """Result of Friedman's test and of its F version.

    Attributes
    ----------
    statistic : float
        Chi square with ``dof[0]`` degrees of freedom, corrected for ties.
    p_value : float
        p-value of the chi square.
    f_statistic : float
        Iman and Davenport's F with ``dof`` degrees of freedom; NaN for one data set.
    f_p_value : float
        p-value of F.
    dof : tuple of two int
        k - 1 and (k - 1)(n - 1) for k methods on n data sets.
    """

    statistic: float
    p_value: float
    f_statistic: float
    f_p_value: float
    dof: tuple[int, int]


def average_ranks(scores: Scores, *, lower_is_better: bool = True) -> np.ndarray:
    r"""Compute the mean ranks of methods over data sets; 1 is best, and ties get their mean rank.

    Scores on one data set that are equal up to rounding errors are ties.

    Parameters
    ----------
    scores : array of shape (n, k), or mapping from names to arrays of shape (n,)
        One row for each data set, one column for each method. Infinities are ranked.
    lower_is_better : bool, default True
        Whether a lower score is better.

    Returns
    -------
    array of shape (k,)
        Mean ranks; their sum is k(k + 1) / 2.

    Raises
    ------
    TypeError
        If scores are not numbers.
    ValueError
        If the table has the wrong shape or contains NaN; the message names the method and the data
        set.

    See Also
    --------
    friedman : Test whether the ranks differ.
    compare : All statistics of a table.

    References
    ----------
    J. Demšar (2006), Statistical comparisons of classifiers over multiple data sets.

    Examples
    --------
    >>> average_ranks([[0.3, 0.2, 0.4], [0.5, 0.1, 0.5]])
    array([2.25, 1.  , 2.75])
    """
    table = read_table(scores, lower_is_better=lower_is_better, finite=False)
    return ranks_of(table.values).mean(axis=0)


def friedman(scores: Scores, *, lower_is_better: bool = True) -> Friedman:
    r"""Test whether all methods have equal ranks (Friedman), also with Iman and Davenport's F.

    With mean ranks :math:`R_j` of k methods on n data sets,

    .. math::
        \chi^2 = \frac{12 n}{k(k+1)} \sum_j \Big(R_j - \frac{k+1}{2}\Big)^2 \Big/
                 \Big(1 - \frac{\sum_t (t^3 - t)}{n k (k^2 - 1)}\Big),
        \qquad F = \frac{(n-1) \chi^2}{n(k-1) - \chi^2},

    where t runs over the sizes of the groups of tied scores. Without ties the denominator is 1. F
    is less conservative. If all scores of every data set are equal, both statistics are 0 and both
    p-values 1. If all data sets agree, F is infinite. For one data set F is undefined: NaN. The chi
    square is an approximation that needs more than about ten data sets.

    Parameters
    ----------
    scores : array of shape (n, k), or mapping from names to arrays of shape (n,)
        One row for each data set, one column for each method. Infinities are ranked.
    lower_is_better : bool, default True
        Whether a lower score is better; the tests do not depend on it.

    Returns
    -------
    Friedman
        ``statistic``, ``p_value``, ``f_statistic``, ``f_p_value``, ``dof``.

    Raises
    ------
    TypeError, ValueError
        If :func:`average_ranks` would raise.

    See Also
    --------
    wilcoxon, nemenyi : Which pairs of methods differ.

    References
    ----------
    M. Friedman (1940), A comparison of alternative tests of significance for the problem of m
    rankings. R. L. Iman and J. M. Davenport (1980), Approximations of the critical region of the
    Friedman statistic.

    Examples
    --------
    >>> result = friedman([[1, 2, 3], [1, 2, 3], [2, 1, 3], [1, 3, 2]])
    >>> round(result.statistic, 3), round(result.p_value, 3)
    (4.5, 0.105)
    >>> round(result.f_statistic, 3), round(result.f_p_value, 3), result.dof
    (3.857, 0.084, (2, 6))
    """
    table = read_table(scores, lower_is_better=lower_is_better, finite=False)
    return friedman_of(ranks_of(table.values))


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Rank along rows, 1 for the least; ties get their mean rank."""
    from scipy.stats import rankdata

    return rankdata(values, axis=1)


def friedman_of(ranks: np.ndarray) -> Friedman:
    """Test a table of ranks (n, k)."""
    from scipy.special import chdtrc, fdtrc

    n, k = ranks.shape
    dof = (k - 1, (k - 1) * (n - 1))
    centred = ranks - (k + 1) / 2
    # Ranks are multiples of a half: sums of squares are exact, and 0 only if everything is tied.
    spread = np.square(centred).sum()
    if spread == 0:
        return Friedman(0.0, 1.0, *((0.0, 1.0) if n > 1 else (np.nan, np.nan)), dof)
    # The correction for ties divides by the variance of the ranks, which is this.
    between = np.square(centred.sum(axis=0)).sum()
    within = n * spread - between
    chi_square = float((k - 1) * between / spread)
    if n == 1:
        f_statistic, f_p_value = np.nan, np.nan
    elif within == 0:
        f_statistic, f_p_value = np.inf, 0.0
    else:
        f_statistic = float((n - 1) * between / within)
        f_p_value = float(fdtrc(*dof, f_statistic))
    return Friedman(chi_square, float(chdtrc(k - 1, chi_square)), f_statistic, f_p_value, dof)
