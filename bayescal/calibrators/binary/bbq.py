"""Bayesian binning into quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bayescal._core.arrays import XArray, search
from bayescal._core.binning import equal_mass_cuts, take_step
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.monotone.pooling import OrderCalibrator
from bayescal.data.order.ranking import distinct_scores, middles, single_middles
from bayescal.data.rows import Source
from bayescal.data.scores import two_columns

#: Relative weight below which a model changes no digit of the average.
_NEGLIGIBLE = 1e-18


@dataclass(eq=False, repr=False)
class BBQ(OrderCalibrator):
    r"""Bayesian binning into quantiles: histograms averaged by their evidence.

    Every model divides the scores into B bins of equal mass, for B from :math:`n^{1/3} / C` to
    :math:`C n^{1/3}`. The proportion of class 1 in a bin has the prior
    Beta(:math:`\alpha_b, \beta_b`),

    .. math:: \alpha_b = \frac{N_0}{B} p_b, \qquad \beta_b = \frac{N_0}{B} (1 - p_b),

    around the middle :math:`p_b` of the bin. With :math:`m_b` of the :math:`N_b` rows in bin b of
    class 1, the evidence of the model and its prediction in bin b are

    .. math:: \prod_b \frac{\Gamma(N_0 / B)}{\Gamma(N_b + N_0 / B)}
              \frac{\Gamma(m_b + \alpha_b)}{\Gamma(\alpha_b)}
              \frac{\Gamma(N_b - m_b + \beta_b)}{\Gamma(\beta_b)},
              \qquad \frac{m_b + \alpha_b}{N_b + N_0 / B},

    and the probability is the average of the predictions, weighted by evidence. All models have
    equal prior probabilities.

    Parameters
    ----------
    range_factor : float
        C, in [1, 100]: the largest ratio between the number of bins and the cube root of n.
    prior_weight : float
        :math:`N_0`, in [1e-6, 1e6]: the weight of the prior in rows, over all bins of a model.

    Attributes
    ----------
    model_weights_ : array
        Posterior probabilities of the binnings.

    Notes
    -----
    Details that the paper does not specify: n is the sum of weights. The limits of B are rounded
    down, and B is at least 1 and at most the number of distinct scores. Bins are the equal-mass
    bins of :class:`Histogram`; bins that are empty because of ties are dropped. They extend
    half-way to the neighboring scores, the first to 0 and the last to 1; :math:`p_b` is the middle
    of that range. As for :class:`Histogram`, exchanging the classes may move single rows. Models
    are discarded only if their weight is below 1e-18 of the largest.

    There are no credible intervals, because the posterior takes the curve for a step function: in
    simulations its intervals of level 0.9 covered only 34 to 85 % of the probabilities.

    The state is ``edges`` (k - 1,), the borders of all bins of all models, ``values`` (k,), the
    averages between them, ``bins`` (models,) and ``model_weights`` (models,). Fitting n rows takes
    O(n log n) for sorting and O(C^2 n^(2/3) log n) for all bins of all models; predicting takes
    O(log k) per score. Rows in blocks take two passes, and may have at most 4,194,304 distinct
    scores.

    References
    ----------
    M. P. Naeini, G. F. Cooper and M. Hauskrecht (2015), Obtaining well calibrated probabilities
    using Bayesian binning.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.BBQ().fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.21, 0.78]
    """

    range_factor: float = 10.0
    prior_weight: float = 2.0

    model_weights_: np.ndarray = field(init=False)

    _domain = "probability"
    # Exchanging the classes may move single rows to the next bin.
    _symmetric = False

    def _check_options(self) -> None:
        if not 1 <= self.range_factor <= 100:
            raise ValueError(f"range_factor must lie in [1, 100], got {self.range_factor}")
        if not 1e-6 <= self.prior_weight <= 1e6:
            raise ValueError(f"prior_weight must lie in [1e-6, 1e6], got {self.prior_weight}")

    def _fit(self, rows: Source, seed: int) -> State:
        from scipy.special import gammaln

        groups = distinct_scores(rows, "BBQ")
        mass, positive, negative = (
            np.concatenate([[0.0], np.cumsum(part)])
            for part in (groups.weight, groups.positive, groups.weight - groups.positive)
        )
        edges = middles(groups.highest[:-1], groups.lowest[1:])
        # Rounding may put sums of weights and cube roots just below an integer.
        root = np.cbrt(mass[-1]) * (1 + 1e-12)
        most = max(1, min(int(self.range_factor * root), len(groups.weight)))
        bins = np.arange(min(max(1, int(root / self.range_factor)), most), most + 1)

        # The bins of all models are in one array, model by model.
        upper = equal_mass_cuts(mass, bins, rows.whole)
        lower = np.concatenate([[0], upper[:-1]])
        lower[np.cumsum(bins) - bins] = 0
        filled = upper > lower
        model = np.repeat(np.arange(len(bins)), bins)[filled]
        lower, upper, bins = lower[filled], upper[filled], np.bincount(model)

        borders = np.concatenate([[0.0], edges, [1.0]])
        ones, zeros = positive[upper] - positive[lower], negative[upper] - negative[lower]
        middle = borders[lower] / 2 + borders[upper] / 2
        prior, weight = self.prior_weight / bins[model], ones + zeros
        # A bin may be so close to 0 or 1 that its middle is equal to that bound.
        least = np.finfo(np.float64).tiny
        for_one, for_zero = (np.maximum(prior * p, least) for p in (middle, 1 - middle))
        evidence = gammaln(prior) - gammaln(weight + prior)
        evidence += gammaln(ones + for_one) - gammaln(for_one)
        evidence += gammaln(zeros + for_zero) - gammaln(for_zero)
        values = np.minimum((ones + for_one) / (weight + prior), 1)
        evidence = np.add.reduceat(evidence, np.cumsum(bins) - bins)
        relative = np.exp(evidence - evidence.max())
        relative[relative < _NEGLIGIBLE] = 0
        relative /= relative.sum()
        cuts, average = _average(relative, bins, upper, values)
        return {
            "edges": single_middles(groups.highest[cuts[:-1] - 1], groups.lowest[cuts[:-1]]),
            "values": average,
            "bins": bins,
            "model_weights": relative,
        }

    def _apply(self, state: State, scores: XArray) -> XArray:
        index = search(state["edges"], scores)
        return two_columns(take_step(state["values"], index, scores))


def _average(
    relative: np.ndarray, bins: np.ndarray, upper: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the borders of bins of models with weight, and the averages up to each border."""
    first = np.cumsum(bins) - bins
    cuts = np.unique(upper[np.repeat(relative > 0, bins)])
    average = np.zeros(len(cuts))
    for model in np.flatnonzero(relative):
        model_bins = slice(first[model], first[model] + bins[model])
        sizes = np.diff(np.searchsorted(cuts, upper[model_bins]), prepend=-1)
        average += relative[model] * np.repeat(values[model_bins], sizes)
    return cuts, np.minimum(average, 1)
