"""Scaling-binning: a logistic map whose values are averaged in bins."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bayescal._core.arrays import ArrayLike, XArray, search
from bayescal._core.binning import take_step
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.histogram import equal_mass_bins, interval_of_bins
from bayescal.calibrators.binary.logistic import Logistic
from bayescal.calibrators.binary.monotone import OrderCalibrator
from bayescal.data.checks import check_count, check_level
from bayescal.data.rows import Rows, Source, Sums, weight_of_row
from bayescal.data.scores import two_columns


@dataclass(eq=False, repr=False)
class ScalingBinning(OrderCalibrator):
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

    edges_: np.ndarray = field(init=False)
    values_: np.ndarray = field(init=False)
    bin_weights_: np.ndarray = field(init=False)
    slope_: float = field(init=False)
    intercept_: float = field(init=False)

    _domain = "real"
    # Exchanging the classes may move single rows to the next bin.
    _symmetric = False

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

    def _apply(self, state: State, scores: XArray) -> XArray:
        index = search(state["edges"], scores)
        return two_columns(take_step(state["values"], index, scores))

    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute credible intervals of the proportion of the second class in the bin of a score.

        They are central intervals of the beta posterior of the bin's proportion with Jeffreys'
        prior Beta(1/2, 1/2), as in :class:`Histogram`, and do not assume that the logistic map is
        right. They are widened to contain the predicted value and the proportion among the rows. In
        simulations of 10 to 5,000 rows in ten bins, intervals of level 0.9 covered at least 80 % of
        the mean probabilities of bins. Within a bin the probability varies, which they do not show.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m,)

        Raises
        ------
        ValueError
            If the calibrator was loaded from a file of a version without intervals.
        """
        level, values = check_level(level), self._values(scores)
        lower, upper = interval_of_bins(self.state_, 0.0, level)
        index = search(self.state_["edges"], values)
        return lower[index], upper[index]


def _scaled_sums(theta: State, edges: np.ndarray, rows: Rows) -> Sums:
    """Sum the weighted probabilities of the logistic map in each bin."""
    scaled = rows.weights * Logistic().apply(theta, rows.scores)[:, 1]
    index = np.searchsorted(edges, rows.scores)
    return {"scaled": np.bincount(index, scaled, len(edges) + 1)}
