"""The conjugate prior for two Gaussian classes with one variance, and its closed forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.lazy import jax, jnp, special
from bayescal._core.random.gamma import log_gamma
from bayescal.models.gaussian import SHARED
from bayescal.models.prior import Prior


def _model(
    mean0: float, mean1: float, kappa0: float, kappa1: float, alpha: float, beta: float
) -> None:
    """Sample the variance first, then the means given the variance (a NumPyro model)."""
    import numpyro
    import numpyro.distributions as dist

    variance = numpyro.sample("variance", dist.InverseGamma(alpha, beta))
    sigma = numpyro.deterministic("sigma", jnp.sqrt(variance))
    numpyro.sample("mu0", dist.Normal(mean0, sigma / jnp.sqrt(kappa0)))
    numpyro.sample("mu1", dist.Normal(mean1, sigma / jnp.sqrt(kappa1)))


class _Updated(NamedTuple):
    """Parameters updated by data; ``mean`` and ``kappa`` have one entry for each class."""

    mean: jax.Array
    kappa: jax.Array
    alpha: jax.Array
    beta: jax.Array


@dataclass(frozen=True)
class NormalInverseGammaForms:
    """Closed forms of posterior quantities, from the sums (2, 3) of 1, r, r**2 by class."""

    name: str = "NormalInverseGammaPrior"

    def update(self, values: Params, sums: jax.Array, origin: jax.Array) -> _Updated:
        """Compute the posterior's parameters; means are relative to ``origin``."""
        mean = _pair(values, "mean") - origin
        kappa = _pair(values, "kappa")
        count, total, square = sums[:, 0], sums[:, 1], sums[:, 2]
        new_kappa = kappa + count
        new_mean = (kappa * mean + total) / new_kappa
        average = total / jnp.where(count > 0, count, 1)
        within = square - count * average**2
        between = kappa * count * (average - mean) ** 2 / new_kappa
        alpha = values["alpha"] + count.sum() / 2
        beta = values["beta"] + 0.5 * (within + between).sum()
        return _Updated(new_mean, new_kappa, alpha, beta)

    def log_evidence(self, values: Params, sums: jax.Array, origin: jax.Array) -> jax.Array:
        """Compute log p(data)."""
        new = self.update(values, sums, origin)
        kappa = _pair(values, "kappa")
        alpha, beta = values["alpha"], values["beta"]
        return (
            0.5 * jnp.log(kappa / new.kappa).sum()
            + alpha * jnp.log(beta)
            - new.alpha * jnp.log(new.beta)
            + special.gammaln(new.alpha)
            - special.gammaln(alpha)
            - 0.5 * sums[:, 0].sum() * math.log(2 * math.pi)
        )

    def log_predictive(self, new: _Updated, r: jax.Array) -> jax.Array:
        """Compute log p(x | y, data) of shape (2, m): Student densities with 2 alpha degrees."""
        scale = jnp.sqrt(2 * new.beta * (new.kappa + 1) / new.kappa)[:, None]
        constant = (
            special.gammaln(new.alpha + 0.5) - special.gammaln(new.alpha) - 0.5 * math.log(math.pi)
        )
        # Squares of points far away would overflow.
        log_square = 2 * jnp.log(jnp.abs(r - new.mean[:, None]) / scale)
        return constant - jnp.log(scale) - (new.alpha + 0.5) * jnp.logaddexp(0.0, log_square)

    def draw(
        self, values: Params, sums: jax.Array, origin: jax.Array, key: jax.Array, num_samples: int
    ) -> tuple[Params, jax.Array]:
        """Draw from the posterior; return parameters (n,) and their log prior density."""
        new = self.update(values, sums, origin)
        first, second = jax.random.split(key)
        variance = new.beta * jnp.exp(-log_gamma(first, new.alpha, (num_samples,)))
        normal = jax.random.normal(second, (2, num_samples), variance.dtype)
        mu = new.mean[:, None] + jnp.sqrt(variance / new.kappa[:, None]) * normal + origin
        mean = _pair(values, "mean")[:, None]
        kappa = _pair(values, "kappa")[:, None]
        log_means = jax.scipy.stats.norm.logpdf(mu, mean, jnp.sqrt(variance / kappa)).sum(axis=0)
        alpha, beta = values["alpha"], values["beta"]
        log_variance = (
            alpha * jnp.log(beta)
            - special.gammaln(alpha)
            - (alpha + 1) * jnp.log(variance)
            - beta / variance
        )
        params = {"mu0": mu[0], "mu1": mu[1], "sigma": jnp.sqrt(variance)}
        return params, log_means + log_variance

    def mode(self, new: _Updated, origin: jax.Array) -> Params:
        """Compute the mode of the joint density of the means and the variance."""
        sigma = jnp.sqrt(new.beta / (new.alpha + 2))
        return {"mu0": new.mean[0] + origin, "mu1": new.mean[1] + origin, "sigma": sigma}


def _pair(values: Params, name: str) -> jax.Array:
    """Stack a hyperparameter (2,) of the classes 0 and 1."""
    return jnp.stack([values[f"{name}0"], values[f"{name}1"]])


FORMS = NormalInverseGammaForms()


def NormalInverseGammaPrior(
    mean0: float, mean1: float, kappa0: float, kappa1: float, alpha: float, beta: float
) -> Prior:
    r"""Conjugate prior for two Gaussian classes with one unknown variance.

    .. math::
        \sigma^2 \sim \mathrm{InverseGamma}(\alpha, \beta), \qquad
        \mu_y \mid \sigma^2 \sim N(m_y, \sigma^2 / \kappa_y)

    Use it for exact results without sampling: ``integrator="closed_form"`` computes the exact
    predictive (a ratio of Student densities), the posterior mean of the coefficients, and the mode.
    All other integrators except ``"sobol"`` work as well.

    Parameters
    ----------
    mean0, mean1 : float
        Prior means of the class means, in the units of the scores.
    kappa0, kappa1 : float
        Prior weight of each mean, in observations; positive.
    alpha, beta : float
        Shape (no unit) and scale (squared units of the scores) of the variance; positive.

    Returns
    -------
    Prior
        To be passed to ``posterior`` or ``posterior_predict``.

    Raises
    ------
    TypeError, ValueError
        If a value is not a finite number, or one that must be positive is not.

    See Also
    --------
    GaussianPrior : Other priors for two Gaussian classes.

    References
    ----------
    K. Murphy (2007), Conjugate Bayesian analysis of the Gaussian distribution, section 3.

    Examples
    --------
    >>> NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=2)
    NormalInverseGammaPrior(mean0=-1.0, mean1=1.0, kappa0=1.0, kappa1=1.0, alpha=2.0, beta=2.0)
    """
    given = {"mean0": mean0, "mean1": mean1, "kappa0": kappa0, "kappa1": kappa1}
    given |= {"alpha": alpha, "beta": beta}
    values = {}
    for name, value in given.items():
        try:
            values[name] = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must be a number, got {value!r}") from None
        if not np.isfinite(values[name]):
            raise ValueError(f"{name} must be finite, got {value}")
        if not name.startswith("mean") and values[name] <= 0:
            raise ValueError(f"{name} must be positive, got {value}")
    return Prior(SHARED, values, _model, FORMS)
