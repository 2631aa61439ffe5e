"""Adaptive importance sampling: a Student proposal that moves from the prior to the posterior."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.lazy import jax, jnp, special
from bayescal._core.numerics import effective_sample_size, normalize_log_weights
from bayescal._core.shapes import Bool, Float
from bayescal.inference.engine.averages import WeightedDraws
from bayescal.inference.engine.space import constrain, names_at_ends, random_sites, unconstrain
from bayescal.inference.integrators.base import Fields, Integrator, Problem, map_data_sets
from bayescal.models import Prior
from bayescal.models.prior import sample_sites

#: Arrays by their axes.
PerDraw: TypeAlias = 'Float[jax.Array, " draws"]'
Vectors: TypeAlias = 'Float[jax.Array, "draws parameters"]'

_PILOT = 4096
_ROUNDS = 64
_LOWEST_POWER = 1e-30
#: Degrees of freedom of the Student proposal; must be even.
_DEGREES = 6
_DEFENSIVE = 0.1


class Proposal(NamedTuple):
    """A multivariate Student density in unconstrained coordinates, and the key of its draws."""

    center: Float[jax.Array, "*proposals parameters"]
    factor: Float[jax.Array, "*proposals parameters parameters"]
    key: jax.Array


#: Numbers of rounds so far and of those that needed no softening, and the proposal.
_Round: TypeAlias = tuple[jax.Array, jax.Array, Proposal]


def _prior_vectors(prior: Prior, key: jax.Array, n: int) -> Vectors:
    """Draw vectors (n, d) from the prior in unconstrained coordinates."""

    def vector(key: jax.Array) -> Float[jax.Array, " parameters"]:
        return unconstrain(sample_sites(prior, key)[1])

    return jax.vmap(vector)(jax.random.split(key, n))


def _student_vectors(proposal: Proposal, key: jax.Array, n: int) -> Vectors:
    """Draw vectors (n, d) from the proposal."""
    normal, chi = jax.random.split(key)
    dtype = proposal.center.dtype
    z = jax.random.normal(normal, (n, proposal.center.shape[0]), dtype)
    # Half of an even number of squared normals is a sum of exponentials.
    scale = 2 * jax.random.exponential(chi, (_DEGREES // 2, n), dtype).sum(axis=0) / _DEGREES
    return proposal.center + (z / jnp.sqrt(scale)[:, None]) @ proposal.factor.T


def _student_log_density(proposal: Proposal, v: Vectors) -> PerDraw:
    """Compute the proposal's log density at the rows of ``v`` (n, d)."""
    d = v.shape[1]
    z = jax.scipy.linalg.solve_triangular(proposal.factor, (v - proposal.center).T, lower=True)
    constant = (
        special.gammaln((_DEGREES + d) / 2)
        - special.gammaln(_DEGREES / 2)
        - 0.5 * d * math.log(_DEGREES * math.pi)
        - jnp.sum(jnp.log(jnp.diagonal(proposal.factor)))
    )
    return constant - 0.5 * (_DEGREES + d) * jnp.log1p(jnp.sum(z**2, axis=0) / _DEGREES)


def _soften(log_weights: PerDraw) -> tuple[PerDraw, Float[jax.Array, ""]]:
    """Raise weights to the largest power up to 1 that keeps a fifth of the draws effective.

    Returns normalized log weights, and the power.
    """
    shifted = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
    shifted = jnp.maximum(shifted - jnp.max(shifted), -1e300)

    def raised(power: Float[jax.Array, ""]) -> PerDraw:
        return normalize_log_weights(power * shifted)[0]

    def enough(power: Float[jax.Array, ""]) -> Bool[jax.Array, ""]:
        return effective_sample_size(raised(power)) >= _PILOT / 5

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        good = enough(jnp.exp(middle))
        return jnp.where(good, middle, low), jnp.where(good, high, middle)

    lowest = jnp.full((), math.log(_LOWEST_POWER))
    power, _ = jax.lax.fori_loop(0, 40, halve, (lowest, jnp.zeros(())))
    power = jnp.where(enough(jnp.ones(())), 1.0, jnp.exp(power))
    return raised(power), power


