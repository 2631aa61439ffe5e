"""Weighted logistic regression to soft targets, for many data sets or penalties at once."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayescal._core.optimise import (
    Minimum,
    Quadratic,
    lasso_step,
    newton,
    newton_step,
)

_AT_ONCE = 1 << 16
_NOTHING = 1e-150


class Fit(NamedTuple):
    """Fitted coefficients, with a leading axis of fits.

    Attributes
    ----------
    intercept : array of shape (batch,)
    coef : array of shape (batch, d)
    value : array of shape (batch,)
        The objective: weighted cross-entropy to the targets, in nats, plus the penalty.
    iterations, status : integer arrays of shape (batch,)
        Status is a ``bayescal._core.optimise.Status``.
    """

    intercept: jax.Array
    coef: jax.Array
    value: jax.Array
    iterations: jax.Array
    status: jax.Array


class Problem(NamedTuple):
    """One regression.

    Attributes
    ----------
    x : array of shape (n, d)
    targets : array of shape (n,)
        Probabilities of class 1 to fit, in [0, 1].
    weights : array of shape (n,)
        Zero leaves a row out.
    l1, l2 : scalars
        Strengths of the penalties l1 |coef| + l2 coef**2 / 2; the intercept is free.
    prior : distribution or None
        NumPyro distribution of each coefficient.
    intercept_prior : distribution or None
    """

    x: jax.Array
    targets: jax.Array
    weights: jax.Array
    l1: jax.Array
    l2: jax.Array
    prior: Any = None
    intercept_prior: Any = None


def cross_entropy(problem: Problem, beta: jax.Array) -> Quadratic:
    """Return the weighted cross-entropy at (intercept, coef...) with its derivatives.

    The loss of a row is log(1 + exp(f)) - t f, which is the cross-entropy itself: at a soft target
    its least value is the target's entropy.
    """
    x, w = problem.x, problem.weights
    d = x.shape[1]
    # A sum over columns, elementwise, is fast for few and small problems under ``vmap``.
    line = beta[0] + (sum(beta[j + 1] * x[:, j] for j in range(d)) if d <= 4 else x @ beta[1:])
    small = jax.lax.optimization_barrier(jnp.exp(-jnp.abs(line)))
    larger = 1 / (1 + small)
    probability = jnp.where(line >= 0, larger, small * larger)
    loss = jnp.maximum(line, 0) + jnp.log1p(small) - problem.targets * line
    residual = w * (probability - problem.targets)
    curvature = w * small * larger**2
    residual, curvature = jax.lax.optimization_barrier((residual, curvature))
    if d > 4:
        design = jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)
        gradient = residual @ design
        hessian = (design * curvature[:, None]).T @ design
    else:
        columns = [jnp.ones_like(line), *(x[:, j] for j in range(d))]
        gradient = jnp.stack([jnp.sum(residual * c) for c in columns])
        entries: dict[tuple[int, int], jax.Array] = {}
        for i in range(d + 1):
            for j in range(i + 1):
                entries[i, j] = entries[j, i] = jnp.sum(curvature * columns[i] * columns[j])
        rows = [jnp.stack([entries[i, j] for j in range(d + 1)]) for i in range(d + 1)]
        hessian = jnp.stack(rows)
    return Quadratic(jnp.sum(w * loss), gradient, hessian)


def smooth_penalty(problem: Problem, unit: jax.Array, beta: jax.Array) -> Quadratic:
    """Return the squared penalty and the negative log priors of ``beta / unit``, with derivatives.

    ``unit`` (1 + d,) is what the features were divided by; the derivatives are those by ``beta``.
    """
    diagonal = jnp.where(jnp.arange(beta.shape[0]) > 0, problem.l2, 0) / unit**2
    value = 0.5 * jnp.sum(diagonal * beta**2)
    result = Quadratic(value, diagonal * beta, jnp.diag(diagonal))
    for distribution, part in (
        (problem.intercept_prior, slice(0, 1)),
        (problem.prior, slice(1, None)),
    ):
        if distribution is None:
            continue
        mask = jnp.zeros(beta.shape).at[part].set(1.0)

        def loss(b: jax.Array, law: Any = distribution) -> jax.Array:
            with jax.numpy_dtype_promotion("standard"):
                return -law.log_prob(b)

        slope, bend, at = jax.grad(loss), jax.grad(jax.grad(loss)), beta / unit
        result = Quadratic(
            result.value + jnp.sum(jnp.where(mask > 0, jax.vmap(loss)(at), 0)),
            result.gradient + mask * jax.vmap(slope)(at) / unit,
            result.hessian + jnp.diag(mask * jax.vmap(bend)(at) / unit**2),
        )
    return result


def _units(problem: Problem) -> jax.Array:
    """Return a power of two (1 + d,) near the largest size of each feature, one for the intercept.

    In such units no square underflows or overflows; entries below 1e-150 count as nothing.
    """
    largest = jnp.max(jnp.abs(problem.x), axis=0, initial=0, where=problem.weights[:, None] > 0)
    largest = jnp.where(largest > _NOTHING, jnp.minimum(largest, 1 / _NOTHING), 1)
    power = jnp.round(jnp.log2(largest))
    return jnp.concatenate([jnp.ones(1), jnp.exp2(power)])


def _start(problem: Problem) -> jax.Array:
    """Return no slope, and the intercept of the mean target."""
    total = jnp.sum(problem.weights)
    mean = jnp.sum(problem.weights * problem.targets) / jnp.where(total > 0, total, 1)
    mean = jnp.clip(mean, 1e-6, 1 - 1e-6)
    return jnp.zeros(problem.x.shape[1] + 1).at[0].set(jnp.log(mean) - jnp.log1p(-mean))


def _largest_curvature(problem: Problem) -> jax.Array:
    """Return the largest second derivatives of the cross-entropy, where all targets are even."""
    squares = problem.weights @ problem.x**2
    return 0.25 * jnp.concatenate([jnp.sum(problem.weights)[None], squares])


def _movement(problem: Problem, beta: jax.Array, step: jax.Array) -> jax.Array:
    """Return the largest relative change of a row's log odds by a step."""

    def line(b: jax.Array) -> jax.Array:
        return b[0] + problem.x @ b[1:]

    change = jnp.abs(line(step)) / (1 + jnp.abs(line(beta)))
    return jnp.max(jnp.where(problem.weights > 0, change, 0))


