"""A metric of one model: value, replicates, interval, and difference to another model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, ArrayLike, UserData
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_count
from bayescal.data.predictions import PLAIN, Predictions, Reading
from bayescal.metrics.calibration.debiased import DebiasedError, DebiasedMassError
from bayescal.metrics.calibration.mass import MassHistogram, MassMetric
from bayescal.metrics.kernels.skce import make_skce
from bayescal.metrics.registry import METRICS, find_metric, reading_for
from bayescal.metrics.scores.proper import Accuracy
from bayescal.metrics.sums import MeanMetric, Metric, SumMetric, compute, standard_error
from bayescal.metrics.uncertainty.groups import (
    MANY,
    UNCLUSTERED,
    GroupedSums,
    equal_rows_once,
    group_sums,
    in_clusters,
    spread_of_mean,
)
from bayescal.metrics.uncertainty.replicates import error_by_chance, replicate

#: Exponent of g(e) in :func:`interval`, and number of angles of the ellipse of a difference.
_POWER, _ANGLES = 2.5, 361
#: Number of rows below which an interval is the whole range.
_MIN_ROWS = 10
#: Least degrees of freedom, where one cluster has nearly all rows.
_MIN_DOF = 0.5
#: Standard error, relative to a mean, up to which rows differ by rounding only.
_EQUAL = 1e-9
#: Relative difference of two values, of at least 1e-3, that are equal up to rounding.
_ROUNDING = 1e-12


class Interval(NamedTuple):
    """A metric, or a difference of two, with its uncertainty.

    Attributes
    ----------
    value : float
        Value of the metric.
    estimate : float
        The value, minus the effect of chance for calibration errors; the interval is about it.
    lower, upper : float
        Ends of the confidence interval.
    standard_error : float
        Standard error of a mean over rows or of a score of the ranking. For errors and an accuracy,
        half the width of the interval divided by its quantile. Infinite if there are too few rows.
    level : float
        Nominal coverage.
    p_value : float or None
        For a difference, the p-value of the hypothesis that it is zero.
    """

    value: float
    estimate: float
    lower: float
    upper: float
    standard_error: float
    level: float
    p_value: float | None = None


class MeasuredMetric:
    """A metric of one model with its uncertainty; replicates are drawn when first needed."""

    def __init__(
        self,
        name: str,
        metric: Metric,
        source: Predictions | GroupedSums,
        replicates: int,
        seed: int = 0,
        value: float | None = None,
        merge: bool = True,
    ) -> None:
        """Measure rows in memory, or the sums by group of very many rows.

        ``value`` is exact where the sums are those of a histogram. Equal rows of a cluster count
        once if the rows of every cluster are equal; ``merge=False`` measures all rows.
        """
        self._given, self._merged = (metric, source), False
        if merge and isinstance(source, Predictions):
            clusters, source = source.clusters, equal_rows_once(source)
            self._merged = source.clusters is not clusters
        self._name, self._source, self._seed = name, source, seed
        self._number = check_count(replicates, "replicates")
        self._exact, self._range, masses = value, metric.range, None
        if isinstance(source, Predictions):
            weights = source.weights
            if source.clusters is not None:
                masses = np.bincount(source.clusters, weights)
            self.value = compute(metric, source)
            total, squares = float(weights.sum()), float(weights @ weights)
        else:
            self.value = float(source.metric.value(source.total, np)) if value is None else value
            total, squares = source.sizes[1:].tolist()
        whole = source.whole
        #: Variance of a weighted mean of values with variance one.
        self._spread = 1 / total if whole else squares / total**2
        cases = count = total if whole else total**2 / squares
        if masses is not None:
            cases, count = total**2 / float(masses @ masses), len(masses)
        #: Number of rows, or of clusters, of equal weight that are worth as much.
        self._cases = round(cases, 9)
        self._few = bool(round(count, 9) < _MIN_ROWS)
        self._few_clusters = self._few and masses is not None
        self._means = METRICS[name].best != "zero"
        self._unbiased = self._means or name == "skce"
        self._metric = _before_root(metric)
        self._square = self._metric is not metric

    @cached_property
    def _groups(self) -> GroupedSums | None:
        """Sums by group, if there are so many rows that groups are drawn."""
        if isinstance(self._source, GroupedSums):
            assert isinstance(self._metric, SumMetric)
            return replace(self._source, metric=self._metric)
        if len(self._source.y) < MANY:
            return None
        return group_sums(self._metric, self._source, self._seed)

    @cached_property
    def replicates(self) -> np.ndarray:
        """The metric (b,) of resampled rows; a seed draws the same rows for all models."""
        if self._groups is not None:
            return self._groups.replicates(self._number)
        assert isinstance(self._source, Predictions)
        return replicate(self._metric, self._source, self._number, self._seed)

    @cached_property
    def _chance(self) -> float:
        """Size of an error by chance alone; only of errors that cannot be negative."""
        if self._unbiased or self._square:
            return -math.inf
        source = self._source
        if isinstance(source, Predictions) and source.clusters is not None:
            # Few clusters may agree by chance, so the error of independent rows is a lower bound.
            of_rows = error_by_chance(self._metric, source, self._seed)
            sums = group_sums(self._metric, source, self._seed)
            assert sums is not None
            return max(sums.chance(), of_rows)
        if self._groups is not None:
            return self._groups.chance()
        assert isinstance(source, Predictions)
        return error_by_chance(self._metric, source, self._seed)

    @cached_property
    def _center(self) -> float:
        return max(self._mean_square() if self._square else self.value, self._chance)

    def _mean_square(self) -> float:
        """Compute the metric before the root is taken."""
        if isinstance(self._source, Predictions):
            return compute(self._metric, self._source)
        if self._exact:
            return self._exact**2
        assert self._groups is not None
        return float(self._groups.metric.value(self._groups.total, np))

    def _deviation(
        self, metric: SumMetric, other: MeasuredMetric | None = None
    ) -> tuple[float, float]:
        """Compute standard error and skewness by the delta method, also of a difference."""
        if isinstance(self._source, Predictions):
            second = None if other is None else other._source
            assert not isinstance(second, GroupedSums)
            with np.errstate(invalid="ignore"):  # infinite losses
                return standard_error(metric, self._source, second)
        # Sums of groups do not determine the skewness, which is small for this many rows.
        gaps = self._source.deviations()
        if other is not None:
            assert isinstance(other._source, GroupedSums)
            gaps = gaps - other._source.deviations()
        return math.sqrt(gaps @ gaps), 0.0

    @property
    def _shape(self) -> tuple[int, ...]:
        if isinstance(self._source, Predictions):
            return self._source.probs.shape
        return (int(self._source.sizes[0]), *self._source.sums.shape[1:])

    def _less_chance(self, error: AnyArray) -> AnyArray:
        """Remove the error by chance from a metric."""
        if self._unbiased:
            return error
        if self._square:
            return np.sqrt(np.maximum(error, 0))
        error = np.maximum(error, self._chance)
        ratio = self._chance / np.where(error > 0, error, 1)
        # The root would magnify the rounding errors of an error that equals chance.
        ratio = np.where(ratio > 1 - _ROUNDING, 1, ratio)
        return error * (1 - ratio**_POWER) ** (1 / _POWER)

    def _bend(self, reach: float) -> float:
        """Compute the error at which chance begins, as a deviation in units of ``reach``."""
        away = (0.0 if self._square else self._chance) - self._center
        return min(max(away / max(reach, math.ulp(0.0)), -1.0), 1.0)

    def _student(self, level: float, drawn: bool) -> tuple[float, float, float]:
        """Compute a quantile, the factor from deviation to standard error, degrees of freedom.

        They are those of the rows or clusters, or of the groups if fewer groups were drawn.
        """
        from scipy.special import stdtrit

        groups = self._groups if drawn else None
        size = self._cases if groups is None else min(self._cases, len(groups.sums))
        dof = max(size - 1.0, _MIN_DOF)
        return float(stdtrit(dof, (1 + level) / 2)), math.sqrt(size / dof), dof

    def _within(self, lower: float, upper: float) -> tuple[float, float]:
        """Clip ends to the range of the metric, which loses no coverage."""
        return max(lower, self._range[0]), min(upper, self._range[1])

    def interval(self, level: float, method: str = "auto") -> Interval:
        """Compute the confidence interval."""
        analytic = self._means if method == "auto" else method == "analytic"
        value, estimate = self.value, float(self._less_chance(self._center))
        if analytic and isinstance(self._metric, Accuracy) and not self._few_clusters:
            z = NormalDist().inv_cdf((1 + level) / 2)
            source, spread = self._source, self._spread
            if isinstance(source, Predictions) and source.clusters is not None:
                spread = spread_of_mean(self._metric, source, value, level, self._cases)
            scaled = z**2 * spread
            middle = (value + scaled / 2) / (1 + scaled)
            half = math.sqrt(value * (1 - value) * scaled + scaled**2 / 4) / (1 + scaled)
            ends = self._within(middle - half, middle + half)
            return Interval(value, value, *ends, half / z, level)
        if not analytic:
            error, skewness = _moments(self.replicates)
        elif isinstance(self._metric, SumMetric):
            error, skewness = self._deviation(self._metric)
        else:
            raise ValueError(
                f"method must be 'bootstrap' for {self._name}, which is not a function of sums"
            )
        if self._few or not math.isfinite(error):
            return Interval(value, estimate, *self._range, math.inf, level)
        t, factor, _ = self._student(level, not analytic)
        error *= factor
        if self._means and error <= _EQUAL * abs(value) and (costs := self._costs()):
            lower, upper = ends_if_equal(value, costs, self._cases, level)
            return Interval(value, value, lower, upper, (upper - lower) / (2 * t), level)
        if self._unbiased:
            ends = self._within(*_hall(value, error, skewness, t))
            return Interval(value, value, *ends, error, level)
        ends = self._center + t * error * np.array([-1, 1])
        if self._square:
            ends[1] = max(
                ends[1], _upper_square(self._mean_square(), self.replicates.mean(), t * error)
            )
        lower, upper = self._within(*self._less_chance(ends).tolist())
        return Interval(value, estimate, lower, upper, (upper - lower) / (2 * t), level)

    def _costs(self, other: MeasuredMetric | None = None) -> tuple[float, float] | None:
        """Compute the least and the largest cost of a row with any label; None if unlimited.

        With another model, they are those of the difference.
        """
        data, metric = self._source, self._metric
        if isinstance(data, GroupedSums) or not isinstance(metric, MeanMetric) or data.y.ndim == 2:
            width = self._range[1] - self._range[0]
            ends = self._range if other is None else (-width, width)
        else:
            low, high = math.inf, -math.inf
            for code in range(2 if data.probs.ndim == 1 else data.probs.shape[1]):
                y = np.full(len(data.y), code)
                costs = np.asarray(metric.cost(data._replace(y=y), np))
                if other is not None:
                    assert isinstance(other._source, Predictions)
                    costs = costs - np.asarray(metric.cost(other._source._replace(y=y), np))
                low, high = min(low, float(costs.min())), max(high, float(costs.max()))
            ends = low, high
        return ends if math.isfinite(ends[1] - ends[0]) else None

    def _of_all_rows(self) -> MeasuredMetric:
        return MeasuredMetric(self._name, *self._given, self._number, self._seed, merge=False)

    def less(self, other: MeasuredMetric, level: float) -> Interval:
        """Compute the difference to another model of the same rows."""
        if self._merged != other._merged:
            # Rows of clusters are equal for only one of the models.
            return self._of_all_rows().less(other._of_all_rows(), level)
        ours, theirs = self._shape, other._shape
        if ours != theirs:
            raise ValueError(f"first and second must have one shape, got {ours} and {theirs}")
        from scipy.special import stdtr

        size = min(abs(self.value), abs(other.value))
        value = _unless_rounding(self.value - other.value, size)
        estimate = float(self._less_chance(self._center) - other._less_chance(other._center))
        estimate = _unless_rounding(estimate, size)
        mean = self._metric if isinstance(self._metric, MeanMetric) else None
        with np.errstate(invalid="ignore"):
            if mean is not None:
                error, skewness = self._deviation(mean, other)
            else:
                error, skewness = _moments(self.replicates - other.replicates)
        widest = self._range[1] - self._range[0]
        if self._few or not math.isfinite(error):
            return Interval(value, estimate, -widest, widest, math.inf, level, 1.0)
        error = _unless_rounding(error, size)
        if not value and not error:
            return Interval(0.0, 0.0, 0.0, 0.0, 0.0, level, 1.0)
        t, factor, dof = self._student(level, mean is None)
        equal = self._means and value and error <= _EQUAL * abs(value)
        if equal and (costs := self._costs(other)):
            lower, upper = ends_if_equal(value, costs, self._cases, level)
            # If the mean is zero, this is the largest chance that a row has the value.
            end = costs[0] if value > 0 else costs[1]
            chance = end / (end - value) if end * value < 0 else 0.0
            p_value = min(2 * chance**self._cases, 1.0)
            return Interval(value, value, lower, upper, (upper - lower) / (2 * t), level, p_value)
        if self._unbiased:
            error *= factor
            x = value / error if error > 0 else math.copysign(1e9, value) * (value != 0)
            moved = x + skewness * (x**2 / 3 + 1 / 6) + skewness**2 * x**3 / 27
            p_value = 2 * float(stdtr(dof, -min(abs(x), abs(moved))))
            lower, upper = _hall(value, error, skewness, t)
            ends = max(lower, -widest), min(upper, widest)
            return Interval(value, value, *ends, error, level, p_value)
        moments = factor**2 * np.cov(self.replicates, other.replicates, ddof=0)
        first, second = np.sqrt(np.diag(moments))
        correlation = moments[0, 1] / (first * second) if first * second > 0 else 0.0
        correlation = correlation if abs(correlation) < 1 - 1e-12 else round(correlation)
        turn, angles = math.acos(correlation), np.linspace(0, 2 * np.pi, _ANGLES)

        def ends_at(t: float) -> tuple[float, float]:
            # The difference is smooth between the angles at which an error exceeds chance.
            bends = [np.arccos(self._bend(t * first)), np.arccos(other._bend(t * second)) + turn]
            at = np.concatenate([angles, bends, [-bends[0], 2 * turn - bends[1]]])
            ours = self._less_chance(self._center + t * first * np.cos(at))
            theirs = other._less_chance(other._center + t * second * np.cos(at - turn))
            gaps = ours - theirs
            return float(gaps.min()), float(gaps.max())

        # Bisect on t / (1 + t).
        inside, outside = 0.0, 1.0
        while outside - inside > 1e-12 and estimate:
            middle = (inside + outside) / 2
            lower, upper = ends_at(middle / (1 - middle))
            inside, outside = (inside, middle) if lower <= 0 <= upper else (middle, outside)
        p_value = 2 * float(stdtr(dof, -inside / (1 - inside)))
        lower, upper = ends_at(t)
        lower, upper = max(lower, -widest), min(upper, widest)
        error = (upper - lower) / (2 * t)
        return Interval(value, estimate, lower, upper, error, level, p_value)


def _unless_rounding(gap: float, size: float) -> float:
    """Return a difference of values of this size, or zero if they are equal up to rounding."""
    return 0.0 if abs(gap) <= _ROUNDING * max(size, 1e-3) else gap


def _before_root(metric: Metric) -> Metric:
    """Return the mean square of a debiased error of norm 2, or any other metric unchanged."""
    if isinstance(metric, MassHistogram):
        inner = _before_root(metric.metric)
        assert isinstance(inner, MassMetric)
        return metric if inner is metric.metric else replace(metric, metric=inner)
    if isinstance(metric, DebiasedError | DebiasedMassError) and metric.norm == 2:
        return replace(metric, signed=True)
    return metric


def _moments(replicates: np.ndarray) -> tuple[float, float]:
    """Compute standard deviation and skewness; the former is infinite if a replicate is."""
    if not np.isfinite(replicates).all():
        return math.inf, 0.0
    deviation = float(replicates.std())
    cubes = float(np.mean((replicates - replicates.mean()) ** 3))
    return deviation, cubes / deviation**3 if deviation**3 > 0 else 0.0


def _upper_square(square: float, biased: float, half: float) -> float:
    """Compute the upper end for a squared error by inverting a test, like Wilson's interval.

    ``half`` is a quantile times the standard error at ``biased``, the mean of replicates, which
    includes chance c. The variance is proportional to u + c / 2 for an error u, if bins are alike.
    The end is the u at which the square lies that quantile below.
    """
    chance = max(float(biased) - square, 0.0) / 2
    size = float(biased) + chance
    scale = half**2 / size if size > 0 else 0.0
    return square + scale / 2 + math.sqrt(max(scale**2 / 4 + scale * (square + chance), 0))


def ends_if_equal(
    value: float, ends: tuple[float, float], cases: float, level: float
) -> tuple[float, float]:
    """Compute the interval of a mean within ends, if all rows have the same value.

    If the mean is m, a row reaches the value with a chance of at most (m - a) / (value - a), where
    a is the lower end of the range. At the lower end of the interval, the chance that all rows do
    is (1 - level) / 2.
    """
    moved = -math.expm1(math.log((1 - level) / 2) / cases)
    return value + (ends[0] - value) * moved, value + (ends[1] - value) * moved


def _hall(value: float, error: float, skewness: float, t: float) -> tuple[float, float]:
    """Compute the union of Student's interval of a mean and Hall's transformed interval."""
    moved = q = np.array([t, -t])
    if skewness != 0:
        moved = 3 / skewness * (np.cbrt(1 + skewness * (q - skewness / 6)) - 1)
    return value - error * float(max(t, moved[0])), value + error * float(max(t, -moved[1]))


def prepare(
    metric: str,
    probs: ArrayLike | Predictions,
    y: UserData,
    weights: ArrayLike | None,
    options: Mapping[str, object],
    reading: Reading = PLAIN,
    groups: UserData = None,
) -> tuple[Predictions, Metric]:
    """Read predictions, unless they were read before, and make the metric of a name.

    ``groups`` are labels of clusters, which become part of the predictions.
    """
    metric, options = find_metric(metric, options)
    data = as_predictions(probs, y, weights, reading_for((metric, options), reading))
    if groups is not None:
        data = in_clusters(data, groups, weights)
    if data.clusters is not None and metric in UNCLUSTERED:
        raise ValueError(
            f"groups must be left out for {metric!r}, which assumes independent rows; "
            "'ece' with norm=2, 'smooth_ece' and 'kde_ece' take groups"
        )
    if metric == "skce":
        return data, make_skce(data, **options)
    make = METRICS[metric].make
    if make is None:
        names = ", ".join(name for name, entry in METRICS.items() if entry.make is not None)
        raise ValueError(f"metric must be one of {names}, skce, got {metric!r}")
    return data, make(data.columns, **options)
