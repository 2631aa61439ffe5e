"""Posterior of the class proportions (shares) of new rows, whose labels are unknown.

Rows of a population with shares rho have the likelihood ``sum_y p(y | x) rho_y / pi_y``. It is
integrated separately for every draw of the calibrator: by quadrature over the log odds of the
shares for two classes, by importance sampling from a t distribution at the mode for more. New rows
do not reweight the draws of the calibrator, because misfit would count as evidence.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from bayescal._core.arrays import AnyArray, Array, XArray, namespace, on_host
from bayescal._core.execution.padding import pad_axis
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax
from bayescal._core.numerics import log_odds, log_softmax, sigmoid, softmax
from bayescal.deployment.recalibration import NUM_DRAWS, Recalibration, merge_rows, recalibrated

#: Log odds beyond which shares are zero or one, and negligible log ratios.
_FAR, _FAR_RATIO = 16.0, 60.0
#: Nodes of a search and of the rule, and the fall of the log density at the ends after a search.
_SEARCH_NODES, _NODES = 21, 81
_SEARCH_FALLS = 40.0, 40.0, 40.0, 18.0
#: Points per draw at which predictions are made, for two classes and for more.
_BINARY_POINTS, _POINTS = 8, 4
#: Half of the number of proposals per draw (the other half are reflected), and degrees of freedom:
#: also for concentrations below one, where log shares have long tails.
_PAIRS, _FREEDOM = 16, 5.0
_SPARSE_PAIRS, _SPARSE_FREEDOM = 128, 1.0
#: Steps to the mode: of expectation maximization, then of Newton's method; and its step lengths.
_EM_STEPS, _NEWTON_STEPS = 3, 25
_LENGTHS = np.array([1.0, 0.5, 0.2, 0.05, 0.0])
_CLOSE = 1e-7
#: Levels at which quantiles of shares are kept: even steps of a normal variable.
LEVELS = ndtr(np.linspace(-4.5, 4.5, 181))
#: Number of populations in one compiled call.
_POPULATIONS_AT_ONCE = 16


class Population(NamedTuple):
    """New rows of one population: log probabilities (m, k) and positive counts (m,)."""

    log_probs: np.ndarray
    counts: np.ndarray


class Shares(NamedTuple):
    """The posterior of the shares of g populations.

    Attributes
    ----------
    mean : array of shape (g, k)
    quantiles : array of shape (g, k, levels)
        At :data:`LEVELS`.
    at_zero : array of shape (g, k)
        Whether the density of a share is largest at zero.
    log_points : array of shape (g, draws, points, k)
        Log shares at which predictions are made, with equal weights.
    """

    mean: np.ndarray
    quantiles: np.ndarray
    at_zero: np.ndarray
    log_points: np.ndarray


def known_shares(shares: np.ndarray, count: int, draws: int) -> Shares:
    """Return known class shares (k,) in the form of a posterior."""
    k = len(shares)
    return Shares(
        np.tile(shares, (count, 1)),
        np.broadcast_to(shares[:, None], (count, k, len(LEVELS))).copy(),
        np.zeros((count, k), bool),
        np.broadcast_to(np.log(shares), (count, draws, 1, k)),
    )


# --- two classes --------------------------------------------------------------------------------


def integrate_shares(
    populations: list[Population],
    recalibration: Recalibration,
    alpha: np.ndarray,
    rng: np.random.Generator,
) -> Shares:
    """Integrate the shares of all populations under a Dirichlet prior (k,).

    One population is integrated by NumPy, several by one compiled program.
    """
    if len(alpha) > 2:
        return _integrate_many(populations, recalibration, alpha, rng)
    sizes = [len(population.counts) for population in populations]
    owner = np.repeat(np.arange(len(populations)), sizes)
    values = np.concatenate([log_odds(population.log_probs) for population in populations])
    rows = np.concatenate([population.counts for population in populations])
    if len(populations) == 1:
        cells, counts = merge_rows(values, rows)
        counts = counts[None]
    else:
        cells, counts = _count_cells(values, rows, owner, len(populations))
    pairs = np.stack([np.zeros_like(cells), cells], axis=1)
    moved = recalibrated(recalibration.theta, log_softmax(pairs))
    moved = moved - recalibration.log_shares[:, None, :]
    ratio = np.exp(np.clip(moved[..., 1] - moved[..., 0], -_FAR_RATIO, _FAR_RATIO))
    if len(populations) == 1:
        nodes, masses = (part[None] for part in _binary_nodes(ratio, counts[0], alpha))
    else:
        with float64():
            nodes, masses = map(np.asarray, _binary_nodes_of_many(ratio, counts, alpha))
    at_zero = _at_zero(nodes, masses)
    masses = _with_tails(nodes, masses, alpha)
    half = (nodes[..., 1:2] - nodes[..., :1]) / 2
    edges = np.concatenate([nodes - half, nodes[..., -1:] + half], axis=-1)
    below = np.cumsum(np.concatenate([0 * half, masses], axis=-1), axis=-1)
    points = _quantiles(edges, below, _even_levels(_BINARY_POINTS, rng))
    log_points = np.stack([_log_sigmoid(-points), _log_sigmoid(points)], axis=-1)
    values, weights = (part.reshape(len(nodes), -1) for part in (nodes, masses))
    second = sigmoid(_quantiles_of_any(values, weights))
    quantiles = np.stack([1 - second[:, ::-1], second], axis=1)
    mean = (sigmoid(values) * weights).sum(axis=1) / NUM_DRAWS
    return Shares(np.stack([1 - mean, mean], axis=1), quantiles, at_zero, log_points)


def _count_cells(
    values: np.ndarray, rows: np.ndarray, owner: np.ndarray, populations: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log odds of cells (c,) that all populations share, and their counts (g, c)."""
    order = np.argsort(values, kind="stable")
    values, rows, owner = values[order], rows[order], owner[order]
    centers, _ = merge_rows(values, rows)
    borders = (centers[1:] + centers[:-1]) / 2
    index = np.searchsorted(borders, values)
    size = len(centers)
    counts = np.bincount(owner * size + index, rows, populations * size)
    return centers, counts.reshape(populations, size)


