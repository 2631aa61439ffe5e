"""NumPyro models of the densities that regressions and calibrators maximize or sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float, Shaped
from bayescal.regression.binary.objective import BinaryDesign, CoefficientPrior, Distribution
from bayescal.regression.method import CAUCHY, INTERCEPT, Method, Settled, scaling_for
from bayescal.regression.model import (
    Sites,
    Values,
    log_odds_sites,
    penalized_sites,
    regression_sites,
    sample_sites,
    softmax_sites,
)
from bayescal.regression.softmax.objective import Design, evaluate

if TYPE_CHECKING:
    import numpyro.distributions as dist

#: A NumPyro model that contains its data.
Model: TypeAlias = Callable[[], None]
#: A function from site values to public parameters.
Describe: TypeAlias = Callable[[Values], Mapping[str, AnyArray]]


def as_model(
    make_laws: Callable[[], Mapping[str, dist.Distribution]],
    loss: Callable[[Values], Float[jax.Array, ""]],
    describe: Describe,
) -> Model:
    """Make a model with sites of these laws, whose log likelihood is minus the loss.

    The model makes the laws when it runs, in the precision that JAX has then.
    """

    def model() -> None:
        import numpyro

        with jax.numpy_dtype_promotion("standard"):
            values = sample_sites(make_laws(), loss)
            for name, value in describe(values).items():
                numpyro.deterministic(name, value)

    return model


def regression_model(
    method: Method,
    x: Float[np.ndarray, "rows features"],
    weights: Float[np.ndarray, " rows"],
    settled: Settled,
) -> Model:
    """Make the model of a logistic regression, for coefficients of the unscaled features.

    Its sites are ``coef`` and ``intercept``, or ``intercept_at_center`` for a prior at the center.
    """
    d, prior = x.shape[1], method.coef_prior
    sampled = method.inference != "map"
    scaling = scaling_for(x, weights, prior or ("centered" if sampled else None))
    centered = prior is not None or sampled
    both = settled.l1 and settled.l2

    def coef_law() -> CoefficientPrior | Distribution | None:
        import numpyro.distributions as dist

        if isinstance(prior, str):
            return CoefficientPrior(0.0, CAUCHY.scale / scaling.scale, CAUCHY.cauchy)
        if settled.l2 and not settled.l1:
            return CoefficientPrior(0.0, settled.l2**-0.5, 0.0)
        if settled.l1 and not settled.l2:
            return dist.Laplace(0.0, 1 / settled.l1)
        return prior

    def make_sites() -> Sites:
        return regression_sites(INTERCEPT if centered else None, coef_law(), d)

    inside = x - scaling.mean

    def loss(values: Values) -> Float[jax.Array, ""]:
        middle, coef = values.values()
        value = cross_entropy(middle + jnp.asarray(inside) @ coef, settled.targets, weights)
        if both:
            value += settled.l1 * jnp.sum(jnp.abs(coef)) + settled.l2 * jnp.sum(coef**2) / 2
        return value

    def describe(values: Values) -> Values:
        if not centered:
            return {}
        middle, coef = values.values()
        return {"intercept": middle - coef @ jnp.asarray(scaling.mean)}

    return as_model(lambda: make_sites().laws, loss, describe)


def log_odds_model(
    design: BinaryDesign[np.ndarray],
    prior: CoefficientPrior | None,
    penalty: Float[np.ndarray, " parameters"],
    positive: Shaped[np.ndarray, " parameters"],
    describe: Callable[[Float[jax.Array, " parameters"]], Mapping[str, AnyArray]],
) -> Model:
    """Make the model of log odds that are linear in parameters ``theta_0``, ``theta_1``, ...

    Without a prior it is the penalized likelihood; see :func:`log_odds_sites`.
    """
    make_sites = partial(penalized_sites, penalty, positive)
    if prior is not None:
        make_sites = partial(log_odds_sites, prior, positive)

    def loss(theta: Float[jax.Array, " parameters"]) -> Float[jax.Array, ""]:
        return cross_entropy(theta @ jnp.asarray(design.columns), design.targets, design.weights)

    return _linear_model(make_sites, loss, describe)


def softmax_model(
    design: Design[np.ndarray],
    penalty: Float[np.ndarray, " parameters"],
    describe: Callable[[Float[jax.Array, " parameters"]], Mapping[str, AnyArray]],
) -> Model:
    """Make the model of logits that are linear in parameters; see :func:`softmax_sites`."""

    def loss(theta: Float[jax.Array, " parameters"]) -> Float[jax.Array, ""]:
        return evaluate(design.map_arrays(jnp.asarray), jnp.zeros_like(theta), theta).value

    return _linear_model(partial(softmax_sites, penalty), loss, describe)


def _linear_model(
    make_sites: Callable[[], Sites],
    loss: Callable[[Float[jax.Array, " parameters"]], Float[jax.Array, ""]],
    describe: Callable[[Float[jax.Array, " parameters"]], Mapping[str, AnyArray]],
) -> Model:
    """Make the model of functions of parameters, which are made of the values of sites."""

    def theta_of(values: Values) -> Float[jax.Array, " parameters"]:
        return make_sites().theta(values)

    return as_model(
        lambda: make_sites().laws,
        lambda values: loss(theta_of(values)),
        lambda values: describe(theta_of(values)),
    )


def cross_entropy(
    line: Float[jax.Array, " rows"],
    targets: Float[np.ndarray, " rows"],
    weights: Float[np.ndarray, " rows"],
) -> Float[jax.Array, ""]:
    """Compute the weighted cross-entropy of log odds with targets."""
    return jnp.asarray(weights) @ (jax.nn.softplus(line) - jnp.asarray(targets) * line)
