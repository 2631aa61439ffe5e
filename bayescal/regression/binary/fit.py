"""Weighted logistic regression with soft targets: one fit, or a batch of fits."""

from __future__ import annotations

from functools import partial
from typing import Any, Generic, NamedTuple

import numpy as np

from bayescal._core.arrays import Array, ArrayT
from bayescal._core.execution.blas import threads_of_blas
from bayescal._core.execution.chunks import map_batch
from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.directions import lasso_step, newton_step
from bayescal._core.minimization.optimize import Minimum, QuadraticModel, newton
from bayescal._core.shapes import Float
from bayescal.regression.binary.host import MANY, fit_on_host
from bayescal.regression.binary.objective import (
    CoefficientPrior,
    Regression,
    add_penalties,
    centered,
    cross_entropy,
    movement,
    offset_of,
    start,
    uncentered,
    units,
)
from bayescal.regression.model import as_distribution, potential, regression_sites

#: Entries of the designs that are fitted side by side.
_ENTRIES_AT_ONCE = 1 << 16
#: Entries of a single fit from which an accelerator, if there is one, is worthwhile.
_LARGE = 1 << 23


class Fit(NamedTuple, Generic[ArrayT]):
    """A batch of fits."""

    intercept: Float[ArrayT, " fits"]
    coef: Float[ArrayT, "fits features"]
    #: The objective: weighted cross-entropy to the targets, in nats, plus the penalty.
    value: Float[ArrayT, " fits"]
    iterations: Array | int
    #: A value of ``bayescal._core.minimization.optimize.Status``.
    status: Array | int


def fit_one(problem: Regression[jax.Array], lasso: bool) -> Minimum[jax.Array]:
    """Fit one regression; ``lasso`` tells whether it has an absolute penalty."""
    alone = problem.x.shape[1] == 1 and problem.free is None
    problem, mean = centered(problem)
    if lasso and alone and problem.prior is None and problem.intercept_prior is None:
        problem, lasso = _with_known_sign(problem), False
    real = problem.weights[:, None] > 0
    largest = jnp.max(jnp.abs(problem.x), axis=0, initial=0, where=real)
    unit, inverse = units(largest)
    problem = problem._replace(x=problem.x * inverse)
    l1 = jnp.broadcast_to(problem.l1, (unit.shape[0] - 1,))
    strength = jnp.concatenate([jnp.zeros(1), l1]) / unit
    has_prior = problem.prior is not None or problem.intercept_prior is not None
    offset = offset_of(problem, unit)

    def objective(beta: Float[jax.Array, " parameters"]) -> QuadraticModel[jax.Array]:
        loss = (
            _negative_log_posterior(problem, unit, beta + offset)
            if has_prior
            else cross_entropy(problem, beta + offset)
        )
        return add_penalties(problem, unit, strength if lasso else None, loss, beta)

    def moved(
        beta: Float[jax.Array, " parameters"], step: Float[jax.Array, " parameters"]
    ) -> Float[jax.Array, ""]:
        # Two products with one column are faster than one product with two.
        at = beta + offset
        line = at[0] + problem.x @ at[1:]
        return movement(line, step[0] + problem.x @ step[1:], problem.weights)

    squares = problem.weights @ problem.x**2
    total = jnp.sum(problem.weights)
    minimum = newton(
        objective,
        start(problem),
        scale=total,
        bound=0.25 * jnp.concatenate([total[None], squares]),
        direction=lasso_step(strength) if lasso else newton_step,
        movement=moved,
        convex=not has_prior,
    )
    return minimum._replace(x=uncentered((minimum.x + offset) / unit, mean))


def _negative_log_posterior(
    problem: Regression[jax.Array],
    unit: Float[jax.Array, " 1+features"],
    beta: Float[jax.Array, " 1+features"],
) -> QuadraticModel[jax.Array]:
    """Compute the potential of the NumPyro model at ``beta``, whose units are given.

    The Hessian of the loss costs less by hand than by JAX: half of a fit with 300 columns.
    """
    sites = regression_sites(problem.intercept_prior, problem.prior, beta.shape[0] - 1)

    def of_sites(beta: Float[jax.Array, " parameters"]) -> Float[jax.Array, ""]:
        return potential(sites, lambda _: jnp.zeros(()), beta / unit)

    value, gradient = jax.value_and_grad(of_sites)(beta)
    # Coefficients are independent, so that their second derivatives are a diagonal.
    _, diagonal = jax.jvp(jax.grad(of_sites), (beta,), (jnp.ones_like(beta),))
    loss = cross_entropy(problem, beta)
    hessian = loss.hessian + jnp.diag(diagonal)
    return QuadraticModel(loss.value + value, loss.gradient + gradient, hessian)


