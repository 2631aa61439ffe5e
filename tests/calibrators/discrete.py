"""Scores that take few values, with the label probabilities of each value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, softmax
from sklearn.tree import DecisionTreeClassifier


class Discrete(NamedTuple):
    """Score levels (c,) or (c, 3), their frequencies, and label probabilities (c, k).

    Every map can express the calibrated probabilities, so its default options find them up to the
    sampling error of the fit.
    """

    levels: np.ndarray
    shares: np.ndarray
    truth: np.ndarray

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw scores and labels of n rows."""
        rng = np.random.default_rng(seed)
        cell = rng.choice(len(self.shares), n, p=self.shares)
        y = (rng.random((n, 1)) > np.cumsum(self.truth[cell], axis=1)).sum(axis=1)
        return self.levels[cell], np.minimum(y, self.truth.shape[1] - 1)

    def loss(self, probs: np.ndarray) -> float:
        """Compute the expected log loss of probabilities (c, k) at the levels."""
        return float(-self.shares @ (self.truth * np.log(np.maximum(probs, 1e-300))).sum(axis=1))

    @property
    def best(self) -> float:
        """Expected log loss of the true probabilities."""
        return self.loss(np.where(self.truth > 0, self.truth, 1))


def binary(name: str) -> Discrete:
    """Return binary levels with log odds that are 1 / 0.6 times too large, or constant."""
    levels = {
        "constant": np.array([0.3]),
        "two levels": np.array([0.2, 0.8]),
        "zeros and ones": np.array([0.0, 1.0]),
        "tenths": np.arange(1, 10) / 10,
        "leaves": np.array([0.0, 1 / 7, 0.25, 0.4, 0.75, 11 / 12]),
    }[name]
    if name == "constant":
        positive = levels
    elif name == "zeros and ones":
        positive = np.array([0.1, 0.9])
    else:
        positive = expit(0.6 * logit(np.clip(levels, 0.02, 0.98)))
    shares = np.full(len(levels), 1 / len(levels))
    return Discrete(levels, shares, np.stack([1 - positive, positive], axis=1))


def several(name: str) -> Discrete:
    """Return levels of three classes."""
    if name == "constant":
        row = np.array([[0.3, 0.3, 0.4]])
        return Discrete(row, np.ones(1), row)
    if name == "one-hot":
        return Discrete(np.eye(3), np.full(3, 1 / 3), 0.85 * np.eye(3) + 0.05)
    if name == "two levels":
        p = np.array([[0.8, 0.1, 0.1], [0.1, 0.3, 0.6]])
    elif name == "tenths":
        grid = [(a, b, 10 - a - b) for a in range(1, 9) for b in range(1, 10 - a)]
        p = np.array(grid) / 10
    else:
        rng = np.random.default_rng(0)
        z = 2 * rng.normal(size=(400, 3))
        y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
        tree = DecisionTreeClassifier(max_leaf_nodes=12, random_state=0).fit(z, y)
        p = np.unique(np.maximum(tree.predict_proba(z), 0.01), axis=0)
        p /= p.sum(axis=1, keepdims=True)
    return Discrete(p, np.full(len(p), 1 / len(p)), softmax(0.6 * np.log(p), axis=1))


BINARY = ("constant", "two levels", "zeros and ones", "tenths", "leaves")
SEVERAL = ("constant", "one-hot", "two levels", "tenths", "leaves")


def add_rounding_errors(p: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add rounding errors of one unit in single precision, or up to five in double precision."""
    most, unit = (1, 2.0**-24) if p.dtype == np.float32 else (5, 2.0**-53)
    return np.clip(p + (rng.integers(-most, most + 1, len(p)) * unit).astype(p.dtype), 0, 1)
