"""Figures: reliability diagrams, calibration curves, parameters, costs, comparisons of methods.

Matplotlib is imported when a figure is drawn. Colour-blind readers can distinguish the colours,
and markers and lines differ also in grey.
"""

from bayescal.plots._by_size import by_size
from bayescal.plots._classwise import classwise
from bayescal.plots._critical_difference import critical_difference
from bayescal.plots._curve import curve
from bayescal.plots._decision_cost import decision_cost
from bayescal.plots._parameters import parameters
from bayescal.plots._reliability import reliability
from bayescal.plots._simplex import simplex

__all__ = [
    "by_size",
    "classwise",
    "critical_difference",
    "curve",
    "decision_cost",
    "parameters",
    "reliability",
    "simplex",
]
