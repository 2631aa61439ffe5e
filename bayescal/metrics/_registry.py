"""All metrics by name: tests and reports go through this table."""

from __future__ import annotations

from collections.abc import Callable

from bayescal.metrics._calibration import ece
from bayescal.metrics._scores import accuracy, brier_score, log_loss

# Each is called with probabilities, labels and, by keyword, weights, and returns a float.
METRICS: dict[str, Callable[..., float]] = {
    "log_loss": log_loss,
    "brier_score": brier_score,
    "accuracy": accuracy,
    "ece": ece,
}
