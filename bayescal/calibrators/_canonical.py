"""Calibrators that draw random numbers for classes, whatever the order of these."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from bayescal._core.numerics import softmax
from bayescal.calibrators._base import Calibrator, State


@dataclass(kw_only=True, eq=False, repr=False)
class CanonicalCalibrator(Calibrator):
    """A calibrator that sees classes in ascending order of their mean score.

    So the random numbers that belong to a class do not depend on the place of its column.

    Parameters
    ----------
    random_state : int, RandomState or None
    """

    random_state: int | np.random.RandomState | None = field(default=None)

    @abstractmethod
    def _fit_ordered(
        self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int
    ) -> State:
        """Do as ``_fit``, of classes in this order."""

    @abstractmethod
    def _apply_ordered(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Do as ``apply``, of classes in this order."""

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        probs = softmax(scores) if self.domain == "logits" else scores
        # Rounding must not decide between classes that are all but equal.
        mean = np.round(weights @ probs / weights.sum(), 9)
        share = np.bincount(y, weights, minlength=scores.shape[1]) / weights.sum()
        order = np.lexsort((share, mean))
        rank = np.argsort(order)
        state = self._fit_ordered(np.take(scores, order, axis=1), rank[y], weights, seed)
        return {**state, "class_order": order}

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        order = state["class_order"]
        probs = np.empty(scores.shape)
        probs[:, order] = self._apply_ordered(state, np.take(scores, order, axis=1))
        return probs