class Importance(Integrator[Proposal]):
    """Importance sampling from a Student proposal fitted to the posterior in rounds.

    Each round makes 4,096 draws in unconstrained coordinates and refits center and covariance to
    the draws, weighted by a power of their importance: the largest that keeps a fifth of them
    effective. Thus the proposal moves from the prior to the posterior as fast as the draws allow.
    The final draws mix 90 % of that proposal with 10 % of the prior, so the weights are bounded.
    """

    name = "importance"

    def check(self, prior: Prior) -> None:
        if not random_sites(prior):
            raise ValueError("integrator='importance' needs at least one random parameter")

    def prepare(
        self, problem: Problem, key: jax.Array, num_samples: int, per_set: Fields
    ) -> Proposal:
        return _fit_proposals(problem.bare, key, per_set)

    def realize(self, problem: Problem[Proposal], num_samples: int) -> WeightedDraws:
        return self.mixed(problem.prior, problem.state, num_samples)[1]

    def mixed(
        self, prior: Prior, state: Proposal, num_samples: int
    ) -> tuple[Vectors, WeightedDraws]:
        """Draw (n, d) unconstrained vectors from proposal and prior; return them and the draws."""
        from_prior = max(1, round(_DEFENSIVE * num_samples)) if num_samples > 1 else 0
        defensive, adapted = jax.random.split(state.key)
        v = _student_vectors(state, adapted, num_samples - from_prior)
        if from_prior:
            v = jnp.concatenate([v, _prior_vectors(prior, defensive, from_prior)])

        params, log_prior, log_vector = jax.vmap(partial(constrain, prior))(v)
        fraction = from_prior / num_samples
        log_proposal = jnp.log1p(-fraction) + _student_log_density(state, v)
        if from_prior:
            log_proposal = jnp.logaddexp(log_proposal, math.log(fraction) + log_vector)
        log_base = log_vector - log_proposal - math.log(num_samples)
        return v, WeightedDraws(params, log_prior, log_base)

    def at_ends(self, prior: Prior, state: Proposal) -> list[str]:
        spread = 3 * np.sqrt(np.square(np.asarray(state.factor)).sum(axis=2))
        return names_at_ends(prior, np.abs(np.asarray(state.center)) + spread)


@partial(jax.jit, static_argnums=2)
def _fit_proposals(problem: Problem, key: jax.Array, per_set: Fields) -> Proposal:
    return map_data_sets(partial(_fit_proposal, key), problem, per_set)


def _fit_proposal(key: jax.Array, problem: Problem) -> Proposal:
    """Adapt the proposal to one data set."""
    prior = problem.prior
    first, rounds, last = jax.random.split(key, 3)
    pilot = _prior_vectors(prior, first, _PILOT)
    d, dtype = pilot.shape[1], pilot.dtype

    def unfinished(carry: _Round) -> jax.Array:
        number, settled, _ = carry
        return (number < _ROUNDS) & (settled < 3)

    def one_round(carry: _Round) -> _Round:
        # The first round uses the prior's draws; in the same loop it is compiled only once.
        number, settled, proposal = carry
        adapted = number >= 0
        drawn = _student_vectors(proposal, jax.random.fold_in(rounds, number), _PILOT)
        v = jnp.where(adapted, drawn, pilot)
        params, _, log_prior = jax.vmap(partial(constrain, prior))(v)
        ratio = jnp.where(adapted, log_prior - _student_log_density(proposal, v), 0)
        softened, power = _soften(problem.log_likelihood(params) + ratio)
        weights = jnp.exp(softened)
        center = weights @ v
        spread = (weights[:, None] * (v - center)).T @ (v - center)
        ridge = 1e-10 * (jnp.trace(spread) / d + 1e-12)
        factor = jnp.linalg.cholesky(spread + ridge * jnp.eye(d))
        proposal = Proposal(center, factor, last)
        return number + 1, settled + (adapted & (power >= 1)).astype(int), proposal

    unused = Proposal(jnp.zeros(d, dtype), jnp.eye(d, dtype=dtype), last)
    start = jnp.full((), -1), jnp.zeros((), int), unused
    return jax.lax.while_loop(unfinished, one_round, start)[2]
