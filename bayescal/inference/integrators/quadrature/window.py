"""A thorough search for a density's peak, a shear that straightens it, and a box around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import Arrays
from bayescal._core.execution.chunks import Out
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import effective_sample_size, normalize_log_weights
from bayescal._core.shapes import Float

#: Arrays by their axes.
Vector: TypeAlias = 'Float[jax.Array, " parameters"]'
Scalar: TypeAlias = 'Float[jax.Array, ""]'

#: The density more than this many nats below the peak is ignored: exp(-34) is 2e-15.
DEPTH = 34.0
_ROUNDS = 40
_POINTS = {1: 64, 2: 24, 3: 16}
_CLIMBS, _STEPS = 4, 14
_SIZES = 4.0 ** np.arange(-17, 1)


class Window(NamedTuple):
    """Ends (d,) of a box, and a summary of the density on its grid of equal cells.

    ``mass`` is the log mass, ``points`` the effective number of grid points that carry it: few if
    the grid is too coarse.
    """

    low: Float[jax.Array, "*windows parameters"]
    high: Float[jax.Array, "*windows parameters"]
    mass: Float[jax.Array, " *windows"]
    points: Float[jax.Array, " *windows"]


LogDensity: TypeAlias = Callable[[jax.Array], jax.Array]
#: Numbers of rounds so far and since the box settled; ends of the box, mass and points.
_Round: TypeAlias = tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array], jax.Array, jax.Array]


def grid_values(log_target: LogDensity, axes: list[jax.Array]) -> Float[jax.Array, " *nodes"]:
    """Evaluate ``log_target`` of a vector on the grid spanned by ``axes``; shape (m1, m2, ...)."""
    mesh = jnp.meshgrid(*axes, indexing="ij")
    values = at_points(log_target, [column.ravel() for column in mesh])
    return values.reshape(mesh[0].shape)


def at_points(function: Callable[[jax.Array], Out], columns: Sequence[jax.Array]) -> Out:
    """Evaluate a function of a vector at points given by their coordinates, d arrays of (n,).

    With one array for each coordinate the compiler fuses all steps of a density into few loops.
    Without coordinates there is one point.
    """
    if not columns:
        return jax.tree.map(lambda leaf: leaf[None], function(jnp.zeros(0)))
    return jax.vmap(lambda *point: function(jnp.stack(point)))(*columns)


def cells(low: Vector, high: Vector) -> list[jax.Array]:
    """Return the midpoints of equal cells along each axis of a box."""
    m = _POINTS[low.shape[0]]
    fractions = jnp.asarray((np.arange(m) + 0.5) / m)
    return [low[i] + (high[i] - low[i]) * fractions for i in range(low.shape[0])]


def _reach(
    values: Float[jax.Array, " *nodes"], axes: list[jax.Array], peak: Vector, height: Scalar
) -> tuple[Vector, Vector]:
    """Return the ends of the box of grid points near the peak in height, widened by one step."""
    ends = []
    for i, axis in enumerate(axes):
        profile = jnp.max(values, axis=tuple(j for j in range(len(axes)) if j != i))
        step = axis[1] - axis[0]
        keep = profile >= jnp.maximum(jnp.max(profile), height) - DEPTH
        keep = keep | (jnp.abs(axis - peak[i]) <= 0.51 * step)
        first, last = jnp.argmax(keep), axis.shape[0] - 1 - jnp.argmax(keep[::-1])
        ends.append((axis[first] - step, axis[last] + step))
    return jnp.stack([e[0] for e in ends]), jnp.stack([e[1] for e in ends])


def find_peak(
    log_target: LogDensity, low: Vector, high: Vector
) -> tuple[Vector, Scalar, Float[jax.Array, "parameters parameters"], Vector, Vector, Vector]:
    """Find the peak of a density inside a box, and the local curvature.

    There may be one to three coordinates. Returns the peak (d,); its log density; a unit triangular
    matrix S (d, d), such that coordinates u with t = peak + S (u - peak) are uncorrelated near the
    peak; steps (d,) from the peak that cost about one nat; and the ends of a box to start from.

    From the best point of a coarse grid, a pattern search moves along a grid of five values for
    each coordinate. Its spacing halves if the best value is inside and doubles if it is at an end,
    so the search can leave the neighborhood of a bad start. It is repeated in coordinates
    straightened by second differences over steps that cost about one nat.
    """
    d = low.shape[0]
    width, unit = high - low, jnp.eye(d)
    floor, ceiling = low + 1e-9 * width, high - 1e-9 * width
    axes = cells(low, high)
    coarse = grid_values(log_target, axes)
    first = jnp.unravel_index(jnp.argmax(coarse), coarse.shape)
    start = jnp.stack([axis[first[i]] for i, axis in enumerate(axes)])

    # Three kinds of moves, in units of a step along each axis, padded to equal length by null
    # moves.
    pattern = np.stack(np.meshgrid(*[[-1, -0.5, 0, 0.5, 1]] * d, indexing="ij"), -1).reshape(-1, d)
    pattern = pattern[np.argsort(np.abs(pattern).sum(axis=1), kind="stable")]
    eye = np.eye(d)
    sides = np.concatenate([s * _SIZES[:, None, None] * eye for s in (1, -1)]).reshape(-1, d)
    pairs = [(i, j) for i in range(d) for j in range(i)]
    corners = [s * eye[i] + t * eye[j] for i, j in pairs for s in (1, -1) for t in (1, -1)]
    crosses = np.concatenate([eye, -eye, *([np.stack(corners)] if corners else [])])
    length = max(len(pattern), len(sides), len(crosses))
    moves = np.stack([np.pad(m, ((0, length - len(m)), (0, 0))) for m in (pattern, sides, crosses)])
    moves = jnp.asarray(moves)

    def climb(carry: Arrays, f: jax.Array, points: jax.Array) -> Arrays:
        _, radius, scale, shear, _ = carry
        best = jnp.argmax(f)
        at_end = jnp.abs(moves[0][best]) == 1
        radius = jnp.where(at_end, jnp.minimum(2 * radius, width), radius / 2)
        return points[best], radius, scale, shear, f[best]

    def measure(carry: Arrays, f: jax.Array, points: jax.Array) -> Arrays:
        peak, radius, _, shear, height = carry
        drop = height - f[: len(sides)].reshape(2, -1, d).mean(axis=0)
        sizes = jnp.asarray(_SIZES)[:, None] * width
        scale = jnp.max(jnp.where(drop <= 1, sizes, sizes[0]), axis=0)
        return peak, radius, scale, shear, height

    def straighten(carry: Arrays, f: jax.Array, points: jax.Array) -> Arrays:
        peak, radius, scale, _, height = carry
        curve = jnp.diag(2 * height - f[:d] - f[d : 2 * d])
        for n, (i, j) in enumerate(pairs):
            pp, pm, mp, mm = (f[2 * d + 4 * n + c] for c in range(4))
            cross = (pm + mp - pp - mm) / 4
            curve = curve.at[i, j].set(cross).at[j, i].set(cross)
        factor = jnp.linalg.cholesky(jnp.linalg.inv(curve))
        shear = factor / jnp.diagonal(factor) * scale[:, None] / scale
        shear = jnp.where(jnp.isfinite(shear).all(), shear, unit)
        return peak, jnp.maximum(radius, scale), scale, shear, height

    def once(n: jax.Array, carry: Arrays) -> Arrays:
        peak, radius, scale, shear, _ = carry
        kind = jnp.maximum(n % (_STEPS + 2) - _STEPS + 1, 0)
        bases = jnp.stack([shear * radius, unit * width, unit * scale])
        points = jnp.clip(peak + moves[kind] @ bases[kind].T, floor, ceiling)
        f = jax.vmap(log_target)(points)
        return jax.lax.switch(kind, [climb, measure, straighten], carry, f, points)

    carry = start, width / _POINTS[d], width, unit, jnp.max(coarse)
    total = _CLIMBS * (_STEPS + 2)
    peak, _, scale, shear, height = jax.lax.fori_loop(0, total, once, carry)
    left, right = peak - 12 * scale, peak + 12 * scale
    first_low, first_high = _reach(coarse, axes, peak, height)
    alone = (first_high - first_low) < 3.5 * width / _POINTS[d]
    left = jnp.maximum(low, jnp.where(alone, left, jnp.minimum(first_low, left)))
    right = jnp.minimum(high, jnp.where(alone, right, jnp.maximum(first_high, right)))
    return peak, height, shear, scale, left, right


def find_window(
    log_target: LogDensity,
    low: Vector,
    high: Vector,
    peak: Vector,
    height: Scalar,
    start: tuple[Vector, Vector],
) -> Window:
    """Find the smallest box, up to the spacing of a grid, outside which the density is negligible.

    The peak (d,) with log density ``height`` stays inside; ``start`` has the ends of the first box.
    Each round evaluates a grid that extends a quarter beyond the box. Its profile along each axis
    determines a new box, larger or smaller, that reaches one step beyond the outermost value within
    34 nats of the peak. The search ends when the box settles.
    """

    def unsettled(carry: _Round) -> jax.Array:
        return (carry[0] < _ROUNDS) & (carry[1] < 2)

    def once(carry: _Round) -> _Round:
        n, settled, (old_low, old_high), *_ = carry
        margin = jnp.where(settled == 0, 0.25, 0) * (old_high - old_low)
        axes = cells(jnp.maximum(low, old_low - margin), jnp.minimum(high, old_high + margin))
        values = grid_values(log_target, axes)
        new_low, new_high = _reach(values, axes, peak, height)
        new_low, new_high = jnp.maximum(low, new_low), jnp.minimum(high, new_high)
        moved = jnp.abs(new_low - old_low) + jnp.abs(new_high - old_high)
        still = (moved <= 0.1 * (old_high - old_low)).all()
        volume = sum(jnp.log(axis[1] - axis[0]) for axis in axes)
        log_weights, total = normalize_log_weights(values.ravel())
        # One more round without the margin gives the tightest box.
        settled = jnp.where(settled == 1, 2, jnp.where(still | (n >= _ROUNDS - 2), 1, 0))
        points = effective_sample_size(log_weights)
        return n + 1, settled, (new_low, new_high), total + volume, points

    zero, real = jnp.zeros((), int), jnp.zeros(())
    _, _, box, *rest = jax.lax.while_loop(unsettled, once, (zero, zero, start, real, real))
    return Window(*box, *rest)


def maximize(log_target: LogDensity, low: Vector, high: Vector) -> Vector:
    """Find the maximum (d,) of a density with one peak in a closed box."""
    d = low.shape[0]
    m = {1: 33, 2: 17, 3: 9}[d]
    first, last = low, high

    def body(_: int, box: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
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
