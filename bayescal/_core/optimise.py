"""Minimisation of smooth functions of few variables: Newton's method that cannot diverge.

Everything is written for one problem and meant for ``vmap``; a status says how it ended.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_UNROLLED = 4
#: Far rows can make the bound so large that hardly any of it is wanted.
_LEAST_DAMPING, _MOST_DAMPING = 1e-14, 1e8
_SWEEPS, _SETTLED = 1000, 1e-12


class Status(enum.IntEnum):
    """How a fit ended."""

    CONVERGED = 0
    #: The iterations ran out, or no step lowers the objective any more.
    LIMIT = 1
    #: The objective falls for ever: labels that a line separates, without a penalty.
    UNBOUNDED = 2
    #: The objective is not finite at the start.
    INVALID = 3


class Minimum(NamedTuple):
    """Where the minimisation ended.

    Attributes
    ----------
    x : array of shape (p,)
    value : scalar
    decrement : scalar
        What the next step would gain by the slope alone; g . H^-1 g for Newton's.
    iterations, status : integer scalars
    """

    x: jax.Array
    value: jax.Array
    decrement: jax.Array
    iterations: jax.Array
    status: jax.Array


class Quadratic(NamedTuple):
    """A function's value, gradient (p,) and Hessian (p, p) at a point."""

    value: jax.Array
    gradient: jax.Array
    hessian: jax.Array


