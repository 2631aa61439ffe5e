"""Temperature scaling of log odds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayescal.maps._map import Domain, State, register
from bayescal.maps._parametric import Parametric

__all__ = ["Temperature"]


@register
@dataclass(frozen=True)
class Temperature(Parametric):
    r"""Log odds divided by one temperature, which is never negative.

    .. math:: \operatorname{logit} \hat p = z / T

    Scores that predict the labels no better than chance, or worse, get an infinite temperature:
    every probability is one half. Fitting is O(n).

    References
    ----------
    C. Guo et al. (2017), On calibration of modern neural networks.

    Examples
    --------
    >>> import numpy as np
    >>> z, y = np.array([-4.0, -4.0, 4.0, 4.0]), np.array([0, 1, 1, 1])
    >>> calibration = Temperature()
    >>> state = calibration.fit(z, y, np.ones(4))
    >>> state["temperature"].round(3).tolist()  # sigmoid(4 / T) = 3 / 4
    3.641
    """

    name: ClassVar[str] = "temperature"
    monotone: ClassVar[bool] = True

    @property
    def has_intercept(self) -> bool:
        return False

    @property
    def domain(self) -> Domain:
        return "log_odds"

    def columns(self, state: State, scores: np.ndarray) -> np.ndarray:
        return scores[None]

    def positive(self, p: int) -> np.ndarray:
        return np.ones(p, bool)

    def describe(self, theta: np.ndarray) -> State:
        with np.errstate(divide="ignore"):
            return {"temperature": 1 / theta[..., 0]}