def fit_one(problem: Problem, lasso: bool, max_iterations: int = 100) -> Minimum:
    """Fit one regression; ``lasso`` says whether to heed the absolute penalty."""
    unit = _units(problem)
    x = jnp.where(jnp.abs(problem.x) > _NOTHING, problem.x / unit[1:], 0)
    problem = problem._replace(x=x)
    strength = jnp.where(jnp.arange(unit.shape[0]) > 0, problem.l1, 0) / unit

    def objective(beta: jax.Array) -> Quadratic:
        total = jax.tree.map(
            jnp.add, cross_entropy(problem, beta), smooth_penalty(problem, unit, beta)
        )
        if not lasso:
            return total
        return total._replace(value=total.value + jnp.sum(strength * jnp.abs(beta)))

    found = newton(
        objective,
        _start(problem),
        scale=jnp.sum(problem.weights),
        bound=_largest_curvature(problem),
        direction=lasso_step(strength) if lasso else newton_step,
        movement=partial(_movement, problem),
        max_iterations=max_iterations,
    )
    return found._replace(x=found.x / unit)


def as_fit(found: Minimum) -> Fit:
    """Return a batch of minima as coefficients."""
    return Fit(found.x[:, 0], found.x[:, 1:], found.value, found.iterations, found.status)


def rows_at_once(batch: int, n: int, d: int) -> int:
    """Return how many fits to do side by side."""
    return max(1, min(batch, _AT_ONCE // (n * (d + 1))))


@partial(jax.jit, static_argnames=("lasso", "max_iterations"))
def fit_many(problems: Problem, lasso: bool = False, max_iterations: int = 100) -> Fit:
    """Fit a batch; leaves of ``problems`` have a leading axis of fits, save the priors'."""
    batch, n, d = problems.x.shape
    priors = problems.prior, problems.intercept_prior
    each = problems._replace(prior=None, intercept_prior=None)

    def one(problem: Problem) -> Minimum:
        full = problem._replace(prior=priors[0], intercept_prior=priors[1])
        return fit_one(full, lasso, max_iterations)

    rows = rows_at_once(batch, n, d)
    if batch == 1:
        found = jax.tree.map(lambda leaf: leaf[None], one(jax.tree.map(lambda leaf: leaf[0], each)))
    else:
        found = jax.lax.map(one, each, batch_size=rows)
    return as_fit(found)
