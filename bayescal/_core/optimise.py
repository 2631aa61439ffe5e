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
_MOST_DAMPING = 1e8
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
        What the last step was to gain by the slope alone; g . H^-1 g for Newton's.
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
        is above 0.01 when the decrement has become negligible, there is no finite minimum.
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
    p = start.shape[0]
    eye = jnp.eye(p, dtype=start.dtype)
    tiny = jnp.finfo(start.dtype).tiny
    eps = jnp.finfo(start.dtype).eps

    def unfinished(carry: Any) -> jax.Array:
        return (carry[0] < max_iterations) & (carry[-1] < 0)

    def once(carry: Any) -> Any:
        number, x, here, damping, _, _ = carry
        diagonal = jnp.abs(jnp.diagonal(here.hessian))
        # Directions without curvature, as of a constant feature, are left alone.
        ridge = damping * (bound + diagonal) + 64 * eps * diagonal + tiny
        step, decrement = direction(here.hessian + ridge * eye, here.gradient, x)
        downhill = jnp.isfinite(step).all() & (decrement >= 0)
        candidate = jnp.where(downhill, x - step, x)
        there = evaluate(candidate)
        # Rounding of sums of the objective's size may look like a rise.
        slack = 8 * eps * (jnp.abs(here.value) + scale)
        lower = downhill & (there.value <= here.value + slack)
        small = downhill & (decrement <= tolerance * (jnp.abs(here.value) + 1e-3 * scale))
        ended = jnp.where(lower, small & (damping < 1), damping >= _MOST_DAMPING)
        if movement is None:
            runaway = jnp.zeros((), bool)
        else:
            runaway = small & (movement(x, step) > 0.01)
        status = jnp.where(
            ended,
            jnp.where(small, jnp.where(runaway, Status.UNBOUNDED, Status.CONVERGED), Status.LIMIT),
            -1,
        )
        x, here = jax.tree.map(
            lambda new, old: jnp.where(lower, new, old), (candidate, there), (x, here)
        )
        easier = jnp.where(damping > 1e-6, damping / 10, 0.0)
        damping = jnp.where(lower, easier, jnp.maximum(10 * damping, 1e-3))
        return number + 1, x, here, damping, decrement, status

    first = evaluate(start)
    valid = jnp.isfinite(first.value) & jnp.isfinite(first.gradient).all()
    carry = (
        jnp.zeros((), int),
        start,
        first,
        jnp.zeros((), start.dtype),
        jnp.full((), jnp.inf, start.dtype),
        jnp.where(valid, -1, Status.INVALID),
    )
    number, x, here, _, decrement, status = jax.lax.while_loop(unfinished, once, carry)
    return Minimum(x, here.value, decrement, number, jnp.where(status < 0, Status.LIMIT, status))
