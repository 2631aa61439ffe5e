"""Approximate inverse Hessians of members of a stack, from sums over a sample of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from bayescal._core.shapes import Float
from bayescal.calibrators.multiclass.basis import Dimensions
from bayescal.calibrators.multiclass.members import Layout, Member, penalties
from bayescal.regression.softmax.objective import Design, Parameters, split
from bayescal.regression.softmax.precondition import BLOCKS, WHOLE

#: Number of parameters of a member up to which the whole Hessian is inverted.
WHOLE_LENGTH = 500

Metric = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Whole:
    """The whole Hessian at the probabilities of designs; the others have the same methods."""

    layout: Layout
    #: The gain of a step is at most the gain expected from the metric divided by this.
    promise: ClassVar[float] = 1.0

    @property
    def patience(self) -> float:
        """The number of steps after which recomputing the metric pays."""
        return 2 + self.layout.length / 16

    def sums(
        self, design: Design[np.ndarray], probs: Float[np.ndarray, "rows classes"]
    ) -> tuple[np.ndarray]:
        """Compute what is summed over designs of some of the rows, at probabilities (n, k)."""
        return (WHOLE.measure(design, probs),)

    def invert(self, sums: Sequence[np.ndarray], member: Member) -> Metric:
        """Invert for a member, its penalties added; the result multiplies vectors."""
        (hessian,) = sums
        dimensions = self.layout.dimensions
        index, sizes = self.layout.columns(member), member.sizes(dimensions)
        penalty = penalties(member, dimensions).astype(hessian.dtype)
        inverse = WHOLE.invert(hessian[np.ix_(index, index)], penalty, sizes)
        return lambda gradient: inverse @ gradient


@dataclass(frozen=True)
class ByClass:
    """For many features: the average of the inverses of two parts of the Hessian.

    One part has blocks for the parameters of each class and for shared parameters. It reflects
    where each class has its rows, but not the competition between classes. The other part, for
    matrices, is a Kronecker product of classes, diag(q) - q q', and features.
    """

    layout: Layout
    patience: ClassVar[float] = np.inf
    promise: ClassVar[float] = 1e-2

    def sums(
        self, design: Design[np.ndarray], probs: Float[np.ndarray, "rows classes"]
    ) -> tuple[np.ndarray, ...]:
        weights = design.weights
        by_row = weights * (probs - probs**2).sum(axis=1)
        classes = np.diag(weights @ probs) - (probs * weights[:, None]).T @ probs
        features = (design.features * by_row[:, None]).T @ design.features
        return *BLOCKS.measure(design, probs), classes, features, by_row.sum()

    def invert(self, sums: Sequence[np.ndarray], member: Member) -> Metric:
        *blocks, classes, features, total = sums
        dimensions = self.layout.dimensions
        sizes, penalty = member.sizes(dimensions), penalties(member, dimensions)
        inverse = BLOCKS.invert(tuple(blocks), penalty, sizes)
        strength = split(penalty, sizes).matrix.mean(axis=0)
        least = np.finfo(features.dtype).tiny  # where all probabilities are 0 and 1
        product = _kronecker_product(classes, features / max(total, least), strength)

        def apply(gradient: np.ndarray) -> np.ndarray:
            result = BLOCKS.apply(inverse, gradient, sizes)
            matrix = split(result, sizes).matrix
            matrix[:] = 0.5 * (matrix + product(split(gradient, sizes).matrix))
            return result

        return apply


@dataclass(frozen=True)
class Parts:
    """Three independent parts of the Hessian at the probabilities of designs.

    Each class has a block (4, 4) for the diagonal entries of both matrices, the factor and the
    intercept. A block (7, 7) is for the shared parameters and for common shifts of the first three.
    A Kronecker product of classes and features is for the rest of the matrices; the matrix of
    classes is diag(q) - q q' or, for very many classes, which only have directions, its diagonal.
    """

    layout: Layout
    patience: ClassVar[float] = np.inf
    promise: ClassVar[float] = 1.0

    def sums(
        self, design: Design[np.ndarray], probs: Float[np.ndarray, "rows classes"]
    ) -> tuple[np.ndarray, ...]:
        assert design.x is not None
        layout, x, weights, probs = self.layout, design.x.T, design.weights, probs.T
        inputs = design.features.T
        spread = (probs - probs**2) * weights
        # Columns of each class: 4 q, centered x, x and 1; without matrices, only the last two.
        present = (layout.probability, layout.logarithm, True, True)
        kinds = np.flatnonzero(present).tolist()
        features = [inputs[: layout.k], x - x.mean(axis=0), x, np.ones_like(x)]
        grams = np.zeros((layout.k, 4, 4))
        for a in kinds:
            weighted = spread * features[a]
            for b in kinds[kinds.index(a) :]:
                grams[:, a, b] = grams[:, b, a] = np.einsum("ij,ij->i", weighted, features[b])
        shared = np.ones((5, len(weights)), x.dtype)
        if design.shared is not None:
            shared[:4] = design.shared.T
        # Covariances, under the probabilities of a row, of factors times x and of 4 q.
        both = [x, features[0]] if layout.probability else [x]
        means = [np.einsum("ij,ij->j", probs, columns) for columns in both]
        pair = [
            [
                weights * (np.einsum("ij,ij,ij->j", probs, a, b) - i * j)
                for b, j in zip(both, means, strict=True)
            ]
            for a, i in zip(both, means, strict=True)
        ]
        coarse = np.zeros((6, 6))
        coarse[:5, :5] = (shared * pair[0][0]) @ shared.T
        if layout.probability:
            coarse[:5, 5] = coarse[5, :5] = shared @ pair[0][1]
            coarse[5, 5] = pair[1][1].sum()
        # Shifts of the diagonal for centered logarithms are those of a factor.
        repeat = np.array([0, 1, 2, 3, 4, 5, 4])
        rows = np.delete(inputs, layout.first, axis=0)
        by_row = spread.sum(axis=0)
        classes = np.zeros(0)
        if layout.probability or layout.logarithm:
            classes = np.diag(probs @ weights) - (probs * weights) @ probs.T
        both_ways = coarse[repeat[:, None], repeat]
        return grams, both_ways, classes, (rows * by_row) @ rows.T, by_row.sum()

    def invert(self, sums: Sequence[np.ndarray], member: Member) -> Metric:
        grams, coarse, *_ = sums
        layout = self.layout
        k = layout.k
        sizes, start = member.sizes(layout.dimensions), layout.part(member).start or 0
        strength = split(penalties(member, layout.dimensions), sizes)
        constant, row = layout.first - start, np.arange(k)
        has = [member.probability is not None, member.logarithm is not None]
        diagonals = [
            first + row for first, present in zip((0, constant + 1), has, strict=True) if present
        ]
        kept = np.flatnonzero((*has, True, True)).tolist()
        firm = [strength.matrix[0, columns[0]] for columns in diagonals]
        firm += [strength.diagonal[0], strength.matrix[0, constant]]
        blocks = np.linalg.inv(grams[:, kept][:, :, kept] + np.diag(firm))
        free = [*range(sizes[3]), 4, *(5 + kind for kind in kept[:-2])]
        stiff = [*strength.shared, k * firm[-2], *(k * strong for strong in firm[:-2])]
        common = np.linalg.inv(coarse[np.ix_(free, free)] + np.diag(stiff))
        rest = np.delete(np.arange(sizes[1]), constant)
        off_diagonal = self._product(sums, strength, rest, start, diagonals) if len(rest) else None

        def apply(gradient: np.ndarray) -> np.ndarray:
            result = np.zeros_like(gradient)
            given, out = split(gradient, sizes), split(result, sizes)
            by_class = [given.matrix[row, columns] for columns in diagonals]
            by_class = np.stack([*by_class, given.diagonal, given.matrix[:, constant]], axis=1)
            if off_diagonal is not None:
                out.matrix[:, rest] = off_diagonal(given.matrix[:, rest])
            total = by_class.sum(axis=0)
            shift = common @ np.concatenate([given.shared, total[-2:-1], total[:-2]])
            by_class[:, :-1] -= total[:-1] / k
            by_class = np.einsum("kij,kj->ki", blocks, by_class)
            by_class[:, :-1] -= by_class[:, :-1].mean(axis=0)
            out.shared[:] = shift[: sizes[3]]
            out.diagonal[:] = by_class[:, -2] + shift[sizes[3]]
            out.matrix[:, constant] = by_class[:, -1]
            for i, columns in enumerate(diagonals):
                out.matrix[row, columns] = by_class[:, i] + shift[sizes[3] + 1 + i]
            return result

        return apply

    def _product(
        self,
        sums: Sequence[np.ndarray],
        strength: Parameters,
        rest: np.ndarray,
        start: int,
        diagonals: list[np.ndarray],
    ) -> Metric:
        """Make the product with the inverse for the off-diagonal entries of matrices."""
        grams, _, classes, features, total = sums
        k = self.layout.k
        firm = strength.matrix[1, rest]
        for i in range(len(diagonals)):
            firm[k * i + 1] = firm[k * i]  # the diagonal has another strength
        here = slice(start, start + len(rest))
        both = classes if len(classes) else grams[:, 3, 3]
        product = _kronecker_product(both, features[here, here] / total, firm)
        row = np.arange(k)

        def apply(given: np.ndarray) -> np.ndarray:
            matrix = given.astype(features.dtype)
            for i in range(len(diagonals)):
                matrix[row, k * i + row] = 0
            return product(matrix)

        return apply


Approximation: TypeAlias = Whole | ByClass | Parts


def _kronecker_product(
    classes: Float[np.ndarray, " classes *columns"],
    features: Float[np.ndarray, "features features"],
    strength: Float[np.ndarray, " features"],
) -> Metric:
    """Make the product of matrices (k, m) with an inverse: classes x features + strengths.

    The matrix of classes is (k, k), or (k,) if it is diagonal, that of features (m, m); strengths
    (m,) are the penalties of features.
    """
    root = (strength**-0.5).astype(features.dtype)
    values, turn = np.linalg.eigh(features * root[:, None] * root)
    turn = root[:, None] * turn
    heights, spin = (classes, None) if classes.ndim == 1 else np.linalg.eigh(classes)
    middle = np.maximum(heights, 0)[:, None] * np.maximum(values, 0)
    middle = (1 / (middle + 1)).astype(turn.dtype)

    def product(matrix: np.ndarray) -> np.ndarray:
        if spin is None:
            return ((matrix @ turn) * middle) @ turn.T
        return spin @ ((spin.T @ matrix @ turn) * middle) @ turn.T

    return product


def plain_approximation(plain: Layout) -> Whole | Parts:
    """Choose the approximation for all members without a kernel, by the number of all features."""
    return Whole(plain) if plain.length <= WHOLE_LENGTH else Parts(plain)


def approximation(member: Member, plain: Layout, dimensions: Dimensions) -> Approximation:
    """Choose the approximation for a member; with a kernel, by its features alone."""
    layout = Layout.of([member], dimensions)
    if member.kernel is None:
        return type(plain_approximation(plain))(layout)
    return Whole(layout) if layout.length <= WHOLE_LENGTH else ByClass(layout)
