"""Posteriors of the coefficients of a logistic regression: Laplace's approximation and NUTS.

The coefficients are sampled as ``u``: a coefficient that must be positive is exp(u), others equal
u. The prior is on ``u``, so that the posterior is proper even for separable data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import Array
from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.minimization.optimize import Minimum, QuadraticModel, newton_on_host
from bayescal._core.random.nuts import run_chains
from bayescal._core.shapes import Float
from bayescal.regression.binary.compress import NODES, compress
from bayescal.regression.binary.heavy_tails import (
    Coordinates,
    LogisticLikelihood,
    draw_heavy_tailed,
    quantile_function,
)
from bayescal.regression.binary.objective import (
    BinaryDesign,
    CoefficientPrior,
    Distribution,
    Terms,
    cross_entropy_on_host,
)
from bayescal.regression.draws import Draws, antithetic, tempered_draws
from bayescal.regression.model import Sites, log_odds_sites, potential

#: Arrays by their axes.
PerDraw: TypeAlias = 'Float[np.ndarray, " draws"]'
DeviceTheta: TypeAlias = 'Float[jax.Array, " parameters"]'
PerPoint: TypeAlias = 'Float[jax.Array, " *points"]'
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'
Matrix: TypeAlias = 'Float[np.ndarray, "parameters parameters"]'

CHAINS = 4
_WARMUP = 200


class Target(NamedTuple):
    """The posterior of u, where coefficients are exp(u) if ``positive`` is one, else u.

    The NumPyro ``distribution``, of one u or of each, replaces the ``prior`` of those u for which
    ``distributed`` is one.
    """

    design: BinaryDesign[np.ndarray]
    positive: Float[Array, " parameters"]
    prior: CoefficientPrior
    distribution: Distribution | None = None
    distributed: Float[Array, " parameters"] | None = None
    #: Makes the sites of the NumPyro model; None: of its name for each parameter.
    sites: Callable[[], Sites] | None = None


class ScoreColumns(NamedTuple):
    """Scores of which all columns are smooth functions: ``columns(scores)``."""

    scores: Float[np.ndarray, " rows"]
    columns: Callable[[Float[np.ndarray, " rows"]], Float[np.ndarray, "parameters rows"]]


class Kinked(NamedTuple):
    """The mode under priors with a kink, where it is, and the inverse variance of each prior."""

    mode: Minimum[np.ndarray]
    kink: Theta
    precision: Theta


def find_mode(target: Target, kinked: Kinked | None = None) -> tuple[Minimum[np.ndarray], Matrix]:
    """Find the mode of u, unless it is given, and the negative log posterior's Hessian there.

    A parameter at the kink of its prior gets the curvature of a normal prior with its variance.
    """
    positive = target.positive > 0

    def objective(u: Theta) -> QuadraticModel[np.ndarray]:
        theta = _constrain(target, u)
        slope = np.where(positive, theta, 1.0)
        loss = cross_entropy_on_host(target.design, theta)
        value, gradient, diagonal = _prior_terms(target, u)
        curved = np.where(positive, loss.gradient * slope, 0.0)
        return QuadraticModel(
            loss.value + value,
            loss.gradient * slope + gradient,
            loss.hessian * slope[:, None] * slope + np.diag(curved + diagonal),
        )

    columns, weights = target.design.columns, target.design.weights
    with np.errstate(all="ignore"):
        if kinked is not None:
            x = kinked.mode.x
            curvature = np.where(x == kinked.kink, kinked.precision, 0.0)
            return kinked.mode, objective(x).hessian + np.diag(curvature)
        minimum = newton_on_host(
            objective,
            np.asarray(target.prior.center, float),
            scale=np.sum(weights),
            bound=0.25 * np.einsum("ij,ij,j->i", columns, columns, weights),
            tolerance=1e-13,
        )
        return minimum, objective(minimum.x).hessian


def _prior_terms(target: Target, u: Theta) -> tuple[Float[np.ndarray, ""], Theta, Theta]:
    """Compute the negative log prior of ``u``, and its first two derivatives."""
    terms = target.prior.loss(u)
    if target.distribution is not None and target.distributed is not None:
        where = np.asarray(target.distributed) > 0
        with float64():
            other = _prior_loss_compiled(target.distribution, jnp.asarray(u[where]))
        for term, values in zip(terms, other, strict=True):
            term[where] = values
    return np.sum(terms[0]), terms[1], terms[2]


@jax.jit
def _prior_loss_compiled(law: Distribution, b: DeviceTheta) -> Terms[DeviceTheta]:
    """Compute the negative log density of a NumPyro distribution and two derivatives, at ``b``."""

    def loss(values: DeviceTheta) -> DeviceTheta:
        with jax.numpy_dtype_promotion("standard"):
            return -law.log_prob(values)

    def slope(values: DeviceTheta) -> DeviceTheta:
        return jax.jvp(loss, (values,), (jnp.ones_like(values),))[1]

    return loss(b), slope(b), jax.jvp(slope, (b,), (jnp.ones_like(b),))[1]


def triangle(hessian: Matrix) -> Matrix:
    """Return F with F F' the inverse of the Hessian, after adding a ridge until it is positive."""
    ridge, p = 0.0, len(hessian)
    mean = max(float(np.trace(hessian)) / p, 1e-300)
    while True:
        try:
            lower = np.linalg.cholesky(hessian + ridge * np.eye(p))
            return np.linalg.solve(lower, np.eye(p)).T
        except np.linalg.LinAlgError:
            ridge = max(10 * ridge, 1e-10 * mean)


