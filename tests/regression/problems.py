"""Small logistic and softmax regression problems, with losses by definition."""

from typing import Any

import numpy as np
from scipy.special import expit, log_softmax

from bayescal.regression.softmax.objective import Design

Array = np.ndarray
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


def make_rows(n: int, d: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Draw features of different scales, labels and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * rng.uniform(0.3, 3, d) + rng.normal(size=d)
    t = (rng.random(n) < expit(1.5 * (x[:, 0] - x[:, 0].mean()) - 0.3)).astype(float)
    return x, t, rng.uniform(0.1, 2.0, n)


def loss(beta: Array, x: Array, t: Array, w: Array, l2: Any = 0.0, l1: float = 0.0) -> float:
    line = beta[0] + x @ beta[1:]
    # Without a penalty, squared coefficients may overflow.
    squares = 0.5 * np.sum(l2 * beta[1:] ** 2) if np.any(l2) else 0.0
    return float(w @ (np.logaddexp(0, line) - t * line) + l1 * np.abs(beta[1:]).sum() + squares)


def slope(beta: Array, x: Array, t: Array, w: Array, l2: Any = 0.0) -> Array:
    """Compute the gradient of the smooth part of the loss."""
    residual = w * (expit(beta[0] + x @ beta[1:]) - t)
    return np.concatenate([[residual.sum()], x.T @ residual + l2 * beta[1:]])
