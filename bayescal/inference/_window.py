"""Finding where a density lies: its peak, a shear that straightens it, and a box around it."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

#: What lies this many nats below the peak is left out: exp(-34) is 2e-15.
DEPTH = 34.0
_ROUNDS = {1: 10, 2: 10, 3: 12}
_POINTS = {1: 64, 2: 32, 3: 16}
_CLIMBS, _STEPS = 4, 24
_SCALES = np.logspace(-12, 0, 61)

LogDensity = Callable[[jax.Array], jax.Array]


def grid_values(log_target: LogDensity, axes: list[jax.Array]) -> jax.Array:
    """Evaluate ``log_target`` of a vector on the grid spanned by ``axes``; shape (m1, m2, ...)."""
    mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1)
    flat = mesh.reshape(-1, len(axes))
    return jax.vmap(log_target)(flat).reshape(mesh.shape[:-1])


def find_peak(
    log_target: LogDensity, low: jax.Array, high: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the peak (d,) of a density inside a box, and a shear (d, d) that straightens it.

    Parameters
    ----------
    log_target : callable
        Log density of a coordinate vector (d,), d from 1 to 3.
    low, high : arrays of shape (d,)
        Ends of the box to search.

    Returns
    -------
    tuple
        The peak, and a unit triangular matrix S: coordinates u, where t = peak + S (u - peak),
        are uncorrelated near the peak.

    Notes
    -----
    From the best point of a coarse grid, a pattern search moves along a grid of five values for
    each coordinate, whose spacing halves where the best is inside and doubles where it is at an
    end; so it can leave the neighbourhood of a bad start. It is repeated in coordinates that second
    differences over about one nat have straightened.
    """
    d = low.shape[0]
    width = high - low
    inner_low, inner_high = low + 1e-9 * width, high - 1e-9 * width
    m = _POINTS[d]
    axes = [low[i] + width[i] / m * jnp.asarray(np.arange(m) + 0.5) for i in range(d)]
    first = jnp.unravel_index(jnp.argmax(grid_values(log_target, axes)), (m,) * d)
    start = jnp.stack([axes[i][first[i]] for i in range(d)])
    offsets = np.stack(np.meshgrid(*[[-1, -0.5, 0, 0.5, 1]] * d, indexing="ij"), -1).reshape(-1, d)
    offsets = jnp.asarray(offsets[np.argsort(np.abs(offsets).sum(axis=1), kind="stable")])
    evaluate = jax.vmap(lambda t: log_target(jnp.clip(t, inner_low, inner_high)))
    unit = jnp.eye(d)
    pairs = [(i, j) for i in range(d) for j in range(i)]

    def step(_: int, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        peak, radius, shear = carry
        points = jnp.clip(peak + (offsets * radius) @ shear.T, inner_low, inner_high)
        best = jnp.argmax(evaluate(points))
        at_end = jnp.abs(offsets[best]) == 1
        radius = jnp.where(at_end, jnp.minimum(2 * radius, width), radius / 2)
        return points[best], radius, shear

    def climb(_: int, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        peak, radius, shear = jax.lax.fori_loop(0, _STEPS, step, carry)
        height = log_target(peak)
        # The largest step along each coordinate that costs at most one nat on average.
        sizes = jnp.asarray(_SCALES)[:, None] * width
        shifts = (sizes[:, :, None] * unit).reshape(-1, d)
        sides = evaluate(jnp.concatenate([peak + shifts, peak - shifts])).reshape(2, -1, d)
        cheap = height - sides.mean(axis=0) <= 1
        scale = jnp.max(jnp.where(cheap, sizes, sizes[0]), axis=0)
        moves = [s * unit[i] + t * unit[j] for i, j in pairs for s in (1, -1) for t in (1, -1)]
        moves = [*[s * unit[i] for i in range(d) for s in (1, -1)], *moves]
        f = evaluate(peak + jnp.stack(moves) * scale)
        curve = jnp.diag(2 * height - f[0 : 2 * d : 2] - f[1 : 2 * d : 2])
        for n, (i, j) in enumerate(pairs):
            pp, pm, mp, mm = (f[2 * d + 4 * n + c] for c in range(4))
            cross = (pm + mp - pp - mm) / 4
            curve = curve.at[i, j].set(cross).at[j, i].set(cross)
        factor = jnp.linalg.cholesky(jnp.linalg.inv(curve))
        shear = factor / jnp.diagonal(factor) * scale[:, None] / scale
        shear = jnp.where(jnp.isfinite(shear).all(), shear, unit)
        return peak, jnp.maximum(radius, scale), shear

    carry = start, width / m, unit
    peak, _, shear = jax.lax.fori_loop(0, _CLIMBS, climb, carry)
    return peak, shear


def shrink_window(
    log_target: LogDensity, low: jax.Array, high: jax.Array, peak: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the smallest box, up to the spacing of a grid, outside which the density is nil.

    Parameters
    ----------
    log_target : callable
        Log density of a coordinate vector (d,), d from 1 to 3.
    low, high : arrays of shape (d,)
        Ends of the box to search.
    peak : array of shape (d,)
        Where the density is largest; it stays inside.

    Notes
    -----
    Rounds of a grid over the box, its profile along each axis, and a new box that reaches one
    step beyond the outermost value within 34 nats of the peak.
    """
    d = low.shape[0]
    m = _POINTS[d]
    height = log_target(peak)

    def body(_: int, box: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = box
        step = (high - low) / m
        axes = [low[i] + step[i] * jnp.asarray(np.arange(m) + 0.5) for i in range(d)]
        values = grid_values(log_target, axes)
        new_low, new_high = [], []
        for i in range(d):
            profile = jnp.max(values, axis=tuple(j for j in range(d) if j != i))
            keep = profile >= jnp.maximum(jnp.max(profile), height) - DEPTH
            keep = keep | (jnp.abs(axes[i] - peak[i]) <= 0.51 * step[i])
            first, last = jnp.argmax(keep), m - 1 - jnp.argmax(keep[::-1])
            new_low.append(jnp.maximum(low[i], axes[i][first] - step[i]))
            new_high.append(jnp.minimum(high[i], axes[i][last] + step[i]))
        return jnp.stack(new_low), jnp.stack(new_high)

    return jax.lax.fori_loop(0, _ROUNDS[d], body, (low, high))


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
