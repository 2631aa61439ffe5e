"""Bayesian calibration of classifiers' probabilities, fast on CPU, GPU and TPU."""

from typing import TYPE_CHECKING, Any

from bayescal import compare, datasets, metrics, plots, smoothing
from bayescal._core.compilation import cache_compilations
from bayescal._core.warnings import AccuracyWarning, SamplingWarning
from bayescal.evaluation import Evaluation, evaluate
from bayescal.inference.prediction import Prediction
from bayescal.inference.result import Posterior
from bayescal.models import (
    BetaPrior,
    DirichletPrior,
    GaussianPrior,
    MultivariateGaussianPrior,
    NormalInverseGammaPrior,
    Prior,
)
from bayescal.posterior import posterior, posterior_predict
from bayescal.sweeps import sweep

if TYPE_CHECKING:
    from bayescal import losses
    from bayescal.estimators import (
        BBQ,
        KNN,
        Auto,
        Average,
        AveragedBeta,
        Beta,
        BinwiseTemperature,
        CalibratedClassifier,
        CDFSpline,
        CenteredIsotonic,
        Composition,
        Decision,
        Dirichlet,
        EnsembleTemperature,
        Forest,
        Histogram,
        Isotonic,
        Kernel,
        Logistic,
        LogisticRegression,
        Matrix,
        MultiLabel,
        OneVsRest,
        OrderPreserving,
        Quadratic,
        ScalingBinning,
        Spline,
        StackedScaling,
        StructuredMatrix,
        StructuredVector,
        Temperature,
        Vector,
        VennAbers,
        WeightScaling,
        compose,
        load,
        save,
    )

__version__ = "0.1.0"

__all__ = [
    "BBQ",
    "KNN",
    "AccuracyWarning",
    "Auto",
    "Average",
    "AveragedBeta",
    "Beta",
    "BetaPrior",
    "BinwiseTemperature",
    "CDFSpline",
    "CalibratedClassifier",
    "CenteredIsotonic",
    "Composition",
    "Decision",
    "Dirichlet",
    "DirichletPrior",
    "EnsembleTemperature",
    "Evaluation",
    "Forest",
    "GaussianPrior",
    "Histogram",
    "Isotonic",
    "Kernel",
    "Logistic",
    "LogisticRegression",
    "Matrix",
    "MultiLabel",
    "MultivariateGaussianPrior",
    "NormalInverseGammaPrior",
    "OneVsRest",
    "OrderPreserving",
    "Posterior",
    "Prediction",
    "Prior",
    "Quadratic",
    "SamplingWarning",
    "ScalingBinning",
    "Spline",
    "StackedScaling",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "VennAbers",
    "WeightScaling",
    "cache_compilations",
    "compare",
    "compose",
    "datasets",
    "evaluate",
    "load",
    "losses",
    "metrics",
    "plots",
    "posterior",
    "posterior_predict",
    "save",
    "smoothing",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "losses":
        from importlib import import_module

        return import_module("bayescal.losses")
    # Estimators need scikit-learn, which takes longer to import than all the rest.
    if name in __all__:
        from bayescal import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
