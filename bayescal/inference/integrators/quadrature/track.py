"""A quick search for the box around a density with one peak, by a grid that follows the peak."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import Arrays
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float
from bayescal.inference.integrators.quadrature.window import DEPTH, LogDensity, at_points

#: An array by its axes.
Vector: TypeAlias = 'Float[jax.Array, " parameters"]'

_POINTS = {1: 48, 2: 24, 3: 12}
_ROUNDS = 40
_SHRINK = 3.0


def track_box(log_target: LogDensity, low: Vector, high: Vector) -> tuple[Vector, Vector, Vector]:
    """Find the ends of a box around a density of one to three variables, and its best point.

    Each round puts a grid over the box. The next box reaches one step beyond the outermost values
    within 34 nats of the best. It reaches half a box further if such a value is the last of the
    grid and the best is near it. It is at least a third as wide as the previous box, so that a peak
    that a coarse grid misplaces is not lost. The search ends when the box settles.
    """
    d = low.shape[0]
    m = _POINTS[d]
    mesh = np.stack(np.meshgrid(*[np.arange(m) + 0.5] * d, indexing="ij"), -1).reshape(-1, d)
    flat, columns = jnp.asarray(mesh), [jnp.asarray(column) for column in mesh.T]

    def once(carry: Arrays) -> Arrays:
        n, _, left, right, _ = carry
        step = (right - left) / m
        values = at_points(log_target, [left[i] + step[i] * columns[i] for i in range(d)])
        best = jnp.argmax(values)
        keep = (values >= values[best] - DEPTH)[:, None]
        first = jnp.min(jnp.where(keep, flat, m), axis=0)
        last = jnp.max(jnp.where(keep, flat, 0), axis=0)
        top = flat[best]
        new_left = left + step * (first - jnp.where((first < 1) & (top < m / 4), m / 2, 1))
        new_right = left + step * (last + jnp.where((last > m - 1) & (top > 3 * m / 4), m / 2, 1))
        half = jnp.maximum(new_right - new_left, (right - left) / _SHRINK) / 2
        center = (new_left + new_right) / 2
        new_left, new_right = jnp.maximum(low, center - half), jnp.minimum(high, center + half)
        moved = jnp.abs(new_left - left) + jnp.abs(new_right - right)
        unsettled = (moved > 0.15 * (right - left)).any()
        return n + 1, unsettled, new_left, new_right, left + step * top

    start = jnp.zeros((), int), jnp.ones((), bool), low, high, 0.5 * (low + high)
    *_, left, right, peak = jax.lax.while_loop(lambda c: (c[0] < _ROUNDS) & c[1], once, start)
    return left, right, peak
