"""Calibrators, a file for each method or family; imported with scikit-learn on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

from bayescal.calibrators.catalog import MODULES

if TYPE_CHECKING:
    from bayescal.calibrators.auto import Auto as Auto
    from bayescal.calibrators.base.calibrator import Calibrator as Calibrator
    from bayescal.calibrators.base.export import export as export
    from bayescal.calibrators.base.function import PredictFunction as PredictFunction
    from bayescal.calibrators.base.report import Report as Report
    from bayescal.calibrators.binary.averaged_beta.calibrator import AveragedBeta as AveragedBeta
    from bayescal.calibrators.binary.bbq import BBQ as BBQ
    from bayescal.calibrators.binary.beta import Beta as Beta
    from bayescal.calibrators.binary.cdf_spline import CDFSpline as CDFSpline
    from bayescal.calibrators.binary.histogram import Histogram as Histogram
    from bayescal.calibrators.binary.logistic import Logistic as Logistic
    from bayescal.calibrators.binary.monotone.isotonic import CenteredIsotonic as CenteredIsotonic
    from bayescal.calibrators.binary.monotone.isotonic import Isotonic as Isotonic
    from bayescal.calibrators.binary.monotone.near_isotonic import NearIsotonic as NearIsotonic
    from bayescal.calibrators.binary.monotone.venn_abers import VennAbers as VennAbers
    from bayescal.calibrators.binary.quadratic import Quadratic as Quadratic
    from bayescal.calibrators.binary.scaling_binning import ScalingBinning as ScalingBinning
    from bayescal.calibrators.binary.spline.calibrator import Spline as Spline
    from bayescal.calibrators.combine.average import Average as Average
    from bayescal.calibrators.combine.classifier.calibrator import (
        CalibratedClassifier as CalibratedClassifier,
    )
    from bayescal.calibrators.combine.composition import Composition as Composition
    from bayescal.calibrators.combine.composition import compose as compose
    from bayescal.calibrators.combine.multi_label import MultiLabel as MultiLabel
    from bayescal.calibrators.combine.multicalibration import Multicalibration as Multicalibration
    from bayescal.calibrators.combine.one_vs_one import OneVsOne as OneVsOne
    from bayescal.calibrators.combine.one_vs_rest import OneVsRest as OneVsRest
    from bayescal.calibrators.combine.pooling.calibrator import GroupEffect as GroupEffect
    from bayescal.calibrators.combine.pooling.calibrator import PartialPooling as PartialPooling
    from bayescal.calibrators.files import load as load
    from bayescal.calibrators.files import save as save
    from bayescal.calibrators.logistic_regression import LogisticRegression as LogisticRegression
    from bayescal.calibrators.multiclass.binwise_temperature import (
        BinwiseTemperature as BinwiseTemperature,
    )
    from bayescal.calibrators.multiclass.decision.calibrator import Decision as Decision
    from bayescal.calibrators.multiclass.dirichlet import Dirichlet as Dirichlet
    from bayescal.calibrators.multiclass.ensemble_temperature import (
        EnsembleTemperature as EnsembleTemperature,
    )
    from bayescal.calibrators.multiclass.gaussian_process.calibrator import (
        GaussianProcess as GaussianProcess,
    )
    from bayescal.calibrators.multiclass.matrix import Matrix as Matrix
    from bayescal.calibrators.multiclass.order_preserving.calibrator import (
        OrderPreserving as OrderPreserving,
    )
    from bayescal.calibrators.multiclass.structured import StructuredMatrix as StructuredMatrix
    from bayescal.calibrators.multiclass.structured import StructuredVector as StructuredVector
    from bayescal.calibrators.multiclass.temperature import Temperature as Temperature
    from bayescal.calibrators.multiclass.top_logits.calibrator import TopProbs as TopProbs
    from bayescal.calibrators.multiclass.vector import Vector as Vector
    from bayescal.calibrators.multiclass.weight_scaling import WeightScaling as WeightScaling
    from bayescal.calibrators.neighborhood.forest import Forest as Forest
    from bayescal.calibrators.neighborhood.kernel import Kernel as Kernel
    from bayescal.calibrators.neighborhood.knn import KNN as KNN
    from bayescal.calibrators.stack.calibrator import StackedScaling as StackedScaling

if not TYPE_CHECKING:  # type checkers would accept every name
    __all__ = sorted(MODULES)

    def __getattr__(name: str) -> object:
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
