"""Folds for cross-validation."""

from __future__ import annotations

import numpy as np

_ROUNDING = 1e-8


def stratified_folds(y: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the fold (n,) of each row: classes are spread evenly, and so are their rests.

    There are at most n folds.
    """
    count = max(1, min(count, len(y)))
    rng = np.random.default_rng(seed)
    # Shuffled, then grouped by class: dealt out in turn.
    mixed = rng.permutation(len(y))
    order = mixed[np.argsort(y[mixed], kind="stable")]
    folds = np.empty(len(y), int)
    folds[order] = np.arange(len(y)) % count
    return rng.permutation(count)[folds]


def folds_by_content(scores: np.ndarray, y: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return folds (n,) that do not depend on the order of rows; equal rows share a fold.

    So a whole weight is the same as repeating its row. Rows count as equal up to rounding, or
    classifiers whose scores of a row vary with the rest of their batch would change the folds.
    """
    # Sums of each row on its own: equal rows have equal sums.
    key = (scores * np.sqrt(np.arange(1, scores.shape[1] + 1))).sum(axis=1)
    order = np.lexsort((key, y))
    rounding = _ROUNDING * (1 + np.abs(key[order][1:]))
    changed = ~(np.diff(key[order]) <= rounding) | (np.diff(y[order]) != 0)
    place = np.empty(len(y), int)
    place[order] = np.cumsum(np.concatenate([[0], changed]).astype(int))
    first = order[np.concatenate([[True], changed])]
    return stratified_folds(y[first], count, seed)[place]
