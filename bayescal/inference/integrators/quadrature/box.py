"""The box that contains a posterior, its coordinates, and product Gauss rules on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.execution.structure import cached_by_structure
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import nan_to_minus_inf, normalize_log_weights
from bayescal._core.shapes import Bool, Float, Int
from bayescal.inference.engine.space import UNIT_RANGE, hyperbolic, line_range, line_value, visit
from bayescal.inference.integrators.base import Problem
from bayescal.inference.integrators.quadrature.window import LogDensity, at_points
from bayescal.models import Prior
from bayescal.models.prior import log_density, walk

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

#: Arrays by their axes.
Vector: TypeAlias = 'Float[jax.Array, " parameters"]'
Scalar: TypeAlias = 'Float[jax.Array, ""]'
PerClass: TypeAlias = 'Float[jax.Array, "classes features"]'
Evidences: TypeAlias = 'Float[jax.Array, " *evidences"]'

#: Depth in nats below the peak that a box must reach; the mass beyond is below the tolerance.
_DEPTH = 28.0
#: Number of terms up to which they are added one by one.
_MAX_UNROLLED = 16


class BoxCoordinates(NamedTuple):
    """Coordinates u of a box: its peak (d,), shear (d, d) and stretch w (d,).

    The shear straightens the posterior, and the stretch widens the neighborhood of the peak: the
    coordinates of the priors are t = peak + shear (w sinh((u - peak) / w)). Without a stretch w is
    infinite, or None if no data set has one, so that less is compiled.
    """

    peak: Float[jax.Array, "*boxes parameters"]
    shear: Float[jax.Array, "*boxes parameters parameters"]
    stretch: Float[jax.Array, "*boxes parameters"] | None


class Box(NamedTuple):
    """Location of the posterior of one data set, and the accuracy of the rule.

    A box has ends (d,) in its coordinates. Its rule has ``order`` nodes for each parameter.
    ``evidence`` is the log evidence, followed by that with one more observation of each class
    (1 + classes,); ``gap`` are the relative differences from the next coarser rule; ``error`` is
    the estimated largest relative error.
    """

    low: Float[jax.Array, "*boxes parameters"]
    high: Float[jax.Array, "*boxes parameters"]
    coordinates: BoxCoordinates
    order: Int[jax.Array, " *boxes"]
    evidence: Float[jax.Array, "*boxes evidences"]
    gap: Float[jax.Array, "*boxes gaps"]
    error: Float[jax.Array, " *boxes"]


@cached_by_structure
def ranges(prior: Prior) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ends of the coordinates' ranges, which depend only on the supports."""
    ends = visit(prior, lambda _, d: line_range(d))
    return tuple(e[0] for e in ends), tuple(e[1] for e in ends)


def stretched(t: Vector, peak: Vector, stretch: Vector | None) -> Vector:
    """Return the coordinates u of a box without shear at the coordinates ``t`` of the priors."""
    if stretch is None:
        return t
    wide = jnp.isinf(stretch)
    scale = jnp.where(wide, 1, stretch)
    return jnp.where(wide, t, peak + scale * jnp.arcsinh((t - peak) / scale))


def unsheared(
    prior: Prior, coordinates: BoxCoordinates, u: Vector
) -> tuple[Params, Scalar, Scalar]:
    """Compute parameters, log prior density and log Jacobian at coordinates ``u`` of a box.

    Outside the ranges the density is zero.
    """
    peak, shear, stretch = coordinates
    inside, kept, log_jacobian = jnp.ones((), bool), [], jnp.zeros(())
    # Scalar arithmetic: matrix products and sums of rows compile to several times as much.
    away = [u[j] - peak[j] for j in range(u.shape[0])]
    if stretch is not None:
        for j in range(u.shape[0]):
            wide = jnp.isinf(stretch[j])
            scale = jnp.where(wide, 1, stretch[j])
            sinh, log_cosh = hyperbolic(jnp.where(wide, 0, away[j] / scale))
            away[j] = jnp.where(wide, away[j], scale * sinh)
            log_jacobian = log_jacobian + log_cosh
    for i, (low, high) in enumerate(zip(*ranges(prior), strict=True)):
        t = peak[i] + sum(shear[i, j] * away[j] for j in range(u.shape[0]))
        inside &= (t >= low) & (t <= high)
        kept.append(jnp.clip(t, low, high))
    values = iter(kept)

    def choose(name: str, d: Distribution) -> jax.Array:
        nonlocal log_jacobian
        value, log_slope = line_value(d, next(values))
        log_jacobian = log_jacobian + log_slope
        return value

    params, sites = walk(prior, choose)
    return params, jnp.where(inside, log_density(sites), -jnp.inf), log_jacobian


def log_target(problem: Problem, coordinates: BoxCoordinates, jacobian: bool = True) -> LogDensity:
    """Return the function u -> log of prior times likelihood, as a density of u by default."""

    def function(u: Vector) -> Scalar:
        params, log_prior, log_jacobian = unsheared(problem.prior, coordinates, u)
        natural = problem.prior.family.natural(params, problem.origin)
        total = log_prior + _log_likelihood(natural, problem.sums)
        return nan_to_minus_inf(total + (log_jacobian if jacobian else 0.0))

    return function


