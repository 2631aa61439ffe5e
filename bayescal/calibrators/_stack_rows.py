"""Rows of a stack by what they hold: their folds, and some that stand for all."""

from __future__ import annotations

import numpy as np

from bayescal._core.folds import content_folds, hash_folds, key_hashes, score_keys
from bayescal._core.numerics import log_softmax
from bayescal.calibrators._fold_fits import threads
from bayescal.calibrators._posterior import row_blocks
from bayescal.calibrators._rows import rows_of_sample

#: So many rows say enough of them, and of the curvature.
_SOME_ROWS = 1250


def row_keys(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return keys (n,) of what rows hold, which permuting classes leaves alone."""
    logs = np.maximum(log_softmax(scores), -1e300)  # of which sums are finite
    own = logs[np.arange(len(logs)), y]
    sums = [logs.mean(axis=1), np.einsum("ij,ij->i", logs, np.exp(logs)), own]
    return score_keys(np.stack(sums, axis=1), np.full(len(own), 2))


def content_keys(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the same in blocks, in threads."""
    with threads(scores.size) as each:
        parts = row_blocks(len(y), scores.shape[1])
        return np.concatenate([*each(lambda part: row_keys(scores[part], y[part]), parts)])


def some_rows(keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return so many rows, or all, that stand for all, and their weights.

    By the order of their keys, whatever that of the rows, and whether a row is repeated, or weighs
    as much.
    """
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-np.inf))
    if len(starts) <= _SOME_ROWS:
        return order[starts], np.add.reduceat(weights[order], starts)
    total = np.cumsum(weights[order])
    share = total[-1] / _SOME_ROWS
    places = np.searchsorted(total, share * (np.arange(_SOME_ROWS) + 0.5))
    return order[places], np.full(_SOME_ROWS, share)


def some_of_many(hashes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that differ, of the lowest hashes, and the weights of all that equal each.

    Of rows in several parts they are found among those of each part.
    """
    _, first, place = np.unique(hashes, return_index=True, return_inverse=True)
    return first[:_SOME_ROWS], np.bincount(place, weights)[:_SOME_ROWS]


def choose_rows(
    keys: np.ndarray, k: int, weights: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return folds (n,) of rows of k classes, and rows that stand for all, with their weights."""
    n = len(keys)
    if n <= rows_of_sample(k):
        # Of classes' shares that all folds have, held-out rows would say too much.
        return content_folds(keys, np.zeros(n, int), count), *some_rows(keys, weights)
    # As with rows that come in blocks.
    hashes = key_hashes(keys)
    folds = np.unique(hash_folds(hashes, count), return_inverse=True)[1]
    some, counts = some_of_many(hashes, weights)
    return folds, some, counts * (weights.sum() / counts.sum())
