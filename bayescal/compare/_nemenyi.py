"""Nemenyi's test: all pairs of methods by the difference of their average ranks."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bayescal.compare._ranks import ranks_of
from bayescal.compare.table import Scores, read_table
from bayescal.data.checks import check_level


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
