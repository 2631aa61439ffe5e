"""Calibration maps of several classes, pure: one file for each method."""

from bayescal.maps.multiclass._map import MULTICLASS, MulticlassMap
from bayescal.maps.multiclass.binwise_temperature import BinwiseTemperature
from bayescal.maps.multiclass.decision import Decision
from bayescal.maps.multiclass.ensemble_temperature import EnsembleTemperature
from bayescal.maps.multiclass.forest import Forest
from bayescal.maps.multiclass.kernel import Kernel
from bayescal.maps.multiclass.knn import KNN
from bayescal.maps.multiclass.matrix import Dirichlet, Matrix
from bayescal.maps.multiclass.one_vs_rest import OneVsRest
from bayescal.maps.multiclass.order_preserving import OrderPreserving
from bayescal.maps.multiclass.stacked_scaling import StackedScaling
from bayescal.maps.multiclass.structured import StructuredMatrix, StructuredVector
from bayescal.maps.multiclass.temperature import Temperature
from bayescal.maps.multiclass.vector import Vector
from bayescal.maps.multiclass.weight_scaling import WeightScaling

__all__ = [
    "KNN",
    "MULTICLASS",
    "BinwiseTemperature",
    "Decision",
    "Dirichlet",
    "EnsembleTemperature",
    "Forest",
    "Kernel",
    "Matrix",
    "MulticlassMap",
    "OneVsRest",
    "OrderPreserving",
    "StackedScaling",
    "StructuredMatrix",
    "StructuredVector",
    "Temperature",
    "Vector",
    "WeightScaling",
]
