"""The NumPyro model of regressions, and its potential for compiled programs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np

from bayescal._core.arrays import AnyArray, Array
from bayescal._core.execution.threads import RUNNING_MODEL
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float, Int, Shaped
from bayescal.regression.binary.objective import CoefficientPrior, Distribution

if TYPE_CHECKING:
    import numpyro.distributions as dist

#: Values of a model's sites by name.
Values: TypeAlias = dict[str, AnyArray]
#: Distributions of a model's sites by name; JAX keeps the order of this kind of mapping.
Laws: TypeAlias = "OrderedDict[str, dist.Distribution]"


def flat(size: int | None = None, positive: bool = False) -> dist.Distribution:
    """Make a density of one, of a vector of the given size or, for ``None``, of a number."""
    import numpyro.distributions as dist

    if size is not None:
        return dist.ImproperUniform(dist.constraints.real_vector, (), (size,))
    support = dist.constraints.positive if positive else dist.constraints.real
    return dist.ImproperUniform(support, (), ())


class Sites(NamedTuple):
    """The sites of a model, and how parameters theta are made of their values."""

    laws: Laws
    #: Factors of the joined values; None for no scaling.
    unit: Float[Array, " parameters"] | None = None
    #: Indices of theta in the joined values; None if the order is the same.
    order: Int[Array, " parameters"] | None = None

    def theta(self, values: Values) -> Float[jax.Array, " parameters"]:
        """Compute the parameters."""
        parts = [jnp.atleast_1d(values[name]) for name in self.laws]
        theta = jnp.concatenate(parts)
        theta = theta if self.unit is None else jnp.asarray(self.unit) * theta
        return theta if self.order is None else theta[jnp.asarray(self.order)]

    def values(self, u: Float[jax.Array, " parameters"]) -> Values:
        """Split u, the parameters or the logarithms of positive ones, into the sites."""
        shapes = [law.shape() for law in self.laws.values()]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        u = u if self.order is None else jnp.zeros_like(u).at[jnp.asarray(self.order)].set(u)
        parts = jnp.split(u if self.unit is None else u / jnp.asarray(self.unit), ends[:-1])
        named = zip(self.laws, parts, shapes, strict=True)
        return {name: part.reshape(shape) for name, part, shape in named}


def sample_sites(
    laws: Mapping[str, dist.Distribution], loss: Callable[[Values], Float[jax.Array, ""]]
) -> Values:
    """Sample a site of each law, with minus the loss of their values as log likelihood.

    ``numpyro_model`` returns this model, and compiled programs take its :func:`potential`.
    """
    import numpyro

    values = {name: numpyro.sample(name, law) for name, law in laws.items()}
    numpyro.factor("log_likelihood", -loss(values))
    return values


def potential(
    sites: Sites,
    loss: Callable[[Float[jax.Array, " parameters"]], Float[jax.Array, ""]],
    u: Float[jax.Array, " parameters"],
) -> Float[jax.Array, ""]:
    """Compute the potential of :func:`sample_sites`, for a loss of theta.

    ``u`` are the parameters, or the logarithms of those that must be positive.
    """
    from numpyro.infer.util import potential_energy

    def loss_of_values(values: Values) -> Float[jax.Array, ""]:
        return loss(sites.theta(values))

    with RUNNING_MODEL, jax.numpy_dtype_promotion("standard"):
        model_args = sites.laws, loss_of_values
        return cast(jax.Array, potential_energy(sample_sites, model_args, {}, sites.values(u)))


def regression_sites(
    intercept: CoefficientPrior | Distribution | None,
    coef: CoefficientPrior | Distribution | None,
    d: int,
) -> Sites:
    """Make the sites of an intercept and d coefficients; None is a flat density.

    The name of an intercept with a prior says that it is at the center of the features.
    """
    laws: Laws = OrderedDict()
    if intercept is None:
        laws["intercept"] = flat()
    else:
        laws["intercept_at_center"] = as_distribution(intercept)
    laws["coef"] = flat(d) if coef is None else as_distribution(coef).expand([d]).to_event(1)
    return Sites(laws)


def log_odds_sites(prior: CoefficientPrior, positive: Shaped[Array, " parameters"]) -> Sites:
    """Make the sites of parameters, of which some are ``positive``.

    Others are in units of their scale, because samplers that start near one find no scales of 1e-5.
    """
    import numpyro.distributions as dist

    limited = np.asarray(positive) > 0
    center, scale, heavy = (np.broadcast_to(part, limited.shape) for part in prior)
    laws: Laws = OrderedDict()
    for j, name in enumerate(theta_names(len(limited))):
        if limited[j]:
            laws[name] = dist.LogNormal(center[j], scale[j])
        else:
            laws[name] = (dist.Cauchy if heavy[j] else dist.Normal)(center[j] / scale[j], 1.0)
    return Sites(laws, np.where(limited, 1.0, scale))


def penalized_sites(
    penalty: Float[np.ndarray, " parameters"], positive: Shaped[np.ndarray, " parameters"]
) -> Sites:
    """Make the sites of parameters: normal with a ``penalty``, else flat."""
    import numpyro.distributions as dist

    laws: Laws = OrderedDict()
    for j, name in enumerate(theta_names(len(penalty))):
        scale = penalty[j] ** -0.5 if penalty[j] > 0 else None
        laws[name] = flat(positive=bool(positive[j])) if scale is None else dist.Normal(0.0, scale)
    return Sites(laws)


def softmax_sites(penalty: Float[np.ndarray, " parameters"]) -> Sites:
    """Make the sites of the parameters with a ``penalty``, and of those without."""
    import numpyro.distributions as dist

    penalized = penalty > 0
    laws: Laws = OrderedDict()
    if penalized.any():
        laws["theta"] = dist.Normal(0.0, penalty[penalized] ** -0.5).to_event(1)
    if not penalized.all():
        laws["theta_free"] = flat(int((~penalized).sum()))
    order = np.argsort(np.argsort(~penalized, kind="stable")) if len(laws) == 2 else None
    return Sites(laws, order=order)


def theta_names(p: int) -> list[str]:
    """Return the names of the sites of p parameters."""
    return [f"theta_{j}" for j in range(p)]


def as_distribution(law: CoefficientPrior | Distribution) -> dist.Distribution:
    """Convert the prior of one coefficient to NumPyro; return a distribution unchanged."""
    import numpyro.distributions as dist

    if not isinstance(law, CoefficientPrior):
        return cast(dist.Distribution, law)
    kind = dist.Cauchy if law.cauchy else dist.Normal
    return kind(law.center, law.scale)
