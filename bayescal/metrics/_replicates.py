"""Replicates of a bootstrap: what cases add to sums, times factors that are drawn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayescal.metrics._skce import KernelError
from bayescal.metrics.inputs import Predictions
from bayescal.metrics.sums import DirectMetric, Metric, SumMetric, collect_many

#: Numbers of some replicates that are held at once: 32 MiB.
_ELEMENTS = 1 << 22


def replicate(metric: Metric, data: Predictions, replicates: int, seed: int) -> np.ndarray:
    """Return the metric (replicates,) of cases that are drawn with replacement."""
    held = metric.rows * metric.cells if isinstance(metric, SumMetric) else 0
    # Pairs of cases are computed anew for each block.
    size = 4 * _ELEMENTS if isinstance(metric, KernelError) else _ELEMENTS
    drawn = resample(data, replicates, seed, size // max(len(data.y), held))
    if isinstance(metric, SumMetric):
        parts = (metric.values(collect_many(metric, base, factors)) for base, factors in drawn)
    else:
        assert isinstance(metric, DirectMetric)
        parts = (metric.compute_many(base, factors) for base, factors in drawn)
    return np.concatenate(list(parts))


def resample(
    data: Predictions, replicates: int, seed: int, at_once: int
) -> Iterator[tuple[Predictions, np.ndarray]]:
    """Yield predictions and factors (n, b) of their weights, for some replicates at a time.

    Whole weights are counts: then cases are drawn one by one, and otherwise rows.
    """
    rng = np.random.default_rng(seed)
    n = len(data.y)
    counts = data.weights.astype(int) if data.whole else np.ones(n, int)
    cases = np.repeat(np.arange(n), counts)
    single = len(cases) == n and bool((counts == 1).all())
    if data.whole:
        data = data._replace(weights=np.ones(n))
    at_once = max(1, at_once)
    for first in range(0, replicates, at_once):
        factors = np.empty((min(at_once, replicates - first), n))
        for own in factors:
            drawn = rng.integers(0, len(cases), len(cases))
            own[:] = np.bincount(drawn if single else cases[drawn], minlength=n)
        yield data, np.ascontiguousarray(factors.T)
