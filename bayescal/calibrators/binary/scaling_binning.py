"""Scaling-binning: a logistic map whose values are averaged in bins."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bayescal._core.arrays import XArray, search
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.histogram import BinnedCalibrator, equal_mass_bins
from bayescal.calibrators.binary.logistic import Logistic
from bayescal.data.checks import check_count
from bayescal.data.rows import Rows, Source, Sums, weight_of_row


@dataclass(eq=False, repr=False)
class ScalingBinning(BinnedCalibrator):
    r"""Scaling-binning: a logistic map g, whose values are averaged in bins of equal mass.

    .. math:: \hat p = \frac{\sum_{i \in B} w_i g(s_i)}{\sum_{i \in B} w_i}, \qquad g(s) \in B

    Averages of g vary less than the proportions of labels that histogram binning predicts. The
    calibration error of a map with few values can be estimated, unlike that of a continuous map.
    Both steps use all rows.

    Parameters
    ----------
    bins : int
        Number of bins.

    Attributes
    ----------
    edges_, values_, bin_weights_ : arrays
        Inner borders of the bins, their probabilities and their weights. For ``inputs="probs"``
        borders are log odds, as the scores of the logistic map are.
    slope_, intercept_ : float

    Notes
    -----
    O(n log n) to fit. Bins are the equal-mass bins of :class:`Histogram`. Rows in blocks take the
    passes of both steps, with a common first pass, and one more.

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

    slope_: float = field(init=False)
    intercept_: float = field(init=False)

    _domain = "real"

    def _check_options(self) -> None:
        check_count(self.bins, "bins")

    def _fit(self, rows: Source, seed: int) -> State:
        state = Logistic()._fit(rows, seed)
        theta = {"theta": state["theta"]}
        edges, weight, positive = equal_mass_bins(rows, self.bins, self.inputs == "probs")
        values = rows.total(partial(_scaled_sums, theta, edges))["scaled"] / weight
        return state | {
            "edges": edges,
            "values": values,
            "bin_weights": weight,
            "proportions": positive / weight,
            "unit": np.asarray(weight_of_row(rows)),
        }

    def _find_bins(self, state: State, scores: XArray) -> XArray:
        return search(state["edges"], scores)


def _scaled_sums(theta: State, edges: np.ndarray, rows: Rows) -> Sums:
    """Sum the weighted probabilities of the logistic map in each bin."""
    scaled = rows.weights * Logistic().apply(theta, rows.scores)[:, 1]
    index = np.searchsorted(edges, rows.scores)
    return {"scaled": np.bincount(index, scaled, len(edges) + 1)}
