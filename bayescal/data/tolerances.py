"""What rounding may do to probabilities that users hand in."""

#: By how much a row of probabilities may miss one, and a probability lie beyond [0, 1].
SUM_TOLERANCE, RANGE_TOLERANCE = 1e-3, 1e-6
