"""Tests of the hypothesis that predictions are calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import Array, ArrayLike, UserData
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow, skewed_tail
from bayescal._core.random.keys import generator
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_count
from bayescal.data.membership import sum_test
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading, as_rows, of_class
from bayescal.metrics.calibration.mass import OrderedMetric
from bayescal.metrics.kernels.skce import KernelError
from bayescal.metrics.registry import METRICS, find_metric
from bayescal.metrics.sums import Metric, Piece, SumMetric, blocks, collect, compute
from bayescal.metrics.uncertainty.consistency import Consistency
from bayescal.metrics.uncertainty.groups import MANY, equal_rows_once, group_sums, in_clusters
from bayescal.metrics.uncertainty.measured import prepare
from bayescal.metrics.uncertainty.replicates import redraw


class CalibrationTest(NamedTuple):
    """The outcome of a test of calibration.

    Attributes
    ----------
    statistic : float
    p_value : float
        Probability of a statistic at least as extreme if predictions are calibrated.
    """

    statistic: float
    p_value: float


@ignoring_underflow
def spiegelhalter_test(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    groups: UserData = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> CalibrationTest:
    r"""Test calibration by Spiegelhalter's z, which compares the Brier score with its expectation.

    If outcomes have the predicted probabilities, the Brier score :math:`b_i` of a row has a known
    mean and variance, so that

    .. math:: z = \frac{\sum_i w_i (b_i - E b_i)}{\sqrt{\sum_i w_i^2 \operatorname{Var} b_i}}

    is standard normal for many rows. The p-value allows for skewness: with few expected errors, z
    has the right tail of a gamma variable, which is far heavier. For two classes the numerator is
    :math:`\sum_i (y_i - p_i)(1 - 2 p_i)`; for rows p of several classes
    :math:`E b = 1 - \sum_j p_j^2` and :math:`\operatorname{Var} b = 4 (\sum_j p_j^3 -
    (\sum_j p_j^2)^2)`. Integer weights are counts. Positive values mean over-confidence.

    Parameters
    ----------
    probs, y, weights, classes, inputs
        Probabilities (n,) or (n, k), labels (n,), row weights (n,), and how they are read, as for
        :func:`log_loss`.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind: rows with equal labels may be dependent.

    Returns
    -------
    CalibrationTest
        With a two-sided p-value. If all predictions are certain, z is zero if all are right, and
        infinite if not. If all predictions are uniform, the test says nothing, and z is zero.

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise.

    Notes
    -----
    With ``groups`` the variance is the sum of squared sums by cluster, :math:`\sum_g s_g^2`, but at
    least the one above, and z has Student's t distribution with
    :math:`(\sum_g s_g^2)^2 / \sum_g s_g^4` degrees of freedom, at most one fewer than clusters. In
    simulations, at most about 6 % of true null hypotheses have a p-value of 0.05 or less with 30 or
    more clusters, but up to 22 % for rare events in few clusters; see the explanation "How far to
    trust intervals and tests of metrics". For one cluster z is NaN and the p-value is 1.

    References
    ----------
    D. J. Spiegelhalter (1986), Probabilistic prediction in patient management and clinical trials.

    Examples
    --------
    >>> result = spiegelhalter_test([0.05] * 20 + [0.95] * 20, [1] * 5 + [0] * 15 + [1] * 20)
    >>> round(result.statistic, 2), round(result.p_value, 3)
    (2.18, 0.056)
    """
    data = as_predictions(probs, y, weights, Reading(classes, inputs))
    if groups is not None:
        data = in_clusters(data, groups, weights)
    return spiegelhalter_of(data)


def spiegelhalter_of(data: Predictions) -> CalibrationTest:
    """Compute Spiegelhalter's test of checked predictions."""
    data = equal_rows_once(data)
    metric = Spiegelhalter(data.whole)
    sums = collect(metric, data)
    test = metric.test(sums)
    if data.clusters is None or math.isinf(test.statistic):
        return test
    pieces = (metric.pieces(data.part(rows), np) for rows in blocks(metric, data))
    excess = np.concatenate([first.value for first, *_ in pieces])
    return CalibrationTest(*sum_test(data.weights * excess, float(sums[1, 0]), data.clusters))


@dataclass(frozen=True)
class Spiegelhalter(SumMetric):
    """Spiegelhalter's z, from sums that add over blocks; ``whole`` weights are counts."""

    whole: bool
    rows = 5

    def width(self, columns: int) -> int:
        return 3 * columns + 3

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        probs = as_rows(data.probs)
        # Sums over so short an axis are several times as fast as products.
        squares, ones = probs * probs, np.ones(probs.shape[1])
        second, third, fourth = squares @ ones, (squares * probs) @ ones, (squares**2) @ ones
        # The score minus its mean: 1 - 2 p_y + sum p^2 - (1 - sum p^2).
        excess = 2 * (second - of_class(probs, data.y, np))
        variance = np.maximum(4 * (third - second**2), 0)
        cubes = -8 * (fourth - 3 * second * third + 2 * second**3)
        weights = None
        if not self.whole:
            weights = data.weights
            variance, cubes = variance * weights, cubes * weights**2
        values = excess, variance, None, weights, cubes
        return tuple(Piece(None, value) for value in values)

    def value(self, sums: Array, xp: ModuleType) -> Array:
        return np.asarray(self.test(sums).statistic)

    def test(self, sums: Array) -> CalibrationTest:
        """Compute z and its p-value from sums (rows, 1)."""
        excess, variance, mass, squares, third = sums[:, 0]
        z, p = skewed_test(excess, variance, third, mass, squares)
        return CalibrationTest(float(z), float(p))


