"""Monte-Carlo standard errors, credible bounds of the optimal model, and draws to hand out."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from bayescal._core.arrays import Params
from bayescal._core.blocks import block_elements, even_block
from bayescal._core.numerics import normalise_log_weights, two_class_probabilities
from bayescal.inference._averages import (
    Draws,
    draw_blocks,
    find_pivot,
    finite_features,
    in_chunks,
    linear,
    mean_natural,
    mixture,
    natural_block,
    weigh,
)
from bayescal.inference._engine import Setup, realise, weights_of
from bayescal.inference._integrator import Problem
from bayescal.models import Prior
from bayescal.models.prior import draw

_CHUNK = 256
_BISECTIONS = 45
#: Effective draws in the average of a class's density: with fewer their spread says little.
_FEW = 50
#: Squares of numbers up to this are finite.
_LARGEST = 1e100


def _posterior_draws(
    setup: Setup, problem: Problem, key: jax.Array, num_samples: int
) -> tuple[Draws, jax.Array]:
    """Return draws that describe the posterior, and their normalised log weights.

    Predictions may use nodes of a rule; these are draws there, too.
    """
    drawn = setup.integrator.posterior_draws(problem, key, num_samples)
    if drawn is None:
        drawn = realise(setup, problem)
        return drawn, weights_of(problem, drawn)
    return drawn, weigh(problem.prior.family, drawn, problem.sums, problem.origin)[0]


@partial(jax.jit, static_argnums=(0, 1))
def standard_error(setup: Setup, method: str, problem: Problem, x: jax.Array) -> jax.Array:
    """Return the standard error (k, m) of the predictions of one data set at points ``x``.

    For independent weighted draws the delta method for a ratio of means gives
    sum_i w_i**2 (f_i - p)**2, where f_i - p is for ``predictive`` the influence of draw i on the
    ratio. Replicated designs use the spread between replicates, rules the difference from
    coarser ones. What few or no draws speak of comes on top, see ``_unseen``.
    """
    draws = realise(setup, problem)
    log_weights = weights_of(problem, draws)
    if setup.integrator.coarser(setup.size):
        function = _between_rules
    else:
        function = _between_replicates if setup.integrator.replicates else _delta_method

    def one(part: jax.Array) -> jax.Array:
        error = function(setup, method, problem, draws, log_weights, part)
        if function is _between_rules:
            return error
        unseen = _unseen(method, problem, draws, log_weights, part)
        return jnp.fmax(error, unseen)

    return in_chunks(one, x, _CHUNK)


def _probabilities(
    method: str, problem: Problem, draws: Draws, log_weights: jax.Array, x: jax.Array
) -> jax.Array:
    """Return the class probabilities (k, b, m) by each row of log weights (b, n)."""
    if method == "coeffs":
        rows = [_mean_model(problem, draws, row, x)[0] for row in log_weights]
        return jnp.stack(rows, axis=1)
    family, arguments = problem.prior.family, (problem.origin, problem.log_class_prior)
    dtype = log_weights.dtype
    found = mixture(family, method, draws.params, log_weights, x, *arguments, dtype)
    # Of data sets that share draws, sums that are next to nothing come as NaN.
    return jax.nn.softmax(jnp.nan_to_num(found.log_probs, nan=-_LARGEST), axis=0)


def _between_rules(
    setup: Setup, method: str, problem: Problem, draws: Draws, log_weights: jax.Array, x: jax.Array
) -> jax.Array:
    """Return the difference from a coarser rule on the same box, or a tenth of the next one's.

    The second guards against accidents.
    """
    probs = _probabilities(method, problem, draws, log_weights[None], x)[:, 0]
    family, largest = problem.prior.family, jnp.zeros_like(probs)
    for size, part in zip(setup.integrator.coarser(setup.size), (1.0, 0.1), strict=True):
        nodes = setup.integrator.realise(problem, size)
        weights = weigh(family, nodes, problem.sums, problem.origin)[0]
        other = _probabilities(method, problem, nodes, weights[None], x)[:, 0]
        largest = jnp.fmax(largest, part * jnp.abs(other - probs))
    return largest


def _unseen(
    method: str, problem: Problem, draws: Draws, log_weights: jax.Array, x: jax.Array
) -> jax.Array:
    """Return by how much probabilities (k, m) may be off for what few draws, or none, speak of.

    Far from the data the average of a class's density hangs on parameters that are hardly drawn.
    Where fewer than fifty draws are effective in it, its logarithm may be too low by the
    difference to mean plus half the variance of the log densities, as if these were normal.
    Averages of probabilities that are 0 or 1 miss the draws whose log odds have the other sign; if
    these are normal, so many are so. Means of coefficients move log odds by several nats.
    """
    family, origin, log_prior = problem.prior.family, problem.origin, problem.log_class_prior
    dtype, k, m = log_weights.dtype, family.classes, x.shape[0]
    phi = finite_features(family, x, origin, dtype)
    pivot = find_pivot(family, draws.params, log_weights, origin)
    base = jnp.zeros((k, m))
    if method == "predictive":
        arguments = draws.params, log_weights[None], x, origin, log_prior, dtype
        base = mixture(family, method, *arguments).log_probs[:, 0]
    else:  # Of which signs and ratios matter alone where they are huge.
        largest = jnp.max(jnp.abs(phi), axis=1, keepdims=True)
        phi = phi * jnp.minimum(1, _LARGEST / largest)

    def values(natural: jax.Array) -> jax.Array:
        """Return log densities of each draw beside those found, or log odds, (k, n, m)."""
        if method == "predictive":
            logits = linear(natural, phi) + log_prior[:, None, None]
            return jnp.clip(logits - base[:, None], -_LARGEST, _LARGEST)
        return _against_others(_logits(natural, phi, log_prior))

    block = even_block(log_weights.shape[0], block_elements() // (m * k))

    def add(total: jax.Array, item: tuple[Params, jax.Array]) -> tuple[jax.Array, None]:
        params, logs = item
        z = values(natural_block(family, params, origin, dtype, pivot))
        weights = jnp.where(jnp.isfinite(logs), jnp.exp(logs), 0)[None, :, None]
        heavy = jnp.where(weights > 0, jnp.exp(logs[:, None] + z), 0) ** 2
        heavy = heavy if method == "predictive" else jnp.broadcast_to(weights**2, z.shape)
        parts = [weights * z, weights * z**2, heavy]
        return total + jnp.stack([part.sum(axis=1) for part in parts]), None

    start = jnp.zeros((3, k, m))
    total, _ = jax.lax.scan(add, start, draw_blocks(draws, log_weights, block))
    mean, square, inverse = total
    variance = jnp.maximum(square - mean**2, 0)
    if method == "predictive":
        # Rounding may hide all draws.
        few = (inverse > 1 / _FEW) | (inverse * log_weights.shape[0] < 0.5)
        nats = jnp.where(few, jnp.maximum(mean + variance / 2, 0), 0)
        log_odds = _against_others(base[:, None])[:, 0]
        others = jnp.max(jnp.where(jnp.eye(k)[..., None] > 0, 0, nats), axis=1)
        centre = jax.nn.sigmoid(log_odds)
        up = jax.nn.sigmoid(log_odds + nats) - centre
        return jnp.maximum(up, centre - jax.nn.sigmoid(log_odds - others))
    spread = jnp.sqrt(variance)
    if method == "preds":
        rare = jax.scipy.stats.norm.cdf(-jnp.abs(mean) / jnp.where(spread > 0, spread, 1))
        return jnp.where((spread > 0) & (rare < inverse), rare / 2, 0)
    reach = 4 * spread * jnp.sqrt(inverse)
    far = jax.nn.sigmoid(jnp.abs(mean)) - jax.nn.sigmoid(jnp.abs(mean) - reach)
    return jnp.where(reach > 4, far / 4, 0)


def _logits(natural: jax.Array, phi: jax.Array, log_prior: jax.Array) -> jax.Array:
    """Return logits (k, n, m), that of class 0 zero: what classes share cancels before it hides."""
    return linear(natural - natural[:1], phi) + (log_prior - log_prior[0])[:, None, None]


def _against_others(logits: jax.Array) -> jax.Array:
    """Return the log odds of each class against all others together, from logits (k, n, m)."""
    if logits.shape[0] == 2:
        return logits - logits[::-1]
    log_probs = jax.nn.log_softmax(logits, axis=0)
    return log_probs - jnp.log1p(-jnp.minimum(jnp.exp(log_probs), 1 - 1e-16))


def _between_replicates(
    setup: Setup, method: str, problem: Problem, draws: Draws, log_weights: jax.Array, x: jax.Array
) -> jax.Array:
    """Predict from each replicate alone, and take the error of their mean."""
    count = setup.integrator.replicates
    part = jnp.arange(log_weights.shape[0]) * count // log_weights.shape[0]
    own = jnp.where(part == jnp.arange(count)[:, None], log_weights, -jnp.inf)
    weights, _ = normalise_log_weights(own)
    probs = _probabilities(method, problem, draws, weights, x)
    spread = jnp.std(probs, axis=1, ddof=1)
    return spread / jnp.sqrt(jnp.asarray(float(count), weights.dtype))


def _mean_model(
    problem: Problem, draws: Draws, log_weights: jax.Array, x: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the class probabilities (k, m) at the mean coefficients, those, and the features."""
    family = problem.prior.family
    mean = mean_natural(family, draws, log_weights, problem.origin)
    phi = finite_features(family, x, problem.origin, mean.dtype)
    logits = linear(mean - mean[:1], phi) + problem.log_class_prior[:, None]
    return jax.nn.softmax(logits, axis=0), mean, phi


