"""Structured fits to smoothed log probabilities: several blocks of parameters, each shrunk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bayescal._core.numerics import softmax
from bayescal.regression.softmax_objective import Design

#: Factors of probabilities, so that their coefficients are of the size of the others.
_PROBABILITY = 4.0
_MATRICES = "probability", "logarithm", "directions"


class Member(NamedTuple):
    """Strengths of the squared penalties of a fit; ``None`` leaves a block out.

    Of classes' intercepts and factors, of factors common to all classes, and of two matrices, by
    which probabilities and centered log probabilities add to the logits: a pair, of their diagonal
    and of what lies off it. Last, of a matrix for some main directions of centered log
    probabilities: their number, and the strength.
    """

    intercept: float
    diagonal: float
    shared: float | None = None
    probability: tuple[float, float] | None = None
    logarithm: tuple[float, float] | None = None
    directions: tuple[int, float] | None = None

    def width(self, k: int) -> int:
        """Return the number of features of each class, with the intercept."""
        return k * sum(self.blocks) + self.rank + 1

    def count(self, k: int) -> int:
        """Return the number of parameters for k classes."""
        return k * self.width(k) + k + (0 if self.shared is None else 4)

    def enlarge(self, theta: np.ndarray, old: Member, k: int) -> np.ndarray:
        """Return parameters that say the same as those of another member, as far as they can."""
        own, other = _split(theta, old, k), _split(np.zeros(self.count(k)), self, k)
        parts = {name: own.get(name, value) for name, value in other.items()}
        matrix = [parts[name] for name in _MATRICES if name in parts]
        flat = np.concatenate([*matrix, parts["intercept"]], axis=1).ravel()
        return np.concatenate([flat, parts["diagonal"], parts.get("shared", np.empty(0))])

    @property
    def blocks(self) -> tuple[bool, bool]:
        """Whether there are matrices of probabilities, and of their logarithms."""
        return self.probability is not None, self.logarithm is not None

    @property
    def rank(self) -> int:
        """The number of directions."""
        return 0 if self.directions is None else self.directions[0]


def smooth(
    scores: np.ndarray, inverse: float | np.ndarray, smoothing: float | np.ndarray
) -> np.ndarray:
    """Return log((1 - e) softmax(s z) + e / k); leading axes are those of s (..., 1, 1)."""
    probs = softmax(scores * inverse)
    probs *= 1 - smoothing
    probs += smoothing / scores.shape[1]
    return np.log(probs)


def main_directions(members: Iterable[Member], x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return as many main directions (k, r) of centered log probabilities as members ask for."""
    rank = max(member.rank for member in members)
    if not rank:
        return np.empty((x.shape[1], 0))
    x = _center(x)
    x = x - weights @ x / weights.sum()
    return np.linalg.eigh((x * weights[:, None]).T @ x)[1][:, ::-1][:, :rank]


def columns(
    member: Member, x: np.ndarray, basis: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return features (n, m), of which the last is one, and shared ones (n, 4) of logs (n, k)."""
    probs = np.exp(x)
    parts = []
    if member.probability is not None:
        parts.append(_PROBABILITY * probs)
    if member.logarithm is not None:
        parts.append(_center(x))
    if member.directions is not None:
        parts.append(_center(x) @ basis)
    features = np.concatenate([*parts, np.ones((len(x), 1))], axis=1)
    return features, None if member.shared is None else confidence_features(x, probs)


def _center(x: np.ndarray) -> np.ndarray:
    return x - x.mean(axis=1, keepdims=True)


def confidence_features(x: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Return what says how certain rows are (n, 4), about zero on average."""
    k = x.shape[1]
    top = np.partition(probs, k - 2, axis=1)[:, k - 2 :]
    most = top[:, 1]
    entropy = -np.einsum("ij,ij->i", probs, x) / np.log(k)
    return np.stack([most - 0.5, entropy - 0.3, most - top[:, 0] - 0.5, most**2 - 0.3], axis=1)


def make_design(
    member: Member, x: np.ndarray, y: np.ndarray, weights: np.ndarray, basis: np.ndarray
) -> Design:
    """Return what the logits of a fit depend on."""
    features, shared = columns(member, x, basis)
    return Design(x, y, weights, features, x, shared)


def penalties(member: Member, k: int) -> np.ndarray:
    """Return the strengths (p,) of theta**2 / 2 beside the sum of losses."""
    blocks = []
    for pair in (member.probability, member.logarithm):
        if pair is not None:
            block = np.full((k, k), pair[1] * k * (k - 1))
            np.fill_diagonal(block, pair[0] * k)
            blocks.append(block)
    if member.directions is not None:
        rank, strength = member.directions
        blocks.append(np.full((k, rank), strength * k * (k - 1)))
    matrix = np.concatenate([*blocks, np.full((k, 1), member.intercept * k)], axis=1)
    shared = [] if member.shared is None else [member.shared] * 4
    parts = [matrix.ravel(), np.full(k, member.diagonal * k), np.array(shared)]
    return 2.0 * np.concatenate(parts)


def change_many(member: Member, theta: np.ndarray, x: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return what each of many parameters (s, p) adds to its logits x: (s, n, k)."""
    count, n, k = x.shape
    features, shared = columns(member, x.reshape(-1, k), basis)
    width = features.shape[1]
    matrix = theta[:, : k * width].reshape(-1, k, width)
    factor = theta[:, None, k * width : k * width + k]
    if shared is not None:
        own = shared.reshape(count, n, -1) @ theta[:, k * width + k :, None]
        factor = factor + own
    return features.reshape(count, n, width) @ np.swapaxes(matrix, -1, -2) + x * factor


def _split(theta: np.ndarray, member: Member, k: int) -> dict[str, np.ndarray]:
    width = member.width(k)
    matrix, rest = theta[: k * width].reshape(k, width), theta[k * width :]
    parts = {"intercept": matrix[:, -1:], "diagonal": rest[:k]}
    first = 0
    for name, wide in zip(
        _MATRICES, (*(k * own for own in member.blocks), member.rank), strict=True
    ):
        if wide:
            parts[name] = matrix[:, first : first + wide]
            first += wide
    if member.shared is not None:
        parts["shared"] = rest[k:]
    return parts
