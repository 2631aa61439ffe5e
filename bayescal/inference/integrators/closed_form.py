"""The integrator for conjugate priors, by closed forms without error other than rounding."""

from __future__ import annotations

from bayescal._core.arrays import Params
from bayescal._core.lazy import jax, jnp
from bayescal.inference.engine.averages import Draws, log_likelihood
from bayescal.inference.integrators.base import Integrator, Problem, equal_base
from bayescal.models import Prior

__all__ = ["ClosedForm"]


class ClosedForm(Integrator[jax.Array]):
    """Student predictive and mode of the normal-inverse-gamma prior; its draws are exact.

    ``preds`` and ``coeffs`` are averages over independent draws from the posterior.
    """

    name = "closed_form"
    weighted = False

    def check(self, prior: Prior) -> None:
        if prior.closed_form is None:
            raise ValueError(
                "integrator='closed_form' needs a conjugate prior such as "
                "NormalInverseGammaPrior; use 'quadrature' for up to three parameters"
            )

    def prepare(
        self, problem: Problem, key: jax.Array, num_samples: int, stacked: bool
    ) -> jax.Array:
        return jnp.broadcast_to(key, (len(problem.sums),))

    def realize(self, problem: Problem, num_samples: int) -> Draws:
        prior, sums, origin = problem[:3]
        forms = prior.closed_form
        params, log_prior = forms.draw(prior.values, sums, origin, problem.state, num_samples)
        log_lik = log_likelihood(prior.family, params, sums, origin)
        evidence = forms.log_evidence(prior.values, sums, origin)
        return Draws(params, log_prior, equal_base(num_samples) + evidence - log_lik)

    def mode(self, problem: Problem) -> Params:
        prior, sums, origin = problem[:3]
        return prior.closed_form.mode(prior.closed_form.update(prior.values, sums, origin), origin)

    def log_predictive(self, problem: Problem, x: jax.Array) -> jax.Array:
        prior, sums, origin = problem[:3]
        new = prior.closed_form.update(prior.values, sums, origin)
        return prior.closed_form.log_predictive(new, x - origin)
