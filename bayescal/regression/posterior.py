"""Posteriors of the coefficients of a logistic regression: weighted Laplace draws and NUTS.

The coefficients sampled are ``u``: a coefficient that must be positive is exp(u), all others are u
itself. The prior is on ``u``, so that the posterior is proper for separable data too.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import Array
from bayescal._core.nuts import run_chains
from bayescal._core.optimise import Minimum, Quadratic, newton
from bayescal._core.padding import pad_axis, padded_length
from bayescal._core.precision import float64
from bayescal.inference import smooth_log_weights
from bayescal.regression.compress import NODES, compress
from bayescal.regression.objective import (
    BinaryDesign,
    Distribution,
    Prior,
    Terms,
    cross_entropy_on_host,
    prior_loss,
)

CHAINS = 4
_WARMUP = 200
#: Of more parameters few draws would have all weight: Laplace's draws are left as they are.
MAX_WEIGHED = 30
#: Draws that tell whether the posterior is normal, and how far its logarithm may be from that.
_PILOT, _NORMAL = 32, 0.1
#: Degrees of freedom of what is drawn from, and where the axes are looked at, in deviations.
_FREEDOM, _STEPS = 5, np.array([0.5, 1.0, 2.0, 4.0])
#: Draws are made at most so often, until the effective size is this part of them.
_ROUNDS, _ENOUGH, _KERNELS = 5, 0.4, 100
_BLOCK = 1 << 16


class Target(NamedTuple):
    """What is sampled.

    Attributes
    ----------
    design : BinaryDesign
        Columns (p, n), targets and weights; where there is an intercept, one column is ones.
        Left out where the likelihood is given by its ``Sums``.
    positive : array of shape (p,)
        One where the coefficient is exp(u).
    prior : Prior
        Of u, each field of shape (p,).
    distribution : NumPyro distribution or None
        Prior of those u for which ``distributed`` (p,) is one, instead.
    distributed : array of shape (p,) or None
    """

    design: BinaryDesign
    positive: Array
    prior: Prior
    distribution: Distribution | None = None
    distributed: Array | None = None


class ScoreColumns(NamedTuple):
    """Scores (n,) of which all columns are smooth functions: ``columns(scores)`` (p, n)."""

    scores: np.ndarray
    columns: Callable[[np.ndarray], np.ndarray]


class Sums(NamedTuple):
    """The likelihood as a sampler sees it: theta . linear - sum(weights * softplus(line))."""

    columns: Array
    weights: Array
    linear: Array


class Draws(NamedTuple):
    """Draws (chains, draws, p) of coefficients, and what is known of their quality.

    ``ess`` and ``r_hat`` (p,) are those of NUTS. Draws that were weighted have the effective size
    of their weights and one, others their number. ``status`` says how the search for the mode
    ended, on which all rest. ``pareto_k`` is NaN without weights.
    """

    coefficients: np.ndarray
    ess: np.ndarray
    r_hat: np.ndarray
    divergences: int
    status: int
    pareto_k: float = np.nan


def find_mode(target: Target) -> tuple[Minimum[np.ndarray], np.ndarray]:
    """Return the mode of u, and the Hessian (p, p) of the negative log posterior there."""
    positive = target.positive > 0

    def objective(u: np.ndarray) -> Quadratic[np.ndarray]:
        theta = _constrain(target, u)
        slope = np.where(positive, theta, 1.0)
        loss = cross_entropy_on_host(target.design, theta)
        value, gradient, diagonal = _prior_terms(target, u)
        curved = np.where(positive, loss.gradient * slope, 0.0)
        return Quadratic(
            loss.value + value,
            loss.gradient * slope + gradient,
            loss.hessian * slope[:, None] * slope + np.diag(curved + diagonal),
        )

    columns, weights = target.design.columns, target.design.weights
    with np.errstate(all="ignore"):
        found = newton(
            objective,
            np.asarray(target.prior.centre, float),
            scale=np.sum(weights),
            bound=0.25 * np.einsum("ij,ij,j->i", columns, columns, weights),
            tolerance=1e-13,
            xp=np,
        )
        return found, objective(found.x).hessian


def _prior_terms(target: Target, u: np.ndarray) -> Terms[np.ndarray]:
    """Return the negative log prior of ``u`` and its first two derivatives, each (p,) but one."""
    terms = target.prior.loss(u, np)
    if target.distribution is not None and target.distributed is not None:
        with float64():
            other = _prior_loss_compiled(target.distribution, jnp.asarray(u))
        where = np.asarray(target.distributed) > 0
        terms = [np.where(where, np.asarray(b), a) for a, b in zip(terms, other, strict=True)]
    return np.sum(terms[0]), terms[1], terms[2]


_prior_loss_compiled = jax.jit(prior_loss)


def triangle(hessian: np.ndarray) -> np.ndarray:
    """Return a factor F with F F' the inverse of the Hessian, raised until it is positive."""
    ridge, p = 0.0, len(hessian)
    mean = max(float(np.trace(hessian)) / p, 1e-300)
    while True:
        try:
            lower = np.linalg.cholesky(hessian + ridge * np.eye(p))
            return np.linalg.solve(lower, np.eye(p)).T
        except np.linalg.LinAlgError:
            ridge = max(10 * ridge, 1e-10 * mean)


