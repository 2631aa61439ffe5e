"""Replicates of a bootstrap: resampled rows, as random factors of their weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayescal._core.random.keys import generator
from bayescal.data.predictions import Predictions, as_rows
from bayescal.metrics.kernels.skce import KernelError
from bayescal.metrics.sums import DirectMetric, Metric, SumMetric, collect_many, compute

#: Numbers of replicates that are computed at once: 32 MiB.
_ELEMENTS = 1 << 22
#: Number of rows, as counted by weights, up to which they are drawn one by one.
_CASES = 1 << 16
#: Probabilities in memory at once; sets of labels from which chance is estimated.
_PROBS, _SETS = 1 << 20, 64


def replicate(metric: Metric, data: Predictions, replicates: int, seed: int) -> np.ndarray:
    """Compute the metric (replicates,) of rows drawn with replacement."""
    held = metric.rows * metric.cells if isinstance(metric, SumMetric) else 0
    # Pairs of rows are computed anew for each block.
    size = 4 * _ELEMENTS if isinstance(metric, KernelError) else _ELEMENTS
    drawn = resample(data, replicates, seed, size // max(len(data.y), held))
    return np.concatenate([of_factors(metric, *batch) for batch in drawn])


def of_factors(metric: Metric, data: Predictions, factors: np.ndarray) -> np.ndarray:
    """Compute the metric (b,) for factors (n, b) of the weights."""
    if isinstance(metric, SumMetric):
        return metric.values(collect_many(metric, data, factors))
    assert isinstance(metric, DirectMetric)
    return metric.compute_many(data, factors)


def resample(
    data: Predictions, replicates: int, seed: int, at_once: int
) -> Iterator[tuple[Predictions, np.ndarray]]:
    """Yield predictions and factors (n, b) of their weights, for some replicates at a time.

    Integer weights are counts: then repetitions of rows are drawn one by one. Where rows lie in
    clusters, whole clusters are drawn.
    """
    rng, at_once = generator(seed), max(1, at_once)
    n, clusters, weights = len(data.y), data.clusters, data.weights
    whole = data.whole
    if whole:
        data = data._replace(weights=np.ones(n))
    counts = weights.astype(int) if whole else np.ones(n, int)
    total = int(counts.sum())
    cases = np.repeat(np.arange(n), counts) if n < total < _CASES else None
    for first in range(0, replicates, at_once):
        size = min(at_once, replicates - first)
        if clusters is not None:
            number = int(clusters.max()) + 1
            drawn = rng.integers(0, number, (size, number))
            times = np.stack([np.bincount(draw, minlength=number) for draw in drawn], axis=1)
            factors = times[clusters].astype(float)
            yield data, factors * weights[:, None] if whole else factors
            continue
        factors = np.empty((size, n))
        for row in factors:
            if total >= max(n + 1, _CASES):
                row[:] = rng.multinomial(total, counts / total)
                continue
            drawn = rng.integers(0, total, total)
            row[:] = np.bincount(drawn if cases is None else cases[drawn], minlength=n)
        yield data, np.ascontiguousarray(factors.T)


def error_by_chance(metric: Metric, data: Predictions, seed: int) -> float:
    """Compute the size of an error by chance alone, given the size of the residuals.

    It is the root mean square of errors of labels drawn from the predictions, times the root of the
    ratio of the sum of squared residuals to its expectation, or one if that is less: residuals are
    small where no rare event happened.
    """
    if data.whole:
        # Some repetitions of very large counts are drawn together, which overestimates chance.
        max_copies = max(1, _CASES // len(data.y))
        copies = np.minimum(data.weights, max_copies).astype(int)
        cases = np.repeat(np.arange(len(copies)), copies)
        shares = (data.weights / copies)[cases]
        data = data.part(cases)._replace(weights=shares)
    rng = generator(seed)
    drawn = [compute(metric, data._replace(y=draw_labels(data, rng))) for _ in range(_SETS)]
    probs, y = data.probs, data.y
    if y.ndim == probs.ndim:
        squares = (probs - y) ** 2
    else:
        squares = (probs**2).sum(axis=1) - 2 * probs[np.arange(len(y)), y] + 1
    expected = float(np.sum(data.weights @ (probs * (1 - probs))))
    ratio = max(float(np.sum(data.weights @ squares)), 0.0) / expected if expected > 0 else 1.0
    return float(np.sqrt(np.mean(np.square(drawn)) * max(ratio, 1.0)))


def redraw(data: Predictions, rng: np.random.Generator) -> Predictions:
    """Draw labels from the predictions.

    Integer weights are counts: each row becomes one row for each class drawn, with its count.
    """
    if not data.whole or data.weights.max() == 1:
        return data._replace(y=draw_labels(data, rng))
    rows = as_rows(data.probs)
    shares = rows / rows.sum(axis=1, keepdims=True)
    counts = rng.multinomial(data.weights.astype(int), shares)
    case, labels = np.nonzero(counts)
    weights = counts[case, labels].astype(float)
    return data.part(case)._replace(y=labels, weights=weights)


def draw_labels(data: Predictions, rng: np.random.Generator) -> np.ndarray:
    """Draw labels, (n,) or multi-label (n, l), from the predictions."""
    uniform = rng.random(data.y.shape)
    if data.y.ndim == data.probs.ndim:
        return (uniform < data.probs).astype(data.y.dtype)
    labels = np.empty_like(data.y)
    step = max(1, _PROBS // data.probs.shape[1])
    for first in range(0, len(labels), step):
        part = slice(first, first + step)
        sums = np.cumsum(data.probs[part], axis=1)
        labels[part] = (uniform[part, None] * sums[:, -1:] >= sums[:, :-1]).sum(axis=1)
    return labels
