"""What calibrators of several classes share: scikit-learn's contract over a pure map."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal.estimators._calibrator import Calibrator, PosteriorCalibrator
from bayescal.estimators._labels import read_rows
from bayescal.maps._map import State
from bayescal.maps.multiclass._inputs import convert, least_probabilities
from bayescal.maps.multiclass._map import MulticlassMap, ParametricMulticlassMap


class MulticlassCalibrator(Calibrator):
    """A calibrator of the scores of a classifier of two or more classes."""

    def predict_proba(self, scores: Any) -> np.ndarray:
        """Return the calibrated probabilities of all classes.

        Parameters
        ----------
        scores : array-like of shape (m, k), or (m,) or (m, 1) for two classes

        Returns
        -------
        array of shape (m, k), float64
            Columns in the order of ``classes_``.
        """
        return super().predict_proba(scores)

    def _read(self, rows: np.ndarray, y: Any, sample_weight: Any) -> Any:
        columns = max(2, rows.shape[1])
        return read_rows(rows, y, sample_weight, self.classes, columns)

    def _fit_map(
        self,
        calibration: MulticlassMap,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        seed: int,
    ) -> State:
        return calibration.fit(scores, y, weights, seed)

    def _convert(self, rows: np.ndarray, domain: Any, least: np.ndarray | None) -> Any:
        if self.inputs != "probs" or domain == "probability":
            return convert(rows, self.inputs, domain), None
        if least is None:
            least = least_probabilities(rows)
        return convert(rows, self.inputs, domain, least), least

    def _both(self, calibration: MulticlassMap, values: np.ndarray) -> np.ndarray:
        return calibration.apply(self._state, values)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags


class ParametricMulticlassCalibrator(PosteriorCalibrator, MulticlassCalibrator):
    """A calibrator of several classes whose parameters may have a posterior."""

    def _describe(self, theta: np.ndarray) -> State:
        state = self._state
        k = int(state["present"].sum()) if "present" in state else len(self.classes_)
        return self._map().describe(theta, k, float(state.get("unit", 1.0)))

    def _best(self, calibration: ParametricMulticlassMap, values: np.ndarray) -> np.ndarray:
        return calibration.apply(self._state, values)

    def _curves(
        self, calibration: ParametricMulticlassMap, values: np.ndarray, level: float | None
    ) -> Any:
        return calibration.predict_draws(self._state, self._draws(), values, level)
