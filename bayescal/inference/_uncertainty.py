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
    finite_features,
    in_blocks,
    in_chunks,
    linear,
    mean_natural,
    mixture,
    natural_block,
    weigh,
    weight_blocks,
)
from bayescal.inference.engine.condition import Setup, map_rows, realize, weights_of
from bayescal.inference.integrators.base import Problem
from bayescal.models import Prior
from bayescal.models.prior import draw

#: Arrays by their axes.
Points: TypeAlias = 'Float[jax.Array, " points *dimensions"]'
PerDraw: TypeAlias = 'Float[jax.Array, " draws"]'
PerClassPoint: TypeAlias = 'Float[jax.Array, "classes points"]'

#: A block of draws: parameters with an array for each draw, and another such array.
_DrawBlock: TypeAlias = tuple[tuple[Params, jax.Array], jax.Array]

_CHUNK = 256
_BISECTIONS = 45
#: Effective draws of a class's average density below which the spread of draws is unreliable.
_MIN_EFFECTIVE = 50


def _posterior_draws(
    setup: Setup, problem: Problem, key: jax.Array, num_samples: int
) -> tuple[WeightedDraws, PerDraw]:
    """Return draws that describe the posterior, and their normalized log weights.

    These are draws even if predictions use the nodes of a rule.
    """
    drawn = setup.integrator.posterior_draws(problem, key, num_samples)
    if drawn is None:
        drawn = realize(setup, problem)
        return drawn, weights_of(problem, drawn)
    return drawn, weigh(problem.prior.family, drawn, problem.sums, problem.origin)[0]


@partial(jax.jit, static_argnums=(0, 1))
def standard_error(setup: Setup, method: str, problem: Problem, x: Points) -> PerClassPoint:
    """Estimate the standard error (k, m) of the predictions of one data set at points ``x``.

    For independent weighted draws, the delta method for a ratio of means gives
    sum_i w_i**2 (f_i - p)**2, where for ``predictive`` f_i - p is the influence of draw i on the
    ratio. Replicated designs use the spread between replicates, quadrature rules the difference
    from a coarser rule.
    """
    draws = realize(setup, problem)
    log_weights = weights_of(problem, draws)
    function = _between_replicates if setup.integrator.replicates else _delta_method
    if setup.integrator.name == "quadrature":
        function = _between_rules
    return in_chunks(
        lambda part: function(setup, method, problem, draws, log_weights, part), x, _CHUNK
    )


def _between_replicates(
    setup: Setup,
    method: str,
    problem: Problem,
    draws: WeightedDraws,
    log_weights: PerDraw,
    x: Points,
) -> PerClassPoint:
    """Predict from each replicate separately, and return the standard error of their mean.

    Parts of one chain understate the error if chains disagree, so an error between whole chains
    that is twice as large takes precedence.
    """
    n = len(log_weights)
    log_class_probs = problem.class_prior.rule(method, n).log_probs[0].T
    log_class_probs = jnp.broadcast_to(log_class_probs, (n, log_class_probs.shape[1]))

    def between(count: int) -> jax.Array:
        block = -(-n // count)

        def predict(item: _DrawBlock) -> jax.Array:
            (params, log_class_probs), log_weights = item
            weights, _ = normalize_log_weights(log_weights)
            part = WeightedDraws(params, weights, weights)
            class_probs = ClassProbRule.at(
                log_class_probs.T if method == "preds" else log_class_probs.T[:, :1]
            )
            return _probabilities(method, problem, part, weights[None], class_probs, x)[:, 0]

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
    setup: Setup,
    method: str,
    problem: Problem,
    draws: WeightedDraws,
    log_weights: PerDraw,
    x: Points,
) -> PerClassPoint:
    """Return the difference from a rule on the same box with five sixths of the nodes."""
    nodes = setup.integrator.realize(problem, 5 * setup.size // 6)
    weights = weigh(problem.prior.family, nodes, problem.sums, problem.origin)[0]
    few, many = (problem.class_prior.rule(method, 1, coarse) for coarse in (True, False))
    rough = _probabilities(method, problem, nodes, weights[None], few, x)
    return jnp.abs(rough - _probabilities(method, problem, draws, log_weights[None], many, x))[:, 0]


def _probabilities(
    method: str,
    problem: Problem,
    draws: WeightedDraws,
    log_weights: Float[jax.Array, "sets draws"],
    class_probs: ClassProbRule,
    x: Points,
) -> Float[jax.Array, "classes sets points"]:
    """Return class probabilities (k, b, m) for each row of log weights (b, n)."""
    if method == "coeffs":
        return jnp.stack([_mean_model(problem, draws, w, x)[0] for w in log_weights], axis=1)
    family, dtype = problem.prior.family, log_weights.dtype
    log_probs = mixture(
        family, method, draws.params, log_weights, x, problem.origin, class_probs, dtype
    )
    return jax.nn.softmax(log_probs, axis=0)


@partial(jax.jit, static_argnums=0)
def unresolved_mass(setup: Setup, problem: Problem, x: Points) -> PerClassPoint:
    """Bound the error of ``predictive`` probabilities (k, m) where few draws determine them.

    Far from the data, the average density of a class depends on parameters that are rarely drawn.
    If fewer than fifty draws are effective, its logarithm may be too low by the difference to the
    mean plus half the variance of the log densities, which would be exact if these were normal. The
    bound is zero elsewhere, and vacuous where rounding hides the densities.
    """
    family, origin = problem.prior.family, problem.origin
    draws = realize(setup, problem)
    log_weights = weights_of(problem, draws)
    natural = natural_block(family, draws.params, origin, log_weights.dtype)
    weights = jnp.where(jnp.isfinite(log_weights), jnp.exp(log_weights), 0)[:, None]

    def part(points: jax.Array) -> jax.Array:
        z = linear(natural, finite_features(family, points, origin, log_weights.dtype))
        top = jnp.max(jnp.where(weights > 0, z, -jnp.inf), axis=1, keepdims=True)
        ratio = jnp.where(weights > 0, weights * jnp.exp(z - top), 0)
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
    problem: Problem, draws: WeightedDraws, log_weights: PerDraw, x: Points
) -> tuple[
    PerClassPoint, Float[jax.Array, "classes features"], Float[jax.Array, "points features"]
]:
    """Return class probabilities (k, m) at the mean coefficients, these, and the features."""
    family = problem.prior.family
    mean = mean_natural(family, draws, log_weights, problem.origin)
    phi = finite_features(family, x, problem.origin, mean.dtype)
    logits = linear(mean - mean[:1], phi) + problem.class_prior.fixed("coeffs")[:, None]
    return jax.nn.softmax(logits, axis=0), mean, phi


