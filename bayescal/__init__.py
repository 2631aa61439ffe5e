"""Bayesian calibration of classifiers' probabilities, fast on CPU, GPU and TPU."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bayescal import compare as compare
from bayescal import datasets as datasets
from bayescal import metrics as metrics
from bayescal import plots as plots
from bayescal import smoothing as smoothing
from bayescal._core.compilation import cache_compilations as cache_compilations
from bayescal._core.stream import Blocks as Blocks
from bayescal._core.tokens import tokens as tokens
from bayescal._core.warnings import AccuracyWarning as AccuracyWarning
from bayescal._core.warnings import SamplingWarning as SamplingWarning
from bayescal.evaluation import Evaluation as Evaluation
from bayescal.evaluation import evaluate as evaluate
from bayescal.inference.prediction import Prediction as Prediction
from bayescal.inference.result import Posterior as Posterior
from bayescal.models import BetaPrior as BetaPrior
from bayescal.models import DirichletPrior as DirichletPrior
from bayescal.models import GaussianPrior as GaussianPrior
from bayescal.models import MultivariateGaussianPrior as MultivariateGaussianPrior
from bayescal.models import NormalInverseGammaPrior as NormalInverseGammaPrior
from bayescal.models import Prior as Prior
from bayescal.posterior import posterior as posterior
from bayescal.posterior import posterior_predict as posterior_predict
from bayescal.sweeps import sweep as sweep

if TYPE_CHECKING:
    from bayescal import adapters as adapters
    from bayescal import losses as losses
    from bayescal.calibrators import *  # noqa: F403

__version__ = "0.1.0"

_MODULES = ("adapters", "compare", "datasets", "losses", "metrics", "plots", "smoothing")


def __getattr__(name: str) -> Any:
    if name in ("adapters", "losses"):
        return import_module(f"bayescal.{name}")
    if name == "__all__":
        return _public_names()
    # Calibrators need scikit-learn, which takes longer to import than all the rest.
    if name[0] != "_" and name in _names_of(calibrators := import_module("bayescal.calibrators")):
        return getattr(calibrators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_public_names()})


def _public_names() -> list[str]:
    here = [n for n, v in globals().items() if _is_public(n, v)]
    return sorted({*_MODULES, *here, *_names_of(import_module("bayescal.calibrators"))})


def _names_of(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if _is_public(name, value)]


def _is_public(name: str, value: object) -> bool:
    """Return whether a name is for users: what this package defines, but modules."""
    return name[0] != "_" and str(getattr(value, "__module__", "")).startswith("bayescal")
