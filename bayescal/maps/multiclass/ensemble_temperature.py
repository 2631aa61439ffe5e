"""Ensemble temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayescal.maps._map import State
from bayescal.maps.multiclass._draws import summarise
from bayescal.maps.multiclass._linear import apply_inverse
from bayescal.maps.multiclass._map import (
    Domain,
    Keeps,
    ParametricMulticlassMap,
    register_multiclass,
)
from bayescal.maps.multiclass._simplex import best_mixture
from bayescal.regression.mixture import sample_mixture
from bayescal.regression.posterior import Draws
from bayescal.regression.temperature import fit_inverse_temperature

__all__ = ["EnsembleTemperature"]


@register_multiclass
@dataclass(frozen=True)
class EnsembleTemperature(ParametricMulticlassMap):
    r"""A mixture of temperature-scaled, original and uniform probabilities (ETS).

    .. math:: \hat p = w_1 \operatorname{softmax}(z / T) + w_2 \operatorname{softmax}(z) + w_3 / k

    The temperature minimises the log loss alone; then the weights, which are not negative and sum
    to one, minimise that of the mixture, a convex problem. O(n k) time.

    References
    ----------
    J. Zhang, B. Kailkhura, T. Han (2020), Mix-n-match: ensemble and compositional methods for
    uncertainty calibration in deep learning.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.array([[9.0, 0, 0]] * 3 + [[1.0, 0, 0]] * 3)
    >>> y = np.array([0, 0, 1, 0, 0, 2])
    >>> state = EnsembleTemperature().fit(z, y, np.ones(6), seed=0)
    >>> bool(state["mixture"].sum().round(12) == 1)
    True
    """

    name: ClassVar[str] = "ensemble_temperature"
    keeps: ClassVar[Keeps] = "argmax"

    @property
    def domain(self) -> Domain:
        return "logits"

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        found = fit_inverse_temperature(scores, y, weights)
        rows = np.arange(len(y))
        own = [apply_inverse(scores, s)[rows, y] for s in (found.inverse, 1.0)]
        parts = np.stack([*own, np.full(len(y), 1 / scores.shape[1])], axis=1)
        mixture, loss = best_mixture(parts, weights)
        with np.errstate(divide="ignore"):
            temperature = 1 / np.asarray(found.inverse)
        return {
            "inverse": np.asarray(found.inverse),
            "temperature": temperature,
            "mixture": mixture,
            "objective": np.asarray(loss / weights.sum()),
            "status": np.asarray(int(found.status)),
        }

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        return _mix(scores, float(state["inverse"]), state["mixture"])

    def describe(self, theta: np.ndarray, k: int, unit: float) -> State:
        with np.errstate(divide="ignore"):
            return {"temperature": 1 / theta[..., 0], "mixture": theta[..., 1:]}

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
        """Return draws (chains, draws, 4) of 1 / T and the weights.

        The logarithm of T has the prior N(0, 1.5**2); all weights are equally probable.
        """
        start = float(state["inverse"]), state["mixture"]
        return sample_mixture(scores, y, weights, start, inference, num_samples, seed)

    def predict_draws(
        self, state: State, theta: np.ndarray, scores: np.ndarray, level: float | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        def curves(block: np.ndarray) -> np.ndarray:
            return np.stack([_mix(block, float(draw[0]), draw[1:]) for draw in theta])

        return summarise(curves, scores, len(theta), level)


def _mix(scores: np.ndarray, inverse: float, mixture: np.ndarray) -> np.ndarray:
    scaled, same, uniform = mixture
    probs = scaled * apply_inverse(scores, inverse)
    probs += same * apply_inverse(scores, 1.0)
    probs += uniform / scores.shape[1]
    return probs
