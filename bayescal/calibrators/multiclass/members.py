"""Structured fits to smoothed log probabilities: several blocks of parameters, each shrunk."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.arrays import device, matmul, namespace
from bayescal._core.numerics import scaled_softmax
from bayescal.regression.softmax.objective import Design, logit_update, split

#: Factors of probabilities, so that their coefficients are of the size of the others.
_PROBABILITY = 4.0


class Member(NamedTuple):
    """Strengths of the squared penalties of a fit; ``None`` leaves a block out.

    Of classes' intercepts and factors, of factors common to all classes, and of two matrices, by
    which probabilities and centered log probabilities add to the logits: a pair, of their diagonal
    and of what lies off it. Last, of a matrix for some main directions of centered log
    probabilities, in the place of these.
    """

    intercept: float
    diagonal: float
    shared: float | None = None
    probability: tuple[float, float] | None = None
    logarithm: tuple[float, float] | None = None
    directions: float | None = None

    def sizes(self, k: int, rank: int) -> tuple[int, int, int, int]:
        """Return the numbers of classes, features, factors and shared parameters."""
        wide = k * (self.logarithm is not None) + rank * (self.directions is not None)
        m = k * (self.probability is not None) + 1 + wide
        return k, m, k, 0 if self.shared is None else 4

    def length(self, k: int, rank: int) -> int:
        """Return the number of parameters."""
        _, m, d, r = self.sizes(k, rank)
        return k * m + d + r


class Layout(NamedTuple):
    """Features that are made for a stack, of which each member takes a range.

    These are one, before it k probabilities, if any member has them, and behind it the logarithms
    or the directions.
    """

    k: int
    probability: bool
    logarithm: bool
    rank: int

    @property
    def first(self) -> int:
        """The number of probabilities, and the place of the one."""
        return self.k * self.probability

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Return those of a member that takes all features."""
        return self.k, self.first + 1 + (self.k if self.logarithm else self.rank), self.k, 4

    @property
    def length(self) -> int:
        """The number of its parameters."""
        k, m, d, r = self.sizes
        return k * m + d + r

    def places(self, member: Member) -> np.ndarray:
        """Return where the parameters of a member stand among those for all features."""
        every = split(np.arange(self.length), self.sizes)
        shared = every.shared[: member.sizes(self.k, self.rank)[3]]
        return np.concatenate([every.matrix[:, self.part(member)].ravel(), every.diagonal, shared])

    def part(self, member: Member) -> slice:
        """Return the range of a member's features."""
        start = 0 if member.probability is not None else self.first
        behind = member.logarithm is not None or member.directions is not None
        return slice(start, None if behind else self.first + 1)


def smooth(scores: Any, inverse: Any, smoothing: Any) -> Any:
    """Return log((1 - e) softmax(s z) + e / k); leading axes are those of s (..., 1, 1)."""
    probs = scaled_softmax(scores, inverse)
    return namespace(probs).log(probs * (1 - smoothing) + smoothing / scores.shape[-1])


def main_directions(x: Any, rank: int) -> Any:
    """Return about so many main directions (k, r) of centered log probabilities (n, k).

    By two rounds of subspace iteration, O(n k r) each. It starts from combinations of the rows,
    so that a permutation of the classes permutes the directions.
    """
    xp = namespace(x)
    x = x - x.mean(axis=1, keepdims=True)
    x = x - x.mean(axis=0)
    n, k = x.shape
    rank = min(rank, n - 1, k - 1)
    rng = np.random.default_rng(0)
    basis = matmul(x.T, rng.standard_normal((n, rank + 10)).astype(x.dtype))
    for _ in range(2):
        basis = matmul(x.T, matmul(x, xp.linalg.qr(basis)[0]))
    basis = xp.linalg.qr(basis)[0]
    turn = xp.linalg.svd(matmul(x, basis), full_matrices=False)[2]
    return matmul(basis, turn[:rank].T)


