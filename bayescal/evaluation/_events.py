"""Events, the data of tests and figures: what happened, and its predicted probability."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.numerics import effective_size
from bayescal._core.shapes import Float
from bayescal.data.blocks.predictions import PredictionBlocks
from bayescal.data.membership import sum_test
from bayescal.data.predictions import EPS, Predictions, as_given
from bayescal.data.rows import Sums
from bayescal.data.weights import are_no_counts, as_counts
from bayescal.metrics import CalibrationTest, consistency_test, reliability_curve
from bayescal.metrics.calibration.ece import make_ece
from bayescal.metrics.sums import SumMetric, collect
from bayescal.metrics.uncertainty.calibration_tests import skewed_test
from bayescal.metrics.uncertainty.consistency import Consistency

#: Number of bars of the histograms on top of reliability diagrams.
STRIPS = 20
#: Distance by which means of bins are kept away from borders.
_INSIDE = 1e-12
#: Numbers in a block of rows.
_BLOCK = 1 << 16


class Cases(NamedTuple):
    """Probabilities (m,) of events, whether they happened, and weights, or None for ones."""

    predicted: np.ndarray
    happened: np.ndarray
    weights: np.ndarray | None


@dataclass(frozen=True)
class ModelEvents:
    """Events of one model: that y = 1 for two classes, else that the most probable class happened.

    Attributes
    ----------
    cases : Cases
        The events; for very many, cells of nearly equal probability with both outcomes.
    drawn : Cases
        The events for figures. Weights that are not counts are rescaled to ``size`` rows.
    classes : array of shape (3, k, bins) or None
        For more than two classes, sums by class and bin of its probability: of weights, and of
        weights times probabilities and times outcomes.
    totals : array of shape (k,)
        Sums of weights by class.
    rows : int
        Number of rows.
    size : float or None
        The effective sample size if weights are not counts.
    consistency : float
        The p-value of the consistency test of the expected calibration error.
    proportion : Proportion
        Calibration in the large of class 1 of two, or of the worst of more classes.
    precision : float
        Machine epsilon of the type of the given probabilities.
    data : Predictions or None
        The rows in memory of more than two classes, if their weights are not counts.
    """

    cases: Cases
    drawn: Cases
    classes: np.ndarray | None
    totals: np.ndarray
    rows: int
    size: float | None
    consistency: float
    proportion: Proportion
    precision: float = EPS
    data: Predictions | None = None

    def mean(self, values: np.ndarray) -> float:
        """Compute the weighted mean over the events."""
        return float(np.average(values, weights=self.cases.weights))

    def curve(self, bins: int) -> list[tuple[float, ...]]:
        """Compute mean prediction, frequency and weight of every bin that is not empty."""
        predicted, happened, weights = self.cases
        predicted = as_given(predicted, self.precision)
        curve = reliability_curve(predicted, happened, bins=bins, weights=weights)
        return [*zip(*curve, strict=True)]

    def class_errors(self) -> np.ndarray:
        """Compute the expected calibration error of each of more than two classes, (k,)."""
        assert self.classes is not None
        mass, predicted, happened = self.classes
        return np.abs(predicted - happened).sum(axis=1) / mass.sum(axis=1)

    def of_class(self, label: int) -> Cases:
        """Return the events of one of more than two classes, or others that have their sums."""
        if self.data is not None:
            predicted = as_given(self.data.probs[:, label], self.precision)
            return Cases(predicted, (self.data.y == label).astype(int), self.data.weights)
        assert self.classes is not None
        sums = self.classes[:, label]
        used = np.flatnonzero(sums[0])
        mass, predicted, happened = sums[:, used]
        lower, upper = used / sums.shape[1] + _INSIDE, (used + 1) / sums.shape[1] - _INSIDE
        return _cells(np.clip(predicted / mass, lower, upper), mass, happened, self.size)


def events_of(data: Predictions, bins: int, replicates: int, seed: int) -> ModelEvents:
    """Collect the events of rows in memory."""
    event = _most_probable_class(data)
    predicted, happened, weights = event[:3]
    cases = Cases(predicted, happened, None if (weights == 1).all() else weights)
    test = consistency_test("ece", event, None, bins=bins, resamples=replicates, seed=seed)
    metric = _by_class(data.columns, bins)
    total = float(weights.sum())
    return ModelEvents(
        cases,
        cases,
        None if metric is None else collect(metric, data).reshape(3, -1, bins),
        np.bincount(data.y, cases.weights, data.columns or 2),
        len(data.y),
        None if data.whole else float(effective_size(total, weights @ weights)),
        test.p_value,
        worst_proportion(sum_by_class(data), total, data.whole, data),
        data.precision,
        None if metric is None or data.whole else data,
    )


def events_of_blocks(data: PredictionBlocks, bins: int, replicates: int, seed: int) -> ModelEvents:
    """Collect the events of rows in blocks, in cells, in one pass."""
    test = Consistency(make_ece(None, bins=bins), replicates, seed, whole=True, strips=STRIPS)
    metric = _by_class(data.columns, bins)
    sums = data.total(partial(_first_pass, test, metric))
    whole = bool(sums["fractions"] == 0) and float(sums["totals"].sum()) < 2**53
    test = replace(test, whole=whole)
    predicted, mass, happened, _ = test.points(sums["events"])
    size = None if whole else float(effective_size(mass.sum(), sums["squares"]))
    return ModelEvents(
        _cells(predicted, mass, happened, None),
        _cells(predicted, mass, happened, size),
        None if metric is None else sums["classes"].reshape(3, -1, bins),
        sums["totals"],
        int(sums["rows"]),
        size,
        float(test.value(sums["events"], np)),
        worst_proportion(sums["proportions"], float(sums["totals"].sum()), whole),
    )


def _first_pass(test: Consistency, metric: SumMetric | None, data: Predictions) -> Sums:
    weights = data.weights
    sums = {
        "events": collect(test, _most_probable_class(data)),
        "totals": np.bincount(data.y, weights, data.columns or 2),
        "proportions": sum_by_class(data),
        "rows": np.asarray(len(weights)),
        "squares": weights @ weights,
        "fractions": np.asarray(np.count_nonzero(are_no_counts(weights))),
    }
    return sums if metric is None else {**sums, "classes": collect(metric, data)}


def _by_class(columns: int | None, bins: int) -> SumMetric | None:
    metric = None if columns is None else make_ece(columns, bins=bins, kind="classwise")
    assert metric is None or isinstance(metric, SumMetric)
    return metric


def _most_probable_class(data: Predictions) -> Predictions:
    """Convert rows to predictions of two classes: the most probable class, or another."""
    if data.columns is None:
        return data
    happened = (data.probs.argmax(axis=1) == data.y).astype(np.int64)
    return data._replace(probs=data.probs.max(axis=1), y=happened)


def _cells(
    predicted: np.ndarray, mass: np.ndarray, happened: np.ndarray, size: float | None
) -> Cases:
    """Convert cells (m,) to events that happened and that did not, for ``size`` rows."""
    weights = np.concatenate([happened, np.maximum(mass - happened, 0)])
    probs, outcomes = np.tile(predicted, 2), np.repeat([1, 0], len(mass))
    if size is not None:
        weights = as_counts(weights, probs, outcomes, size)
    used = weights > 0
    return Cases(probs[used], outcomes[used], weights[used])


class Proportion(NamedTuple):
    """A class, its mean probability and its frequency, and the test whether they are equal."""

    label: int
    predicted: float
    observed: float
    test: CalibrationTest


def sum_by_class(data: Predictions) -> Float[np.ndarray, "sums classes"]:
    """Sum what :func:`worst_proportion` needs over rows, for P(y = 1) or for each of many classes.

    The sums are of weights times probabilities and times outcomes, and the variance and the third
    central moment of the number of rows, for weights that are counts and for others.
    """
    step = max(_BLOCK // (data.columns or 1), 16)
    parts = (data.part(slice(first, first + step)) for first in range(0, len(data.y), step))
    return sum(map(_sum_part, parts), np.zeros((6, data.columns or 1)))


def _sum_part(data: Predictions) -> np.ndarray:
    w, probs = data.weights, data.probs.reshape(len(data.y), -1)
    happened = np.bincount(data.y, w, data.columns or 2)[-probs.shape[1] :]
    variance = probs * (1 - probs)
    third = variance * (1 - 2 * probs)
    moments = [w @ variance, w @ third, w**2 @ variance, w**3 @ third]
    return np.stack([w @ probs, happened, *moments])


def worst_proportion(
    sums: Float[np.ndarray, "sums classes"],
    total: float,
    whole: bool,
    data: Predictions | None = None,
) -> Proportion:
    """Find the class whose frequency is the least plausible, and multiply its p-value by k.

    ``total`` is the sum of weights, and ``whole`` says that weights are counts. Rows of ``data`` in
    clusters are tested by sums over clusters.
    """
    predicted, observed, *moments = sums
    variance, third = moments[:2] if whole else moments[2:]
    excess = predicted - observed
    if data is not None and data.clusters is not None:
        residuals = (_residuals(data, column) for column in range(len(excess)))
        pairs = zip(residuals, variance, strict=True)
        z, p = np.array([sum_test(r, float(v), data.clusters) for r, v in pairs]).T
    else:
        z, p = skewed_test(excess, variance, -third, total, total)
    # Of equal p-values, that of the larger z, and of these the larger error.
    label, k = int(np.lexsort([-np.abs(excess), -np.abs(z), p])[0]), len(p)
    return Proportion(
        label if k > 1 else 1,
        float(predicted[label] / total),
        float(observed[label] / total),
        CalibrationTest(float(z[label]), min(k * float(p[label]), 1.0)),
    )


def _residuals(data: Predictions, column: int) -> np.ndarray:
    if data.columns is None:
        return data.weights * (data.probs - data.y)
    return data.weights * (data.probs[:, column] - (data.y == column))
