"""Search for the optimum of a member: quasi-Newton steps until the expected gain is negligible.

The method is L-BFGS with an approximate inverse Hessian as its metric. If it converges slowly,
because the Hessian has changed, the metric is recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.minimization.optimize import Search, negligible
from bayescal.calibrators.stack.kernels import Losses
from bayescal.calibrators.stack.metric import Metric

#: Smallest gain of a step, relative to the gain that its slope predicts.
_SUFFICIENT = 1e-4
_SHORTEST = 1e-3
_MAX_STEPS = 200
#: Number of steps with one metric after which the rate of convergence is known.
_STEPS_TO_JUDGE = 3
#: Bounds of the scale of the metric, which the first step determines.
_SCALES = 0.05, 2.0


class InverseHessian(NamedTuple):
    """An approximate inverse Hessian: a metric, its factor, and pairs of later steps.

    A pair is a step, the change of the gradient along it, and their product.
    """

    metric: Metric
    scale: float
    pairs: tuple[tuple[np.ndarray, np.ndarray, float], ...] = ()

    def step(self, gradient: np.ndarray) -> np.ndarray:
        """Compute the step that leads from a gradient to the minimum of the quadratic model."""
        step, factors = -gradient, []
        for moved, turned, curvature in reversed(self.pairs):
            factors.append(moved @ step / curvature)
            step = step - factors[-1] * turned
        step = self.scale * self.metric(step)
        for (moved, turned, curvature), factor in zip(self.pairs, reversed(factors), strict=True):
            step = step + (factor - turned @ step / curvature) * moved
        return step

    def learn(self, moved: np.ndarray, turned: np.ndarray) -> InverseHessian:
        """Add a pair; the first pair after a new metric determines the factor."""
        curvature = float(moved @ turned)
        if not curvature > 0:
            return self
        scale = self.scale
        if not self.pairs:
            scale = float(np.clip(curvature / (turned @ self.metric(turned)), *_SCALES))
        return InverseHessian(self.metric, scale, (*self.pairs, (moved, turned, curvature)))

    def divided(self, share: float) -> InverseHessian:
        """Scale to the curvature of an objective that is this proportion of the current one."""
        pairs = tuple((moved, share * turned, share * size) for moved, turned, size in self.pairs)
        return InverseHessian(_divide(self.metric, share), self.scale, pairs)


class Objective(NamedTuple):
    """Properties of the objective of a search, besides the losses that it receives."""

    #: Strengths (p,) of theta**2 / 2 beside the sum of losses.
    penalty: np.ndarray
    #: The sum of weights of the rows.
    total: float
    #: Relative rounding error of a sum of losses.
    rounding: float
    #: Computes the inverse Hessian at parameters (p,), and after how many steps that pays.
    measure: Callable[[np.ndarray], Metric]
    patience: float

    def divided(self, share: float) -> Objective:
        """Scale to a proportion of the rows, with that proportion of the penalty."""
        return self._replace(
            penalty=share * self.penalty,
            total=share * self.total,
            measure=lambda theta: _divide(self.measure(theta), share),
        )


#: Parameters at which a search ends, and the curvature there.
Optimum: TypeAlias = tuple[np.ndarray, InverseHessian]
Descent: TypeAlias = Search[np.ndarray, Losses, Optimum]


def _divide(metric: Metric, share: float) -> Metric:
    return lambda gradient: metric(gradient) / share


def descend(
    objective: Objective,
    start: np.ndarray,
    begin: Losses,
    curvature: InverseHessian,
    tolerance: float,
    relative: float = 0.0,
) -> Descent:
    """Search from ``start``, where the losses are ``begin``; return parameters and curvature.

    The generator yields parameters, and receives the sum of losses and its gradient, without the
    penalty. It ends when the next step would gain less than ``tolerance`` times the objective; that
    step is still taken.
    """
    penalty = objective.penalty

    def penalized(losses: Losses, theta: np.ndarray) -> Losses:
        value, gradient = losses
        return value + 0.5 * float(penalty @ theta**2), gradient + penalty * theta

    theta, (value, gradient) = start, penalized(begin, start)
    most, first_gain, steps = 0.0, np.inf, 0
    for _ in range(_MAX_STEPS):
        step = curvature.step(gradient)
        gain = -0.5 * float(gradient @ step)
        if not gain > 0:
            break
        most = max(most, gain)
        if negligible(gain, value, objective.total, tolerance) or gain < relative * most:
            theta = theta + step
            break
        if steps == 0:
            first_gain = gain
        if steps >= _STEPS_TO_JUDGE and _slow(objective, first_gain, gain, steps, value, tolerance):
            curvature = InverseHessian(objective.measure(theta), 1.0)
            steps = 0
            continue
        slack, length = objective.rounding * abs(value), 1.0
        new_value, new = penalized((yield theta + step), theta + step)
        while not new_value <= value - 2 * _SUFFICIENT * length * gain + slack:
            if length <= _SHORTEST:
                break
            best = gain * length**2 / (new_value - value + 2 * length * gain)
            length = min(max(best, 0.1 * length), 0.6 * length)
            new_value, new = penalized((yield theta + length * step), theta + length * step)
        if not new_value <= value + slack:
            if steps == 0:
                break
            curvature, steps = InverseHessian(objective.measure(theta), 1.0), 0
            continue
        curvature = curvature.learn(length * step, new - gradient)
        theta, value, gradient, steps = theta + length * step, new_value, new, steps + 1
    return theta, curvature


def _slow(
    objective: Objective, first_gain: float, gain: float, steps: int, value: float, tolerance: float
) -> bool:
    """Return whether so many steps remain that a new metric pays."""
    rate = np.log(first_gain / gain) / steps
    wanted = np.log(gain / (tolerance * (abs(value) + 1e-3 * objective.total)))
    return not rate * objective.patience > wanted
