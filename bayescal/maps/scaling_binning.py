"""Scaling-binning: a logistic map, made discrete so that its calibration error can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayescal._core.binning import equal_mass_cuts
from bayescal._core.checks import check_count
from bayescal.maps._groups import merge_ties, middles
from bayescal.maps._map import Domain, Map, State, register
from bayescal.maps.logistic import Logistic

__all__ = ["ScalingBinning"]


@register
@dataclass(frozen=True)
class ScalingBinning(Map):
    r"""A logistic map g, then bins of equal mass of its values, each predicting its mean of g.

    .. math:: \hat p = \frac{\sum_{i \in B} w_i g(s_i)}{\sum_{i \in B} w_i}, \qquad g(s) \in B

    Averages of g vary less than shares of labels, as of histogram binning, and the calibration
    error of a map with few values can be estimated, as that of a continuous map cannot. The same
    rows serve both steps.

    Parameters
    ----------
    bins : int

    Notes
    -----
    O(n log n) to fit.

    References
    ----------
    A. Kumar, P. Liang and T. Ma (2019), Verified uncertainty calibration.

    Examples
    --------
    >>> import numpy as np
    >>> z, y = np.array([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0]), np.array([0, 0, 1, 0, 1, 1])
    >>> calibration = ScalingBinning(bins=2)
    >>> state = calibration.fit(z, y, np.ones(6))
    >>> calibration.apply(state, np.array([-3.0, -0.1, 0.1, 3.0])).round(3).tolist()
    [0.202, 0.202, 0.798, 0.798]
    """

    bins: int = 10

    name: ClassVar[str] = "scaling_binning"

    def __post_init__(self) -> None:
        check_count(self.bins, "bins")

    @property
    def domain(self) -> Domain:
        return "real"

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        state = Logistic().fit(scores, y, weights)
        groups = merge_ties(scores, y, weights)
        scaled = Logistic().apply(state, groups.lowest)
        mass = np.concatenate([[0.0], np.cumsum(groups.weight)])
        whole = bool((weights == np.floor(weights)).all())
        cuts = np.unique(equal_mass_cuts(mass, np.array([self.bins]), whole))
        cuts = cuts[(cuts > 0) & (cuts < len(groups.weight))]
        starts = np.concatenate([[0], cuts])
        weight = np.add.reduceat(groups.weight, starts)
        state["edges"] = middles(groups.highest[cuts - 1], groups.lowest[cuts])
        state["values"] = np.add.reduceat(groups.weight * scaled, starts) / weight
        state["bin_weights"] = weight
        return state

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        return state["values"][np.searchsorted(state["edges"], scores)]
