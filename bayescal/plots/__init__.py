"""Figures: reliability diagrams and calibration curves.

Matplotlib is imported when a figure is drawn. Colours are told apart by colour-blind readers,
markers and lines also in grey.
"""

from bayescal.plots._curve import curve
from bayescal.plots._reliability import reliability

__all__ = ["curve", "reliability"]
