"""Folds for cross-validation that depend on what rows hold, not on where they stand."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal._core.arrays import matmul, namespace
from bayescal._core.numerics import FLOOR

#: Of keys: rows nearer than this count as equal, since a classifier's scores of one row may vary in
#: their last digits with the rest of its batch.
_ROUNDING = 1e-8


def content_folds(key: np.ndarray, y: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Return the fold (n,) of each row: classes are spread evenly, and so are their remainders.

    Rows of equal key and label share a fold, so that a whole weight is the same as repeating the
    row; neither the order of rows matters nor which class is called what. There are at most as many
    folds as distinct rows, numbered from 0, and ``count`` at most. The key (n,) is one number for
    the content of each row, from :func:`score_keys`, :func:`probability_keys` or
    :func:`feature_keys`; labels (n,) are what folds are stratified by. O(n log n). Classes are
    taken in the order of the mean key of their distinct rows.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([0, 1, 0, 1, 1])
    >>> folds = content_folds(np.array([0.1, 0.5, 0.1, 0.7, 0.9]), y, 2)
    >>> bool(folds[0] == folds[2]), sorted(set(folds.tolist()))
    (True, [0, 1])
    """
    order = np.lexsort((key, y))
    ordered, labels = key[order], y[order]
    unit = min(1.0, float(np.abs(key).max(initial=0)))
    apart = ~(np.diff(ordered) <= _ROUNDING * (unit + np.abs(ordered[1:])))
    new = np.concatenate([[True], apart | (np.diff(labels) != 0)])
    place = np.empty(len(y), int)
    place[order] = np.cumsum(new) - 1
    distinct, label = ordered[new], labels[new]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(label) != 0]))
    ends = np.append(starts[1:], len(label))
    center = np.add.reduceat(distinct, starts) / (ends - starts)
    rng = np.random.default_rng(seed)
    # Dealt out in turn, each class from where the one before ended.
    dealt = np.concatenate(
        [
            starts[c] + rng.permutation(ends[c] - starts[c])
            for c in np.argsort(center, kind="stable")
        ]
    )
    folds = np.empty(len(label), int)
    folds[dealt] = np.arange(len(label)) % max(1, min(count, len(label)))
    return folds[place]


def key_hashes(key: np.ndarray) -> np.ndarray:
    """Return a number (n,) for each key, as if drawn evenly from 64 bits; equal keys share it.

    By it rows that are too many to be sorted, or are not all at hand, are put into folds, or some
    of them chosen, still by what they hold.
    """
    bits = np.round(np.arcsinh(key) / _ROUNDING).astype(np.int64).view(np.uint64)
    # The finalizer of SplitMix64.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


def hash_folds(hashes: np.ndarray, count: int) -> np.ndarray:
    """Return folds (n,) from hashes, of which some may be empty."""
    return (hashes % np.uint64(count)).astype(int)


def score_keys(scores: Any, y: Any) -> Any:
    """Return keys (n,) of scores (n, k), or of log odds (n,), which permuting classes leaves alone.

    A key is a combination of the row's sorted scores and of that of its own label. Scores are
    NumPy's or JAX's.
    """
    xp = namespace(scores)
    if scores.ndim == 1:
        scores = xp.stack([-scores, scores], axis=1) / 2
    k = scores.shape[1]
    scores = _bounded(scores)
    own = scores[np.arange(len(y)), y]
    return matmul(xp.sort(scores, axis=1), np.sqrt(np.arange(1, k + 1))) + np.pi * own


def probability_keys(probs: Any, y: Any) -> Any:
    """Return keys (n,) of probabilities (n, k): of logarithms, which tell confident rows apart."""
    xp = namespace(probs)
    return score_keys(xp.log(xp.maximum(probs, FLOOR)), y)


def feature_keys(x: np.ndarray) -> np.ndarray:
    """Return keys (n,) of features (n, d), each in units of its greatest size."""
    size = np.abs(x).max(axis=0, initial=0)
    scaled = _bounded(x) / np.where(size > 0, size, 1.0)
    return scaled @ np.sqrt(np.arange(1, x.shape[1] + 1))


def _bounded(values: Any) -> Any:
    return namespace(values).clip(values.astype(float, copy=False), -1e150, 1e150)
