"""Histogram binning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.binning import equal_mass_cuts
from bayescal._core.checks import check_choice, check_count
from bayescal.maps._groups import Ranking, middles
from bayescal.maps._map import Domain, Map, State, register

__all__ = ["Histogram"]

Binning = Literal["equal_width", "equal_mass"]


@register
@dataclass(frozen=True)
class Histogram(Map):
    r"""Histogram binning: the share of class 1 among the rows of the same bin.

    .. math:: \hat p(s) = \frac{\sum_{i \in b} w_i y_i}{\sum_{i \in b} w_i},
              \qquad b \text{ the bin of } s

    Bins are (lower, upper] as in :func:`bayescal.metrics.reliability_curve`: 0 lies in the first.
    A bin of equal width that no row fell into predicts its own centre, which moves a probability
    by half a bin at most. Bins of equal mass are those of :func:`equal_mass_cuts`; tied scores
    stay together, so that ties make bins unequal and may leave fewer of them. Their borders lie
    half-way between the scores on either side.

    Parameters
    ----------
    bins : int, default 10
        Number of bins.
    binning : {"equal_width", "equal_mass"}
        Bins of equal width divide [0, 1] and need probabilities; bins of equal mass hold equal
        weight and use the order of the scores only.

    Notes
    -----
    The state is ``edges`` (k - 1,), the borders between bins, ``values`` (k,) and ``bin_weights``
    (k,), the weight in each bin, zero where ``values`` is the centre. Fitting n rows to bins of
    equal width takes O(n); of equal mass O(n log n) comparisons at most, and O(n) where scores
    are spread out. Predicting takes O(1) and O(log k) for each score.

    References
    ----------
    B. Zadrozny and C. Elkan (2001), Obtaining calibrated probability estimates from decision
    trees and naive Bayesian classifiers.

    Examples
    --------
    The middle one of three bins is empty:

    >>> import numpy as np
    >>> scores, y = np.array([0.1, 0.2, 0.3, 0.7, 0.8]), np.array([0, 0, 1, 1, 1])
    >>> fitted = Histogram(bins=3).fit(scores, y, np.ones(5))
    >>> fitted["values"].round(2).tolist()
    [0.33, 0.5, 1.0]
    >>> fitted = Histogram(bins=2, binning="equal_mass").fit(scores, y, np.ones(5))
    >>> fitted["edges"].tolist(), fitted["values"].round(2).tolist()
    ([0.5], [0.33, 1.0])
    """

    name: ClassVar[str] = "histogram"
    monotone: ClassVar[bool] = False

    bins: int = 10
    binning: Binning = "equal_width"

    def __post_init__(self) -> None:
        check_count(self.bins, "bins")
        check_choice(self.binning, "binning", ("equal_width", "equal_mass"))

    @property
    def domain(self) -> Domain:
        return "probability" if self.binning == "equal_width" else "any"

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        if self.binning == "equal_width":
            return self._fit_width(scores, y, weights)
        return self._fit_mass(scores, y, weights)

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        edges = state["edges"]
        if self.binning == "equal_width":
            return state["values"][_place(scores, edges)]
        return state["values"][np.searchsorted(edges, scores)]

    def _fit_width(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        # Quotients are rounded correctly, so that 0.2 lies on the border 3 / 15; linspace is not.
        edges = np.arange(1, self.bins) / self.bins
        place = _place(scores, edges)
        weight = np.bincount(place, weights, self.bins)
        positive = np.bincount(place, weights * y, self.bins)
        centres = (np.arange(self.bins) + 0.5) / self.bins
        values = np.divide(positive, weight, out=centres, where=weight > 0)
        return {"edges": edges, "values": values, "bin_weights": weight}

    def _fit_mass(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        ranking = Ranking(scores, y, weights)
        whole_weights = bool((weights == np.floor(weights)).all())
        while True:
            groups = ranking.groups
            mass = np.concatenate([[0.0], np.cumsum(groups.weight)])
            cuts = np.unique(equal_mass_cuts(mass, np.array([self.bins]), whole_weights))
            cuts = cuts[(cuts > 0) & (cuts < len(groups.weight))]
            near = np.zeros(len(groups.weight), bool)
            near[cuts - 1] = near[cuts] = True
            if not (near & groups.whole).any():
                break
            ranking.refine(near & groups.whole)
        starts = np.concatenate([[0], cuts])
        weight = np.add.reduceat(groups.weight, starts)
        return {
            "edges": middles(groups.highest[cuts - 1], groups.lowest[cuts]),
            "values": np.add.reduceat(groups.positive, starts) / weight,
            "bin_weights": weight,
        }


def _place(scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the bin (lower, upper] of equal width of each score in [0, 1].

    Rounding may carry a product over a border from below, never from above: what lies on or below
    the lower border of the bin belongs to the one before.
    """
    bins = len(edges) + 1
    place = (scores * bins).astype(np.intp)
    place -= scores <= np.concatenate([[-np.inf], edges, [1.0]])[place]
    return place
