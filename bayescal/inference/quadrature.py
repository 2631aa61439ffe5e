"""Gauss-Legendre quadrature over the posterior of up to three scalar parameters."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.numerics import nan_to_minus_inf, normalise_log_weights
from bayescal._core.structure import cached_by_structure
from bayescal.inference._draws import Draws
from bayescal.inference._integrator import Integrator
from bayescal.inference._space import line_range, line_value, random_sites
from bayescal.inference._window import find_peak, grid_values, maximise, shrink_window
from bayescal.models import Prior
from bayescal.models._prior import log_density, walk

__all__ = ["Box", "Quadrature"]

_ORDERS = (24, 40, 64)
_TOLERANCE = 1e-10


class Box(NamedTuple):
    """Where the posterior of one data set lies, in coordinates, and how well the rule does.

    Attributes
    ----------
    low, high : arrays of shape (d,)
        Ends of the box in straightened coordinates u.
    peak : array of shape (d,)
    shear : array of shape (d, d)
        The coordinates are t = peak + shear (u - peak).
    fine : bool scalar
        Whether the rule with the most nodes is needed.
    error : scalar
        Estimated relative error of the evidence.
    """

    low: jax.Array
    high: jax.Array
    peak: jax.Array
    shear: jax.Array
    fine: jax.Array
    error: jax.Array


def _coordinates(prior: Prior, t: jax.Array) -> tuple[dict[str, Any], jax.Array, jax.Array]:
    """Return parameters, log prior density and log Jacobian at coordinates ``t`` (d,)."""
    index = iter(range(t.shape[0]))
    log_jacobian = jnp.zeros((), t.dtype)

    def choose(name: str, d: Any) -> jax.Array:
        nonlocal log_jacobian
        value, log_slope = line_value(d, t[next(index)])
        log_jacobian = log_jacobian + log_slope
        return value

    params, sites = walk(prior, choose)
    return params, log_density(sites), log_jacobian


@cached_by_structure
def _ranges(prior: Prior) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ends of the coordinates' ranges, which depend on kinds of supports alone."""
    ends: list[tuple[float, float]] = []

    def run(key: jax.Array) -> int:
        def choose(name: str, d: Any) -> Any:
            ends.append(line_range(d))
            return d.sample(jax.random.fold_in(key, len(ends)))

        walk(prior, choose)
        return 0

    jax.eval_shape(run, jax.random.key(0))
    return tuple(e[0] for e in ends), tuple(e[1] for e in ends)


def _unsheared(
    prior: Prior, peak: jax.Array, shear: jax.Array, u: jax.Array
) -> tuple[dict[str, Any], jax.Array, jax.Array]:
    """Return ``_coordinates`` at t = peak + shear (u - peak); outside the ranges no density."""
    t = peak + jnp.matmul(shear, u - peak, precision="highest")
    low, high = (jnp.asarray(end, t.dtype) for end in _ranges(prior))
    inside = ((t >= low) & (t <= high)).all()
    params, log_prior, log_jacobian = _coordinates(prior, jnp.clip(t, low, high))
    return params, jnp.where(inside, log_prior, -jnp.inf), log_jacobian


def _log_target(
    prior: Prior,
    sums: jax.Array,
    origin: jax.Array,
    peak: jax.Array,
    shear: jax.Array,
    jacobian: bool = True,
) -> Any:
    """Return the function u -> log of prior times likelihood, by coordinate unless told not to."""

    def function(u: jax.Array) -> jax.Array:
        params, log_prior, log_jacobian = _unsheared(prior, peak, shear, u)
        log_lik = jnp.sum(prior.family.natural(params, origin) * sums)
        total = log_prior + log_lik + (log_jacobian if jacobian else 0.0)
        return nan_to_minus_inf(total)

    return function


def _rule(low: jax.Array, high: jax.Array, m: int) -> tuple[list[jax.Array], jax.Array]:
    """Return the nodes along each axis and the log weights (m, ..., m) of the product rule."""
    unit, weights = np.polynomial.legendre.leggauss(m)
    half = 0.5 * (high - low)
    axes = [low[i] + half[i] * (jnp.asarray(unit) + 1) for i in range(low.shape[0])]
    logs = [jnp.log(jnp.asarray(weights)) + jnp.log(half[i]) for i in range(low.shape[0])]
    total = logs[0]
    for more in logs[1:]:
        total = total[..., None] + more
    return axes, total