def _delta_method(
    setup: Setup, method: str, problem: Problem, draws: Draws, log_weights: jax.Array, x: jax.Array
) -> jax.Array:
    """Sum squared influences of independent draws, in blocks."""
    family, origin, log_prior = problem.prior.family, problem.origin, problem.log_class_prior
    dtype, pivot = log_weights.dtype, 0.0
    if method == "coeffs":
        probs, mean, phi = _mean_model(problem, draws, log_weights, x)
        log_total = jnp.zeros(())
    else:
        arguments = draws.params, log_weights[None], x, origin, log_prior, dtype
        log_sums = mixture(family, method, *arguments).log_probs[:, 0]
        log_total = jax.nn.logsumexp(log_sums, axis=0)
        probs, phi = jnp.exp(log_sums - log_total), finite_features(family, x, origin, dtype)
        mean = jnp.zeros(())
        pivot = find_pivot(family, draws.params, log_weights, origin)

    def influence(natural: jax.Array) -> jax.Array:
        """Return the influence (k, n, m) of each draw on each class probability."""
        if method == "coeffs":
            shift = linear(natural - mean[:, None], phi)
            average = jnp.einsum("km,knm->nm", probs, shift)
            return probs[:, None] * (shift - average)
        if method == "preds":
            return jax.nn.softmax(_logits(natural, phi, log_prior), axis=0) - probs[:, None]
        logits = linear(natural, phi) + log_prior[:, None, None]
        ratio = jnp.exp(logits - log_total)
        return ratio - probs[:, None] * jnp.sum(ratio, axis=0)

    block = even_block(log_weights.shape[0], block_elements() // (x.shape[0] * family.classes))

    def add(total: jax.Array, item: tuple[Params, jax.Array]) -> tuple[jax.Array, None]:
        params, logs = item
        change = influence(natural_block(family, params, origin, dtype, pivot))
        weights = jnp.exp(logs)[None, :, None]
        # A draw of weight zero may have an infinite density ratio: it has no influence.
        part = jnp.where(weights > 0, weights * change, 0)
        return total + jnp.sum(part**2, axis=1), None

    total, _ = jax.lax.scan(
        add, jnp.zeros((family.classes, x.shape[0])), draw_blocks(draws, log_weights, block)
    )
    return jnp.sqrt(total)


@partial(jax.jit, static_argnums=(0, 4))
def credible_bounds(
    setup: Setup, problem: Problem, x: jax.Array, levels: jax.Array, num_samples: int
) -> jax.Array:
    """Return the posterior quantiles (levels, k, m) of f*(x; theta) for one data set.

    Weighted quantiles by bisection on the distribution function; O(45 * draws * points) work and
    no sorting. For two classes in log odds, so that small probabilities keep their digits.
    """
    family, origin = problem.prior.family, problem.origin
    draws, log_weights = _posterior_draws(setup, problem, jax.random.key(0), num_samples)
    weights = jnp.exp(log_weights)
    natural = natural_block(family, draws.params, origin, weights.dtype)

    def chunk(part: jax.Array) -> jax.Array:
        phi = finite_features(family, part, origin, weights.dtype)
        logits = _logits(natural, phi, problem.log_class_prior)
        if family.classes == 2:
            values = logits[1:]
        else:
            values = jax.nn.softmax(logits, axis=0)
        quantiles = jnp.stack([_quantile(values, weights, level) for level in levels])
        if family.classes == 2:
            return jnp.concatenate(two_class_probabilities(-quantiles), axis=1)
        return quantiles

    return in_chunks(chunk, x, max(1, (1 << 22) // (num_samples * family.classes)))


def _quantile(values: jax.Array, weights: jax.Array, level: jax.Array) -> jax.Array:
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
def weighted_draws(setup: Setup, problem: Problem) -> tuple[Params, jax.Array]:
    """Return the parameters drawn for one data set, and their normalised log weights."""
    draws = realise(setup, problem)
    log_weights = weights_of(problem, draws)
    return draws.params, log_weights


@partial(jax.jit, static_argnums=(0, 3, 4, 5))
def sample_posterior(
    setup: Setup,
    problem: Problem,
    key: jax.Array,
    num_draws: int,
    num_samples: int,
    shuffled: bool,
) -> Params:
    """Resample ``num_draws`` parameter vectors with equal weights, systematically.

    Without a shuffle repeated ones stand together, and draws of chains in their order.
    """
    pool, first, second = jax.random.split(key, 3)
    own, log_weights = _posterior_draws(setup, problem, pool, num_samples)
    order = jnp.arange(log_weights.shape[0])
    if setup.integrator.weighted:  # low-discrepancy points and cells have an order of their own
        order = jax.random.permutation(second, order)
    cumulative = jnp.cumsum(jnp.exp(log_weights[order]))
    ticks = (jnp.arange(num_draws, dtype=cumulative.dtype) + jax.random.uniform(first)) / num_draws
    index = jnp.searchsorted(cumulative, ticks * cumulative[-1])
    index = order[jnp.clip(index, 0, log_weights.shape[0] - 1)]
    index = jax.random.permutation(second, index) if shuffled else index
    return jax.tree.map(lambda leaf: leaf[index], own.params)


@partial(jax.jit, static_argnums=2)
def sample_prior(prior: Prior, key: jax.Array, num_draws: int) -> Params:
    """Draw ``num_draws`` parameter vectors from the prior."""
    return draw(prior, key, num_draws)[0]
