"""Figures: reliability diagrams, calibration maps, parameters, costs, comparisons of methods.

Matplotlib is imported when a figure is drawn. Color-blind readers can distinguish the colors, and
markers and lines also differ in grayscale.
"""

from bayescal.plots._by_size import by_size
from bayescal.plots._critical_difference import critical_difference
from bayescal.plots._cumulative import cumulative
from bayescal.plots._curve import curve
from bayescal.plots._decision_cost import decision_cost
from bayescal.plots._monitor import monitor
from bayescal.plots._parameters import parameters
from bayescal.plots._reliability.by_model import by_model
from bayescal.plots._reliability.classwise import classwise
from bayescal.plots._reliability.diagram import reliability
from bayescal.plots._reliability.display import ReliabilityDisplay
from bayescal.plots._simplex import simplex

__all__ = [
    "ReliabilityDisplay",
    "by_model",
    "by_size",
    "classwise",
    "critical_difference",
    "cumulative",
    "curve",
    "decision_cost",
    "monitor",
    "parameters",
    "reliability",
    "simplex",
]


def __dir__() -> list[str]:
    return __all__
