"""Data sets of frozen cases: small, with fixed seeds and extreme rows to predict."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import logit, softmax

import bayescal as bc

Array = np.ndarray

BINARY = ("continuous", "tenths", "skewed")
SEVERAL = ("three", "one-hot", "ten")


class DataSet(NamedTuple):
    """Probabilities (n,) or (n, k), labels, fractional weights, and new rows to predict.

    With ten classes the scores are logits.
    """

    scores: Array
    labels: Array
    weights: Array
    new: Array

    @property
    def inputs(self) -> str:
        return "logits" if self.scores.ndim == 2 and self.scores.shape[1] == 10 else "probs"

    def in_blocks(self) -> bc.Blocks:
        """Return scores, labels and weights in blocks of 64 rows."""
        whole = self.scores, self.labels, self.weights
        starts = range(0, len(self.scores), 64)
        return bc.Blocks([tuple(values[i : i + 64] for values in whole) for i in starts])


@cache
def data_set(name: str) -> DataSet:
    """Return a data set by name, with read-only arrays."""
    made = _binary(name) if name in BINARY else _several(name)
    for array in made:
        array.flags.writeable = False
    return made


def logits_of(probs: Array) -> Array:
    """Return finite log odds, or finite logits of several classes."""
    with np.errstate(divide="ignore"):
        return np.clip(logit(probs) if probs.ndim == 1 else np.log(probs), -750, 750)


def _binary(name: str) -> DataSet:
    rng = np.random.default_rng(BINARY.index(name))
    middle = np.array([0.03, 0.21, 0.34, 0.5, 0.62, 0.77, 0.96])
    if name == "continuous":
        scores, power = rng.beta(0.9, 0.9, 150), 1.6
    elif name == "tenths":
        scores, power = rng.integers(0, 11, 150) / 10, 0.7
        middle = np.array([0.05, 0.1, 0.3, 0.45, 0.5, 0.7, 0.9])
    else:
        scores, power = rng.beta(0.4, 6, 150), 0.8
        middle = np.array([0.001, 0.004, 0.02, 0.06, 0.1, 0.25, 0.6])
    labels = (rng.random(150) < scores**power).astype(int)
    new = np.concatenate([[0, 1e-300, 1e-9], middle, [1 - 1e-12, 1]])
    return DataSet(scores, labels, rng.uniform(0.2, 2.5, 150), new)


def _several(name: str) -> DataSet:
    rng = np.random.default_rng(10 + SEVERAL.index(name))
    n, k = (400, 10) if name == "ten" else (180, 3)
    logits, new = 2 * rng.normal(size=(n, k)), 2 * rng.normal(size=(8, k))
    labels = np.argmax(0.6 * logits + 0.2 * np.arange(k) + rng.gumbel(size=(n, k)), axis=1)
    weights = rng.uniform(0.2, 2.5, n)
    if name == "ten":
        new = np.concatenate([new[:3], 40 * new[3:4], np.zeros((1, k))])
        return DataSet(logits, labels, weights, new)
    scores = softmax(logits, axis=1)
    corners = [[1, 0, 0], [0, 0.5, 0.5], [1e-300, 1e-9, 1 - 1e-9], [1 / 3, 1 / 3, 1 / 3]]
    if name == "three":
        labels = np.array(["bird", "cat", "dog"])[labels]
    else:
        certain = rng.random(n) < 0.6
        scores[certain] = np.eye(k)[scores[certain].argmax(axis=1)]
    return DataSet(scores, labels, weights, np.concatenate([corners, softmax(new, axis=1)]))
