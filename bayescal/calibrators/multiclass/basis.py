"""Functions of log probabilities that some members of a stack take as features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, Array, XArray, matmul, namespace
from bayescal._core.shapes import Float

#: Proportion of unexplained variance below which centers predict a row.
_PREDICTED = 1e-3
#: Ridge that keeps the factorization positive, relative to the variance of a kernel feature.
_RIDGE = 1e-6


class Dimensions(NamedTuple):
    """The numbers of classes, of main directions and of kernel features."""

    k: int
    rank: int = 0
    kernel: int = 0


class Basis(NamedTuple):
    """Functions that are estimated from rows before a fit: main directions and kernel features.

    Directions are (k, r). Kernels depend on distances of log probabilities, divided by a length,
    from centers (m, k); a matrix (m, m) whitens them, so that a normal prior is a Gaussian process.
    """

    directions: AnyArray
    centers: AnyArray
    whiten: AnyArray
    length: AnyArray

    @classmethod
    def of_directions(cls, directions: XArray) -> Basis:
        """Make a basis without kernel features."""
        k = directions.shape[0]
        return cls(directions, np.empty((0, k)), np.empty((0, 0)), np.ones(()))

    @property
    def dimensions(self) -> Dimensions:
        """The numbers of classes, of directions and of kernel features."""
        k, rank = self.directions.shape
        return Dimensions(k, rank, self.centers.shape[0])


def no_directions(k: int) -> Float[np.ndarray, "classes 0"]:
    """Make a matrix (k, 0)."""
    return np.empty((k, 0), np.float32)


def main_directions(x: Array, rank: int) -> XArray:
    """Compute up to ``rank`` main directions (k, r) of centered log probabilities (n, k).

    Subspace iteration starts from combinations of the rows, so that a permutation of the classes
    permutes the directions.
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
    rotation = xp.linalg.svd(matmul(x, basis), full_matrices=False)[2]
    return matmul(basis, rotation[:rank].T)


def kernel_basis(
    x: Float[np.ndarray, "rows classes"],
    weights: Float[np.ndarray, " rows"],
    count: int,
    relative_length: float,
) -> Basis:
    """Choose at most ``count`` centers among log probabilities (n, k) with weights (n,).

    The length is relative to the root of the sum of the variances of classes. Centers are pivots of
    a Cholesky factorization: each is the row that earlier ones predict worst, until all are
    predicted.
    """
    n, k = x.shape
    share = weights / weights.sum()
    deviation = np.sqrt(np.sum(share @ (x - share @ x) ** 2))
    if not deviation > 0:
        return Basis.of_directions(no_directions(k))
    length = relative_length * deviation
    rows = x / length
    unknown, factors = np.ones(n), np.zeros((count, n))
    pivots: list[int] = []
    for i in range(min(count, n)):
        # Rounded, so that the choice among equal rows does not depend on the order of the classes.
        pivot = int(np.argmax(unknown.round(9)))
        if unknown[pivot] < _PREDICTED:
            break
        column = kernel_columns(rows[pivot : pivot + 1], rows.T)[0]
        factors[i] = (column - factors[:i, pivot] @ factors[:i]) / np.sqrt(unknown[pivot])
        unknown = np.maximum(unknown - factors[i] ** 2, 0)
        pivots.append(pivot)
    centers = np.ascontiguousarray(rows[pivots])
    gram = kernel_columns(centers, centers.T) + _RIDGE * np.eye(len(pivots))
    whiten = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(gram)).T)
    return Basis(no_directions(k), centers, whiten, np.asarray(length))


def kernel_columns(
    centers: Float[np.ndarray, "centers classes"], x: Float[np.ndarray, "classes rows"]
) -> Float[np.ndarray, "centers rows"]:
    """Compute the kernel (m, n) between centers (m, k) and columns (k, n), divided by the length.

    The kernel is rational quadratic, 1 / (1 + d / 2) for the squared distance d: a mixture of
    Gaussian kernels of many lengths that needs no exponential.
    """
    # Measured from the middle of the centers, or short distances would be lost to rounding.
    middle = centers.mean(axis=0)
    centers, x = centers - middle, x - middle[:, None]
    kernel = centers @ (-2 * x)
    kernel += np.einsum("ij,ij->i", centers, centers)[:, None]
    kernel += np.einsum("ij,ij->j", x, x)
    np.maximum(kernel, 0, out=kernel)
    kernel *= 0.5
    kernel += 1
    return np.reciprocal(kernel, out=kernel)


def kernel_feature_rows(
    x: Float[np.ndarray, "classes rows"], basis: Basis, out: Float[np.ndarray, "centers rows"]
) -> None:
    """Write kernel features (m, n) of log probabilities (k, n), whitened if the basis is."""
    dtype = x.dtype.type
    kernel = kernel_columns(basis.centers.astype(dtype, copy=False), x / dtype(basis.length))
    if basis.whiten is None:
        out[:] = kernel
    else:
        np.matmul(basis.whiten.T.astype(dtype, copy=False), kernel, out=out)


def kernel_features(x: XArray, basis: Basis) -> XArray:
    """Compute kernel features (..., n, m) of log probabilities (..., n, k), of any library."""
    xp = namespace(x)
    # Measured from the middle of the centers, or short distances would be lost to rounding.
    middle = xp.mean(basis.centers, axis=0)
    rows, centers = x / basis.length - middle, basis.centers - middle
    squared = xp.sum(rows * rows, axis=-1, keepdims=True) + xp.sum(centers * centers, axis=-1)
    squared = squared - 2 * matmul(rows, xp.matrix_transpose(centers))
    kernel = 1 / (1 + 0.5 * xp.where(squared > 0, squared, 0 * squared))
    return matmul(kernel, basis.whiten)
