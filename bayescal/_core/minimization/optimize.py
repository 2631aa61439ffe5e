"""Minimization by Newton's method: the loop, its end and status, and two kinds of iteration.

``negligible`` is the only rule for a gain that ends iterations. These differ: ``newton`` is for few
variables, with a Hessian and damping; ``newton_on_interval`` for one variable between bounds;
``newton_cg`` for very many variables.

Everything is written for one problem, to be used with ``vmap``; a status tells how it ended. On the
host, where nothing has to be compiled, ``newton_on_host`` takes the steps of ``newton``, and the
loops of ``iterate`` run in Python if ``xp`` is NumPy.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from bayescal._core.arrays import Array, ArrayT
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.directions import Direction, newton_step, newton_step_on_host
from bayescal._core.shapes import Float

#: Rows far out can make the bound much larger than needed.
_LEAST_DAMPING, _MOST_DAMPING = 1e-14, 1e8
#: Multiples of the relative rounding error: a rise of the value that may be rounding, and the ridge
#: of the Hessian's diagonal.
_SLACK, _RIDGE = 8, 64
_TOLERANCE, _MAX_ITERATIONS = 1e-10, 100
#: Fraction of the tolerance: a step that promises less need not lower the value.
_UNSEEN = 1e-3
#: Number of times that a step away from a saddle point is halved.
_HALVINGS = 20
#: Movement by a step after which there is no finite minimum.
_LONG = 0.01
#: Number of steps by which such a movement may end after all, if each moves less than half of the
#: one before, and the movement at its end. Where labels are separable, each step adds about one to
#: log odds.
_EXTRA_STEPS, _SHORT = 10, 1e-5

Carry = TypeVar("Carry")
Name = TypeVar("Name")
Point = TypeVar("Point")
Answer = TypeVar("Answer")
Result = TypeVar("Result")
#: A generator that yields points, receives evaluations there, and returns its result.
Search: TypeAlias = Generator[Point, Answer, Result]
#: The state of an iteration, of any kind, followed by the status.
State: TypeAlias = tuple[Any, ...]


class Status(enum.IntEnum):
    """How a fit ended."""

    CONVERGED = 0
    #: The iterations ran out, or no step lowers the objective any more.
    LIMIT = 1
    #: The objective decreases for ever: a line separates the labels, without a penalty.
    UNBOUNDED = 2
    #: The objective is not finite at the start.
    INVALID = 3


class Minimum(NamedTuple, Generic[ArrayT]):
    """The end of a minimization, or of many; the gradient is None if it is not kept."""

    x: Float[ArrayT, "*fits parameters"]
    value: Float[ArrayT, " *fits"]
    #: First-order gain of the next step; g . H^-1 g for Newton's method.
    decrement: Float[ArrayT, " *fits"] | float
    iterations: Array | int
    status: Array | int
    gradient: Float[ArrayT, "*fits parameters"] | None = None


class QuadraticModel(NamedTuple, Generic[ArrayT]):
    """A function's value, gradient and Hessian at a point."""

    value: Float[ArrayT, ""]
    gradient: Float[ArrayT, " parameters"]
    hessian: Float[ArrayT, "parameters parameters"]


class IntervalMinimum(NamedTuple):
    """The end of a minimization over an interval; the derivatives are those at ``x``."""

    x: float
    value: float
    slope: float
    curvature: float
    iterations: int
    status: Status


def while_loop(
    unfinished: Callable[[Carry], Array],
    body: Callable[[Carry], Carry],
    carry: Carry,
    xp: ModuleType,
) -> Carry:
    """Run ``jax.lax.while_loop``, or a loop in Python for NumPy."""
    if xp is not np:
        return jax.lax.while_loop(unfinished, body, carry)
    while unfinished(carry):
        carry = body(carry)
    return carry


def iterate(
    step: Callable[[State], State], state: State, max_iterations: int, xp: ModuleType = jnp
) -> State:
    """Repeat ``step`` on a state (..., status) while its status is negative.

    Returns the number of iterations, followed by the state. Its status is then not negative:
    ``Status.LIMIT`` if the iterations ran out.
    """

    def unfinished(carry: State) -> Array:
        return (carry[0] < max_iterations) & (carry[-1] < 0)

    def body(carry: State) -> State:
        return (carry[0] + 1, *step(carry[1:]))

    *parts, status = while_loop(unfinished, body, (xp.zeros((), int), *state), xp)
    return (*parts, xp.where(status < 0, Status.LIMIT, status))


