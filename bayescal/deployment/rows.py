"""A fitted calibrator as it is now, and the rows that tell how good it is."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
from sklearn.utils.validation import check_is_fitted

from bayescal.calibrators.base.dispatch import as_fitted

__all__ = ["CalibrationRows", "kept_rows", "snapshot"]


@dataclass(frozen=True)
class CalibrationRows:
    """Calibration rows: calibrated probabilities, labels as positions, positive weights."""

    probs: np.ndarray
    codes: np.ndarray
    weights: np.ndarray


def snapshot(calibrator: Any) -> Any:
    """Return a fitted calibrator as it is now; later fits of it change nothing."""
    if calibrator is None:
        return None
    if isinstance(calibrator, type) or not hasattr(calibrator, "predict_proba"):
        raise TypeError(f"calibrator must be a fitted calibrator, got {calibrator!r}")
    check_is_fitted(calibrator)
    if not hasattr(calibrator, "classes_") or getattr(calibrator, "inputs", "") == "top_logits":
        raise TypeError(
            "calibrator must predict the probabilities of all classes, got "
            f"{type(calibrator).__name__}; fit one PriorShift for each label"
        )
    fitted = as_fitted(calibrator)
    if fitted is not calibrator:
        return fitted
    return copy(calibrator)


def kept_rows(calibrator: Any) -> CalibrationRows | None:
    """Return the rows that a snapshot keeps of its fit, with their probabilities, if any."""
    kept = getattr(calibrator, "_kept_rows", None)
    if kept is None:
        return None
    with warnings.catch_warnings(), sklearn.config_context(array_api_dispatch=False):
        warnings.simplefilter("ignore")  # names of columns
        probs = calibrator._probabilities_of(kept)
    del calibrator._kept_rows
    return CalibrationRows(probs, kept.codes, kept.weights)
