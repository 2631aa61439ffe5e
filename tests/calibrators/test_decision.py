"""Decision calibration: steps by hand, partitions by brute force, and theoretical guarantees."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from scipy.optimize import minimize

from bayescal import metrics
from bayescal._core.numerics import softmax
from bayescal.calibrators import Decision, Temperature
from bayescal.calibrators.multiclass.decision import calibrator as module
from bayescal.calibrators.multiclass.decision.partition import (
    membership,
    nearest_probabilities,
    violation_of,
    worst_partition,
)
from bayescal.data.rows import Rows
from tests.calibrators.brute import example, split_into_folds


def brier(p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average(np.sum((np.eye(p.shape[1])[y] - p) ** 2, axis=1), weights=weights))


def replay(state: dict[str, np.ndarray], p: np.ndarray) -> list[np.ndarray]:
    """Repeat the steps of a fitted state in plain loops over rows."""
    moved = [p]
    for v, c, a in zip(state["directions"], state["offsets"], state["adjustments"], strict=True):
        after = []
        for row in moved[-1]:
            share = np.exp(v @ row + c - (v @ row + c).max())
            after.append(row + (share / share.sum()) @ a)
        moved.append(np.array(after))
    return moved


def test_one_part_is_the_mean_error() -> None:
    p, y, weights = example(200, 3)
    state = Decision(1, 1, crop=1e-9)._fit(Rows(p, y, weights), seed=0)
    shift = np.average(np.eye(3)[y] - p, axis=0, weights=weights)
    np.testing.assert_allclose(state["adjustments"], shift[None, None], atol=1e-12)
    assert state["violations"][0] == pytest.approx(np.linalg.norm(shift))
    result = Decision(1, 1, crop=1e-9).apply(state, p)
    inside = (p + shift > 0).all(axis=1)
    np.testing.assert_allclose(result[inside], (p + shift)[inside], atol=1e-12)


def test_two_distinct_rows_are_set_right() -> None:
    p = np.repeat([[0.6, 0.4], [0.2, 0.8]], [8, 4], axis=0)
    y = np.repeat([0, 1, 0, 1], [2, 6, 3, 1])
    state = Decision(steps=30, crop=1e-9)._fit(Rows(p, y, np.ones(12)), seed=0)
    result = Decision(steps=30, crop=1e-9).apply(state, p)
    np.testing.assert_allclose(result[[0, -1]], [[0.25, 0.75], [0.75, 0.25]], atol=1e-3)
    # The first partition separates them: norms sqrt(2) * 8/12 * 0.35 and sqrt(2) * 4/12 * 0.55.
    assert state["violations"][0] == pytest.approx(np.sqrt(2) * (2.8 + 2.2) / 12, rel=0.02)


@pytest.mark.parametrize(("decisions", "k"), [(1, 2), (2, 4), (3, 4), (7, 2)])
def test_no_step_raises_the_brier_score(decisions: int, k: int) -> None:
    p, y, weights = example(500, k)
    state = Decision(decisions, 8)._fit(Rows(p, y, weights), seed=1)
    steps = replay(state, p)
    scores = [brier(moved, y, weights) for moved in steps]
    np.testing.assert_allclose(state["briers"], scores, rtol=1e-12)
    assert state["objective"] == state["briers"][-1]
    for t, moved in enumerate(steps[:-1]):
        share = softmax(moved @ state["directions"][t].T + state["offsets"][t])
        size = np.average(share, axis=0, weights=weights)
        error = (weights / weights.sum() * (np.eye(k)[y] - moved).T) @ share
        np.testing.assert_allclose(state["adjustments"][t], (error / size).T, atol=1e-12)
        violation = np.linalg.norm(error, axis=0).sum()
        assert state["violations"][t] == pytest.approx(violation, rel=1e-9)
        promised = size @ np.sum(state["adjustments"][t] ** 2, axis=1)
        assert scores[t] - scores[t + 1] >= promised - 1e-14
    # The simplex is convex and holds the labels, except for the cropped margin.
    result = Decision(decisions, 8).apply(state, p)
    np.testing.assert_allclose(
        result, nearest_probabilities(steps[-1], float(state["crop"])), atol=1e-12
    )
    assert brier(result, y, weights) <= scores[-1] + 2 * k * float(state["crop"])
    assert brier(nearest_probabilities(steps[-1], 0.0), y, weights) <= scores[-1] + 1e-14


@pytest.mark.parametrize("n", [60, 400])
def test_partition_of_two_classes_against_all_thresholds(n: int) -> None:
    p, y, weights = example(n, 2)
    errors = (np.eye(2)[y] - p) * (weights / weights.sum())[:, None]
    order = np.argsort(p[:, 0])
    below = np.cumsum(errors[order], axis=0)
    total = below[-1]
    hard = np.linalg.norm(below, axis=1) + np.linalg.norm(total - below, axis=1)
    result = worst_partition(p, errors, 2, np.random.default_rng(0))
    assert result.violation >= 0.95 * hard.max()
    assert result.violation <= hard.max() + 1e-9
    memberships = membership(result.directions, result.offsets, p, hard=False)
    assert violation_of(memberships.T @ errors) == pytest.approx(result.violation, rel=1e-9)


@pytest.mark.parametrize("k", [3, 5])
def test_partition_against_many_random_planes(k: int) -> None:
    p, y, weights = example(300, k)
    errors = (np.eye(k)[y] - p) * (weights / weights.sum())[:, None]
    rng = np.random.default_rng(1)
    best = 0.0
    for _ in range(20_000):
        direction = rng.normal(size=k)
        side = (p - p[rng.integers(300)]) @ direction > 0
        one = side @ errors
        both = np.linalg.norm(one) + np.linalg.norm(errors.sum(axis=0) - one)
        best = max(best, float(both))
    result = worst_partition(p, errors, 2, np.random.default_rng(0))
    # A soft border cannot separate single rows exactly.
    assert result.violation >= 0.9 * best


def best_line(p: np.ndarray, errors: np.ndarray) -> float:
    """Return the largest violation of two parts of three classes, over lines through two rows."""
    flat, total, best = p[:, :2], errors.sum(axis=0), 0.0
    for i, a in enumerate(flat):
        for j in range(i):
            along = flat[j] - a
            side = (flat - a) @ np.array([-along[1], along[0]]) > 1e-13
            # The line can be shifted and turned to include either row, both or none.
            for more in (0, errors[i], errors[j], errors[i] + errors[j]):
                one = side @ errors + more
                both = np.linalg.norm(one) + np.linalg.norm(total - one)
                best = max(best, float(both))
    return best


@pytest.mark.parametrize("seed", range(2))
def test_hard_partition_against_all_lines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.ones(3), 90), rng.integers(0, 3, 90)
    errors = (np.eye(3)[y] - p) / 90
    best = best_line(p, errors)
    soft = worst_partition(p, errors, 2, np.random.default_rng(0))
    result = worst_partition(p, errors, 2, np.random.default_rng(0), hard=True)
    assert 0.97 * best <= result.violation <= best + 1e-12
    assert soft.violation < result.violation
    memberships = membership(result.directions, result.offsets, p, hard=True)
    assert set(np.unique(memberships)) == {0.0, 1.0} and (memberships.sum(axis=1) == 1).all()
    assert violation_of(memberships.T @ errors) == pytest.approx(result.violation, rel=1e-9)


def test_hard_partition_into_three_improves_and_keeps_rows() -> None:
    p, y, weights = example(200, 4)
    errors = (np.eye(4)[y] - p) * (weights / weights.sum())[:, None]
    best = max(
        float(np.linalg.norm((part[:, None] == np.arange(3)).T @ errors, axis=1).sum())
        for functions in np.random.default_rng(1).normal(size=(5000, 5, 3))
        for part in [(np.column_stack([p - p.mean(axis=0), np.ones(200)]) @ functions).argmax(1)]
    )
    result = worst_partition(p, errors, 3, np.random.default_rng(0), hard=True)
    assert result.violation >= best
    two = worst_partition(p, errors, 2, np.random.default_rng(0), hard=True)
    assert result.violation >= two.violation


def test_hard_partitions_into_three_do_not_depend_on_order_and_repetition() -> None:
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(3), 200)
    y = (rng.random(200) < p[:, :1].T + 0.2).astype(int)[0] + (rng.random(200) < p[:, 2])
    weights, order = rng.integers(1, 3, 200), rng.permutation(200)
    make = partial(Decision, 3, 3, partition="hard", random_state=0)
    expected = make().fit(p, y, weights).predict_proba(p)
    for index in (np.repeat(np.arange(200), weights), np.repeat(order, weights[order])):
        probs = make().fit(p[index], y[index]).predict_proba(p)
        np.testing.assert_allclose(probs, expected, atol=1e-9)


def test_hard_corrections_are_the_means_of_parts() -> None:
    p, y, weights = example(400, 3)
    chosen = Decision(steps=4, partition="hard", crop=1e-9)
    state, moved = chosen._fit(Rows(p, y, weights), seed=0), p
    for v, c, a in zip(state["directions"], state["offsets"], state["adjustments"], strict=True):
        part_index = (moved @ v.T + c).argmax(axis=1)
        for part in range(2):
            inside = part_index == part
            error = np.average((np.eye(3)[y] - moved)[inside], axis=0, weights=weights[inside])
            np.testing.assert_allclose(a[part], error, atol=1e-12)
        moved = moved + a[part_index]
        # Once both parts are calibrated, their intersections are too.
        left = (part_index == 0) @ ((np.eye(3)[y] - moved) * weights[:, None])
        np.testing.assert_allclose(left, 0, atol=1e-9)
    assert (np.diff(state["briers"]) < 0).all()
    near = nearest_probabilities(moved, 1e-9)
    np.testing.assert_allclose(chosen.apply(state, p), near, atol=1e-12)


@pytest.mark.parametrize("least", [0.0, 0.01, 0.2])
def test_nearest_probabilities_against_scipy(least: float) -> None:
    rows = np.random.default_rng(0).normal(0.25, 0.5, size=(12, 4))
    result = nearest_probabilities(rows, least)
    for row, actual in zip(rows, result, strict=True):
        best = minimize(
            lambda q, row=row: np.sum((q - row) ** 2),
            np.full(4, 0.25),
            jac=lambda q, row=row: 2 * (q - row),
            bounds=[(least, 1)] * 4,
            constraints={"type": "eq", "fun": lambda q: q.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(actual, best.x, atol=1e-6)
    np.testing.assert_allclose(result.sum(axis=1), 1, atol=1e-14)
    assert result.min() >= least
    np.testing.assert_allclose(nearest_probabilities(rows, 0.25), 0.25, atol=1e-15)


@pytest.mark.parametrize("partition", ["soft", "hard"])
def test_weights_are_repetition_and_order_does_not_matter(
    partition: Literal["soft", "hard"],
) -> None:
    p, y, _ = example(150, 3, digits=9)
    count = np.random.default_rng(0).integers(1, 4, 150)
    chosen = Decision(3, 4, partition=partition)
    state = chosen._fit(Rows(p, y, count.astype(float)), seed=2)
    order = np.random.default_rng(1).permutation(150)
    others = (
        chosen._fit(Rows(p.repeat(count, 0), y.repeat(count), np.ones(count.sum())), seed=2),
        chosen._fit(Rows(p[order], y[order], count[order].astype(float)), seed=2),
        chosen._fit(Rows(p, y, 7.0 * count), seed=2),
    )
    for other in others:
        for name, value in state.items():
            np.testing.assert_allclose(other[name], value, atol=1e-6)
    again = chosen._fit(Rows(p, y, count.astype(float)), seed=2)
    np.testing.assert_array_equal(again["directions"], state["directions"])
    different = chosen._fit(Rows(p, y, count.astype(float)), seed=3)
    assert abs(different["directions"] - state["directions"]).max() > 1e-3


def test_tolerance_stops() -> None:
    p, y, weights = example(300, 3)
    whole = Decision(steps=12)._fit(Rows(p, y, weights), seed=0)
    assert whole["status"] == 0 and whole["n_iter"] == 12
    tolerance = float(np.sort(whole["violations"])[-3])
    state = Decision(steps=12, tolerance=tolerance)._fit(Rows(p, y, weights), seed=0)
    expected = int(np.argmax(whole["violations"] <= tolerance))
    assert state["n_iter"] == expected and state["status"] == 0
    np.testing.assert_array_equal(state["violations"], whole["violations"][:expected])
    state = Decision(steps=12, tolerance=1e-12)._fit(Rows(p, y, weights), seed=0)
    assert state["n_iter"] == 12 and state["status"] == 1
    # There is nothing to do: predictions equal the data, except for the smallest probability.
    state = Decision(tolerance=1e3)._fit(Rows(p, y, weights), seed=0)
    assert state["n_iter"] == 0
    result = Decision(tolerance=1e3).apply(state, p)
    np.testing.assert_allclose(result, nearest_probabilities(p, 0.01 / 9))


def test_cross_validation_is_that_of_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_STEPS", 4)
    # Otherwise refits would draw for the classes in the order of their own rows.
    monkeypatch.setattr(module, "order_of_classes", lambda rows: np.arange(rows.k))
    p, y, weights = example(160, 3)
    chosen = Decision(steps="cv")
    state = chosen._fit(Rows(p, y, weights), seed=4)
    p, y, weights, folds = split_into_folds(p, y, weights, 5)
    expected = []
    for t in range(1, 5):
        result = np.empty_like(p)
        for f in range(5):
            kept, refit = folds != f, Decision(steps=t)
            result[~kept] = refit.apply(
                refit._fit(Rows(p[kept], y[kept], weights[kept]), 4), p[~kept]
            )
        expected.append(brier(result, y, weights))
    tried = len(state["cv_briers"]) - 1
    assert tried >= 3
    np.testing.assert_allclose(state["cv_briers"][1:], expected[:tried], rtol=1e-6)
    cropped = nearest_probabilities(p, float(state["crop"]))
    assert state["cv_briers"][0] == pytest.approx(brier(cropped, y, weights))
    assert state["n_iter"] == np.argmin(state["cv_briers"]) and state["status"] == 0


def test_similar_sizes_share_a_compilation(compilations: Callable[[], Any]) -> None:
    Decision(steps=1)._fit(Rows(*example(200, 6)), seed=0)
    with compilations() as names:
        Decision(steps=3)._fit(Rows(*example(256, 6)), seed=1)
    assert not [name for name in names if "climb" in name]


@pytest.mark.realdata
def test_published_figures_of_densenet(shared_data: Path) -> None:
    data = np.load(shared_data / "predictions" / "kull_densenet40_c10.npz")
    y = data["y_val"].astype(int)
    ones, scaling = np.ones(len(y)), Temperature()
    scaled = scaling._fit(Rows(data["logits_val"], y, ones), seed=0)
    given, test = (scaling.apply(scaled, data[name]) for name in ("logits_val", "logits_test"))
    result = Decision().apply(Decision()._fit(Rows(given, y, ones), seed=0), test)
    # Published after temperature scaling: Brier score 0.110, log loss 0.264, ECE 1.20 %.
    assert metrics.brier_score(result, data["y_test"]) == pytest.approx(0.110, abs=5e-4)
    assert metrics.log_loss(result, data["y_test"]) < 0.24
    assert metrics.ece(result, data["y_test"], bins=15, binning="equal_mass") < 0.0120


def test_paths_that_have_ended_stay_where_they_are() -> None:
    """Check that no fold makes a step with a wide tolerance: predictions only get cropped."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 150)
    y = rng.integers(0, 3, 150)
    fitted = Decision(steps="cv", tolerance=100.0).fit(p, y)
    inside = p.min(axis=1) > 0.01
    np.testing.assert_allclose(fitted.predict_proba(p)[inside], p[inside], atol=1e-9)
    assert inside.sum() > 100
