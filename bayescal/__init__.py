"""Bayesian calibration of classifiers' probabilities, fast on CPU, GPU and TPU."""

from bayescal import datasets, metrics, plots, smoothing
from bayescal._core.warnings import AccuracyWarning, SamplingWarning
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

__version__ = "0.1.0"

__all__ = [
    "AccuracyWarning",
    "BetaPrior",
    "DirichletPrior",
    "GaussianPrior",
    "MultivariateGaussianPrior",
    "NormalInverseGammaPrior",
    "Posterior",
    "Prediction",
    "Prior",
    "SamplingWarning",
    "datasets",
    "metrics",
    "plots",
    "posterior",
    "posterior_predict",
    "smoothing",
]