def sample(
    target: Target,
    inference: str,
    num_samples: int,
    seed: int,
    scored: ScoreColumns | None = None,
    kinked: Kinked | None = None,
) -> Draws:
    """Draw around the mode of u: by :func:`tempered_draws` for "laplace", else by NUTS.

    If the columns are functions of scores (``scored``), sums over rows are replaced by sums over
    nodes where these are accurate. A mode at a kink is given (``kinked``), as Newton's method finds
    none.
    """
    mode, hessian = find_mode(target, kinked)
    factor, status = triangle(hessian), int(mode.status)
    sums = _sums(target, mode.x, factor, scored)

    def log_density(u: Float[np.ndarray, "draws parameters"]) -> PerDraw:
        with float64():
            prior = _prior_value(target, u)
        return sums.values(_constrain(target, u)) - prior

    if inference == "laplace":
        size, weight = len(sums.weights), float(np.sum(sums.weights))
        law = target.distribution

        def heavy_tailed(
            count: int, rng: np.random.Generator
        ) -> tuple[Float[np.ndarray, "draws parameters"], Theta]:
            quantiles = None if law is None else quantile_function(law)
            if law is not None and quantiles is None:
                # No draw counts as effective, so that fits warn.
                return antithetic(mode.x, factor, count, seed), np.ones(len(factor))
            positive = np.asarray(target.positive) > 0
            where = None if target.distributed is None else np.asarray(target.distributed) > 0
            coordinates = Coordinates(target.prior, positive, quantiles, where)
            return draw_heavy_tailed(sums, coordinates, count, rng)

        refine = heavy_tailed if np.any(target.prior.cauchy) else None
        draws = tempered_draws(
            log_density, size, mode.x, factor, num_samples, seed, status, weight, refine
        )
    else:
        with float64():
            make = target.sites or partial(log_odds_sites, target.prior, target.positive)
            given = sums, make()
        draws = sample_whitened(_loss, given, mode.x, factor, num_samples, seed, status)
    return draws._replace(coefficients=_constrain(target, draws.coefficients))