def _log_sigmoid(z: XArray) -> Array:
    return -np.logaddexp(0.0, -z)


def _binary_density(t: XArray, ratio: XArray, counts: XArray, alpha: np.ndarray) -> XArray:
    """Compute the log density (draws, nodes) of the log odds t (draws, nodes) of a share."""
    xp = namespace(t)
    share, rest = sigmoid(t), sigmoid(-t)
    if on_host(t):
        # The arrays of one draw stay in the processor's cache.
        likelihood = np.empty(t.shape)
        for draw in range(len(t)):
            mixed = share[draw, :, None] * ratio[draw]
            mixed += rest[draw, :, None]
            likelihood[draw] = np.log(mixed, out=mixed) @ counts
    else:
        mixed = rest[..., None] + share[..., None] * ratio[:, None, :]
        likelihood = xp.sum(xp.log(mixed) * counts, axis=-1)
    return likelihood + alpha[0] * xp.log(rest) + alpha[1] * xp.log(share)


def _binary_nodes(ratio: XArray, counts: XArray, alpha: np.ndarray) -> tuple[XArray, XArray]:
    """Return nodes (draws, t) of the log odds of a share, and masses that add up to 1 per draw."""
    xp = namespace(counts)
    low = xp.full((ratio.shape[0], 1), -_FAR, dtype=counts.dtype)
    high = -low
    for fall in _SEARCH_FALLS:
        t = low + (high - low) * xp.linspace(0, 1, _SEARCH_NODES, dtype=counts.dtype)
        density = _binary_density(t, ratio, counts, alpha)
        relevant = density > xp.max(density, axis=1, keepdims=True) - fall
        step = (high - low) / (_SEARCH_NODES - 1)
        low = xp.min(xp.where(relevant, t, xp.full_like(t, _FAR)), axis=1, keepdims=True) - step
        high = xp.max(xp.where(relevant, t, xp.full_like(t, -_FAR)), axis=1, keepdims=True) + step
    # Nodes are even over all draws together, so that quantiles of equal draws are fine.
    offsets = (xp.arange(NUM_DRAWS, dtype=counts.dtype)[:, None] + 0.5) / NUM_DRAWS
    t = low + (high - low) * (xp.arange(_NODES, dtype=counts.dtype) + offsets) / _NODES
    density = _binary_density(t, ratio, counts, alpha)
    masses = xp.exp(density - xp.max(density, axis=1, keepdims=True))
    return t, masses / xp.sum(masses, axis=1, keepdims=True)


