"""Folds for cross-validation, dealt out by what rows hold."""

from __future__ import annotations

import numpy as np

#: Rows count as equal if their keys differ by less, of one and of their size.
_ROUNDING = 1e-8


def content_folds(
    scores: np.ndarray,
    y: np.ndarray,
    count: int,
    seed: int = 0,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return the fold of each row, stratified by class, from what rows hold alone.

    Equal rows share a fold, so a whole weight is the same as repeating its row, and a weight of
    zero the same as leaving it out. The order of rows does not matter, nor does that of the
    classes, if columns are permuted with them. Rows count as equal up to rounding, or classifiers
    whose scores of a row vary with the rest of their batch would change the folds.

    Parameters
    ----------
    scores : array of shape (n,) or (n, k)
        Several columns are those of the classes; one column is any score. Log probabilities part
        rows better than probabilities beside 0 and 1 do.
    y : array of int of shape (n,)
        Classes, or other strata.
    count : int
        Number of folds; at most as many as distinct rows are used.
    seed : int
        Decides which distinct rows of a class are put together.
    weights : array of shape (n,), optional
        Only tells which rows count.

    Returns
    -------
    array of int of shape (n,)
        From 0 to the number of folds less one, each used by some row that counts.

    Notes
    -----
    A row is known by its score for its own class and by its scores in ascending order. The distinct
    ones of a class are shuffled and dealt out in turn, each class from where the one before ended:
    numbers of distinct rows differ by one at most, for each class and altogether. Time O(n log n).

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([0.1, 0.2, 0.7, 0.9, 0.2])
    >>> folds = content_folds(scores, np.array([0, 0, 1, 1, 0]), 2)
    >>> bool(folds[1] == folds[4]), bool(folds[0] != folds[1]), bool(folds[2] != folds[3])
    (True, True, True)
    """
    used = np.arange(len(y)) if weights is None else np.flatnonzero(np.asarray(weights) > 0)
    folds = np.zeros(len(y), int)
    if not len(used):
        return folds
    labels = np.unique(y[used], return_inverse=True)[1].ravel()
    key = _key(scores[used], np.asarray(y)[used])
    order = np.lexsort((key, labels))
    rounding = _ROUNDING * (1 + np.abs(key[order][1:]))
    # NaN and infinities are apart from all.
    with np.errstate(invalid="ignore"):
        apart = ~(np.diff(key[order]) <= rounding)
    new = np.concatenate([[True], apart | (np.diff(labels[order]) != 0)])
    place = np.empty(len(used), int)
    place[order] = np.cumsum(new) - 1
    first = order[new]
    folds[used] = _deal(labels[first], key[first], count, seed)[place]
    return folds


def _key(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a number (n,) for each row that does not depend on the order of the columns."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        return scores.reshape(len(y)).astype(float)
    k = scores.shape[1]
    ranked = np.sort(scores.astype(float), axis=1)
    own = 0.0
    if y.dtype.kind in "iub" and 0 <= y.min() and y.max() < k:
        own = np.take_along_axis(scores, y.astype(np.intp)[:, None], axis=1)[:, 0].astype(float)
    # Sums of each row on its own: equal rows have equal sums.
    return (ranked * np.sqrt(np.arange(2, k + 2))).sum(axis=1) + own * np.sqrt(k + 2)


def _deal(labels: np.ndarray, key: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return folds of distinct rows, which are sorted by label and by key."""
    start = np.flatnonzero(np.concatenate([[True], np.diff(labels) != 0]))
    size = np.diff(np.append(start, len(labels)))
    total = np.add.reduceat(key, start)
    count = max(1, min(count, len(labels)))
    folds, dealt = np.empty(len(labels), int), 0
    # Classes in an order that does not depend on their numbers.
    for which in np.lexsort((total, size)):
        # Each class with a generator of its own, or its rows would depend on the others.
        own = int(size[which])
        mixed = np.random.default_rng(seed).permutation(own)
        folds[start[which] + mixed] = (dealt + np.arange(own)) % count
        dealt += own
    return folds
