"""A single fit on the host with NumPy, where nothing has to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from bayescal._core.minimization.directions import newton_step_on_host
from bayescal._core.minimization.optimize import Minimum, QuadraticModel, Status, newton_on_host
from bayescal._core.shapes import Float, Int
from bayescal.regression.binary.lasso import lasso_step_on_host
from bayescal.regression.binary.objective import (
    NOISE,
    BinaryDesign,
    Regression,
    add_penalties,
    cross_entropy_on_host,
    loss_and_gradient_on_host,
    movement,
    offset_of,
    penalty_terms,
    start,
    uncentered,
    units,
)

#: Arrays by their axes.
Vector: TypeAlias = 'Float[np.ndarray, " parameters"]'
Matrix: TypeAlias = 'Float[np.ndarray, "parameters parameters"]'
Span: TypeAlias = 'Float[np.ndarray, "parameters combinations"]'
#: Computes the first step and its decrement.
FirstStep: TypeAlias = Callable[..., tuple[np.ndarray, np.ndarray]]

#: Number of columns above which Hessians cost more than they save.
MANY = 400
_ROWS_OF_PART = 14
_RANK = 1e-11
#: Relative difference of the curvatures of a part of the rows and of all rows that is too large.
_UNLIKE = 0.2


def fit_on_host(problem: Regression[np.ndarray]) -> Minimum[np.ndarray]:
    """Fit one regression whose rows all have weight.

    Newton's method, or L-BFGS for more than 400 columns, which ignores ``l1``. A fit to very many
    rows starts from a fit to a part of them.
    """
    design, unit, mean = design_of(problem)
    if problem.x.shape[1] > MANY:
        minimum = _lbfgs(problem, design, unit)
        return minimum._replace(x=uncentered(minimum.x, mean, np))
    span, begin, first_step = span_of(problem, design), start(problem, np), None
    offset = offset_of(problem, unit, np)
    stride = len(problem.x) >> _ROWS_OF_PART
    if stride > 4:
        rows = _part_of(len(problem.x), stride)
        scale = problem.weights.sum() / problem.weights[rows].sum()
        targets, weights = problem.targets[rows], problem.weights[rows] * scale
        # The part has means of its own, about which its columns may be constant.
        minimum = fit_on_host(Regression(problem.x[rows], targets, weights, *problem[3:]))
        if minimum.status == Status.CONVERGED:
            begin = uncentered(minimum.x, -mean, np) - offset / unit
        columns = np.ascontiguousarray(design.columns[:, rows])
        first_step = partial(corrected_step, BinaryDesign(columns, targets, weights))
    minimum = fit_design(problem, design, unit, begin * unit, span, first_step)
    return minimum._replace(x=uncentered((minimum.x + offset) / unit, mean, np))


def _part_of(n: int, stride: int) -> Int[np.ndarray, " part"]:
    """Return one random row of every ``stride`` rows, since their labels may have this period."""
    first = np.arange(0, n - stride + 1, stride)
    return first + np.random.default_rng(0).integers(stride, size=len(first))


def design_of(
    problem: Regression[np.ndarray], center: bool = True
) -> tuple[BinaryDesign[np.ndarray], Vector, Float[np.ndarray, " features"]]:
    """Return the design of rows that all have weight, the units of its columns and their means.

    The means are subtracted from the columns, as by :func:`centered`, unless ``center`` is false.
    """
    x, weights = problem.x, problem.weights
    columns = np.empty((1 + x.shape[1], len(x)))
    columns[0] = 1
    features, mean = columns[1:], np.zeros(x.shape[1])
    free = problem.free is None or problem.free[0] > 0
    center = center and free and problem.intercept_prior is None
    # Measure from one row, so that differences of equal rows are exactly zero.
    first = x[np.argmax(weights)] if center else mean
    np.subtract(x.T, first[:, None], out=features)
    if center:
        shift = features @ weights / weights.sum()
        features -= shift[:, None]
        mean = first + shift
        endless = ~np.isfinite(mean)
        if endless.any():
            features[endless], mean[endless] = x.T[endless], 0.0
    size = np.maximum(features.max(axis=1), -features.min(axis=1))
    if center:
        # Variation within rounding counts as constant.
        constant = size <= NOISE * np.finfo(float).eps * (abs(mean) + size)
        features[constant], size[constant] = 0.0, 0.0
    unit, inverse = units(size, np)
    if (inverse != 1).any():
        features *= inverse[:, None]
    return BinaryDesign(columns, problem.targets, weights), unit, mean


def fit_design(
    problem: Regression[np.ndarray],
    design: BinaryDesign[np.ndarray],
    unit: Vector,
    begin: Vector,
    span: Span | None,
    first_step: FirstStep | None = None,
) -> Minimum[np.ndarray]:
    """Fit from ``begin``; both ``begin`` and the result are in the columns' units.

    Only the penalties, priors and ``free`` of ``problem`` are used; ``begin`` and the result are
    measured from the center of the penalties, if there is one. With a ``span``, linearly
    dependent columns share their effect. ``first_step`` is :func:`corrected_step` with a part of
    the rows, which saves an evaluation.
    """
    if span is not None:
        reduced = design._replace(columns=span.T @ design.columns)
        free = problem._replace(intercept_prior=None)
        begin = np.linalg.lstsq(span, begin)[0]
        minimum = fit_design(free, reduced, np.ones(len(begin)), begin, None)
        return minimum._replace(x=span @ minimum.x)
    columns, strength = design.columns, None
    if np.count_nonzero(problem.l1):
        strength = np.append(0.0, np.broadcast_to(problem.l1, len(unit) - 1)) / unit

    no_prior = problem.prior is None and problem.intercept_prior is None
    all_free = problem.free is None or problem.free.all()
    plain = no_prior and all_free and strength is None and not np.count_nonzero(problem.l2)

    def penalized(loss: QuadraticModel[np.ndarray], beta: Vector) -> QuadraticModel[np.ndarray]:
        if plain:
            return loss
        return add_penalties(problem, unit, strength, loss, beta, np)

    largest = np.maximum(columns.max(axis=1), -columns.min(axis=1))
    offset = offset_of(problem, unit, np)

    def moved(beta: Vector, step: Vector) -> Float[np.ndarray, ""]:
        # Cheap upper bound; rows are checked only if it is large.
        bound_on_move = np.abs(step) @ largest
        if bound_on_move < 0.01:
            return bound_on_move
        return movement((beta + offset) @ columns, step @ columns, design.weights, np)

    def evaluate(beta: Vector) -> QuadraticModel[np.ndarray]:
        return cross_entropy_on_host(design, beta + offset)

    scale = float(design.weights.sum())
    bound = 0.25 * np.einsum("ij,ij,j->i", columns, columns, design.weights)
    return descend(evaluate, penalized, begin, first_step, scale, bound, moved, strength)


def descend(
    evaluate: Callable[[np.ndarray], QuadraticModel[np.ndarray]],
    penalized: Callable[[QuadraticModel[np.ndarray], np.ndarray], QuadraticModel[np.ndarray]],
    begin: Vector,
    first_step: FirstStep | None,
    scale: float,
    bound: Vector,
    movement: Callable[[np.ndarray, np.ndarray], np.ndarray],
    strength: Vector | None = None,
) -> Minimum[np.ndarray]:
    """Minimize the ``penalized`` loss that ``evaluate`` computes over all rows.

    ``first_step`` is :func:`corrected_step` with a part of the rows, or None. With an absolute
    penalty of this ``strength``, all steps are those of :func:`lasso_step_on_host`.
    """
    losses: list[QuadraticModel[np.ndarray]] = []
    step = newton_step_on_host if strength is None else lasso_step_on_host(strength)

    def objective(beta: Vector) -> QuadraticModel[np.ndarray]:
        losses.append(evaluate(beta))
        return penalized(losses[-1], beta)

    def direction(
        hessian: Matrix, gradient: Vector, beta: Vector
    ) -> tuple[Vector, Float[np.ndarray, ""]]:
        if first_step is None or strength is not None or len(losses) > 1:
            return step(hessian, gradient, beta)
        return first_step(hessian, gradient, beta, losses[0], penalized, scale, bound)

    return newton_on_host(
        objective,
        begin,
        scale=scale,
        bound=bound,
        direction=direction,
        movement=movement,
        foresee=strength is None,
    )


def corrected_step(
    part: BinaryDesign[np.ndarray],
    hessian: Matrix,
    gradient: Vector,
    at: Vector,
    loss: QuadraticModel[np.ndarray],
    penalized: Callable[[QuadraticModel[np.ndarray], np.ndarray], QuadraticModel[np.ndarray]],
    scale: float,
    bound: Vector,
) -> tuple[Vector, Float[np.ndarray, ""]]:
    """Compute Newton's step at a point, improved by a part of the rows that shows the curvature.

    The loss of the part, weighted like all rows, gets a quadratic that gives it the derivatives of
    the ``loss`` of all rows. The step to its minimum saves a pass over all rows. It is Newton's
    step where the part shows another curvature, for example because it lacks a few rows with other
    features.
    """
    step, decrement = newton_step_on_host(hessian, gradient, at)
    here = cross_entropy_on_host(part, at)
    if not abs(step @ (here.hessian - loss.hessian) @ step) < _UNLIKE * decrement:
        return step, decrement
    slope, curvature = loss.gradient - here.gradient, loss.hessian - here.hessian

    def evaluate(beta: Vector) -> QuadraticModel[np.ndarray]:
        value, gradient, hessian = cross_entropy_on_host(part, beta)
        move = beta - at
        turn = curvature @ move
        value = value + move @ (slope + turn / 2)
        return penalized(QuadraticModel(value, gradient + slope + turn, hessian + curvature), beta)

    minimum = newton_on_host(evaluate, at, scale=scale, bound=bound)
    return at - minimum.x if minimum.status == Status.CONVERGED else step, decrement


def span_of(problem: Regression[np.ndarray], design: BinaryDesign[np.ndarray]) -> Span | None:
    """Return combinations that span dependent columns, or None if a penalty or prior decides."""
    if is_settled(problem, len(design.columns)):
        return None
    weighted = design.columns * np.sqrt(design.weights)
    return span_of_gram(weighted @ weighted.T, float(design.weights.sum()))


def is_settled(problem: Regression[np.ndarray], columns: int) -> bool:
    """Return whether penalties, priors or few columns make the solution unique."""
    if columns < 3 or problem.free is not None or problem.prior is not None:
        return True
    return bool(np.count_nonzero(problem.l1) + np.count_nonzero(problem.l2))


def span_of_gram(gram: Matrix, total: float) -> Span | None:
    """Compute ``span_of`` from weighted products of columns and the sum of weights."""
    size = np.sqrt(np.diagonal(gram))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(gram / size / size[:, None])
    kept = values > _RANK * len(values)
    if kept.all():
        return None
    return vectors[:, kept] / size[:, None] * np.sqrt(total)


def _lbfgs(
    problem: Regression[np.ndarray], design: BinaryDesign[np.ndarray], unit: Vector
) -> Minimum[np.ndarray]:
    """Minimize without Hessians, by SciPy's L-BFGS-B."""
    from scipy.optimize import minimize

    columns, weights = design.columns, design.weights
    size = np.sqrt(np.einsum("ij,ij,j->i", columns, columns, weights) / weights.sum())
    size = np.where(size > 0, size, 1.0)
    free = np.ones(len(size)) if problem.free is None else np.asarray(problem.free, float)

    def objective(scaled: Vector) -> tuple[float, Vector]:
        beta = scaled / size
        loss, gradient = loss_and_gradient_on_host(design, beta)
        value, slope, _ = penalty_terms(problem, unit, beta, np)
        return float(loss + value), (gradient + slope) * free / size

    options = {"maxiter": 10_000, "maxfun": 20_000, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
    options["gtol"] *= weights.sum()
    result = minimize(
        objective, start(problem, np) * unit * size, jac=True, method="L-BFGS-B", options=options
    )
    line = result.x / size @ columns
    loose = not np.any(problem.l2) and problem.prior is None
    separated = loose and bool(np.all((line > 0) == (problem.targets == 1)))
    separated &= bool(np.isin(problem.targets, (0.0, 1.0)).all())
    status = Status.CONVERGED if result.status == 0 else Status.LIMIT
    status = Status.UNBOUNDED if separated else status
    gain = np.asarray(np.abs(result.jac).max())
    beta = result.x / size / unit
    return Minimum(beta, np.asarray(result.fun), gain, np.asarray(result.nit), np.asarray(status))
