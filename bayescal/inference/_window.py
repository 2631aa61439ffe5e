"""Finding the box in which a density lies, by grids that close in on it."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

#: What lies this many nats below the peak is left out: exp(-34) is 2e-15.
DEPTH = 34.0
_ROUNDS = 8
_POINTS = {1: 64, 2: 32, 3: 16}


def grid_values(log_target: Callable[[jax.Array], jax.Array], axes: list[jax.Array]) -> jax.Array:
    """Evaluate ``log_target`` of a vector on the grid spanned by ``axes``; shape (m1, m2, ...)."""
    mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1)
    flat = mesh.reshape(-1, len(axes))
    return jax.vmap(log_target)(flat).reshape(mesh.shape[:-1])


def shrink_window(
    log_target: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the smallest box, up to the spacing of a grid, outside which the density is nil.

    Parameters
    ----------
    log_target : callable
        Log density of a coordinate vector (d,), d from 1 to 3.
    low, high : arrays of shape (d,)
        Ends of the box to search.

    Notes
    -----
    Eight rounds: a grid over the box, its profile along each axis, and a new box that reaches one
    step beyond the outermost value within 34 nats of the best.
    """
    d = low.shape[0]
    m = _POINTS[d]

    def body(_: int, box: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = box
        step = (high - low) / m
        axes = [low[i] + step[i] * jnp.asarray(np.arange(m) + 0.5) for i in range(d)]
        values = grid_values(log_target, axes)
        new_low, new_high = [], []
        for i in range(d):
            profile = jnp.max(values, axis=tuple(j for j in range(d) if j != i))
            keep = profile >= jnp.max(profile) - DEPTH
            first, last = jnp.argmax(keep), m - 1 - jnp.argmax(keep[::-1])
            new_low.append(jnp.maximum(low[i], axes[i][first] - step[i]))
            new_high.append(jnp.minimum(high[i], axes[i][last] + step[i]))
        return jnp.stack(new_low), jnp.stack(new_high)

    return jax.lax.fori_loop(0, _ROUNDS, body, (low, high))


def maximise(
    log_target: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array
) -> jax.Array:
    """Return the maximiser (d,) in a closed box of a density with one peak, ends included."""
    d = low.shape[0]
    m = {1: 33, 2: 17, 3: 9}[d]
    first, last = low, high

    def body(_: int, box: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = box
        axes = [jnp.linspace(low[i], high[i], m) for i in range(d)]
        flat = jnp.argmax(grid_values(log_target, axes))
        index = jnp.unravel_index(flat, (m,) * d)
        best = jnp.stack([axes[i][index[i]] for i in range(d)])
        step = (high - low) / (m - 1)
        return jnp.maximum(first, best - step), jnp.minimum(last, best + step)

    rounds = math.ceil(math.log(1e-13) / math.log(2 / (m - 1)))
    low, high = jax.lax.fori_loop(0, rounds, body, (low, high))
    return 0.5 * (low + high)
