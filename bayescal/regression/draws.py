"""Draws from a posterior of which Laplace's approximation is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bayescal._core.numerics import effective_size

#: Particles of more parameters are too few: Laplace's draws are left as they are.
MAX_TEMPERED = 30
#: Draws that tell whether the posterior is normal, and how far its logarithm may be from that,
#: times the root of the number of parameters, among which this is shared.
_PILOT, _NORMAL = 64, 0.05
#: Of log densities with an error of 1e-7 for each row, the weight of rows that tells them apart.
_HEAVY = 1e5
#: Of Student's t, from which particles start: the least and the largest scale, how far from normal
#: a posterior must be for the latter, and the degrees of freedom.
_WIDTHS, _FAR, _FREEDOM = (1.1, 5.0), 0.3, 5
_PARTICLES, _MOVES, _STAGES, _ENOUGH = 256, 4, 30, 0.2
#: Standard deviations of the beginning that the mean of particles may move.
_LOST = 4
#: Numbers in memory at once, and the least log density, less that at the mode.
_BLOCK, _LEAST = 1 << 16, -1000.0


class Draws(NamedTuple):
    """Draws (chains, draws, p) of coefficients, and what is known of their quality.

    ``ess`` and ``r_hat`` (p,) are those of NUTS. Others have no more chains than one, of which
    ``r_hat`` is one; ``ess`` of independent draws is their number. ``status`` says how the search
    for the mode ended, on which all rest.
    """

    coefficients: np.ndarray
    ess: np.ndarray
    r_hat: np.ndarray
    divergences: int
    status: int


def one_chain(draws: np.ndarray, status: int = 0) -> Draws:
    """Return independent draws (num_samples, p), and what is known of them."""
    n, p = draws.shape
    return Draws(draws[None], np.full(p, float(n)), np.ones(p), 0, status)


def antithetic(mode: np.ndarray, factor: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
    """Return draws (num_samples, p) of N(mode, factor factor') in pairs on both sides of it."""
    p = len(factor)
    half = np.random.default_rng(seed).normal(size=(-(-num_samples // 2), p))
    noise = np.concatenate([half, -half])[:num_samples]
    return mode + noise @ factor.T


def tempered_draws(
    log_density: Callable[[np.ndarray], np.ndarray],
    numbers: int,
    mode: np.ndarray,
    factor: np.ndarray,
    num_samples: int,
    seed: int,
    status: int = 0,
    weight: float = 0.0,
) -> Draws:
    """Return draws (1, num_samples, p) by sequential Monte Carlo, or by Laplace's approximation.

    Where this is the posterior, as far as 64 draws of it say (log densities differ with a standard
    deviation below 0.05 sqrt(p)), for more than 30 parameters, and for rows of more ``weight`` than
    1e5, of which single precision says too little, draws are its own, in pairs on both sides of the
    mode. Otherwise particles start from a wide Student's t, and reach the posterior by stages: they
    are resampled by importance weights, a power of the density's ratio of which half are effective,
    and, unless that suffices, moved by Metropolis-Hastings steps along differences of others. The
    effective size is that of means, from sums over particles of one origin. O(num_samples)
    densities, and for each of four moves in each of up to 30 stages.

    ``log_density`` takes (s, p), returns (s,), up to a constant, by ``numbers`` numbers in memory
    for each; ``factor`` is F (p, p) of the covariance F F'.

    Stages are those of Del Moral, Doucet and Jasra (2006), Sequential Monte Carlo samplers, moves
    of ter Braak (2006), sizes of Lee and Whiteley (2018), Variance estimation in particle filters.
    """
    p, block = len(mode), max(1, _BLOCK // numbers)

    def measure(z: np.ndarray) -> np.ndarray:
        u = mode + z @ factor.T
        value = np.concatenate([log_density(u[i : i + block]) for i in range(0, len(u), block)])
        return np.fmax(value - top, _LEAST)

    with np.errstate(all="ignore"):
        top = log_density(mode[None])
        pilot = antithetic(np.zeros(p), np.eye(p), _PILOT, seed)
        excess = np.std(measure(pilot) + 0.5 * np.sum(pilot**2, axis=1)) / np.sqrt(p)
        if excess < _NORMAL or p > MAX_TEMPERED or weight > _HEAVY:
            return one_chain(antithetic(mode, factor, num_samples, seed), status)
        rng = np.random.default_rng(seed)
        # As wide as the posterior is far from normal; of many parameters width costs more stages.
        far = excess / _FAR if excess < _FAR else 1.0
        width = max(_WIDTHS[0], 1 + (_WIDTHS[1] - 1) * (far * min(1, 3 / p)) ** 2)
        z, ess = _particles(measure, factor, width, max(num_samples, _PARTICLES), rng)
    known = one_chain(mode + rng.permutation(z)[:num_samples] @ factor.T, status)
    return known._replace(ess=np.minimum(ess, num_samples))


def _particles(
    measure: Callable[[np.ndarray], np.ndarray],
    factor: np.ndarray,
    width: float,
    n: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return particles (n, p), and effective sizes (p,) of means of their products with F'."""
    p = len(factor)

    def begin(z: np.ndarray) -> np.ndarray:
        return -(_FREEDOM + p) / 2 * np.log1p(np.sum(z**2, axis=1) / (_FREEDOM * width**2))

    z = width * rng.normal(size=(n, p)) / np.sqrt(rng.chisquare(_FREEDOM, (n, 1)) / _FREEDOM)
    origin, ess, heat = np.arange(n), np.ones(p), 0.0
    first, last = begin(z), measure(z)
    for stage in range(_STAGES):
        step = 1 - heat
        while stage < _STAGES // 2 and _size(step * (last - first)) < n / 2:
            step /= 2
        heat += step
        # Systematic resampling.
        total = np.cumsum(np.exp(step * (last - first - np.max(last - first))))
        chosen = np.searchsorted(total, (np.arange(n) + rng.random()) / n * total[-1])
        z, origin, first, last = z[chosen], origin[chosen], first[chosen], last[chosen]
        apart = (z - z.mean(axis=0)) @ factor.T
        together = np.zeros((n, p))
        np.add.at(together, origin, apart)
        ess = n * np.sum(apart**2, axis=0) / np.maximum(np.sum(together**2, axis=0), 1e-300)
        # Few origins are close to their own mean.
        ess *= 1 - np.sum((np.bincount(origin) / n) ** 2)
        if heat == 1 and ess.min() > _ENOUGH * n:
            break
        for _ in range(_MOVES):
            length = 2.38 / np.sqrt(2 * p) * rng.choice([0.3, 1.0], (n, 1))
            new = z + length * (z[rng.permutation(n)] - z[rng.permutation(n)])
            ends = begin(new), measure(new)
            gain = (1 - heat) * (ends[0] - first) + heat * (ends[1] - last)
            taken = np.log(rng.random(n)) < gain
            z[taken], first[taken], last[taken] = new[taken], ends[0][taken], ends[1][taken]
    # So far from where they began they have not arrived.
    lost = np.abs(z.mean(axis=0)).max() > _LOST * width
    return z, np.ones(p) if lost else np.maximum(ess, 1)


def _size(log_weights: np.ndarray) -> float:
    weights = np.exp(log_weights - log_weights.max())
    return float(effective_size(weights.sum(), np.sum(weights**2)))
