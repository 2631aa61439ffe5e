"""A box that holds a posterior, its coordinates, and what product Gauss rules say of it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.numerics import nan_to_minus_inf, normalise_log_weights
from bayescal._core.structure import cached_by_structure
from bayescal.inference.engine.space import UNIT_RANGE, line_range, line_value
from bayescal.inference.integrators.quadrature.window import LogDensity, at_points
from bayescal.models import Prior
from bayescal.models.prior import log_density, walk

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

#: A box must reach so many nats below the peak: what lies beyond weighs less than the tolerance.
_DEEP = 28.0
#: So many terms are added one by one.
_FEW = 16


class Box(NamedTuple):
    """Where the posterior of one data set lies, in coordinates, and how well the rule does.

    A box has ends (d,) in straightened coordinates u: with its shear (d, d), the coordinates are
    t = peak + shear (u - peak). Its rule has ``order`` nodes for each parameter; they give the log
    evidence and what it were with one more observation of each class (1 + classes,), the relative
    gaps between these and the next coarser rule's, and the estimated relative error of any.
    """

    low: jax.Array
    high: jax.Array
    peak: jax.Array
    shear: jax.Array
    order: jax.Array
    evidence: jax.Array
    gap: jax.Array
    error: jax.Array


@cached_by_structure
def ranges(prior: Prior) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ends of the coordinates' ranges, which depend on the supports alone."""
    ends: list[tuple[float, float]] = []

    def run(key: jax.Array) -> int:
        def choose(name: str, d: Distribution) -> jax.Array:
            ends.append(line_range(d))
            return jnp.asarray(d.sample(jax.random.fold_in(key, len(ends))))

        walk(prior, choose)
        return 0

    jax.eval_shape(run, jax.random.key(0))
    return tuple(e[0] for e in ends), tuple(e[1] for e in ends)


def unsheared(
    prior: Prior, peak: jax.Array, shear: jax.Array, u: jax.Array
) -> tuple[Params, jax.Array, jax.Array]:
    """Return parameters, log prior density and log Jacobian at t = peak + shear (u - peak).

    Outside the ranges there is no density.
    """
    inside, kept = jnp.ones((), bool), []
    # Number by number: with matrix products and sums of rows it compiles to several times as much.
    for i, (low, high) in enumerate(zip(*ranges(prior), strict=True)):
        t = peak[i] + sum(shear[i, j] * (u[j] - peak[j]) for j in range(u.shape[0]))
        inside &= (t >= low) & (t <= high)
        kept.append(jnp.clip(t, low, high))
    coordinates, log_jacobian = iter(kept), jnp.zeros(())

    def choose(name: str, d: Distribution) -> jax.Array:
        nonlocal log_jacobian
        value, log_slope = line_value(d, next(coordinates))
        log_jacobian = log_jacobian + log_slope
        return value

    params, sites = walk(prior, choose)
    return params, jnp.where(inside, log_density(sites), -jnp.inf), log_jacobian


def log_target(
    prior: Prior,
    sums: jax.Array,
    origin: jax.Array,
    peak: jax.Array,
    shear: jax.Array,
    jacobian: bool = True,
) -> LogDensity:
    """Return the function u -> log of prior times likelihood, by coordinate by default."""

    def function(u: jax.Array) -> jax.Array:
        params, log_prior, log_jacobian = unsheared(prior, peak, shear, u)
        log_lik = _log_likelihood(prior.family.natural(params, origin), sums)
        total = log_prior + log_lik + (log_jacobian if jacobian else 0.0)
        return nan_to_minus_inf(total)

    return function


def _log_likelihood(natural: jax.Array, sums: jax.Array) -> jax.Array:
    """Return the log likelihood, ``-inf`` where rounding leaves it unknown to within a nat.

    Without that, deviations that are tiny beside the distance of the data, as the search meets
    them, would seem to make the data likely.
    """
    terms = _products(natural, sums)
    known = sum(jnp.sum(jnp.abs(term)) for term in terms) * jnp.finfo(sums.dtype).eps < 1
    return jnp.where(known, sum(jnp.sum(term) for term in terms), -jnp.inf)


def _products(first: jax.Array, second: jax.Array) -> list[jax.Array]:
    """Return products of equal entries; of few entries number by number, as in ``unsheared``."""
    if first.size > _FEW:
        return [first * second]
    return [first[index] * second[index] for index in np.ndindex(first.shape)]