def negligible(
    gain: Array | float, value: Array | float, scale: Array | float, tolerance: float
) -> Array | bool:
    """Return whether a gain is negligible beside the value and a thousandth of ``scale``."""
    return gain <= tolerance * (abs(value) + 1e-3 * scale)


def newton(
    evaluate: Callable[[jax.Array], QuadraticModel[jax.Array]],
    start: jax.Array,
    *,
    scale: jax.Array | float,
    bound: jax.Array,
    direction: Direction[jax.Array] = newton_step,
    movement: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    convex: bool = True,
) -> Minimum[jax.Array]:
    """Minimize a smooth function by damped Newton steps; every accepted step lowers it.

    The last step promised to gain less than ``_TOLERANCE`` times the value and a thousandth of
    ``scale``, a size of the objective. Convergence is quadratic, so the result is much closer. If
    ``movement(x, step)``, the relative change of the predictions by a step, is then above 0.01,
    there is no finite minimum. A saddle point, at which only damped steps end, is ``LIMIT`` if the
    function is not ``convex``. ``direction`` solves the quadratic model: ``newton_step``, or
    ``lasso_step(strength)`` if ``evaluate`` adds the absolute penalty to the value but not to the
    derivatives.

    The Hessian's diagonal is raised by a multiple of ``bound`` (p,), the largest possible second
    derivative along each axis, until a step lowers the value, and the multiple is lowered after
    each success (Levenberg and Marquardt). The Hessian's diagonal is unsuitable, because steps from
    nearly flat regions would be wild. There is one evaluation per iteration.
    """
    dtype = start.dtype
    eye = jnp.eye(start.shape[0], dtype=dtype)
    tiny, eps = jnp.finfo(dtype).tiny, jnp.finfo(dtype).eps
    yes, no, nothing = jnp.full((), True), jnp.full((), False), jnp.zeros_like(start)

    # The start is the first candidate, so that the evaluation is compiled only once.
    def once(carry: State) -> State:
        started, x, here, step, decrement, damping, _ = carry
        candidate = x - step
        trial = evaluate(candidate)
        valid = jnp.isfinite(trial.value + trial.gradient.sum())
        slack = _SLACK * eps * (abs(trial.value) + scale)
        lower = valid & (decrement >= 0) & (trial.value <= here.value + slack)
        small = negligible(decrement, trial.value, scale, _TOLERANCE)
        unseen = (decrement >= 0) & negligible(decrement, here.value, scale, _UNSEEN * _TOLERANCE)
        unseen = unseen & (damping < 1)
        ended = jnp.where(lower, small & (damping < 1), unseen | (damping >= _MOST_DAMPING))
        status = jnp.where(ended, jnp.where(lower | unseen, Status.CONVERGED, Status.LIMIT), -1)
        status = jnp.where(started | valid, status, Status.INVALID)
        x = jnp.where(lower, candidate, x)
        here = jax.tree.map(partial(jnp.where, lower), trial, here)
        easier = jnp.where(damping > _LEAST_DAMPING, damping / 10, 0.0)
        harder = jnp.maximum(100 * damping, _LEAST_DAMPING)
        damping = jnp.where(lower, easier, harder)
        # Directions without curvature, such as that of a constant feature, are left unchanged.
        diagonal = abs(jnp.diagonal(here.hessian))
        ridge = damping * (bound + diagonal) + _RIDGE * eps * diagonal + tiny
        step, decrement = direction(here.hessian + ridge * eye, here.gradient, x)
        # It is NaN or infinite if a component of the step is.
        downhill = (decrement >= 0) & (decrement < jnp.inf)
        step, decrement = jnp.where(downhill, step, nothing), jnp.where(downhill, decrement, -1.0)
        return yes, x, here, step, decrement, damping, status

    infinite = jnp.full((), jnp.inf, dtype)
    nowhere = QuadraticModel(infinite, jnp.zeros_like(start), jnp.zeros_like(eye))
    unknown = jnp.full((), -1)
    state = (no, start, nowhere, nothing, infinite, jnp.zeros((), dtype), unknown)
    number, _, x, here, step, decrement, _, status = iterate(once, state, _MAX_ITERATIONS)
    if not convex:
        saddle = ~(direction(here.hessian, here.gradient, x)[1] >= 0)
        status = jnp.where((status == Status.CONVERGED) & saddle, Status.LIMIT, status)
    if movement is not None:
        runaway = (status == Status.CONVERGED) & (movement(x, step) > _LONG)
        status = jnp.where(runaway, Status.UNBOUNDED, status)
    return Minimum(x, here.value, decrement, number, status)


