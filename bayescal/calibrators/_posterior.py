"""Rows in blocks, and means over draws of what calibrators predict for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

#: Numbers held at once.
_BLOCK = 1 << 20


def row_blocks(m: int, width: int) -> Iterator[slice]:
    """Return slices of m rows of so many numbers each, of about a million numbers."""
    step = max(1, _BLOCK // width)
    return (slice(first, first + step) for first in range(0, m, step))


def summarize_draws(
    curves: Callable[[np.ndarray], np.ndarray],
    scores: np.ndarray,
    k: int,
    draws: int,
    level: float | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, lower and upper ends (m, k) of probabilities over draws.

    Without a level the ends are empty. Streamed over rows: never draws * m * k numbers.

    Parameters
    ----------
    curves : callable
        Takes some of the rows (b,) or (b, c) and returns probabilities (draws, b, k).
    scores : array of shape (m,) or (m, c)
    k, draws : int
    level : float or None
        Posterior probability of the central interval between the ends.
    """
    m = len(scores)
    mean, ends = np.empty((m, k)), np.empty((2, m if level is not None else 0, k))
    for part in row_blocks(m, k * draws):
        probs = curves(scores[part])
        mean[part] = probs.mean(axis=0)
        if level is not None:
            tails = (1 - level) / 2, (1 + level) / 2
            ends[:, part] = np.quantile(probs, tails, axis=0)
    return mean, ends[0], ends[1]
