"""Monte Carlo standard errors, credible bounds of the optimal model, and posterior samples."""

from __future__ import annotations

import math
from functools import partial
from typing import TypeAlias

from bayescal._core.arrays import Params
from bayescal._core.execution.chunks import block_elements, even_block
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import normalize_log_weights
from bayescal._core.shapes import Float
from bayescal.inference._class_prior import ClassProbRule
from bayescal.inference.engine.averages import (
    WeightedDraws,
    draw_blocks,
    in_blocks,
    in_chunks,
    linear,
    weight_blocks,
)
from bayescal.inference.engine.condition import Setup, map_rows, realize
from bayescal.inference.integrators.base import Problem
from bayescal.models import Prior
from bayescal.models.prior import draw

#: Arrays by their axes.
Points: TypeAlias = 'Float[jax.Array, " points *dimensions"]'
PerDraw: TypeAlias = 'Float[jax.Array, " draws"]'
PerClassPoint: TypeAlias = 'Float[jax.Array, "classes points"]'
Natural: TypeAlias = 'Float[jax.Array, "classes draws features"]'

#: Draws of one data set, and their normalized log weights.
_Weighted: TypeAlias = tuple[WeightedDraws, jax.Array]
#: A block of draws: parameters with an array for each draw, and another such array.
_DrawBlock: TypeAlias = tuple[tuple[Params, jax.Array], jax.Array]

_CHUNK = 256
_BISECTIONS = 45
#: Log odds beyond which probabilities are 0 or 1 in double precision.
_MAX_LOG_ODDS = 750.0
#: Effective draws of a class's average density below which the spread of draws is unreliable.
_MIN_EFFECTIVE = 50


def _weighted(setup: Setup, problem: Problem) -> _Weighted:
    """Return the draws of one data set and their weights."""
    draws = realize(setup, problem)
    return draws, problem.weights_of(draws)


def _posterior_draws(setup: Setup, problem: Problem, key: jax.Array, num_samples: int) -> _Weighted:
    """Return draws that describe the posterior, even if predictions use the nodes of a rule."""
    drawn = setup.integrator.posterior_draws(problem, key, num_samples)
    return _weighted(setup, problem) if drawn is None else (drawn, problem.weigh(drawn)[0])


@partial(jax.jit, static_argnums=(0, 1))
def standard_error(setup: Setup, method: str, problem: Problem, x: Points) -> PerClassPoint:
    """Estimate the standard error (k, m) of the predictions of one data set at points ``x``.

    For independent weighted draws, the delta method for a ratio of means gives
    sum_i w_i**2 (f_i - p)**2, where for ``predictive`` f_i - p is the influence of draw i on the
    ratio. Replicated designs use the spread between replicates, quadrature rules the difference
    from a coarser rule.
    """
    weighted = _weighted(setup, problem)
    function = _between_replicates if setup.integrator.replicates else _delta_method
    if setup.integrator.name == "quadrature":
        function = _between_rules
    return in_chunks(partial(function, setup, method, problem, weighted), x, _CHUNK)


