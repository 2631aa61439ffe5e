"""Bayesian binning into quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bayescal._core.arrays import search
from bayescal._core.binning import equal_mass_cuts, take_step
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.monotone import OrderCalibrator
from bayescal.data.order.ranking import distinct_scores, middles, single_middles
from bayescal.data.rows import Source
from bayescal.data.scores import two_columns

__all__ = ["BBQ"]

# Models whose weight is less than this share of the best one's change no digit of the average.
_NEGLIGIBLE = 1e-18


@dataclass(eq=False, repr=False)
class BBQ(OrderCalibrator):
    r"""Bayesian binning into quantiles: the average of many histograms, weighted by their evidence.

    Every model cuts the scores into B bins of equal mass, B from :math:`n^{1/3} / C` to
    :math:`C n^{1/3}`, each with prior Beta(:math:`\alpha_b, \beta_b`) for its share of class 1,

    .. math:: \alpha_b = \frac{N_0}{B} p_b, \qquad \beta_b = \frac{N_0}{B} (1 - p_b),

    around the middle :math:`p_b` of the bin. With m of the N rows in bin b of class 1, the evidence
    of the model and its prediction in bin b are

    .. math:: \prod_b \frac{\Gamma(N_0 / B)}{\Gamma(N_b + N_0 / B)}
              \frac{\Gamma(m_b + \alpha_b)}{\Gamma(\alpha_b)}
              \frac{\Gamma(N_b - m_b + \beta_b)}{\Gamma(\beta_b)},
              \qquad \frac{m_b + \alpha_b}{N_b + N_0 / B},

    and the probability is the average of predictions, weighted by evidence: all models are equally
    likely before the data.

    Parameters
    ----------
    range_factor : float
        C, in [1, 100]: how far the number of bins may lie from the cube root of n.
    prior_weight : float
        :math:`N_0`, in [1e-6, 1e6]: the weight of the prior in rows, over all bins of a model.

    Attributes
    ----------
    model_weights_ : array
        Posterior probabilities of the binnings.

    Notes
    -----
    What the paper leaves open: n is the sum of weights. The limits of B are rounded down, and B is
    at least 1 and at most the number of distinct scores. Bins are those of equal mass of
    :class:`Histogram`; those that ties leave empty are dropped, and B is the number of the others.
    Bins reach from half-way to the score below to half-way to the score above, the first from 0 and
    the last to 1; :math:`p_b` is the middle of that range. As for :class:`Histogram`, exchanging
    the classes may move single rows. No model is discarded but for weights below 1e-18 of the
    greatest.

    The state is ``edges`` (k - 1,), the borders of all bins of all models, ``values`` (k,), the
    averages between them, ``bins`` (models,) and ``model_weights`` (models,). Fitting n rows takes
    O(n log n) for sorting and O(C^2 n^(2/3) log n) for all bins of all models;
    predicting takes O(log k) for each score. Rows that come in blocks take two passes, which find
    their distinct scores, 4,194,304 at most.

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
        edges = middles(groups.lowest[:-1], groups.lowest[1:])
        # Sums of weights, and cube roots, may come out just below the whole number that they are.
        root = np.cbrt(mass[-1]) * (1 + 1e-12)
        most = max(1, min(int(self.range_factor * root), len(groups.weight)))
        bins = np.arange(min(max(1, int(root / self.range_factor)), most), most + 1)

        # All bins of all models in one array, one model after the other.
        upper = equal_mass_cuts(mass, bins, rows.whole)
        lower = np.concatenate([[0], upper[:-1]])
        lower[np.cumsum(bins) - bins] = 0
        filled = upper > lower
        model = np.repeat(np.arange(len(bins)), bins)[filled]
        lower, upper, bins = lower[filled], upper[filled], np.bincount(model)

        borders = np.concatenate([[0.0], edges, [1.0]])
        ones, zeros = positive[upper] - positive[lower], negative[upper] - negative[lower]
        share = borders[lower] / 2 + borders[upper] / 2
        prior, weight = self.prior_weight / bins[model], ones + zeros
        # A bin may lie so near to 0 or 1 that its middle does not differ from it.
        least = np.finfo(np.float64).tiny
        for_one, for_zero = np.maximum(prior * share, least), np.maximum(prior * (1 - share), least)
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
            "edges": single_middles(groups.lowest[cuts[:-1] - 1], groups.lowest[cuts[:-1]]),
            "values": average,
            "bins": bins,
            "model_weights": relative,
        }

    def _apply(self, state: State, scores: Any) -> Any:
        place = search(state["edges"], scores)
        return two_columns(take_step(state["values"], place, scores))


def _average(
    relative: np.ndarray, bins: np.ndarray, upper: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return where any of the models with weight ends a bin, and their average up to there."""
    first = np.cumsum(bins) - bins
    cuts = np.unique(upper[np.repeat(relative > 0, bins)])
    average = np.zeros(len(cuts))
    for model in np.flatnonzero(relative):
        own = slice(first[model], first[model] + bins[model])
        sizes = np.diff(np.searchsorted(cuts, upper[own]), prepend=-1)
        average += relative[model] * np.repeat(values[own], sizes)
    return cuts, np.minimum(average, 1)
