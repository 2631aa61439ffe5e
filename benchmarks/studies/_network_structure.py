"""Measure how well the logits of a network preserve the similarity of the classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def similarity(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the correlations (k, k) of the classes' mean logits.

    Means are over the rows of a class. The mean over classes is subtracted from them, so common
    parts of the logits have no effect.

    Examples
    --------
    >>> logits = np.array([[5.0, 4.0, 0.0, 0.0], [4.0, 5.0, 0.0, 0.0]])
    >>> logits = np.concatenate([logits, logits[:, ::-1]])
    >>> similarity(logits, np.array([0, 1, 3, 2]))[0].round(2).tolist()
    [1.0, 0.95, -0.98, -0.98]
    """
    k = logits.shape[1]
    means = np.stack([logits[labels == label].mean(axis=0) for label in range(k)]).astype(float)
    means -= means.mean(axis=0)
    means -= means.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    means /= np.where(norms > 0, norms, 1)
    return means @ means.T


def agreement(first: np.ndarray, second: np.ndarray) -> float:
    """Compute the correlation of two similarity matrices over pairs of different classes.

    Examples
    --------
    >>> one = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> round(agreement(one, 2 * one), 6)
    1.0
    """
    upper = np.triu_indices(len(first), 1)
    a, b = first[upper] - first[upper].mean(), second[upper] - second[upper].mean()
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norms) if norms > 0 else 0.0


def kept(
    similarities: Sequence[np.ndarray], plain_similarities: Sequence[np.ndarray]
) -> np.ndarray:
    """Compute the mean agreement of each network with networks without smoothing.

    Both arguments have a similarity matrix for each seed. Networks of the same seed are not
    compared. So for networks without smoothing, this is their agreement with each other, the upper
    bound that can be expected. With a single seed, its two networks are compared.
    """
    pairs = [
        [j for j in range(len(plain_similarities)) if j != i] or [i]
        for i in range(len(similarities))
    ]
    return np.array(
        [
            np.mean([agreement(matrix, plain_similarities[j]) for j in other_seeds])
            for matrix, other_seeds in zip(similarities, pairs, strict=True)
        ]
    )


def three_classes(alike: np.ndarray) -> tuple[int, int, int]:
    """Find the two most similar classes, and the class that is least similar to both."""
    pairs = np.where(np.eye(len(alike), dtype=bool), -np.inf, alike)
    first, second = (int(index) for index in np.unravel_index(pairs.argmax(), pairs.shape))
    similarity_to_pair = np.maximum(alike[first], alike[second])
    return first, second, int(similarity_to_pair.argmin())
