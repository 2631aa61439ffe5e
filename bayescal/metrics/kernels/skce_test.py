"""Tests of calibration by the squared kernel calibration error."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.generators import generator
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_choice, check_count
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.kernels.skce import KernelError, make_skce
from bayescal.metrics.sums import compute
from bayescal.metrics.uncertainty.calibration_tests import CalibrationTest

#: Numbers that are drawn at once: 128 MiB.
_ELEMENTS = 1 << 24
#: The largest |h| of two rows: residuals are at most of length root two.
_BOUND = 2.0


@other_words
@ignoring_underflow
def skce_test(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    estimator: Literal["unbiased", "linear", "biased"] = "unbiased",
    method: Literal["asymptotic", "bound"] = "asymptotic",
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

    - "asymptotic" with "unbiased": n t is distributed as :math:`\sum_j \lambda_j (Z_j^2 - 1)` with
      standard normal Z, where :math:`\lambda` are the eigenvalues of the matrix :math:`h / n`. Such
      sums are drawn as quadratic forms of normal vectors, without computing eigenvalues.
    - "asymptotic" with "linear": t is a mean over pairs. Over its standard error, it has about
      Student's t distribution. It is fast and has little power.
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
        See above; "biased" only with "bound".
    method : {"asymptotic", "bound"}
        See above.
    kernel, distance, bandwidth
        As for :func:`skce`.
    resamples : int
        Number of sums drawn for "unbiased".
    seed : int
    weights : array of shape (n,), optional
        Non-negative row weights, for the asymptotic "unbiased" test only. Integers are counts,
        equal to repeating rows.
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
    O(n^2 (k + resamples)) time for "unbiased" and "asymptotic", O(n^2 k) for the median bandwidth
    and other quadratic estimates.

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
    check_choice(method, "method", ("asymptotic", "bound"))
    resamples = check_count(resamples, "resamples")
    data = as_predictions(probs, y, weights, Reading(classes, inputs))
    metric = make_skce(
        data, estimator=estimator, kernel=kernel, distance=distance, bandwidth=bandwidth
    )
    if method == "asymptotic" and estimator == "biased":
        raise ValueError("estimator must be 'unbiased' or 'linear' for method 'asymptotic'")
    if weights is not None and (method == "bound" or estimator == "linear"):
        raise ValueError("weights must be left out for method 'bound' and estimator 'linear'")
    n = int(data.weights.sum()) if data.whole else len(data.y)
    if n < 2 or (n < 4 and estimator == "linear"):
        raise ValueError(
            f"there must be two pairs of rows for 'linear', else one pair, got {n} rows"
        )
    value = compute(metric, data)
    if method == "bound":
        return CalibrationTest(value, _bound_p_value(value, n, estimator))
    if estimator == "linear":
        return CalibrationTest(value, _student_p_value(metric, data))
    return CalibrationTest(value, _simulated_p_value(metric, data, value, resamples, seed))


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
    if error == 0:
        return 1.0 if mean <= 0 else 0.0
    return float(stdtr(len(values) - 1, -mean / error))


def _simulated_p_value(
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