def product_rule(low: jax.Array, high: jax.Array, m: int) -> tuple[list[jax.Array], jax.Array]:
    """Return the nodes along each axis and the log weights (m, ..., m) of the product rule."""
    unit, weights = np.polynomial.legendre.leggauss(m)
    half = 0.5 * (high - low)
    axes = [low[i] + half[i] * (jnp.asarray(unit) + 1) for i in range(low.shape[0])]
    logs = [jnp.log(jnp.asarray(weights)) + jnp.log(half[i]) for i in range(low.shape[0])]
    total = logs[0]
    for more in logs[1:]:
        total = total[..., None] + more
    return axes, total


def find_evidence(
    prior: Prior, sums: jax.Array, origin: jax.Array, box: Box, orders: tuple[int, ...]
) -> tuple[list[jax.Array], jax.Array]:
    """Return ``Box.evidence`` by rules of so many nodes, and whether the box holds all."""
    nodes, logs = [], []
    for m in orders:
        axes, log_rule = product_rule(box.low, box.high, m)
        nodes.append([column.ravel() for column in jnp.meshgrid(*axes, indexing="ij")])
        logs.append(log_rule.ravel())
    # A typical observation of each class: the average over it, or over all if it has none.
    count = sums[:, :1]
    overall = sums.sum(axis=0) / jnp.maximum(count.sum(), 1)
    more = jnp.where(count > 0, sums / jnp.maximum(count, 1), overall)

    def one(u: jax.Array) -> list[jax.Array]:
        params, log_prior, log_jacobian = unsheared(prior, box.peak, box.shear, u)
        natural = prior.family.natural(params, origin)
        total = log_prior + log_jacobian + _log_likelihood(natural, sums)
        extra = [_products(natural[y], more[y]) for y in range(more.shape[0])]
        return [nan_to_minus_inf(sum(map(jnp.sum, own), total)) for own in [[], *extra]]

    # All rules in one call: what is traced once is compiled once.
    columns = [jnp.concatenate(parts) for parts in zip(*nodes, strict=True)]
    values = jnp.stack(at_points(one, columns))
    ends = np.cumsum([0, *(len(log) for log in logs)])
    parts = [
        values[:, i:j] + log for (i, j), log in zip(itertools.pairwise(ends), logs, strict=True)
    ]
    closed = _closed(prior, box, parts[-1][0], orders[-1])
    return [normalise_log_weights(part)[1] for part in parts], closed


def open_ends(prior: Prior, box: Box, m: int) -> jax.Array:
    """Say which nodes (m**d,) are outermost in the box, save at the ends of a support."""
    d = box.low.shape[0]
    found = jnp.zeros((m,) * d, bool)
    for i, (low, high) in enumerate(zip(*ranges(prior), strict=True)):
        index = jnp.arange(m).reshape([m if j == i else 1 for j in range(d)])
        hard = (low, high) == UNIT_RANGE
        found |= (index == 0) & ~(hard & (box.low[i] <= low))
        found |= (index == m - 1) & ~(hard & (box.high[i] >= high))
    return found.ravel()


def _closed(prior: Prior, box: Box, values: jax.Array, m: int) -> jax.Array:
    """Whether the density has vanished at the faces of a box, save at the ends of a support."""
    outermost = jnp.where(open_ends(prior, box, m), values.ravel(), -jnp.inf)
    return jnp.max(outermost) < jnp.max(values) - _DEEP


def relative_gap(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return the relative differences, at most 1, between evidences given by logarithms."""
    gap = jnp.minimum(jnp.abs(jnp.expm1(first - second)), 1.0)
    return jnp.where(jnp.isnan(gap), 1.0, gap)


def estimate_error(gap: jax.Array, before: jax.Array, closed: jax.Array) -> jax.Array:
    """Estimate the error of the finest of three rules from the two gaps between them.

    The gap is the coarser rule's error. The last step divided it by a factor, and the next one will
    by at least as much; ten are counted on at most, lest an accident promise more.
    """
    rate = gap / jnp.where(before > 0, before, 1)
    return jnp.where(closed, jnp.max(gap * jnp.clip(rate, 0.1, 1.0)), 1.0)
