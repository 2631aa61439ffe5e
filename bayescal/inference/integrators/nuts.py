"""Hamiltonian Monte Carlo: NumPyro's NUTS on the posterior in unconstrained coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import nan_to_minus_inf
from bayescal._core.random.nuts import run_chains
from bayescal._core.shapes import Float, Int
from bayescal.inference.engine.averages import WeightedDraws
from bayescal.inference.engine.diagnostics import judge_chains
from bayescal.inference.engine.space import constrain, names_at_ends, random_sites
from bayescal.inference.integrators.base import Fields, Integrator, PerSet, Problem, equal_base
from bayescal.inference.integrators.importance import Importance, Proposal
from bayescal.models import Prior

_REPLICATES, _WARMUP = 32, 500
#: Number of importance-sampling draws with which chains are compared.
_COMPARED = 16384


class Chains(NamedTuple):
    """Unconstrained draws, chain after chain, and diagnostics of the worst coordinate."""

    vectors: Float[jax.Array, "*sets stored parameters"]
    ess: Float[jax.Array, " *sets"]
    r_hat: Float[jax.Array, " *sets"]
    divergences: Int[jax.Array, " *sets"]


class Nuts(Integrator[Chains]):
    """NumPyro's no-U-turn sampler, with its chains run side by side.

    There are 4 chains, and up to 32 for more than 4,000 draws. They start from draws of adaptive
    importance sampling, and are finally compared with these draws, because a chain rarely moves
    from one mode to another. Draws have equal weights and give no evidence.
    """

    name = "nuts"
    replicates = _REPLICATES
    weighted = False
    has_evidence = False
    vectorized = False

    def check(self, prior: Prior) -> None:
        if not random_sites(prior):
            raise ValueError("integrator='nuts' needs at least one random parameter")

    def sample_size(self, num_samples: int) -> int:
        """Round up to a multiple of the number of chains."""
        chains = self.chains(num_samples)
        return chains * -(-num_samples // chains)

    def chains(self, num_samples: int) -> int:
        """Return the number of chains: a power of two from 4 to 32."""
        return int(2 ** np.clip(np.ceil(np.log2(num_samples / 1000)), 2, 5))

    def prepare(
        self, problem: Problem, key: jax.Array, num_samples: int, per_set: Fields
    ) -> Chains:
        start_key, run_key = jax.random.split(key)
        proposals = Importance().prepare(problem, start_key, num_samples, per_set)
        own, common = problem.bare.divide(("sums", *per_set))
        chains = self.chains(num_samples)
        results = []
        numbers = range(len(own.sums)) if problem.numbers is None else problem.numbers.tolist()
        for b, number in enumerate(numbers):
            part, proposal = jax.tree.map(lambda leaf: leaf[b], (own, proposals))  # noqa: B023
            one = part.join(common)
            center, factor = proposal.center, proposal.factor
            own_key = jax.random.fold_in(run_key, number)
            weighted, log_weights = map(np.asarray, _pilot(one, proposal))
            u = float(jax.random.uniform(own_key))
            starts = _resample(weighted, log_weights, u, chains)
            with jax.numpy_dtype_promotion("standard"):
                z, diverging, positive = run_chains(
                    _potential,
                    (one, center, factor),
                    center,
                    own_key,
                    chains=chains,
                    warmup=_WARMUP,
                    draws=num_samples // chains,
                    adapt_mass_matrix=True,
                    starts=jnp.asarray(np.linalg.solve(factor, (starts - center).T).T),
                )
            if not np.all(np.asarray(positive)):
                raise ValueError(
                    "the prior must allow the data, but none of the parameters tried gives "
                    f"them a positive density (data set {number}); check its support"
                )
            vectors = center + z @ factor.T
            ess, r_hat = judge_chains(np.asarray(vectors), weighted, log_weights)
            flat = vectors.reshape(-1, len(center))
            results.append(Chains(flat, jnp.asarray(ess), jnp.asarray(r_hat), jnp.sum(diverging)))
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)

    def realize(self, problem: Problem[Chains], num_samples: int) -> WeightedDraws:
        vectors = problem.state.vectors
        params, log_prior, _ = jax.vmap(lambda v: constrain(problem.prior, v))(vectors)
        # Dividing by the likelihood leaves equal weights once it is multiplied in again.
        log_base = equal_base(num_samples) - problem.log_likelihood(params)
        return WeightedDraws(params, log_prior, log_base)

    def mixing(self, state: Chains) -> tuple[PerSet, ...]:
        ess, r_hat, divergences = (np.asarray(values, float) for values in state[1:])
        return ess, r_hat, divergences

    def at_ends(self, prior: Prior, state: Chains) -> list[str]:
        return names_at_ends(prior, np.quantile(np.abs(np.asarray(state.vectors)), 0.99, axis=1))


@jax.jit
def _pilot(
    problem: Problem, proposal: Proposal
) -> tuple[Float[jax.Array, "draws parameters"], Float[jax.Array, " draws"]]:
    """Draw (n, d) by importance sampling; return draws and normalized log weights (n,)."""
    vectors, draws = Importance().mixed(problem.prior, proposal, _COMPARED)
    return vectors, problem.weigh(draws)[0]


def _resample(
    v: Float[np.ndarray, "draws parameters"], log_weights: np.ndarray, u: float, count: int
) -> Float[np.ndarray, "chains parameters"]:
    """Resample draws (count, d), spread evenly along the most bimodal coordinate."""
    weights = np.exp(log_weights)
    centered = v - weights @ v
    with np.errstate(all="ignore"):
        kurtosis = weights @ centered**4 / (weights @ centered**2) ** 2
    order = np.argsort(v[:, np.argmin(np.nan_to_num(kurtosis, nan=np.inf))], kind="stable")
    cumulative = np.cumsum(weights[order])
    index = np.searchsorted(cumulative, (np.arange(count) + u) / count * cumulative[-1])
    return v[order[np.clip(index, 0, len(v) - 1)]]


def _potential(
    problem: Problem, center: jax.Array, factor: Float[jax.Array, "parameters parameters"]
) -> Callable[[jax.Array], jax.Array]:
    """Return the negative log posterior in coordinates where the proposal is spherical."""

    def potential(z: Float[jax.Array, " parameters"]) -> Float[jax.Array, ""]:
        params, _, log_vector = constrain(problem.prior, center + factor @ z)
        natural = problem.prior.family.natural(params, problem.origin)
        log_lik = jnp.sum(natural * problem.sums)
        return -nan_to_minus_inf(log_vector + log_lik)

    return potential
