"""Rows in blocks, and means over draws of what calibrators predict for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bayescal._core.blocks import slices

#: Numbers held at once.
_BLOCK = 1 << 20


def row_blocks(m: int, width: int) -> list[slice]:
    """Return slices of m rows of so many numbers each, of about a million numbers."""
    return slices(m, max(1, _BLOCK // width))


def summarize_draws(
    curves: Callable[[np.ndarray], np.ndarray], scores: np.ndarray, draws: int, level: float | None
) -> np.ndarray:
    """Return means of probabilities over draws (1, m, k); with a level also the ends (3, m, k).

    ``curves`` takes some of the rows of scores and returns their probabilities (draws, b, k), so
    that there are never draws * m * k numbers. Between the ends is a central interval.
    """
    found = []
    for part in row_blocks(len(scores), draws * max(2, scores[:1].size)):
        probs = curves(scores[part])
        parts = [probs.mean(axis=0)]
        if level is not None:
            parts.extend(np.quantile(probs, ((1 - level) / 2, (1 + level) / 2), axis=0))
        found.append(parts)
    return np.concatenate(found, axis=1)
