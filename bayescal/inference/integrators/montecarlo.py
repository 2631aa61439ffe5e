"""Plain Monte Carlo: draws from the prior, weighted by their likelihood."""

from __future__ import annotations

from bayescal._core.lazy import jax
from bayescal.inference.engine.averages import WeightedDraws
from bayescal.inference.integrators.base import Fields, Integrator, Problem, equal_base
from bayescal.models.prior import draw


class MonteCarlo(Integrator[jax.Array]):
    """Draws theta_i from the prior, weighted by p(data | theta_i).

    The weights do not include the prior density, because the draws already follow it.
    """

    name = "montecarlo"
    shared = True

    def prepare(
        self, problem: Problem, key: jax.Array, num_samples: int, per_set: Fields
    ) -> jax.Array:
        return key

    def realize(self, problem: Problem, num_samples: int) -> WeightedDraws:
        params, log_prior = draw(problem.prior, problem.state, num_samples)
        return WeightedDraws(params, log_prior, equal_base(num_samples))
