"""How good probabilities are: proper scores, accuracy and calibration errors.

Every metric takes probabilities, labels and optional ``weights`` as arrays of any kind, computes
in float64 and returns a Python float. Errors are fractions, not percent.
"""

from bayescal.metrics._calibration import ReliabilityCurve, ece, reliability_curve
from bayescal.metrics._scores import accuracy, brier_score, log_loss

__all__ = [
    "ReliabilityCurve",
    "accuracy",
    "brier_score",
    "ece",
    "log_loss",
    "reliability_curve",
]
