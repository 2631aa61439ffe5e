"""How far weighted draws can be trusted: Pareto-smoothed importance sampling's k."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

_AT_ONCE = 64


def largest_log_weights(log_weights: jax.Array) -> jax.Array:
    """Return the tail of log weights (n,) and the weight below it, descending, largest at zero.

    So many count as the tail: min(n / 5, 3 sqrt(n)).
    """
    n = log_weights.shape[0]
    top = jnp.max(log_weights)
    shifted = log_weights - jnp.where(jnp.isfinite(top), top, 0)
    # Selection needs no more than float32, where it is fast.
    count = min(math.ceil(min(0.2 * n, 3 * math.sqrt(n))) + 1, n)
    return jax.lax.top_k(shifted.astype(jnp.float32), count)[0]


def pareto_k(largest: np.ndarray) -> np.ndarray:
    """Estimate the shape k of the generalised Pareto tail of importance weights.

    Parameters
    ----------
    largest : array of shape (batch, tail + 1)
        The largest log weights of each data set, descending, from ``largest_log_weights``.

    Returns
    -------
    array of shape (batch,)
        k; above 0.7 averages over the weights are unreliable. NaN for tails of fewer than five,
        ``-inf`` where the weights of the tail are equal, ``inf`` where so few have any that a
        quarter of the tail is zero.

    References
    ----------
    A. Vehtari et al. (2024), Pareto smoothed importance sampling; J. Zhang and M. Stephens (2009)
    for the fit of the tail.
    """
    batch, count = largest.shape
    if count < 6:
        return np.full(batch, np.nan)
    parts = [_shapes(largest[i : i + _AT_ONCE]) for i in range(0, batch, _AT_ONCE)]
    return np.concatenate(parts)


def _shapes(largest: np.ndarray) -> np.ndarray:
    """Fit k by the averaged profile likelihood of Zhang and Stephens."""
    values = np.exp(largest.astype(np.float64))
    x = (values[:, :-1] - values[:, -1:])[:, ::-1]
    n = x.shape[1]
    grid = 30 + math.isqrt(n)
    equal = x[:, -1] <= 1e-10 * values[:, 0]
    x = np.where(equal[:, None], np.arange(1, n + 1), x)
    quartile = x[:, int(n / 4 + 0.5) - 1 :][:, :1]
    alone = quartile[:, 0] < np.finfo(float).tiny
    quartile = np.maximum(quartile, np.finfo(float).tiny)
    theta = 1 / x[:, -1:] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quartile)
    shape = np.stack(
        [np.log1p(-t[:, None] * r).mean(axis=1) for t, r in zip(theta, x, strict=True)]
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        profile = n * (np.log(-theta / shape) - shape - 1)
        profile = np.where(np.isnan(profile), -np.inf, profile)
        weights = np.exp(profile - profile.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    best = np.sum(np.where(weights > 0, theta * weights, 0), axis=1)
    k = np.log1p(-best[:, None] * x).mean(axis=1)
    # A weak prior of ten observations at one half steadies small tails.
    k = np.where(alone, np.inf, (n * k + 10 * 0.5) / (n + 10))
    return np.where(equal, -np.inf, k)
