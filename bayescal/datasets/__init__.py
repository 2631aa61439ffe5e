"""Data sets with a known truth, to measure calibrators against what is possible."""

from bayescal.datasets import simplex, synthetic

__all__ = ["simplex", "synthetic"]
