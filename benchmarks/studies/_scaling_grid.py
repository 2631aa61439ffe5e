"""Grid searches for the temperature or the weight with the least calibration error."""

from __future__ import annotations

import numpy as np

from bayescal._core.binning import equal_width_cell

#: Temperatures of the networks that the paper reuses, and all percentages with one decimal.
TEMPERATURES = np.arange(1, 101) / 10
WEIGHTS = np.arange(1, 1001) / 1000
#: Errors that differ by less are equal.
_ROUNDING_ERROR = 1e-12


def confidence_errors(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> np.ndarray:
    """Compute the calibration errors (g,) of confidences (g, n), in bins of equal width.

    Bins are (lower, upper]; ``correct`` (n,) marks correctly predicted rows.

    Examples
    --------
    >>> confidence_errors(np.array([[0.6, 0.9], [0.5, 1.0]]), np.array([False, True]))
    array([0.35, 0.25])
    """
    cells = equal_width_cell(confidence, bins, np) + bins * np.arange(len(confidence))[:, None]
    gaps = np.bincount(cells.ravel(), (correct - confidence).ravel(), bins * len(confidence))
    return np.abs(gaps).reshape(-1, bins).sum(axis=1) / confidence.shape[1]


def best_temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """Find the temperature with the least error on logits (n, k); in ties, the closest to 1.

    Examples
    --------
    >>> best_temperature(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))
    1.8
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    confidence = np.stack([1 / np.exp(shifted / t).sum(axis=1) for t in TEMPERATURES])
    errors = confidence_errors(confidence, logits.argmax(axis=1) == y)
    return _closest_to_one(TEMPERATURES, errors)


def best_weight(probs: np.ndarray, y: np.ndarray) -> float:
    """Find the weight of probabilities (n, k) with the least error; in ties, the largest.

    Examples
    --------
    >>> best_weight(np.array([[0.9, 0.1]] * 4), np.array([0, 0, 0, 1]))
    0.625
    """
    alpha = WEIGHTS[:, None]
    confidence = alpha * probs.max(axis=1) + (1 - alpha) / probs.shape[1]
    return _closest_to_one(WEIGHTS, confidence_errors(confidence, probs.argmax(axis=1) == y))


def scaled_by_weight(probs: np.ndarray, alpha: float) -> np.ndarray:
    """Mix probabilities (n, k) with uniform ones."""
    return alpha * probs + (1 - alpha) / probs.shape[1]


def _closest_to_one(values: np.ndarray, errors: np.ndarray) -> float:
    best = values[errors <= errors.min() + _ROUNDING_ERROR]
    return float(best[np.abs(np.log(best)).argmin()])
