"""Minimisation of convex functions of very many variables: Newton's method by conjugate gradients.

The Hessian is never formed: the caller multiplies by it. As in ``optimise``, everything is written
for one problem, with ``xp=numpy`` on the host or else for ``vmap`` and one compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import Array, ArrayT
from bayescal._core.optimise import Minimum, State, Status, iterate, negligible, while_loop

#: Of the residual of the linear system, in the norm of the preconditioner, at most.
_LOOSEST, _TIGHTEST = 0.1, 1e-4
_HALVINGS = 40
_SLOW = 1e-2

At = TypeVar("At")
Prepared = TypeVar("Prepared")


class Point(NamedTuple, Generic[ArrayT, At]):
    """A function's value and gradient (p,) at a point, and what products with its Hessian need."""

    value: ArrayT
    gradient: ArrayT
    state: At


class Curvature(NamedTuple, Generic[ArrayT, At, Prepared]):
    """How to use the Hessian: products with it, and about with its inverse.

    ``patience`` is how many products in one step there are before ``prepare`` is called afresh,
    ``most`` how many there are at most.
    """

    product: Callable[[At, ArrayT], ArrayT]
    prepare: Callable[[At], Prepared]
    precondition: Callable[[Prepared, ArrayT], ArrayT]
    patience: int
    most: int


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
    """Minimise a convex function by Newton steps that conjugate gradients find, each downhill.

    Returns also what is prepared for a next problem nearby, which may be given to begin with; the
    minimum's ``decrement`` is g . H^-1 g there.

    The last step was to gain less than ``tolerance``, times the value and a thousandth of
    ``scale``, a size of the objective; the one before it was solved so precisely that the result is
    far closer. ``unbounded(x, point)`` is asked at the end, however it came: whether the next step,
    though it gains nothing, would still change what matters, so that there is no finite minimum.
    So many steps as ``max_slow`` in a row that gain less than a hundredth, and yet do not arrive,
    are the last: Newton's steps to a minimum soon gain nothing, those to infinity gain for ever.
    """
    first = evaluate(start)
    used, then = xp.zeros((), int), first.value
    if prepared is None:
        # Prepared in the first step, so that what prepares is compiled once.
        used = used + curvature.patience + 1
        if xp is not np:
            shapes = jax.eval_shape(curvature.prepare, first.state)
            prepared = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    eps = float(xp.finfo(start.dtype).eps)

    def search(
        x: ArrayT, step: ArrayT, here: Point[ArrayT, At], slope: ArrayT
    ) -> tuple[ArrayT, Point[ArrayT, At]]:
        """Return how much of the step to take, by halving, and the point there; or 0 and here."""

        def lower(size: ArrayT, there: Point[ArrayT, At]) -> Array:
            slack = 8 * eps * (abs(here.value) + scale)
            valid = xp.isfinite(there.value) & xp.isfinite(there.gradient).all()
            return valid & (there.value <= here.value + 1e-4 * size * slope + slack)

        def halve(carry: State) -> State:
            number, size, _ = carry
            return number + 1, size / 2, evaluate(x + size / 2 * step)

        def unfinished(carry: State) -> Array:
            return (carry[0] < _HALVINGS) & ((carry[0] == 0) | ~lower(carry[1], carry[2]))

        # From twice the step, so that there is one place that evaluates.
        begin = (xp.zeros((), int), xp.full((), 2.0, x.dtype), here)
        _, size, there = while_loop(unfinished, halve, begin, xp)
        if xp is np:
            return (size, there) if lower(size, there) else (0.0 * size, here)
        kept = lower(size, there)
        there = jax.tree.map(lambda new, old: jnp.where(kept, new, old), there, here)
        return xp.where(kept, size, 0), there

    def once(carry: State) -> State:
        x, here, prepared, then, used, slow, _, _ = carry
        # Also where the loss has fallen far: then the curvature has too.
        stale = (used > curvature.patience) | (here.value < 0.5 * then)
        if xp is np:
            prepared = curvature.prepare(here.state) if stale else prepared
        else:
            old, state = prepared, here.state
            prepared = jax.lax.cond(stale, lambda: curvature.prepare(state), lambda: old)
        then = xp.where(stale, here.value, then)

        def share(power: ArrayT) -> ArrayT:
            # Precise near the minimum, where precision is rewarded; but not beyond the tolerance.
            promise = power / (abs(here.value) + 1e-3 * scale)
            needed = 0.01 * tolerance / xp.where(promise > tolerance, promise, 1.0)
            precise = xp.clip(xp.maximum(promise, needed), _TIGHTEST**2, _LOOSEST**2)
            return xp.where(promise > tolerance, precise, _LOOSEST**2)

        step, used = conjugate_gradients(
            partial(curvature.product, here.state),
            partial(curvature.precondition, prepared),
            -here.gradient,
            share,
            curvature.most,
            xp,
        )
        slope = here.gradient @ step
        size, there = search(x, step, here, slope)
        # Rounding of sums of the objective's size may look like a rise.
        moved = size > 0
        small = negligible(-slope, there.value, scale, tolerance)
        ended = xp.where(moved, small, True)
        status = xp.where(ended, xp.where(small, Status.CONVERGED, Status.LIMIT), -1)
        if max_slow is not None:
            slow = xp.where(negligible(-slope, there.value, scale, _SLOW), slow + 1, 0)
            status = xp.where((status < 0) & (slow >= max_slow), Status.LIMIT, status)
        x = xp.where(moved, x + size * step, x)
        return x, there, prepared, then, used, slow, -slope, status

    valid = xp.isfinite(first.value) & xp.isfinite(first.gradient).all()
    status = xp.where(valid, -1, Status.INVALID)
    nothing = xp.zeros((), start.dtype)
    zero = xp.zeros((), int)
    state = (start, first, prepared, then, used, zero, nothing, status)
    found = iterate(once, state, max_iterations, xp)
    number, x, here, ready, *_, decrement, status = found
    if unbounded is not None and (xp is not np or status <= Status.LIMIT):
        runaway = (status <= Status.LIMIT) & unbounded(x, here)
        status = xp.where(runaway, Status.UNBOUNDED, status)
    return Minimum(x, here.value, decrement, number, status, here.gradient), ready


def conjugate_gradients(
    product: Callable[[ArrayT], ArrayT],
    precondition: Callable[[ArrayT], ArrayT],
    vector: ArrayT,
    share: Callable[[ArrayT], ArrayT | float],
    most: int,
    xp: ModuleType = jnp,
) -> tuple[ArrayT, ArrayT]:
    """Return what a positive matrix turns into ``vector`` (p,), and how many products it took.

    Of the squared residual, in the norm of the preconditioner, ``share(power)`` may be left where
    it is ``power`` at the start. There are at most ``most`` products.
    """

    def once(carry: State) -> State:
        number, step, residual, direction, power, _ = carry
        image = product(direction)
        curvature = direction @ image
        good = curvature > 0
        # Where rounding hides that the first direction has curvature, it is better than no step,
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
    enough = share(power) * power

    def unfinished(carry: State) -> Array:
        return (carry[0] < most) & (carry[4] > enough) & carry[5]

    begin = (xp.zeros((), int), xp.zeros_like(vector), vector, toward, power, power > 0)
    number, step, *_ = while_loop(unfinished, once, begin, xp)
    return step, number
