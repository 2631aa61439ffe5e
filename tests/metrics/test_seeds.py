"""Draws for chance corrections are independent of data simulated with the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from bayescal import metrics


@pytest.mark.parametrize("seed", [0, 3])
def test_interval_of_predictions_drawn_with_the_same_seed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    probs = rng.random(400)
    y = (np.random.default_rng(99).random(400) < probs).astype(int)

    def upper(number: int) -> float:
        return metrics.interval("ece", probs, y, seed=number).upper

    others = np.array([upper(number) for number in range(10, 22)])
    # With shared random numbers all drawn labels were 0, giving 0.083 instead of about 0.068.
    assert abs(upper(seed) - others.mean()) < 6 * others.std()
