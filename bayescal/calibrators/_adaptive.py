"""Calibration error of the confidence in bins of equal mass, as an objective."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayescal._core.binning import binned_error, equal_mass_sums
from bayescal._core.numerics import differences

BINS = 15
#: Temperatures from 1/20 to 20.
_GRID = np.exp(np.linspace(np.log(1 / 20), np.log(20), 161))
_FINE = 21


def equal_mass_error(confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray) -> float:
    """Return the calibration error in 15 bins of equal mass, as ``metrics.ece`` reports it.

    Parameters
    ----------
    confidence, correct, weights : arrays of shape (n,)
        ``correct`` is one where the most probable class was right.
    """
    return float(binned_error(confidence_sums(confidence, correct, weights), 1.0, np))


def confidence_sums(confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sums (3, 15) of weights, confidences and hits over bins of equal mass."""
    whole = bool((weights == np.floor(weights)).all())
    return np.asarray(equal_mass_sums(confidence, correct.astype(float), weights, BINS, whole, np))


def best_inverse_temperature(
    logits: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> tuple[float, float]:
    """Return the inverse temperature with the least error, and this; of equal ones nearest to 1.

    The error jumps where rows change their bin: a grid of 161 temperatures from 1/20 to 20 is
    searched, then 21 between the neighbors of the best. O(n (k + log n)) for each.
    """
    below = differences(logits)
    correct = below.argmax(axis=1) == y
    # Sorted, so that rounding does not tell rows apart that differ by their classes only.
    below = np.ascontiguousarray(np.sort(below, axis=1).T)

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