class Quadrature(Integrator):
    """A product Gauss-Legendre rule on the box that holds the posterior.

    The box is found by grids that close in on it, in coordinates that suit each prior's support:
    affine on an interval, logarithmic on a half line, a hyperbolic sine on the line. The rule has
    40 nodes for each parameter, or 64 where 24 and 40 disagree. Work is O(40**d * points).
    """

    name = "quadrature"
    weighted = False

    def check(self, prior: Prior) -> None:
        sites = random_sites(prior)
        vectors = [site.name for site in sites if site.shape != ()]
        if len(sites) > 3 or vectors:
            found = f"vectors {', '.join(vectors)}" if vectors else f"{len(sites)} parameters"
            raise ValueError(
                f"integrator='quadrature' takes up to three scalar parameters, got {found}; "
                "use 'montecarlo', 'importance' or 'nuts', or fix some parameters"
            )
        _ranges(prior)

    def prepare(
        self,
        prior: Prior,
        sums: jax.Array,
        origin: jax.Array,
        key: jax.Array,
        num_samples: int,
        stacked: bool,
    ) -> Box:
        return _find_boxes(self, prior, sums, origin, stacked)

    def realised_size(self, state: Box, num_samples: int) -> int:
        """Return the number of nodes for each parameter that this batch needs."""
        return _ORDERS[2] if bool(np.asarray(state.fine).any()) else _ORDERS[1]

    def box(self, prior: Prior, sums: jax.Array, origin: jax.Array) -> Box:
        """Locate the posterior of one data set and compare two rules on it."""
        low, high = (jnp.asarray(end, sums.dtype) for end in _ranges(prior))
        if low.size == 0:
            return Box(low, high, low, jnp.zeros((0, 0)), jnp.zeros((), bool), jnp.zeros(()))
        none, unit = jnp.zeros_like(low), jnp.eye(low.size, dtype=low.dtype)
        peak, shear = find_peak(_log_target(prior, sums, origin, none, unit), low, high)

        def attempt(shear: jax.Array) -> Box:
            target = _log_target(prior, sums, origin, peak, shear)
            ends = shrink_window(target, low, high, peak)
            evidence = []
            for m in _ORDERS[:2]:
                axes, log_rule = _rule(*ends, m)
                values = (grid_values(target, axes) + log_rule).ravel()
                evidence.append(normalise_log_weights(values)[1])
            # Gauss rules converge geometrically: the digits won grow with the number of nodes.
            gap = jnp.minimum(jnp.abs(jnp.expm1(evidence[0] - evidence[1])), 1.0)
            gap = jnp.where(jnp.isnan(gap), 1.0, gap)
            fine = gap ** (_ORDERS[1] / _ORDERS[0]) > _TOLERANCE
            order = jnp.where(fine, _ORDERS[2], _ORDERS[1])
            return Box(*ends, peak, shear, fine, gap ** (order / _ORDERS[0]))

        if low.size == 1:
            return attempt(unit)
        # Straightening helps where parameters are correlated, and harms where it meets hard ends.
        both = jax.vmap(attempt)(jnp.stack([unit, shear]))
        best = jnp.argmin(both.error)
        return jax.tree.map(lambda leaf: leaf[best], both)

    def realise(
        self, prior: Prior, state: Box, sums: jax.Array, origin: jax.Array, num_samples: int
    ) -> Draws:
        """Return the nodes; ``num_samples`` is the number of nodes for each parameter."""
        if state.low.size == 0:
            params, _ = walk(prior, lambda name, d: None)
            return Draws(jax.tree.map(lambda v: v[None], params), jnp.zeros(1), jnp.zeros(1))
        axes, log_rule = _rule(state.low, state.high, num_samples)
        mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        params, log_prior, log_jacobian = jax.vmap(partial(_unsheared, prior, *state[2:4]))(mesh)
        return Draws(params, log_prior, log_prior + log_jacobian + log_rule.ravel())

    def mode(self, prior: Prior, state: Box, sums: jax.Array, origin: jax.Array) -> dict[str, Any]:
        """Return the parameters at which prior density times likelihood is largest."""
        if state.low.size == 0:
            return walk(prior, lambda name, d: None)[0]
        target = _log_target(prior, sums, origin, state.peak, state.shear, jacobian=False)
        best = maximise(target, state.low, state.high)
        return _unsheared(prior, state.peak, state.shear, best)[0]

    def posterior_draws(
        self,
        prior: Prior,
        state: Box,
        sums: jax.Array,
        origin: jax.Array,
        num_samples: int,
    ) -> Draws:
        """Draw a cell of the rule by its weight and a point within it, reweighted exactly."""
        if state.low.size == 0:
            return self.realise(prior, state, sums, origin, 1)
        m = _ORDERS[1]
        axes, log_rule = _rule(state.low, state.high, m)
        target = _log_target(prior, sums, origin, state.peak, state.shear)
        values = grid_values(target, axes)
        log_mass, _ = normalise_log_weights((values + log_rule).ravel())
        # A tenth of the mass evenly over cells keeps the weights bounded.
        log_mass = jnp.logaddexp(log_mass + jnp.log(0.9), jnp.log(0.1 / log_mass.size))
        cells, inside = jax.random.split(jax.random.key(0))
        cumulative = jnp.cumsum(jnp.exp(log_mass))
        u = jax.random.uniform(cells, (num_samples,), cumulative.dtype) * cumulative[-1]
        chosen = jnp.clip(jnp.searchsorted(cumulative, u), 0, log_mass.size - 1)
        index = jnp.stack(jnp.unravel_index(chosen, values.shape), axis=-1)
        weights = jnp.asarray(np.polynomial.legendre.leggauss(m)[1]) / 2
        left = jnp.cumsum(weights) - weights
        jitter = jax.random.uniform(inside, index.shape, state.low.dtype)
        t = state.low + (state.high - state.low) * (left[index] + weights[index] * jitter)
        params, log_prior, log_jacobian = jax.vmap(partial(_unsheared, prior, *state[2:4]))(t)
        log_volume = log_rule.ravel()[chosen]
        log_base = log_prior + log_jacobian - (log_mass[chosen] - log_volume)
        return Draws(params, log_prior, log_base - jnp.log(float(num_samples)))


@partial(jax.jit, static_argnums=(0, 4))
def _find_boxes(
    integrator: Quadrature, prior: Prior, sums: jax.Array, origin: jax.Array, stacked: bool
) -> Box:
    return integrator.batched(lambda p, s: integrator.box(p, s, origin), prior, sums, stacked)
