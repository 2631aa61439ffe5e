"""Draws from a posterior near Laplace's approximation, by importance weights."""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, log
from typing import NamedTuple

import numpy as np

from bayescal.inference import smooth_log_weights

#: Of more parameters few draws would have all weight: Laplace's draws are left as they are.
MAX_WEIGHED = 30
#: Draws that tell whether the posterior is normal, and how far its logarithm may be from that,
#: times the root of the number of parameters, among which this is shared.
_PILOT, _NORMAL = 32, 0.07
#: Degrees of freedom of what is drawn from, and where the axes are looked at, in deviations.
_FREEDOM, _STEPS = 5, np.array([0.5, 1.0, 2.0, 4.0])
#: Draws are made at most so often, until the effective size is this part of them.
_ROUNDS, _ENOUGH, _KERNELS, _WIDE = 5, 0.5, 100, 2.0
#: Averages over weights of a heavier tail are unreliable.
GOOD_K = 0.7


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


def antithetic(mode: np.ndarray, factor: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
    """Return draws (num_samples, p) of N(mode, factor factor') in pairs on both sides of it."""
    p = len(factor)
    half = np.random.default_rng(seed).normal(size=(-(-num_samples // 2), p))
    noise = np.concatenate([half, -half])[:num_samples]
    return mode + noise @ factor.T


def weighted_draws(
    log_density: Callable[[np.ndarray], np.ndarray],
    mode: np.ndarray,
    factor: np.ndarray,
    num_samples: int,
    seed: int,
    status: int = 0,
) -> Draws:
    """Return draws (1, num_samples, p) from a posterior of which Laplace's approximation is known.

    Where that is the posterior, as far as 32 draws of it say (log densities differ with a standard
    deviation below 0.07 sqrt(p)), and for more than 30 parameters, they are its own, in pairs on
    both sides of the mode. Otherwise they are resampled by Pareto-smoothed importance weights from
    draws of Student's t, with another scale on each side of each axis; as long as few have most of
    the weight, more are drawn from a mixture around these. Repeated draws stand together.
    O(num_samples) densities for each of up to five rounds.

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
    excess = measure(pilot) + 0.5 * np.sum(pilot**2, axis=1) if p <= MAX_WEIGHED else np.zeros(1)
    if np.all(np.isfinite(excess)) and np.std(excess) < _NORMAL * np.sqrt(p):
        return known._replace(coefficients=antithetic(mode, factor, num_samples, seed)[None])
    rng = np.random.default_rng(seed)
    places, parts = [], []
    for number in range(_ROUNDS):
        if number == 0:
            z, raw = _split_draws(measure, p, num_samples, rng)
        else:
            z, raw = _mixture_draws(measure, z, smooth, rng)
        smooth, k = smooth_log_weights(raw)
        size = _effective_size(smooth)
        places.append(z)
        # Each round counts by its effective size.
        parts.append(raw - np.logaddexp.reduce(raw) + np.log(size))
        if size > _ENOUGH * num_samples and not k > GOOD_K:
            break
    smooth, k = smooth_log_weights(np.concatenate(parts))
    weights, size = _normalized(smooth), _effective_size(smooth)
    order = rng.permutation(len(weights))
    chosen = order[_resample(weights[order], num_samples, rng)]
    u = mode + np.concatenate(places)[chosen] @ factor.T
    ess = np.full(p, min(size, float(num_samples)))
    return known._replace(coefficients=u[None], ess=ess, pareto_k=k)


def _normalized(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def _effective_size(log_weights: np.ndarray) -> float:
    return float(1 / np.sum(_normalized(log_weights) ** 2))


def _student(
    n: int, p: int, rng: np.random.Generator, freedom: float | np.ndarray = _FREEDOM
) -> np.ndarray:
    """Return draws (n, p) of Student's t."""
    return rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(freedom, (n, 1)) / freedom)


def _student_log_density(square: np.ndarray, p: int, freedom: float = _FREEDOM) -> np.ndarray:
    constant = lgamma((freedom + p) / 2) - lgamma(freedom / 2) - p / 2 * log(freedom)
    return constant - 0.5 * (freedom + p) * np.log1p(square / freedom)


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

    The covariance of its narrow parts together is theirs, as their centres are moved to the mean by
    as much as they are wide. A quarter is drawn from a Cauchy distribution, for what was
    missed.
    """
    n, p = z.shape
    weights = _normalized(log_weights)
    mean = weights @ z
    apart = (z - mean) * np.sqrt(weights)[:, None]
    covariance = apart.T @ apart
    covariance += 1e-6 * max(np.trace(covariance) / p, 1e-6) * np.eye(p)
    lower = np.linalg.cholesky(covariance)
    size = min(_KERNELS, _effective_size(log_weights))
    narrow = min(1.0, (4 / (p + 2) / size) ** (1 / (p + 4)))
    chosen = _resample(weights, min(_KERNELS, n), rng)
    centres = np.linalg.solve(lower, (z[chosen] - mean).T).T * np.sqrt(1 - narrow**2)
    count = len(centres)
    wide = n // 4
    near = centres[np.arange(n - wide) % count] + narrow * _student(n - wide, p, rng)
    x = np.concatenate([_WIDE * _student(wide, p, rng, 1), near])
    square = np.sum(x**2, axis=1)
    apart = square[:, None] + np.sum(centres**2, axis=1) - 2 * x @ centres.T
    each = _student_log_density(np.maximum(apart, 0) / narrow**2, p)
    near = np.logaddexp.reduce(each, axis=1) - np.log(count) - p * np.log(narrow)
    far = _student_log_density(square / _WIDE**2, p, 1) - p * np.log(_WIDE)
    with np.errstate(divide="ignore"):
        mixed = np.logaddexp(np.log1p(-wide / n) + near, np.log(wide / n) + far)
    z = mean + x @ lower.T
    return z, measure(z) - mixed


def _resample(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return positions (count,) by weights (n,), systematically, in their order."""
    ticks = (np.arange(count) + rng.random()) / count * weights.sum()
    return np.minimum(np.searchsorted(np.cumsum(weights), ticks), len(weights) - 1)
