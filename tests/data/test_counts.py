"""Weights as numbers of rows."""

import numpy as np
import pytest

from bayescal._core.numerics import effective_size
from bayescal.data.weights import as_counts


def test_whole_weights_are_counts_as_they_are() -> None:
    weights = np.array([0.0, 3.0, 1.0])
    np.testing.assert_array_equal(as_counts(weights, np.ones(3), np.ones(3)), weights)


@pytest.mark.parametrize("size", [None, 700.0])
def test_shares_come_as_often_as_they_ask_for(size: float | None) -> None:
    rng = np.random.default_rng(0)
    p, y, weights = rng.uniform(size=60), rng.integers(0, 2, 60), rng.exponential(size=60)
    counts = as_counts(weights, p, y, size)
    worth = weights.sum() ** 2 / (weights**2).sum()
    assert effective_size(weights.sum(), weights @ weights) == pytest.approx(worth)
    size = size or round(worth)
    assert counts.sum() == size and (counts == np.floor(counts)).all()
    assert np.abs(counts - weights / weights.sum() * size).max() < 1
    # Counts are spread evenly by label and prediction: cumulative sums are off by less than one.
    order = np.lexsort((p, y))
    off = np.cumsum(counts[order]) - np.cumsum(weights[order]) / weights.sum() * size
    assert np.abs(off).max() <= 0.5 + 1e-9
