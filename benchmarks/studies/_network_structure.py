"""How much of the classes' similarity the logits of a network show, as numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def similarity(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return correlations (k, k) of the classes' mean logits.

    Means are over the rows of a class, less the mean over classes, so that what all classes share
    counts for nothing.

    Examples
    --------
    >>> logits = np.array([[5.0, 4.0, 0.0, 0.0], [4.0, 5.0, 0.0, 0.0]])
    >>> logits = np.concatenate([logits, logits[:, ::-1]])
    >>> found = similarity(logits, np.array([0, 1, 3, 2]))
    >>> found[0].round(2).tolist()
    [1.0, 0.95, -0.98, -0.98]
    """
    k = logits.shape[1]
    means = np.stack([logits[labels == label].mean(axis=0) for label in range(k)]).astype(float)
    means -= means.mean(axis=0)
    means -= means.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    means /= np.where(norms > 0, norms, 1)
    return means @ means.T


def agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Return the correlation of two similarity matrices, of pairs of different classes.

    Examples
    --------
    >>> one = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> round(agreement(one, 2 * one), 6)
    1.0
    """
    above = np.triu_indices(len(one), 1)
    a, b = one[above] - one[above].mean(), other[above] - other[above].mean()
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norms) if norms > 0 else 0.0


def kept(own: Sequence[np.ndarray], plain: Sequence[np.ndarray]) -> np.ndarray:
    """Return how well each network's similarities agree with those of networks without smoothing.

    ``own`` and ``plain`` have a matrix for each seed. Networks of the same seed are not compared,
    so that for networks without smoothing this is how well they agree with each other: the most
    that can be expected. Of a single seed its two networks are compared.
    """
    pairs = [[j for j in range(len(plain)) if j != i] or [i] for i in range(len(own))]
    return np.array(
        [
            np.mean([agreement(mine, plain[j]) for j in others])
            for mine, others in zip(own, pairs, strict=True)
        ]
    )


def three_classes(alike: np.ndarray) -> tuple[int, int, int]:
    """Return the two classes that are most alike, and the one least like both."""
    pairs = np.where(np.eye(len(alike), dtype=bool), -np.inf, alike)
    one, other = (int(place) for place in np.unravel_index(pairs.argmax(), pairs.shape))
    both = np.maximum(alike[one], alike[other])
    return one, other, int(both.argmin())
