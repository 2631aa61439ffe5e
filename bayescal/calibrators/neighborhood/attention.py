"""Softmax-weighted averages of values (an attention layer), streamed in blocks of queries and keys.

The softmax is online: it has a running maximum for each query, and sums relative to it. Memory is
O(block + queries + keys). ``jax.nn.dot_product_attention`` is not used because on CPUs it holds all
scores, its bias would have the size of the scores, and it can neither share scores between
bandwidths nor exclude pairs of one group without a mask of that size.

Scores are float64 on every backend, because a small bandwidth multiplies their errors. Exponentials
and averages may be float32.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayescal._core.arrays import AnyArray, Array, Arrays, namespace
from bayescal._core.execution.chunks import block_elements, even_block, points_per_chunk
from bayescal._core.execution.padding import padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import subtract_maximum
from bayescal._core.shapes import Float, Int

#: The process in which JAX has threads. Forked children lack them, so programs would hang.
_PROCESS = os.getpid()
#: Blocks of queries in one call of the compiled program.
_BLOCKS_PER_CALL = 8


class Keys(NamedTuple):
    """Keys (blocks, block, d) and their values (blocks, block, v + 1), each followed by a one.

    The bias (blocks, g, block) is negative infinity at padding; ``groups`` are integers
    (blocks, block) or None; ``used`` is the number of blocks that are not all padding.
    """

    keys: Array
    bias: Array
    values: Array
    groups: Array | None
    used: Array


def prepare_keys(
    keys: Array, bias: Array, values: Array, dtype: npt.DTypeLike, groups: Array | None = None
) -> Keys:
    """Copy keys (n, d) and values (n, v) to the device, and split them into blocks.

    In a forked child of the process, arrays stay NumPy arrays.

    ``bias`` (g, n) is added to the scores of each bandwidth, for example logarithms of weights.
    ``groups`` are integers (n,). Exponentials and averages are of ``dtype``, float64 or float32.
    """
    n, xp = len(keys), namespace(values)
    with_ones = xp.concat([values, xp.ones((n, 1), dtype=values.dtype)], axis=1)
    padded = padded_length(n)
    block = even_block(padded, block_elements() // points_per_chunk())
    count = -(-padded // block)

    to_device: Callable[..., AnyArray] = np.asarray if is_forked() else jnp.asarray

    def blocks(array: AnyArray, fill: float, dtype: npt.DTypeLike) -> Array:
        """Split rows into blocks; pad the last one."""
        widths = [(0, count * block - n)] + [(0, 0)] * (array.ndim - 1)
        whole = namespace(array).pad(array.astype(dtype), widths, constant_values=fill)
        return to_device(whole.reshape(count, block, *array.shape[1:]))

    with float64():
        return Keys(
            blocks(keys, 0, np.float64),
            blocks(bias.T, -np.inf, np.float64).swapaxes(1, 2),
            blocks(with_ones, 0, dtype),
            None if groups is None else blocks(groups, -1, np.int32),
            to_device(-(-n // block), np.int32),
        )


def is_forked() -> bool:
    """Whether this is a forked child of the process in which JAX has threads."""
    return os.getpid() != _PROCESS


def attend(
    queries: Float[np.ndarray, "queries columns"],
    keys: Keys,
    bandwidths: Float[np.ndarray, " bandwidths"],
    groups: Int[np.ndarray, " queries"] | None = None,
) -> Float[np.ndarray, "bandwidths queries values"]:
    r"""Compute averages (g, m, v) of values, weighted by scores of keys and queries (m, d).

    .. math:: \frac{\sum_i e^{s_i} v_i}{\sum_i e^{s_i}}, \qquad s_i = q \cdot k_i / h + b_i

    Products of queries and keys are computed once for all bandwidths h (g,): O(m n (d + g v)) time.
    Scores must not be NaN. With ``groups`` (m,), which the keys then have too, a query ignores the
    keys of its group; the average over no keys is zero.
    """
    if is_forked():
        return _attend_with_numpy(queries, keys, bandwidths, groups)
    m = len(queries)
    rows = even_block(m, _BLOCKS_PER_CALL * points_per_chunk())
    length = padded_length(rows)
    width = even_block(length, points_per_chunk())
    averages_of_all = np.empty((len(bandwidths), m, keys.values.shape[2] - 1), keys.values.dtype)
    padded = np.zeros((-(-length // width) * width, queries.shape[1]))
    padded_groups = np.zeros(len(padded), np.int32)
    with float64():
        inverse = jnp.asarray(1 / bandwidths, np.float64)
        for start in range(0, m, rows):
            part = slice(start, min(start + rows, m))
            size = part.stop - start
            padded[:size] = queries[part]
            if groups is not None:
                padded_groups[:size] = groups[part]
            # Copy, because JAX may read NumPy's memory after it has been overwritten.
            group = None if groups is None else jnp.array(padded_groups)
            averages = _attention(jnp.array(padded), group, keys, inverse, width=width)
            averages_of_all[:, part] = np.asarray(averages)[:, :size]
    return averages_of_all


def _attend_with_numpy(
    queries: Float[np.ndarray, "queries columns"],
    keys: Keys,
    bandwidths: Float[np.ndarray, " bandwidths"],
    groups: np.ndarray | None,
) -> Float[np.ndarray, "bandwidths queries values"]:
    """Compute the result of :func:`attend` without JAX."""
    top = np.full((len(bandwidths), len(queries), 1), np.finfo(float).min)
    sums = np.zeros((*top.shape[:2], keys.values.shape[2]))
    for block in range(int(keys.used)):
        products = queries @ np.asarray(keys.keys[block]).T
        if groups is not None and keys.groups is not None:
            products[groups[:, None] == np.asarray(keys.groups[block])] = -np.inf
        for level, h in enumerate(bandwidths):
            scores = products / h + np.asarray(keys.bias[block, level])
            new = np.maximum(top[level], scores.max(axis=1, keepdims=True))
            sums[level] *= np.exp(top[level] - new)
            sums[level] += np.exp(scores - new) @ np.asarray(keys.values[block])
            top[level] = new
    return sums[..., :-1] / np.where(sums[..., -1:] > 0, sums[..., -1:], 1)


@partial(jax.jit, static_argnames=("width",))
def _attention(
    queries: jax.Array, groups: jax.Array | None, keys: Keys, inverse: jax.Array, width: int
) -> jax.Array:
    """Compute averages (g, m, v) for m queries, a multiple of ``width``."""
    averages = _by_chunk((queries, groups), keys, inverse, width, lambda values: values)
    return jnp.moveaxis(averages, 0, 1).reshape(inverse.shape[0], queries.shape[0], -1)


def attend_and_sum(
    rows: Any, keys: Keys, bandwidths: np.ndarray, then: Callable[..., jax.Array]
) -> jax.Array:
    """Sum a function of averages over blocks of queries, inside JAX programs.

    ``rows`` are queries, groups or None, and further arrays. ``then(averages, *others)`` receives
    the averages (g, b, v) of a block and its further arrays (b, ...), padded with zeros.
    """
    m = rows[0].shape[0]
    width = even_block(m, points_per_chunk())
    more = -m % width

    def fill(array: jax.Array) -> jax.Array:
        return jnp.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1))

    filled = jax.tree.map(fill, rows)
    return jnp.sum(_by_chunk(filled, keys, jnp.asarray(1 / bandwidths), width, then), axis=0)


def _by_chunk(
    all_rows: object, keys: Keys, inverse: jax.Array, width: int, then: Callable[..., jax.Array]
) -> jax.Array:
    """Map a function over the averages (g, width, v) of chunks of queries."""
    dtype = keys.values.dtype
    lowest = float(np.finfo(np.float64).min)
    levels, size = inverse.shape[0], keys.values.shape[2]

    def add(
        rows_and_groups: tuple[jax.Array, jax.Array | None], block: jax.Array, carry: Arrays
    ) -> Arrays:
        rows, group = rows_and_groups
        products = jnp.matmul(rows, keys.keys[block].T, precision="highest")
        if group is not None and keys.groups is not None:
            products = jnp.where(group[:, None] == keys.groups[block], -jnp.inf, products)
        values = keys.values[block]

        def level(arguments: Arrays) -> tuple[jax.Array, jax.Array]:
            inverse, bias, top, sums = arguments
            scores = products * inverse + bias
            new_top = jnp.maximum(top, jnp.max(scores, axis=1))
            terms = jnp.exp(subtract_maximum(scores, new_top[:, None]).astype(dtype))
            part = jnp.matmul(terms, values, precision="highest")
            # Before the first key, sums are zero and the maximum is the lowest number.
            shrink = jnp.exp((top - new_top).astype(dtype))
            return new_top, sums * shrink[:, None] + part

        return jax.lax.map(level, (inverse, keys.bias[block], *carry))

    def chunk(rows_and_groups: tuple[jax.Array, ...]) -> jax.Array:
        start = (
            jnp.full((levels, width), lowest, np.float64),
            jnp.zeros((levels, width, size), dtype),
        )
        # Blocks of padding are skipped; they only serve to share compilations.
        rows, group, *others = rows_and_groups
        _, sums = jax.lax.fori_loop(0, keys.used, partial(add, (rows, group)), start)
        total = sums[..., -1:]
        return then(sums[..., :-1] / jnp.where(total > 0, total, 1), *others)

    blocks = jax.tree.map(lambda a: a.reshape(-1, width, *a.shape[1:]), all_rows)
    return jax.lax.map(chunk, blocks)
