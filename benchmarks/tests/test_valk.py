"""Results of a thesis with its code's options: single maps by hand, and published values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

import bayescal as bc
from benchmarks.studies import _as_published as published
from benchmarks.studies import valk
from benchmarks.studies._measures import MEASURES
from tests.calibrators.brute import example


def test_losses_are_those_of_the_seed() -> None:
    drawn = np.random.RandomState(0).normal(0, 1, 3000).reshape(500, 2, 3)
    np.testing.assert_array_equal(published.losses(3)[:, 2, 1], drawn[:, 1, 2])


def test_only_what_is_below_zero_is_raised() -> None:
    result = published.floored(np.array([[-0.1, 1e-6, 0.5], [0.2, 0.3, 1.2]]))
    expected = np.array([[1e-4, 1e-6, 0.5], [0.2, 0.3, 1 - 1e-4]])
    np.testing.assert_allclose(result, expected / expected.sum(axis=1, keepdims=True))


def test_neighborhoods_have_the_published_floor() -> None:
    p, y, _ = example(300, 3)
    test = np.random.default_rng(1).dirichlet([0.1] * 3, 200)
    test = np.maximum(test, 1e-9) / np.maximum(test, 1e-9).sum(axis=1, keepdims=True)
    averages = []
    for row in test:
        far = np.sum((p - row) ** 2, axis=1)
        averages.append(np.mean((p - np.eye(3)[y])[np.argsort(far)[:20]], axis=0))
    moved = test - averages
    expected = published.floored(moved)
    assert (moved < 0).any()
    result = published.neighborhood(bc.KNN(20, distance="euclidean"))(p, y, test)
    np.testing.assert_allclose(result, expected, atol=1e-12)


def test_a_zero_is_nobodys_neighbor() -> None:
    p, y, _ = example(200, 3)
    p = p.astype(np.float32)
    zero = np.array([[0.0, 0.6, 0.4]], np.float32)
    with_zero = np.vstack([p, zero.repeat(50, axis=0)]), np.append(y, np.zeros(50, int))
    result = published.nearest(*with_zero, p[:5], count=150)
    np.testing.assert_allclose(result, published.nearest(p, y, p[:5], count=150), atol=1e-7)


def test_a_tree_of_depth_zero_is_the_mean_error() -> None:
    p, y, _ = example(100, 3)
    expected = published.floored(p - (p - np.eye(3)[y]).mean(axis=0))
    np.testing.assert_allclose(published.forest(p, y, p, 0), expected, atol=1e-12)
    assert len(np.unique((published.forest(p, y, p, 1) - p).round(9), axis=0)) > 10


def test_least_squares_lower_the_brier_score_more() -> None:
    p, y, _ = example(500, 3)

    def brier(probs: np.ndarray) -> float:
        return float(np.sum((probs - np.eye(3)[y]) ** 2, axis=1).mean())

    result = [
        published.decisions(p, y, p, y, False, squares, 0, most=1) for squares in (False, True)
    ]
    means, squares = (brier(by_floor[published.DECISION_FLOOR][0]) for by_floor in result)
    assert squares < means < brier(p)
    assert [by_floor[published.FLOOR][1] for by_floor in result] == [1, 1]


def test_clipped_steps_do_not_push_back() -> None:
    p, y, _ = example(500, 3)
    first, second = (
        published.decisions(p, y, p, y, clipped, False, 0, most=6)[1e-7][0]
        for clipped in (False, True)
    )
    assert (second < 1e-6).sum() >= (first < 1e-6).sum()


@pytest.mark.slow
def test_run_writes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valk, "_ROWS", (300, 600))
    monkeypatch.setattr(valk, "_STEPS", (1, 10))
    rng = np.random.default_rng(0)
    z = (3 * rng.normal(size=(600, 3))).astype(np.float32)
    y = (z / 3 + rng.gumbel(size=z.shape)).argmax(axis=1)
    parts = {"logits_val": z[:300], "y_val": y[:300], "logits_test": z[300:], "y_test": y[300:]}
    np.savez(tmp_path / "kull_densenet40_c10.npz", **parts)
    result = valk.run(tmp_path, tmp_path / "out", seeds=1, sets=2)
    assert (tmp_path / "out" / "valk.json").exists()
    plain = result["maps"]["uncalibrated"]
    probs = softmax(z[300:].astype(float), axis=1)
    assert plain["brier_score"] == pytest.approx(MEASURES["brier_score"](probs, y[300:]))
    assert result["maps"]["temperature"]["log_loss"] < plain["log_loss"]
    assert len(result["decision"]) == 6 and len(result["order_preserving"]) == 5
    losses = result["partitions"]["simplex"]["10"]["log_loss"]
    assert losses["difference"] == pytest.approx(losses["hard"] - losses["soft"])


@pytest.mark.slow
@pytest.mark.realdata
def test_published_digits(shared_data: Path) -> None:
    data = np.load(shared_data / "predictions" / "kull_densenet40_c10.npz")
    z, y, test = data["logits_val"], data["y_val"].astype(int), data["logits_test"]
    maps = published.maps(z, y, test, 1 / 2.88256)
    drawn = published.losses(10)
    for name, gap in (("uncalibrated", 0.0295), ("temperature", 0.0063)):
        probs = maps[name](z, y, test)
        result = bc.metrics.loss_gap(probs, data["y_test"], losses=drawn)
        assert result == pytest.approx(gap, abs=5e-5)
    probs = maps["temperature+forest"](z, y, test)
    assert bc.metrics.loss_gap(probs, data["y_test"], losses=drawn) == pytest.approx(4e-3, abs=5e-5)
    assert MEASURES["log_loss"](probs, data["y_test"]) == pytest.approx(0.227, abs=5e-4)
    assert MEASURES["ece_mass"](probs, data["y_test"]) == pytest.approx(0.0092, abs=5e-5)
