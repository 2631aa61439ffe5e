"""Bins of the confidence, its calibration error, and softmax with a factor for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import device, namespace, search
from bayescal._core.binning import (
    SINGLE,
    binned_error,
    border_ends,
    equal_mass_cuts,
)
from bayescal._core.numerics import differences
from bayescal.data.order.equal_mass import mass_sums
from bayescal.data.order.ranking import single_middles

Binning = Literal["equal_mass", "equal_width"]
BINNINGS = ("equal_mass", "equal_width")
#: Levels that differ by less are equal.
SAME = 1e-12
#: Where a bin is to be uniform this is left, so that the most probable class stays the only one.
TRACE = 1e-9
#: What positive probabilities are never pushed below: exp(-700) is a normal number.
_LEAST = -700.0
BINS = 15
#: Temperatures from 1/20 to 20.
_GRID = np.exp(np.linspace(np.log(1 / 20), np.log(20), 161))
_FINE = 21


class TopClass(NamedTuple):
    """Of each row (n,) the most probable class, its probability, and what bins are made of.

    ``level`` is the confidence for bins of equal width, and -log(1 - confidence) for bins of equal
    mass: networks are often so confident that only what is left to one tells rows apart.
    """

    top: Any
    confidence: Any
    level: Any


def top_class(shares: Any, binning: Binning) -> TopClass:
    """Return the top class of rows of probabilities (n, k), which may lack a common factor."""
    xp, tiny = namespace(shares), float(namespace(shares).finfo(shares.dtype).smallest_normal)
    top, own = xp.argmax(shares, axis=1), xp.max(shares, axis=1)
    classes = xp.arange(shares.shape[1], device=device(shares))
    rest = xp.sum(xp.where(classes == top[:, None], 0.0, shares), axis=1)
    total = own + rest
    confidence = own / total
    if binning == "equal_width":
        return TopClass(top, confidence, confidence)
    return TopClass(top, confidence, -xp.log(xp.maximum(rest / total, tiny)))


def find_bin(edges: Any, level: Any, binning: Binning) -> Any:
    """Return the bin (m,) of each level.

    Confidences are computed: within rounding of single precision they lie on a border.
    """
    return search(border_ends(edges, 4 * SINGLE) if binning == "equal_width" else edges, level)


def bin_edges(level: np.ndarray, weights: np.ndarray, bins: int, binning: Binning) -> np.ndarray:
    """Return the borders (b - 1,) of bins (lower, upper] of the level.

    Bins of equal width divide [0, 1]. Bins of equal mass hold about equal weight; equal
    levels stay together, so that there may be fewer bins. Borders lie half-way between the
    levels on either side.
    """
    if binning == "equal_width":
        return np.arange(1, bins) / bins
    order = np.argsort(level, kind="stable")
    ascending = level[order]
    # Rounding may not decide which levels are equal.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(ascending) > SAME]))
    mass = np.concatenate([[0.0], np.cumsum(np.add.reduceat(weights[order], starts))])
    whole = bool((weights == np.floor(weights)).all())
    cuts = np.unique(equal_mass_cuts(mass, np.array([bins]), whole))
    cuts = cuts[(cuts > 0) & (cuts < len(starts))]
    return single_middles(ascending[starts[cuts] - 1], ascending[starts[cuts]])


def equal_mass_error(confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray) -> float:
    """Return the calibration error in 15 bins of equal mass, as ``metrics.ece`` reports it.

    ``correct`` (n,) is one where the most probable class was right.
    """
    return float(binned_error(confidence_sums(confidence, correct, weights), 1.0, np))


def confidence_sums(confidence: np.ndarray, correct: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sums (3, 15) of weights, confidences and hits over bins of equal mass."""
    whole = bool((weights == np.floor(weights)).all())
    return mass_sums(confidence, correct.astype(float), weights, BINS, whole)


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


def softmax_below(calibrated: Any, below: Any) -> Any:
    """Return probabilities (m, k) of logits below their row's greatest.

    ``below`` are the given logits. Probabilities that were positive stay so: they are not pushed
    below exp(-700), or below what they were if that is less. Rows of ``calibrated`` in the order
    of ``below`` keep it.
    """
    xp = namespace(below)
    probs = xp.exp(xp.maximum(calibrated, xp.minimum(below, _LEAST)))
    return probs / xp.sum(probs, axis=1, keepdims=True)