def _prior_value(
    target: Target, u: Float[np.ndarray, "*draws parameters"]
) -> Float[np.ndarray, " *draws"]:
    """Compute the negative log prior of u."""
    terms = target.prior.loss(u)[0]
    if target.distribution is not None and target.distributed is not None:
        where = np.asarray(target.distributed) > 0
        with jax.numpy_dtype_promotion("standard"):
            terms[..., where] = -np.asarray(
                target.distribution.log_prob(jnp.asarray(u[..., where]))
            )
    return terms.sum(axis=-1)


def _constrain(
    target: Target, u: Float[np.ndarray, "*draws parameters"]
) -> Float[np.ndarray, "*draws parameters"]:
    positive = np.asarray(target.positive) > 0
    return np.where(positive, np.exp(np.where(positive, u, 0.0)), u)


def _loss(
    u: DeviceTheta, sums: LogisticLikelihood[jax.Array], sites: Sites
) -> Float[jax.Array, ""]:
    """Compute the potential of the NumPyro model at u."""
    return potential(sites, sums.loss, u)


@cache
def _whitened(loss: Callable[..., jax.Array]) -> Callable[..., Callable[[jax.Array], jax.Array]]:
    """Transform a loss to coordinates in which Laplace's approximation is standard normal."""

    def potential(*arguments: jax.Array) -> Callable[[jax.Array], jax.Array]:
        *given, mode, factor = arguments
        return lambda z: loss(mode + factor @ z, *given)

    return potential


def sample_whitened(
    loss: Callable[..., jax.Array],
    arguments: tuple[object, ...],
    mode: Theta,
    factor: Matrix,
    num_samples: int,
    seed: int,
    status: int = 0,
) -> Draws:
    """Draw u by the no-U-turn sampler, with four chains side by side.

    ``loss(u, *arguments)``, the negative log density, must be a function of a module, because
    compiled programs are cached by it.
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    with float64(), jax.numpy_dtype_promotion("standard"):
        given = jax.tree.map(jnp.asarray, (*arguments, mode, factor))
        z, diverging, _ = run_chains(
            _whitened(loss),
            given,
            given[-2],
            jax.random.key(seed),
            chains=CHAINS,
            warmup=_WARMUP,
            draws=-(-num_samples // CHAINS),
        )
        z, divergences = np.asarray(z), int(np.asarray(diverging).sum())
    u = mode + z @ factor.T
    ess, r_hat = np.asarray(effective_sample_size(u)), np.asarray(split_gelman_rubin(u))
    return Draws(u, ess, r_hat, divergences, status)


def _sums(
    target: Target, mode: Theta, factor: Matrix, scored: ScoreColumns | None
) -> LogisticLikelihood[np.ndarray]:
    """Return the sums over rows, or over nodes if the likelihood agrees to 1e-6."""
    design = target.design
    linear = design.columns @ (design.weights * design.targets)
    if scored is not None and len(scored.scores) > 4 * NODES:
        nodes, weights = compress(scored.scores, design.weights)
        columns = scored.columns(nodes)
        where = [mode, *(mode + 3 * s * direction for direction in factor.T for s in (-1, 1))]
        thetas = np.stack([_constrain(target, u) for u in where])
        exact = _softplus_sums(thetas, design.columns, design.weights)
        error = np.abs(_softplus_sums(thetas, columns, weights) - exact).max()
        if error < 1e-6:
            return LogisticLikelihood(columns, weights, linear)
    n = design.columns.shape[1]
    length = padded_length(n)
    columns = pad_axis(design.columns, length, 1)
    return LogisticLikelihood(columns, np.pad(design.weights, (0, length - n)), linear)


def _softplus_sums(
    thetas: Float[np.ndarray, "draws parameters"],
    columns: Float[np.ndarray, "parameters points"],
    weights: Float[np.ndarray, " points"],
) -> PerDraw:
    lines = (theta @ columns for theta in thetas)
    return np.array([weights @ np.logaddexp(0, line) for line in lines])
