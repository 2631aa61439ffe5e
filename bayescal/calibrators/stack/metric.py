"""Approximate inverse Hessians of all members of a stack, from sums over some of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayescal._core.arrays import matmul, namespace
from bayescal.calibrators.multiclass.members import Layout, Member, penalties
from bayescal.regression.softmax.objective import Design, Parameters, split
from bayescal.regression.softmax.precondition import WHOLE

#: Up to this many parameters of a member the whole Hessian is inverted.
_WHOLE = 320

Metric = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Whole:
    """The Hessian at the probabilities of designs, whole."""

    layout: Layout

    def sums(self, design: Design[Any]) -> tuple[Any]:
        """Return what is summed over designs, NumPy's or JAX's, of some of the rows each."""
        return (WHOLE.measure(design, namespace(design.x).exp(design.x)),)

    def invert(self, sums: Sequence[np.ndarray], member: Member) -> Metric:
        """Return a product with the inverse for a member, its penalties added."""
        (hessian,) = sums
        k, rank = self.layout.k, self.layout.rank
        own, sizes = self.layout.places(member), member.sizes(k, rank)
        penalty = penalties(member, k, rank).astype(hessian.dtype)
        inverse = WHOLE.invert(hessian[np.ix_(own, own)], penalty, sizes)
        return lambda gradient: inverse @ gradient


@dataclass(frozen=True)
class Parts:
    """Three parts of the Hessian at the probabilities of designs, apart from each other.

    For each class the block (4, 4) of what multiplies its own features: its probability and its
    logarithm, in the matrices' diagonals, its logarithm as a factor, and one. A block (7, 7) of the
    shared parameters and of shifts, common to all classes, of the first three. And a Kronecker
    product of classes and features for the rest of the matrices: of classes diag(q) - q q', or, of
    very many classes, which have directions only, its diagonal.
    """

    layout: Layout

    @property
    def _square(self) -> bool:
        return self.layout.probability or self.layout.logarithm

    def sums(self, design: Design[Any]) -> tuple[Any, ...]:
        """Do as that of the whole Hessian."""
        assert design.x is not None and design.shared is not None
        layout, x, weights = self.layout, design.x.T, design.weights
        xp = namespace(x)
        probs = xp.exp(x)
        spread = (probs - probs**2) * weights
        # Of each class: 4 q, centered x, x and 1; where members have no matrices, the last two.
        own = (layout.probability, layout.logarithm, True, True)
        kinds = [place for place, there in enumerate(own) if there]
        features = [4 * probs, x - x.mean(axis=0), x, xp.ones_like(x)]
        grams: list[list[Any]] = [[xp.zeros(layout.k)] * 4 for _ in own]
        for a in kinds:
            one = spread * features[a]
            for b in kinds[kinds.index(a) :]:
                grams[a][b] = grams[b][a] = xp.einsum("ij,ij->i", one, features[b])
        shared = xp.concat([design.shared.T, xp.ones((1, len(weights)), dtype=x.dtype)])
        # Covariances, under the probabilities of a row, of factors times x and of 4 q.
        both = [x, features[0]] if layout.probability else [x]
        means = [xp.einsum("ij,ij->j", probs, each) for each in both]
        pair = [
            [
                weights * (xp.einsum("ij,ij,ij->j", probs, a, b) - i * j)
                for b, j in zip(both, means, strict=True)
            ]
            for a, i in zip(both, means, strict=True)
        ]
        side, corner = xp.zeros(5), xp.zeros(())
        if layout.probability:
            side, corner = matmul(shared, pair[0][1]), pair[1][1].sum()
        upper = xp.concat([matmul(shared * pair[0][0], shared.T), side[:, None]], axis=1)
        coarse = xp.concat([upper, xp.concat([side, corner[None]])[None]]).astype(float)
        # Shifts of the diagonal for centered logarithms are those of a factor.
        again = np.array([0, 1, 2, 3, 4, 5, 4])
        rows = xp.delete(design.features.T, layout.first, axis=0)
        by_row = spread.sum(axis=0)
        classes = xp.zeros(0)
        if self._square:
            classes = xp.diag(probs @ weights) - matmul(probs * weights, probs.T)
        blocks = xp.stack([xp.stack(row, axis=1) for row in grams], axis=1).astype(float)
        both_ways = coarse[again[:, None], again]
        return blocks, both_ways, classes, matmul(rows * by_row, rows.T), by_row.sum()

    def invert(self, sums: Sequence[np.ndarray], member: Member) -> Metric:
        """Do as that of the whole Hessian."""
        grams, coarse, *_ = sums
        layout = self.layout
        k, rank = layout.k, layout.rank
        sizes, start = member.sizes(k, rank), layout.part(member).start or 0
        strength = split(penalties(member, k, rank), sizes)
        one, row = layout.first - start, np.arange(k)
        has = [member.probability is not None, member.logarithm is not None]
        diagonals = [first + row for first, own in zip((0, one + 1), has, strict=True) if own]
        kept = [place for place, own in enumerate((*has, True, True)) if own]
        firm = [strength.matrix[0, own[0]] for own in diagonals]
        firm += [strength.diagonal[0], strength.matrix[0, one]]
        blocks = np.linalg.inv(grams[:, kept][:, :, kept] + np.diag(firm))
        free = [*range(sizes[3]), 4, *(5 + place for place in kept[:-2])]
        stiff = [*strength.shared, k * firm[-2], *(k * own for own in firm[:-2])]
        common = np.linalg.inv(coarse[np.ix_(free, free)] + np.diag(stiff))
        rest = np.delete(np.arange(sizes[1]), one)
        off_diagonal = self._product(sums, strength, rest, start, diagonals) if len(rest) else None

        def apply(gradient: np.ndarray) -> np.ndarray:
            found = np.zeros_like(gradient)
            given, out = split(gradient, sizes), split(found, sizes)
            own = [given.matrix[row, columns] for columns in diagonals]
            own = np.stack([*own, given.diagonal, given.matrix[:, one]], axis=1)
            if off_diagonal is not None:
                out.matrix[:, rest] = off_diagonal(given.matrix[:, rest])
            total = own.sum(axis=0)
            shift = common @ np.concatenate([given.shared, total[-2:-1], total[:-2]])
            own[:, :-1] -= total[:-1] / k
            own = np.einsum("kij,kj->ki", blocks, own)
            own[:, :-1] -= own[:, :-1].mean(axis=0)
            out.shared[:] = shift[: sizes[3]]
            out.diagonal[:] = own[:, -2] + shift[sizes[3]]
            out.matrix[:, one] = own[:, -1]
            for place, columns in enumerate(diagonals):
                out.matrix[row, columns] = own[:, place] + shift[sizes[3] + 1 + place]
            return found

        return apply

    def _product(
        self,
        sums: Sequence[np.ndarray],
        strength: Parameters,
        rest: np.ndarray,
        start: int,
        diagonals: list[np.ndarray],
    ) -> Metric:
        """Return a product with the inverse for what lies off the diagonals of matrices."""
        grams, _, classes, features, total = sums
        k = self.layout.k
        firm = strength.matrix[1, rest]
        for place in range(len(diagonals)):
            firm[k * place + 1] = firm[k * place]  # the diagonal has another strength
        root = (firm**-0.5).astype(features.dtype)
        here = slice(start, start + len(rest))
        gram = features[here, here] / total
        values, turn = np.linalg.eigh(gram * root[:, None] * root)
        turn = root[:, None] * turn
        heights, spin = np.linalg.eigh(classes) if self._square else (grams[:, 3, 3], None)
        middle = np.maximum(heights, 0)[:, None] * np.maximum(values, 0)
        middle = (1 / (middle + 1)).astype(turn.dtype)
        row = np.arange(k)

        def apply(given: np.ndarray) -> np.ndarray:
            matrix = given.astype(turn.dtype)
            for place in range(len(diagonals)):
                matrix[row, k * place + row] = 0
            if spin is None:
                return ((matrix @ turn) * middle) @ turn.T
            return spin @ ((spin.T @ matrix @ turn) * middle) @ turn.T

        return apply


def measure(
    members: Sequence[Member],
    sums: Callable[[Whole | Parts, Any], tuple[np.ndarray, ...]],
    parts: Sequence[Any],
    layout: Layout,
    each: Any,
) -> tuple[list[Metric], float]:
    """Return the best approximations that are affordable, and what first steps take of them.

    ``sums(method, part)`` gives what a method sums over each of the ``parts`` of rows.
    """
    method = Whole(layout) if layout.length <= _WHOLE else Parts(layout)
    found = zip(*each(lambda part: sums(method, part), parts), strict=True)
    total = [np.sum(own, axis=0) for own in found]
    metrics = list(each(lambda member: method.invert(total, member), members))
    return metrics, 1.0 if isinstance(method, Whole) else 0.5
