"""Figures: reliability diagrams, calibration maps, parameters, costs, comparisons of methods.

Matplotlib is imported when a figure is drawn. Color-blind readers can distinguish the colors, and
markers and lines also differ in gray.
"""

from bayescal.plots._by_model import by_model as by_model
from bayescal.plots._by_size import by_size as by_size
from bayescal.plots._classwise import classwise as classwise
from bayescal.plots._critical_difference import critical_difference as critical_difference
from bayescal.plots._cumulative import cumulative as cumulative
from bayescal.plots._curve import curve as curve
from bayescal.plots._decision_cost import decision_cost as decision_cost
from bayescal.plots._display import ReliabilityDisplay as ReliabilityDisplay
from bayescal.plots._parameters import parameters as parameters
from bayescal.plots._reliability import reliability as reliability
from bayescal.plots._simplex import simplex as simplex
