"""Calibrators of the package probmetrics, as peers if it is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

#: Names of the calibrators in probmetrics.
NAMES = "svs", "sms", "temp-scaling", "ts-mix", "isotonic", "ivap"


def available() -> bool:
    """Check whether the package is installed."""
    return find_spec("probmetrics") is not None


def peers() -> dict[str, Callable[..., np.ndarray]]:
    """Build functions of calibration probabilities, labels and test probabilities."""
    return {f"probmetrics {name}": _runner(name) for name in NAMES}


def _runner(name: str) -> Callable[..., np.ndarray]:
    def run(probs: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
        from probmetrics.calibrators import get_calibrator  # type: ignore[import-not-found]

        calibrator: Any = get_calibrator(name)
        calibrator.fit(probs, y)
        return np.asarray(calibrator.predict_proba(test), float)

    return run
