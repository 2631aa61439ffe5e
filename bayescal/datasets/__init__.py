"""Data sets with known true probabilities, to measure how close calibrators come to the optimum."""

from bayescal.datasets import simplex, synthetic

__all__ = ["simplex", "synthetic"]
