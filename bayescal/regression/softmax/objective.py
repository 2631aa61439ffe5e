"""Cross-entropy of linear functions of scores: value, gradient, products with the Hessian.

The formulas work with NumPy, in blocks of rows, and with JAX, to be mapped and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Generic, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from bayescal._core.arrays import AnyArray, ArrayT, matmul, namespace
from bayescal._core.execution.chunks import slices
from bayescal._core.execution.threads import core_count
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.newton_cg import Point
from bayescal._core.shapes import Float, Shaped

#: Arrays by their axes.
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'
DeviceTheta: TypeAlias = 'Float[jax.Array, " parameters"]'


#: Elements of a block of rows on the host, which fits in the processor's cache, with one thread and
#: with several: threads whose blocks are small wait for one another.
_BLOCK, _BLOCK_OF_THREADS = 1 << 16, 1 << 18
#: Number of features up to which the products of all pairs are formed for each row.
FEW = 4
#: Size of features below which they may be squared in single precision.
_NARROW = 1e6
#: Number of logits up to which single precision and other savings do not pay.
_SMALL = 1 << 18
#: Number of products of features and logits up to which threads do not pay.
_MANY = 1 << 22
#: Size of logits up to which exponentials neither overflow nor vanish.
_MILD = 500.0
#: Numbers of classes, of features, of diagonal and of shared parameters.
Sizes: TypeAlias = tuple[int, int, int, int]
Result = TypeVar("Result")
OtherT = TypeVar("OtherT", np.ndarray, jax.Array)


class Design(NamedTuple, Generic[ArrayT]):
    """Rows, and the inputs of their logits.

    The logits of a row are ``offset + W f + v x + (t . s) x``, elementwise in x, with parameters
    W (classes, features), v and t that are zero for the identity. Rows with zero weight are
    ignored.
    """

    offset: Float[ArrayT, "*batch rows classes"]
    #: Positions of the labels among the classes; anything where only logits are computed.
    y: Shaped[ArrayT, "*batch rows"]
    weights: Float[ArrayT, "*batch rows"]
    #: f above, with at least a column of ones for an intercept.
    features: Float[ArrayT, "*batch rows features"]
    x: Float[ArrayT, "*batch rows classes"] | None = None
    #: s above, common to all classes; needs ``x``.
    shared: Float[ArrayT, "*batch rows shared"] | None = None

    @property
    def sizes(self) -> Sizes:
        """Numbers k of classes, m of features, k or 0 of diagonal and r of shared parameters."""
        k, m = self.offset.shape[-1], self.features.shape[-1]
        r = 0 if self.shared is None else self.shared.shape[-1]
        return k, m, k if self.x is not None else 0, r

    def rows(self, part: slice | ArrayT) -> Design[ArrayT]:
        """Select some of the rows."""
        return self.map_arrays(lambda leaf: leaf[part])

    def map_arrays(self, function: Callable[[ArrayT], OtherT]) -> Design[OtherT]:
        """Apply a function to all arrays that are not None."""
        leaves: list[AnyArray] = [None if leaf is None else function(leaf) for leaf in self]
        return Design(*leaves)


class Parameters(NamedTuple, Generic[ArrayT]):
    """Parameters split into W, v (which may be empty) and t, or corresponding quantities."""

    matrix: Shaped[ArrayT, "*draws classes features"]
    diagonal: Shaped[ArrayT, "*draws diagonal"]
    shared: Shaped[ArrayT, "*draws shared"] | Shaped[ArrayT, "shared shared"]


def split(theta: Shaped[ArrayT, "*draws parameters"], sizes: Sizes) -> Parameters[ArrayT]:
    """Split parameters into their parts."""
    k, m, d, _ = sizes
    matrix = namespace(theta).reshape(theta[..., : k * m], (*theta.shape[:-1], k, m))
    return Parameters(matrix, theta[..., k * m : k * m + d], theta[..., k * m + d :])


def join(parts: Parameters[ArrayT], xp: ModuleType) -> Shaped[ArrayT, "*draws parameters"]:
    """Join parts to parameters."""
    matrix = parts.matrix
    flat = matrix.reshape(*matrix.shape[:-2], -1)
    return xp.concatenate([flat, parts.diagonal, parts.shared], axis=-1)


def by_class(parts: Parameters[ArrayT], xp: ModuleType) -> Shaped[ArrayT, "classes inputs"]:
    """Return the parameters of each class: its row of the matrix and its diagonal."""
    if not parts.diagonal.shape[0]:
        return parts.matrix
    return xp.concatenate([parts.matrix, parts.diagonal[:, None]], axis=1)


def from_class_blocks(
    blocks: Shaped[ArrayT, "classes inputs"],
    sizes: Sizes,
    shared: Shaped[ArrayT, " shared"] | None = None,
) -> Parameters[ArrayT]:
    """Invert :func:`by_class`."""
    _, m, d, _ = sizes
    none = blocks[0, :0]
    return Parameters(
        blocks[:, :m], blocks[:, m] if d else none, none if shared is None else shared
    )


def logit_update(
    design: Design[ArrayT], theta: Float[ArrayT, "*draws parameters"], sizes: Sizes | None = None
) -> Float[ArrayT, "*draws rows classes"]:
    """Compute the contribution of parameters to the logits.

    ``sizes`` must be passed for lazy arrays, whose shapes are not known yet.
    """
    parts = split(theta, design.sizes if sizes is None else sizes)
    turned = namespace(theta).matrix_transpose(parts.matrix)
    added = matmul(design.features, turned)
    if design.x is not None:
        factor = parts.diagonal[..., None, :]
        if design.shared is not None:
            factor = factor + matmul(design.shared, parts.shared[..., None])
        added = added + design.x * factor
    return cast(ArrayT, added)


def logit_vjp(
    design: Design[ArrayT], residual: Float[ArrayT, "rows classes"], xp: ModuleType
) -> Float[ArrayT, " parameters"]:
    """Compute derivatives by parameters from derivatives by logits (the adjoint)."""
    _, _, d, r = design.sizes
    matrix = residual.T @ design.features
    diagonal = shared = xp.zeros(0, residual.dtype)
    if d:
        diagonal = xp.einsum("ij,ij->j", residual, design.x)
        if r:
            shared = xp.einsum("ij,ij->i", residual, design.x) @ design.shared
    return join(Parameters(matrix, diagonal, shared), xp)


def evaluate(
    design: Design[jax.Array], penalty: DeviceTheta, theta: DeviceTheta
) -> Point[jax.Array, jax.Array]:
    """Compute sum(weights * cross-entropy) + sum(penalty * theta**2) / 2, for JAX.

    The state is the probabilities (rows, classes).
    """
    logits = design.offset + logit_update(design, theta)
    top = jnp.max(logits, axis=1, keepdims=True)
    above = logits - top
    small = jnp.exp(above)
    total = jnp.sum(small, axis=1, keepdims=True)
    probs = small / total
    hit = jnp.arange(logits.shape[1]) == design.y[:, None]
    label_logits = jnp.sum(jnp.where(hit, above, 0), axis=1)
    loss = jnp.log(total[:, 0]) - label_logits
    residual = (probs - hit.astype(probs.dtype)) * design.weights[:, None]
    value = design.weights @ loss + 0.5 * jnp.sum(penalty * theta**2)
    return Point(value, logit_vjp(design, residual, jnp) + penalty * theta, probs)


def multiply(
    design: Design[jax.Array],
    penalty: DeviceTheta,
    probs: Float[jax.Array, "rows classes"],
    vector: DeviceTheta,
) -> DeviceTheta:
    """Multiply the Hessian by a vector, for JAX."""
    moved = logit_update(design, vector)
    mean = jnp.sum(probs * moved, axis=1, keepdims=True)
    residual = (probs * design.weights[:, None]) * (moved - mean)
    return logit_vjp(design, residual, jnp) + penalty * vector


class HostEvaluator:
    """The objective with NumPy, in blocks of rows that fit in the processor's cache.

    It is a context manager, because its threads, if there are many rows, end with it.
    """

    def __init__(self, design: Design[np.ndarray], penalty: Theta) -> None:
        self.design, self.penalty = design, penalty
        n, k = design.offset.shape
        cores = core_count()
        threads = cores > 1 and n * k > _SMALL and n * k * design.features.shape[1] > _MANY
        block = min(_BLOCK_OF_THREADS, n * k // (2 * cores)) if threads else _BLOCK
        step = max(1, min(n, block // k))
        self._parts = slices(n, step)
        self._blocks = [design.rows(part) for part in self._parts]
        self._pool = ThreadPoolExecutor(cores) if threads else None
        # Directions need only single precision, which takes half the time.
        inputs = [leaf for leaf in (design.features, design.x, design.shared) if leaf is not None]
        fits = n * k > _SMALL and all(np.abs(leaf).max(initial=0) < _NARROW for leaf in inputs)
        self._type = np.dtype(np.float32 if fits else np.float64)
        kept = (design.weights, *inputs)
        narrow = {id(leaf): leaf.astype(self._type, copy=False) for leaf in kept}
        rough = design.map_arrays(lambda leaf: narrow.get(id(leaf), leaf))
        self._rough = [rough.rows(part) for part in self._parts]
        # With few features a product with the Hessian is two products with one matrix. It loses
        # some digits if all labels are certain, as in small separable problems.
        few = design.features.shape[1] <= FEW and design.shared is None
        self._few = few and n * k > _SMALL
        self._plain = (
            design.offset is design.x
            and design.shared is None
            and design.features.shape[1] == 1
            and bool((design.features == 1).all())
        )
        #: Probabilities at which the Hessian of few features was last computed.
        self._probs: Float[np.ndarray, "rows classes"] | None = None

    def __enter__(self) -> HostEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _map_blocks(self, work: Callable[[int], Result]) -> Iterator[Result]:
        """Call ``work(number of the block)`` for all blocks; results keep their order."""
        numbers = range(len(self._parts))
        return map(work, numbers) if self._pool is None else self._pool.map(work, numbers)

    def evaluate(self, theta: Theta) -> Point[np.ndarray, np.ndarray]:
        """As the function of this name."""
        probs = np.empty(self.design.offset.shape, self._type)
        ones = np.ones(self.design.offset.shape[1])

        def loss_and_gradient(number: int) -> tuple[float, Theta]:
            block = self._blocks[number]
            with np.errstate(all="ignore"):
                logits = self._logits(block, theta)
                if not (-_MILD < logits.min() and logits.max() < _MILD):
                    logits -= logits.max(axis=1, keepdims=True)
                rows = np.arange(len(logits))
                label_logits = logits[rows, block.y]
                np.exp(logits, out=logits)
                total = logits @ ones
                value = float(block.weights @ (np.log(total) - label_logits))
                logits *= (1 / total)[:, None]
                probs[self._parts[number]] = logits
                logits *= block.weights[:, None]
                logits[rows, block.y] -= block.weights
                return value, logit_vjp(block, logits, np)

        value, gradient = 0.5 * float(self.penalty @ theta**2), self.penalty * theta
        for part, slope in self._map_blocks(loss_and_gradient):
            value += part
            gradient += slope
        return Point(np.asarray(value), gradient, probs)

    def _logits(self, block: Design[np.ndarray], theta: Theta) -> Float[np.ndarray, "rows classes"]:
        if self._plain:
            # The map has only intercepts and factors.
            parts = split(theta, self.design.sizes)
            logits = block.x * (1 + parts.diagonal)
            logits += parts.matrix[:, 0]
            return logits
        logits = logit_update(block, theta)
        logits += block.offset
        return logits

    def multiply(self, probs: Float[np.ndarray, "rows classes"], vector: Theta) -> Theta:
        """As the function of this name."""
        if self._few and self._probs is not probs:
            self._measure(probs)
        narrow = vector.astype(self._type)

        def product(number: int) -> Theta:
            block = self._rough[number]
            with np.errstate(all="ignore"):
                if self._few:
                    jacobian = self._jacobians[number]
                    return -((block.weights * (jacobian @ narrow)) @ jacobian)
                p, moved = probs[self._parts[number]], logit_update(block, narrow)
                moved -= np.einsum("ij,ij->i", p, moved)[:, None]
                moved *= p
                moved *= block.weights[:, None]
                return logit_vjp(block, moved, np)

        image = self.penalty * vector
        if self._few:
            parts = split(vector, self.design.sizes)
            blocks = (self._grams @ by_class(parts, np)[:, :, None])[:, :, 0]
            image += join(from_class_blocks(blocks, self.design.sizes), np)
        for part in self._map_blocks(product):
            image += part
        return image

    def _measure(self, probs: Float[np.ndarray, "rows classes"]) -> None:
        """Compute the blocks of the classes and the mean Jacobians, which they exceed by."""

        def measure(
            number: int,
        ) -> tuple[
            Float[np.ndarray, "block parameters"], Float[np.ndarray, "classes inputs inputs"]
        ]:
            block, p = self._rough[number], probs[self._parts[number]]
            return mean_logit_jacobian(block, p, np), class_grams(
                block, p * block.weights[:, None], np
            )

        self._jacobians, grams = zip(*self._map_blocks(measure), strict=True)
        self._probs, self._grams = probs, np.sum(grams, axis=0, dtype=float)


def movement(
    design: Design[ArrayT],
    theta: Float[ArrayT, " parameters"],
    step: Float[ArrayT, " parameters"],
    xp: ModuleType,
) -> Float[ArrayT, ""]:
    """Compute the largest change of a row's logits by ``step``, relative to their size."""
    logits = design.offset + logit_update(design, theta)
    moved = logit_update(design, step)
    logits = logits - xp.max(logits, axis=1, keepdims=True)
    moved = moved - xp.mean(moved, axis=1, keepdims=True)
    relative = abs(moved) / (1 + abs(logits))
    return xp.max(xp.where(design.weights[:, None] > 0, relative, 0))


