"""Minimization of convex functions of very many variables: Newton's method by conjugate gradients.

The Hessian is never formed: the caller multiplies by it. As in ``optimize``, everything is written
for one problem: on the host with ``xp=numpy``, otherwise for ``vmap`` and one compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from bayescal._core.arrays import Array, ArrayT
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import (
    Minimum,
    State,
    Status,
    iterate,
    negligible,
    while_loop,
)
from bayescal._core.shapes import Float

#: Largest and smallest relative residual of the linear system, in the preconditioner's norm.
_LOOSEST, _TIGHTEST = 0.1, 1e-4
_HALVINGS = 40
#: Relative gains of steps that are slow, and of steps after which slow ones may be the last.
_SLOW, _ENOUGH = 1e-2, 1e-7
#: Steps to infinity gain at least this part of what the step before gained.
_CREEPING = 0.1

At = TypeVar("At")
Prepared = TypeVar("Prepared")


class Point(NamedTuple, Generic[ArrayT, At]):
    """A function's value and gradient at a point, and the state for Hessian products."""

    value: Float[ArrayT, ""]
    gradient: Float[ArrayT, " parameters"]
    state: At


class Curvature(NamedTuple, Generic[ArrayT, At, Prepared]):
    """The Hessian: products with it, and approximate products with its inverse.

    ``patience`` is the number of products in one step after which ``prepare`` is called again, and
    ``max_products`` their largest number.
    """

    product: Callable[[At, ArrayT], ArrayT]
    prepare: Callable[[At], Prepared]
    precondition: Callable[[Prepared, ArrayT], ArrayT]
    patience: int
    max_products: int


def newton_cg(
    evaluate: Callable[[ArrayT], Point[ArrayT, At]],
    curvature: Curvature[ArrayT, At, Prepared],
    start: ArrayT,
    *,
    scale: ArrayT | float,
    unbounded: Callable[[ArrayT, Point[ArrayT, At]], Array | bool] | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = 100,
    max_slow: int | None = None,
    prepared: Prepared | None = None,
    xp: ModuleType = jnp,
) -> tuple[Minimum[ArrayT], Prepared]:
    """Minimize a convex function by Newton steps found by conjugate gradients, each downhill.

    Returns also the prepared preconditioner for a similar problem, which may be passed as
    ``prepared``. The ``decrement`` of the minimum is g . H^-1 g.

    The last step promised to gain less than ``tolerance`` times the value and a thousandth of
    ``scale``, a size of the objective; the step before it was solved so precisely that the result
    is much closer. ``unbounded(x, point)`` is called at the end in any case: it tells whether the
    next step, though it gains nothing, still changes predictions, so that there is no finite
    minimum. If ``max_slow`` steps in a row gain less than a hundredth without converging, and the
    last of them hardly anything, they are the last: Newton's steps to a minimum soon gain nothing,
    but steps to infinity gain for ever.
    """
    first = evaluate(start)
    used, then = xp.zeros((), int), first.value
    if prepared is None:
        # Prepare in the first step, so that the preparation is compiled only once.
        used = used + curvature.patience + 1
        if xp is not np:
            shapes = jax.eval_shape(curvature.prepare, first.state)
            prepared = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    eps = float(xp.finfo(start.dtype).eps)

    def search(
        x: ArrayT, step: ArrayT, here: Point[ArrayT, At], slope: ArrayT
    ) -> tuple[ArrayT, Point[ArrayT, At]]:
        """Halve the step until it lowers the value; return its size and end, or 0 and the start."""

        def lower(size: ArrayT, trial: Point[ArrayT, At]) -> Array:
            slack = 8 * eps * (abs(here.value) + scale)
            valid = xp.isfinite(trial.value) & xp.isfinite(trial.gradient).all()
            return valid & (trial.value <= here.value + 1e-4 * size * slope + slack)

        def halve(carry: State) -> State:
            number, size, _ = carry
            return number + 1, size / 2, evaluate(x + size / 2 * step)

        def unfinished(carry: State) -> Array:
            return (carry[0] < _HALVINGS) & ((carry[0] == 0) | ~lower(carry[1], carry[2]))

        # Start from twice the step, so that the evaluation occurs once in the program.
        begin = (xp.zeros((), int), xp.full((), 2.0, x.dtype), here)
        _, size, trial = while_loop(unfinished, halve, begin, xp)
        if xp is np:
            return (size, trial) if lower(size, trial) else (0.0 * size, here)
        kept = lower(size, trial)
        trial = jax.tree.map(lambda new, old: jnp.where(kept, new, old), trial, here)
        return xp.where(kept, size, 0), trial

    def once(carry: State) -> State:
        x, here, prepared, then, used, slow, crept, decrement, _ = carry
        # If the loss has fallen far, the curvature has changed as well.
        stale = (used > curvature.patience) | (here.value < 0.5 * then)
        if xp is np:
            prepared = curvature.prepare(here.state) if stale else prepared
        else:
            old, state = prepared, here.state
            prepared = jax.lax.cond(stale, lambda: curvature.prepare(state), lambda: old)
        then = xp.where(stale, here.value, then)

        def allowed_residual(power: ArrayT) -> ArrayT:
            # Be precise near the minimum, where it pays, but not beyond the tolerance.
            promise = power / (abs(here.value) + 1e-3 * scale)
            needed = 0.01 * tolerance / xp.where(promise > tolerance, promise, 1.0)
            precise = xp.clip(xp.maximum(promise, needed), _TIGHTEST**2, _LOOSEST**2)
            return xp.where(promise > tolerance, precise, _LOOSEST**2)

        step, left, used = conjugate_gradients(
            partial(curvature.product, here.state),
            partial(curvature.precondition, prepared),
            -here.gradient,
            allowed_residual,
            curvature.max_products,
            xp,
        )
        slope = here.gradient @ step
        size, trial = search(x, step, here, slope)
        # Rounding of sums of the objective's size may look like a rise.
        moved = size > 0
        small = negligible(-slope, trial.value, scale, tolerance)
        # The preconditioner of a point far away may hide a part of the gradient, and of the step:
        # most of it, or what leads to infinity. Prepare again before this is taken for the minimum.
        hidden = left @ left > 0.8 * here.gradient @ here.gradient
        blind = ~stale & (hidden | (small & crept))
        used, small = xp.where(blind, curvature.patience + 1, used), small & ~blind
        ended = xp.where(moved, small, True)
        status = xp.where(ended, xp.where(small, Status.CONVERGED, Status.LIMIT), -1)
        if max_slow is not None:
            slow = xp.where(negligible(-slope, trial.value, scale, _SLOW), slow + 1, 0)
            last = (slow >= max_slow) & ~blind
            last &= negligible(-slope, trial.value, scale, _ENOUGH)
            status = xp.where((status < 0) & last, Status.LIMIT, status)
        x = xp.where(moved, x + size * step, x)
        crept = (decrement > 0) & (-slope > _CREEPING * decrement)
        return x, trial, prepared, then, used, slow, crept, -slope, status

    valid = xp.isfinite(first.value) & xp.isfinite(first.gradient).all()
    status = xp.where(valid, -1, Status.INVALID)
    nothing = xp.zeros((), start.dtype)
    zero = xp.zeros((), int)
    state = (start, first, prepared, then, used, zero, nothing > 0, nothing, status)
    final = iterate(once, state, max_iterations, xp)
    number, x, here, ready, *_, decrement, status = final
    if unbounded is not None and (xp is not np or status <= Status.LIMIT):
        runaway = (status <= Status.LIMIT) & unbounded(x, here)
        status = xp.where(runaway, Status.UNBOUNDED, status)
    return Minimum(x, here.value, decrement, number, status, here.gradient), ready


