"""Minimization of smooth functions by Newton's method."""
