"""Diagnostics of draws: Pareto k of importance weights, R-hat and effective size of chains."""

from __future__ import annotations

import math

import numpy as np

from bayescal._core.execution.chunks import slices
from bayescal._core.execution.threads import threads
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float

_SETS_AT_ONCE = 16
#: Products of four terms up to this do not overflow.
_LARGEST_TERM = 1e75
#: Fewest effective weighted draws with which chains are compared, and the number of standard errors
#: by which means must differ to count as different.
_MIN_EFFECTIVE, _SIGNIFICANT = 100, 4


def largest_log_weights(log_weights: Float[jax.Array, " draws"]) -> Float[jax.Array, " tail"]:
    """Return the tail of log weights (n,) and the next weight, descending from zero.

    The tail has min(n / 5, 3 sqrt(n)) entries.
    """
    n = log_weights.shape[0]
    top = jnp.max(log_weights)
    shifted = log_weights - jnp.where(jnp.isfinite(top), top, 0)
    # float32 is enough for selection, and fast.
    count = min(math.ceil(min(0.2 * n, 3 * math.sqrt(n))) + 1, n)
    return jax.lax.top_k(shifted.astype(jnp.float32), count)[0]


def pareto_k(largest: Float[np.ndarray, "sets tail"]) -> Float[np.ndarray, " sets"]:
    """Estimate the shape k of the generalized Pareto tail of importance weights.

    Parameters
    ----------
    largest : array of shape (batch, tail + 1)
        The largest log weights of each data set, descending, from ``largest_log_weights``.

    Returns
    -------
    array of shape (batch,)
        k; above 0.7 averages over the weights are unreliable. NaN for tails of fewer than five
        weights, ``-inf`` if the weights of the tail are equal, ``inf`` if at least a quarter of the
        tail is zero.

    References
    ----------
    A. Vehtari et al. (2024), Pareto smoothed importance sampling; J. Zhang and M. Stephens (2009)
    for the fit of the tail.
    """
    batch, count = largest.shape
    if count < 6:
        return np.full(batch, np.nan)
    blocks = [largest[part] for part in slices(batch, _SETS_AT_ONCE)]
    with threads(len(blocks) > 1) as over_blocks:
        return np.concatenate(list(over_blocks(_shapes, blocks)))


def _shapes(largest: Float[np.ndarray, "sets tail"]) -> Float[np.ndarray, " sets"]:
    """Fit k by the averaged profile likelihood of Zhang and Stephens."""
    values = np.exp(largest.astype(np.float64))
    x = (values[:, :-1] - values[:, -1:])[:, ::-1]
    n = x.shape[1]
    grid = 30 + math.isqrt(n)
    equal = x[:, -1] <= 1e-10 * values[:, 0]
    x = np.where(equal[:, None], np.arange(1, n + 1), x)
    quartile = x[:, int(n / 4 + 0.5) - 1 :][:, :1]
    alone = quartile[:, 0] < np.finfo(float).tiny
    quartile = np.maximum(quartile, np.finfo(float).tiny)
    theta = 1 / x[:, -1:] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quartile)
    shape = _means_of_log1p(-theta, x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        profile = n * (np.log(-theta / shape) - shape - 1)
        profile = np.where(np.isnan(profile), -np.inf, profile)
        weights = np.exp(profile - profile.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    best = np.sum(np.where(weights > 0, theta * weights, 0), axis=1)
    k = np.log1p(-best[:, None] * x).mean(axis=1)
    # A weak prior of ten observations at one half stabilizes small tails.
    k = np.where(alone, np.inf, (n * k + 10 * 0.5) / (n + 10))
    return np.where(equal, -np.inf, k)


def _means_of_log1p(
    factors: Float[np.ndarray, "sets grid"], values: Float[np.ndarray, "sets tail"]
) -> Float[np.ndarray, "sets grid"]:
    """Average log(1 + factor * value) over values, from logarithms of products of four terms."""
    grid, n = factors.shape[1], values.shape[1]
    quarter = -(-n // 4)
    padded = np.zeros((len(values), 4, quarter))
    padded.reshape(len(values), -1)[:, :n] = values
    means = np.empty_like(factors)
    # New arrays would be taken from the system each time, for which threads wait.
    terms, pairs = np.empty((grid, 4, quarter)), np.empty((grid, 2, quarter))
    for row, values_of_row, mean in zip(factors, padded, means, strict=True):
        np.multiply(row[:, None, None], values_of_row, out=terms)
        if terms.max() < _LARGEST_TERM:
            np.add(terms, 1, out=terms)
            np.multiply(terms[:, :2], terms[:, 2:], out=pairs)
            products = np.multiply(pairs[:, 0], pairs[:, 1], out=pairs[:, 0])
            np.log(products, out=products).sum(axis=1, out=mean)
        else:
            np.log1p(terms, out=terms).sum(axis=(1, 2), out=mean)
    means /= n
    return means


def judge_chains(
    chains: Float[np.ndarray, "chains draws parameters"],
    weighted: Float[np.ndarray, "samples parameters"],
    log_weights: Float[np.ndarray, " samples"],
) -> tuple[float, float]:
    """Compute the effective sample size and R-hat of the worst coordinate of chains.

    Both are computed from normal scores of ranks, and of the ranks of distances from the median.
    They are NaN if a coordinate does not move. If the means of the chains differ from those of the
    weighted draws, for example because all chains missed a mode, the chains count as no more draws
    than would have such an error by chance.

    References
    ----------
    A. Vehtari et al. (2021), Rank-normalization, folding, and localization: an improved R-hat.
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    weights = np.exp(log_weights)
    with np.errstate(all="ignore"):
        comparable = 1 / np.sum(weights**2) >= _MIN_EFFECTIVE
        scores = np.concatenate([chains.reshape(-1, chains.shape[2]), weighted])
        sizes, ratios = [], []
        for fold in (False, True):
            if fold:
                scores = np.abs(scores - np.median(scores[: -len(weighted)], axis=0))
            scores = _normal_scores(scores, len(weighted))
            chain_scores = scores[: -len(weighted)].reshape(chains.shape)
            ess = np.asarray(effective_sample_size(chain_scores))
            ratios.append(np.asarray(split_gelman_rubin(chain_scores)))
            if comparable:
                other = scores[-len(weighted) :]
                mean = weights @ other
                spread = chain_scores.var(axis=(0, 1)) + weights @ (other - mean) ** 2
                difference = (chain_scores.mean(axis=(0, 1)) - mean) ** 2 / spread * 2
                error = 1 / ess + np.sum(weights**2)
                ess = np.where(
                    difference > _SIGNIFICANT**2 * error, np.minimum(ess, 1 / difference), ess
                )
            sizes.append(ess)
    return float(np.min(sizes)), float(np.max(ratios))


def _normal_scores(
    values: Float[np.ndarray, "draws parameters"], extra: int
) -> Float[np.ndarray, "draws parameters"]:
    """Return normal scores of ``values`` (n, d) by their rank among all but the last ``extra``."""
    from scipy.special import ndtri

    ranked = np.sort(values[: len(values) - extra], axis=0)
    columns = zip(ranked.T, values.T, strict=True)
    both = [(np.searchsorted(r, v), np.searchsorted(r, v, side="right")) for r, v in columns]
    ranks = np.array(both).sum(axis=1).T / 2
    return ndtri((ranks + 0.125) / (len(ranked) + 0.25))
