"""scikit-learn estimators; imported with scikit-learn when one of them is first used."""

from bayescal.estimators._files import load, save
from bayescal.estimators.calibrated_classifier import CalibratedClassifier
from bayescal.estimators.linear import (
    Dirichlet,
    Matrix,
    StructuredMatrix,
    StructuredVector,
    Vector,
)
from bayescal.estimators.logistic_regression import LogisticRegression
from bayescal.estimators.multiclass import KNN, EnsembleTemperature, Forest, Kernel, OneVsRest
from bayescal.estimators.nonparametric import (
    BBQ,
    CDFSpline,
    CenteredIsotonic,
    Histogram,
    Isotonic,
    ScalingBinning,
    VennAbers,
)
from bayescal.estimators.parametric import Beta, Logistic, Quadratic, Spline
from bayescal.estimators.temperature import Temperature

__all__ = [
    "BBQ",
    "KNN",
    "Beta",
    "CDFSpline",
    "CalibratedClassifier",
    "CenteredIsotonic",
    "Dirichlet",
    "EnsembleTemperature",
    "Forest",
    "Histogram",
    "Isotonic",
    "Kernel",
    "Logistic",
    "LogisticRegression",
    "Matrix",
    "OneVsRest",
    "Quadratic",
    "ScalingBinning",
    "Spline",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "VennAbers",
    "load",
    "save",
]
