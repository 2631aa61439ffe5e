"""The families of Gaussian densities on the line, with one shared variance or with two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np

from bayescal._core.arrays import Array, ArrayT, Params
from bayescal._core.lazy import jax, jnp
from bayescal.models._family import Family
from bayescal.models.prior import Parameter, Prior, make_prior, model_sites

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class _Gaussian(Family):
    """Base of both families, with features 1, r and r**2 of r = x - origin."""

    name = "GaussianPrior"

    def features(self, x: ArrayT, origin: Array, xp: ModuleType) -> ArrayT:
        r = x - origin
        return xp.stack([xp.ones_like(r), r, r * r], axis=-1)

    def origin(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.asarray(x[mask].mean())

    def natural(self, params: Params, origin: jax.Array) -> jax.Array:
        rows = []
        for y in (0, 1):
            mu = params[f"mu{y}"] - origin
            sigma = params["sigma" if "sigma" in params else f"sigma{y}"]
            sigma = jnp.where(sigma > 0, sigma, jnp.nan)
            precision = 1 / sigma**2
            constant = -0.5 * mu**2 * precision - jnp.log(sigma) - _LOG_SQRT_2PI
            rows.append(jnp.stack([constant, mu * precision, -0.5 * precision]))
        return jnp.stack(rows)

    def sample(self, params: Params, labels: jax.Array, key: jax.Array) -> jax.Array:
        mu = self.of_label(params, "mu", labels)
        shared = "sigma" in params
        sigma = params["sigma"] if shared else self.of_label(params, "sigma", labels)
        sigma = jnp.where(sigma > 0, sigma, jnp.nan)
        return mu + sigma * jax.random.normal(key, labels.shape, mu.dtype)


class SharedGaussian(_Gaussian):
    """x | y ~ N(mu_y, sigma**2): log odds linear in x, as in logistic calibration."""

    parameters = ("mu0", "mu1", "sigma")


class UnequalGaussian(_Gaussian):
    """x | y ~ N(mu_y, sigma_y**2): log odds quadratic in x."""

    parameters = ("mu0", "mu1", "sigma0", "sigma1")


SHARED = SharedGaussian()
UNEQUAL = UnequalGaussian()


def GaussianPrior(
    mu0: Parameter = None,
    mu1: Parameter = None,
    sigma: Parameter = None,
    *,
    sigma0: Parameter = None,
    sigma1: Parameter = None,
    model: Callable[..., None] | None = None,
    hyperparameters: Mapping[str, object] | None = None,
) -> Prior:
    r"""Prior for two Gaussian classes of univariate scores.

    Use it for scores on the whole line, such as logits. With a shared ``sigma`` the classes are
    :math:`x \mid y \sim N(\mu_y, \sigma^2)`, and the Bayes-optimal prediction for known parameters
    is logistic, :math:`f^*(x) = \mathrm{sigmoid}(a x + b + \log(\pi_1/\pi_0))` with
    :math:`a = (\mu_1 - \mu_0)/\sigma^2` and :math:`b = (\mu_0^2 - \mu_1^2)/(2\sigma^2)`.
    With ``sigma0`` and ``sigma1`` the log odds are quadratic in x.

    Parameters
    ----------
    mu0, mu1 : number or NumPyro distribution
        Means of class 0 and class 1, in the units of the scores. A number is a point mass.
    sigma : number or NumPyro distribution
        Standard deviation of both classes, in the units of the scores. A distribution that allows
        negative values raises a warning. Normal, Cauchy, Laplace, logistic and uniform
        distributions are truncated at zero; the negative part of any other has no weight.
    sigma0, sigma1 : number or NumPyro distribution
        Standard deviations of class 0 and class 1, instead of ``sigma``.
    model : callable, optional
        A NumPyro model whose sites, sampled or deterministic, have the names of the parameters,
        for a joint prior; no other parameter may be passed then.
    hyperparameters : mapping, optional
        Keyword arguments of ``model``. If only their numbers change between calls, nothing is
        compiled again.

    Returns
    -------
    Prior
        To be passed to ``posterior`` or ``posterior_predict``.

    Raises
    ------
    TypeError, ValueError
        If a parameter is missing or of the wrong kind, or a number for sigma is not positive.

    See Also
    --------
    NormalInverseGammaPrior : A conjugate prior with closed forms.
    MultivariateGaussianPrior : For several features.
    BetaPrior : For scores in (0, 1).

    References
    ----------
    M. Maher (2020), section 4; Theorem 1 for the shared variance.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)
    GaussianPrior(mu0=Uniform(low=-2.5, high=0), mu1=Uniform(low=0, high=2.5), sigma=1.0)
    """
    unequal = sigma0 is not None or sigma1 is not None
    if unequal and sigma is not None:
        raise ValueError("sigma must not be given together with sigma0 or sigma1")
    spread = {"sigma0": sigma0, "sigma1": sigma1} if unequal else {"sigma": sigma}
    values = {"mu0": mu0, "mu1": mu1, **spread}
    if model is not None:
        unequal = "sigma0" in model_sites(model, hyperparameters or {})
    family = UNEQUAL if unequal else SHARED
    positive = ("sigma", "sigma0", "sigma1")
    return make_prior(family, values, model, hyperparameters, positive=positive)
