"""Logistic calibration with the square of the score."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.online import OnlineCalibrator
from bayescal.calibrators.binary.log_odds import LogOddsCalibrator


@dataclass(eq=False, repr=False)
class Quadratic(OnlineCalibrator, LogOddsCalibrator):
    r"""Quadratic calibration: log odds that are quadratic in the score z.

    .. math:: \operatorname{logit} \hat p = w z + v z^2 + c

    Scores may be log odds or arbitrary real numbers. The map is exact for normal scores whose
    classes differ in variance, and need not be monotone. Fitting is O(n). Raw scores
    (``inputs="scores"``) are standardized, so that their location and scale do not matter.

    Attributes
    ----------
    intercept_, slope_, curvature_ : float

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 4.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.Quadratic().fit(p, y).predict([0.2, 0.7]).tolist()
    [0, 1]
    """

    intercept_: float = field(init=False)
    slope_: float = field(init=False)
    curvature_: float = field(init=False)

    _domain = "real"

    def _columns(self, state: State, scores: XArray) -> XArray:
        xp, z = namespace(scores), self._standardized_scores(state, scores)
        return xp.stack([xp.ones_like(z), z, z**2])

    def _describe(self, state: State, theta: np.ndarray) -> State:
        center, scale = state.get("center", 0.0), state.get("scale", 1.0)
        curvature = theta[..., 2] / scale**2
        slope = theta[..., 1] / scale - 2 * center * curvature
        intercept = theta[..., 0] - center * (slope + center * curvature)
        return {"intercept": intercept, "slope": slope, "curvature": curvature}
