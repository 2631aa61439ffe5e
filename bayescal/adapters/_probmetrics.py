"""An adapter that makes calibrators usable as those of probmetrics."""

from __future__ import annotations

from functools import cache

import numpy as np

from bayescal._core.arrays import AnyModel


@cache
def make() -> type:
    """Make the class, on first use."""
    from probmetrics.calibrators import Calibrator  # type: ignore[import-not-found]
    from sklearn.base import clone

    from bayescal.calibrators.auto import Auto

    class ProbmetricsCalibrator(Calibrator):
        """Adapter of a calibrator to probmetrics, for its comparisons and CalArena.

        Parameters
        ----------
        calibrator : calibrator, optional
            A calibrator with ``inputs="probs"``; by default ``Auto()``.

        Attributes
        ----------
        calibrator_ : fitted calibrator
            The calibrator after ``fit``.
        classes_ : list of int
            Class codes, as many as the probabilities have columns.
        """

        def __init__(self, calibrator: AnyModel = None) -> None:
            super().__init__()
            self.calibrator = calibrator

        def _fit_impl(self, X: np.ndarray, y: np.ndarray) -> None:
            calibrator: AnyModel = Auto() if self.calibrator is None else clone(self.calibrator)
            if calibrator.inputs != "probs":
                raise ValueError(f"calibrator must have inputs='probs', got {calibrator.inputs!r}")
            calibrator.set_params(classes=tuple(range(X.shape[1])))
            self.calibrator_ = calibrator.fit(X, y)

        def _predict_proba_impl(self, X: np.ndarray) -> np.ndarray:
            return self.calibrator_.predict_proba(X)

    # Pretend that the class is defined at the top of the module, so that it can be pickled.
    ProbmetricsCalibrator.__qualname__ = "ProbmetricsCalibrator"
    ProbmetricsCalibrator.__module__ = "bayescal.adapters"
    return ProbmetricsCalibrator
