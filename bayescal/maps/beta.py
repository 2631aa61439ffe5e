"""Beta calibration with three, two or one parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.checks import check_choice
from bayescal.maps._map import Domain, State, register
from bayescal.maps._parametric import Parametric

__all__ = ["Beta"]

Parameters = Literal[3, 2, 1]


@register
@dataclass(frozen=True)
class Beta(Parametric):
    r"""The map that is right if the scores of each class have a beta distribution.

    .. math:: \operatorname{logit} \hat p = a \ln p - b \ln (1 - p) + c, \qquad a, b \ge 0

    With two parameters c = 0; with one, also a = b, which is temperature scaling with T = 1 / a.
    (Two parameters a = b and c are :class:`Logistic` on log odds.) If the likelihood is greatest
    where a or b is negative, the optimum with that one at zero is found. Fitting is O(n).

    Parameters
    ----------
    parameters : {3, 2, 1}

    References
    ----------
    M. Kull, T. Silva Filho and P. Flach (2017), Beta calibration.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.array([0.1, 0.2, 0.6, 0.7, 0.8, 0.9]), np.array([0, 1, 0, 1, 0, 1])
    >>> z = np.log(p) - np.log1p(-p)
    >>> calibration = Beta()
    >>> state = calibration.fit(z, y, np.ones(6))
    >>> sorted(name for name in state if len(name) == 1)
    ['a', 'b', 'c']
    """

    parameters: Parameters = 3

    name: ClassVar[str] = "beta"
    monotone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice(self.parameters, "parameters", (3, 2, 1))

    @property
    def has_intercept(self) -> bool:
        return self.parameters == 3

    @property
    def domain(self) -> Domain:
        return "log_odds"

    def columns(self, state: State, scores: np.ndarray) -> np.ndarray:
        if self.parameters == 1:
            return scores[None]
        # ln p and -ln(1 - p) from log odds: neither is ever one minus the other.
        small = np.log1p(np.exp(-np.abs(scores)))
        logs = [np.minimum(scores, 0) - small, np.maximum(scores, 0) + small]
        return np.stack([np.ones_like(scores), *logs] if self.parameters == 3 else logs)

    def positive(self, p: int) -> np.ndarray:
        return np.arange(p) >= p - min(p, 2)

    def describe(self, theta: np.ndarray) -> State:
        slopes = theta[..., 1:] if self.parameters == 3 else theta
        c = theta[..., 0] if self.parameters == 3 else np.zeros_like(theta[..., 0])
        return {"a": slopes[..., 0], "b": slopes[..., -1], "c": c}
