"""Small softmax regression problems of every kind."""

import numpy as np
from scipy.special import log_softmax

from bayescal.regression.softmax.objective import Design

KINDS = ["vector", "matrix", "everything"]


def make_design(n: int, k: int, seed: int, kind: str = "matrix") -> Design:
    """Draw over-confident logits, labels from better ones, and weights, as a design of a kind."""
    rng = np.random.default_rng(seed)
    x = log_softmax(3 * rng.normal(size=(n, k)), axis=1)
    better = x * rng.uniform(0.2, 0.8, k) + 0.3 * rng.normal(size=k)
    y = np.argmax(better + rng.gumbel(size=(n, k)), axis=1)
    weights = rng.uniform(0.5, 2, n)
    ones = np.ones((n, 1))
    if kind == "vector":
        return Design(x, y, weights, ones, x)
    if kind == "matrix":
        return Design(x, y, weights, np.concatenate([x, ones], axis=1))
    probs = np.exp(x)
    shared = np.stack([probs.max(axis=1) - 0.5, -(probs * x).sum(axis=1) / np.log(k)], axis=1)
    return Design(x, y, weights, np.concatenate([probs, ones], axis=1), x, shared)


def size(design: Design) -> int:
    k, m, d, r = design.sizes
    return k * m + d + r


def even_folds(y: np.ndarray, folds: int) -> np.ndarray:
    """Return the fold (n,) of each row, with classes spread evenly over the folds."""
    order = np.random.default_rng(0).permutation(len(y))
    fold = np.empty(len(y), int)
    fold[order[np.argsort(y[order], kind="stable")]] = np.arange(len(y)) % folds
    return fold
