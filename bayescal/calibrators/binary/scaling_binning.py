"""Scaling-binning: a logistic map, made discrete so that its calibration error can be measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bayescal._core.arrays import search
from bayescal._core.binning import take_step
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.histogram import Histogram
from bayescal.calibrators.binary.logistic import Logistic
from bayescal.calibrators.binary.monotone import OrderCalibrator
from bayescal.data.checks import check_count
from bayescal.data.rows import Source, Sums
from bayescal.data.scores import two_columns

__all__ = ["ScalingBinning"]


@dataclass(eq=False, repr=False)
class ScalingBinning(OrderCalibrator):
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
    O(n log n) to fit. Bins are those of equal mass of :class:`Histogram`. Rows that come in blocks
    take the passes of both parts, of which the first is one, and one more.

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

    _domain = "real"

    def _check_options(self) -> None:
        check_count(self.bins, "bins")

    def _fit(self, rows: Source, seed: int) -> State:
        state = Logistic()._fit(rows, seed)
        theta = {"theta": state["theta"]}
        state |= Histogram(self.bins, "equal_mass")._fit(rows, seed)
        sums = rows.total(partial(_scaled_sums, theta, state["edges"]))
        state["values"] = sums["scaled"] / state["bin_weights"]
        return state

    def _apply(self, state: State, scores: Any) -> Any:
        place = search(state["edges"], scores)
        return two_columns(take_step(state["values"], place, scores))


def _scaled_sums(
    theta: State, edges: np.ndarray, scores: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> Sums:
    """Return weighted sums of probabilities of the logistic map in each bin."""
    scaled = weights * Logistic().apply(theta, scores)[:, 1]
    place = np.searchsorted(edges, scores)
    return {"scaled": np.bincount(place, scaled, len(edges) + 1)}
