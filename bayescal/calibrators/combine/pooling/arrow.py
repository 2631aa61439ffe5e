"""Hessians and covariances of effects: the levels of the largest grouping meet only the others.

A row has one level of each grouping. Two levels of the same one never share a row, so that their
entry in the Hessian is zero. The effects of the largest grouping, its *own* ones here, are
eliminated level by level, and only the Schur complement of the others is a dense matrix: a grouping
of ten thousand levels costs no more than its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, lapack

#: Inverts a matrix from its factor of Cholesky; the other triangle is undefined.
_invert = lapack.dpotri  # pyright: ignore[reportAttributeAccessIssue]


class Block(NamedTuple):
    """Effects of one kind: those of the levels of a grouping, on the offset or on the slope."""

    grouping: int
    slope: bool
    effects: slice
    #: Its place among standard deviations, or -1 where the prior is fixed.
    tau: int


@dataclass
class Layout:
    """Where the effects of blocks are: ``own`` (levels, kinds) of one grouping, and others.

    The kinds are the offset of a level and, if the grouping has one, its slope. ``starts`` (other
    blocks,) are places among the others. ``places`` say of each block whether it is an own one, and
    its kind, or its start.
    """

    blocks: list[Block]
    grouping: int
    own: np.ndarray = field(init=False)
    others: np.ndarray = field(init=False)
    starts: np.ndarray = field(init=False)
    places: list[tuple[bool, int]] = field(init=False)

    def __post_init__(self) -> None:
        every = [np.arange(block.effects.start, block.effects.stop) for block in self.blocks]
        numbers = range(len(self.blocks))
        mine = [number for number in numbers if self.blocks[number].grouping == self.grouping]
        rest = [number for number in numbers if number not in mine]
        self.own = np.stack([every[number] for number in mine], axis=1)
        self.others = np.concatenate([every[number] for number in rest])
        self.starts = np.cumsum([0, *(len(every[number]) for number in rest[:-1])])
        self.places = [
            (True, mine.index(number))
            if number in mine
            else (False, int(self.starts[rest.index(number)]))
            for number in numbers
        ]
        order = [*mine, *rest]
        learned = [place for place, block in enumerate(self.blocks) if block.tau >= 0]
        self._learned = [order.index(place) for place in learned]

    @property
    def length(self) -> int:
        """The number of effects."""
        return self.blocks[-1].effects.stop

    def join(self, own: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Lay out own effects (levels, kinds) and others as one vector."""
        both = np.empty(self.length)
        both[self.own], both[self.others] = own, others
        return both

    def sum_by_block(self, values: np.ndarray) -> np.ndarray:
        """Sum values (effects,) by learned block."""
        sums = np.add.reduceat(values, [block.effects.start for block in self.blocks])
        return sums[[block.tau >= 0 for block in self.blocks]]

    def sum_by_blocks(self, own: np.ndarray, across: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Sum entries by pairs of learned blocks; those of own pairs (kinds, kinds) are sums."""
        rows = np.add.reduceat(across.sum(axis=0), self.starts, axis=1)
        columns = np.add.reduceat(np.add.reduceat(others, self.starts, axis=0), self.starts, axis=1)
        return np.block([[own, rows], [rows.T, columns]])[np.ix_(self._learned, self._learned)]


def count_effects(blocks: Sequence[Block]) -> dict[int, int]:
    """Count the effects of each grouping but the one of all rows."""
    counts: dict[int, int] = {}
    for block in blocks:
        if block.tau >= 0:
            size = block.effects.stop - block.effects.start
            counts[block.grouping] = counts.get(block.grouping, 0) + size
    return counts


class Arrow(NamedTuple):
    """A symmetric matrix of effects, without its entries between different own levels.

    ``own`` (levels, kinds, kinds) are entries within a level, ``across`` (levels, kinds, others)
    those between own effects and others, and ``others`` (others, others). A Hessian is zero between
    own levels; of a covariance nobody asks for these entries.
    """

    own: np.ndarray
    across: np.ndarray
    others: np.ndarray

    @classmethod
    def from_dense(cls, layout: Layout, matrix: np.ndarray) -> Arrow:
        """Take the entries of a square matrix."""
        own, others = layout.own, layout.others
        return cls(
            matrix[own[:, :, None], own[:, None]],
            matrix[own[:, :, None], others],
            matrix[np.ix_(others, others)],
        )

    def diagonal(self, layout: Layout) -> np.ndarray:
        return layout.join(np.diagonal(self.own, axis1=1, axis2=2), np.diag(self.others))

    def times(self, layout: Layout, vector: np.ndarray) -> np.ndarray:
        """Multiply a matrix that is zero between own levels by a vector."""
        own, others = vector[layout.own], vector[layout.others]
        top = (self.own @ own[:, :, None])[:, :, 0] + self.across @ others
        return layout.join(top, np.tensordot(own, self.across, axes=2) + self.others @ others)

    def entries(
        self, layout: Layout, first: int, second: int, codes: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Look up the entries of two blocks, by position, for the levels of each cell."""
        (own, at), (also_own, to) = layout.places[first], layout.places[second]
        if own and also_own:
            return self.own[codes[0], at, to]
        if own:
            return self.across[codes[0], at, to + codes[1]]
        if also_own:
            return self.across[codes[1], to, at + codes[0]]
        return self.others[at + codes[0], to + codes[1]]


@dataclass
class Factor:
    """The inverse of a Hessian plus the prior precisions, whose inverse roots are ``deviation``.

    Deviations may be as small as 1e-4: what is factored is I + D H D.
    """

    layout: Layout
    hessian: Arrow
    deviation: np.ndarray

    def __post_init__(self) -> None:
        own, across, others = self.hessian
        scale, rest = self.deviation[self.layout.own], self.deviation[self.layout.others]
        inner = scale[:, :, None] * own * scale[:, None] + np.eye(scale.shape[1])
        inverse = np.linalg.inv(inner)
        #: The posterior covariance of a level's effects given the others.
        self.given = scale[:, :, None] * inverse * scale[:, None]
        #: (I + H V)^-1 within levels, where V are prior variances.
        self.shrink = inverse / scale[:, :, None] * scale[:, None]
        self.pull = self.given @ across
        #: The Hessian of the others, where own effects are integrated out.
        self.schur = others - np.tensordot(across, self.pull, axes=([0, 1], [0, 1]))
        outer = rest[:, None] * self.schur * rest
        outer[np.diag_indices(len(outer))] += 1
        self.lower = cholesky(outer, lower=True, overwrite_a=True, check_finite=False)
        half = 0.5 * float(np.log(np.linalg.det(inner)).sum())
        #: Half the logarithm of the determinant of I + D H D.
        self.half_log_det = half + float(np.log(np.diag(self.lower)).sum())

    def solve(self, vector: np.ndarray) -> np.ndarray:
        """Multiply the inverse by a vector (effects,)."""
        own, others = vector[self.layout.own], vector[self.layout.others]
        rest = self.deviation[self.layout.others]
        alone = (self.given @ own[:, :, None])[:, :, 0]
        right = others - np.tensordot(own, self.pull, axes=2)
        right = rest * cho_solve((self.lower, True), rest * right, check_finite=False)
        return self.layout.join(alone - self.pull @ right, right)

    def solve_own(self, vector: np.ndarray) -> np.ndarray:
        """Multiply the inverse given the others by a vector; the others get zeros."""
        own = vector[self.layout.own]
        alone = (self.given @ own[:, :, None])[:, :, 0]
        return self.layout.join(alone, np.zeros(len(self.layout.others)))

    @cached_property
    def inner_inverse(self) -> np.ndarray:
        """(I + D S D)^-1 of the others, where S is the Schur complement."""
        lower = np.tril(_invert(self.lower, lower=True)[0])
        return lower + np.tril(lower, -1).T

    @property
    def covariance(self) -> Arrow:
        """The inverse."""
        rest = self.deviation[self.layout.others]
        others = rest[:, None] * self.inner_inverse * rest
        across = -self.pull @ others
        return Arrow(self.given - across @ self.pull.swapaxes(1, 2), across, others)
