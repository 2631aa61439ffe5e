"""The integrator for conjugate priors, by closed forms without error other than rounding."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float
from bayescal.inference.engine.averages import WeightedDraws
from bayescal.inference.integrators.base import (
    Fields,
    Integrator,
    PerSet,
    Problem,
    equal_base,
    map_data_sets,
)
from bayescal.models import Prior


class State(NamedTuple):
    """A key and the log evidence for each data set."""

    key: jax.Array
    log_evidence: Float[jax.Array, " *sets"]


class ClosedForm(Integrator[State]):
    """Student predictive and mode of the normal-inverse-gamma prior; its draws are exact.

    ``preds`` and ``coeffs`` are averages over independent draws from the posterior.
    """

    name = "closed_form"
    weighted = False
    needs_draws = False

    def check(self, prior: Prior) -> None:
        if prior.closed_form is None:
            raise ValueError(
                "integrator='closed_form' needs a conjugate prior such as "
                "NormalInverseGammaPrior; use 'quadrature' for up to three parameters"
            )

    def prepare(self, problem: Problem, key: jax.Array, num_samples: int, per_set: Fields) -> State:
        keys = jnp.broadcast_to(key, (len(problem.sums),))
        return State(keys, _log_evidence(problem.bare, per_set))

    def realize(self, problem: Problem[State], num_samples: int) -> WeightedDraws:
        (prior, sums, origin), (key, log_evidence) = problem[:3], problem.state
        params, log_prior = prior.closed_form.draw(prior.values, sums, origin, key, num_samples)
        log_base = equal_base(num_samples) + log_evidence - problem.log_likelihood(params)
        return WeightedDraws(params, log_prior, log_base)

    def reported(self, state: State) -> tuple[PerSet, PerSet]:
        log_evidence = np.asarray(state.log_evidence)
        return log_evidence, np.full_like(log_evidence, np.nan)

    def mode(self, problem: Problem) -> Params:
        prior, sums, origin = problem[:3]
        return prior.closed_form.mode(prior.closed_form.update(prior.values, sums, origin), origin)

    def log_predictive(
        self, problem: Problem, x: Float[jax.Array, " points *dimensions"]
    ) -> Float[jax.Array, "classes points"]:
        prior, sums, origin = problem[:3]
        new = prior.closed_form.update(prior.values, sums, origin)
        return prior.closed_form.log_predictive(new, x - origin)


@partial(jax.jit, static_argnums=1)
def _log_evidence(problem: Problem, per_set: Fields) -> Float[jax.Array, " sets"]:
    """Compute the log evidence (batch,) of all data sets."""

    def evidence(problem: Problem) -> Float[jax.Array, ""]:
        prior, sums, origin = problem[:3]
        return prior.closed_form.log_evidence(prior.values, sums, origin)

    return map_data_sets(evidence, problem, per_set)
