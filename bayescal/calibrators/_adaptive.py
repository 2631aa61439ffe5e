"""Calibration error of the confidence in bins of equal mass, as an objective."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BINS = 15
#: Temperatures from 1/20 to 20.
_GRID = np.exp(np.linspace(np.log(1 / 20), np.log(20), 161))
_FINE = 21


def equal_mass_error(
    confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray, bins: int = BINS
) -> float:
    """Return the expected calibration error in bins of equal weight.

    Parameters
    ----------
    confidence, correct, weights : arrays of shape (n,)
        ``correct`` is one where the most probable class was right. Equal confidences share a bin,
        that of the middle of their weight, so that the order of rows does not matter.
    """
    # Rounding may not decide which confidences are equal.
    order = np.argsort(confidence, kind="stable")
    sorted_ = confidence[order]
    new = np.concatenate([[True], np.diff(sorted_) > 1e-12])
    group = np.cumsum(new) - 1
    mass = np.bincount(group, weights[order])
    gap = np.bincount(group, (weights * (confidence - correct))[order])
    total = mass.sum()
    middle = (np.cumsum(mass) - mass / 2) / total
    place = np.minimum((middle * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, gap)).sum() / total)


def best_inverse_temperature(
    logits: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> tuple[float, float]:
    """Return the inverse temperature with the least error, and this; of equal ones nearest to 1.

    The error jumps where rows change their bin: a grid of 161 temperatures from 1/20 to 20 is
    searched, then 21 between the neighbours of the best. O(n (k + log n)) for each.
    """
    with np.errstate(over="ignore"):
        below = np.subtract(logits, logits.max(axis=1, keepdims=True), dtype=float)
    below = np.ascontiguousarray(np.maximum(below, -np.finfo(float).max).T)
    correct = (below[y, np.arange(len(y))] == 0) & (below.argmax(axis=0) == y)

    def error(inverse: float) -> float:
        confidence = 1 / np.exp(below * inverse).sum(axis=0)
        return equal_mass_error(confidence, correct, weights)

    inverse, least = _least(error, _GRID)
    step = _GRID[1] / _GRID[0]
    fine = inverse * np.exp(np.linspace(-1, 1, _FINE) * np.log(step))
    return min((_least(error, fine), (inverse, least)), key=lambda pair: pair[1])


def _least(error: Callable[[float], float], grid: np.ndarray) -> tuple[float, float]:
    near = grid[np.argsort(np.abs(np.log(grid)), kind="stable")]
    errors = [error(float(inverse)) for inverse in near]
    best = int(np.argmin(errors))
    return float(near[best]), errors[best]