def conjugate_gradients(
    product: Callable[[ArrayT], ArrayT],
    precondition: Callable[[ArrayT], ArrayT],
    vector: ArrayT,
    allowed_residual: Callable[[ArrayT], ArrayT | float],
    max_products: int,
    xp: ModuleType = jnp,
) -> tuple[ArrayT, ArrayT, ArrayT]:
    """Solve a positive definite system for ``vector`` (p,).

    Returns also the residual, and the number of products.

    The squared residual, in the preconditioner's norm, may end at ``allowed_residual(power)`` times
    its initial value ``power``. There are at most ``max_products`` products.
    """

    def once(carry: State) -> State:
        number, step, residual, direction, power, _ = carry
        image = product(direction)
        curvature = direction @ image
        good = curvature > 0
        # If rounding hides the curvature of the first direction, any step is better than none,
        # which would look like the minimum.
        otherwise = xp.where(number == 0, 1.0, 0.0).astype(step.dtype)
        length = xp.where(good, power / xp.where(good, curvature, 1), otherwise)
        step = step + length * direction
        residual = residual - length * image
        toward = precondition(residual)
        left = residual @ toward
        direction = toward + left / power * direction
        return number + 1, step, residual, direction, left, good

    toward = precondition(vector)
    power = vector @ toward
    enough = allowed_residual(power) * power

    def unfinished(carry: State) -> Array:
        return (carry[0] < max_products) & (carry[4] > enough) & carry[5]

    begin = (xp.zeros((), int), xp.zeros_like(vector), vector, toward, power, power > 0)
    number, step, residual, *_ = while_loop(unfinished, once, begin, xp)
    return step, residual, number
