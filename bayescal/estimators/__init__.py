"""scikit-learn estimators; imported with scikit-learn when one of them is first used."""

from bayescal.estimators._files import load, save
from bayescal.estimators.calibrated_classifier import CalibratedClassifier
from bayescal.estimators.logistic_regression import LogisticRegression
from bayescal.estimators.nonparametric import (
    BBQ,
    CDFSpline,
    CenteredIsotonic,
    Histogram,
    Isotonic,
    ScalingBinning,
    VennAbers,
)
from bayescal.estimators.parametric import Beta, Logistic, Quadratic, Spline, Temperature

__all__ = [
    "BBQ",
    "Beta",
    "CDFSpline",
    "CalibratedClassifier",
    "CenteredIsotonic",
    "Histogram",
    "Isotonic",
    "Logistic",
    "LogisticRegression",
    "Quadratic",
    "ScalingBinning",
    "Spline",
    "Temperature",
    "VennAbers",
    "load",
    "save",
]
