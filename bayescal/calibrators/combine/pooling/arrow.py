"""Arrowhead matrices: Hessians and covariances of effects, with one grouping eliminated.

A row has one level of each grouping. Two levels of a grouping never share a row, so their entry in
the Hessian is zero. The effects of the largest grouping are eliminated level by level, and only the
Schur complement of the kept effects is a dense matrix: a grouping of ten thousand levels costs no
more than its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, lapack

from bayescal._core.shapes import Float

#: Inverts a matrix from its Cholesky factor; the other triangle is undefined.
_invert = lapack.dpotri  # pyright: ignore[reportAttributeAccessIssue]


class EffectBlock(NamedTuple):
    """Effects of one kind: the offsets, or the slopes, of the levels of a grouping."""

    grouping: int
    slope: bool
    effects: slice
    #: Position among the standard deviations, or -1 if the prior is fixed.
    tau: int


@dataclass
class EffectLayout:
    """Positions of effects: the eliminated ones, of ``grouping``, and the kept ones.

    The kinds of ``eliminated`` (levels, kinds) are the offset of a level and, if the grouping has
    one, its slope. ``starts`` (kept blocks,) are positions among ``kept`` (effects,).
    ``positions`` are, for each block, whether it is eliminated, and its kind or its start.
    """

    blocks: list[EffectBlock]
    grouping: int
    eliminated: np.ndarray = field(init=False)
    kept: np.ndarray = field(init=False)
    starts: np.ndarray = field(init=False)
    positions: list[tuple[bool, int]] = field(init=False)

    def __post_init__(self) -> None:
        every = [np.arange(block.effects.start, block.effects.stop) for block in self.blocks]
        numbers = range(len(self.blocks))
        inner = [number for number in numbers if self.blocks[number].grouping == self.grouping]
        outer = [number for number in numbers if number not in inner]
        self.eliminated = np.stack([every[number] for number in inner], axis=1)
        self.kept = np.concatenate([every[number] for number in outer])
        self.starts = np.cumsum([0, *(len(every[number]) for number in outer[:-1])])
        self.positions = [
            (True, inner.index(number))
            if number in inner
            else (False, int(self.starts[outer.index(number)]))
            for number in numbers
        ]
        order = [*inner, *outer]
        learned = [index for index, block in enumerate(self.blocks) if block.tau >= 0]
        self._learned = [order.index(index) for index in learned]

    @property
    def by_grouping(self) -> dict[tuple[int, bool], EffectBlock]:
        """The offsets (False) and the slopes (True) of each grouping; 0 stands for all rows."""
        return {block[:2]: block for block in self.blocks}

    @property
    def length(self) -> int:
        return self.blocks[-1].effects.stop

    def join(self, eliminated: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Lay out eliminated effects (levels, kinds) and kept ones as one vector."""
        both = np.empty(self.length)
        both[self.eliminated], both[self.kept] = eliminated, kept
        return both

    def sum_by_block(self, values: np.ndarray) -> np.ndarray:
        """Sum values (effects,) by learned block."""
        sums = np.add.reduceat(values, [block.effects.start for block in self.blocks])
        return sums[[block.tau >= 0 for block in self.blocks]]

    def sum_by_blocks(self, sums: np.ndarray, border: np.ndarray, corner: np.ndarray) -> np.ndarray:
        """Sum entries by pairs of learned blocks; ``sums`` are the sums of eliminated pairs."""
        rows = np.add.reduceat(border.sum(axis=0), self.starts, axis=1)
        columns = np.add.reduceat(np.add.reduceat(corner, self.starts, axis=0), self.starts, axis=1)
        return np.block([[sums, rows], [rows.T, columns]])[np.ix_(self._learned, self._learned)]


def count_effects(blocks: Sequence[EffectBlock]) -> dict[int, int]:
    """Count the effects of each grouping except that of all rows."""
    counts: dict[int, int] = {}
    for block in blocks:
        if block.tau >= 0:
            size = block.effects.stop - block.effects.start
            counts[block.grouping] = counts.get(block.grouping, 0) + size
    return counts


