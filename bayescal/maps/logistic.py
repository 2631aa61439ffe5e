"""Logistic calibration of log odds or of raw scores, and its quadratic extension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.checks import check_choice
from bayescal.maps._map import Domain, State, register
from bayescal.maps._parametric import Parametric
from bayescal.smoothing import instance_targets, platt_targets

__all__ = ["Logistic", "Quadratic"]

Smoothing = float | Literal["platt", "instance"] | None


@register
@dataclass(frozen=True)
class Logistic(Parametric):
    r"""A line in the score z, which may be log odds or any real number.

    .. math:: \operatorname{logit} \hat p = w z + c

    Fitting is O(n), but O(n^2) with instance-based targets. With log odds and the labels this is
    beta calibration with a = b.

    Parameters
    ----------
    smoothing : None, "platt", float or "instance"
        Targets: the labels; Platt's, with which this is his method; labels moved by a constant in
        [0, 1/2); or those of :func:`bayescal.smoothing.instance_targets`.

    References
    ----------
    J. Platt (1999), Probabilistic outputs for support vector machines.

    Examples
    --------
    >>> import numpy as np
    >>> z, y = np.array([-2.0, -1.0, 1.0, 2.0, -0.5, 0.5]), np.array([0, 0, 1, 1, 1, 0])
    >>> calibration = Logistic()
    >>> state = calibration.fit(z, y, np.ones(6))
    >>> calibration.apply(state, np.array([0.0])).round(3).tolist()
    [0.5]
    """

    smoothing: Smoothing = None

    name: ClassVar[str] = "logistic"

    def __post_init__(self) -> None:
        if isinstance(self.smoothing, str):
            check_choice(self.smoothing, "smoothing", ("platt", "instance"))
        elif self.smoothing is not None and not 0 <= self.smoothing < 0.5:
            raise ValueError(f"smoothing must lie in [0, 0.5), got {self.smoothing}")

    @property
    def domain(self) -> Domain:
        return "real"

    def columns(self, state: State, scores: np.ndarray) -> np.ndarray:
        return np.stack([np.ones_like(scores), scores])

    def targets(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        if self.smoothing == "platt":
            return platt_targets(y, weights)
        if self.smoothing == "instance":
            return instance_targets(scores, y, weights)
        return y + (self.smoothing or 0.0) * (1.0 - 2 * y)

    def describe(self, theta: np.ndarray) -> State:
        return {"intercept": theta[..., 0], "slope": theta[..., 1]}


@register
@dataclass(frozen=True)
class Quadratic(Parametric):
    r"""A parabola in the score z, which may be log odds or any real number.

    .. math:: \operatorname{logit} \hat p = w z + v z^2 + c

    It is the optimum for normal scores whose classes differ in variance, and may fall where z
    rises. Fitting is O(n).

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> z, y = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 0.5]), np.array([1, 0, 0, 0, 1, 1])
    >>> calibration = Quadratic()
    >>> state = calibration.fit(z, y, np.ones(6))
    >>> bool(state["curvature"] > 0)
    True
    """

    name: ClassVar[str] = "quadratic"

    @property
    def domain(self) -> Domain:
        return "real"

    def columns(self, state: State, scores: np.ndarray) -> np.ndarray:
        return np.stack([np.ones_like(scores), scores, scores**2])

    def describe(self, theta: np.ndarray) -> State:
        return {
            "intercept": theta[..., 0],
            "slope": theta[..., 1],
            "curvature": theta[..., 2],
        }
