"""Binary data for tests of soft targets."""

import numpy as np


def data_set(n: int, d: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw overlapping classes with at least two rows each."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.r_[0, 0, 1, 1, rng.integers(0, 2, size=n - 4)])
    x = rng.normal(size=(n, d)) + y[:, None]
    return (x[:, 0] if d == 1 else x), y
