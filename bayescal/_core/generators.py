"""NumPy's random generators for draws that must be independent of the caller's data."""

from __future__ import annotations

import numpy as np

# Any large constant: a caller's generator for the same seed, or one spawned from it, has another.
_STREAM = 0xB4E5CA1


def generator(seed: int) -> np.random.Generator:
    """Make a generator for a seed whose numbers are not those of ``default_rng(seed)``.

    Callers often simulate data with the same small seed. Labels that are drawn again with the
    numbers that made the predictions, or the labels, would depend on these.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
