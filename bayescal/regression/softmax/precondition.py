"""Approximate inverses of the Hessian: whole, its diagonal, by class, or a Kronecker product."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from bayescal._core.arrays import Array, ArrayT
from bayescal._core.execution.chunks import slices
from bayescal._core.lazy import jnp
from bayescal._core.shapes import Float
from bayescal.regression.softmax.objective import (
    FEW,
    Design,
    Parameters,
    Sizes,
    by_class,
    class_grams,
    from_class_blocks,
    full_hessian,
    join,
    split,
)

#: Number of parameters up to which the whole Hessian is inverted.
_WHOLE = 300
#: Curvature of the penalty relative to that of the data above which the diagonal is enough.
_FIRM = 30.0
#: Number of multiplications up to which the blocks of all classes are computed.
_PRODUCTS = 4e10
_TINY = 1e-10
#: Blocks of the Hessian, of the classes and of shared parameters; or of its inverse.
HessianBlocks: TypeAlias = tuple[ArrayT, ArrayT]
#: Arrays that approximate the Hessian of the matrix, and its blocks of diagonal and shared
#: parameters; or their inverses.
MatrixAndRest: TypeAlias = tuple[tuple[ArrayT, ...], ArrayT, ArrayT]


class Preconditioner(NamedTuple):
    """A method to approximate the Hessian."""

    #: ``measure(design, probs)`` computes sums over rows.
    measure: Callable[..., Any]
    #: ``invert(data, penalty, sizes)`` inverts them with the penalty.
    invert: Callable[..., Any]
    #: ``apply(inverse, vector, sizes)`` multiplies by a vector.
    apply: Callable[..., Any]
    #: Number of products with the Hessian in one step after which measuring again pays.
    patience: int


def choices(design: Design[ArrayT], penalty: Float[ArrayT, " parameters"]) -> list[Preconditioner]:
    """Return the methods that are worth their cost, cheapest first."""
    k, m, d, r = design.sizes
    if k * m + d + r <= _WHOLE:
        return [WHOLE]
    if m <= FEW:
        return [BLOCKS]
    rows = min(_rows_needed(m), len(design.y))
    affordable = rows * k * (m + 1) ** 2 <= _PRODUCTS
    shrunk = _shrinkage(design, penalty) if isinstance(penalty, np.ndarray) else 0.0
    if shrunk > _FIRM or (shrunk > 1 and not affordable):
        return [DIAGONAL]
    if shrunk > 1:
        return [BOTH]
    return [KRONECKER, BOTH] if affordable else [KRONECKER]


def _ridge(
    matrix: Float[ArrayT, "*blocks size size"], xp: ModuleType
) -> Float[ArrayT, "*blocks size size"]:
    """Add a small ridge, relative to the diagonal, that makes singular matrices invertible."""
    diagonal = xp.diagonal(matrix, axis1=-2, axis2=-1)
    least = xp.where(diagonal > 0, _TINY * diagonal, 1.0)
    return matrix + least[..., None] * xp.eye(matrix.shape[-1], dtype=matrix.dtype)


def _xp(array: Array) -> ModuleType:
    return np if isinstance(array, np.ndarray) else jnp


def _measure_whole(
    design: Design[ArrayT], probs: Float[ArrayT, "rows classes"]
) -> Float[ArrayT, "parameters parameters"]:
    xp = _xp(probs)
    if xp is not np:
        return full_hessian(design, probs, xp)
    k, m, d, r = design.sizes
    total = xp.zeros((), probs.dtype)
    for part in slices(len(probs), max(256, (1 << 20) // (k * m + d + r))):
        total = total + full_hessian(design.rows(part), probs[part], np)
    return total


def _invert_whole(
    data: Float[ArrayT, "parameters parameters"],
    penalty: Float[ArrayT, " parameters"],
    sizes: Sizes,
) -> Float[ArrayT, "parameters parameters"]:
    xp = _xp(data)
    matrix = data + penalty * xp.eye(len(penalty), dtype=data.dtype)
    if xp is not np:
        return xp.linalg.inv(_ridge(matrix, xp))
    # The inverse must be positive definite in spite of rounding, or no step leads downhill.
    diagonal = np.diagonal(matrix)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    matrix = _ridge(matrix * scale * scale[:, None], np)
    try:
        root = np.linalg.inv(np.linalg.cholesky(matrix)) * scale
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        # A negative value is rounding, and shows how large that is.
        least = max(_TINY * float(values[-1]), _TINY, -2 * float(values[0]))
        root = (vectors * (scale[:, None] / np.sqrt(np.maximum(values, least)))).T
    return cast(ArrayT, root.T @ root)


WHOLE = Preconditioner(
    _measure_whole, _invert_whole, lambda inverse, vector, sizes: inverse @ vector, 8
)


def _shrinkage(design: Design[ArrayT], penalty: Float[ArrayT, " parameters"]) -> float:
    """Compute the typical ratio of the penalty's curvature to that of the data, for the matrix."""
    k = design.sizes[0]
    squares = design.weights @ design.features**2
    usual = np.maximum(squares * (k - 1) / k**2, 1e-300)
    return float(np.median(split(penalty, design.sizes).matrix / usual))


