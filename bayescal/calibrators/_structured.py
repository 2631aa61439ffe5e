"""What structured vector and matrix scaling share: temperature first, then shrunk deviations."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bayescal.calibrators._base import State
from bayescal.calibrators._linear import LinearCalibrator, Rows
from bayescal.calibrators._member import smooth
from bayescal.calibrators.temperature import fit_inverse_temperature
from bayescal.regression.posterior import Draws


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredCalibrator(LinearCalibrator):
    """Calibrators linear in x = log((1 - e) softmax(s log p) + e / k), where e = 1 / (n + 1).

    The penalties are priors; a posterior is that of the deviations at the best temperature.
    """

    temperature_: float = field(init=False)

    _keeps_missing = True

    def _start(self, rows: Rows) -> np.ndarray:
        k, m, d, _ = self._design(rows).sizes
        return np.zeros(k * m + d)

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        scaled = fit_inverse_temperature(scores, y, weights)
        scale = {
            "inverse": np.asarray(scaled.inverse),
            "smoothing": np.asarray(1 / (weights.sum() + 1)),
        }
        with np.errstate(divide="ignore"):
            scale["temperature"] = np.asarray(1 / scale["inverse"])
        return {**super()._fit(_smoothed(scale, scores), y, weights, seed), **scale}

    def _sample(
        self, state: State, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> Draws:
        return super()._sample(state, _smoothed(state, scores), y, weights, seed)

    def _curves(self, state: State, theta: np.ndarray, scores: np.ndarray) -> np.ndarray:
        return super()._curves(state, theta, _smoothed(state, scores))


def _smoothed(state: State, scores: np.ndarray) -> np.ndarray:
    return smooth(scores, state["inverse"], state["smoothing"])