def _log_likelihood(natural: PerClass, sums: PerClass) -> Scalar:
    """Compute the log likelihood, ``-inf`` if rounding leaves it unknown to within a nat.

    Otherwise tiny standard deviations, which the search tries, would seem to make data far away
    likely.
    """
    terms = _products(natural, sums)
    known = sum(jnp.sum(jnp.abs(term)) for term in terms) * jnp.finfo(sums.dtype).eps < 1
    return jnp.where(known, sum(jnp.sum(term) for term in terms), -jnp.inf)


def _products(first: jax.Array, second: jax.Array) -> list[jax.Array]:
    """Multiply entries pairwise; few entries one by one, for the reason given in ``unsheared``."""
    if first.size > _MAX_UNROLLED:
        return [first * second]
    return [first[index] * second[index] for index in np.ndindex(first.shape)]


def product_rule(
    low: Vector, high: Vector, m: int
) -> tuple[list[jax.Array], Float[jax.Array, " *nodes"]]:
    """Return the nodes along each axis and the log weights (m, ..., m) of the product rule."""
    unit, weights = np.polynomial.legendre.leggauss(m)
    half = 0.5 * (high - low)
    axes = [low[i] + half[i] * (jnp.asarray(unit) + 1) for i in range(low.shape[0])]
    logs = [jnp.log(jnp.asarray(weights)) + jnp.log(half[i]) for i in range(low.shape[0])]
    total = jnp.zeros(())
    for log in logs:
        total = total[..., None] + log
    return axes, total


def find_evidence(
    problem: Problem, box: Box, orders: tuple[int, ...]
) -> tuple[list[jax.Array], Bool[jax.Array, ""], Scalar]:
    """Compute ``Box.evidence`` by rules of the given orders, and whether the box contains all.

    Returns also the largest log density at the nodes of the last rule.
    """
    (prior, sums, origin), (low, high, coordinates) = problem[:3], box[:3]
    nodes, logs = [], []
    for m in orders:
        axes, log_rule = product_rule(low, high, m)
        nodes.append([column.ravel() for column in jnp.meshgrid(*axes, indexing="ij")])
        logs.append(log_rule.ravel())
    # A typical observation of each class: the mean of the class, or of all if the class is empty.
    count = sums[:, :1]
    overall = sums.sum(axis=0) / jnp.maximum(count.sum(), 1)
    more = jnp.where(count > 0, sums / jnp.maximum(count, 1), overall)

    def terms_at(u: jax.Array) -> list[jax.Array]:
        params, log_prior, log_jacobian = unsheared(prior, coordinates, u)
        natural = prior.family.natural(params, origin)
        total = log_prior + log_jacobian + _log_likelihood(natural, sums)
        extra = [_products(natural[y], more[y]) for y in range(more.shape[0])]
        return [nan_to_minus_inf(sum(map(jnp.sum, terms), total)) for terms in [[], *extra]]

    # All rules are evaluated in one call, so that the density is traced and compiled only once.
    columns = [jnp.concatenate(parts) for parts in zip(*nodes, strict=True)]
    values = jnp.stack(at_points(terms_at, columns))
    ends = np.cumsum([0, *(len(log) for log in logs)])
    pairs = zip(itertools.pairwise(ends), logs, strict=True)
    parts = [values[:, i:j] + log for (i, j), log in pairs]
    # The density must have vanished at the faces of the box.
    outermost = jnp.where(open_ends(prior, box, orders[-1]), parts[-1][0], -jnp.inf)
    closed = jnp.max(outermost) < jnp.max(parts[-1][0]) - _DEPTH
    top = jnp.max(values[0, ends[-2] :])
    return [normalize_log_weights(part)[1] for part in parts], closed, top


def open_ends(prior: Prior, box: Box, m: int) -> Bool[jax.Array, " nodes"]:
    """Mark the outermost nodes (m**d,) of the box, except those at the ends of a support."""
    (low, high, (peak, _, stretch)), d = box[:3], box.low.shape[0]
    outermost = jnp.zeros((m,) * d, bool)
    first, last = (stretched(jnp.asarray(e, low.dtype), peak, stretch) for e in ranges(prior))
    for i, ends in enumerate(zip(*ranges(prior), strict=True)):
        index = jnp.arange(m).reshape([m if j == i else 1 for j in range(d)])
        hard, close = ends == UNIT_RANGE, 1e-12 * (last[i] - first[i])
        outermost |= (index == 0) & ~(hard & (low[i] <= first[i] + close))
        outermost |= (index == m - 1) & ~(hard & (high[i] >= last[i] - close))
    return outermost.ravel()


def relative_gap(first: Evidences, second: Evidences) -> Evidences:
    """Compute relative differences, at most 1, between evidences given by their logarithms."""
    gap = jnp.minimum(jnp.abs(jnp.expm1(first - second)), 1.0)
    return jnp.where(jnp.isnan(gap), 1.0, gap)


def estimate_error(gap: Evidences, before: Evidences, closed: Bool[jax.Array, ""]) -> Scalar:
    """Estimate the error of the finest of three rules from the two gaps between them.

    The gap is the coarser rule's error. The last step divided it by a factor, and the next one will
    divide it by at least as much. The factor is limited to ten, in case it was large by accident.
    """
    rate = gap / jnp.where(before > 0, before, 1)
    return jnp.where(closed, jnp.max(gap * jnp.clip(rate, 0.1, 1.0)), 1.0)
