"""After deployment: label shift, and expected performance without labels."""

from bayescal.deployment.assumption import ShiftCheck
from bayescal.deployment.performance import Expectation, ExpectedPerformance, expected_performance
from bayescal.deployment.prior_shift import PriorShift

__all__ = ["Expectation", "ExpectedPerformance", "PriorShift", "ShiftCheck", "expected_performance"]
