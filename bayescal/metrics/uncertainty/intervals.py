"""Uncertainty of metrics: bootstrap replicates, intervals, and differences of two models."""

from __future__ import annotations

from typing import Literal

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_choice, check_count, check_level
from bayescal.data.predictions import Classes, Inputs, Reading
from bayescal.metrics.registry import reading_for
from bayescal.metrics.uncertainty.groups import MANY, equal_rows_once, group_sums
from bayescal.metrics.uncertainty.measured import Interval, prepare
from bayescal.metrics.uncertainty.measured_blocks import measure_models
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
    """Compute a metric on bootstrap resamples of the rows.

    Parameters
    ----------
    metric : str
        Name of a metric of this module, such as ``"ece"``.
    probs, y : arrays
        Inputs of the metric.
    replicates : int
    seed : int
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows.
    groups : array of shape (n,), optional
        Cluster label of each row, of any hashable kind. Rows of one cluster may be dependent, such
        as several days of one patient. Whole clusters are resampled.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    **options
        Options of the metric.

    Returns
    -------
    array of shape (replicates,)

    Raises
    ------
    TypeError, ValueError
        If the metric would raise, for unknown metrics, for scores of a ranking, and for metrics
        that do not compute one number from probabilities and labels.

    Notes
    -----
    Resampling multiplies the terms of rows in sums by random weights, so the terms are computed
    once. Time O(replicates n) for most metrics, times k for metrics of all classes, and
    O(replicates n^2) for "skce"; in blocks of 32 MiB, or 128 MiB for "skce".

    With 100,000 rows or more, groups are resampled instead, except for "skce" and "canonical_ece".
    A hash of its number assigns each row to one of up to 1,024 groups, and one pass over the data
    computes the sums of groups. This adds an error of 2 % to standard deviations, and up to 9 % for
    kernel errors, which have fewer groups (128 and 64). Bins of equal mass are then cut from 32
    cells each. Integer weights up to 16 are divided among groups one by one, and larger ones in
    parts that leave variances unchanged.

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
        Name of a metric of this module, such as ``"brier_score"``.
    probs, y : arrays, or Blocks for probs
        Inputs of the metric.
    level : float
        Nominal coverage of the interval, in (0, 1).
    method : {"auto", "analytic", "bootstrap"}
        Standard error by the delta method, or by the bootstrap. By default "analytic" for means
        over rows: log loss, Brier score, accuracy, Hamming loss.
    replicates, seed : int
        Number of bootstrap resamples, and their seed.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows.
    groups : array of shape (n,), optional
        Cluster label of each row, of any hashable kind. Rows of one cluster may be dependent, such
        as several days of one patient. Whole clusters are resampled.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    **options
        Options of the metric.

    Returns
    -------
    Interval

    Raises
    ------
    TypeError, ValueError
        If the metric would raise, and if it has no analytic interval.

    Notes
    -----
    Let e be a mean over rows with standard error s and skewness :math:`\kappa`, and x a quantile of
    Student's t distribution with n - 1 degrees of freedom. The interval is the union of Student's,
    :math:`e \mp s x`, and that of Hall's transformation, which replaces x by
    :math:`3 (\sqrt[3]{1 + \kappa (x - \kappa / 6)} - 1) / \kappa`. The former is too short for
    skewed rows, and the latter for symmetric ones. An accuracy has Wilson's interval. If all rows
    have the same loss e, as where no event happened, and any labels would give rows losses in
    [a, b], the interval extends from :math:`e + (a - e) r` to :math:`e + (b - e) r` with
    :math:`r = 1 - ((1 - \text{level}) / 2)^{1 / n}`.

    Chance inflates errors that cannot be negative. Let b be the root mean square error of labels
    drawn from the predictions, times the root of the ratio of the sum of squared residuals to its
    expectation, or one if that is less. With
    :math:`g(e) = (\max(e, b)^{5/2} - b^{5/2})^{2/5}`, the estimate is g(e), and its interval
    :math:`g(\max(e, b) \mp t s)`. For "debiased_ece" with norm 2, e is the mean
    square, g is its root, or 0 if e is negative, and the upper end also inverts a test, since the
    variance of the square grows with the error.

    Intervals are clipped to the range of the metric, [0, 1] for most. With fewer than ten rows they
    are the whole range, except those of an accuracy. In simulations, 90 % intervals cover the true
    value in 81 % or more with ten rows, and in 85 % or more with 30 or 100; the explanation "How
    far to trust intervals and tests of metrics" has the details, also for rare events and clusters.
    Use :func:`consistency_test` to test whether an error is zero.

    Weights that are not all integers count as :math:`n = (\sum_i w_i)^2 / \sum_i w_i^2` rows of
    equal weight, in degrees of freedom and in the number ten.

    With 100,000 rows or more, the bootstrap draws groups of rows (see :func:`bootstrap`), whose
    number gives the degrees of freedom, and the effect of chance is estimated from residuals with a
    random sign for each group.

    With ``groups``, standard errors are of sums by cluster, whole clusters are resampled, and the
    effect of chance is estimated from residuals of clusters with random signs. The degrees of
    freedom are :math:`(\sum_c m_c)^2 / \sum_c m_c^2 - 1` for clusters with total weights
    :math:`m_c`; with fewer than ten clusters, intervals are the whole range. An accuracy has the
    interval of as many independent rows as its standard error is worth. If rows are equal within
    all clusters, one row of each counts. Time O(n) for means and O(replicates n) for errors, as
    without groups; sums by cluster take O(clusters) memory for means, and at most 32 MiB for
    errors. "debiased_ece", "skce" and "canonical_ece" assume independent rows, and raise an error
    with groups.

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
    reading = reading_for((metric, options), Reading(classes, inputs))
    how = {"": (metric, options)}, y, weights, replicates, seed, reading, groups
    (model,) = measure_models([(None, probs)], *how)
    return model.metrics[""].interval(level, method)


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
    r"""Compute the difference of a metric between two models on the same rows: first minus second.

    Parameters
    ----------
    metric : str
        Name of a metric of this module, such as ``"log_loss"``.
    first, second : arrays, or Blocks
        Probabilities of the two models, as for the metric. Blocks must contain the same rows,
        split in the same way.
    y : array
        Labels, as for the metric.
    level : float
        Nominal coverage of the interval, in (0, 1).
    replicates, seed : int
        Number of bootstrap resamples, which draw the same rows for both models, and their seed.
        Means over rows need no bootstrap.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows.
    groups : array of shape (n,), optional
        Cluster label of each row, of any hashable kind. Rows of one cluster may be dependent, such
        as several days of one patient. Whole clusters are resampled.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    **options
        Options of the metric.

    Returns
    -------
    Interval
        With a two-sided ``p_value``.

    Raises
    ------
    TypeError, ValueError
        If the metric would raise.

    Notes
    -----
    For means over rows, the interval is the analytic one of :func:`interval`. For errors it extends
    from the least to the largest :math:`g_1(e_1) - g_2(e_2)` for e in the ellipse of radius t of
    the replicates' covariance. The p-value is the level of the interval that ends at zero. In
    simulations, 90 % intervals cover the true difference in 85 % or more with 30 or 100 rows (72 %
    for "debiased_ece"), and in 69 % or more with ten. 8 % or fewer of true null hypotheses have a
    p-value of 0.05 or less, and 5 % or fewer for "ece". ``groups`` affect both as in
    :func:`interval`: with 10, 30 and 200 clusters, 4 to 5 % of true null hypotheses have a p-value
    of 0.05 or less for means, and 1 % for errors.

    Examples
    --------
    >>> import numpy as np
    >>> sharp, flat = np.repeat([0.05, 0.95], 50), np.full(100, 0.5)
    >>> result = difference("log_loss", sharp, flat, np.repeat([0, 1], 50))
    >>> round(result.value, 3), result.p_value < 0.001
    (-0.642, True)
    """
    level = check_level(level)
    reading = reading_for((metric, options), Reading(classes, inputs))
    how = {"": (metric, options)}, y, weights, replicates, seed, reading, groups
    ours, theirs = measure_models([(None, first), (None, second)], *how)
    return compare(ours.metrics[""], theirs.metrics[""], level)
