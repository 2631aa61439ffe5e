"""Uncertainty of metrics: replicates of a bootstrap, intervals, and differences of two models."""

from __future__ import annotations

from typing import Literal

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_choice, check_count, check_level
from bayescal.data.predictions import Classes, Inputs, Reading
from bayescal.metrics.uncertainty.groups import MANY, equal_rows_once, group_sums
from bayescal.metrics.uncertainty.measured import Interval, prepare
from bayescal.metrics.uncertainty.measured_blocks import measure_each
from bayescal.metrics.uncertainty.ranking import compare
from bayescal.metrics.uncertainty.replicates import replicate


@other_words
@ignoring_underflow
def bootstrap(
    metric: str,
    probs: ArrayLike,
    y: ArrayLike,
    *,
    replicates: int = 1000,
    seed: int = 0,
    weights: ArrayLike | None = None,
    groups: object = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    **options: object,
) -> np.ndarray:
    """Compute a metric on bootstrap resamples of the cases.

    Parameters
    ----------
    metric : str
        Name of a metric of this module: ``"ece"``.
    probs, y : arrays
        As the metric takes them.
    replicates : int
    seed : int
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind: rows with equal labels are dependent, as the days
        of one patient, and rows with different labels are not. Whole clusters are drawn then.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    **options
        Of the metric.

    Returns
    -------
    array of shape (replicates,)

    Raises
    ------
    TypeError, ValueError
        As the metric, for unknown metrics, and for those that are not one number of probabilities
        and labels.

    Notes
    -----
    Weights that are drawn multiply what cases add to sums, so that nothing of a case is computed
    twice. Time O(replicates n) for most metrics, with a factor k for those of all classes, and
    O(replicates n^2) for "skce"; in blocks of 32 MiB, of "skce" 128 MiB.

    Of 100,000 rows or more groups are drawn instead, except for "skce" and "canonical_ece": each
    case is in one of up to 1,024 groups, by a hash of its running number, and one pass over the
    data has their sums. Standard deviations have 2 % more error by that, those of errors by kernels
    with fewer groups (128 and 64) up to 9 %. Bins of equal mass are then cut from 32 cells for
    each. Whole weights are spread over groups case by case, from 17 on such that variances are the
    same.

    References
    ----------
    B. Efron (1979), Bootstrap methods: another look at the jackknife.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> values = bootstrap("brier_score", p, y, replicates=200)
    >>> values.shape, bool(0.25 < values.mean() < 0.4)
    ((200,), True)
    """
    replicates = check_count(replicates, "replicates")
    reading = Reading(classes, inputs)
    data, metric_object = prepare(metric, probs, y, weights, options, reading, groups)
    data = equal_rows_once(data)
    sums = group_sums(metric_object, data, seed) if len(data.y) >= MANY else None
    if sums is not None:
        return sums.replicates(replicates)
    return replicate(metric_object, data, replicates, seed)


