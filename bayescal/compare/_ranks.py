"""Average ranks, and the tests of Friedman and Nemenyi of whether they differ."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bayescal.compare.table import Scores, read_table
from bayescal.data.checks import check_level


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
    centered = ranks - (k + 1) / 2
    # Ranks are multiples of a half: sums of squares are exact, and 0 only if everything is tied.
    spread = np.square(centered).sum()
    if spread == 0:
        return Friedman(0.0, 1.0, *((0.0, 1.0) if n > 1 else (np.nan, np.nan)), dof)
    # The correction for ties divides by the variance of the ranks, which is this.
    between = np.square(centered.sum(axis=0)).sum()
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


class Nemenyi(NamedTuple):
    """Result of Nemenyi's test of all pairs.

    Attributes
    ----------
    critical_difference : float
        Average ranks differ at the requested level if they are at least this far apart.
    p_value : array of shape (k, k)
        p-values corrected for all pairs, one on the diagonal.
    """

    critical_difference: float
    p_value: np.ndarray


def nemenyi(scores: Scores, level: float = 0.05, *, lower_is_better: bool = True) -> Nemenyi:
    r"""Test all pairs of methods by the difference of their average ranks (Nemenyi).

    .. math:: \mathrm{CD} = \frac{q_\alpha}{\sqrt 2} \sqrt{\frac{k(k+1)}{6n}},

    where :math:`q_\alpha` is the upper quantile of the range of k independent standard normal
    variables. Ties are not corrected for, which makes the test conservative. The result for two
    methods depends on all methods; :func:`wilcoxon` considers every pair separately.

    Parameters
    ----------
    scores : array of shape (n, k), or mapping from names to arrays of shape (n,)
        One row for each data set, one column for each method. Infinities are ranked as such.
    level : float, default 0.05
        Probability of any false alarm among all pairs.
    lower_is_better : bool, default True
        Whether a lower score is better; the test does not depend on it.

    Returns
    -------
    Nemenyi
        ``critical_difference`` and the matrix ``p_value``.

    Raises
    ------
    TypeError, ValueError
        If :func:`average_ranks` would raise, or ``level`` is not strictly between 0 and 1.

    See Also
    --------
    wilcoxon : Signed-rank tests of all pairs, usually more powerful.
    friedman : One test of all methods.

    References
    ----------
    P. B. Nemenyi (1963), Distribution-free multiple comparisons.

    Examples
    --------
    >>> result = nemenyi([[1, 2, 3], [1, 2, 3], [2, 1, 3], [1, 3, 2]])
    >>> round(result.critical_difference, 3)
    1.657
    >>> result.p_value.round(3)[0]
    array([1.   , 0.539, 0.086])
    """
    level = check_level(level)
    table = read_table(scores, lower_is_better=lower_is_better, finite=False)
    return nemenyi_of(ranks_of(table.values), level)


def nemenyi_of(ranks: np.ndarray, level: float) -> Nemenyi:
    """Test a table of ranks (n, k)."""
    from scipy.stats import studentized_range

    n, k = ranks.shape
    unit = math.sqrt(k * (k + 1) / (12 * n))
    means = ranks.mean(axis=0)
    gaps, index = np.unique(np.abs(means[:, None] - means[None, :]), return_inverse=True)
    p_value = np.clip(studentized_range.sf(gaps / unit, k, np.inf), 0, 1)
    critical = float(studentized_range.isf(level, k, np.inf)) * unit
    return Nemenyi(critical, p_value[index].reshape(k, k))