def skewed_test(
    excess: np.ndarray, variance: np.ndarray, third: np.ndarray, total: float, squares: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute z and p-values of sums with known variances and third central moments.

    The total of weights, and that of their squares, say how large rounding errors are.
    """
    # The variance of a sum that is certain in all rows is zero up to rounding.
    certain = variance <= 1e-24 * squares
    error = np.sqrt(np.where(certain, 1, variance))
    z, skewness = excess / error, np.sign(excess) * third / error**3
    p = np.minimum(2 * skewed_tail(np.abs(z), skewness), 1)
    wrong = np.abs(excess) > 1e-12 * total
    z = np.where(certain, np.where(wrong, np.copysign(np.inf, excess), 0), z)
    return z, np.where(certain, ~wrong, p)


@other_words
@ignoring_underflow
def consistency_test(
    metric: str,
    probs: ArrayLike | Predictions,
    y: ArrayLike | None,
    *,
    resamples: int = 1000,
    seed: int = 0,
    weights: ArrayLike | None = None,
    groups: UserData = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    **options: object,
) -> CalibrationTest:
    """Test whether a calibration error is larger than chance explains, with simulated labels.

    Parameters
    ----------
    metric : str
        A calibration error of this module, such as ``"ece"``, ``"smooth_ece"`` or ``"skce"``.
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    resamples : int
        Number of sets of labels to draw.
    seed : int
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows. A row of any other
        weight has one label, which counts with this weight.
    groups : array of shape (n,), optional
        Labels of clusters, of any hashable kind: rows with equal labels may be dependent.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    **options
        Options of the metric.

    Returns
    -------
    CalibrationTest
        The metric, and the proportion of draws in which it is as large. The data count as a draw,
        so the p-value is exact for any n, and at least 1 / (resamples + 1).

    Raises
    ------
    TypeError, ValueError
        If the metric would raise, and for metrics that do not measure calibration.

    Notes
    -----
    Takes the time of ``resamples`` evaluations of the metric. From 100,000 rows on, labels of
    P(y = 1) are counted in cells of predictions that differ by less than one part in 128, where the
    numbers of ones are binomial up to 2e-5 in total variation; this takes the time of a few
    evaluations. With ``groups``, residuals of whole clusters are also multiplied by random signs,
    and the p-value is the larger of the two: labels drawn row by row ignore clusters, and the signs
    of few clusters, or of rare events, are not informative enough alone. More than 1,024 clusters
    are merged into groups with common signs. In simulations with 5 to 50 rows in a cluster, 2 to
    5 % of true null hypotheses have a p-value of 0.05 or less if clusters are of one size, and up
    to 12 % with ten clusters, or 30 of 1 to 50 rows. For rare events it is up to 21 % with 30
    clusters, and 60 % with ten. "skce" and "debiased_ece" assume independent rows, and raise an
    error with ``groups``.

    References
    ----------
    J. Bröcker, L. A. Smith (2007), Increasing the reliability of reliability diagrams.
    J. Vaicenavicius et al. (2019), Evaluating model calibration in classification.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> result = consistency_test("ece", p, y, resamples=200)
    >>> round(result.statistic, 2), result.p_value < 0.02
    (0.3, True)
    """
    resamples = check_count(resamples, "resamples")
    metric, options = find_metric(metric, options)
    entry = METRICS[metric]
    if entry.best != "zero" or entry.multilabel:
        raise ValueError(f"metric must be a calibration error, got {metric!r}")
    reading = Reading(classes, inputs)
    data, metric_object = prepare(metric, probs, y, weights, options, reading, groups)
    data = equal_rows_once(data)
    value = compute(metric_object, data)
    p_value = p_value_of_rows(metric, metric_object, data, value, resamples, seed)
    if data.clusters is not None:
        sums = group_sums(metric_object, data, seed)
        assert sums is not None
        p_value = max(sums.p_value(resamples), p_value)
    return CalibrationTest(value, p_value)


def p_value_of_rows(
    name: str, metric: Metric, data: Predictions, value: float, resamples: int, seed: int
) -> float:
    """Compute the p-value of a calibration error from simulated labels of independent rows."""
    whole = data.whole
    cases = data.weights.sum() if whole else len(data.y)
    # Labels counted by cells of P(y = 1) determine sums and ordered metrics.
    counted = data.columns is None and (whole or not METRICS[name].counts)
    if cases >= MANY and counted and isinstance(metric, SumMetric | OrderedMetric):
        test = Consistency(metric, resamples, seed, whole)
        return float(test.value(collect(test, data), np))
    rng = generator(seed)
    # Allow for rounding: if the same labels are drawn, the error is equal.
    slack = 1e-12 * (1 + abs(value))
    if isinstance(metric, KernelError) and metric.estimator != "linear":
        values = metric.draw(data, resamples, rng)
    else:
        values = np.array([compute(metric, redraw(data, rng)) for _ in range(resamples)])
    return float(np.count_nonzero(values >= value - slack) + 1) / (resamples + 1)