def full_hessian(
    design: Design[ArrayT], probs: Float[ArrayT, "rows classes"], xp: ModuleType
) -> Float[ArrayT, "parameters parameters"]:
    """Compute the Hessian of the weighted cross-entropy, without the penalty.

    It is the sum over rows of J' diag(p) J - (J' p)(J' p)', with J the derivative of logits.
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
        moments = weighted * x
        outer = (design.features[:, :, None] * shared[:, None, :]).reshape(-1, m * r)
        side = (moments.T @ outer).reshape(k * m, r)
        below = (moments * x).T @ shared
        total = xp.sum(moments * x, axis=1)[:, None]
        corner = (shared * total).T @ shared
        rows = [[*rows[0], side], [*rows[1], below], [side.T, below.T, corner]]
    first = xp.concatenate([xp.concatenate(row, axis=1) for row in rows], axis=0)
    jacobian = mean_logit_jacobian(design, probs, xp)
    return first - (jacobian * design.weights[:, None]).T @ jacobian


def mean_logit_jacobian(
    design: Design[ArrayT], probs: Float[ArrayT, "rows classes"], xp: ModuleType
) -> Float[ArrayT, "rows parameters"]:
    """Compute the derivatives of each row's logits, averaged over its probabilities."""
    k, m, d, r = design.sizes
    if m == 1 and not r and xp is np:
        # Avoid copies.
        jacobian = xp.empty((len(probs), k + d), probs.dtype)
        xp.multiply(probs, design.features, out=jacobian[:, :k])
        if d:
            xp.multiply(probs, design.x, out=jacobian[:, k:])
        return jacobian
    parts = [(probs[:, :, None] * design.features[:, None, :]).reshape(-1, k * m)]
    if design.x is not None:
        parts.append(probs * design.x)
    if r:
        parts.append(xp.sum(parts[1], axis=1, keepdims=True) * design.shared)
    return xp.concatenate(parts, axis=1)


