"""Difficult scores and labels for the tests of all calibrators."""

HUGE = 1.7e308

#: Scores in [0, 1] and labels, by name.
PROBABILITIES: dict[str, tuple[list[float], list[int]]] = {
    "one positive": ([0.3], [1]),
    "one negative": ([0.0], [0]),
    "two rows": ([0.1, 0.9], [0, 1]),
    "two rows, reversed": ([0.1, 0.9], [1, 0]),
    "two tied rows": ([0.5, 0.5], [0, 1]),
    "one class": ([0.1, 0.4, 0.4, 1.0], [1, 1, 1, 1]),
    "the other class": ([0.1, 0.4, 0.4, 1.0], [0, 0, 0, 0]),
    "constant": ([1.0] * 5, [0, 1, 1, 0, 1]),
    "limits": ([0.0, 1.0, 0.0, 1.0], [0, 1, 1, 0]),
    "tiny": ([1e-300, 0.0, 5e-324, 1e-323, 1.0, 1 - 2**-53], [0, 1, 0, 1, 1, 0]),
    "subnormal neighbors": ([0.0, 5e-324, 1e-323], [0, 1, 1]),
    "alternating": ([k / 40 for k in range(40)], [0, 1] * 20),
}
#: The data sets above, and scores of any size.
SCORES = {
    **PROBABILITIES,
    "huge": ([-HUGE, HUGE, 0.0, 1e-300], [0, 1, 1, 0]),
    "far outlier": ([0.1, 0.2, 0.3, 1e300], [0, 1, 0, 1]),
}