def feature_rows(x: np.ndarray, probs: np.ndarray, layout: Layout, basis: np.ndarray) -> np.ndarray:
    """Return features (m, n) of log probabilities and probabilities (k, n)."""
    first = layout.first
    rows = np.empty((layout.sizes[1], x.shape[1]), x.dtype)
    if first:
        np.multiply(probs, _PROBABILITY, out=rows[:first])
    rows[first] = 1
    if layout.logarithm:
        np.subtract(x, x.mean(axis=0), out=rows[first + 1 :])
    elif layout.rank:
        # Directions are centered themselves.
        np.matmul(basis.T, x, out=rows[first + 1 :])
    return rows


def confidence_rows(x: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """Return what says how certain rows are (4, n), about zero on average."""
    best, row = probs.argmax(axis=0), np.arange(probs.shape[1])
    most = probs[best, row]
    probs[best, row] = 0
    second = probs.max(axis=0)
    probs[best, row] = most
    entropy = -np.einsum("ij,ij->j", probs, x) / np.log(len(x))
    return np.stack([most - 0.5, entropy - 0.3, most - second - 0.5, most**2 - 0.3])


def make_design(
    member: Member, x: np.ndarray, y: np.ndarray, weights: np.ndarray, basis: np.ndarray
) -> Design:
    """Return what the logits of a fit depend on."""
    x = np.ascontiguousarray(x.T)
    probs = np.exp(x)
    rank = basis.shape[1] if member.directions is not None else 0
    layout = Layout(len(x), member.probability is not None, member.logarithm is not None, rank)
    rows = feature_rows(x, probs, layout, basis)
    shared = None if member.shared is None else confidence_rows(x, probs).T
    return Design(x.T, y, weights, rows.T, x.T, shared)


def penalties(member: Member, k: int, rank: int) -> np.ndarray:
    """Return the strengths (p,) of theta**2 / 2 beside the sum of losses."""

    def square(pair: tuple[float, float]) -> np.ndarray:
        block = np.full((k, k), pair[1] * k * (k - 1))
        np.fill_diagonal(block, pair[0] * k)
        return block

    blocks = [] if member.probability is None else [square(member.probability)]
    blocks.append(np.full((k, 1), member.intercept * k))
    if member.logarithm is not None:
        blocks.append(square(member.logarithm))
    if member.directions is not None:
        blocks.append(np.full((k, rank), member.directions * k * (k - 1)))
    shared = [] if member.shared is None else [member.shared] * 4
    matrix = np.concatenate(blocks, axis=1).ravel()
    return 2.0 * np.concatenate([matrix, np.full(k, member.diagonal * k), shared])


def member_logits(member: Member, theta: Any, x: Any, basis: Any) -> Any:
    """Return the logits of a member at log probabilities x (n, k), or, by draws (s, p), (s, n, k).

    For arrays of any library.
    """
    k, rank = basis.shape
    own = Layout(
        k,
        member.probability is not None,
        member.logarithm is not None,
        rank if member.directions is not None else 0,
    )
    features, shared = make_features(x, own, basis, member.shared is not None)
    design = Design(x, x[..., 0], x[..., 0], features, x, shared)
    return x + logit_update(design, theta, member.sizes(k, rank))


def make_features(x: Any, layout: Layout, basis: Any, confidence: bool = True) -> tuple[Any, Any]:
    """Return features (..., n, m) at log probabilities (..., n, k), and the confidence (..., n, 4).

    For arrays of any library; as :func:`feature_rows` and :func:`confidence_rows`.
    """
    xp, probs = namespace(x), namespace(x).exp(x)
    features = [_PROBABILITY * probs] if layout.probability else []
    features.append(xp.ones_like(x[..., :1]))
    if layout.logarithm:
        features.append(x - xp.mean(x, axis=-1, keepdims=True))
    elif layout.rank:
        features.append(matmul(x, basis))
    shared = None
    if confidence:
        most = xp.max(probs, axis=-1)
        top = xp.argmax(probs, axis=-1)[..., None] == xp.arange(layout.k, device=device(x))
        second = xp.max(xp.where(top, 0.0, probs), axis=-1)
        entropy = -xp.sum(probs * x, axis=-1) / math.log(layout.k)
        parts = [most - 0.5, entropy - 0.3, most - second - 0.5, most**2 - 0.3]
        shared = xp.stack(parts, axis=-1)
    return xp.concat(features, axis=-1), shared