def laplace(
    target: Target, num_samples: int, seed: int, scored: ScoreColumns | None = None
) -> Draws:
    """Return draws by :func:`weighted_draws` around the mode of u; ``scored`` as for ``nuts``."""
    mode, hessian = find_mode(target)
    factor = triangle(hessian)
    sums = _sums(target, mode.x, factor, scored)

    def log_density(u: np.ndarray) -> np.ndarray:
        theta = _constrain(target, u)
        fit = theta @ sums.linear - _softplus_sums(theta, sums.columns, sums.weights)
        with float64():
            return fit - np.asarray(_prior_value(target, u, np))

    draws = weighted_draws(log_density, mode.x, factor, num_samples, seed, int(mode.status))
    return draws._replace(coefficients=_constrain(target, draws.coefficients))


def weighted_draws(
    log_density: Callable[[np.ndarray], np.ndarray],
    mode: np.ndarray,
    factor: np.ndarray,
    num_samples: int,
    seed: int,
    status: int = 0,
) -> Draws:
    """Return draws (1, num_samples, p) from a posterior of which Laplace's approximation is known.

    Where that is the posterior, as far as 32 draws of it say (log densities differ by 0.1), and for
    more than 30 parameters, they are its own, in pairs on both sides of the mode. Otherwise they
    are resampled by Pareto-smoothed importance weights from draws of Student's t with another scale
    on each side of each axis; as long as few have most of the weight, more are drawn from a mixture
    around these. Repeated draws stand together. O(num_samples) densities for each of up to five
    rounds.

    Parameters
    ----------
    log_density : callable
        Takes (s, p), returns (s,), up to a constant.
    mode, factor : arrays of shape (p,) and (p, p)
        Factor F of the covariance F F'.
    num_samples, seed, status : int

    References
    ----------
    J. Geweke (1989), Bayesian inference in econometric models using Monte Carlo integration; M.
    West (1993), Approximating posterior distributions by mixtures; A. Vehtari et al. (2024),
    Pareto smoothed importance sampling.
    """
    p = len(mode)
    top = float(log_density(mode[None])[0])

    def measure(z: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            value = log_density(mode + z @ factor.T) - top
        return np.where(np.isnan(value), -np.inf, value)

    known = Draws(np.empty(0), np.full(p, float(num_samples)), np.ones(p), 0, status)
    pilot = antithetic(np.zeros(p), np.eye(p), _PILOT, seed)
    if p > MAX_WEIGHED or np.std(measure(pilot) + 0.5 * np.sum(pilot**2, axis=1)) < _NORMAL:
        return known._replace(coefficients=antithetic(mode, factor, num_samples, seed)[None])
    rng = np.random.default_rng(seed)
    z, log_weights = _split_draws(measure, p, num_samples, rng)
    log_weights, k = smooth_log_weights(log_weights)
    places, parts = [z], [log_weights]
    for _ in range(_ROUNDS - 1):
        if _effective_size(log_weights) > _ENOUGH * num_samples:
            break
        z, log_weights = _mixture_draws(measure, z, log_weights, rng)
        log_weights, k = smooth_log_weights(log_weights)
        places.append(z)
        parts.append(log_weights)
    # Each round counts by its effective size.
    weights = np.concatenate([_normalized(own) * _effective_size(own) for own in parts])
    size = float(np.sum(weights) ** 2 / np.sum(weights**2))
    ticks = (np.arange(num_samples) + rng.random()) / num_samples * weights.sum()
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), ticks), len(weights) - 1)
    u = mode + np.concatenate(places)[chosen] @ factor.T
    ess = np.full(p, min(size, float(num_samples)))
    return known._replace(coefficients=u[None], ess=ess, pareto_k=k)


