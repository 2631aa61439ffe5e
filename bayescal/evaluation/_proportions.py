"""Calibration in the large: mean probabilities of classes against their frequencies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.numerics import skewed_tail
from bayescal._core.shapes import Float
from bayescal.data.membership import sum_test
from bayescal.data.predictions import Predictions
from bayescal.metrics import CalibrationTest

#: Numbers in a block of rows.
_BLOCK = 1 << 16


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
        z, p = _test_sums(excess, variance, third, total)
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


def _test_sums(
    excess: np.ndarray, variance: np.ndarray, third: np.ndarray, total: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute z and p-values of classes; outcomes have the given third central moments."""
    # The variance of a class that is certain in all rows is zero up to rounding.
    certain = variance <= 1e-24 * total
    error = np.sqrt(np.where(certain, 1, variance))
    z, skewness = excess / error, -np.sign(excess) * third / error**3
    p = np.minimum(2 * skewed_tail(np.abs(z), skewness), 1)
    wrong = np.abs(excess) > 1e-12 * total
    z = np.where(certain, np.where(wrong, np.copysign(np.inf, excess), 0), z)
    return z, np.where(certain, ~wrong, p)
