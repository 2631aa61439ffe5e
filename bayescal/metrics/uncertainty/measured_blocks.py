"""Metrics of predictions in blocks with their uncertainty, from one pass for all metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.data.blocks.predictions import PredictionBlocks, as_predictions
from bayescal.data.checks import naming
from bayescal.data.predictions import Predictions, Reading
from bayescal.data.rows import Sums
from bayescal.data.weights import are_no_counts
from bayescal.metrics.registry import METRICS, find_metric, reading_for
from bayescal.metrics.scores.ranking import RANKINGS
from bayescal.metrics.sums import DirectMetric, Metric, SumMetric, collect
from bayescal.metrics.uncertainty.calibration_tests import CalibrationTest, Spiegelhalter
from bayescal.metrics.uncertainty.groups import MANY, GroupedSums, grouped, in_clusters
from bayescal.metrics.uncertainty.measured import MeasuredMetric
from bayescal.metrics.uncertainty.ranking import Measured, measure

#: Largest number of rows of a block, so that running numbers of blocks do not overlap.
_ROWS = 1 << 40


class ModelMeasurements(NamedTuple):
    """Metrics of one model by title, and its predictions.

    Of blocks also Spiegelhalter's test, unless rows have several labels, the number of rows, and a
    fingerprint of their division.
    """

    metrics: dict[str, Measured]
    data: Predictions | PredictionBlocks
    test: CalibrationTest | None = None
    cases: int | None = None
    cut: np.ndarray = np.empty(0)


def measure_blocks(
    chosen: Mapping[str, tuple[str, Mapping[str, object]]],
    data: PredictionBlocks,
    replicates: int,
    seed: int,
) -> ModelMeasurements:
    """Measure metrics in one pass; bins of equal mass take two more passes.

    If there are few rows, a second pass gathers them, and they are measured in memory.
    """
    for metric, _ in chosen.values():
        if metric in RANKINGS:
            raise TypeError(f"probs must be arrays in memory for {metric}, which sorts all rows")
    chosen = {title: find_metric(*choice) for title, choice in chosen.items()}
    metrics: dict[str, Metric] = {}
    sums: dict[str, SumMetric] = {}
    for title, (name, options) in chosen.items():
        make = METRICS[name].make
        if make is None or (sum_metric := grouped(metric := make(data.columns, **options))) is None:
            data.probs  # noqa: B018  raises: the metric needs all rows at once
            continue
        metrics[title], sums[title] = metric, sum_metric
    whole = data.whole
    totals = data.total_numbered(partial(_sums_by_group, sums, seed, whole))
    if whole and totals["fractions"] > 0:
        # A later block had weights that are not counts.
        whole = False
        totals = data.total_numbered(partial(_sums_by_group, sums, seed, whole))
    test = Spiegelhalter(whole).test(totals["z"]) if "z" in totals else None
    cases = int(totals["sizes"][0])
    measured: dict[str, Measured] = {}
    if cases < MANY:
        rows = data.gather()
        for title, (name, options) in chosen.items():
            measured[title] = measure(name, rows, rows.y, rows.weights, options, replicates, seed)
        return ModelMeasurements(measured, data, test, cases, totals["cut"])
    for title, metric in sums.items():
        grouped_sums = GroupedSums(metric, totals[f"of {title}"], totals["sizes"], whole, seed)
        direct = metrics[title]
        exact = direct.compute_in_blocks(data) if isinstance(direct, DirectMetric) else None
        measured[title] = MeasuredMetric(
            chosen[title][0], metric, grouped_sums, replicates, value=exact
        )
    return ModelMeasurements(measured, data, test, cases, totals["cut"])


def measure_models(
    models: Iterable[tuple[object, UserData]],
    chosen: Mapping[str, tuple[str, Mapping[str, object]]],
    y: ArrayLike | None,
    weights: ArrayLike | None,
    replicates: int,
    seed: int,
    reading: Reading,
    groups: UserData,
) -> Iterator[ModelMeasurements]:
    """Measure metrics of models of the same rows, which may come in blocks, one after another.

    Each model comes with the name with which its errors begin, or with None.
    """
    read: list[PredictionBlocks] = []
    first = None
    # Multi-label metrics, and the log loss of log odds that are not clipped, read differently.
    readings = {title: reading_for(choice, reading) for title, choice in chosen.items()}
    for name, probs in models:
        with naming(name):
            data = as_predictions(probs, y, weights, reading)
        if groups is not None:
            data = in_clusters(data, groups, weights)
        if isinstance(data, PredictionBlocks):
            usual = {title: chosen[title] for title in chosen if readings[title] is reading}
            model = measure_blocks(usual, data, replicates, seed)
            for title, other in readings.items():
                if other is not reading:
                    part = {title: chosen[title]}, PredictionBlocks(data.blocks, other)
                    model.metrics.update(measure_blocks(*part, replicates, seed).metrics)
            read.append(data)
            first = model.cut if first is None else first
            if not np.array_equal(first, model.cut):
                raise ValueError(
                    "models must have the same rows cut into the same blocks to be compared"
                )
            yield model._replace(metrics={title: model.metrics[title] for title in chosen})
            continue
        metrics: dict[str, Measured] = {}
        for title, (metric, options) in chosen.items():
            rows = data
            if readings[title] is not reading:
                rows = as_predictions(probs, y, weights, readings[title])
                rows = rows._replace(clusters=data.clusters)
            metrics[title] = measure(metric, rows, y, weights, options, replicates, seed)
        yield ModelMeasurements(metrics, data)
    for data in read:
        data.blocks.finish()


def _sums_by_group(
    metrics: dict[str, SumMetric], seed: int, whole: bool, number: int, data: Predictions
) -> Sums:
    n = len(data.y)
    sizes = None
    sums: Sums = {}
    for title, metric in metrics.items():
        grouped_sums = GroupedSums.of(metric, data, seed, first=number * _ROWS, whole=whole)
        sums[f"of {title}"], sizes = grouped_sums.sums, grouped_sums.sizes
    weights = data.weights
    if data.y.ndim == 1:  # one label for each row
        sums["z"] = collect(Spiegelhalter(whole), data)
    return {
        **sums,
        "sizes": np.array([n, weights.sum(), weights @ weights]) if sizes is None else sizes,
        "fractions": np.asarray(np.count_nonzero(are_no_counts(weights))),
        # These sums differ for any other division into blocks.
        "cut": np.array([n, n * (number + 1), n * n * (number + 1)]),
    }
