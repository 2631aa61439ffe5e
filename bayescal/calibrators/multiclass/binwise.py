"""Bins of the confidence, their calibration error, and softmax with a factor for each row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, device, namespace, search
from bayescal._core.binning import SINGLE, binned_error, border_ends, equal_mass_cuts
from bayescal._core.numerics import FLOOR, differences, softplus
from bayescal._core.shapes import Float, Int, Shaped
from bayescal.data.order.equal_mass import mass_sums
from bayescal.data.order.ranking import single_middles

#: Arrays by their axes.
PerRow: TypeAlias = 'Float[np.ndarray, " rows"]'

Binning = Literal["equal_mass", "equal_width"]
BINNINGS = ("equal_mass", "equal_width")
#: Levels that differ by less than this are equal.
SAME = 1e-12
#: Remaining confidence of uniform bins, so that the most probable class stays unique.
TRACE = 1e-9
#: Positive probabilities never fall below exp(-700), which is a normal number.
_LEAST_LOG_PROB = -700.0
#: Least logarithm of 1 - confidence for logits; for probabilities it is that of FLOOR.
_LEAST_LOG_REST = math.log(np.finfo(float).tiny)
BINS = 15
#: Temperatures from 1/20 to 20.
_GRID = np.exp(np.linspace(np.log(1 / 20), np.log(20), 161))
_FINE = 21


class TopClass(NamedTuple):
    """The most probable class of each row (n,), its probability, and its level for binning.

    ``level`` is the confidence for bins of equal width, and -log(1 - confidence) for bins of equal
    mass: networks are often so confident that only 1 - confidence distinguishes rows.
    """

    top: AnyArray
    confidence: AnyArray
    level: AnyArray


def top_class(probs: XArray, binning: Binning) -> TopClass:
    """Find the top class of rows of probabilities (n, k), up to a factor for each row."""
    xp = namespace(probs)
    top, largest = xp.argmax(probs, axis=1), xp.max(probs, axis=1)
    classes = xp.arange(probs.shape[1], device=device(probs))
    rest = xp.sum(xp.where(classes == top[:, None], 0.0, probs), axis=1)
    total = largest + rest
    confidence = largest / total
    if binning == "equal_width":
        return TopClass(top, confidence, confidence)
    return TopClass(top, confidence, -xp.log(xp.maximum(rest / total, FLOOR)))


def hits(top: Shaped[np.ndarray, "rows classes"], y: Int[np.ndarray, " rows"]) -> PerRow:
    """Compute how often the most probable class is the label: 1/m if it is one of m such classes.

    ``top`` marks these classes. The result does not depend on the order of the columns.
    """
    return top[np.arange(len(y)), y] / np.count_nonzero(top, axis=1)


def level_of_logits(below: XArray, binning: Binning) -> AnyArray:
    """Compute levels (n,) from logits (n, k) minus the largest of their row, of any size."""
    xp = namespace(below)
    if binning == "equal_width":
        return top_class(xp.exp(below), binning).level
    top, classes = xp.argmax(below, axis=1), xp.arange(below.shape[1], device=device(below))
    least = 2 * _LEAST_LOG_REST
    rest = xp.where(classes == top[:, None], least, xp.maximum(below, least))
    most = xp.max(rest, axis=1)
    log_rest = most + xp.log(xp.sum(xp.exp(rest - most[:, None]), axis=1))
    return softplus(-xp.maximum(log_rest, _LEAST_LOG_REST))


def find_bin(edges: AnyArray, level: AnyArray, binning: Binning) -> AnyArray:
    """Find the bin (m,) of each level.

    Confidences are computed, so those within rounding errors of single precision count as borders.
    """
    return search(border_ends(edges, 4 * SINGLE) if binning == "equal_width" else edges, level)


def bin_edges(
    level: PerRow, weights: PerRow, bins: int, binning: Binning
) -> Float[np.ndarray, " borders"]:
    """Compute the borders (b - 1,) of bins (lower, upper] of the level.

    There may be fewer bins of equal mass, because equal levels share a bin.
    """
    if binning == "equal_width":
        return np.arange(1, bins) / bins
    order = np.argsort(level, kind="stable")
    ascending = level[order]
    # Levels that differ only by rounding are equal.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(ascending) > SAME]))
    mass = np.concatenate([[0.0], np.cumsum(np.add.reduceat(weights[order], starts))])
    whole = bool((weights == np.floor(weights)).all())
    cuts = np.unique(equal_mass_cuts(mass, np.array([bins]), whole))
    cuts = cuts[(cuts > 0) & (cuts < len(starts))]
    return single_middles(ascending[starts[cuts] - 1], ascending[starts[cuts]])


def equal_mass_error(
    confidence: PerRow, correct: Shaped[np.ndarray, " rows"], weights: PerRow
) -> float:
    """Compute the calibration error in 15 bins of equal mass; ``correct`` are :func:`hits`."""
    return float(binned_error(confidence_sums(confidence, correct, weights), 1.0, np))


def confidence_sums(
    confidence: PerRow, correct: Shaped[np.ndarray, " rows"], weights: PerRow
) -> Float[np.ndarray, "3 bins"]:
    """Sum (3, 15) weights, confidences and correct rows over bins of equal mass."""
    whole = bool((weights == np.floor(weights)).all())
    return mass_sums(confidence, correct.astype(float), weights, BINS, whole)


def best_inverse_temperature(
    logits: Float[np.ndarray, "rows classes"], y: Int[np.ndarray, " rows"], weights: PerRow
) -> tuple[float, float]:
    """Find the inverse temperature with the smallest error, closest to 1 of equals; and its error.

    The error jumps if rows change their bins, so a grid of 161 temperatures from 1/20 to 20 is
    searched, and then 21 temperatures between the neighbors of the best.
    """
    below = differences(logits)
    correct = hits(below == 0, y)
    # Sort, so that rows that are permutations of each other have exactly equal confidences.
    below = np.ascontiguousarray(np.sort(below, axis=1).T)

    def error(inverse: float) -> float:
        confidence = 1 / np.exp(below * inverse).sum(axis=0)
        return equal_mass_error(confidence, correct, weights)

    inverse, least = _least(error, _GRID)
    step = _GRID[1] / _GRID[0]
    fine = inverse * np.exp(np.linspace(-1, 1, _FINE) * np.log(step))
    return min((_least(error, fine), (inverse, least)), key=lambda pair: pair[1])


def _least(error: Callable[[float], float], grid: np.ndarray) -> tuple[float, float]:
    candidates = grid[np.argsort(np.abs(np.log(grid)), kind="stable")]
    errors = [error(float(inverse)) for inverse in candidates]
    best = int(np.argmin(errors))
    return float(candidates[best]), errors[best]


def softmax_below(calibrated: XArray, below: XArray) -> XArray:
    """Compute probabilities (m, k) from calibrated logits minus the largest of their row.

    ``below`` are the original logits minus the largest of their row. Positive probabilities stay
    positive, and keep the ranking of ``below`` if the calibrated logits do.
    """
    xp = namespace(below)
    probs = xp.exp(xp.maximum(calibrated, xp.minimum(below, _LEAST_LOG_PROB)))
    return probs / xp.sum(probs, axis=1, keepdims=True)