def _rows_needed(m: int) -> int:
    return max(2048, 8 * m)


def _thin(design: Design[ArrayT], probs: ArrayT) -> tuple[int, Design[ArrayT], ArrayT]:
    """Select evenly spaced rows that suffice, and return how many rows each represents."""
    stride = max(1, len(probs) // _rows_needed(design.sizes[1]))
    return stride, design.rows(slice(None, None, stride)), probs[::stride]


def _invert_shared(
    shared: Float[ArrayT, "shared shared"], penalty: Float[ArrayT, " shared"], xp: ModuleType
) -> Float[ArrayT, "shared shared"]:
    if not len(penalty):
        return shared
    return xp.linalg.inv(_ridge(shared + penalty * xp.eye(len(penalty), dtype=shared.dtype), xp))


def _variances(
    design: Design[ArrayT], probs: Float[ArrayT, "rows classes"]
) -> Float[ArrayT, "rows classes"]:
    return probs * (1 - probs) * design.weights[:, None]


def _shared_gram(
    design: Design[ArrayT], probs: Float[ArrayT, "rows classes"], xp: ModuleType
) -> Float[ArrayT, "shared shared"]:
    """Compute the Hessian of the shared parameters."""
    if design.x is None or design.shared is None:
        return xp.zeros((0, 0), probs.dtype)
    moved = probs * design.x
    mean = xp.sum(moved, axis=1)
    spread = (xp.sum(moved * design.x, axis=1) - mean**2) * design.weights
    return (design.shared * spread[:, None]).T @ design.shared


def _narrow(
    design: Design[ArrayT], variances: Float[ArrayT, "rows classes"]
) -> tuple[Design[ArrayT], Float[ArrayT, "rows classes"]]:
    """Convert many features to single precision, which is enough here and takes half the time."""
    if _xp(variances) is not np or design.sizes[1] <= FEW:
        return design, variances
    x = None if design.x is None else design.x.astype(np.float32)
    narrow = design._replace(features=design.features.astype(np.float32), x=x)
    return narrow, variances.astype(np.float32)


def _measure_blocks(
    design: Design[ArrayT], probs: Float[ArrayT, "rows classes"]
) -> HessianBlocks[ArrayT]:
    xp = _xp(probs)
    stride, design, probs = _thin(design, probs)
    blocks = stride * class_grams(*_narrow(design, _variances(design, probs)), xp)
    return blocks, stride * _shared_gram(design, probs, xp)


def _invert_blocks(
    data: HessianBlocks[ArrayT], penalty: Float[ArrayT, " parameters"], sizes: Sizes
) -> HessianBlocks[ArrayT]:
    blocks, shared = data
    xp = _xp(blocks)
    parts = split(penalty, sizes)
    class_penalty = by_class(parts, xp)
    eye = xp.eye(class_penalty.shape[1], dtype=blocks.dtype)
    inverse = xp.linalg.inv(_ridge(blocks + class_penalty[:, :, None] * eye, xp))
    return inverse, _invert_shared(shared, parts.shared, xp)


def _apply_blocks(
    inverse: HessianBlocks[ArrayT], vector: Float[ArrayT, " parameters"], sizes: Sizes
) -> Float[ArrayT, " parameters"]:
    blocks, shared = inverse
    xp = _xp(vector)
    parts = split(vector, sizes)
    blocks_product = (blocks @ by_class(parts, xp)[:, :, None])[:, :, 0]
    return join(from_class_blocks(blocks_product, sizes, shared @ parts.shared), xp)


BLOCKS = Preconditioner(_measure_blocks, _invert_blocks, _apply_blocks, 40)


def _with_diagonal(
    measure: Callable[..., tuple[ArrayT, ...]],
    invert: Callable[[tuple[ArrayT, ...], ArrayT], tuple[ArrayT, ...]],
    apply: Callable[[tuple[ArrayT, ...], ArrayT], ArrayT],
) -> Preconditioner:
    """Add the diagonal and the shared parameters to an approximation for the matrix."""

    def measure_all(design: Design[ArrayT], probs: ArrayT) -> MatrixAndRest[ArrayT]:
        xp = _xp(probs)
        stride, design, probs = _thin(design, probs)
        variances = _variances(design, probs)
        diagonal = xp.zeros(0, variances.dtype)
        if design.x is not None:
            diagonal = stride * xp.einsum("ij,ij,ij->j", variances, design.x, design.x)
        matrix = measure(design, probs, variances, stride)
        return matrix, diagonal, stride * _shared_gram(design, probs, xp)

    def invert_all(
        data: MatrixAndRest[ArrayT], penalty: ArrayT, sizes: Sizes
    ) -> MatrixAndRest[ArrayT]:
        (matrix, diagonal, shared), parts, xp = data, split(penalty, sizes), _xp(penalty)
        diagonal = diagonal + parts.diagonal
        diagonal = 1 / xp.where(diagonal > 0, diagonal, 1.0)
        return invert(matrix, parts.matrix), diagonal, _invert_shared(shared, parts.shared, xp)

    def apply_all(inverse: MatrixAndRest[ArrayT], vector: ArrayT, sizes: Sizes) -> ArrayT:
        (matrix, diagonal, shared), parts = inverse, split(vector, sizes)
        rest = diagonal * parts.diagonal, shared @ parts.shared
        return join(Parameters(apply(matrix, parts.matrix), *rest), _xp(vector))

    return Preconditioner(measure_all, invert_all, apply_all, 40)


def _invert_positive(matrix: Float[ArrayT, "*axes"]) -> Float[ArrayT, "*axes"]:
    return 1 / _xp(matrix).where(matrix > 0, matrix, 1.0)


DIAGONAL = _with_diagonal(
    lambda design, probs, variances, stride: (stride * (variances.T @ design.features**2),),
    lambda data, penalty: (_invert_positive(data[0] + penalty),),
    lambda inverse, matrix: inverse[0] * matrix,
)


def _measure_kronecker(
    design: Design[ArrayT], probs: ArrayT, variances: ArrayT, stride: int
) -> tuple[ArrayT, ...]:
    """Compute eigenvalues and eigenvectors of classes and of features."""
    xp = _xp(probs)
    by_row = xp.sum(variances, axis=1)
    total = xp.sum(by_row)
    by_row = by_row / xp.where(total > 0, total, 1)
    # Summed over rows, diag(p) - p p': classes that are confused can only move apart.
    weighted = probs * design.weights[:, None]
    eye = xp.eye(design.sizes[0], dtype=weighted.dtype)
    classes = xp.sum(weighted, axis=0) * eye - weighted.T @ probs
    features = (design.features * by_row[:, None]).T @ design.features
    return (*xp.linalg.eigh(stride * classes), *xp.linalg.eigh(features))


def _invert_kronecker(data: tuple[ArrayT, ...], penalty: ArrayT) -> tuple[ArrayT, ...]:
    classes, turn_classes, features, turn_features = data
    xp = _xp(classes)
    curvature = xp.maximum(classes, 0)[:, None] * xp.maximum(features, 0) + xp.mean(penalty)
    least = _TINY * xp.max(curvature)
    return turn_classes, turn_features, 1 / xp.maximum(curvature, xp.where(least > 0, least, 1.0))


def _apply_kronecker(inverse: tuple[ArrayT, ...], matrix: ArrayT) -> ArrayT:
    turn_classes, turn_features, middle = inverse
    turned = turn_classes.T @ matrix @ turn_features
    return turn_classes @ (turned * middle) @ turn_features.T


KRONECKER = _with_diagonal(_measure_kronecker, _invert_kronecker, _apply_kronecker)


BOTH = Preconditioner(
    lambda *rows: (BLOCKS.measure(*rows), KRONECKER.measure(*rows)),
    lambda data, *rest: (BLOCKS.invert(data[0], *rest), KRONECKER.invert(data[1], *rest)),
    lambda both, *rest: 0.5 * (BLOCKS.apply(both[0], *rest) + KRONECKER.apply(both[1], *rest)),
    40,
)
