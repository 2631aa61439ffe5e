"""The order of classes, determined by their contents."""

from __future__ import annotations

import numpy as np
import pytest

from bayescal.data.order.classes import canonical_order


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e200])
def test_permuting_classes_permutes_the_order(unit: float) -> None:
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(200, 6)) * unit, rng.integers(0, 6, 200)
    counts = rng.integers(1, 4, 200)
    order = canonical_order(scores, y, counts.astype(float))
    assert sorted(order) == list(range(6)) and (order != np.arange(6)).any()
    turn = rng.permutation(6)
    inverse = np.argsort(turn)
    turned = canonical_order(scores[:, turn], inverse[y], counts.astype(float))
    np.testing.assert_array_equal(turn[turned], order)
    rows = rng.permutation(np.repeat(np.arange(200), counts))
    again = canonical_order(scores[rows], y[rows], np.ones(len(rows)))
    np.testing.assert_array_equal(again, order)


def test_classes_that_agree_keep_their_columns() -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]])
    assert canonical_order(p, np.arange(3), np.ones(3)).tolist() == [0, 1, 2]
    zeros = np.zeros((2, 3))
    assert canonical_order(zeros, np.array([1, 1]), np.ones(2)).tolist() == [0, 2, 1]