def class_grams(
    design: Design[ArrayT], weighted: Float[ArrayT, "rows classes"], xp: ModuleType
) -> Float[ArrayT, "classes inputs inputs"]:
    """Compute for each class the sum over rows of weighted * g g'.

    Here the inputs g are the features and, with a diagonal, the x of the class.
    """
    k, m, _, _ = design.sizes
    f = design.features
    if m <= FEW:
        pairs = (f[:, :, None] * f[:, None, :]).reshape(-1, m * m)
        square = (weighted.T @ pairs).reshape(k, m, m)
    elif xp is np:
        square = xp.empty((k, m, m), weighted.dtype)
        for i, root in enumerate(np.sqrt(weighted.T)):
            # A matrix times its transpose takes half the time.
            scaled = f * root[:, None]
            np.matmul(scaled.T, scaled, out=square[i])
    else:
        square = jax.lax.map(lambda w: (f * w[:, None]).T @ f, weighted.T)
    if design.x is None:
        return cast(ArrayT, square)
    weighted_x = weighted * design.x
    cross = (weighted_x.T @ f)[:, :, None]
    corner = xp.einsum("ij,ij->j", weighted_x, design.x)[:, None, None]
    upper = xp.concatenate([square, cross], axis=2)
    lower = xp.concatenate([cross.transpose(0, 2, 1), corner], axis=2)
    return xp.concatenate([upper, lower], axis=1)
