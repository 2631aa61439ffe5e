"""Scaling-binning: a logistic map, made discrete so that its calibration error can be measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from bayescal._core.binning import equal_mass_cuts
from bayescal._core.checks import check_count
from bayescal.calibrators._base import Calibrator, State, two_columns
from bayescal.calibrators._ranking import merge_ties, middles
from bayescal.calibrators.logistic import Logistic

__all__ = ["ScalingBinning"]


@dataclass(eq=False, repr=False)
class ScalingBinning(Calibrator):
    r"""A logistic map g, then bins of equal mass of its values, each predicting its mean of g.

    .. math:: \hat p = \frac{\sum_{i \in B} w_i g(s_i)}{\sum_{i \in B} w_i}, \qquad g(s) \in B

    Averages of g vary less than shares of labels, as of histogram binning, and the calibration
    error of a map with few values can be estimated, as that of a continuous map cannot. The same
    rows serve both steps.

    Parameters
    ----------
    bins : int

    Attributes
    ----------
    edges_, values_, bin_weights_ : arrays
        Inner borders of the bins, their probabilities and their weights.
    slope_, intercept_ : float

    Notes
    -----
    O(n log n) to fit. Bins are those of equal mass of :class:`Histogram`.

    References
    ----------
    A. Kumar, P. Liang and T. Ma (2019), Verified uncertainty calibration.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.ScalingBinning(bins=2).fit(p, y).values_.round(2).tolist()
    [0.35, 0.65]
    """

    bins: int = 10

    edges_: np.ndarray = field(init=False)
    values_: np.ndarray = field(init=False)
    bin_weights_: np.ndarray = field(init=False)
    slope_: float = field(init=False)
    intercept_: float = field(init=False)

    binary: ClassVar[bool] = True
    _domain = "real"

    def _check_options(self) -> None:
        check_count(self.bins, "bins")

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        state = Logistic()._fit(scores, y, weights, seed)
        groups = merge_ties(scores, y, weights)
        scaled = Logistic().apply(state, groups.lowest)[:, 1]
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
        return two_columns(state["values"][np.searchsorted(state["edges"], scores)])