def _with_tails(nodes: np.ndarray, masses: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Add the masses beyond the nodes (g, draws, t) to those of the first and the last node.

    The density of log odds falls there like that of the prior, by a power of the odds: slowly if a
    concentration is small.
    """
    steps = alpha[::-1] * (nodes[..., 1:2] - nodes[..., :1])
    masses = masses.copy()
    masses[..., [0, -1]] *= 1 + np.exp(-steps / 2) / steps
    return masses / masses.sum(axis=-1, keepdims=True)


@jax.jit
def _binary_nodes_of_many(
    ratio: np.ndarray, counts: XArray, alpha: np.ndarray
) -> tuple[XArray, XArray]:
    """Return the nodes and masses (g, draws, t) of all populations."""
    nodes = partial(_binary_nodes, ratio, alpha=alpha)
    return jax.lax.map(nodes, counts, batch_size=_POPULATIONS_AT_ONCE)


def _quantiles(values: np.ndarray, below: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return quantiles (..., levels), given the probabilities (..., n) below ordered values."""
    shape = (*values.shape[:-1], levels.shape[-1])
    quantiles = np.empty(shape)
    levels = np.broadcast_to(levels, shape)
    for index in np.ndindex(shape[:-1]):
        quantiles[index] = np.interp(levels[index], below[index], values[index])
    return quantiles


def _quantiles_of_any(values: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return quantiles (..., levels) of values (..., n) in any order, at :data:`LEVELS`."""
    order = np.argsort(values, axis=-1)
    values, masses = (np.take_along_axis(part, order, axis=-1) for part in (values, masses))
    below = np.cumsum(masses, axis=-1)
    return _quantiles(values, (below - masses / 2) / below[..., -1:], LEVELS)


def _even_levels(points: int, rng: np.random.Generator) -> np.ndarray:
    """Return levels (draws, points), evenly spaced within each draw and over all draws."""
    offsets = (rng.permutation(NUM_DRAWS) + 0.5) / NUM_DRAWS
    return (np.arange(points) + offsets[:, None]) / points


def _at_zero(nodes: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Return whether the density of both shares (g, 2) is largest at zero in most draws."""
    step = nodes[..., 1:2] - nodes[..., :1]
    with np.errstate(divide="ignore"):
        density = np.log(masses / step) - _log_sigmoid(nodes) - _log_sigmoid(-nodes)
    best = np.take_along_axis(nodes, density.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    ends = nodes[..., 0], nodes[..., -1]
    outside = np.stack([best >= ends[1], best <= ends[0]], axis=-1)
    return outside.mean(axis=-2) > 0.5


# --- more classes -------------------------------------------------------------------------------


class _Proposal(NamedTuple):
    """Proposals of a draw from Student's t: steps (n, k - 1) and their log densities (n,)."""

    steps: Array
    log_density: Array


def _integrate_many(
    populations: list[Population],
    recalibration: Recalibration,
    alpha: np.ndarray,
    rng: np.random.Generator,
) -> Shares:
    k = len(alpha)
    sparse = alpha.min() < 1
    pairs, freedom = (_SPARSE_PAIRS, _SPARSE_FREEDOM) if sparse else (_PAIRS, _FREEDOM)
    steps = rng.standard_normal((NUM_DRAWS, pairs, k - 1))
    steps *= np.sqrt(freedom / rng.chisquare(freedom, (NUM_DRAWS, pairs, 1)))
    steps = np.concatenate([steps, -steps], axis=1)
    falls = np.log1p((steps**2).sum(axis=2) / freedom)
    proposal = _Proposal(steps, -(freedom + k - 1) / 2 * falls)
    if len(populations) == 1:
        draws = _draws_of_one(*populations[0], recalibration, proposal, alpha)
        logs, weights = (part[None] for part in draws)
    else:
        logs, weights = _draws_of_many(populations, recalibration, proposal, alpha)
    shares = np.moveaxis(np.exp(logs).reshape(len(logs), -1, k), 1, 2)
    masses = np.broadcast_to(weights.reshape(len(logs), 1, -1), shares.shape)
    mean = (shares * masses).sum(axis=-1) / NUM_DRAWS
    spread = np.sqrt(np.maximum((shares**2 * masses).sum(axis=-1) / NUM_DRAWS - mean**2, 0))
    # The mean of an exponential density is one deviation, of a half-normal one 1.32.
    at_zero = mean < 1.15 * spread
    # Systematic resampling.
    below = np.cumsum(weights, axis=-1)[..., None, :]
    index = (below < _even_levels(_POINTS, rng)[..., None]).sum(axis=-1)
    points = np.take_along_axis(logs, np.minimum(index, logs.shape[2] - 1)[..., None], axis=2)
    return Shares(mean, _quantiles_of_any(shares, masses), at_zero, points)


def _basis(k: int) -> np.ndarray:
    """Return an orthonormal basis (k, k - 1) of the vectors whose entries add up to zero."""
    return np.linalg.svd(np.eye(k) - 1 / k)[0][:, : k - 1]


def _ratios(log_probs: XArray, theta: XArray, log_shares: XArray) -> Array:
    """Return p / pi (m, k) of one draw, scaled to at most 1 in each row."""
    xp = namespace(log_probs)
    logs = recalibrated(theta[None, :], log_probs)[0, ...] - log_shares
    return xp.exp(xp.clip(logs - xp.max(logs, axis=1, keepdims=True), -_FAR_RATIO, 0.0))


def _to_mode(
    u: XArray, ratio: XArray, counts: XArray, alpha: XArray, basis: XArray
) -> tuple[Array, Array]:
    """Take a Newton step from softmax coordinates u (k,); also return the precision there."""
    xp = namespace(u)
    share = softmax(u[None, :])[0, :]
    member = ratio * share
    member = member / xp.sum(member, axis=1, keepdims=True)
    weighted = counts[:, None] * member
    mass = xp.sum(weighted, axis=0) + alpha
    total = xp.sum(mass)
    gradient = mass - total * share
    # Covariance of the responsibilities: at the mode the negative Hessian, and never indefinite.
    precision = weighted.T @ member + xp.diag(alpha) - mass[:, None] * mass[None, :] / total
    precision = basis.T @ precision @ basis
    step = basis @ xp.linalg.solve(precision, basis.T @ gradient[:, None])[:, 0]
    step = step * xp.minimum(xp.asarray(1.0), 4 / xp.max(xp.abs(step) + 1e-300))
    tried = u + xp.asarray(_LENGTHS)[:, None] * step
    values = _log_density(log_softmax(tried), ratio, counts, alpha)
    return tried[xp.argmax(values), :], precision


def _log_density(logs: XArray, ratio: XArray, counts: XArray, alpha: XArray) -> XArray:
    """Compute the log density (n,) in softmax coordinates at log shares (n, k)."""
    xp = namespace(logs)
    return xp.log(ratio @ xp.exp(logs).T).T @ counts + logs @ alpha


def _expect(share: XArray, ratio: XArray, counts: XArray, alpha: XArray) -> Array:
    """Take one step of expectation maximization from shares (k,)."""
    xp = namespace(share)
    member = ratio * share
    member = member / xp.sum(member, axis=1, keepdims=True)
    mass = counts @ member + alpha
    return mass / xp.sum(mass)


def _propose(
    mode: XArray,
    precision: XArray,
    proposal: _Proposal,
    ratio: XArray,
    counts: XArray,
    alpha: XArray,
    basis: XArray,
) -> tuple[Array, Array]:
    """Return log shares (n, k) drawn around the mode, and importance weights that add up to 1."""
    xp = namespace(mode)
    # x = C^-T z has the covariance of the precision C C'.
    moves = xp.linalg.solve(xp.linalg.cholesky(precision).T, proposal.steps.T).T
    logs = log_softmax(mode + moves @ basis.T)
    log_weights = _log_density(logs, ratio, counts, alpha) - proposal.log_density
    weights = xp.exp(log_weights - xp.max(log_weights))
    return logs, weights / xp.sum(weights)


def _draws_of_one(
    log_probs: np.ndarray,
    counts: np.ndarray,
    recalibration: Recalibration,
    proposal: _Proposal,
    alpha: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return log shares (draws, n, k) of one population and their weights, from NumPy."""
    basis, u, drawn = _basis(len(alpha)), None, []
    for draw, (theta, log_shares) in enumerate(zip(*recalibration, strict=True)):
        ratio = _ratios(log_probs, theta, log_shares)
        if u is None:
            share = np.full(len(alpha), 1 / len(alpha))
            for _ in range(_EM_STEPS):
                share = _expect(share, ratio, counts, alpha)
            u = np.log(share)
        moved, precision = _to_mode(u, ratio, counts, alpha, basis)
        for _ in range(_NEWTON_STEPS):
            if np.abs(moved - u).max() < _CLOSE:
                break
            u = moved
            moved, precision = _to_mode(u, ratio, counts, alpha, basis)
        random = _Proposal(proposal.steps[draw], proposal.log_density[draw])
        drawn.append(_propose(u, precision, random, ratio, counts, alpha, basis))
    logs, weights = zip(*drawn, strict=True)
    return np.stack(logs), np.stack(weights)


def _draws_of_many(
    populations: list[Population],
    recalibration: Recalibration,
    proposal: _Proposal,
    alpha: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return log shares (g, draws, n, k) of populations and their weights, from one program.

    Rows are padded to a common number; padded rows have no weight.
    """
    most = max(len(population.counts) for population in populations)
    most = 1 << (most - 1).bit_length()
    rows = np.stack([pad_axis(population.log_probs, most, 0) for population in populations])
    counts = np.zeros((len(populations), most))
    for row, population in zip(counts, populations, strict=True):
        row[: len(population.counts)] = population.counts
    basis = _basis(len(alpha))
    with float64(), jax.numpy_dtype_promotion("standard"):
        logs, weights = _compiled_draws(rows, counts, recalibration, proposal, alpha, basis)
        return np.asarray(logs), np.asarray(weights)


@jax.jit
def _compiled_draws(
    rows: XArray,
    counts: XArray,
    recalibration: Recalibration,
    proposal: _Proposal,
    alpha: XArray,
    basis: XArray,
) -> tuple[XArray, XArray]:
    def population(given: AnyArray) -> object:
        log_probs, weights = given

        def draw(
            u: XArray, parts: tuple[XArray, XArray, _Proposal]
        ) -> tuple[XArray, tuple[XArray, XArray]]:
            theta, log_shares, random = parts
            ratio = _ratios(log_probs, theta, log_shares)
            arguments = ratio, weights, alpha, basis
            u = jax.lax.fori_loop(0, _NEWTON_STEPS, lambda _, v: _to_mode(v, *arguments)[0], u)
            precision = _to_mode(u, *arguments)[1]
            return u, _propose(u, precision, random, *arguments)

        share = jax.numpy.full(alpha.shape, 1 / len(alpha))
        ratio = _ratios(log_probs, recalibration.theta[0], recalibration.log_shares[0])
        for _ in range(_EM_STEPS):
            share = _expect(share, ratio, weights, alpha)
        given = recalibration.theta, recalibration.log_shares, proposal
        return jax.lax.scan(draw, jax.numpy.log(share), given)[1]

    return jax.lax.map(population, (rows, counts), batch_size=_POPULATIONS_AT_ONCE)