def solve_positive(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Solve for a symmetric positive definite ``matrix`` (p, p); NaN where it is not.

    Few unknowns are eliminated in the open, which under ``vmap`` is far faster than a library call
    for each matrix.
    """
    p = vector.shape[0]
    if p > _UNROLLED:
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix, lower=True), vector)
    factor: list[list[Any]] = [[None] * p for _ in range(p)]
    forward: list[Any] = []
    for i in range(p):
        for j in range(i + 1):
            rest = matrix[i, j] - sum(
                (factor[i][k] * factor[j][k] for k in range(j)), start=jnp.zeros((), matrix.dtype)
            )
            factor[i][j] = jnp.sqrt(rest) if i == j else rest / factor[j][j]
        done = sum((factor[i][k] * forward[k] for k in range(i)), start=jnp.zeros((), vector.dtype))
        forward.append((vector[i] - done) / factor[i][i])
    solution: list[Any] = [None] * p
    for i in reversed(range(p)):
        done = sum(
            (factor[k][i] * solution[k] for k in range(i + 1, p)),
            start=jnp.zeros((), vector.dtype),
        )
        solution[i] = (forward[i] - done) / factor[i][i]
    return jnp.stack(solution)


Direction = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def newton_step(
    hessian: jax.Array, gradient: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the step to subtract, and what it promises to gain, to first order."""
    step = solve_positive(hessian, gradient)
    return step, gradient @ step


def lasso_step(strength: jax.Array) -> Direction:
    """Return the step of a quadratic model plus ``sum(strength * |x|)``, by coordinate descent."""

    def direction(
        hessian: jax.Array, gradient: jax.Array, x: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        diagonal = jnp.diagonal(hessian)

        def coordinate(j: int, carry: Any) -> Any:
            z, slope, moved = carry
            bend = diagonal[j]
            free = z[j] - slope[j] / bend
            new = jnp.sign(free) * jnp.maximum(jnp.abs(free) - strength[j] / bend, 0)
            change = new - z[j]
            moved = jnp.maximum(moved, jnp.sqrt(bend) * jnp.abs(change))
            return z.at[j].set(new), slope + hessian[:, j] * change, moved

        def sweep(carry: Any) -> Any:
            number, z, slope, _ = carry
            zero = jnp.zeros((), x.dtype)
            z, slope, moved = jax.lax.fori_loop(0, x.shape[0], coordinate, (z, slope, zero))
            return number + 1, z, slope, moved

        def unsettled(carry: Any) -> jax.Array:
            return (carry[0] < _SWEEPS) & (carry[3] > _SETTLED)

        start = jnp.zeros((), int), x, gradient, jnp.full((), jnp.inf, x.dtype)
        z = jax.lax.while_loop(unsettled, sweep, start)[1]
        step = x - z
        gain = gradient @ step + jnp.sum(strength * (jnp.abs(x) - jnp.abs(z)))
        return step, gain

    return direction


def newton(
    evaluate: Callable[[jax.Array], Quadratic],
    start: jax.Array,
    *,
    scale: jax.Array,
    bound: jax.Array,
    direction: Direction = newton_step,
    movement: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    max_iterations: int = 100,
    tolerance: float = 1e-10,
) -> Minimum:
    """Minimise a smooth function by damped Newton steps; every accepted step lowers it.

    Parameters
    ----------
    evaluate : callable
        Returns value, gradient and Hessian at a point (p,).
    start : array of shape (p,)
    scale : scalar
        A size of the objective; decrements are judged beside it and the value.
    bound : array of shape (p,)
        The largest that the second derivative along each axis can be.
    direction : callable
        Solves the quadratic model: ``newton_step``, or ``lasso_step(strength)`` where ``evaluate``
        adds the absolute penalty to the value, but not to the derivatives.
    movement : callable, optional
        ``movement(x, step)``: how much a step still changes what matters, relative to it. If that
        is above 0.01 when the gain has become negligible, there is no finite minimum.
    max_iterations : int
    tolerance : float
        The last step was to gain less than this, times the value and a thousandth of ``scale``.
        Convergence is quadratic, so the result is far closer.

    Notes
    -----
    The Hessian's diagonal is raised by a multiple of ``bound`` until a step lowers the value, and
    the multiple lowered again after each success (Levenberg and Marquardt). Where the function is
    nearly flat its own diagonal would not do: steps from there would be wild. One evaluation for
    each iteration.
    """
    eye = jnp.eye(start.shape[0], dtype=start.dtype)
    tiny, eps = jnp.finfo(start.dtype).tiny, jnp.finfo(start.dtype).eps

    def unfinished(carry: Any) -> jax.Array:
        return (carry[0] < max_iterations) & (carry[-1] < 0)

    # The point to start from is the first candidate, so that what is evaluated is compiled once.
    def once(carry: Any) -> Any:
        number, x, here, step, decrement, damping, _ = carry
        candidate = x - step
        there = evaluate(candidate)
        valid = jnp.isfinite(there.value) & jnp.isfinite(there.gradient).all()
        # Rounding of sums of the objective's size may look like a rise.
        slack = 8 * eps * (jnp.abs(there.value) + scale)
        lower = valid & (decrement >= 0) & (there.value <= here.value + slack)
        small = decrement <= tolerance * (jnp.abs(there.value) + 1e-3 * scale)
        ended = jnp.where(lower, small & (damping < 1), damping >= _MOST_DAMPING)
        status = jnp.where(ended, jnp.where(lower, Status.CONVERGED, Status.LIMIT), -1)
        status = jnp.where((number == 0) & ~valid, Status.INVALID, status)
        x, here = jax.tree.map(
            lambda new, old: jnp.where(lower, new, old), (candidate, there), (x, here)
        )
        easier = jnp.where(damping > _LEAST_DAMPING, damping / 10, 0.0)
        harder = jnp.maximum(100 * damping, _LEAST_DAMPING)
        damping = jnp.where(lower, easier, harder)
        # Directions without curvature, as of a constant feature, are left alone.
        diagonal = jnp.abs(jnp.diagonal(here.hessian))
        ridge = damping * (bound + diagonal) + 64 * eps * diagonal + tiny
        step, decrement = direction(here.hessian + ridge * eye, here.gradient, x)
        downhill = jnp.isfinite(step).all() & (decrement >= 0)
        return (
            number + 1,
            x,
            here,
            jnp.where(downhill, step, 0),
            jnp.where(downhill, decrement, -1),
            damping,
            status,
        )

    zero, infinite = jnp.zeros((), start.dtype), jnp.full((), jnp.inf, start.dtype)
    nowhere = Quadratic(infinite, jnp.zeros_like(start), jnp.zeros_like(eye))
    carry = (
        jnp.zeros((), int),
        start,
        nowhere,
        jnp.zeros_like(start),
        infinite,
        zero,
        jnp.full((), -1),
    )
    number, x, here, step, decrement, _, status = jax.lax.while_loop(unfinished, once, carry)
    status = jnp.where(status < 0, Status.LIMIT, status)
    if movement is not None:
        runaway = (status == Status.CONVERGED) & (movement(x, step) > 0.01)
        status = jnp.where(runaway, Status.UNBOUNDED, status)
    return Minimum(x, here.value, decrement, number, status)
