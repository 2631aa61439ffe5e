"""The family of beta densities on scores in (0, 1), with the log odds of beta calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np

from bayescal._core.arrays import Array, ArrayT, Params
from bayescal._core.lazy import jax, jnp, special
from bayescal.models._family import Family, log_positive
from bayescal.models.prior import Parameter, Prior, make_prior


class BetaFamily(Family):
    """x | y ~ Beta(alpha_y, beta_y); features 1, log x, log(1 - x)."""

    name = "BetaPrior"
    parameters = ("alpha0", "beta0", "alpha1", "beta1")

    def features(self, x: ArrayT, origin: Array, xp: ModuleType) -> ArrayT:
        return xp.stack([xp.ones_like(x), log_positive(x, xp), xp.log1p(-x)], axis=-1)

    def natural(self, params: Params, origin: jax.Array) -> jax.Array:
        rows = []
        for y in (0, 1):
            a, b = params[f"alpha{y}"], params[f"beta{y}"]
            a, b = (jnp.where(v > 0, v, jnp.nan) for v in (a, b))
            # JAX's betaln is wrong by up to 1e-6 if a shape exceeds eight.
            log_beta = special.gammaln(a) + special.gammaln(b) - special.gammaln(a + b)
            rows.append(jnp.stack([-log_beta, a - 1, b - 1]))
        return jnp.stack(rows)

    def sample(self, params: Params, labels: jax.Array, key: jax.Array) -> jax.Array:
        a, b = (self.of_label(params, name, labels) for name in ("alpha", "beta"))
        # Draws are rounded to numbers at which the densities are finite.
        info = jnp.finfo(a.dtype)
        return jnp.clip(jax.random.beta(key, a, b), info.tiny, 1 - info.eps / 2)

    def check_support(self, x: np.ndarray, name: str) -> None:
        outside = (x <= 0) | (x >= 1)
        if outside.any():
            raise ValueError(
                f"{name} must lie strictly between 0 and 1 for beta densities, got "
                f"{x[outside][0]:g} ({int(outside.sum())} outside); clip the scores or use logits "
                "with GaussianPrior"
            )

    def coordinate(self, x: ArrayT, xp: ModuleType) -> ArrayT:
        return log_positive(x, xp) - xp.log1p(-x)

    def from_coordinate(self, z: ArrayT, xp: ModuleType) -> ArrayT:
        # Stay off the ends, where the features are infinite.
        info = xp.finfo(z.dtype)
        z = xp.maximum(z, math.log(info.tiny))
        return xp.minimum(1 / (1 + xp.exp(-z)), 1 - info.eps / 2)


BETA = BetaFamily()


def BetaPrior(
    alpha0: Parameter = None,
    beta0: Parameter = None,
    alpha1: Parameter = None,
    beta1: Parameter = None,
    *,
    model: Callable[..., None] | None = None,
    hyperparameters: Mapping[str, object] | None = None,
) -> Prior:
    r"""Prior for two beta-distributed classes of scores in (0, 1).

    Use it for scores that are probabilities. The classes are
    :math:`x \mid y \sim \mathrm{Beta}(\alpha_y, \beta_y)`. For known parameters the Bayes-optimal
    log odds are :math:`(\alpha_1 - \alpha_0) \ln x - (\beta_0 - \beta_1) \ln(1 - x) + c`, the map
    of beta calibration.

    Parameters
    ----------
    alpha0, beta0, alpha1, beta1 : number or NumPyro distribution
        Shape parameters of class 0 and class 1; positive and dimensionless.
    model : callable, optional
        A NumPyro model whose sites have the names of the parameters, for a joint prior.
    hyperparameters : mapping, optional
        Keyword arguments of ``model``.

    Returns
    -------
    Prior
        To be passed to ``posterior`` or ``posterior_predict``.

    Raises
    ------
    TypeError, ValueError
        If a parameter is missing, of the wrong kind or, as a number, not positive.

    See Also
    --------
    GaussianPrior : For scores on the whole line, such as logits.
    DirichletPrior : For probabilities of more than two classes.
    Beta : The calibrator with this map, for scores whose generative model is unknown.

    References
    ----------
    M. Kull, T. Silva Filho and P. Flach (2017), Beta calibration.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> BetaPrior(alpha0=1, beta0=dist.Gamma(2, 1), alpha1=dist.Gamma(2, 1), beta1=1)
    ... # doctest: +ELLIPSIS
    BetaPrior(alpha0=1.0, beta0=Gamma(concentration=2, rate=1), alpha1=Gamma(...), beta1=1.0)
    """
    values = {"alpha0": alpha0, "beta0": beta0, "alpha1": alpha1, "beta1": beta1}
    return make_prior(BETA, values, model, hyperparameters, positive=BETA.parameters)
