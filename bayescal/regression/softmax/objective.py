"""Cross-entropy of linear functions of scores: value, gradient, products with the Hessian.

The same formulas serve NumPy, in blocks of rows, and JAX, to be mapped and compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import ArrayT, matmul, namespace
from bayescal._core.chunks import slices
from bayescal._core.newton_cg import Point

#: Elements of a block of rows on the host: what the processor's cache holds. Threads that change
#: too often wait for each other.
_BLOCK, _BLOCK_OF_THREADS = 1 << 16, 1 << 18
#: Up to this many features the products of all pairs are formed for each row.
FEW = 4
#: Features below this may be squared in single precision.
_NARROW = 1e6
#: So few logits are not worth it.
_SMALL = 1 << 18
#: So few numbers, of all features of all logits, are not worth threads.
_MANY = 1 << 22
#: Logits within this have exponentials that neither overflow nor vanish.
_MILD = 500.0
#: Numbers of classes, of features, of diagonal and of shared parameters.
Sizes: TypeAlias = tuple[int, int, int, int]
Result = TypeVar("Result")


class Design(NamedTuple, Generic[ArrayT]):
    """Rows, and what their logits depend on.

    The logits of a row are ``offset + W f + v x + (t . s) x``, elementwise in x, with parameters
    W (k, m), v (k,) and t (r,) that are zero where the map changes nothing. A weight (n,) of zero
    leaves a row out.
    """

    offset: ArrayT
    y: ArrayT
    weights: ArrayT
    #: f above (n, m), at least a column of ones for an intercept.
    features: ArrayT
    x: ArrayT | None = None
    #: s above (n, r), common to all classes; needs ``x``.
    shared: ArrayT | None = None

    @property
    def sizes(self) -> Sizes:
        """Numbers k of classes, m of features, k or 0 of diagonal and r of shared parameters."""
        k, m = self.offset.shape[-1], self.features.shape[-1]
        r = 0 if self.shared is None else self.shared.shape[-1]
        return k, m, k if self.x is not None else 0, r

    def rows(self, part: slice | ArrayT) -> Design[ArrayT]:
        """Return some of the rows."""
        return self.each(lambda leaf: leaf[part])

    def each(self, function: Callable[[ArrayT], ArrayT]) -> Design[ArrayT]:
        """Return what a function makes of the arrays that there are."""
        found: list[Any] = [None if leaf is None else function(leaf) for leaf in self]
        return Design(*found)


class Parameters(NamedTuple, Generic[ArrayT]):
    """Parameters (..., p) in their parts: W (..., k, m), v (..., k) and t (..., r)."""

    matrix: ArrayT
    diagonal: ArrayT
    shared: ArrayT


def split(theta: ArrayT, sizes: Sizes) -> Parameters[ArrayT]:
    """Return the parts of parameters (..., p)."""
    k, m, d, _ = sizes
    matrix = namespace(theta).reshape(theta[..., : k * m], (*theta.shape[:-1], k, m))
    return Parameters(matrix, theta[..., k * m : k * m + d], theta[..., k * m + d :])


def join(parts: Parameters[ArrayT], xp: ModuleType) -> ArrayT:
    """Return parts (matrices last) as parameters (..., p)."""
    matrix = parts.matrix
    flat = matrix.reshape(*matrix.shape[:-2], -1)
    return xp.concatenate([flat, parts.diagonal, parts.shared], axis=-1)


def by_class(parts: Parameters[ArrayT], xp: ModuleType) -> ArrayT:
    """Return what belongs to each class (k, m + d'): its row of the matrix and its diagonal."""
    if not parts.diagonal.shape[0]:
        return parts.matrix
    return xp.concatenate([parts.matrix, parts.diagonal[:, None]], axis=1)


def apart(own: ArrayT, sizes: Sizes, shared: ArrayT | None = None) -> Parameters[ArrayT]:
    """Return the parts again."""
    _, m, d, _ = sizes
    none = own[0, :0]
    return Parameters(own[:, :m], own[:, m] if d else none, none if shared is None else shared)


def change(design: Design[ArrayT], theta: ArrayT, sizes: Sizes | None = None) -> ArrayT:
    """Return what parameters (..., p) add to the logits: (..., n, k).

    Sizes are given where arrays do not know theirs before they are calculated.
    """
    parts = split(theta, design.sizes if sizes is None else sizes)
    turned = namespace(theta).matrix_transpose(parts.matrix)
    added = matmul(design.features, turned)
    if design.x is not None:
        factor: Any = parts.diagonal[..., None, :]
        if design.shared is not None:
            factor = factor + matmul(design.shared, parts.shared[..., None])
        added = added + design.x * factor
    return cast(ArrayT, added)


def gather(design: Design[ArrayT], residual: ArrayT, xp: ModuleType) -> ArrayT:
    """Return the derivatives (p,) of a function whose derivatives by the logits are (n, k)."""
    _, _, d, r = design.sizes
    matrix = residual.T @ design.features
    diagonal = shared = xp.zeros(0, residual.dtype)
    if d:
        diagonal = xp.einsum("ij,ij->j", residual, design.x)
        if r:
            shared = xp.einsum("ij,ij->i", residual, design.x) @ design.shared
    return join(Parameters(matrix, diagonal, shared), xp)


def evaluate(
    design: Design[jax.Array], penalty: jax.Array, theta: jax.Array
) -> Point[jax.Array, jax.Array]:
    """Return sum(weights * cross-entropy) + sum(penalty * theta**2) / 2, for JAX.

    The state is the probabilities (n, k).
    """
    logits = design.offset + change(design, theta)
    top = jnp.max(logits, axis=1, keepdims=True)
    above = logits - top
    small = jnp.exp(above)
    total = jnp.sum(small, axis=1, keepdims=True)
    probs = small / total
    hit = jnp.arange(logits.shape[1]) == design.y[:, None]
    own = jnp.sum(jnp.where(hit, above, 0), axis=1)
    loss = jnp.log(total[:, 0]) - own
    residual = (probs - hit.astype(probs.dtype)) * design.weights[:, None]
    value = design.weights @ loss + 0.5 * jnp.sum(penalty * theta**2)
    return Point(value, gather(design, residual, jnp) + penalty * theta, probs)


def multiply(
    design: Design[jax.Array], penalty: jax.Array, probs: jax.Array, vector: jax.Array
) -> jax.Array:
    """Return the Hessian times a vector (p,), for JAX."""
    moved = change(design, vector)
    mean = jnp.sum(probs * moved, axis=1, keepdims=True)
    residual = (probs * design.weights[:, None]) * (moved - mean)
    return gather(design, residual, jnp) + penalty * vector


class Host:
    """The objective with NumPy, in blocks of rows that stay in the processor's cache.

    A context, as its threads end with it: many rows are shared among the processor's cores.
    """

    def __init__(self, design: Design[np.ndarray], penalty: np.ndarray) -> None:
        self.design, self.penalty = design, penalty
        n, k = design.offset.shape
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        threads = cores > 1 and n * k > _SMALL and n * k * design.features.shape[1] > _MANY
        block = min(_BLOCK_OF_THREADS, n * k // (2 * cores)) if threads else _BLOCK
        step = max(1, min(n, block // k))
        self._parts = slices(n, step)
        self._blocks = [design.rows(part) for part in self._parts]
        self._pool = ThreadPoolExecutor(cores) if threads else None
        # Directions need no more than single precision, which takes half the time.
        inputs = [leaf for leaf in (design.features, design.x, design.shared) if leaf is not None]
        fits = n * k > _SMALL and all(np.abs(leaf).max(initial=0) < _NARROW for leaf in inputs)
        self._type = np.dtype(np.float32 if fits else np.float64)
        kept = (design.weights, *inputs)
        narrow = {id(leaf): leaf.astype(self._type, copy=False) for leaf in kept}
        rough = design.each(lambda leaf: narrow.get(id(leaf), leaf))
        self._rough = [rough.rows(part) for part in self._parts]
        # With few features a product with the Hessian needs but two products with one matrix; it
        # loses some digits where all labels are certain, as in small separable problems.
        few = design.features.shape[1] <= FEW and design.shared is None
        self._few = few and n * k > _SMALL
        self._plain = (
            design.offset is design.x
            and design.shared is None
            and design.features.shape[1] == 1
            and bool((design.features == 1).all())
        )
        #: Where the Hessian of few features was measured last.
        self._probs: np.ndarray | None = None

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _each(self, work: Callable[[int], Result]) -> Iterator[Result]:
        """Do ``work(number of the block)`` for all blocks; results come in their order."""
        numbers = range(len(self._parts))
        return map(work, numbers) if self._pool is None else self._pool.map(work, numbers)

    def evaluate(self, theta: np.ndarray) -> Point[np.ndarray, np.ndarray]:
        """Do as the function of this name."""
        probs = np.empty(self.design.offset.shape, self._type)
        ones = np.ones(self.design.offset.shape[1])

        def one(number: int) -> tuple[float, np.ndarray]:
            block = self._blocks[number]
            with np.errstate(all="ignore"):
                logits = self._logits(block, theta)
                if not (-_MILD < logits.min() and logits.max() < _MILD):
                    logits -= logits.max(axis=1, keepdims=True)
                rows = np.arange(len(logits))
                own = logits[rows, block.y]
                np.exp(logits, out=logits)
                total = logits @ ones
                value = float(block.weights @ (np.log(total) - own))
                logits *= (1 / total)[:, None]
                probs[self._parts[number]] = logits
                logits *= block.weights[:, None]
                logits[rows, block.y] -= block.weights
                return value, gather(block, logits, np)

        value, gradient = 0.5 * float(self.penalty @ theta**2), self.penalty * theta
        for own, slope in self._each(one):
            value += own
            gradient += slope
        return Point(np.asarray(value), gradient, probs)

    def _logits(self, block: Design[np.ndarray], theta: np.ndarray) -> np.ndarray:
        if self._plain:
            # Only intercepts and factors.
            parts = split(theta, self.design.sizes)
            logits = block.x * (1 + parts.diagonal)
            logits += parts.matrix[:, 0]
            return logits
        logits = change(block, theta)
        logits += block.offset
        return logits

    def multiply(self, probs: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Do as the function of this name."""
        if self._few and self._probs is not probs:
            self._measure(probs)
        narrow = vector.astype(self._type)

        def one(number: int) -> np.ndarray:
            block = self._rough[number]
            with np.errstate(all="ignore"):
                if self._few:
                    pulled = self._pulled[number]
                    return -((block.weights * (pulled @ narrow)) @ pulled)
                p, moved = probs[self._parts[number]], change(block, narrow)
                moved -= np.einsum("ij,ij->i", p, moved)[:, None]
                moved *= p
                moved *= block.weights[:, None]
                return gather(block, moved, np)

        image = self.penalty * vector
        if self._few:
            parts = split(vector, self.design.sizes)
            own = (self._grams @ by_class(parts, np)[:, :, None])[:, :, 0]
            image += join(apart(own, self.design.sizes), np)
        for part in self._each(one):
            image += part
        return image

    def _measure(self, probs: np.ndarray) -> None:
        """Find blocks of each class, and what each row pulls together, which they exceed by."""

        def one(number: int) -> tuple[np.ndarray, np.ndarray]:
            block, p = self._rough[number], probs[self._parts[number]]
            return pull(block, p, np), class_grams(block, p * block.weights[:, None], np)

        self._pulled, grams = zip(*self._each(one), strict=True)
        self._probs, self._grams = probs, np.sum(grams, axis=0, dtype=float)


def movement(design: Design[ArrayT], theta: ArrayT, step: ArrayT, xp: ModuleType) -> ArrayT:
    """Return the largest change of a row's logits by ``step`` (p,), relative to their size."""
    logits = design.offset + change(design, theta)
    moved = change(design, step)
    logits = logits - xp.max(logits, axis=1, keepdims=True)
    moved = moved - xp.mean(moved, axis=1, keepdims=True)
    relative = abs(moved) / (1 + abs(logits))
    return xp.max(xp.where(design.weights[:, None] > 0, relative, 0))


def full_hessian(design: Design[ArrayT], probs: ArrayT, xp: ModuleType) -> ArrayT:
    """Return the Hessian (p, p) of the weighted cross-entropy, without the penalty.

    Logits of a row have the derivative J (k, p): it is the sum of J' diag(p) J - (J' p)(J' p)'.
    """
    (k, m, _, r), x, shared = design.sizes, design.x, design.shared
    weighted = probs * design.weights[:, None]
    eye = xp.eye(k, dtype=probs.dtype)
    grams = class_grams(design, weighted, xp)
    square = (grams[:, :m, None, :m] * eye[:, None, :, None]).reshape(k * m, k * m)
    rows = [[square]]
    if x is not None:
        across = (grams[:, :m, m:] * eye[:, None, :]).reshape(k * m, k)
        rows = [[square, across], [across.T, grams[:, m, m] * eye]]
    if x is not None and shared is not None and r:
        pulled = weighted * x
        outer = (design.features[:, :, None] * shared[:, None, :]).reshape(-1, m * r)
        side = (pulled.T @ outer).reshape(k * m, r)
        below = (pulled * x).T @ shared
        total = xp.sum(pulled * x, axis=1)[:, None]
        corner = (shared * total).T @ shared
        rows = [[*rows[0], side], [*rows[1], below], [side.T, below.T, corner]]
    first = xp.concatenate([xp.concatenate(row, axis=1) for row in rows], axis=0)
    pulled = pull(design, probs, xp)
    return first - (pulled * design.weights[:, None]).T @ pulled


def pull(design: Design[ArrayT], probs: ArrayT, xp: ModuleType) -> ArrayT:
    """Return the derivatives (n, p) of each row's logits, averaged over its classes."""
    k, m, d, r = design.sizes
    if m == 1 and not r and xp is np:
        # Without copies.
        pulled = xp.empty((len(probs), k + d), probs.dtype)
        xp.multiply(probs, design.features, out=pulled[:, :k])
        if d:
            xp.multiply(probs, design.x, out=pulled[:, k:])
        return pulled
    parts = [(probs[:, :, None] * design.features[:, None, :]).reshape(-1, k * m)]
    if design.x is not None:
        parts.append(probs * design.x)
    if r:
        parts.append(xp.sum(parts[1], axis=1, keepdims=True) * design.shared)
    return xp.concatenate(parts, axis=1)


def class_grams(design: Design[ArrayT], weighted: ArrayT, xp: ModuleType) -> ArrayT:
    """Return for each class the sum over rows of weighted (n, k) * g g', as (k, m + d', m + d').

    g are the features and, where there is a diagonal (d' = 1), the class's own x.
    """
    k, m, _, _ = design.sizes
    f = design.features
    if m <= FEW:
        pairs = (f[:, :, None] * f[:, None, :]).reshape(-1, m * m)
        square = (weighted.T @ pairs).reshape(k, m, m)
    elif xp is np:
        square = xp.empty((k, m, m), weighted.dtype)
        for i, root in enumerate(np.sqrt(weighted.T)):
            # A matrix times its own transpose takes half the time.
            own = f * root[:, None]
            np.matmul(own.T, own, out=square[i])
    else:
        square = jax.lax.map(lambda own: (f * own[:, None]).T @ f, weighted.T)
    if design.x is None:
        return cast(ArrayT, square)
    pulled = weighted * design.x
    cross = (pulled.T @ f)[:, :, None]
    own = xp.einsum("ij,ij->j", pulled, design.x)[:, None, None]
    upper = xp.concatenate([square, cross], axis=2)
    lower = xp.concatenate([cross.transpose(0, 2, 1), own], axis=2)
    return xp.concatenate([upper, lower], axis=1)
