"""Multi-class rows for calibrators that apply a binary calibrator per class or pair."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

Array = np.ndarray


def rows(n: int, k: int = 4, seed: int = 0) -> tuple[Array, Array]:
    """Draw over-confident probabilities and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 2
    drawn = (rng.random((n, 1)) > np.cumsum(softmax(logits / 2, axis=1), axis=1)).sum(axis=1)
    return softmax(logits, axis=1), np.minimum(drawn, k - 1)


P, Y = rows(300)
AT, _ = rows(40, seed=1)
