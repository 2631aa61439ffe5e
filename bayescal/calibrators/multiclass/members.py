"""Structured fits to smoothed log probabilities, with several penalized blocks of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, device, matmul, namespace
from bayescal._core.numerics import scaled_softmax
from bayescal._core.shapes import Float, Int
from bayescal.calibrators.multiclass.basis import (
    Basis,
    Dimensions,
    kernel_feature_rows,
    kernel_features,
)
from bayescal.regression.softmax.objective import Design, Sizes, logit_update, split

#: Factor of probabilities as features, which gives all coefficients similar sizes.
_PROBABILITY = 4.0


class Member(NamedTuple):
    """Strengths of the squared penalties of a fit; ``None`` omits a block.

    The blocks are intercepts and factors of classes, factors shared by all classes, and matrices
    that multiply probabilities or centered log probabilities (with strengths of their diagonal and
    off-diagonal), main directions of centered log probabilities, or kernel features.
    """

    intercept: float
    diagonal: float
    shared: float | None = None
    probability: tuple[float, float] | None = None
    logarithm: tuple[float, float] | None = None
    directions: float | None = None
    kernel: float | None = None

    def sizes(self, dimensions: Dimensions) -> Sizes:
        """Return the numbers of classes, features, factors and shared parameters."""
        k, rank, kernel = dimensions
        wide = k * (self.logarithm is not None) + rank * (self.directions is not None)
        wide += kernel * (self.kernel is not None)
        m = k * (self.probability is not None) + 1 + wide
        return k, m, k, 0 if self.shared is None else 4

    def length(self, dimensions: Dimensions) -> int:
        """Return the number of parameters."""
        k, m, d, r = self.sizes(dimensions)
        return k * m + d + r


class Layout(NamedTuple):
    """Features of a stack; each member uses a range of them.

    They are k probabilities (if used), the constant one, logarithms or directions, kernel features.
    """

    k: int
    probability: bool
    logarithm: bool
    rank: int
    kernel: int = 0

    @classmethod
    def of(cls, members: Sequence[Member], dimensions: Dimensions) -> Layout:
        """Choose the features that members use."""
        k, rank, kernel = dimensions
        return cls(
            k,
            any(member.probability is not None for member in members),
            any(member.logarithm is not None for member in members),
            rank if any(member.directions is not None for member in members) else 0,
            kernel if any(member.kernel is not None for member in members) else 0,
        )

    @property
    def dimensions(self) -> Dimensions:
        """The numbers of classes, of directions and of kernel features."""
        return Dimensions(self.k, self.rank, self.kernel)

    @property
    def first(self) -> int:
        """The number of probabilities, which is the index of the constant feature."""
        return self.k * self.probability

    @property
    def last(self) -> int:
        """The number of features before those of the kernel."""
        return self.first + 1 + (self.k if self.logarithm else self.rank)

    @property
    def sizes(self) -> Sizes:
        """The sizes of a member that uses all features."""
        return self.k, self.last + self.kernel, self.k, 4

    @property
    def length(self) -> int:
        """The number of parameters of a member that uses all features."""
        k, m, d, r = self.sizes
        return k * m + d + r

    def columns(self, member: Member) -> Int[np.ndarray, " parameters"]:
        """Return the indices of a member's parameters among those for all features."""
        indices = split(np.arange(self.length), self.sizes)
        shared = indices.shared[: member.sizes(self.dimensions)[3]]
        return np.concatenate(
            [indices.matrix[:, self.part(member)].ravel(), indices.diagonal, shared]
        )

    def part(self, member: Member) -> slice:
        """Return the range of a member's features."""
        start = 0 if member.probability is not None else self.first
        if member.kernel is not None:
            return slice(start, self.last + self.kernel)
        behind = member.logarithm is not None or member.directions is not None
        return slice(start, self.last if behind else self.first + 1)


def smooth(scores: AnyArray, inverse: AnyArray, smoothing: AnyArray) -> AnyArray:
    """Compute log((1 - e) softmax(s z) + e / k); leading axes are those of s (..., 1, 1)."""
    probs = scaled_softmax(scores, inverse)
    return namespace(probs).log(probs * (1 - smoothing) + smoothing / scores.shape[-1])


