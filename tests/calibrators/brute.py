"""Plain reference implementations for the tests of neighborhood calibrators."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal.data.folds.deal import fold_scores


def mean_and_ends(calibrator: Any, state: Any, at: np.ndarray, level: float) -> list[np.ndarray]:
    """Compute means over draws and interval ends."""
    ends = np.moveaxis(calibrator._ends(state, at, level), 1, 0)
    return [calibrator.apply(state, at), *ends]


def example(
    n: int, k: int, seed: int = 0, digits: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw probabilities (rounded, so that rows are tied), labels and weights."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.6), n)
    if digits is not None:
        p = np.round(p * digits) + 1
        p /= p.sum(axis=1, keepdims=True)
    blurred = 0.7 * p + 0.3 / k
    y = (blurred.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return p, y, rng.uniform(0.2, 3, n)


def crop_and_normalize(p: np.ndarray, mean: np.ndarray, assumption: str, crop: float) -> np.ndarray:
    """Crop and normalize one row."""
    moved = mean if assumption == "labels" else p - mean
    inside = np.array([min(max(value, crop), 1 - crop) for value in moved])
    return inside / inside.sum()


def target_values(p: np.ndarray, y: np.ndarray, assumption: str) -> np.ndarray:
    labels = np.eye(p.shape[1])[y]
    return labels if assumption == "labels" else p - labels


def log_loss(p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average(-np.log(p[np.arange(len(y)), y]), weights=weights))


def split_into_folds(
    p: np.ndarray, y: np.ndarray, weights: np.ndarray, count: int = 10
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Split rows into folds with ``fold_scores``, and return the parts with their folds."""
    folds = fold_scores(p, y, weights, count, probabilities=True)
    return (*folds.take(p, y), folds.fold)
