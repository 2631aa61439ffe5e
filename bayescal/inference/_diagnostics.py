"""How far weighted draws can be trusted: Pareto-smoothed importance sampling's k."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np


def pareto_k(log_weights: jax.Array) -> jax.Array:
    """Estimate the shape k of the generalised Pareto tail of importance weights.

    Parameters
    ----------
    log_weights : array of shape (n,)

    Returns
    -------
    scalar
        k; above 0.7 averages over the weights are unreliable. NaN for fewer than 25 draws,
        ``inf`` where the largest weights are all equal to zero.

    References
    ----------
    A. Vehtari et al. (2024), Pareto smoothed importance sampling; J. Zhang and M. Stephens (2009)
    for the fit of the tail.
    """
    n = log_weights.shape[0]
    tail = math.ceil(min(0.2 * n, 3 * math.sqrt(n)))
    if tail < 5:
        return jnp.full((), jnp.nan)
    top = jnp.max(log_weights)
    shifted = log_weights - jnp.where(jnp.isfinite(top), top, 0)
    # Selection needs no more than float32, where it is fast.
    largest, _ = jax.lax.top_k(shifted.astype(jnp.float32), tail + 1)
    values = jnp.exp(largest.astype(log_weights.dtype))
    exceed = values[:-1] - values[-1]
    # Equal weights have no tail at all; a single dominating weight has the worst one.
    spread = exceed[0] > 1e-10 * values[0]
    return jnp.where(spread, _generalised_pareto_shape(exceed[::-1]), -jnp.inf)


def _generalised_pareto_shape(x: jax.Array) -> jax.Array:
    """Fit k to ascending exceedances (n,) by Zhang and Stephens' averaged profile likelihood."""
    n = x.shape[0]
    grid = 30 + math.isqrt(n)
    quartile = jnp.maximum(x[int(n / 4 + 0.5) - 1], jnp.finfo(x.dtype).tiny)
    steps = jnp.asarray(1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5)), x.dtype)
    theta = 1 / x[-1] + steps / (3 * quartile)
    shape = jnp.mean(jnp.log1p(-theta[:, None] * x), axis=1)
    profile = n * (jnp.log(-theta / shape) - shape - 1)
    weights = jax.nn.softmax(jnp.where(jnp.isnan(profile), -jnp.inf, profile))
    best = jnp.sum(jnp.where(weights > 0, theta * weights, 0))
    k = jnp.mean(jnp.log1p(-best * x))
    # A weak prior of ten observations at one half steadies small tails.
    return (n * k + 10 * 0.5) / (n + 10)
