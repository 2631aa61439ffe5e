"""Calibrators as those of probmetrics."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def make() -> type:
    """Return the class, which is made when it is first asked for."""
    from probmetrics.calibrators import Calibrator  # type: ignore[import-not-found]
    from sklearn.base import clone

    from bayescal.calibrators.auto import Auto

    class ProbmetricsCalibrator(Calibrator):
        """A calibrator of this package as one of probmetrics, for its comparisons and CalArena.

        Parameters
        ----------
        calibrator : calibrator, optional
            With ``inputs="probs"``; by default ``Auto()``.

        Attributes
        ----------
        calibrator_ : fitted calibrator
        classes_ : list of int
            Class codes, as many as the probabilities have columns.
        """

        def __init__(self, calibrator: Any = None) -> None:
            super().__init__()
            self.calibrator = calibrator

        def _fit_impl(self, X: np.ndarray, y: np.ndarray) -> None:
            own: Any = Auto() if self.calibrator is None else clone(self.calibrator)
            if own.inputs != "probs":
                raise ValueError(f"calibrator must have inputs='probs', got {own.inputs!r}")
            own.set_params(classes=tuple(range(X.shape[1])))
            self.calibrator_ = own.fit(_doubled(X), y)

        def _predict_proba_impl(self, X: np.ndarray) -> np.ndarray:
            return self.calibrator_.predict_proba(_doubled(X))

    # As if it stood at the top of the module: so it can be pickled.
    ProbmetricsCalibrator.__qualname__ = "ProbmetricsCalibrator"
    ProbmetricsCalibrator.__module__ = "bayescal.adapters"
    return ProbmetricsCalibrator


def _doubled(probs: np.ndarray) -> np.ndarray:
    """Return probabilities in double precision, of two classes the second and its complement."""
    probs = np.asarray(probs, float)
    return np.stack([1 - probs[:, 1], probs[:, 1]], axis=1) if probs.shape[1] == 2 else probs
