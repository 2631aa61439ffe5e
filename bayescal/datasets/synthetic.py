"""Data sets drawn from known generative models, and the lowest log loss that these allow.

The parameters of every data set are drawn from a prior. Since prior and parameters are known, so
are the optimal predictions and their expected loss: no method can do better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.execution.precision import float64
from bayescal._core.keywords import other_words
from bayescal._core.lazy import jax, jnp
from bayescal._core.random.keys import Seed, as_key
from bayescal.data import checks
from bayescal.inference import Known, Problem, Quadrature
from bayescal.models import Family, GaussianPrior, Prior
from bayescal.models.gaussian import SHARED
from bayescal.models.prior import draw, fit_shapes

__all__ = ["SyntheticData", "bayes_optimal_log_loss", "experiments", "sample"]

# The trapezoidal rule converges exponentially for a smooth integrand that vanishes at the ends.
_REACH = 12.0
_STEP = 1 / 16


class SyntheticData(NamedTuple):
    """Data sets and the parameters that they were drawn from.

    Attributes
    ----------
    x : array of shape (B, n), or (B, n, d) for a family with d features
        Scores, float64.
    y : array of shape (B, n)
        Labels in {0, ..., k - 1}.
    parameters : dict of arrays of shape (B, ...)
        One entry for each parameter of the family, including fixed ones.
    """

    x: np.ndarray
    y: np.ndarray
    parameters: dict[str, np.ndarray]


def experiments() -> Mapping[str, Prior]:
    r"""Return the priors of five base experiments with univariate Gaussian classes.

    Returns
    -------
    mapping from "a", ..., "e" to Prior
        In all of them :math:`\sigma = 1`. The means are independent a priori, with

        - a: :math:`\mu_0 \sim U(-0.5, 0)`, :math:`\mu_1 \sim U(0, 0.5)`;
        - b: :math:`\mu_0 \sim U(-2.5, 0)`, :math:`\mu_1 \sim U(0, 2.5)`;
        - c, d, e: :math:`\mu_0 \sim \mathrm{Beta}(2, 5)`, and :math:`\mu_1` is
          :math:`\mathrm{Beta}(5, 2)` plus 1, 3 and 5.

    See Also
    --------
    sample : Draw data sets from a prior.

    Notes
    -----
    Two figures in table 6 of the reference for its method ``bayes_preds``, 0.1846 for b and 0.0342
    for d, are below the lowest expected log loss that these models allow, 0.2829 and 0.1132 (see
    ``bayes_optimal_log_loss``), so no method can reach them.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing, section 7.1, table 5.

    Examples
    --------
    >>> experiments()["b"]
    GaussianPrior(mu0=Uniform(low=-2.5, high=0), mu1=Uniform(low=0, high=2.5), sigma=1.0)
    """
    from numpyro import distributions as dist

    priors = {
        name: GaussianPrior(mu0=dist.Uniform(-width, 0.0), mu1=dist.Uniform(0.0, width), sigma=1.0)
        for name, width in {"a": 0.5, "b": 2.5}.items()
    }
    for name, shift in {"c": 1.0, "d": 3.0, "e": 5.0}.items():
        move = dist.transforms.AffineTransform(shift, 1.0)
        priors[name] = GaussianPrior(
            mu0=dist.Beta(2.0, 5.0),
            mu1=dist.TransformedDistribution(dist.Beta(5.0, 2.0), move),
            sigma=1.0,
        )
    return MappingProxyType(priors)


@other_words
def sample(
    prior: Prior,
    num_datasets: int,
    n: int,
    *,
    class_ratio: ArrayLike = 0.5,
    dim: int = 1,
    parameters: Mapping[str, ArrayLike] | None = None,
    key: Seed = 0,
) -> SyntheticData:
    """Draw data sets from a generative model, with new parameters from the prior for every one.

    Use it to compare methods with the optimum, which ``posterior_predict`` computes.

    Parameters
    ----------
    prior : Prior
        A family of class-conditional densities with a prior over its parameters.
    num_datasets : int
        Number B of data sets.
    n : int
        Number of observations in each data set.
    class_ratio : float or array of shape (k,)
        Proportion of class 1, or of every class. Class counts are not random: they are ``n`` times
        the proportions, rounded so that they sum to ``n``. Labels are in random order.
    dim : int
        Number of features of a multivariate Gaussian family.
    parameters : mapping, optional
        Parameters (B, ...) to use instead of draws from the prior, for example those of other data
        in order to draw a test set for each of its data sets.
    key : int, JAX key or NumPy generator
        Seed; the same key gives the same data.

    Returns
    -------
    SyntheticData
        NumPy arrays ``x`` (B, n), ``y`` (B, n) and the true ``parameters``.

    Raises
    ------
    TypeError, ValueError
        If a count is not a positive integer, ``class_ratio`` is not strictly between 0 and 1,
        ``parameters`` do not match, or the prior gives invalid parameters.

    See Also
    --------
    experiments : Ready-made priors.
    bayes_optimal_log_loss : The lowest expected log loss.

    Examples
    --------
    >>> import bayescal as bc
    >>> train = sample(experiments()["b"], 3, 50, class_ratio=0.7, key=0)
    >>> train.x.shape, train.y.sum(axis=1).tolist()
    ((3, 50), [35, 35, 35])
    >>> test = sample(experiments()["b"], 3, 1000, parameters=train.parameters, key=1)
    >>> bool((test.parameters["mu0"] == train.parameters["mu0"]).all())
    True
    """
    num_datasets = checks.check_count(num_datasets, "num_datasets")
    n = checks.check_count(n, "n")
    family = prior.family
    proportions = checks.check_class_prior(class_ratio, family.classes, "class_ratio")
    # Class counts are rounded proportions; those with the largest remainders are rounded up.
    counts = np.floor(n * proportions + 1e-9).astype(int)
    order = np.argsort(counts - n * proportions, kind="stable")
    counts[order[: n - counts.sum()]] += 1
    labels = np.repeat(np.arange(family.classes), counts)
    with float64():
        shaped = fit_shapes(prior, checks.check_count(dim, "dim"))
        of_parameters, of_data = jax.random.split(as_key(key))
        chosen = parameters
        if chosen is None:
            chosen = _draw(shaped, of_parameters, num_datasets)[0]
        given = {name: np.asarray(value, np.float64) for name, value in chosen.items()}
        if sorted(given) != sorted(family.parameters):
            raise ValueError(
                f"parameters must be {', '.join(family.parameters)}, got {', '.join(given)}"
            )
        for name, value in given.items():
            if value.shape[:1] != (num_datasets,):
                raise ValueError(
                    f"parameters[{name!r}] must have {num_datasets} rows, one for each data set, "
                    f"got shape {value.shape}"
                )
        x, y = _observe(family, given, jnp.asarray(labels), of_data)
    x, y = np.asarray(x), np.asarray(y)
    if not np.isfinite(x).all():
        what = "parameters must be valid"
        if parameters is None:
            what = "prior must give valid parameters only"
        bad = int((~np.isfinite(x)).reshape(num_datasets, -1).any(axis=1).sum())
        raise ValueError(
            f"{what}, such as positive deviations; {bad} of {num_datasets} data sets have others"
        )
    return SyntheticData(x, y, given)


_draw = jax.jit(draw, static_argnums=2)


@partial(jax.jit, static_argnums=0)
def _observe(
    family: Family, parameters: dict[str, jax.Array], labels: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Draw observations (B, n, ...) and shuffle them with their labels (B, n)."""

    def one(parameters: dict[str, jax.Array], key: jax.Array) -> tuple[jax.Array, jax.Array]:
        of_order, of_points = jax.random.split(key)
        shuffled = jax.random.permutation(of_order, labels)
        return family.sample(parameters, shuffled, of_points), shuffled

    count = jax.tree.leaves(parameters)[0].shape[0]
    return jax.vmap(one)(parameters, jax.random.split(key, count))


