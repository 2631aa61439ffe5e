"""NumPyro models of the densities that regressions and calibrators maximize or sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from bayescal._core.lazy import jax, jnp
from bayescal.regression.binary.objective import BinaryDesign, Prior
from bayescal.regression.method import CAUCHY, INTERCEPT, Method, Settled, scaling_for
from bayescal.regression.softmax.objective import Design, evaluate

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

#: A NumPyro model that contains its data.
Model: TypeAlias = Callable[[], None]
#: A function that makes the distribution of a site.
Law: TypeAlias = "Callable[[], Distribution]"
#: Values of a model's sites by name.
Values: TypeAlias = dict[str, Any]
#: A function from site values to public parameters.
Describe: TypeAlias = Callable[[Values], Values]


class Flat(NamedTuple):
    """A density of one, of a vector of the given size or, for ``None``, of a number."""

    size: int | None = None
    positive: bool = False

    def __call__(self) -> Distribution:
        """Make the NumPyro distribution."""
        import numpyro.distributions as dist

        if self.size is not None:
            return dist.ImproperUniform(dist.constraints.real_vector, (), (self.size,))
        support = dist.constraints.positive if self.positive else dist.constraints.real
        return dist.ImproperUniform(support, (), ())


def as_model(
    laws: dict[str, Law], loss: Callable[[Values], jax.Array], describe: Describe
) -> Model:
    """Make a model with sites of these laws, whose log likelihood is minus the loss.

    The model calls the laws, in the precision that JAX has at that time.
    """

    def model() -> None:
        import numpyro

        with jax.numpy_dtype_promotion("standard"):
            values = {name: numpyro.sample(name, law()) for name, law in laws.items()}
            numpyro.factor("log_likelihood", -loss(values))
            for name, value in describe(values).items():
                numpyro.deterministic(name, value)

    return model


def regression_model(method: Method, x: np.ndarray, weights: np.ndarray, settled: Settled) -> Model:
    """Make the model of a logistic regression, for coefficients of the unscaled features.

    Its sites are ``coef`` (d,) and ``intercept``. If the prior is on the log odds at the center of
    the features, the latter is ``intercept_at_center``.
    """
    import numpyro.distributions as dist

    d, prior = x.shape[1], method.coef_prior
    sampled = method.inference != "map"
    scaling = scaling_for(x, weights, prior or ("centered" if sampled else None))
    centered = prior is not None or sampled
    middle = "intercept_at_center" if centered else "intercept"

    def coefficients() -> Distribution:
        law: Any = None
        if prior is not None and not isinstance(prior, str):
            law = prior.expand([d])  # type: ignore[attr-defined]
        elif prior is not None:
            law = dist.Cauchy(0.0, jnp.asarray(CAUCHY.scale / scaling.scale))
        elif settled.l2 and not settled.l1:
            law = dist.Normal(0.0, settled.l2**-0.5).expand([d])
        elif settled.l1 and not settled.l2:
            law = dist.Laplace(0.0, 1 / settled.l1).expand([d])
        return Flat(d)() if law is None else law.to_event(1)

    both = settled.l1 and settled.l2
    inside = x - scaling.mean

    def loss(values: Values) -> jax.Array:
        coef = values["coef"]
        line = values[middle] + jnp.asarray(inside) @ coef
        value = cross_entropy(line, settled.targets, weights)
        if both:
            value += settled.l1 * jnp.sum(jnp.abs(coef)) + settled.l2 * jnp.sum(coef**2) / 2
        return value

    def describe(values: Values) -> Values:
        if not centered:
            return {}
        return {"intercept": values[middle] - values["coef"] @ jnp.asarray(scaling.mean)}

    first: Law = partial(dist.Cauchy, 0.0, float(INTERCEPT.scale)) if centered else Flat()
    return as_model({middle: first, "coef": coefficients}, loss, describe)


def log_odds_model(
    design: BinaryDesign,
    prior: Prior | None,
    penalty: np.ndarray,
    positive: np.ndarray,
    describe: Callable[[jax.Array], Values],
) -> Model:
    """Make the model of log odds that are linear in parameters ``theta_0``, ``theta_1``, ...

    Without a prior it is the penalized likelihood. A prior is on the logarithm of parameters that
    must be ``positive`` (p,); the other parameters are in units of its scale.
    """
    import numpyro.distributions as dist

    scale = np.ones(len(positive)) if prior is None else np.asarray(prior.scale)
    # From a start near one, samplers do not find scales of 1e-5.
    unit = np.where(positive, 1.0, scale)

    def law(j: int) -> Law:
        if prior is None:
            flat = Flat(positive=bool(positive[j]))
            return partial(dist.Normal, 0.0, penalty[j] ** -0.5) if penalty[j] > 0 else flat
        if positive[j]:
            return partial(dist.LogNormal, 0.0, float(scale[j]))
        kind = dist.Cauchy if np.asarray(prior.cauchy)[j] > 0 else dist.Normal
        return partial(kind, 0.0, 1.0)

    laws = {f"theta_{j}": law(j) for j in range(len(positive))}

    def theta_of(values: Values) -> jax.Array:
        return jnp.asarray(unit) * jnp.stack([values[name] for name in laws])

    def loss(values: Values) -> jax.Array:
        line = theta_of(values) @ jnp.asarray(design.columns)
        return cross_entropy(line, design.targets, design.weights)

    return as_model(laws, loss, lambda values: describe(theta_of(values)))


def softmax_model(
    design: Design[np.ndarray], penalty: np.ndarray, describe: Callable[[jax.Array], Values]
) -> Model:
    """Make the model of logits that are linear in parameters.

    Its sites are ``theta``, with the normal prior that equals the penalty (p,), and ``theta_free``
    for parameters without penalty.
    """
    import numpyro.distributions as dist

    penalized = penalty > 0
    laws: dict[str, Law] = {}
    if penalized.any():
        scale = penalty[penalized] ** -0.5
        laws["theta"] = lambda: dist.Normal(0.0, jnp.asarray(scale)).to_event(1)
    if not penalized.all():
        laws["theta_free"] = Flat(int((~penalized).sum()))
    indices = {"theta": np.flatnonzero(penalized), "theta_free": np.flatnonzero(~penalized)}

    def theta_of(values: Values) -> jax.Array:
        parts = jnp.concatenate([values[name] for name in laws])
        order = np.argsort(np.concatenate([indices[name] for name in laws]))
        return parts[order]

    def loss(values: Values) -> jax.Array:
        theta, given = theta_of(values), cast(Any, design).map_arrays(jnp.asarray)
        return evaluate(given, jnp.zeros_like(theta), theta).value

    return as_model(laws, loss, lambda values: describe(theta_of(values)))


def cross_entropy(line: jax.Array, targets: np.ndarray, weights: np.ndarray) -> jax.Array:
    """Compute the weighted cross-entropy of log odds (n,) with targets (n,)."""
    return jnp.asarray(weights) @ (jax.nn.softplus(line) - jnp.asarray(targets) * line)
