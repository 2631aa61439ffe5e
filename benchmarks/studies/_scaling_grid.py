"""One temperature, or one weight, by a grid search for the least calibration error."""

from __future__ import annotations

import numpy as np

from bayescal._core.binning import equal_width_cell

#: Those of the networks that the paper took over, and all percentages with one decimal.
TEMPERATURES = np.arange(1, 101) / 10
WEIGHTS = np.arange(1, 1001) / 1000
#: Errors that differ by less are equal.
_SAME = 1e-12


def confidence_errors(confidence: np.ndarray, right: np.ndarray, bins: int = 15) -> np.ndarray:
    """Return the calibration errors (g,) of confidences (g, n), in bins of equal width.

    Bins are (lower, upper]; ``right`` (n,) says which rows were predicted correctly.

    Examples
    --------
    >>> confidence_errors(np.array([[0.6, 0.9], [0.5, 1.0]]), np.array([False, True]))
    array([0.35, 0.25])
    """
    cells = equal_width_cell(confidence, bins, np) + bins * np.arange(len(confidence))[:, None]
    gaps = np.bincount(cells.ravel(), (right - confidence).ravel(), bins * len(confidence))
    return np.abs(gaps).reshape(-1, bins).sum(axis=1) / confidence.shape[1]


def best_temperature(logits: np.ndarray, y: np.ndarray) -> float:
    """Return the temperature with the least error on logits (n, k); the closest to 1 if several.

    Examples
    --------
    >>> best_temperature(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))
    1.8
    """
    below = logits - logits.max(axis=1, keepdims=True)
    confidence = np.stack([1 / np.exp(below / t).sum(axis=1) for t in TEMPERATURES])
    found = confidence_errors(confidence, logits.argmax(axis=1) == y)
    return _closest_to_one(TEMPERATURES, found)


def best_weight(probs: np.ndarray, y: np.ndarray) -> float:
    """Return the weight of probabilities (n, k) with the least error; the largest if several.

    Examples
    --------
    >>> best_weight(np.array([[0.9, 0.1]] * 4), np.array([0, 0, 0, 1]))
    0.625
    """
    alpha = WEIGHTS[:, None]
    confidence = alpha * probs.max(axis=1) + (1 - alpha) / probs.shape[1]
    return _closest_to_one(WEIGHTS, confidence_errors(confidence, probs.argmax(axis=1) == y))


def scaled_by_weight(probs: np.ndarray, alpha: float) -> np.ndarray:
    """Return a mixture of probabilities (n, k) and equal ones."""
    return alpha * probs + (1 - alpha) / probs.shape[1]


def _closest_to_one(values: np.ndarray, errors: np.ndarray) -> float:
    best = values[errors <= errors.min() + _SAME]
    return float(best[np.abs(np.log(best)).argmin()])