def bayes_optimal_log_loss(prior: Prior) -> float:
    r"""Compute the mean log loss of the optimal predictions if the parameters are known.

    Methods that have to estimate the parameters cannot have a lower expected loss on balanced test
    data. For known parameters the loss depends only on :math:`\delta = |\mu_1 - \mu_0| / \sigma`:

    .. math:: \int \ln\left(1 + e^{-\delta^2/2 - \delta z}\right) \varphi(z) \, dz ,

    where :math:`\varphi` is the standard normal density. The mean over the prior is returned.

    Parameters
    ----------
    prior : Prior
        A ``GaussianPrior`` with a shared ``sigma``, and at most three random parameters.

    Returns
    -------
    float
        In nats; ln 2 if the classes coincide.

    Raises
    ------
    ValueError
        If the prior is of another family or has more than three random parameters.

    See Also
    --------
    sample : Draw data sets from the prior.

    Notes
    -----
    The trapezoidal rule over z and Gauss-Legendre rules over the prior; the error is below 1e-10
    for smooth priors.

    Examples
    --------
    >>> print(f"{bayes_optimal_log_loss(experiments()['b']):.4f}")
    0.2829
    """
    if prior.family is not SHARED:
        raise ValueError(
            f"prior must be a GaussianPrior with a shared sigma, got {prior.family.name} with "
            f"{', '.join(prior.family.parameters)}"
        )
    rule = Quadrature()
    with float64():
        rule.check(prior)
        # Sums over no observations: the nodes are those of the prior.
        sums, even = jnp.zeros((1, 2, 3)), Known(jnp.zeros(2))
        problem: Problem = Problem(prior, sums, jnp.zeros(()), even, None)
        boxes = rule.prepare(problem, as_key(0), 1, ())
        box = jax.tree.map(lambda leaf: leaf[0], boxes)
        nodes = rule.realize(problem._replace(state=box), rule.realized_size(boxes, 1))
        weights = jax.nn.softmax(nodes.log_base)
        gap = (nodes.params["mu1"] - nodes.params["mu0"]) / nodes.params["sigma"]
        return float(jnp.sum(weights * _expected_loss(jnp.broadcast_to(gap, weights.shape))))


@jax.jit
def _expected_loss(gap: jax.Array) -> jax.Array:
    """Compute the expected log loss for means that are ``gap`` (m,) standard deviations apart."""
    z = jnp.arange(-_REACH, _REACH + _STEP / 2, _STEP)
    density = _STEP * jnp.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    gap = jnp.abs(gap)[:, None]
    return jax.nn.softplus(-gap * (gap / 2 + z)) @ density