@np.errstate(all="ignore")
def newton_on_host(
    evaluate: Callable[[np.ndarray], QuadraticModel[np.ndarray]],
    start: np.ndarray,
    *,
    scale: float,
    bound: np.ndarray,
    direction: Direction[np.ndarray] = newton_step_on_host,
    movement: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    max_iterations: int = _MAX_ITERATIONS,
    tolerance: float = _TOLERANCE,
    foresee: bool = False,
) -> Minimum[np.ndarray]:
    """Take the steps of :func:`newton` with NumPy, where nothing has to be compiled.

    Python's branches take a third of the time of NumPy's operations on scalars. ``foresee`` saves
    the last evaluation if its step is short: its gain is known beforehand. Unlike :func:`newton`,
    it goes on from a saddle point, and where only rows of little weight still move.
    """
    eye, tiny, eps = np.eye(len(start)), sys.float_info.min, sys.float_info.epsilon
    x, here, iterations, damping = start, evaluate(start), 1, 0.0
    lower, status = True, None
    if not math.isfinite(here.value + here.gradient.sum()):
        return Minimum(x, np.asarray(np.inf), 0.0, iterations, Status.INVALID)
    while True:
        diagonal = abs(here.hessian.diagonal())
        ridge = damping * (bound + diagonal) + _RIDGE * eps * diagonal + tiny
        step, decrement = direction(here.hessian + ridge * eye, here.gradient, x)
        decrement = float(decrement)
        if not 0 <= decrement < math.inf:
            step, decrement = np.zeros_like(start), -1.0
        elif foresee and status is None and lower and damping < 1:
            # Only an evaluation can tell where a long step leads.
            small = negligible(decrement, here.value, scale, tolerance)
            if small and (movement is None or movement(x, step) <= _LONG):
                x, here = x - step, here._replace(value=here.value - decrement / 2)
                status = Status.CONVERGED
        if status is not None or iterations == max_iterations:
            break
        candidate = x - step
        trial = evaluate(candidate)
        iterations += 1
        valid = decrement >= 0 and math.isfinite(trial.value + trial.gradient.sum())
        slack = _SLACK * eps * (abs(trial.value) + scale)
        lower = valid and bool(trial.value <= here.value + slack)
        if lower:
            if damping < 1 and negligible(decrement, trial.value, scale, tolerance):
                status = Status.CONVERGED
            x, here = candidate, trial
            damping = damping / 10 if damping > _LEAST_DAMPING else 0.0
        else:
            gain = negligible(decrement, here.value, scale, _UNSEEN * tolerance)
            if decrement >= 0 and damping < 1 and gain:
                status = Status.CONVERGED
            elif damping >= _MOST_DAMPING:
                status = Status.LIMIT
            damping = max(100 * damping, _LEAST_DAMPING)
    if status is None:
        status = Status.LIMIT
    # Only damped steps end where the Hessian is not positive definite.
    if status == Status.CONVERGED and damping > 0:
        least = tolerance * float(abs(here.value) + 1e-3 * scale)
        lower_point = _beyond_saddle(evaluate, x, here, least)
        if lower_point is not None and iterations < max_iterations:
            again = newton_on_host(
                evaluate,
                lower_point,
                scale=scale,
                bound=bound,
                direction=direction,
                movement=movement,
                max_iterations=max_iterations - iterations,
                tolerance=tolerance,
                foresee=foresee,
            )
            return again._replace(iterations=iterations + again.iterations)
    end = Minimum(x, here.value, decrement, iterations, status)
    if movement is not None and status == Status.CONVERGED and movement(x, step) > _LONG:
        further = _follow_light_rows(evaluate, direction, movement, end, step, scale)
        return further or end._replace(status=Status.UNBOUNDED)
    return end