def _between_replicates(
    setup: Setup, method: str, problem: Problem, weighted: _Weighted, x: Points
) -> PerClassPoint:
    """Predict from each replicate separately, and return the standard error of their mean.

    Parts of one chain understate the error if chains disagree, so an error between whole chains
    that is twice as large takes precedence.
    """
    draws, log_weights = weighted
    n = len(log_weights)
    log_class_probs = problem.class_prior.rule(method, n).log_probs[0].T
    log_class_probs = jnp.broadcast_to(log_class_probs, (n, log_class_probs.shape[1]))

    def between(count: int) -> jax.Array:
        block = -(-n // count)

        def predict(item: _DrawBlock) -> jax.Array:
            (params, log_class_probs), log_weights = item
            weights, _ = normalize_log_weights(log_weights)
            part = WeightedDraws(params, weights, weights), weights
            columns = log_class_probs.T if method == "preds" else log_class_probs.T[:, :1]
            return _probabilities(method, problem, part, ClassProbRule.at(columns), x)

        parts = in_blocks((draws.params, log_class_probs), n, block)
        parts_probs = jax.lax.map(predict, (parts, weight_blocks(log_weights[None], block)[:, 0]))
        return jnp.std(parts_probs, axis=0, ddof=1) / math.sqrt(len(parts_probs))

    count, chains = setup.integrator.replicates, setup.integrator.chains(setup.size)
    error = between(count)
    if chains == count:
        return error
    larger = between(chains)
    return jnp.where(larger > 2 * error, larger, error)


def _between_rules(
    setup: Setup, method: str, problem: Problem, weighted: _Weighted, x: Points
) -> PerClassPoint:
    """Return the difference from a rule on the same box with five sixths of the nodes."""
    nodes = setup.integrator.realize(problem, max(1, 5 * setup.size // 6))
    coarser = nodes, problem.weigh(nodes)[0]
    few, many = (problem.class_prior.rule(method, 1, coarse) for coarse in (True, False))
    rough = _probabilities(method, problem, coarser, few, x)
    return jnp.abs(rough - _probabilities(method, problem, weighted, many, x))


def _probabilities(
    method: str, problem: Problem, weighted: _Weighted, class_probs: ClassProbRule, x: Points
) -> PerClassPoint:
    """Return class probabilities (k, m)."""
    if method == "coeffs":
        return _mean_model(problem, weighted, x)[0]
    draws, log_weights = weighted
    given = method, draws.params, log_weights[None], x, class_probs, log_weights.dtype
    return jax.nn.softmax(problem.densities.mixture(*given)[:, 0], axis=0)


@partial(jax.jit, static_argnums=0)
def unresolved_mass(setup: Setup, problem: Problem, x: Points) -> PerClassPoint:
    """Bound the error of ``predictive`` probabilities (k, m) where few draws determine them.

    Far from the data, the average density of a class depends on parameters that are rarely drawn.
    If fewer than fifty draws are effective, its logarithm may be too low by the difference to the
    mean plus half the variance of the log densities, which would be exact if these were normal. The
    bound is zero elsewhere, and vacuous where rounding hides the densities.
    """
    draws, log_weights = _weighted(setup, problem)
    dtype = log_weights.dtype
    natural = problem.densities.finite_natural(draws.params, dtype)
    log_weights = jnp.where(jnp.isfinite(log_weights), log_weights, -jnp.inf)[:, None]
    weights = jnp.exp(log_weights)

    def part(points: jax.Array) -> jax.Array:
        z = linear(natural, problem.densities.features(points, dtype))
        # The draws that determine a density may have weights whose squares underflow.
        height = z + log_weights
        top = jnp.max(height, axis=1, keepdims=True)
        ratio = jnp.exp(height - top)
        total = ratio.sum(axis=1)
        few = jnp.square(ratio).sum(axis=1) * _MIN_EFFECTIVE > total**2
        z = jnp.where(weights > 0, z - top, 0)
        mean = (weights * z).sum(axis=1)
        gain = mean + (weights * jnp.square(z - mean[:, None])).sum(axis=1) / 2 - jnp.log(total)
        nats = jnp.where(few, jnp.maximum(gain, 0), 0)
        logits = jnp.log(total) + top[:, 0] + problem.class_prior.log_mean[:, None]
        rounding = jnp.finfo(z.dtype).eps * jnp.max(jnp.abs(top[:, 0]), axis=0)
        known = rounding <= 1e-6 * (1 + jnp.max(logits, axis=0) - jnp.min(logits, axis=0))
        others = jnp.where(jnp.eye(len(z))[..., None] > 0, -jnp.inf, logits)
        log_odds = logits - jax.nn.logsumexp(others, axis=1)
        rise = jnp.max(jnp.where(jnp.eye(len(z))[..., None] > 0, 0, nats), axis=1)
        p = jax.nn.sigmoid(log_odds)
        up, down = jax.nn.sigmoid(log_odds + nats), jax.nn.sigmoid(log_odds - rise)
        return jnp.where(known, jnp.maximum(up - p, p - down), jnp.maximum(p, 1 - p))

    return in_chunks(part, x, 4)


@partial(jax.jit, static_argnums=0)
def unresolved_masses(
    setup: Setup, problem: Problem, x: Float[jax.Array, " sets points *dimensions"]
) -> Float[jax.Array, "sets classes points"]:
    """Compute ``unresolved_mass`` (batch, k, m) of every data set at its points (batch, m, ...)."""
    return map_rows(lambda alone, row: unresolved_mass(setup, alone, row), problem, setup, x, 1)


def _mean_model(
    problem: Problem, weighted: _Weighted, x: Points
) -> tuple[
    PerClassPoint, Float[jax.Array, "classes features"], Float[jax.Array, "points features"]
]:
    """Return class probabilities (k, m) at the mean coefficients, these, and the features."""
    mean = problem.densities.mean_natural(*weighted)
    phi = problem.densities.features(x, mean.dtype)
    logits = linear(mean - mean[:1], phi) + problem.class_prior.fixed("coeffs")[:, None]
    return jax.nn.softmax(logits, axis=0), mean, phi


def _delta_method(
    setup: Setup, method: str, problem: Problem, weighted: _Weighted, x: Points
) -> PerClassPoint:
    """Sum the squared influences of independent draws, in blocks."""
    (draws, log_weights), densities = weighted, problem.densities
    n, dtype, k = len(log_weights), log_weights.dtype, densities.family.classes
    class_probs = problem.class_prior.rule(method, n)
    mean = log_total = jnp.zeros(())
    if method == "coeffs":
        probs, mean, phi = _mean_model(problem, weighted, x)
    else:
        given = method, draws.params, log_weights[None], x, class_probs, dtype
        log_sums = densities.mixture(*given)[:, 0]
        log_total = jax.nn.logsumexp(log_sums, axis=0)
        probs, phi = jnp.exp(log_sums - log_total), densities.features(x, dtype)

    def influence(
        natural: Natural, log_class_probs: jax.Array
    ) -> Float[jax.Array, "classes draws points"]:
        """Return the influence (k, n, m) of each draw on each class probability."""
        if method == "coeffs":
            shift = linear(natural - mean[:, None], phi)
            average = jnp.einsum("km,knm->nm", probs, shift)
            return probs[:, None] * (shift - average)
        logits = linear(natural, phi) + log_class_probs[..., None]
        if method == "preds":
            return jax.nn.softmax(logits, axis=0) - probs[:, None]
        ratio = jnp.exp(logits - log_total)
        return ratio - probs[:, None] * jnp.sum(ratio, axis=0)

    block = even_block(n, block_elements() // (x.shape[0] * k))

    def add(total: jax.Array, item: _DrawBlock) -> tuple[jax.Array, None]:
        (params, logs), log_class_probs = item
        change = influence(densities.finite_natural(params, dtype), log_class_probs.T)
        weights = jnp.exp(logs)[None, :, None]
        # A draw of weight zero may have an infinite density ratio: it has no influence.
        part = jnp.where(weights > 0, weights * change, 0)
        return total + jnp.sum(part**2, axis=1), None

    per_draw = jnp.broadcast_to(class_probs.log_probs[0].T, (n, k))
    items = draw_blocks(draws, log_weights, block), in_blocks(per_draw, n, block)
    total, _ = jax.lax.scan(add, jnp.zeros((k, x.shape[0])), items)
    return jnp.sqrt(total)


@partial(jax.jit, static_argnums=(0, 4))
def credible_bounds(
    setup: Setup, problem: Problem, x: Points, levels: Float[jax.Array, " levels"], num_samples: int
) -> Float[jax.Array, "levels classes points"]:
    """Return the posterior quantiles (levels, k, m) of f*(x; theta, pi) for one data set.

    Weighted quantiles are found by bisection on the distribution function: O(45 * draws * points)
    work and no sorting. For two classes they are log odds of each class, so that small
    probabilities keep their digits.
    """
    densities, k = problem.densities, problem.prior.family.classes
    draws, log_weights = _posterior_draws(setup, problem, jax.random.key(0), num_samples)
    weights = jnp.exp(log_weights)
    natural = densities.finite_natural(draws.params, weights.dtype)
    log_class_probs = problem.class_prior.drawn(len(weights))

    def chunk(part: Points) -> jax.Array:
        phi = densities.features(part, weights.dtype)
        logits = linear(natural, phi) + log_class_probs[..., None]
        if k == 2:
            # Few draws, of next to no weight, may be so far out that halvings do not come back.
            log_odds = jnp.clip(logits[1] - logits[0], -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
            values = log_odds[None]
        else:
            values = jax.nn.softmax(logits, axis=0)
        quantiles = jnp.stack([_quantile(values, weights, level) for level in levels])
        return jnp.concatenate([-quantiles, quantiles], axis=1) if k == 2 else quantiles

    return in_chunks(chunk, x, max(1, (1 << 22) // (num_samples * k)))


def _quantile(
    values: Float[jax.Array, "classes draws points"], weights: PerDraw, level: Float[jax.Array, ""]
) -> PerClassPoint:
    """Return the weighted quantile of values (k, n, m) over n by bisection, (k, m)."""
    alive = (weights > 0)[:, None]
    low = jnp.min(jnp.where(alive, values, jnp.inf), axis=1)
    high = jnp.max(jnp.where(alive, values, -jnp.inf), axis=1)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        inside = jnp.where(values <= middle[:, None], weights[:, None], 0)
        reached = jnp.sum(inside, axis=1) >= level
        return jnp.where(reached, low, middle), jnp.where(reached, middle, high)

    return jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))[1]


@partial(jax.jit, static_argnums=0)
def weighted_draws(setup: Setup, problem: Problem) -> tuple[Params, PerDraw]:
    """Return the parameters drawn for one data set, and their normalized log weights."""
    draws, log_weights = _weighted(setup, problem)
    return draws.params, log_weights


@partial(jax.jit, static_argnums=(0, 3, 4, 5))
def sample_posterior(
    setup: Setup, problem: Problem, key: jax.Array, num_draws: int, num_samples: int, shuffled: bool
) -> Params:
    """Resample ``num_draws`` parameter vectors with equal weights, systematically.

    Without a shuffle, repeated draws are adjacent, and draws of chains keep their order.
    """
    pool, first, second = jax.random.split(key, 3)
    draws, log_weights = _posterior_draws(setup, problem, pool, num_samples)
    order = jnp.arange(log_weights.shape[0])
    if setup.integrator.weighted:  # nodes and low-discrepancy points are ordered
        order = jax.random.permutation(second, order)
    cumulative = jnp.cumsum(jnp.exp(log_weights[order]))
    ticks = (jnp.arange(num_draws, dtype=cumulative.dtype) + jax.random.uniform(first)) / num_draws
    index = jnp.searchsorted(cumulative, ticks * cumulative[-1])
    index = order[jnp.clip(index, 0, log_weights.shape[0] - 1)]
    index = jax.random.permutation(second, index) if shuffled else index
    return jax.tree.map(lambda leaf: leaf[index], draws.params)


@partial(jax.jit, static_argnums=2)
def sample_prior(prior: Prior, key: jax.Array, num_draws: int) -> Params:
    """Draw ``num_draws`` parameter vectors from the prior."""
    return draw(prior, key, num_draws)[0]
