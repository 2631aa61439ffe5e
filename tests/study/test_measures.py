"""What studies of several classes measure, against loops."""

import numpy as np
import pytest
from scipy.special import softmax

from bayescal.study import _measures


def draw_rows(seed: int, n: int, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return logits (n, k) and labels (n,)."""
    rng = np.random.default_rng(seed)
    z = 4 * rng.normal(size=(n, k))
    return z, (z / 3 + rng.gumbel(size=(n, k))).argmax(axis=1)


@pytest.mark.parametrize("decisions", [2, 3])
def test_loss_gap_is_that_of_a_loop(decisions: int) -> None:
    z, y = draw_rows(1, 40, 4)
    probs = softmax(z.astype(float), axis=1)
    truth = softmax(z.astype(float) / 3, axis=1)
    losses = np.random.default_rng(5).normal(size=(7, 4, decisions))
    for target in (y.astype(int), truth):
        gaps = []
        for loss in losses:
            gap = 0.0
            for i, p in enumerate(probs):
                costs = [sum(p[j] * loss[j, d] for j in range(4)) for d in range(decisions)]
                best = int(np.argmin(costs))
                real = loss[y[i], best] if target.ndim == 1 else target[i] @ loss[:, best]
                gap += (costs[best] - real) / len(probs)
            gaps.append(abs(gap))
        found = _measures.average_loss_gap(probs, target, functions=7, decisions=decisions, seed=5)
        assert found == pytest.approx(np.mean(gaps), rel=1e-10)


def test_no_loss_gap_of_the_truth() -> None:
    probs = softmax(draw_rows(2, 30)[0].astype(float), axis=1)
    assert _measures.average_loss_gap(probs, probs) == 0


def test_class_wise_error_is_that_of_a_loop() -> None:
    z, y = draw_rows(3, 300)
    probs = softmax(z.astype(float), axis=1)
    errors = []
    for j in range(3):
        place = np.ceil(probs[:, j] * 15).astype(int)
        gaps = [abs(np.sum((probs[:, j] - (y == j))[place == b])) for b in range(16)]
        errors.append(sum(gaps) / len(y))
    assert _measures.class_wise_ece(probs, y) == pytest.approx(np.mean(errors))


def test_nothing_beats_the_truth() -> None:
    rng = np.random.default_rng(0)
    truth = rng.dirichlet([1.0] * 3, 500)
    y = (rng.random(500)[:, None] > np.cumsum(truth, axis=1)[:, :2]).sum(axis=1)
    best = _measures.measure_known(truth, y, truth)
    assert [best[key] for key in ("distance_l1", "distance_l2", "loss_gap")] == [0, 0, 0]
    assert best["accuracy"] == pytest.approx(truth.max(axis=1).mean())
    assert best["brier_score"] == pytest.approx(1 - (truth**2).sum(axis=1).mean())
    for shift in (0.02, 0.3):
        found = _measures.measure_known((1 - shift) * truth + shift * np.eye(3)[0], y, truth)
        for key in ("log_loss", "brier_score"):
            assert found[key] > best[key]
        assert found["accuracy"] <= best["accuracy"]
        move = shift * (np.eye(3)[0] - truth)
        assert found["distance_l1"] == pytest.approx(np.abs(move).sum(axis=1).mean())
        assert found["distance_l2"] == pytest.approx(np.linalg.norm(move, axis=1).mean())
        assert found["class_wise_error"] == pytest.approx(found["distance_l1"] / 3)