def _with_known_sign(problem: Regression[jax.Array]) -> Regression[jax.Array]:
    """Return a smooth problem with the same optimum, for one column and an absolute penalty.

    The slope of the loss at zero determines the sign of the best coefficient, or that it is zero.
    On that side the penalty is linear, as if targets were moved along the column.
    """
    column, weights = problem.x[:, 0], problem.weights
    total = jnp.sum(weights)
    proportion = weights / jnp.where(total > 0, total, 1)
    real = weights > 0
    # Rows of padding may contain anything.
    column = jnp.where(real, column, proportion @ jnp.where(real, column, 0))
    centered = column - proportion @ column
    spread = weights @ centered**2
    rise = weights @ (centered * problem.targets)
    l1 = jnp.reshape(problem.l1, ())
    shift = jnp.sign(rise) * l1 / jnp.where(spread > 0, spread, 1)
    free = jnp.stack([jnp.ones(()), (jnp.abs(rise) > l1).astype(column.dtype)])
    targets = jnp.where(free[1] > 0, problem.targets - shift * centered, problem.targets)
    return problem._replace(x=column[:, None], targets=targets, free=free)


def as_fit(minimum: Minimum[ArrayT]) -> Fit[ArrayT]:
    """Convert a batch of minima to coefficients."""
    return Fit(minimum.x[:, 0], minimum.x[:, 1:], minimum.value, minimum.iterations, minimum.status)


def rows_at_once(batch: int, n: int, d: int) -> int:
    """Return the number of fits that run side by side."""
    return max(1, min(batch, _ENTRIES_AT_ONCE // (n * (d + 1))))


@partial(jax.jit, static_argnames="lasso")
def fit_many(problems: Regression[jax.Array], lasso: bool = False) -> Fit[jax.Array]:
    """Fit a batch; leaves of ``problems`` except the priors' have a leading axis of fits.

    Priors must be NumPyro distributions.
    """
    batch, n, d = problems.x.shape
    priors = problems.prior, problems.intercept_prior
    without_priors = problems._replace(prior=None, intercept_prior=None)

    def fit_problem(problem: Regression[jax.Array]) -> Minimum[jax.Array]:
        full = problem._replace(prior=priors[0], intercept_prior=priors[1])
        return fit_one(full, lasso)

    return as_fit(map_batch(fit_problem, without_priors, batch, rows_at_once(batch, n, d)))


def fit_single(problem: Regression[np.ndarray], lasso: bool = False) -> Minimum[np.ndarray]:
    """Fit one regression given as NumPy arrays, on the host, where nothing has to be compiled.

    It runs in JAX if priors are NumPyro distributions, if more than 400 columns have an absolute
    penalty, and for large data if there is an accelerator.
    """
    if not lasso:
        problem = problem._replace(l1=0.0)
    if isinstance(problem.x, jax.Array):
        with float64():
            return jax.tree.map(np.asarray, _fit_compiled(_padded(problem), lasso))
    weighted = problem.weights > 0
    if not weighted.all():
        rows = (problem.x[weighted], problem.targets[weighted], problem.weights[weighted])
        problem = Regression(*rows, *problem[3:])
    priors = (problem.prior, problem.intercept_prior)
    written = all(law is None or isinstance(law, CoefficientPrior) for law in priors)
    if written and on_host(problem.x, newton=lasso):
        with np.errstate(all="ignore"), threads_of_blas(*problem.x.shape):
            return fit_on_host(problem)
    with float64():
        laws = [None if law is None else as_distribution(law) for law in priors]
        padded = _padded(problem)._replace(prior=laws[0], intercept_prior=laws[1])
        return jax.tree.map(np.asarray, _fit_compiled(padded, lasso))


def _padded(problem: Regression[Any]) -> Regression[np.ndarray]:
    """Add rows without weight, so that problems of similar size share a compilation."""
    n = len(problem.x)
    length = padded_length(n)
    xp = jnp if isinstance(problem.x, jax.Array) else np
    return problem._replace(
        x=xp.pad(problem.x, ((0, length - n), (0, 0)), mode="edge"),
        targets=pad_axis(problem.targets, length, 0),
        weights=np.pad(problem.weights, (0, length - n)),
    )


def on_host(x: Float[np.ndarray, "rows features"], newton: bool) -> bool:
    """Return whether fits to features run on the host; ``newton``: by Newton's method."""
    few = not newton or x.shape[1] <= MANY
    return few and (x.size < _LARGE or jax.default_backend() == "cpu")


_fit_compiled = jax.jit(fit_one, static_argnames="lasso")
