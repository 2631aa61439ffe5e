"""scikit-learn estimators; imported with scikit-learn when one of them is first used."""

from bayescal.estimators._files import load, save
from bayescal.estimators.auto import Auto, Report
from bayescal.estimators.averaging import AveragedBeta, StackedScaling
from bayescal.estimators.calibrated_classifier import CalibratedClassifier
from bayescal.estimators.combining import Average, Composition, MultiLabel, compose
from bayescal.estimators.linear import (
    Dirichlet,
    Matrix,
    StructuredMatrix,
    StructuredVector,
    Vector,
)
from bayescal.estimators.logistic_regression import LogisticRegression
from bayescal.estimators.multiclass import KNN, Forest, Kernel, OneVsRest
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
from bayescal.estimators.scaling import (
    BinwiseTemperature,
    Decision,
    OrderPreserving,
    WeightScaling,
)
from bayescal.estimators.temperature import EnsembleTemperature, Temperature

__all__ = [
    "BBQ",
    "KNN",
    "Auto",
    "Average",
    "AveragedBeta",
    "Beta",
    "BinwiseTemperature",
    "CDFSpline",
    "CalibratedClassifier",
    "CenteredIsotonic",
    "Composition",
    "Decision",
    "Dirichlet",
    "EnsembleTemperature",
    "Forest",
    "Histogram",
    "Isotonic",
    "Kernel",
    "Logistic",
    "LogisticRegression",
    "Matrix",
    "MultiLabel",
    "OneVsRest",
    "OrderPreserving",
    "Quadratic",
    "Report",
    "ScalingBinning",
    "Spline",
    "StackedScaling",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "VennAbers",
    "WeightScaling",
    "compose",
    "load",
    "save",
]
