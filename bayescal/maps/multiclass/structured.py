"""Structured vector and matrix scaling: temperature first, then shrunk deviations from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayescal.maps._map import State
from bayescal.maps.multiclass._linear import LinearMap, Rows
from bayescal.maps.multiclass._map import Domain, register_multiclass
from bayescal.maps.multiclass._member import smooth
from bayescal.regression.posterior import Draws
from bayescal.regression.softmax_objective import Design
from bayescal.regression.temperature import fit_inverse_temperature

__all__ = ["StructuredMatrix", "StructuredVector"]


class _Structured(LinearMap):
    """What both share: x = log((1 - e) softmax(s log p) + e / k), e = 1 / (n + 1).

    The penalties are priors; a posterior is that of the deviations at the best temperature.
    """

    @property
    def domain(self) -> Domain:
        return "logits"

    @property
    def keeps_missing(self) -> bool:
        return True

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        scaled = fit_inverse_temperature(scores, y, weights)
        smoothing = 1 / (weights.sum() + 1)
        told = {"inverse": np.asarray(scaled.inverse), "smoothing": np.asarray(smoothing)}
        state = super().fit(self._smooth(told, scores), y, weights, seed)
        with np.errstate(divide="ignore"):
            return {**state, **told, "temperature": 1 / told["inverse"]}

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        return super().apply(state, self._smooth(state, scores))

    def sample(
        self,
        state: State,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        inference: str,
        num_samples: int,
        seed: int,
    ) -> Draws:
        smooth = self._smooth(state, scores)
        return super().sample(state, smooth, y, weights, inference, num_samples, seed)

    def predict_draws(
        self, state: State, theta: np.ndarray, scores: np.ndarray, level: float | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return super().predict_draws(state, theta, self._smooth(state, scores), level)

    def _smooth(self, state: State, scores: np.ndarray) -> np.ndarray:
        return smooth(scores, state["inverse"], state["smoothing"])


@register_multiclass
@dataclass(frozen=True)
class StructuredVector(_Structured):
    r"""Structured vector scaling (SVS): factors and intercepts shrunk towards the best temperature.

    .. math:: \hat p = \operatorname{softmax}(x + v \circ x + b), \qquad
        \min \overline{CE} + \frac{k}{n} (\|b\|^2 + \|v\|^2)

    where x are the logarithms of temperature-scaled probabilities, mixed with the uniform
    distribution in the proportion 1 / (n + 1), and n is the total weight. O(n k) time for each of
    about twenty products.

    References
    ----------
    probmetrics, the library where the method was published as ``SVSCalibrator``.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.log([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
    >>> x, y = np.repeat(x, 4, axis=0), np.array([0, 0, 1, 2, 1, 1, 0, 2, 2, 2, 1, 0])
    >>> calibration = StructuredVector()
    >>> state = calibration.fit(x, y, np.ones(12), seed=0)
    >>> calibration.apply(state, x[:1]).round(2).tolist()
    [[0.47, 0.28, 0.24]]
    """

    name: ClassVar[str] = "structured_vector"

    def design(self, rows: Rows) -> Design:
        ones = np.ones((len(rows.y), 1))
        return Design(rows.x, rows.y, rows.weights, ones, rows.x)

    def penalties(self, rows: Rows, unit: float, seed: int) -> tuple[np.ndarray, State]:
        k = rows.x.shape[1]
        return np.concatenate([np.full(k, 2.0 * k), np.full(k, 2.0 * k / unit**2)]), {}

    def describe(self, theta: np.ndarray, k: int, unit: float) -> State:
        return {"coef": (1 + theta[..., k:]) / unit, "intercept": theta[..., :k]}

    def logits(self, state: State, scores: np.ndarray) -> np.ndarray:
        return scores * state["coef"][..., None, :] + state["intercept"][..., None, :]


@register_multiclass
@dataclass(frozen=True)
class StructuredMatrix(_Structured):
    r"""Structured matrix scaling (SMS): as SVS, with a full matrix whose off-diagonal shrinks more.

    .. math:: \hat p = \operatorname{softmax}(x + W x + b), \qquad
        \min \overline{CE} + \frac{k}{n} \Bigl(\|b\|^2 + \sum_i w_{ii}^2\Bigr)
        + \frac{k (k - 1)}{n} \sum_{i \ne j} w_{ij}^2

    with x as in :class:`StructuredVector`. O(n k^2) time for each of some tens of products.

    References
    ----------
    probmetrics, the library where the method was published as ``SMSCalibrator``.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.log([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
    >>> x, y = np.repeat(x, 4, axis=0), np.array([0, 0, 1, 2, 1, 1, 0, 2, 2, 2, 1, 0])
    >>> calibration = StructuredMatrix()
    >>> state = calibration.fit(x, y, np.ones(12), seed=0)
    >>> calibration.apply(state, x[:1]).round(2).tolist()
    [[0.47, 0.28, 0.24]]
    """

    name: ClassVar[str] = "structured_matrix"

    def design(self, rows: Rows) -> Design:
        ones = np.ones((len(rows.y), 1))
        features = np.concatenate([rows.x, ones], axis=1)
        return Design(rows.x, rows.y, rows.weights, features)

    def penalties(self, rows: Rows, unit: float, seed: int) -> tuple[np.ndarray, State]:
        k = rows.x.shape[1]
        matrix = np.full((k, k + 1), 2.0 * k * (k - 1) / unit**2)
        np.fill_diagonal(matrix, 2.0 * k / unit**2)
        matrix[:, k] = 2.0 * k
        return matrix.ravel(), {}

    def describe(self, theta: np.ndarray, k: int, unit: float) -> State:
        matrix = theta.reshape(*theta.shape[:-1], k, k + 1)
        return {"coef": (np.eye(k) + matrix[..., :k]) / unit, "intercept": matrix[..., k]}

    def logits(self, state: State, scores: np.ndarray) -> np.ndarray:
        return scores @ np.swapaxes(state["coef"], -1, -2) + state["intercept"][..., None, :]
