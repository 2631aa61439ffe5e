"""Predictions averaged over weighted draws, streamed in blocks of draws and of points.

Nothing of size (draws, points) is kept: blocks are reduced as they are made, with sums kept on a
logarithmic scale.  Work is O(draws * points); memory O(block + data sets * points).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.blocks import POINTS_PER_CHUNK, block_elements, even_block
from bayescal._core.numerics import below_top, two_class_probabilities
from bayescal.inference._draws import in_blocks
from bayescal.models import Family


def linear(natural: jax.Array, phi: jax.Array) -> jax.Array:
    """Return natural (..., n, p) times phi (m, p) as (..., n, m), elementwise where p is small."""
    if phi.shape[-1] > 4:
        return jnp.matmul(natural, phi.T, precision="highest")
    terms = [natural[..., :, j, None] * phi[:, j] for j in range(1, phi.shape[-1])]
    return sum(terms, start=jnp.broadcast_to(natural[..., :, 0, None], terms[0].shape))


def weighted_sum(weights: jax.Array, values: jax.Array) -> jax.Array:
    """Return weights (b, n) times values (..., n, m) as (..., b, m)."""
    if weights.shape[0] == 1:
        return jnp.sum(weights[0][:, None] * values, axis=-2, keepdims=True)
    return jnp.matmul(weights, values, precision="highest")


def weight_blocks(log_weights: jax.Array, block: int) -> jax.Array:
    """Split (b, n) log weights into (blocks, b, block), padded with zero weight."""
    b, n = log_weights.shape
    count = -(-n // block)
    padded = jnp.pad(log_weights, ((0, 0), (0, count * block - n)), constant_values=-jnp.inf)
    return padded.reshape(b, count, block).swapaxes(0, 1)


def natural_block(
    family: Family, params: dict[str, Any], origin: jax.Array, dtype: np.dtype
) -> jax.Array:
    """Return the finite coefficients (classes, n, p) of a block; invalid draws weigh nothing."""
    natural = jax.vmap(family.natural, in_axes=(0, None))(params, origin)
    return jnp.where(jnp.isfinite(natural), natural, 0).astype(dtype).swapaxes(0, 1)


def mixture(
    family: Family,
    method: str,
    params: dict[str, Any],
    log_weights: jax.Array,
    x: jax.Array,
    origin: jax.Array,
    log_class_prior: jax.Array,
    dtype: np.dtype,
) -> jax.Array:
    """Average predictions over weighted draws at one chunk of points.

    Parameters
    ----------
    family : Family
    method : "preds" or "predictive"
        Average of the optimal predictions, or ratio of averaged densities.
    params : dict of arrays (n, ...)
    log_weights : array of shape (b, n)
        Normalised log weights of b data sets that share the draws.
    x : array of shape (m,) or (m, d)
    origin : array
    log_class_prior : array of shape (classes,)
    dtype : the floating-point type of the blocks

    Returns
    -------
    array of shape (classes, b, m)
        Log of the unnormalised class probabilities.
    """
    phi = family.features(x, origin, jnp).astype(dtype)
    b, n = log_weights.shape
    k, m = family.classes, phi.shape[0]
    block = even_block(n, block_elements() // (m * k))
    log_prior = log_class_prior.astype(dtype)
    step = _predictive_step if method == "predictive" else _preds_step
    # The envelope over data sets keeps what is shared between them free of their weights.
    envelope = jnp.max(log_weights, axis=0, keepdims=True)
    safe = jnp.where(jnp.isfinite(envelope), envelope, 0)
    relative = weight_blocks(log_weights - safe, block) if b > 1 else None
    inputs = in_blocks(params, n, block), relative, weight_blocks(envelope, block)[:, 0]

    def body(carry: Any, item: Any) -> tuple[Any, None]:
        blk, relative, ref = item
        natural = natural_block(family, blk, origin, dtype)
        own = None if relative is None else jnp.exp(relative).astype(dtype)
        return step(carry, natural, phi, own, ref, log_prior), None

    lowest = jnp.full((k, m), jnp.finfo(dtype).min, dtype)
    start = (lowest, jnp.zeros((k, b, m), dtype))
    if block == n:
        (top, total), _ = body(start, jax.tree.map(lambda leaf: leaf[0], inputs))
    else:
        (top, total), _ = jax.lax.scan(body, start, inputs)
    # A sum near the smallest number has lost terms: NaN says so, and the caller goes row by row.
    faint = total < jnp.finfo(dtype).tiny * 1e8
    log_total = jnp.log(jnp.where(faint & (b > 1), jnp.nan, total))
    if method == "predictive":
        return log_total + (top + log_prior[:, None])[:, None, :]
    return log_total


def _preds_step(carry: Any, natural: Any, phi: Any, relative: Any, ref: Any, log_prior: Any) -> Any:
    """Add a block to the weighted sums of the optimal predictions."""
    top, total = carry
    weights = jnp.exp(ref).astype(phi.dtype)[None]
    if relative is not None:
        weights = relative * weights
    if natural.shape[0] == 2:
        log_odds = linear(natural[1] - natural[0], phi) + (log_prior[1] - log_prior[0])
        if weights.shape[0] == 1:
            one, zero = two_class_probabilities(log_odds, weights[0][:, None])
            sums = jnp.stack([zero.sum(axis=0), one.sum(axis=0)])[:, None]
        else:
            one, zero = two_class_probabilities(log_odds)
            sums = jnp.stack([weighted_sum(weights, zero), weighted_sum(weights, one)])
    else:
        logits = linear(natural, phi) + log_prior[:, None, None]
        sums = weighted_sum(weights, jax.nn.softmax(logits, axis=0))
    return top, total + sums


def _predictive_step(
    carry: Any, natural: Any, phi: Any, relative: Any, ref: Any, log_prior: Any
) -> Any:
    """Add a block to the weighted sums of the densities of each class, on a running scale."""
    top, total = carry
    log_density = linear(natural, phi) + ref.astype(phi.dtype)[:, None]
    new_top = jnp.maximum(top, jnp.max(log_density, axis=1))
    scaled = jnp.exp(below_top(log_density, new_top[:, None, :]))
    shrink = jnp.exp(top - new_top)[:, None, :]
    if relative is None:
        return new_top, total * shrink + jnp.sum(scaled, axis=1, keepdims=True)
    return new_top, total * shrink + weighted_sum(relative, scaled)


def in_chunks(function: Any, x: jax.Array, width: int = POINTS_PER_CHUNK) -> Any:
    """Apply ``function`` to chunks of points ``x`` (m, ...) and join results on their last axis."""
    m = x.shape[0]
    if m <= width:
        return function(x)
    parts = jax.lax.map(function, in_blocks(x, m, width))
    return jax.tree.map(lambda part: _join(part)[..., :m], parts)


def _join(part: jax.Array) -> jax.Array:
    """Turn (chunks, ..., width) into (..., chunks * width)."""
    moved = jnp.moveaxis(part, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)
