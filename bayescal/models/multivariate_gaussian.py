"""The family of Gaussian densities in d dimensions with one covariance matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np

from bayescal._core.arrays import Array, ArrayT, Params
from bayescal._core.lazy import jax, jnp
from bayescal.models._family import Family
from bayescal.models.prior import Parameter, Prior, cut_at_zero, is_distribution, make_prior


class MultivariateGaussian(Family):
    """x | y ~ N(mu_y, cov); features 1, r and the products r_i r_j of r = x - origin."""

    name = "MultivariateGaussianPrior"
    parameters = ("mu0", "mu1", "cov")
    univariate = False

    def features(self, x: ArrayT, origin: Array, xp: ModuleType) -> ArrayT:
        r = x - origin
        products = (r[..., :, None] * r[..., None, :]).reshape(*r.shape[:-1], -1)
        return xp.concatenate([xp.ones_like(r[..., :1]), r, products], axis=-1)

    def natural(self, params: Params, origin: jax.Array) -> jax.Array:
        dim = origin.shape[0]
        cov = params["cov"]
        if cov.ndim == 0:
            cov = cov * jnp.eye(dim, dtype=cov.dtype)
        # A matrix that is not positive definite has no Cholesky factor: NaN, which means weight
        # zero.
        factor = jnp.linalg.cholesky(cov)
        precision = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(dim, dtype=cov.dtype))
        log_norm = jnp.sum(jnp.log(jnp.diagonal(factor))) + 0.5 * dim * math.log(2 * math.pi)
        rows = []
        for name in ("mu0", "mu1"):
            mu = params[name] - origin
            slope = precision @ mu
            constant = -0.5 * mu @ slope - log_norm
            rows.append(jnp.concatenate([constant[None], slope, -0.5 * precision.ravel()]))
        return jnp.stack(rows)

    def sample(self, params: Params, labels: jax.Array, key: jax.Array) -> jax.Array:
        mu = jnp.where(labels[:, None] == 1, params["mu1"], params["mu0"])
        cov = params["cov"]
        dim = mu.shape[-1]
        factor = jnp.linalg.cholesky(cov) if cov.ndim else jnp.sqrt(cov) * jnp.eye(dim)
        return mu + jax.random.normal(key, mu.shape, mu.dtype) @ factor.T

    def origin(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return x[mask].mean(axis=0)

    def event_shapes(self, dim: int) -> dict[str, tuple[tuple[int, ...], ...]]:
        return {"mu0": ((dim,),), "mu1": ((dim,),), "cov": ((), (dim, dim))}


MULTIVARIATE = MultivariateGaussian()


def MultivariateGaussianPrior(
    mu0: Parameter = None,
    mu1: Parameter = None,
    cov: Parameter = None,
    *,
    model: Callable[..., None] | None = None,
    hyperparameters: Mapping[str, object] | None = None,
) -> Prior:
    r"""Prior for two Gaussian classes in d dimensions with one covariance matrix.

    Use it for several features, or the scores of several classifiers. The classes are
    :math:`x \mid y \sim N(\mu_y, \Sigma)`. For known parameters the Bayes-optimal log odds are
    linear in x with slope :math:`\Sigma^{-1}(\mu_1 - \mu_0)`.

    Parameters
    ----------
    mu0, mu1 : number, array of shape (d,) or NumPyro distribution
        Class means, in the units of the features. A scalar distribution means d independent
        entries; a distribution with event shape (d,) is used as it is.
    cov : number, array of shape (d, d) or NumPyro distribution
        Covariance matrix, in squared units. A number or a scalar distribution multiplies the
        identity.
    model : callable, optional
        A NumPyro model with sites ``mu0``, ``mu1`` and ``cov`` (sampled or deterministic).
    hyperparameters : mapping, optional
        Keyword arguments of ``model``.

    Returns
    -------
    Prior
        To be passed to ``posterior`` or ``posterior_predict``.

    Raises
    ------
    TypeError, ValueError
        If a parameter is missing or of the wrong kind, or ``cov`` is not symmetric and positive
        definite.

    See Also
    --------
    GaussianPrior : For a single score.

    Notes
    -----
    The features are 1, x and the d * d products, so every draw in a block costs O(d**2).

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> MultivariateGaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), cov=1.0)
    MultivariateGaussianPrior(mu0=Normal(loc=-1, scale=1), mu1=Normal(loc=1, scale=1), cov=1.0)
    """
    if is_distribution(cov) and getattr(cov, "event_shape", None) == ():
        cov = cut_at_zero("cov", cov)
    values = {"mu0": mu0, "mu1": mu1, "cov": cov}
    prior = make_prior(MULTIVARIATE, values, model, hyperparameters)
    number = prior.values.get("cov") if model is None else None
    if isinstance(number, float) and number <= 0:
        raise ValueError(f"cov must be positive, got {number:g}")
    if isinstance(number, np.ndarray):
        square = number.ndim == 2 and number.shape[0] == number.shape[1]
        if not square or not np.allclose(number, number.T, atol=1e-8 * np.abs(number).max()):
            raise ValueError("cov must be a symmetric matrix of shape (d, d)")
        if np.linalg.eigvalsh(number)[0] <= 0:
            raise ValueError("cov must be positive definite")
    return prior
