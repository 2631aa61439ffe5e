"""Scores of rankings with their uncertainty, by the derivatives with respect to weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.predictions import Predictions
from bayescal.metrics.registry import find_metric
from bayescal.metrics.scores.ranking import RANKINGS, rank
from bayescal.metrics.uncertainty.measured import Interval, MeasuredMetric, ends_if_equal, prepare

#: Rows of a class below which there is no interval but the whole range.
_MIN_OF_CLASS = 2


class MeasuredRanking:
    """A score of a ranking for one model; its standard error is that of DeLong et al. for areas."""

    def __init__(self, name: str, data: Predictions) -> None:
        self._data = data
        self.value, self._influence = rank(name, data)
        self._cases = np.array([self._count_cases(data.y == code) for code in (0, 1)])

    def _count_cases(self, chosen: np.ndarray) -> float:
        """Count rows of a class, or clusters, of equal weight that are worth as much."""
        data, weights = self._data, self._data.weights[chosen]
        if data.clusters is not None:
            weights = np.bincount(data.clusters[chosen], weights)
        elif data.whole:
            return float(weights.sum())
        squares = float(weights @ weights)
        return round(float(weights.sum()) ** 2 / squares, 9) if squares else 0.0

    def _error(self, influence: np.ndarray) -> float:
        """Compute the standard error of a score with these derivatives."""
        data = self._data
        if data.clusters is not None:
            sums = np.bincount(data.clusters, data.weights * influence)
            return math.sqrt(sums @ sums)
        weights = data.weights if data.whole else data.weights**2
        return math.sqrt(weights @ influence**2)

    def _quantile(self, level: float) -> float:
        from scipy.special import stdtrit

        dof = max(float(self._cases.min()) - 1, 1.0)
        return math.sqrt((dof + 1) / dof) * float(stdtrit(dof, (1 + level) / 2))

    def interval(self, level: float, method: str = "auto") -> Interval:
        """Compute the confidence interval, symmetric in the log odds of the score.

        In simulations of 30 to 1,000 rows, 15 to 50 of the rarer class, 90 % intervals covered 85
        to 95 %, and 79 to 82 % for areas with 15 such rows on three scores, and for average
        precisions of 0.98 on ten scores; intervals of differences covered 87 to 94 %.
        """
        if method == "bootstrap":
            raise ValueError("method must be 'analytic' for scores of a ranking, got 'bootstrap'")
        value, error = min(self.value, 1.0), self._error(self._influence)
        if self._cases.min() < _MIN_OF_CLASS:
            return Interval(value, value, 0.0, 1.0, math.inf, level)
        quantile = self._quantile(level)
        if not 0 < error or not 0 < value < 1:
            # All pairs are in order, or none: the interval of as many trials without a failure.
            width = 1 - ((1 - level) / 2) ** (1 / float(self._cases.min()))
            lower, upper = max(value - width, 0.0), min(value + width, 1.0)
            return Interval(value, value, lower, upper, width / quantile, level)
        spread = quantile * error / (value * (1 - value))
        center = math.log(value) - math.log1p(-value)
        ends = (min(max(center + s * spread, -700.0), 700.0) for s in (-1, 1))
        lower, upper = (1 / (1 + math.exp(-end)) for end in ends)
        return Interval(value, value, lower, upper, error, level)

    def less(self, other: MeasuredRanking, level: float) -> Interval:
        """Compute the difference to another model of the same rows."""
        from scipy.special import stdtr

        value = self.value - other.value
        if self._cases.min() < _MIN_OF_CLASS:
            return Interval(value, value, -1.0, 1.0, math.inf, level, 1.0)
        error = self._error(self._influence - other._influence)
        # Strictly increasing maps change nothing but rounding.
        error = error if error > 1e-12 else 0.0
        value = value if error else round(value, 12)
        cases, quantile = float(self._cases.min()), self._quantile(level)
        if value and not error:
            lower, upper = ends_if_equal(value, (-1, 1), cases, level)
            p_value = min(2 * (1 + abs(value)) ** -cases, 1.0)
            error = (upper - lower) / (2 * quantile)
            return Interval(value, value, lower, upper, error, level, p_value)
        half = quantile * error
        p_value = 2 * float(stdtr(max(cases - 1, 1.0), -abs(value) / error)) if error else 1.0
        lower, upper = max(value - half, -1.0), min(value + half, 1.0)
        return Interval(value, value, lower, upper, error, level, p_value)


#: A metric, or a score of a ranking, of one model with its uncertainty.
Measured: TypeAlias = "MeasuredMetric | MeasuredRanking"


def compare(ours: Measured, theirs: Measured, level: float) -> Interval:
    """Compute the difference between two models in one metric of the same rows."""
    if isinstance(ours, MeasuredMetric) and isinstance(theirs, MeasuredMetric):
        return ours.less(theirs, level)
    assert isinstance(ours, MeasuredRanking) and isinstance(theirs, MeasuredRanking)
    return ours.less(theirs, level)


def measure(
    metric: str,
    probs: ArrayLike | Predictions,
    y: ArrayLike | None,
    weights: ArrayLike | None,
    options: Mapping[str, object],
    replicates: int,
    seed: int,
) -> Measured:
    """Measure a metric, or a score of a ranking, of rows in memory."""
    if isinstance(metric, str) and metric in RANKINGS:
        if options:
            raise TypeError(f"{metric} has no options, got {next(iter(options))!r}")
        return MeasuredRanking(metric, as_predictions(probs, y, weights))
    metric, options = find_metric(metric, options)
    data, metric_object = prepare(metric, probs, y, weights, options)
    return MeasuredMetric(metric, metric_object, data, replicates, seed)