def feature_rows(
    x: Float[np.ndarray, "classes rows"],
    probs: Float[np.ndarray, "classes rows"],
    layout: Layout,
    basis: Basis,
) -> Float[np.ndarray, "features rows"]:
    """Compute features (m, n) from log probabilities and probabilities (k, n)."""
    first = layout.first
    rows = np.empty((layout.sizes[1], x.shape[1]), x.dtype)
    if first:
        np.multiply(probs, _PROBABILITY, out=rows[:first])
    rows[first] = 1
    if layout.logarithm:
        np.subtract(x, x.mean(axis=0), out=rows[first + 1 : layout.last])
    elif layout.rank:
        # The directions are centered.
        np.matmul(basis.directions.T, x, out=rows[first + 1 : layout.last])
    if layout.kernel:
        kernel_feature_rows(x, basis, rows[layout.last :])
    return rows


def confidence_rows(
    x: Float[np.ndarray, "classes rows"], probs: Float[np.ndarray, "classes rows"]
) -> Float[np.ndarray, "4 rows"]:
    """Compute four measures of the confidence of rows (4, n), which are about zero on average."""
    best, row = probs.argmax(axis=0), np.arange(probs.shape[1])
    largest = probs[best, row]
    probs[best, row] = 0
    second = probs.max(axis=0)
    probs[best, row] = largest
    entropy = -np.einsum("ij,ij->j", probs, x) / np.log(len(x))
    return np.stack([largest - 0.5, entropy - 0.3, largest - second - 0.5, largest**2 - 0.3])


def make_design(
    member: Member,
    x: Float[np.ndarray, "rows classes"],
    y: Int[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
    basis: Basis,
) -> Design:
    """Make the design of a member's regression."""
    x = np.ascontiguousarray(x.T)
    probs = np.exp(x)
    rows = feature_rows(x, probs, Layout.of([member], basis.dimensions), basis)
    shared = None if member.shared is None else confidence_rows(x, probs).T
    return Design(x.T, y, weights, rows.T, x.T, shared)


def penalties(member: Member, dimensions: Dimensions) -> Float[np.ndarray, " parameters"]:
    """Compute the strengths (p,) of theta**2 / 2 relative to the sum of losses."""
    k, rank, kernel = dimensions

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
    if member.kernel is not None:
        blocks.append(np.full((k, kernel), member.kernel))
    shared = [] if member.shared is None else [member.shared] * 4
    matrix = np.concatenate(blocks, axis=1).ravel()
    return 2.0 * np.concatenate([matrix, np.full(k, member.diagonal * k), shared])


def member_logits(member: Member, theta: np.ndarray, x: np.ndarray, basis: Basis) -> AnyArray:
    """Compute a member's logits (n, k); for draws (s, p), (s, n, k)."""
    layout = Layout.of([member], basis.dimensions)
    features, shared = make_features(x, layout, basis, member.shared is not None)
    design = Design(x, x[..., 0], x[..., 0], features, x, shared)
    return x + logit_update(design, theta, member.sizes(basis.dimensions))


def make_features(
    x: XArray, layout: Layout, basis: Basis, confidence: bool = True
) -> tuple[AnyArray, AnyArray]:
    """Compute features (..., n, m) and confidences (..., n, 4), with arrays of any library."""
    xp, probs = namespace(x), namespace(x).exp(x)
    features = [_PROBABILITY * probs] if layout.probability else []
    features.append(xp.ones_like(x[..., :1]))
    if layout.logarithm:
        features.append(x - xp.mean(x, axis=-1, keepdims=True))
    elif layout.rank:
        features.append(matmul(x, basis.directions))
    if layout.kernel:
        features.append(kernel_features(x, basis))
    shared = None
    if confidence:
        largest = xp.max(probs, axis=-1)
        top = xp.argmax(probs, axis=-1)[..., None] == xp.arange(layout.k, device=device(x))
        second = xp.max(xp.where(top, 0.0, probs), axis=-1)
        entropy = -xp.sum(probs * x, axis=-1) / math.log(layout.k)
        parts = [largest - 0.5, entropy - 0.3, largest - second - 0.5, largest**2 - 0.3]
        shared = xp.stack(parts, axis=-1)
    return xp.concat(features, axis=-1), shared
