"""Measures of multi-class studies with known truth."""

import numpy as np
import pytest

from benchmarks.studies import _measures


def test_nothing_beats_the_truth() -> None:
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([1.0] * 3, 500)
    y = (rng.random(500)[:, None] > np.cumsum(truth, axis=1)[:, :2]).sum(axis=1)
    best = _measures.measure_known(truth, y, truth)
    assert [best[key] for key in ("distance_l1", "distance_l2", "loss_gap")] == [0, 0, 0]
    assert best["accuracy"] == pytest.approx(truth.max(axis=1).mean())
    assert best["brier_score"] == pytest.approx(1 - (truth**2).sum(axis=1).mean())
    for shift in (0.02, 0.3):
        result = _measures.measure_known((1 - shift) * truth + shift * np.eye(3)[0], y, truth)
        for key in ("log_loss", "brier_score"):
            assert result[key] > best[key]
        assert result["accuracy"] <= best["accuracy"]
        move = shift * (np.eye(3)[0] - truth)
        assert result["distance_l1"] == pytest.approx(np.abs(move).sum(axis=1).mean())
        assert result["distance_l2"] == pytest.approx(np.linalg.norm(move, axis=1).mean())
        assert result["class_wise_error"] == pytest.approx(result["distance_l1"] / 3)
