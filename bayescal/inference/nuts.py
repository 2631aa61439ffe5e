"""Hamiltonian Monte Carlo: NumPyro's NUTS on the posterior in unconstrained coordinates."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.numerics import nan_to_minus_inf
from bayescal._core.nuts import run_chains
from bayescal.inference._averages import Draws, log_likelihood
from bayescal.inference._integrator import Integrator, Problem, equal_base
from bayescal.inference._space import constrain, random_sites
from bayescal.inference.importance import Importance
from bayescal.models import Prior

__all__ = ["Nuts"]

_REPLICATES = 32
_WARMUP = 500


class Nuts(Integrator[jax.Array]):
    """The no-U-turn sampler from NumPyro, its chains run side by side.

    There are 4 chains, and more (up to 32) for more than 4,000 draws. Starting points come from
    adaptive importance sampling. Draws have equal weights, and give no evidence.
    """

    name = "nuts"
    replicates = _REPLICATES
    weighted = False
    has_evidence = False
    vectorised = False

    def check(self, prior: Prior) -> None:
        if not random_sites(prior):
            raise ValueError("integrator='nuts' needs at least one random parameter")

    def sample_size(self, num_samples: int) -> int:
        """Round up to a multiple of the chains."""
        chains = self.chains(num_samples)
        return chains * -(-num_samples // chains)

    @staticmethod
    def chains(num_samples: int) -> int:
        """Return the number of chains: a power of two from 4 to 32."""
        return int(2 ** np.clip(np.ceil(np.log2(num_samples / 1000)), 2, 5))

    def prepare(
        self, problem: Problem, key: jax.Array, num_samples: int, stacked: bool
    ) -> jax.Array:
        """Return unconstrained draws (batch, n, d), chain after chain."""
        start_key, run_key = jax.random.split(key)
        proposal = Importance().prepare(problem, start_key, num_samples, stacked)
        prior, sums, origin = problem[:3]
        chains = self.chains(num_samples)
        vectors = []
        numbers = range(len(sums)) if problem.numbers is None else problem.numbers.tolist()
        for b, number in enumerate(numbers):
            each = jax.tree.map(lambda leaf: leaf[b], prior) if stacked else prior  # noqa: B023
            centre, factor = proposal.centre[b], proposal.factor[b]
            with jax.numpy_dtype_promotion("standard"):
                z, _, positive = run_chains(
                    _potential,
                    (each, sums[b], origin, centre, factor),
                    centre,
                    jax.random.fold_in(run_key, number),
                    chains=chains,
                    warmup=_WARMUP,
                    draws=num_samples // chains,
                    adapt_mass_matrix=True,
                )
            if not np.all(np.asarray(positive)):
                raise ValueError(
                    "the prior must allow the data, but none of the parameters tried gives "
                    f"them a positive density (data set {number}); check its support"
                )
            vectors.append((centre + z @ factor.T).reshape(-1, len(centre)))
        return jnp.stack(vectors)

    def realise(self, problem: Problem, num_samples: int) -> Draws:
        prior, sums, origin = problem[:3]
        params, log_prior, _ = jax.vmap(lambda v: constrain(prior, v))(problem.state)
        # Taking the likelihood out leaves equal weights once it is multiplied in again.
        log_lik = log_likelihood(prior.family, params, sums, origin)
        return Draws(params, log_prior, equal_base(num_samples) - log_lik)


def _potential(
    prior: Prior, sums: jax.Array, origin: jax.Array, centre: jax.Array, factor: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    """Return the negative log posterior in coordinates where the proposal is spherical."""

    def potential(z: jax.Array) -> jax.Array:
        params, _, log_vector = constrain(prior, centre + factor @ z)
        log_lik = jnp.sum(prior.family.natural(params, origin) * sums)
        return -nan_to_minus_inf(log_vector + log_lik)

    return potential
