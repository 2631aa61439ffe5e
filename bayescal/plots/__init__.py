"""Figures: reliability diagrams, calibration curves, maps of three classes on the simplex.

Matplotlib is imported when a figure is drawn. Colours are told apart by colour-blind readers,
markers and lines also in grey.
"""

from bayescal.plots._curve import curve
from bayescal.plots._reliability import reliability
from bayescal.plots._simplex import simplex

__all__ = ["curve", "reliability", "simplex"]