def _delta_method(
    setup: Setup,
    method: str,
    problem: Problem,
    draws: WeightedDraws,
    log_weights: PerDraw,
    x: Points,
) -> PerClassPoint:
    """Sum the squared influences of independent draws, in blocks."""
    family, origin, dtype = problem.prior.family, problem.origin, log_weights.dtype
    n = log_weights.shape[0]
    class_probs = problem.class_prior.rule(method, n)
    if method == "coeffs":
        probs, mean, phi = _mean_model(problem, draws, log_weights, x)
        log_total = jnp.zeros(())
    else:
        log_sums = mixture(
            family, method, draws.params, log_weights[None], x, origin, class_probs, dtype
        )[:, 0]
        log_total = jax.nn.logsumexp(log_sums, axis=0)
        probs, phi = jnp.exp(log_sums - log_total), finite_features(family, x, origin, dtype)
        mean = jnp.zeros(())

    def influence(
        natural: Float[jax.Array, "classes draws features"], log_class_probs: jax.Array
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

    block = even_block(n, block_elements() // (x.shape[0] * family.classes))

    def add(total: jax.Array, item: _DrawBlock) -> tuple[jax.Array, None]:
        (params, logs), log_class_probs = item
        change = influence(natural_block(family, params, origin, dtype), log_class_probs.T)
        weights = jnp.exp(logs)[None, :, None]
        # A draw of weight zero may have an infinite density ratio: it has no influence.
        part = jnp.where(weights > 0, weights * change, 0)
        return total + jnp.sum(part**2, axis=1), None

    per_draw = jnp.broadcast_to(class_probs.log_probs[0].T, (n, family.classes))
    items = draw_blocks(draws, log_weights, block), in_blocks(per_draw, n, block)
    total, _ = jax.lax.scan(add, jnp.zeros((family.classes, x.shape[0])), items)
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
    family, origin = problem.prior.family, problem.origin
    draws, log_weights = _posterior_draws(setup, problem, jax.random.key(0), num_samples)
    weights = jnp.exp(log_weights)
    natural = natural_block(family, draws.params, origin, weights.dtype)
    log_class_probs = problem.class_prior.drawn(len(weights))

    def chunk(part: Points) -> jax.Array:
        phi = finite_features(family, part, origin, weights.dtype)
        logits = linear(natural, phi) + log_class_probs[..., None]
        if family.classes == 2:
            values = (logits[1] - logits[0])[None]
        else:
            values = jax.nn.softmax(logits, axis=0)
        quantiles = jnp.stack([_quantile(values, weights, level) for level in levels])
        if family.classes == 2:
            return jnp.concatenate([-quantiles, quantiles], axis=1)
        return quantiles

    return in_chunks(chunk, x, max(1, (1 << 22) // (num_samples * family.classes)))


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
    draws = realize(setup, problem)
    log_weights = weights_of(problem, draws)
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
