"""The Bayesian signed-rank test: how probably one method is better, or practically equal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.keywords import other_words
from bayescal.compare.table import Scores, Table, differences, in_one_order, read_table, rounding
from bayescal.data.checks import check_count, check_finite

#: Numbers in a block of weights: the block and its sums fit in a processor's cache.
_BLOCK = 1 << 16
# Decimal scores at the margin are slightly off it in binary.
_AT_THE_MARGIN = 1 + 1e-9


class SignedRankPosterior(NamedTuple):
    """Posterior probabilities for two methods; the first three sum to one.

    Attributes
    ----------
    better : float
        Probability that the first is better than the second by more than the margin.
    equal : float
        Probability that the two are practically equal.
    worse : float
        Probability that the first is worse by more than the margin.
    error : float
        Largest Monte Carlo standard error of the three; never zero.
    """

    better: float
    equal: float
    worse: float
    error: float


class SignedRankMatrix(NamedTuple):
    """Posterior probabilities for all pairs of methods.

    Attributes
    ----------
    better : array of shape (k, k)
        Probability that the row's method is better than the column's by more than the margin.
    equal : array of shape (k, k)
        Probability that the two are practically equal, one on the diagonal.
    worse : array of shape (k, k)
        Transpose of ``better``.
    error : array of shape (k, k)
        Largest Monte Carlo standard error of the three.
    """

    better: np.ndarray
    equal: np.ndarray
    worse: np.ndarray
    error: np.ndarray


@other_words
def bayesian_signed_rank(
    a: ArrayLike,
    b: ArrayLike,
    *,
    margin: float = 0.0,
    prior_strength: float = 0.5,
    draws: int = 20_000,
    seed: int = 0,
    lower_is_better: bool = True,
) -> SignedRankPosterior:
    r"""Compute the probabilities that ``a`` is better than ``b``, practically equal, or worse.

    Use it for two methods on several data sets. The differences of scores
    :math:`z_1, \dots, z_n`, positive if ``a`` is better, come from an unknown distribution whose
    prior is a Dirichlet process of strength s at one pseudo-observation :math:`z_0 = 0`. A draw of
    that distribution, given the data, has weights
    :math:`w \sim \mathrm{Dirichlet}(s, 1, \dots, 1)` on :math:`z_0, \dots, z_n`. In it, the mean of
    two random differences lies above, within or below the margin r with probabilities

    .. math::
        \theta_+ = \sum_{ij} w_i w_j [z_i + z_j > 2r], \quad
        \theta_= = \sum_{ij} w_i w_j [|z_i + z_j| \le 2r], \quad
        \theta_- = \sum_{ij} w_i w_j [z_i + z_j < -2r].

    The results are the probabilities that each of these is the largest, by Monte Carlo. A draw
    takes O(n) time, by sums of the weights in the order of z; draws are streamed in blocks.

    Parameters
    ----------
    a, b : arrays of shape (n,)
        Scores of the two methods on the same data sets.
    margin : float, default 0
        Differences up to this, in the unit of the scores, are practically equal. At 0 these are
        only differences that cancel, such as that of the pseudo-observation with itself.
    prior_strength : float, default 0.5
        s, the weight of the pseudo-observation; a data set has weight 1.
    draws : int, default 20000
        Number of Monte Carlo draws.
    seed : int, default 0
        Seed; the same seed gives the same draws.
    lower_is_better : bool, default True
        Whether a lower score is better.

    Returns
    -------
    SignedRankPosterior
        ``better``, ``equal``, ``worse``, and ``error``, a Monte Carlo standard error.

    Raises
    ------
    TypeError
        If scores are not numbers, or ``draws`` is not an integer.
    ValueError
        If ``a`` and ``b`` do not have one shape (n,), contain NaN or infinities; if ``margin`` is
        negative, ``prior_strength`` is not positive or ``draws`` is less than 1.

    See Also
    --------
    bayesian_signed_rank_matrix : All pairs of several methods.
    wilcoxon : The frequentist test.

    References
    ----------
    A. Benavoli, G. Corani, F. Mangili, M. Zaffalon and F. Ruggeri (2014), A Bayesian Wilcoxon
    signed-rank test based on the Dirichlet process. A. Benavoli, G. Corani, J. Demšar and
    M. Zaffalon (2017), Time for a change: a tutorial for comparing multiple classifiers through
    Bayesian analysis.

    Examples
    --------
    >>> loss, other = [0.31, 0.42, 0.22, 0.57, 0.35], [0.36, 0.44, 0.29, 0.55, 0.41]
    >>> result = bayesian_signed_rank(loss, other, margin=0.01)
    >>> round(result.better, 2), round(result.equal, 2), round(result.worse, 2)
    (0.97, 0.03, 0.01)
    """
    arrays = in_one_order({"a": a, "b": b}, "{}")
    for array, name in zip(arrays, "ab", strict=True):
        if array.ndim != 1 or len(array) < 1:
            raise ValueError(f"{name} must have shape (data sets,), got {array.shape}")
        check_finite(array, name)
    if len(arrays[0]) != len(arrays[1]):
        raise ValueError(f"a and b must have one length, got {len(arrays[0])} and {len(arrays[1])}")
    table = read_table(dict(zip("ab", arrays, strict=True)), lower_is_better=lower_is_better)
    result = posterior_of(table, margin, prior_strength, draws, seed)
    return SignedRankPosterior(*(float(matrix[0, 1]) for matrix in result))


@other_words
def bayesian_signed_rank_matrix(
    scores: Scores,
    *,
    margin: float = 0.0,
    prior_strength: float = 0.5,
    draws: int = 20_000,
    seed: int = 0,
    lower_is_better: bool = True,
) -> SignedRankMatrix:
    """Compute for all pairs of methods the probabilities of being better, equal, or worse.

    All pairs share the draws of the weights: an entry equals that of :func:`bayesian_signed_rank`
    with the same seed.

    Parameters
    ----------
    scores : array of shape (n, k), or mapping from names to arrays of shape (n,)
        One row for each data set, one column for each method.
    margin : float, default 0
        Differences up to this, in the unit of the scores, are practically equal.
    prior_strength : float, default 0.5
        Weight of the pseudo-observation at zero; a data set has weight 1.
    draws : int, default 20000
        Number of Monte Carlo draws.
    seed : int, default 0
        Seed; the same seed gives the same draws.
    lower_is_better : bool, default True
        Whether a lower score is better.

    Returns
    -------
    SignedRankMatrix
        Matrices ``better``, ``equal``, ``worse`` and ``error``.

    Raises
    ------
    TypeError, ValueError
        If :func:`bayesian_signed_rank` or :func:`wilcoxon` would raise.

    See Also
    --------
    bayesian_signed_rank : Two methods; its docstring explains the model.
    compare : All statistics of a table.

    References
    ----------
    A. Benavoli, G. Corani, F. Mangili, M. Zaffalon and F. Ruggeri (2014), A Bayesian Wilcoxon
    signed-rank test based on the Dirichlet process.

    Examples
    --------
    >>> result = bayesian_signed_rank_matrix({"a": [1, 2, 3], "b": [2, 3, 4], "c": [1, 3, 2]})
    >>> result.better.round(1)
    array([[0. , 1. , 0.3],
           [0. , 0. , 0. ],
           [0.3, 0.9, 0. ]])
    """
    table = read_table(scores, lower_is_better=lower_is_better)
    return posterior_of(table, margin, prior_strength, draws, seed)


def posterior_of(
    table: Table, margin: float, prior_strength: float, draws: int, seed: int
) -> SignedRankMatrix:
    """Compute the posterior of all pairs of columns of a checked table, lower is better."""
    draws = check_count(draws, "draws")
    if not 0 <= float(margin) < math.inf:
        raise ValueError(f"margin must be finite and not negative, got {margin}")
    if not 0 < float(prior_strength) < math.inf:
        raise ValueError(f"prior_strength must be finite and positive, got {prior_strength}")
    values = table.values
    n, k = values.shape
    pairs = list(zip(*(index.tolist() for index in np.triu_indices(k, 1)), strict=True))
    plans = []
    for i, j in pairs:
        columns = values[:, j], values[:, i], table.eps
        plans.append(_Plan(differences(*columns), rounding(*columns), float(margin)))
    counts = np.zeros((k, k))
    for weights in _weights(n, float(prior_strength), draws, seed):
        total = np.square(weights.sum(axis=0))
        work = np.empty((3, n + 2, weights.shape[1]))
        for (i, j), plan in zip(pairs, plans, strict=True):
            above, below = plan.pair_weights(weights, work)
            within = total - above - below
            counts[i, j] += ((above > within) & (above > below)).sum()
            counts[j, i] += ((below > within) & (below > above)).sum()
    better = counts / draws
    equal = (draws - counts - counts.T) / draws
    # Add half a draw on either side, so that the error is never zero.
    center = (np.stack([better, equal, better.T]) * draws + 0.5) / (draws + 1)
    error = np.sqrt(center * (1 - center) / draws).max(axis=0)
    return SignedRankMatrix(better, equal, better.T.copy(), error)


def _weights(n: int, strength: float, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks (n + 1, size) of unnormalized Dirichlet weights; the last row is the prior's.

    Data and prior have separate streams of random numbers, so draws do not depend on the blocks.
    """
    data, prior = np.random.default_rng(seed).spawn(2)
    size = max(_BLOCK // (n + 1), 16)
    for start in range(0, draws, size):
        count = min(size, draws - start)
        block = np.empty((n + 1, count))
        block[:n] = data.standard_exponential((count, n)).T
        block[n] = prior.standard_gamma(strength, count)
        yield block


class _Plan:
    """The range of partners with which each difference (n + 1,) is beyond the margin.

    ``slack`` (n,) bounds the rounding errors of differences: pairs at the margin are within it.
    """

    def __init__(self, difference: np.ndarray, slack: np.ndarray, margin: float) -> None:
        z, gap = np.append(difference, 0.0), 2 * margin * _AT_THE_MARGIN
        error = np.append(slack, 0.0) if margin else 0.0
        up, down = z - error, z + error
        self.up, self.down = (np.argsort(end, kind="stable") for end in (up, down))
        if np.array_equal(self.up, self.down):
            self.up = self.down
        up, down = up[self.up], down[self.down]
        self.above = np.searchsorted(up, gap - up, side="right")
        self.below = np.searchsorted(down, -gap - down, side="left")

    def pair_weights(self, weights: np.ndarray, work: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the unnormalized weights (draws,) of pairs above and below the margin.

        ``work`` is space for three arrays of n + 2 rows.
        """
        sums, (ordered, part) = work[0], work[1:, : len(weights)]
        # With "clip" NumPy writes directly into the output; no index is out of range.
        _add_up(weights, self.down, ordered, sums)
        np.take(sums, self.below, axis=0, out=part, mode="clip")
        below = np.einsum("nd,nd->d", ordered, part)
        if self.up is not self.down:
            _add_up(weights, self.up, ordered, sums)
        np.take(sums, self.above, axis=0, out=part, mode="clip")
        np.subtract(sums[-1], part, out=part)
        above = np.einsum("nd,nd->d", ordered, part)
        return above, below


def _add_up(weights: np.ndarray, order: np.ndarray, ordered: np.ndarray, sums: np.ndarray) -> None:
    np.take(weights, order, axis=0, out=ordered, mode="clip")
    sums[0] = 0
    np.cumsum(ordered, axis=0, out=sums[1:])
