"""Calibrators, one file for each method; imported with scikit-learn when one is first used."""

from bayescal.calibrators._base import Calibrator as Calibrator
from bayescal.calibrators.averaged_beta import AveragedBeta as AveragedBeta
from bayescal.calibrators.bbq import BBQ as BBQ
from bayescal.calibrators.beta import Beta as Beta
from bayescal.calibrators.cdf_spline import CDFSpline as CDFSpline
from bayescal.calibrators.centered_isotonic import CenteredIsotonic as CenteredIsotonic
from bayescal.calibrators.histogram import Histogram as Histogram
from bayescal.calibrators.isotonic import Isotonic as Isotonic
from bayescal.calibrators.logistic import Logistic as Logistic
from bayescal.calibrators.one_vs_rest import OneVsRest as OneVsRest
from bayescal.calibrators.quadratic import Quadratic as Quadratic
from bayescal.calibrators.scaling_binning import ScalingBinning as ScalingBinning
from bayescal.calibrators.spline import Spline as Spline
from bayescal.calibrators.temperature import Temperature as Temperature
from bayescal.calibrators.vector import Vector as Vector
from bayescal.calibrators.venn_abers import VennAbers as VennAbers
