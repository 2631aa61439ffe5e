"""Draws from a proposal, their likelihood under sufficient statistics, and their weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayescal._core.numerics import nan_to_minus_inf
from bayescal.models import Family


class Draws(NamedTuple):
    """Parameter values with the logarithm of what multiplies their likelihood.

    Attributes
    ----------
    params : dict of arrays with a leading axis of n
    log_prior : array of shape (n,)
        Log prior density in the space of the parameters, for the mode.
    log_base : array of shape (n,)
        Log weight without the likelihood, scaled so that the weights sum to the evidence.
    """

    params: dict[str, Any]
    log_prior: jax.Array
    log_base: jax.Array


_DIRECT = 1 << 24


def log_likelihood(
    family: Family, params: dict[str, Any], sums: jax.Array, origin: jax.Array
) -> jax.Array:
    """Return the log likelihood (n,) of the parameters given the sums (classes, p) of features.

    O(n * classes * p), whatever the number of observations; ``-inf`` where parameters are invalid.
    """

    def one(params: dict[str, Any]) -> jax.Array:
        return family.natural(params, origin).ravel()

    def rows(params: dict[str, Any]) -> jax.Array:
        return jnp.matmul(jax.vmap(one)(params), sums.ravel(), precision="highest")

    n = jax.tree.leaves(params)[0].shape[0]
    if n * sums.size <= _DIRECT:
        return nan_to_minus_inf(rows(params))
    block = max(1, _DIRECT // (8 * sums.size))
    return nan_to_minus_inf(jax.lax.map(rows, in_blocks(params, n, block)).ravel()[:n])


def in_blocks(tree: Any, n: int, block: int) -> Any:
    """Split the leading axis ``n`` of every leaf into blocks, repeating the last entry."""
    count = -(-n // block)

    def split(leaf: jax.Array) -> jax.Array:
        widths = [(0, count * block - n)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, widths, mode="edge").reshape(count, block, *leaf.shape[1:])

    return jax.tree.map(split, tree)


def broadcast_params(params: dict[str, Any], n: int, sampled: set[str]) -> dict[str, Any]:
    """Repeat the fixed parameters ``n`` times, beside those that are sampled."""
    return {
        name: value if name in sampled else jnp.broadcast_to(value, (n, *jnp.shape(value)))
        for name, value in params.items()
    }
