"""Quasi-Monte Carlo: scrambled Sobol points, mapped to the prior by its quantile function."""

from __future__ import annotations

import numpy as np

from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import nan_to_minus_inf
from bayescal._core.shapes import Float
from bayescal.inference.engine.averages import WeightedDraws
from bayescal.inference.engine.space import random_sites
from bayescal.inference.integrators.base import Fields, Integrator, Problem, equal_base
from bayescal.inference.integrators.quantiles import quantile
from bayescal.models import Prior
from bayescal.models.prior import repeat_fixed, walk

_SCRAMBLES = 16


class Sobol(Integrator[jax.Array]):
    """Sixteen independently scrambled Sobol sequences; their spread is the Monte-Carlo error."""

    name = "sobol"
    shared = True
    replicates = _SCRAMBLES

    def check(self, prior: Prior) -> None:
        if prior.model is not None:
            raise ValueError(
                "integrator='sobol' needs independent priors on each parameter; for a joint model "
                "use 'importance', 'nuts' or 'montecarlo'"
            )
        vectors = [site.name for site in random_sites(prior) if site.shape != ()]
        if vectors:
            raise ValueError(
                f"integrator='sobol' needs scalar parameters, got vectors {', '.join(vectors)}; "
                "use 'importance', 'nuts' or 'montecarlo'"
            )

    def sample_size(self, num_samples: int) -> int:
        """Round up to sixteen sequences, each with a power of two of points."""
        per_scramble = -(-num_samples // _SCRAMBLES)
        return _SCRAMBLES * (1 << (per_scramble - 1).bit_length())

    def prepare(
        self, problem: Problem, key: jax.Array, num_samples: int, per_set: Fields
    ) -> Float[jax.Array, "draws parameters"]:
        """Make the points (num_samples, dimension) in the open unit cube, with SciPy."""
        from scipy.stats import qmc

        prior = problem.prior
        first = jax.tree.map(lambda leaf: leaf[0], prior) if "prior" in per_set else prior
        dimension = len(random_sites(first))
        if dimension == 0:
            return jnp.zeros((num_samples, 0))
        seed = [int(v) for v in np.asarray(jax.random.key_data(key)).ravel()]
        streams = np.random.SeedSequence(seed).spawn(_SCRAMBLES)
        per_scramble = num_samples // _SCRAMBLES
        parts = [
            qmc.Sobol(dimension, rng=np.random.default_rng(s)).random(per_scramble) for s in streams
        ]
        return jnp.asarray(np.clip(np.concatenate(parts), 2.0**-53, 1 - 2.0**-53))

    def realize(self, problem: Problem, num_samples: int) -> WeightedDraws:
        columns = iter(problem.state.T)
        params, sites = walk(problem.prior, lambda _, d: quantile(d, next(columns)))
        with jax.numpy_dtype_promotion("standard"):
            log_prior = sum((s.distribution.log_prob(s.value) for s in sites), jnp.zeros(()))
        params = repeat_fixed(params, sites, num_samples)
        log_prior = jnp.broadcast_to(nan_to_minus_inf(jnp.asarray(log_prior)), (num_samples,))
        return WeightedDraws(params, log_prior, equal_base(num_samples))