def _normalized(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _effective_size(log_weights: np.ndarray) -> float:
    return float(1 / np.sum(_normalized(log_weights) ** 2))


def _student(n: int, p: int, rng: np.random.Generator) -> np.ndarray:
    """Return draws (n, p) of Student's t."""
    return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(_FREEDOM, (n, 1)) / _FREEDOM)


def _student_log_density(square: np.ndarray, p: int) -> np.ndarray:
    return -0.5 * (_FREEDOM + p) * np.log1p(square / _FREEDOM)


def _split_draws(
    measure: Callable[[np.ndarray], np.ndarray], p: int, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws (n, p) with a scale for each side of each axis, and log weights (n,).

    The scale is the least with which the density along the axis never falls below the posterior.
    """
    steps = np.stack([sign * step * np.eye(p) for sign in (1, -1) for step in _STEPS])
    fall = -measure(steps.reshape(-1, p)).reshape(2, len(_STEPS), p)
    fall = np.clip(2 * fall / (_FREEDOM + 1), 1e-9, 500)
    scale = (_STEPS[:, None] / np.sqrt(_FREEDOM * np.expm1(fall))).max(axis=1).clip(0.2, 1e3)
    noise = _student(n, p, rng)
    upper = rng.random((n, p)) < scale[0] / scale.sum(axis=0)
    z = np.abs(noise) * np.where(upper, scale[0], -scale[1])
    return z, measure(z) - _student_log_density(np.sum(noise**2, axis=1), p)


def _mixture_draws(
    measure: Callable[[np.ndarray], np.ndarray],
    z: np.ndarray,
    log_weights: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws (n, p) from a mixture around weighted ones, and log weights (n,).

    Its covariance is theirs, as they are drawn together by as much as the kernels are wide.
    """
    n, p = z.shape
    weights = _normalized(log_weights)
    mean = weights @ z
    apart = (z - mean) * np.sqrt(weights)[:, None]
    covariance = apart.T @ apart
    covariance += 1e-6 * max(np.trace(covariance) / p, 1e-6) * np.eye(p)
    lower = np.linalg.cholesky(covariance)
    count = min(_KERNELS, n)
    width = (4 / (p + 2) / min(count, _effective_size(log_weights))) ** (1 / (p + 4))
    width = min(width, 1.0)
    ticks = (np.arange(count) + rng.random()) / count
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), ticks), n - 1)
    centres = np.linalg.solve(lower, (z[chosen] - mean).T).T * np.sqrt(1 - width**2)
    x = centres[np.arange(n) % count] + width * _student(n, p, rng)
    square = np.sum(x**2, axis=1)[:, None] + np.sum(centres**2, axis=1) - 2 * x @ centres.T
    each = _student_log_density(np.maximum(square, 0) / width**2, p)
    z = mean + x @ lower.T
    return z, measure(z) - np.logaddexp.reduce(each, axis=1)


def _prior_value(target: Target, u: Array, xp: ModuleType) -> Array:
    """Return the negative log prior (...) of u (..., p)."""
    terms = target.prior.loss(u, xp)[0]
    if target.distribution is not None and target.distributed is not None:
        with jax.numpy_dtype_promotion("standard"):
            other = -target.distribution.log_prob(jnp.asarray(u))
        terms = xp.where(target.distributed > 0, other, terms)
    return terms.sum(axis=-1)


def _constrain(target: Target, u: np.ndarray) -> np.ndarray:
    positive = target.positive > 0
    return np.where(positive, np.exp(np.where(positive, u, 0.0)), u)


