"""Beta calibration with three, two or one parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal._core.numerics import log_sigmoids
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.online import OnlineCalibrator
from bayescal.calibrators.binary.log_odds import LogOddsCalibrator
from bayescal.data.checks import check_choice


@dataclass(eq=False, repr=False)
class Beta(OnlineCalibrator, LogOddsCalibrator):
    r"""Beta calibration, which is exact if the scores of each class have a beta distribution.

    .. math:: \operatorname{logit} \hat p = a \ln p - b \ln (1 - p) + c, \qquad a, b \ge 0

    With two parameters, c = (a - b) ln 2, so that a probability of one half is preserved. With one
    parameter, also a = b, which is temperature scaling with T = 1 / a. (The two parameters a = b
    and c are :class:`Logistic` on log odds.) If the likelihood is maximal at a negative a or b,
    that coefficient is set to zero and the others are optimized. Fitting takes O(n). More than
    262,144 rows in memory are counted in 65,536 bins of each class, unless they are far apart or a
    coefficient is above 4; this changes probabilities by less than 1e-8.

    Parameters
    ----------
    parameters : {3, 2, 1}
        Number of free parameters.

    Attributes
    ----------
    a_, b_, c_ : float

    See Also
    --------
    AveragedBeta : Beta regressions and curves, averaged by their evidence.
    Logistic : The map with a = b.

    Notes
    -----
    Intervals assume that the true map has this form: with 1,000 rows, intervals of level 0.9
    covered 91 % of true maps of this form, but 23 % of log odds with a wave
    (``benchmarks/coverage_bands.py``). Use :class:`AveragedBeta` or :class:`Spline` for other
    curves.

    References
    ----------
    M. Kull, T. Silva Filho and P. Flach (2017), Beta calibration.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> calibrator = bc.Beta(inference="laplace", random_state=0).fit(p, y)
    >>> lower, upper = calibrator.predict_interval([0.7], level=0.9)
    >>> [round(float(p), 1) for p in (lower[0], calibrator.predict_proba([0.7])[0, 1], upper[0])]
    [0.3, 0.6, 0.9]
    """

    parameters: Literal[3, 2, 1] = 3

    a_: float = field(init=False)
    b_: float = field(init=False)
    c_: float = field(init=False)

    monotone: ClassVar[bool] = True
    _steep_by_coefficients: ClassVar[bool] = True
    _domain = "log_odds"

    def _check_options(self) -> None:
        check_choice(self.parameters, "parameters", (3, 2, 1))

    @property
    def _has_intercept(self) -> bool:
        return self.parameters == 3

    def _columns(self, state: State, scores: XArray) -> XArray:
        xp = namespace(scores)
        if self.parameters == 1:
            return scores[None, :]
        # ln p and -ln(1 - p) are computed from log odds, which avoids cancellation.
        zero, one = log_sigmoids(scores)
        if self.parameters == 2:
            half = math.log(2)
            return xp.stack([one + half, -zero - half])
        return xp.stack([xp.ones_like(scores), one, -zero])

    def _positive(self, p: int) -> np.ndarray:
        return np.arange(p) >= p - min(p, 2)

    def _describe(self, state: State, theta: np.ndarray) -> State:
        slopes = theta[..., 1:] if self.parameters == 3 else theta
        a, b = slopes[..., 0], slopes[..., -1]
        return {"a": a, "b": b, "c": theta[..., 0] if self.parameters == 3 else np.log(2) * (a - b)}
