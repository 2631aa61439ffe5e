"""A single fit on the host with NumPy, where nothing has to be compiled."""

from __future__ import annotations

import numpy as np

from bayescal._core.optimize import Minimum, Quadratic, Status, newton
from bayescal._core.shapes import Float
from bayescal.regression.binary.lasso import lasso_step_on_host
from bayescal.regression.binary.objective import (
    BinaryDesign,
    Regression,
    add_penalties,
    centered,
    cross_entropy_on_host,
    loss_and_gradient_on_host,
    movement,
    penalty_terms,
    start,
    uncentered,
    units,
)

#: Number of columns above which Hessians cost more than they save.
MANY = 400
_ROWS_OF_GUESS = 14
_RANK = 1e-11


def fit_on_host(problem: Regression[np.ndarray]) -> Minimum[np.ndarray]:
    """Fit one regression whose rows all have weight.

    Newton's method, or L-BFGS for more than 400 columns, which ignores ``l1``.
    """
    problem, mean = centered(problem, np)
    design, unit = design_of(problem)
    if problem.x.shape[1] > MANY:
        minimum = _lbfgs(problem, design, unit)
        return minimum._replace(x=uncentered(minimum.x, mean, np))
    span = span_of(problem, design)
    minimum = fit_design(problem, design, unit, _guess(problem) * unit, span)
    return minimum._replace(x=uncentered(minimum.x / unit, mean, np))


def design_of(
    problem: Regression[np.ndarray],
) -> tuple[BinaryDesign[np.ndarray], Float[np.ndarray, " 1+features"]]:
    """Return the problem's design, and the units of its columns."""
    n, d = problem.x.shape
    unit, inverse = units_of(problem)
    columns = np.empty((1 + d, n))
    columns[0] = 1
    np.multiply(problem.x.T, inverse[:, None], out=columns[1:])
    return BinaryDesign(columns, problem.targets, problem.weights), unit


def units_of(
    problem: Regression[np.ndarray],
) -> tuple[Float[np.ndarray, " 1+features"], Float[np.ndarray, " features"]]:
    """Return the units of the intercept and the features, and the inverses of the latter."""
    return units(np.maximum(problem.x.max(axis=0), -problem.x.min(axis=0)), np)


def fit_design(
    problem: Regression[np.ndarray],
    design: BinaryDesign[np.ndarray],
    unit: Float[np.ndarray, " parameters"],
    begin: Float[np.ndarray, " parameters"],
    span: Float[np.ndarray, "parameters combinations"] | None,
) -> Minimum[np.ndarray]:
    """Fit from ``begin``; both ``begin`` and the result are in the columns' units.

    Only the penalties, priors and ``free`` of ``problem`` are used. Linearly dependent columns
    without a penalty to decide between them share their effect, by least squares of their
    coefficients in the units of the columns.
    """
    if span is not None:
        reduced = design._replace(columns=span.T @ design.columns)
        free = problem._replace(intercept_prior=None)
        begin = np.linalg.lstsq(span, begin)[0]
        minimum = fit_design(free, reduced, np.ones(len(begin)), begin, None)
        return minimum._replace(x=span @ minimum.x)
    columns, lasso = design.columns, bool(np.any(problem.l1))
    strength = np.append(0.0, np.broadcast_to(problem.l1, len(unit) - 1)) / unit

    no_prior = problem.prior is None and problem.intercept_prior is None
    all_free = problem.free is None or np.all(problem.free)
    plain = no_prior and all_free and not lasso and not np.any(problem.l2)

    def objective(beta: Float[np.ndarray, " parameters"]) -> Quadratic[np.ndarray]:
        loss = cross_entropy_on_host(design, beta)
        if plain:
            return loss
        return add_penalties(problem, unit, strength if lasso else None, loss, beta, np)

    def moved(
        beta: Float[np.ndarray, " parameters"], step: Float[np.ndarray, " parameters"]
    ) -> Float[np.ndarray, ""]:
        # Cheap upper bound; rows are checked only if it is large.
        bound_on_move = np.abs(step) @ np.abs(columns).max(axis=1)
        return (
            bound_on_move
            if bound_on_move < 0.01
            else movement(beta @ columns, step @ columns, design.weights, np)
        )

    return newton(
        objective,
        begin,
        scale=np.sum(design.weights),
        bound=0.25 * np.einsum("ij,ij,j->i", columns, columns, design.weights),
        direction=lasso_step_on_host(strength) if lasso else None,
        movement=moved,
        foresee=not lasso,
        xp=np,
    )


def _guess(problem: Regression[np.ndarray]) -> Float[np.ndarray, " 1+features"]:
    """Return initial coefficients, from a fit to a part of the rows if there are very many."""
    stride = len(problem.x) >> _ROWS_OF_GUESS
    if stride > 4:
        x, targets, weights = (rows[::stride] for rows in problem[:3])
        part = Regression(x, targets, weights * stride, *problem[3:])
        minimum = fit_on_host(part)
        if minimum.status == Status.CONVERGED:
            return minimum.x
    return start(problem, np)


def span_of(
    problem: Regression[np.ndarray], design: BinaryDesign[np.ndarray]
) -> Float[np.ndarray, "parameters combinations"] | None:
    """Return combinations that span the columns, or None if these are independent.

    They are computed only if no penalty or prior decides between dependent columns.
    """
    if is_settled(problem, len(design.columns)):
        return None
    weighted = design.columns * np.sqrt(design.weights)
    return span_of_gram(weighted @ weighted.T, float(design.weights.sum()))


def is_settled(problem: Regression[np.ndarray], columns: int) -> bool:
    """Return whether penalties, priors or few columns make the solution unique."""
    settled = np.any(problem.l1) or np.any(problem.l2) or problem.prior is not None
    return bool(settled or problem.free is not None or columns < 3)


def span_of_gram(
    gram: Float[np.ndarray, "parameters parameters"], total: float
) -> Float[np.ndarray, "parameters combinations"] | None:
    """Compute ``span_of`` from weighted products of columns and the sum of weights."""
    size = np.sqrt(np.diagonal(gram))
    size = np.where(size > 0, size, 1.0)
    values, vectors = np.linalg.eigh(gram / size / size[:, None])
    kept = values > _RANK * len(values)
    if kept.all():
        return None
    return vectors[:, kept] / size[:, None] * np.sqrt(total)


def _lbfgs(
    problem: Regression[np.ndarray],
    design: BinaryDesign[np.ndarray],
    unit: Float[np.ndarray, " parameters"],
) -> Minimum[np.ndarray]:
    """Minimize without Hessians, by SciPy's L-BFGS-B."""
    from scipy.optimize import minimize

    columns, weights = design.columns, design.weights
    size = np.sqrt(np.einsum("ij,ij,j->i", columns, columns, weights) / weights.sum())
    size = np.where(size > 0, size, 1.0)
    free = np.ones(len(size)) if problem.free is None else np.asarray(problem.free, float)

    def objective(
        scaled: Float[np.ndarray, " parameters"],
    ) -> tuple[float, Float[np.ndarray, " parameters"]]:
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
