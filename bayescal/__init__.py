"""Bayesian calibration of classifiers' probabilities, fast on CPU, GPU and TPU."""

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayescal import adapters as adapters
    from bayescal import compare as compare
    from bayescal import datasets as datasets
    from bayescal import losses as losses
    from bayescal import metrics as metrics
    from bayescal import plots as plots
    from bayescal import smoothing as smoothing
    from bayescal._core.execution.compilation import cache_compilations as cache_compilations
    from bayescal._core.warnings import AccuracyWarning as AccuracyWarning
    from bayescal._core.warnings import SamplingWarning as SamplingWarning
    from bayescal.calibrators import *  # noqa: F403
    from bayescal.data.blocks.stream import Blocks as Blocks
    from bayescal.data.language_models.logprobs import top_logprobs as top_logprobs
    from bayescal.data.language_models.tokens import tokens as tokens
    from bayescal.deployment import ExpectedPerformance as ExpectedPerformance
    from bayescal.deployment import PriorShift as PriorShift
    from bayescal.deployment import expected_performance as expected_performance
    from bayescal.evaluation import Evaluation as Evaluation
    from bayescal.evaluation import evaluate as evaluate
    from bayescal.inference.function import PosteriorFunction as PosteriorFunction
    from bayescal.inference.prediction import Prediction as Prediction
    from bayescal.inference.result import Posterior as Posterior
    from bayescal.models import BetaPrior as BetaPrior
    from bayescal.models import DirichletPrior as DirichletPrior
    from bayescal.models import GaussianPrior as GaussianPrior
    from bayescal.models import MultivariateGaussianPrior as MultivariateGaussianPrior
    from bayescal.models import NormalInverseGammaPrior as NormalInverseGammaPrior
    from bayescal.models import Prior as Prior
    from bayescal.monitoring import Monitor as Monitor
    from bayescal.posterior import posterior as posterior
    from bayescal.posterior import posterior_predict as posterior_predict
    from bayescal.sweeps import sweep as sweep

__version__ = "0.1.0"

# The same for Python, which imports what a name needs when it is first used. The names of
# calibrators are those of bayescal.calibrators, which imports scikit-learn.
_PUBLIC_MODULES = ("adapters", "compare", "datasets", "losses", "metrics", "plots", "smoothing")
_NAMES = {
    "_core.execution.compilation": ("cache_compilations",),
    "_core.warnings": ("AccuracyWarning", "SamplingWarning"),
    "data.blocks.stream": ("Blocks",),
    "data.language_models.logprobs": ("top_logprobs",),
    "data.language_models.tokens": ("tokens",),
    "evaluation": ("Evaluation", "evaluate"),
    "inference.function": ("PosteriorFunction",),
    "inference.prediction": ("Prediction",),
    "inference.result": ("Posterior",),
    "models": (
        "BetaPrior",
        "DirichletPrior",
        "GaussianPrior",
        "MultivariateGaussianPrior",
        "NormalInverseGammaPrior",
        "Prior",
    ),
    "monitoring": ("Monitor",),
    "posterior": ("posterior", "posterior_predict"),
    "sweeps": ("sweep",),
}
# Estimators import scikit-learn, as calibrators do.
_ESTIMATORS = {"deployment": ("ExpectedPerformance", "PriorShift", "expected_performance")}
_MODULE_OF = {
    name: module
    for names_of in (_NAMES, _ESTIMATORS)
    for module, names in names_of.items()
    for name in names
}


class _Package(ModuleType):
    """Importing a module makes it an attribute: posterior must stay the function all the same."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


if not TYPE_CHECKING:  # which would take every name for a right one

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return sorted({*_PUBLIC_MODULES, *_MODULE_OF, *_calibrators()})
        public = name.isidentifier() and name[0] != "_"
        if public and name not in _MODULE_OF and find_spec(f"{__name__}.{name}"):
            return import_module(f"{__name__}.{name}")
        if name in _MODULE_OF or (public and name in _calibrators()):
            module = import_module(f"{__name__}.{_MODULE_OF.get(name, 'calibrators')}")
            globals()[name] = getattr(module, name)
            return globals()[name]
        hint = _did_you_mean(name) if public else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def _did_you_mean(name: str) -> str:
    """Suggest a public name for one of another library, or of a module of this one."""
    from difflib import get_close_matches

    for module in ("metrics", "plots", "losses", "compare"):
        if name in dir(import_module(f"{__name__}.{module}")):
            return f"; did you mean {module}.{name}?"
    known = {public.lower(): public for public in sys.modules[__name__].__all__}
    known |= {"platt": "Logistic", "sigmoid": "Logistic"}
    key = re.sub("(scaling|calibration|calibrator|regression|binning|cv)$", "", name.lower())
    similar = get_close_matches(key, known, 1)
    return f"; did you mean {known[similar[0]]}?" if similar else ""


def __dir__() -> list[str]:
    public = {*sys.modules[__name__].__all__, "__version__"}
    return sorted(public | {name for name in globals() if name[:2] == name[-2:] == "__"})


def _calibrators() -> list[str]:
    """List the public names of bayescal.calibrators."""
    return import_module(f"{__name__}.calibrators").__all__
