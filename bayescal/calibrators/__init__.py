"""Calibrators, one file for each method; imported with scikit-learn when one is first used."""

from bayescal.calibrators._base import Calibrator as Calibrator
from bayescal.calibrators.beta import Beta as Beta
from bayescal.calibrators.temperature import Temperature as Temperature
from bayescal.calibrators.vector import Vector as Vector
