"""Calibration maps of binary scores, pure: one file for each method."""

from bayescal.maps._map import REGISTRY, Map
from bayescal.maps.averaged_beta import AveragedBeta
from bayescal.maps.bbq import BBQ
from bayescal.maps.beta import Beta
from bayescal.maps.cdf_spline import CDFSpline
from bayescal.maps.histogram import Histogram
from bayescal.maps.isotonic import CenteredIsotonic, Isotonic
from bayescal.maps.logistic import Logistic, Quadratic
from bayescal.maps.scaling_binning import ScalingBinning
from bayescal.maps.spline import Spline
from bayescal.maps.temperature import Temperature
from bayescal.maps.venn_abers import VennAbers

__all__ = [
    "BBQ",
    "REGISTRY",
    "AveragedBeta",
    "Beta",
    "CDFSpline",
    "CenteredIsotonic",
    "Histogram",
    "Isotonic",
    "Logistic",
    "Map",
    "Quadratic",
    "ScalingBinning",
    "Spline",
    "Temperature",
    "VennAbers",
]