@other_words
@ignoring_underflow
def interval(
    metric: str,
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    level: float = 0.9,
    method: Literal["auto", "analytic", "bootstrap"] = "auto",
    replicates: int = 1000,
    seed: int = 0,
    weights: ArrayLike | None = None,
    groups: UserData = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    **options: object,
) -> Interval:
    r"""Compute a metric with a confidence interval.

    Parameters
    ----------
    metric : str
        Name of a metric of this module: ``"brier_score"``.
    probs, y : arrays, or Blocks for probs
        As the metric takes them.
    level : float
        Nominal coverage of the interval, in (0, 1).
    method : {"auto", "analytic", "bootstrap"}
        Which standard error: that of the delta method, or the deviation of a bootstrap.
        By default analytic for means over cases: log loss, Brier score, accuracy, Hamming loss.
    replicates, seed : int
        Number of bootstrap resamples, and their seed.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind: rows with equal labels are dependent, as the days
        of one patient, and rows with different labels are not. Whole clusters are drawn then.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    **options
        Of the metric.

    Returns
    -------
    Interval

    Raises
    ------
    TypeError, ValueError
        As the metric, and if it has no analytic interval.

    Notes
    -----
    A mean over cases with the value e, standard error s and skewness :math:`\kappa` has what
    Student's interval :math:`e \mp s x`, x with n - 1 degrees of freedom, and that of Hall's
    transformation together hold, which has
    :math:`3 (\sqrt[3]{1 + \kappa (x - \kappa / 6)} - 1) / \kappa` instead of x: alone one is too
    short where cases are skewed, and the other where they are not. An accuracy has Wilson's.

    Errors that cannot be negative are raised by chance. Labels drawn from the predictions have
    errors of root mean square b, here times the root of the sum of squares of labels less
    predictions over what the latter expect. With
    :math:`g(e) = (\max(e, b)^{5/2} - b^{5/2})^{2/5}` the estimate is g(e), and its interval
    :math:`g(\max(e, b) \mp t s)`. Of "debiased_ece" with norm 2 e is the mean square before its
    root is taken, and g the root, or 0 where there is none.

    Its upper end also inverts a test, since the variance of the square grows with the error.

    Intervals end where the metric does, at 0 and 1 for most. Fewer than ten cases tell nothing:
    their intervals are the whole range. Of 90 % intervals, simulated for 12 metrics, 81 % or more
    cover the true value with ten cases, and 85 % or more with 30 or 100, of errors mostly more
    (``benchmarks/bench_intervals.py``). Where one case in twenty is of class 1, intervals of log
    loss and Brier score cover 81 % with 50 cases, and 97 % with 500. Of "debiased_ece" about 90 %
    or more cover with 10 to 500 cases, of predictions in tenths, of one value, of three, or of any.
    To ask whether an error is zero use :func:`consistency_test`.

    Of 100,000 rows or more the bootstrap draws groups of cases (see :func:`bootstrap`), with as
    many degrees of freedom, and what chance does is found from residuals whose signs are drawn by
    group. At 20,000 cases these intervals are as wide as those by cases, and cover alike
    (``benchmarks/bench_groups.py``).

    With ``groups`` standard errors are of sums by cluster, whole clusters are resampled, what
    chance does is found from residuals of clusters with random signs, and degrees of freedom are
    those of clusters, of which ten are needed. An accuracy has the interval of as many independent
    rows as its standard error is worth. Rows that are equal within all clusters give the interval
    of these rows once. Time O(n) for means and O(replicates n) for errors, as without groups; sums
    by cluster take O(clusters) memory for means, and of errors at most 32 MiB. Simulated with 1 to
    50 rows in a cluster and correlations of 0, 0.5 and 1, also of tied predictions and rare events,
    85 % or more of 90 % intervals cover the true value with 30 or 200 clusters, of errors more;
    with ten clusters 84 % or more, but of rare events that are correlated within clusters as few as
    64 % of a log loss and 77 % of an accuracy.
    "debiased_ece", "skce" and "canonical_ece" take rows as independent, and are refused.

    References
    ----------
    P. Hall (1992), On the removal of skewness by transformation. E. B. Wilson (1927), Probable
    inference, the law of succession, and statistical inference.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> result = interval("brier_score", p, y)
    >>> round(result.value, 3), bool(result.lower < result.value < result.upper)
    (0.34, True)
    """
    level = check_level(level)
    check_choice(method, "method", ("auto", "analytic", "bootstrap"))
    reading = Reading(classes, inputs)
    (measured,) = measure_each(
        metric, [probs], y, weights, options, replicates, seed, reading, groups
    )
    return measured.interval(level, method)


@other_words
@ignoring_underflow
def difference(
    metric: str,
    first: ArrayLike | Blocks,
    second: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    level: float = 0.9,
    replicates: int = 1000,
    seed: int = 0,
    weights: ArrayLike | None = None,
    groups: UserData = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    **options: object,
) -> Interval:
    r"""Compute the difference of a metric between two models on the same cases: first minus second.

    Parameters
    ----------
    metric : str
        Name of a metric of this module: ``"log_loss"``.
    first, second : arrays, or Blocks
        Probabilities of the two models, as for the metric. Blocks must contain the same cases,
        split in the same way.
    y : array
        Labels, as for the metric.
    level : float
        Nominal coverage of the interval, in (0, 1).
    replicates, seed : int
        Number of bootstrap resamples, which draw the same cases for both models, and their seed.
        Means over cases need no bootstrap.
    weights : array of shape (n,), optional
        Non-negative case weights. Whole ones are counts, the same as repeating cases.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind: rows with equal labels are dependent, as the days
        of one patient, and rows with different labels are not. Whole clusters are drawn then.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    **options
        Of the metric.

    Returns
    -------
    Interval
        With a two-sided ``p_value``.

    Raises
    ------
    TypeError, ValueError
        As the metric.

    Notes
    -----
    Means over cases have the interval of :func:`interval`, analytic. Of errors it goes from the
    least to the largest :math:`g_1(e_1) - g_2(e_2)` for e in the ellipse of radius t of the
    replicates' covariance. The p-value is that of the interval that ends at zero. Simulated, 76 %
    or more of 90 % intervals cover the true difference with 30 or 100 cases (70 % with ten), and
    8 % or fewer of true nulls have a p-value of 0.05 or less, of calibration errors in bins nearly
    none. With ``groups`` both are by cluster, as in :func:`interval`: simulated alike,
    with 10, 30 and 200 clusters, 4 to 5 % of true nulls of means have a p-value of 0.05 or less,
    and 1 % of those of errors.

    Examples
    --------
    >>> import numpy as np
    >>> sharp, flat = np.repeat([0.05, 0.95], 50), np.full(100, 0.5)
    >>> result = difference("log_loss", sharp, flat, np.repeat([0, 1], 50))
    >>> round(result.value, 3), result.p_value < 0.001
    (-0.642, True)
    """
    level = check_level(level)
    models, reading = (first, second), Reading(classes, inputs)
    ours, theirs = measure_each(
        metric, models, y, weights, options, replicates, seed, reading, groups
    )
    return compare(ours, theirs, level)
