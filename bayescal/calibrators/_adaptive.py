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


def equal_mass_error(
    confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray, bins: int = BINS
) -> float:
    """Return the expected calibration error in bins of equal mass, as ``bayescal.metrics`` does.

    Parameters
    ----------
    confidence, correct, weights : arrays of shape (n,)
        ``correct`` is one where the most probable class was right.
    """
    whole = bool((weights == np.floor(weights)).all())
    sums = equal_mass_sums(confidence, correct.astype(float), weights, bins, whole, np)
    return float(binned_error(sums, 1, np))


def best_inverse_temperature(
    logits: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> tuple[float, float]:
    """Return the inverse temperature with the least error, and this; of equal ones nearest to 1.

    The error jumps where rows change their bin: a grid of 161 temperatures from 1/20 to 20 is
    searched, then 21 between the neighbours of the best. O(n (k + log n)) for each.
    """
    below = np.ascontiguousarray(differences(logits).T)
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
