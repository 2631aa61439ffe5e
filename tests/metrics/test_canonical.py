"""The calibration error of probability vectors against a loop over cells."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from bayescal import metrics


@pytest.mark.parametrize("distance", ["total_variation", "euclidean"])
@pytest.mark.parametrize("bins", [1, 4])
def test_equals_a_loop_over_cells(distance: str, bins: int) -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(3, 0.5), size=80)
    y, weights = rng.integers(0, 3, 80), rng.random(80)
    cells = defaultdict(list)
    for i, row in enumerate(probs):
        cells[tuple(int(np.ceil(p * bins)) for p in row)].append(i)
    total = 0.0
    for rows in cells.values():
        cell_weights = weights[rows]
        gap = np.average(np.eye(3)[y[rows]] - probs[rows], axis=0, weights=cell_weights)
        size = np.abs(gap).sum() / 2 if distance == "total_variation" else np.linalg.norm(gap)
        total += cell_weights.sum() / weights.sum() * size
    result = metrics.canonical_ece(probs, y, bins=bins, distance=distance, weights=weights)  # type: ignore[arg-type]
    assert result == pytest.approx(total, rel=1e-9)


def test_one_column_and_two_agree_away_from_borders() -> None:
    rng = np.random.default_rng(1)
    p, y = rng.random(200), rng.integers(0, 2, 200)
    both = np.stack([1 - p, p], axis=1)
    result = metrics.canonical_ece(p, y)
    assert metrics.canonical_ece(both, y) == pytest.approx(result, rel=1e-12)
    # For two classes the distance is computed from the bins of the second class.
    assert result == pytest.approx(metrics.ece(p, y, bins=10), rel=1e-12)
    with pytest.raises(ValueError, match="distance"):
        metrics.canonical_ece(p, y, distance="cosine")  # type: ignore[arg-type]