def _follow_light_rows(
    evaluate: Callable[[np.ndarray], QuadraticModel[np.ndarray]],
    direction: Direction[np.ndarray],
    movement: Callable[[np.ndarray, np.ndarray], np.ndarray],
    end: Minimum[np.ndarray],
    step: np.ndarray,
    scale: float,
) -> Minimum[np.ndarray] | None:
    """Take undamped steps while each moves less than half of the one before; None if they go on.

    Rows of little weight may still move, although they gain little beside the others.
    """
    tiny, eps = sys.float_info.min, sys.float_info.epsilon
    slack = _SLACK * eps * (abs(float(end.value)) + scale)
    point, before = end.x, float(movement(end.x, step))
    for extra in range(1, _EXTRA_STEPS + 1):
        point = point - step
        model = evaluate(point)
        ridge = _RIDGE * eps * abs(model.hessian.diagonal()) + tiny
        step, gain = direction(model.hessian + ridge * np.eye(len(point)), model.gradient, point)
        now = float(movement(point, step))
        if not (model.value <= end.value + slack and 0 <= gain < math.inf and now < before / 2):
            break
        if now < _SHORT:
            iterations = end.iterations + extra
            return Minimum(point - step, model.value, float(gain), iterations, end.status)
        before = now
    return None


def _beyond_saddle(
    evaluate: Callable[[np.ndarray], QuadraticModel[np.ndarray]],
    x: np.ndarray,
    here: QuadraticModel[np.ndarray],
    least: float,
) -> np.ndarray | None:
    """Find a point that is lower by ``least`` along the most negative curvature, or return None."""
    curvatures, directions = np.linalg.eigh(here.hessian)
    if not curvatures[0] < 0:
        return None
    axis = directions[:, 0]
    # Of two directions that lower the value equally, choose one away from zero.
    main = np.argmax(abs(axis) > 0.99 * abs(axis).max())
    axis = axis * np.copysign(1, axis[main]) * np.copysign(1, x[main])
    step = math.sqrt(2 / -curvatures[0]) * axis
    for _ in range(_HALVINGS):
        points = [x + step, x - step]
        values = [float(evaluate(point).value) for point in points]
        values = [value if math.isfinite(value) else math.inf for value in values]
        best = 0 if values[0] <= values[1] + least else 1
        if values[best] < here.value - least:
            return points[best]
        step = step / 2
    return None


def run_together(
    searches: Mapping[Name, Search[Point, Answer, Result]],
    evaluate: Callable[[dict[Name, Point]], Mapping[Name, Answer]],
) -> dict[Name, Result]:
    """Run searches whose points are evaluated together, and return their results by name."""
    results: dict[Name, Result] = {}
    answers: Mapping[Name, Answer | None] = dict.fromkeys(searches)
    while answers:
        points = {}
        for name, answer in answers.items():
            try:
                search = searches[name]
                points[name] = next(search) if answer is None else search.send(answer)
            except StopIteration as end:
                results[name] = end.value
        answers = evaluate(points) if points else {}
    return results


def newton_on_interval(
    evaluate: Callable[[float], tuple[float, float, float]],
    start: float,
    *,
    scale: float,
    lower: float = 0.0,
    tolerance: float = 1e-14,
    max_iterations: int = 100,
) -> IntervalMinimum:
    """Minimize a convex function of one number that is at least ``lower``, on the host.

    ``evaluate`` returns the value and two derivatives. At the end the next step would gain less
    than ``tolerance`` times the value and a thousandth of ``scale``, a size of the objective.

    The slope increases, so its sign tells on which side of a point the minimum is. Newton's steps
    stay between the resulting bounds, or halve the interval. There is one evaluation per iteration.
    If the last step gains nothing but is longer than a hundredth, the status is ``UNBOUNDED``. A
    fit to 200 rows of 3 classes takes 0.11 ms; with a specialized loop, 0.09 ms.
    """

    def once(state: State) -> State:
        x, here, low, high, _ = state
        value, slope, curvature = here
        low, high = (low, x) if slope > 0 else (x, high)
        if slope == 0 or (x == lower and slope > 0):
            return x, here, low, high, Status.CONVERGED
        step = -slope / curvature if curvature > 0 else math.copysign(math.inf, -slope)
        if x + step == x:
            return x, here, low, high, Status.CONVERGED
        # Far out the slope is flat, and Newton's steps are wild.
        target = min(max(x + step, low), x + 3 * (x - lower) + 1, high)
        if not low <= target <= high or (target == high and math.isfinite(high)):
            target = (low + high) / 2
        if negligible(abs(slope * (target - x)), value, scale, tolerance):
            unbounded = abs(target - x) > 0.01 * (1 + abs(x))
            return x, here, low, high, Status.UNBOUNDED if unbounded else Status.CONVERGED
        return target, evaluate(target), low, high, -1

    state = (start, evaluate(start), lower, math.inf, -1)
    number, x, here, *_, status = iterate(once, state, max_iterations, np)
    value, slope, curvature = here
    return IntervalMinimum(x, value, slope, curvature, int(number), Status(int(status)))
