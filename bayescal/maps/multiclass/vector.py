"""Vector scaling of logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayescal.maps._map import State
from bayescal.maps.multiclass._linear import LinearMap, Rows
from bayescal.maps.multiclass._map import Domain, register_multiclass
from bayescal.regression.softmax_objective import Design
from bayescal.regression.temperature import fit_inverse_temperature

__all__ = ["Vector"]


@register_multiclass
@dataclass(frozen=True)
class Vector(LinearMap):
    r"""Each class's logit times a factor, plus an intercept.

    .. math:: \hat p = \operatorname{softmax}(v \circ z + b)

    Maximum likelihood, by Newton's method: O(n k) for each of some tens of products with the
    Hessian. Factors may be negative. Intercepts are centred: only their differences matter.

    References
    ----------
    C. Guo et al. (2017), On calibration of modern neural networks.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.log([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
    >>> z, y = np.repeat(z, 4, axis=0), np.array([0, 0, 1, 2, 1, 1, 0, 2, 2, 2, 1, 0])
    >>> calibration = Vector()
    >>> state = calibration.fit(z, y, np.ones(12), seed=0)
    >>> calibration.apply(state, z[:1]).round(2).tolist()
    [[0.49, 0.24, 0.26]]
    """

    name: ClassVar[str] = "vector"

    @property
    def domain(self) -> Domain:
        return "logits"

    def design(self, rows: Rows) -> Design:
        ones = np.ones((len(rows.y), 1))
        return Design(rows.x, rows.y, rows.weights, ones, rows.x)

    def start(self, rows: Rows) -> np.ndarray:
        k = rows.x.shape[1]
        inverse = fit_inverse_temperature(rows.x, rows.y, rows.weights).inverse
        return np.concatenate([np.zeros(k), np.full(k, min(inverse, 10.0) - 1)])

    def describe(self, theta: np.ndarray, k: int, unit: float) -> State:
        intercept = theta[..., :k]
        centred = intercept - intercept.mean(axis=-1, keepdims=True)
        return {"coef": (1 + theta[..., k:]) / unit, "intercept": centred}

    def logits(self, state: State, scores: np.ndarray) -> np.ndarray:
        return scores * state["coef"][..., None, :] + state["intercept"][..., None, :]
