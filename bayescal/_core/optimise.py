"""Minimisation of smooth functions of few variables: Newton's method that cannot diverge.

Everything is written for one problem and meant for ``vmap``; a status says how it ended. With
``xp=numpy`` the same steps are taken on the host, where nothing has to be compiled.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_UNROLLED = 4
#: Far rows can make the bound so large that hardly any of it is wanted.
_LEAST_DAMPING, _MOST_DAMPING = 1e-14, 1e8
#: Of the tolerance: a step that is to gain less need not lower the value.
_UNSEEN = 1e-3
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
    gradient : array of shape (p,), or None where it is not kept
    """

    x: Any
    value: Any
    decrement: Any
    iterations: Any
    status: Any
    gradient: Any = None


class Quadratic(NamedTuple):
    """A function's value, gradient (p,) and Hessian (p, p) at a point."""

    value: Any
    gradient: Any
    hessian: Any


def solve_positive(matrix: Any, vector: Any, xp: Any = jnp) -> Any:
    """Solve for a symmetric positive definite ``matrix`` (p, p); NaN where it is not.

    Few unknowns are eliminated in the open, which under ``vmap`` is far faster than a library call
    for each matrix.
    """
    p = vector.shape[0]
    if xp is np:
        try:
            triangle = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return np.full_like(vector, np.nan)
        return np.linalg.solve(triangle.T, np.linalg.solve(triangle, vector))
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


Direction = Callable[[Any, Any, Any], tuple[Any, Any]]


def newton_step(hessian: Any, gradient: Any, x: Any, xp: Any = jnp) -> tuple[Any, Any]:
    """Return the step to subtract, and what it promises to gain, to first order."""
    step = solve_positive(hessian, gradient, xp)
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
    evaluate: Callable[[Any], Quadratic],
    start: Any,
    *,
    scale: Any,
    bound: Any,
    direction: Direction | None = None,
    movement: Callable[[Any, Any], Any] | None = None,
    max_iterations: int = 100,
    tolerance: float = 1e-10,
    xp: Any = jnp,
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
    direction : callable, optional
        Solves the quadratic model: ``newton_step``, or ``lasso_step(strength)`` where ``evaluate``
        adds the absolute penalty to the value, but not to the derivatives.
    movement : callable, optional
        ``movement(x, step)``: how much a step still changes what matters, relative to it. If that
        is above 0.01 when the gain has become negligible, there is no finite minimum.
    max_iterations : int
    tolerance : float
        The last step was to gain less than this, times the value and a thousandth of ``scale``.
        Convergence is quadratic, so the result is far closer.
    xp : module
        ``jax.numpy``, or ``numpy`` to iterate in Python; ``evaluate`` must then return NumPy's.

    Notes
    -----
    The Hessian's diagonal is raised by a multiple of ``bound`` until a step lowers the value, and
    the multiple lowered again after each success (Levenberg and Marquardt). Where the function is
    nearly flat its own diagonal would not do: steps from there would be wild. One evaluation for
    each iteration.
    """
    if direction is None:
        direction = partial(newton_step, xp=xp)
    dtype = start.dtype
    eye = xp.eye(start.shape[0], dtype=dtype)
    tiny, eps = xp.finfo(dtype).tiny, xp.finfo(dtype).eps

    def unfinished(carry: Any) -> Any:
        return (carry[0] < max_iterations) & (carry[-1] < 0)

    # The point to start from is the first candidate, so that what is evaluated is compiled once.
    def once(carry: Any) -> Any:
        number, x, here, step, decrement, damping, _ = carry
        candidate = x - step
        there = evaluate(candidate)
        valid = xp.isfinite(there.value) & xp.isfinite(there.gradient).all()
        # Rounding of sums of the objective's size may look like a rise.
        slack = 8 * eps * (abs(there.value) + scale)
        lower = valid & (decrement >= 0) & (there.value <= here.value + slack)
        small = decrement <= tolerance * (abs(there.value) + 1e-3 * scale)
        # So little that the value's digits may not show it.
        size = abs(here.value) + 1e-3 * scale
        unseen = (decrement >= 0) & (decrement < _UNSEEN * tolerance * size) & (damping < 1)
        ended = xp.where(lower, small & (damping < 1), unseen | (damping >= _MOST_DAMPING))
        status = xp.where(ended, xp.where(lower | unseen, Status.CONVERGED, Status.LIMIT), -1)
        status = xp.where((number == 0) & ~valid, Status.INVALID, status)
        x = xp.where(lower, candidate, x)
        here = Quadratic(*(xp.where(lower, new, old) for new, old in zip(there, here, strict=True)))
        easier = xp.where(damping > _LEAST_DAMPING, damping / 10, 0.0)
        harder = xp.maximum(100 * damping, _LEAST_DAMPING)
        damping = xp.where(lower, easier, harder)
        # Directions without curvature, as of a constant feature, are left alone.
        diagonal = abs(xp.diagonal(here.hessian))
        ridge = damping * (bound + diagonal) + 64 * eps * diagonal + tiny
        step, decrement = direction(here.hessian + ridge * eye, here.gradient, x)
        downhill = xp.isfinite(step).all() & (decrement >= 0)
        return (
            number + 1,
            x,
            here,
            xp.where(downhill, step, 0.0),
            xp.where(downhill, decrement, -1.0),
            damping,
            status,
        )

    infinite = xp.full((), xp.inf, dtype)
    nowhere = Quadratic(infinite, xp.zeros_like(start), xp.zeros_like(eye))
    step = xp.zeros_like(start)
    zero, unknown = xp.zeros((), int), xp.full((), -1)
    carry: Any = (zero, start, nowhere, step, infinite, xp.zeros((), dtype), unknown)
    if xp is np:
        with np.errstate(all="ignore"):
            while unfinished(carry):
                carry = once(carry)
    else:
        carry = jax.lax.while_loop(unfinished, once, carry)
    number, x, here, step, decrement, _, status = carry
    status = xp.where(status < 0, Status.LIMIT, status)
    if movement is not None:
        runaway = (status == Status.CONVERGED) & (movement(x, step) > 0.01)
        status = xp.where(runaway, Status.UNBOUNDED, status)
    return Minimum(x, here.value, decrement, number, status)
