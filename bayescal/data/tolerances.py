"""Tolerances for rounding errors of probabilities from users."""

#: Tolerances of the sum of a row of probabilities, and of the range [0, 1].
SUM_TOLERANCE, RANGE_TOLERANCE = 1e-3, 1e-6