class Arrow(NamedTuple):
    """A symmetric matrix of effects, without its entries between different eliminated levels.

    A Hessian is zero between eliminated levels; these entries of a covariance are never needed.
    """

    blocks: Float[np.ndarray, "levels kinds kinds"]
    border: Float[np.ndarray, "levels kinds kept"]
    corner: Float[np.ndarray, "kept kept"]

    @classmethod
    def from_dense(cls, layout: EffectLayout, matrix: np.ndarray) -> Arrow:
        """Take the entries of a square matrix."""
        eliminated, kept = layout.eliminated, layout.kept
        return cls(
            matrix[eliminated[:, :, None], eliminated[:, None]],
            matrix[eliminated[:, :, None], kept],
            matrix[np.ix_(kept, kept)],
        )

    def diagonal(self, layout: EffectLayout) -> Float[np.ndarray, " effects"]:
        return layout.join(np.diagonal(self.blocks, axis1=1, axis2=2), np.diag(self.corner))

    def times(
        self, layout: EffectLayout, vector: Float[np.ndarray, " effects"]
    ) -> Float[np.ndarray, " effects"]:
        """Multiply a matrix that is zero between eliminated levels by a vector."""
        eliminated, kept = vector[layout.eliminated], vector[layout.kept]
        top = (self.blocks @ eliminated[:, :, None])[:, :, 0] + self.border @ kept
        return layout.join(top, np.tensordot(eliminated, self.border, axes=2) + self.corner @ kept)

    def entries(
        self, layout: EffectLayout, first: int, second: int, codes: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Look up the entries of two blocks, by position, for the levels of each cell."""
        (eliminated, at), (other_eliminated, to) = layout.positions[first], layout.positions[second]
        if eliminated and other_eliminated:
            return self.blocks[codes[0], at, to]
        if eliminated:
            return self.border[codes[0], at, to + codes[1]]
        if other_eliminated:
            return self.border[codes[1], to, at + codes[0]]
        return self.corner[at + codes[0], to + codes[1]]


@dataclass
class Factor:
    """The inverse of a Hessian plus the prior precisions, whose inverse roots are ``deviation``.

    Deviations may be as small as 1e-4, so I + D H D is factorized.
    """

    layout: EffectLayout
    hessian: Arrow
    deviation: np.ndarray

    def __post_init__(self) -> None:
        blocks, border, corner = self.hessian
        scale, rest = self.deviation[self.layout.eliminated], self.deviation[self.layout.kept]
        inner = scale[:, :, None] * blocks * scale[:, None] + np.eye(scale.shape[1])
        inverse = np.linalg.inv(inner)
        #: The posterior covariance of a level's effects given the kept effects.
        self.conditional = scale[:, :, None] * inverse * scale[:, None]
        #: (I + H V)^-1 within levels, where V are prior variances.
        self.shrink = inverse / scale[:, :, None] * scale[:, None]
        #: Decrease of eliminated effects per unit increase of kept effects.
        self.coefficients = self.conditional @ border
        #: The Hessian of kept effects, after integrating out the eliminated effects.
        self.schur = corner - np.tensordot(border, self.coefficients, axes=([0, 1], [0, 1]))
        outer = rest[:, None] * self.schur * rest
        outer[np.diag_indices(len(outer))] += 1
        self.lower = cholesky(outer, lower=True, overwrite_a=True, check_finite=False)
        half = 0.5 * float(np.log(np.linalg.det(inner)).sum())
        #: Half the logarithm of the determinant of I + D H D.
        self.half_log_det = half + float(np.log(np.diag(self.lower)).sum())

    def solve(self, vector: Float[np.ndarray, " effects"]) -> Float[np.ndarray, " effects"]:
        eliminated, kept = vector[self.layout.eliminated], vector[self.layout.kept]
        rest = self.deviation[self.layout.kept]
        alone = (self.conditional @ eliminated[:, :, None])[:, :, 0]
        right = kept - np.tensordot(eliminated, self.coefficients, axes=2)
        right = rest * cho_solve((self.lower, True), rest * right, check_finite=False)
        return self.layout.join(alone - self.coefficients @ right, right)

    def solve_eliminated(self, vector: np.ndarray) -> np.ndarray:
        """Multiply the inverse, given the kept effects, by a vector; kept entries are zero."""
        eliminated = vector[self.layout.eliminated]
        alone = (self.conditional @ eliminated[:, :, None])[:, :, 0]
        return self.layout.join(alone, np.zeros(len(self.layout.kept)))

    @cached_property
    def inner_inverse(self) -> np.ndarray:
        """Return (I + D S D)^-1 of kept effects, where S is the Schur complement."""
        lower = np.tril(_invert(self.lower, lower=True)[0])
        return lower + np.tril(lower, -1).T

    @property
    def covariance(self) -> Arrow:
        rest = self.deviation[self.layout.kept]
        corner = rest[:, None] * self.inner_inverse * rest
        border = -self.coefficients @ corner
        return Arrow(self.conditional - border @ self.coefficients.swapaxes(1, 2), border, corner)