@jax.custom_jvp
def _softplus(line: jax.Array) -> jax.Array:
    return jnp.maximum(line, 0) + jnp.log1p(jnp.exp(-jnp.abs(line)))


@_softplus.defjvp
def _softplus_jvp(
    primals: tuple[jax.Array], tangents: tuple[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    # By hand, so that one exponential serves the value and the derivative.
    (line,) = primals
    small = jnp.exp(-jnp.abs(line))
    larger = 1 / (1 + small)
    probability = jnp.where(line >= 0, larger, small * larger)
    return jnp.maximum(line, 0) + jnp.log1p(small), probability * tangents[0]


def _potential(
    sums: Sums, target: Target, centre: jax.Array, factor: jax.Array
) -> Callable[[jax.Array], jax.Array]:
    """Return the negative log posterior in coordinates where Laplace's is standard normal."""

    def potential(z: jax.Array) -> jax.Array:
        u = centre + factor @ z
        positive = target.positive > 0
        theta = jnp.where(positive, jnp.exp(jnp.where(positive, u, 0.0)), u)
        loss = jnp.sum(sums.weights * _softplus(theta @ sums.columns)) - theta @ sums.linear
        return loss + _prior_value(target, u, jnp)

    return potential


def sample_whitened(
    potential: Callable[..., Callable[[jax.Array], jax.Array]],
    arguments: tuple[object, ...],
    mode: np.ndarray,
    factor: np.ndarray,
    num_samples: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return draws u (chains, draws, p), effective sizes, R-hats (p,) and divergences of NUTS.

    ``potential(*arguments, mode, factor)`` is a function of z, where u = mode + factor z.
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    with float64(), jax.numpy_dtype_promotion("standard"):
        given = jax.tree.map(jnp.asarray, (*arguments, mode, factor))
        draws = -(-num_samples // CHAINS)
        z, diverging, _ = run_chains(
            potential,
            given,
            given[-2],
            jax.random.key(seed),
            chains=CHAINS,
            warmup=_WARMUP,
            draws=draws,
        )
        z, divergences = np.asarray(z), int(np.asarray(diverging).sum())
    u = mode + z @ factor.T
    ess, r_hat = np.asarray(effective_sample_size(u)), np.asarray(split_gelman_rubin(u))
    return u, ess, r_hat, divergences


def antithetic(mode: np.ndarray, factor: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
    """Return draws (num_samples, p) of N(mode, factor factor') in pairs on both sides of it."""
    p = len(factor)
    half = np.random.default_rng(seed).normal(size=(-(-num_samples // 2), p))
    noise = np.concatenate([half, -half])[:num_samples]
    return mode + noise @ factor.T


def nuts(target: Target, num_samples: int, seed: int, scored: ScoreColumns | None = None) -> Draws:
    """Return draws by the no-U-turn sampler, four chains side by side.

    ``scored`` (optional) are the scores that the columns are functions of: then sums over rows are
    replaced by sums over nodes, where these are as good.
    """
    mode, hessian = find_mode(target)
    factor = triangle(hessian)
    sums = _sums(target, mode.x, factor, scored)
    arguments = (sums, target._replace(design=None))
    u, ess, r_hat, divergences = sample_whitened(
        _potential, arguments, mode.x, factor, num_samples, seed
    )
    return Draws(_constrain(target, u), ess, r_hat, divergences, int(mode.status))


def _sums(
    target: Target, mode: np.ndarray, factor: np.ndarray, scored: ScoreColumns | None
) -> Sums:
    """Return the sums over rows, over nodes where the likelihood is the same to 1e-6."""
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
            return Sums(columns, weights, linear)
    n = design.columns.shape[1]
    length = padded_length(n)
    columns = pad_axis(design.columns, length, 1)
    return Sums(columns, np.pad(design.weights, (0, length - n)), linear)


def _softplus_sums(thetas: np.ndarray, columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sums (s,) over rows for each of the parameters (s, p), a few at a time."""
    total = np.empty(len(thetas))
    step = max(1, _BLOCK // len(weights))
    for first in range(0, len(thetas), step):
        part = slice(first, first + step)
        line = thetas[part] @ columns
        loss = np.log1p(np.exp(-np.abs(line))) + np.maximum(line, 0)
        total[part] = loss @ weights
    return total
