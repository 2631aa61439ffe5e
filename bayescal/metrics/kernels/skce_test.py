"""Tests of calibration by the squared kernel calibration error."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.random.keys import generator
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_choice, check_count
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.kernels.skce import KernelError, make_skce
from bayescal.metrics.sums import compute
from bayescal.metrics.uncertainty.calibration_tests import CalibrationTest, p_value_of_rows

#: Numbers that are drawn at once: 128 MiB.
_ELEMENTS = 1 << 24
#: Standard error, relative to a mean, up to which pairs differ by rounding only.
_EQUAL = 1e-9
#: The largest |h| of two rows: residuals are at most of length root two.
_BOUND = 2.0


@other_words
@ignoring_underflow
def skce_test(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    estimator: Literal["unbiased", "linear", "biased"] = "unbiased",
    method: Literal["simulated", "asymptotic", "bound"] = "simulated",
    kernel: Literal["exponential", "gaussian"] = "exponential",
    distance: Literal["total_variation", "euclidean"] = "total_variation",
    bandwidth: float | Literal["median"] = "median",
    resamples: int = 1000,
    seed: int = 0,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> CalibrationTest:
    r"""Test the calibration of probability vectors by the squared kernel calibration error.

    With h and the estimators as in :func:`skce`, and t the estimate from n rows:

    - "simulated": the proportion of sets of labels, drawn from the predictions, whose t is as
      large. The data count as a set: the p-value is exact for any number of rows and events.
    - "asymptotic" with "unbiased", as published: n t is distributed as
      :math:`\sum_j \lambda_j (Z_j^2 - 1)` with standard normal Z, where :math:`\lambda` are the
      eigenvalues of the matrix :math:`h / n`. Such sums are drawn as quadratic forms of normal
      vectors, without computing eigenvalues.
    - "asymptotic" with "linear", as published: t is a mean over pairs. Over its standard error, it
      has about Student's t distribution. If all pairs are equal, that says nothing, and the p-value
      is 1.
    - "bound": the p-value is at most :math:`\exp(-\lfloor n/2 \rfloor t^2 / 8)` for a positive t if
      "unbiased" or "linear", and :math:`\exp(-(\sqrt{n t / 2} - 1)^2 / 2)` for
      :math:`n t > 2` if "biased", else 1. Valid for every n, but very conservative.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    estimator : {"unbiased", "linear", "biased"}
        See :func:`skce`; "biased" not with "asymptotic". "linear" is fast and has little power.
    method : {"simulated", "asymptotic", "bound"}
        See above. The asymptotic distributions fail for rare events, because the data without an
        event do not show their variance.
    kernel : {"exponential", "gaussian"}
        Kernel of the distances between predictions; :func:`skce` has the formulas.
    distance : {"total_variation", "euclidean"}
        Half the sum of absolute differences, or the root of the sum of their squares.
    bandwidth : float or "median", default "median"
        Positive width of the kernel; "median" is the median distance of all pairs of rows.
    resamples : int
        Number of sets of labels, or of sums drawn for "asymptotic" and "unbiased".
    seed : int
    weights : array of shape (n,), optional
        Non-negative row weights, not for "bound" and not for "asymptotic" with "linear". Integers
        are counts, equal to repeating rows, except for "linear".
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    CalibrationTest
        The estimate and its one-sided p-value, at least 1 / (resamples + 1) if sums are drawn.

    Raises
    ------
    TypeError, ValueError
        If :func:`skce` would raise, and for weights or options that cannot be combined.

    Notes
    -----
    O(n^2 k resamples) time for "simulated", and O(n k resamples) if "linear"; O(n^2 (k +
    resamples)) for "asymptotic"; O(n^2 k) for the median bandwidth and for "bound".

    With 50 calibrated rows and 0.1 expected events, 91 % of asymptotic p-values were below 0.05,
    and 44 to 47 % with 200 rows and one expected event.

    References
    ----------
    D. Widmann, F. Lindsten and D. Zachariah (2019), Calibration tests in multi-class
    classification: a unifying framework.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet(np.ones(3), size=300)
    >>> y = (probs.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1)
    >>> sharper = probs**3 / (probs**3).sum(axis=1, keepdims=True)
    >>> [round(skce_test(p, y).p_value, 1) for p in (probs, sharper)]
    [0.4, 0.0]
    """
    check_choice(method, "method", ("simulated", "asymptotic", "bound"))
    resamples = check_count(resamples, "resamples")
    data = as_predictions(probs, y, weights, Reading(classes, inputs))
    metric = make_skce(
        data, estimator=estimator, kernel=kernel, distance=distance, bandwidth=bandwidth
    )
    if method == "asymptotic" and estimator == "biased":
        raise ValueError("estimator must be 'unbiased' or 'linear' for method 'asymptotic'")
    if weights is not None and (
        method == "bound" or (method == "asymptotic" and estimator == "linear")
    ):
        raise ValueError(
            "weights must be left out for method 'bound', and for 'asymptotic' with 'linear'"
        )
    n = int(data.weights.sum()) if data.whole else len(data.y)
    if n < 2 or (n < 4 and estimator == "linear"):
        raise ValueError(
            f"there must be two pairs of rows for 'linear', else one pair, got {n} rows"
        )
    value = compute(metric, data)
    if method == "bound":
        return CalibrationTest(value, _bound_p_value(value, n, estimator))
    if method == "simulated":
        return CalibrationTest(value, p_value_of_rows("skce", metric, data, value, resamples, seed))
    if estimator == "linear":
        return CalibrationTest(value, _student_p_value(metric, data))
    return CalibrationTest(value, _limit_p_value(metric, data, value, resamples, seed))


def _bound_p_value(value: float, n: int, estimator: str) -> float:
    if estimator == "biased":
        excess = math.sqrt(max(n * value / _BOUND, 0)) - 1
        return math.exp(-(max(excess, 0) ** 2) / 2)
    return math.exp(-(n // 2) * (max(value, 0) / _BOUND) ** 2 / 2)


def _student_p_value(metric: KernelError, data: Predictions) -> float:
    """Compute the p-value of the mean over pairs of rows 1 and 2, 3 and 4, and so on."""
    from scipy.special import stdtr

    values = metric.pairs(data)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    if error <= _EQUAL * abs(mean):
        return 1.0
    return float(stdtr(len(values) - 1, -mean / error))


def _limit_p_value(
    metric: KernelError, data: Predictions, value: float, resamples: int, seed: int
) -> float:
    """Compute the p-value as the proportion of draws from the limit law of n t as large as it."""
    weights = data.weights
    # A count is a sum of independent normal variables; any other weight multiplies one.
    scale = np.sqrt(weights) if data.whole else weights
    trace = metric.diagonal(data) @ scale**2
    total = weights.sum()
    reached, slack = 0, 1e-12
    statistic = value * (total**2 - (scale**2).sum())
    rng = generator(seed)
    step = max(1, _ELEMENTS // len(weights))
    for first in range(0, resamples, step):
        shape = min(step, resamples - first), len(weights)
        drawn = np.ascontiguousarray((scale * rng.standard_normal(shape)).T)
        forms = metric.quadratic_forms(data, drawn) - trace
        reached += int(np.count_nonzero(forms >= statistic - slack * abs(statistic)))
    return (reached + 1) / (resamples + 1)
