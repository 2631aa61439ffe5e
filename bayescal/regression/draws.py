"""Draws from a posterior for which Laplace's approximation is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.numerics import effective_size
from bayescal._core.shapes import Float, Int

#: Number of parameters above which particles would be too few: Laplace's draws are not improved.
MAX_TEMPERED = 30
#: Number of draws with which normality is checked, and the largest standard deviation of the
#: difference of log densities that counts as normal, per root of the number of parameters.
_PILOT, _NORMAL = 64, 0.05
#: Deviation from normality above which Laplace's approximation of a logistic regression under
#: Cauchy priors is off by 0.02 to 0.13 in probability.
_POOR = 0.25
#: Largest number of parameters of ``refine``, and of their product with the numbers in a density: a
#: thousand draws take at most some ten seconds.
MAX_REFINED, _MAX_REFINED_NUMBERS = 100, 1 << 14
#: Number of parameters up to which particles reach the tails without ``refine``. With eleven and 20
#: rows, intervals of 90 % from such particles cover 84 %.
_FEW = 3
#: Total weights above which log densities are too inaccurate, because their errors per row are
#: 1e-7 in single precision, and 1e-12 times the log odds in double precision.
_MAX_SINGLE_WEIGHT, _MAX_WEIGHT = 1e5, 1e9
#: Deviation from normality by rounding in double precision, per unit of weight: 3e-16 was measured.
_NOISE = 1e-15
#: Cauchy distribution from which particles start: smallest and largest scale, and the deviation
#: from normality that requires the largest scale.
_WIDTHS, _FAR = (1.1, 5.0), 0.3
_PARTICLES, _MOVES, _STAGES, _ENOUGH = 256, 4, 30, 0.2
#: Largest plausible move of the particles' median, in scales of their start.
_LOST = 4
#: Numbers in memory at once, and the least log density relative to the mode.
_BLOCK, _MIN_LOG_DENSITY = 1 << 16, -1000.0

#: A function of a number of draws and a generator, which returns draws and effective sizes.
Refine: TypeAlias = Callable[
    [int, np.random.Generator],
    tuple[Float[np.ndarray, "draws parameters"], Float[np.ndarray, " parameters"]],
]


def density_type(weight: float) -> type[np.float32] | type[np.float64]:
    """Return the type that suffices for log densities of rows with this total weight."""
    return np.float32 if weight <= _MAX_SINGLE_WEIGHT else np.float64


class Draws(NamedTuple):
    """Draws of coefficients, and diagnostics of their quality.

    Draws that are not by NUTS are a single chain with ``r_hat`` one; the ``ess`` of independent
    draws is their number. ``status`` is that of the search for the mode, on which all draws depend.
    """

    coefficients: Float[np.ndarray, "chains draws parameters"]
    ess: Float[np.ndarray, " parameters"]
    r_hat: Float[np.ndarray, " parameters"]
    divergences: int
    status: int


def one_chain(draws: Float[np.ndarray, "draws parameters"], status: int = 0) -> Draws:
    """Wrap independent draws as one chain with its diagnostics."""
    n, p = draws.shape
    return Draws(draws[None], np.full(p, float(n)), np.ones(p), 0, status)


def antithetic(
    mode: Float[np.ndarray, " parameters"],
    factor: Float[np.ndarray, "parameters parameters"],
    num_samples: int,
    seed: int,
) -> Float[np.ndarray, "draws parameters"]:
    """Draw from N(mode, factor factor') in pairs on both sides of the mode."""
    p = len(factor)
    half = np.random.default_rng(seed).normal(size=(-(-num_samples // 2), p))
    noise = np.concatenate([half, -half])[:num_samples]
    return mode + noise @ factor.T


def tempered_draws(
    log_density: Callable[[Float[np.ndarray, "draws parameters"]], Float[np.ndarray, " draws"]],
    numbers: int,
    mode: Float[np.ndarray, " parameters"],
    factor: Float[np.ndarray, "parameters parameters"],
    num_samples: int,
    seed: int,
    status: int = 0,
    weight: float = 0.0,
    refine: Refine | None = None,
) -> Draws:
    """Draw by Laplace's approximation, or by sequential Monte Carlo.

    Draws come from Laplace's approximation, in pairs on both sides of the mode, if 64 of them show
    that it is accurate (log densities differ with a standard deviation below 0.05 sqrt(p)), if
    there are more than 30 parameters and no ``refine``, or if the rows have more ``weight`` than
    1e9, or than 1e5 if there are more than 16,384 ``numbers``, because double precision takes too
    long. Otherwise particles start from a wide Cauchy distribution, because Cauchy priors of
    separable labels leave heavy tails. In a stage they are resampled by importance weights, a power
    of the density ratio that leaves half of them effective, and moved by Metropolis-Hastings steps
    along differences of other particles.

    ``log_density`` is known up to a constant, takes ``numbers`` numbers in memory for each draw,
    and is computed in the :func:`density_type` of the ``weight``; ``factor`` is F of the covariance
    F F'. ``refine`` makes the draws where these particles have not converged, and for more than
    three parameters where the standard deviation is above 0.25 sqrt(p); it takes up to 100
    parameters, and 16,384 for parameters times ``numbers``. Beyond 0.25 sqrt(p), none of Laplace's
    draws counts as effective if there is a ``refine`` that cannot be used.

    Stages follow Del Moral, Doucet and Jasra (2006), Sequential Monte Carlo samplers; moves follow
    ter Braak (2006); effective sizes follow Lee and Whiteley (2018), Variance estimation in
    particle filters.
    """
    p, block = len(mode), max(1, _BLOCK // numbers)

    def measure(z: Float[np.ndarray, "particles parameters"]) -> Float[np.ndarray, " particles"]:
        u = mode + z @ factor.T
        value = np.concatenate([log_density(u[i : i + block]) for i in range(0, len(u), block)])
        return np.fmax(value - top, _MIN_LOG_DENSITY)

    with np.errstate(all="ignore"):
        top = log_density(mode[None])
        pilot = antithetic(np.zeros(p), np.eye(p), _PILOT, seed)
        excess = np.std(measure(pilot) + 0.5 * np.sum(pilot**2, axis=1)) / np.sqrt(p)
        many, noise = p > MAX_TEMPERED, _NOISE * weight
        poor = refine is not None and excess > _POOR + noise
        few = p <= MAX_REFINED and numbers * p <= _MAX_REFINED_NUMBERS
        slow = weight > _MAX_SINGLE_WEIGHT and numbers > _MAX_REFINED_NUMBERS
        huge = weight > _MAX_WEIGHT
        if excess < _NORMAL or (many and not (poor and few)) or slow or huge:
            draws = one_chain(antithetic(mode, factor, num_samples, seed), status)
            unknown = poor and (many or slow or huge)
            return draws._replace(ess=np.ones(p)) if unknown else draws
        rng, count = np.random.default_rng(seed), max(num_samples, _PARTICLES)
        u, ess = np.empty((0, p)), np.ones(p)
        if not (many or (poor and few and p > _FEW)):
            # The less normal the posterior, the wider the start; with many parameters a wide start
            # costs more stages.
            far = excess / _FAR if excess < _FAR else 1.0
            width = max(_WIDTHS[0], 1 + (_WIDTHS[1] - 1) * (far * min(1, 3 / p)) ** 2)
            z, ess = _particles(measure, factor, width, count, rng)
            u = mode + z @ factor.T
        if refine is not None and few and ess.min() <= _ENOUGH * count:
            u, ess = refine(count, rng)
    draws = one_chain(rng.permutation(u)[:num_samples], status)
    return draws._replace(ess=np.minimum(ess, num_samples))


def _particles(
    measure: Callable[[Float[np.ndarray, "particles parameters"]], Float[np.ndarray, " particles"]],
    factor: Float[np.ndarray, "parameters parameters"],
    width: float,
    n: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "particles parameters"], Float[np.ndarray, " parameters"]]:
    """Run the stages; return particles z, and effective sizes of means of z F'."""
    p = len(factor)

    def begin(z: Float[np.ndarray, "particles parameters"]) -> Float[np.ndarray, " particles"]:
        return -(1 + p) / 2 * np.log1p(np.sum(z**2, axis=1) / width**2)

    z = width * rng.normal(size=(n, p)) / np.abs(rng.normal(size=(n, 1)))
    origin, ess, heat = np.arange(n), np.ones(p), 0.0
    first, last = begin(z), measure(z)
    for stage in range(_STAGES):
        step, chosen = resample(last - first, 1 - heat, stage >= _STAGES // 2, rng)
        heat += step
        z, origin, first, last = z[chosen], origin[chosen], first[chosen], last[chosen]
        ess = effective_sizes((z - z.mean(axis=0)) @ factor.T, origin)
        if heat == 1 and ess.min() > _ENOUGH * n:
            break
        for _ in range(_MOVES):
            length = 2.38 / np.sqrt(2 * p) * rng.choice([0.3, 1.0], (n, 1))
            new = z + length * (z[rng.permutation(n)] - z[rng.permutation(n)])
            ends = begin(new), measure(new)
            gain = (1 - heat) * (ends[0] - first) + heat * (ends[1] - last)
            taken = np.log(rng.random(n)) < gain
            z[taken], first[taken], last[taken] = new[taken], ends[0][taken], ends[1][taken]
    # Particles most of which moved this far have not converged.
    failed = np.abs(np.median(z, axis=0)).max() > _LOST * width
    return z, np.ones(p) if failed else np.maximum(ess, 1)


def resample(
    log_ratio: Float[np.ndarray, " particles"], rest: float, last: bool, rng: np.random.Generator
) -> tuple[float, Int[np.ndarray, " particles"]]:
    """Choose the power of a density ratio, at most ``rest``, and resample particles by it.

    The power leaves half of the particles effective, unless it must be the last. Returns it and the
    indices of the particles.
    """
    n = len(log_ratio)
    step = rest
    while not last and _size(step * log_ratio) < n / 2:
        step /= 2
    total = np.cumsum(np.exp(step * (log_ratio - np.max(log_ratio))))
    return step, np.searchsorted(total, (np.arange(n) + rng.random()) / n * total[-1])


def effective_sizes(
    deviation: Float[np.ndarray, "particles parameters"], origin: Int[np.ndarray, " particles"]
) -> Float[np.ndarray, " parameters"]:
    """Compute effective sizes of means from sums of deviations with a common origin."""
    n = len(deviation)
    by_origin = np.zeros_like(deviation)
    np.add.at(by_origin, origin, deviation)
    ess = n * np.sum(deviation**2, axis=0) / np.maximum(np.sum(by_origin**2, axis=0), 1e-300)
    # The mean of few origins is close to each of them.
    return ess * (1 - np.sum((np.bincount(origin) / n) ** 2))


def _size(log_weights: Float[np.ndarray, " particles"]) -> float:
    weights = np.exp(log_weights - log_weights.max())
    return float(effective_size(weights.sum(), np.sum(weights**2)))
