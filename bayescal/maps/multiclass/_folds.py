"""Folds for cross-validation, and classes that the labels lack."""

from __future__ import annotations

import numpy as np


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
