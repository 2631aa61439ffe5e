"""Decompositions, decision costs, multi-label data and known true probabilities."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.isotonic
import sklearn.metrics

import bayescal as bc
from bayescal import metrics
from tests.calibrators.discrete import add_rounding_errors


def draw_binary(n: int = 300, digits: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    probs = rng.random(n).round(digits)
    return probs, (rng.random(n) < probs**2).astype(int), rng.exponential(size=n)


def draw_classes(n: int = 200, k: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    probs = rng.dirichlet(np.full(k, 0.6), size=n)
    return probs, rng.integers(0, k, n), rng.exponential(size=n)


# --- CORP ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", ["brier", "log_loss"])
@pytest.mark.parametrize("weighted", [False, True])
def test_corp_equals_scores_of_isotonic_regression(score: Any, weighted: bool) -> None:
    probs, y, weights = draw_binary()
    probs = np.clip(probs, 0.01, 0.99)
    chosen = weights if weighted else np.ones(len(y))
    result = metrics.corp(probs, y, score=score, weights=chosen)
    fitted = sklearn.isotonic.IsotonicRegression().fit(probs, y, sample_weight=chosen)
    constant = np.full(len(y), np.average(y, weights=chosen))
    measure = metrics.brier_score if score == "brier" else metrics.log_loss
    original, best, flat = (
        measure(p, y, weights=chosen) for p in (probs, fitted.predict(probs), constant)
    )
    assert result.score == pytest.approx(original, rel=1e-10)
    assert result.miscalibration == pytest.approx(original - best, rel=1e-9)
    assert result.discrimination == pytest.approx(flat - best, rel=1e-9)
    assert result.uncertainty == pytest.approx(flat, rel=1e-10)
    parts = result.miscalibration - result.discrimination + result.uncertainty
    assert parts == pytest.approx(result.score, rel=1e-12)
    np.testing.assert_array_equal(result.predicted, np.unique(probs))
    np.testing.assert_allclose(result.recalibrated, fitted.predict(result.predicted), atol=1e-12)
    assert result.weight.sum() == pytest.approx(chosen.sum())


def test_corp_of_counts_and_order() -> None:
    probs, y, _ = draw_binary()
    counts = np.random.default_rng(0).integers(0, 3, len(y))
    weighted = metrics.corp(probs, y, weights=counts)
    repeated = metrics.corp(np.repeat(probs, counts), np.repeat(y, counts))
    reverse = metrics.corp(probs[::-1], y[::-1], weights=counts[::-1])
    for one, other, third in zip(weighted, repeated, reverse, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
        np.testing.assert_allclose(one, third, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("score", ["brier", "log_loss"])
def test_corp_of_predictions_that_are_equal_up_to_rounding(score: Any, dtype: type) -> None:
    rng = np.random.default_rng(0)
    probs = (rng.integers(1, 100, 500) / 100).astype(dtype)
    y = (rng.random(500) < probs**1.5).astype(int)
    result = metrics.corp(add_rounding_errors(probs, rng), y, score=score)
    for one, other in zip(result, metrics.corp(probs, y, score=score), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("score", ["brier", "log_loss"])
def test_corp_at_the_ends(score: Any) -> None:
    for probs, y in (([0.0, 1.0], [0, 1]), ([0.0, 1.0], [1, 0]), ([0.3], [1]), ([1.0], [0])):
        for eps in (None, 0):
            result = metrics.corp(probs, y, score=score, eps=eps)
            assert not np.isnan(result[:4]).any()
    right = metrics.corp([0.0, 0.0, 1.0], [0, 0, 1], score=score, eps=0)
    assert right.score == right.miscalibration == 0
    assert right.discrimination == pytest.approx(right.uncertainty)
    assert metrics.corp([0.0], [1], score="log_loss", eps=0).miscalibration == math.inf


def test_corp_of_confidence() -> None:
    probs, y, _ = draw_classes()
    top, right = probs.max(axis=1), (probs.argmax(axis=1) == y).astype(int)
    assert metrics.corp(probs, y).score == pytest.approx(metrics.brier_score(top, right))


# --- decisions ----------------------------------------------------------------------------------


def test_cost_of_treatment() -> None:
    """Figure 6 of Valk (2022), after Zhao et al. (2021)."""
    treat, leave = [3.3, 1.0, 2.0, 3.0], [0.0, 8.0, 10.0, 7.0]
    result = metrics.decision_cost([[0.60, 0.25, 0.05, 0.10]], costs=np.transpose([treat, leave]))
    np.testing.assert_allclose(result.expected, [[2.63, 3.2]], rtol=1e-12)
    assert result.decision.tolist() == [0]
    assert result.predicted == pytest.approx(2.63) and result.realized is None


def test_costs_equal_a_loop() -> None:
    probs, y, weights = draw_classes()
    weights[:5] = 0
    costs = np.random.default_rng(1).normal(size=(4, 3))
    result = metrics.decision_cost(probs, y, costs=costs, weights=weights)
    predicted = realized = 0.0
    for p, label, w, row, decision in zip(
        probs, y, weights, result.expected, result.decision, strict=True
    ):
        expected_costs = [sum(p[j] * costs[j, d] for j in range(4)) for d in range(3)]
        np.testing.assert_allclose(row, expected_costs, rtol=1e-12)
        assert decision == int(np.argmin(expected_costs))
        predicted += w * min(expected_costs) / weights.sum()
        realized += w * costs[label, decision] / weights.sum()
    assert result.predicted == pytest.approx(predicted, rel=1e-12)
    assert result.realized == pytest.approx(realized, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_decisions_with_equal_costs_are_the_first_in_every_precision(
    dtype: type[np.floating],
) -> None:
    # Expected costs in tenths are integers, hence exact.
    tenths = np.array([(a, b, 10 - a - b) for a in range(11) for b in range(11 - a)])
    y = np.arange(len(tenths)) % 3
    for costs in ([[0, 1, 2], [9, 0, 4], [3, 2, 1]], [[0, 1, 1], [2, 0, 1], [1, 3, -1]]):
        expected = (tenths @ np.array(costs)).argmin(axis=1)
        result = metrics.decision_cost((tenths / 10).astype(dtype), y, costs=costs)
        np.testing.assert_array_equal(result.decision, expected)
        realized = np.array(costs)[y, expected].mean()
        assert result.realized == pytest.approx(realized, rel=1e-12)
        gap = (tenths @ np.array(costs))[np.arange(len(y)), expected].mean() / 10 - realized
        value = metrics.loss_gap((tenths / 10).astype(dtype), y, losses=np.array([costs], float))
        assert value == pytest.approx(abs(gap), abs=1e-3)
    # Both decisions cost 0.9 if the probability 0.1 is right; the first costs 9 * 0.3 in fact.
    tenth, happened = np.full(10, 0.1, dtype), [1] * 3 + [0] * 7
    value = metrics.loss_gap(tenth, happened, losses=[[[0.0, 1.0], [9.0, 0.0]]])
    assert value == pytest.approx(1.8, rel=1e-3)
    two = metrics.decision_cost((tenths[:, 0] / 10).astype(dtype), costs=[[0, 1], [9, 0]])
    np.testing.assert_array_equal(two.decision, tenths[:, 0] > 1)


def test_zero_one_costs_are_errors_of_the_classifier() -> None:
    probs, y, _ = draw_classes()
    result = metrics.decision_cost(probs, y, costs=1 - np.eye(4))
    assert result.realized == pytest.approx(1 - metrics.accuracy(probs, y))
    two = metrics.decision_cost([0.3, 0.7], [1, 1], costs=[[0, 1], [4, 0]])
    assert two.decision.tolist() == [1, 1] and two.realized == 0


def test_loss_gap_equals_a_double_loop() -> None:
    probs, y, weights = draw_classes(50)
    losses = np.random.default_rng(1).normal(size=(6, 4, 3))
    gaps = []
    for loss in losses:
        total = 0.0
        for p, label, w in zip(probs, y, weights, strict=True):
            expected_losses = [sum(p[j] * loss[j, d] for j in range(4)) for d in range(3)]
            best = int(np.argmin(expected_losses))
            total += w * (expected_losses[best] - loss[label, best])
        gaps.append(abs(total) / weights.sum())
    value = metrics.loss_gap(probs, y, losses=losses, weights=weights)
    assert value == pytest.approx(np.mean(gaps), rel=1e-11)
    assert metrics.loss_gap(probs, probs) == pytest.approx(0, abs=1e-15)
    kept = weights.copy()
    kept[:9] = 0
    truth = np.eye(4)[y]
    assert metrics.loss_gap(probs, truth, losses=losses, weights=kept) == pytest.approx(
        metrics.loss_gap(probs, y, losses=losses, weights=kept)
    )


# --- many labels --------------------------------------------------------------------------------


def draw_multi_label(n: int = 150) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    probs = rng.random((n, 3))
    return probs, (rng.random((n, 3)) < probs**2).astype(int), rng.exponential(size=n)


@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_label_errors_are_sums_over_labels(binning: Any, weighted: bool, norm: float) -> None:
    probs, y, weights = draw_multi_label()
    chosen = weights if weighted else None
    options: dict = {"bins": 10, "binning": binning, "norm": norm, "weights": chosen}
    errors = [metrics.ece(probs[:, j], y[:, j], **options) for j in range(3)]
    share = np.average(y, axis=0, weights=chosen)
    for average, expected in (
        ("total", sum(errors)),
        ("mean", np.mean(errors)),
        ("weighted", share @ errors),
    ):
        value = metrics.multilabel_ece(probs, y, average=average, **options)
        assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_hamming_loss_equals_scikit_learn(weighted: bool) -> None:
    probs, y, weights = draw_multi_label()
    chosen = weights if weighted else None
    expected = sklearn.metrics.hamming_loss(y, probs > 0.5, sample_weight=chosen)
    assert metrics.hamming_loss(probs, y, weights=chosen) == pytest.approx(expected, rel=1e-12)
    expected = sklearn.metrics.hamming_loss(y, probs > 0.3, sample_weight=chosen)
    value = metrics.hamming_loss(probs, y, threshold=0.3, weights=chosen)
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_hamming_loss_at_the_threshold_in_every_precision(dtype: type[np.floating]) -> None:
    tenths = np.arange(11)[:, None] + np.zeros((1, 2), int)
    y = np.stack([np.arange(11) % 2, np.arange(11) % 3 > 0], axis=1)
    for threshold in range(1, 10):
        expected = ((tenths > threshold) != y).mean()
        probs = (tenths / 10).astype(dtype)
        value = metrics.hamming_loss(probs, y, threshold=threshold / 10)
        assert value == pytest.approx(expected, rel=1e-12)
        streamed = metrics.hamming_loss(
            bc.Blocks([(probs[:4], y[:4]), (probs[4:], y[4:])]), threshold=threshold / 10
        )
        assert streamed == pytest.approx(expected, rel=1e-12)
    assert metrics.hamming_loss([[0.1 + 0.2]], [[0]], threshold=0.3) == 0


@pytest.mark.parametrize("metric", [metrics.multilabel_ece, metrics.hamming_loss])
def test_labels_are_checked(metric: Any) -> None:
    probs, y, _ = draw_multi_label(20)
    counts = np.arange(20)
    repeated = metric(np.repeat(probs, counts, axis=0), np.repeat(y, counts, axis=0))
    assert metric(probs, y, weights=counts) == pytest.approx(repeated, rel=1e-12)
    assert metric(probs.astype(np.float32), y) == pytest.approx(metric(probs, y), abs=1e-6)
    assert metric(np.ones((3, 2)), np.ones((3, 2))) == 0
    for wrong, message in (
        (([0.5], [1]), r"probs must have shape \(n, labels\), got \(1,\)"),
        ((np.ones((0, 2)), np.ones((0, 2))), "probs must not be empty"),
        ((np.ones((3, 2)), np.ones(3)), r"y must have shape \(n, labels\), got \(3,\)"),
        ((np.ones((3, 2)), np.full((3, 2), 2)), "y must hold zeros and ones, .* got 2"),
        ((np.full((3, 2), np.nan), np.ones((3, 2))), "probs must be finite, got NaN"),
        ((np.full((3, 2), 1.5), np.ones((3, 2))), r"probs must lie in \[0, 1\], got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            metric(*wrong)


# --- known truth --------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_distance_from_the_truth(norm: float) -> None:
    probs, _, weights = draw_classes()
    truth = np.random.default_rng(5).dirichlet(np.ones(4), size=200)
    top = [(p.max(), t[p.argmax()]) for p, t in zip(probs, truth, strict=True)]
    gaps = {
        "confidence": np.array([[abs(p - t)] for p, t in top]),
        "classwise": np.abs(probs - truth),
    }
    for kind, gap in gaps.items():
        if math.isinf(norm):
            expected = gap.max()
        else:
            mass = np.broadcast_to(weights[:, None], gap.shape)
            expected = np.average(gap**norm, weights=mass) ** (1 / norm)
        value = metrics.true_calibration_error(probs, truth, kind=kind, norm=norm, weights=weights)  # type: ignore[arg-type]
        assert value == pytest.approx(expected, rel=1e-12)


def test_truth_of_two_classes() -> None:
    probs, truth = np.array([0.2, 0.9, 0.4]), np.array([0.3, 0.7, 0.8])
    expected = (0.1 + 0.2 + 0.4) / 3
    rows = np.stack([1 - probs, probs], axis=1), np.stack([1 - truth, truth], axis=1)
    assert metrics.true_calibration_error(probs, truth) == pytest.approx(expected)
    for kind in ("confidence", "binary", "classwise"):
        assert metrics.true_calibration_error(*rows, kind=kind) == pytest.approx(expected)
    kept = metrics.true_calibration_error(probs, [0.3, 0.7, np.nan], weights=[1, 1, 0])
    assert kept == pytest.approx(0.15)
    with pytest.raises(ValueError, match=r"true_probs must have shape \(3,\), got \(2,\)"):
        metrics.true_calibration_error(probs, truth[:2])
    with pytest.raises(ValueError, match=r"true_probs must lie in \[0, 1\], got 2"):
        metrics.true_calibration_error(probs, [2.0, 0.5, 0.5])


def test_truth_is_what_binned_errors_tend_to() -> None:
    rng = np.random.default_rng(0)
    probs = rng.random(200_000)
    truth = probs**2
    y = (rng.random(200_000) < truth).astype(int)
    known = metrics.true_calibration_error(probs, truth)
    assert known == pytest.approx(1 / 6, abs=1e-3)
    assert metrics.ece(probs, y) == pytest.approx(known, abs=4e-3)


def test_best_threshold_against_all_thresholds() -> None:
    rng = np.random.default_rng(0)
    p = np.round(rng.random(60), 1)
    y, w = (rng.random(60) < p).astype(int), rng.uniform(0.2, 2, 60)
    costs = np.array([[1.0, 3.0], [9.0, -1.0]])
    result = metrics.best_threshold(costs, p, y, weights=w)

    def cost(t: float) -> float:
        return float(np.average(costs[y, (p >= t).astype(int)], weights=w))

    assert result.threshold == pytest.approx(2 / 12)
    assert result.cost == pytest.approx(cost(result.threshold))
    every = [cost(t) for t in np.unique([*p, 0.0, 1.1])]
    assert result.empirical_cost == pytest.approx(min(every))
    assert cost(result.empirical) == pytest.approx(min(every))  # type: ignore[arg-type]
    rows = np.stack([1 - p, p], axis=1)
    assert metrics.best_threshold(costs, rows, y, weights=w) == result
    # The decision agrees with the expected costs of both decisions.
    decided = metrics.decision_cost(p, costs=costs).decision
    np.testing.assert_array_equal(decided, p > result.threshold)


def test_best_threshold_takes_the_first_of_equal_costs() -> None:
    """Check that rounding of proportions does not choose, whatever the order and the weights."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        p, y = rng.random(30), rng.integers(0, 2, 30)
        counts, order = rng.integers(1, 4, 30), rng.permutation(30)
        errors = [counts @ ((p < t) == (y == 1)) for t in np.sort(p)]
        errors.append(counts @ (y == 1))
        expected = np.append(np.sort(p), np.nextafter(p.max(), 2))[np.argmin(errors)]
        rows = np.repeat(order, counts[order])
        for result in (
            metrics.best_threshold([[0, 1], [1, 0]], p, y, weights=counts),
            metrics.best_threshold([[0, 1], [1, 0]], p[rows], y[rows]),
        ):
            assert result.empirical == expected
            assert result.empirical_cost == pytest.approx(min(errors) / counts.sum(), rel=1e-12)


def test_best_threshold_takes_costs_by_the_names_of_the_classes() -> None:
    p, happened = np.array([0.05, 0.2, 0.4, 0.6]), np.array([0, 0, 1, 1])
    y = np.array(["no", "yes"])[happened]
    expected = metrics.best_threshold([[0, 1], [10, 0]], p, happened)
    assert expected.threshold == pytest.approx(1 / 11)
    table = pd.DataFrame([[0, 10], [1, 0]], ["yes", "no"], ["yes", "no"])
    rows = pd.DataFrame([[10, 0], [0, 1]], ["yes", "no"], ["leave", "treat"])
    for costs in (table, table.loc[["no", "yes"]], rows, {"yes": [10, 0], "no": [0, 1]}):
        assert metrics.best_threshold(costs, p, y) == expected
        alone = metrics.best_threshold(costs, classes=["no", "yes"])
        assert alone.threshold == expected.threshold
    numbered = pd.DataFrame([[0, 10], [1, 0]], [1, 0], [1, 0])
    assert metrics.best_threshold(numbered).threshold == expected.threshold


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_best_threshold_in_low_precision(dtype: type[np.floating]) -> None:
    p, y = np.array([0.5, 0.6, 0.7, 0.7, 0.7, 0.8]), np.array([0, 0, 1, 1, 0, 1])
    costs = np.array([[0.0, 7.0], [3.0, 0.0]])  # Rounded to these types, 0.7 is less than 7 / 10.
    results = [metrics.best_threshold(costs, probs, y) for probs in (p, p.astype(dtype))]
    assert results[0].cost == pytest.approx(7 / 6) and results[1].cost == results[0].cost


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.corp([0.5], [1], score="auc"), "score must be one of 'brier', 'log_loss'"),
        (
            lambda m: m.decision_cost([0.5], costs=np.ones((3, 2))),
            r"costs .* \(2, decisions\), got",
        ),
        (
            lambda m: m.decision_cost([0.5], costs=[[np.nan], [1.0]]),
            "costs must be finite, got NaN",
        ),
        (
            lambda m: m.loss_gap([0.5], [1], losses=np.ones((3, 3, 2))),
            r"\(functions, 2, decisions\)",
        ),
        (lambda m: m.loss_gap([0.5], [1], decisions=0), "decisions must be"),
        (lambda m: m.loss_gap([0.5], [1], functions=0), "functions must be"),
        (lambda m: m.best_threshold([[0, 1], [0, 1]]), "wrong decisions"),
        (lambda m: m.best_threshold([[0, 1, 2], [0, 1, 2]]), r"shape \(2, 2\)"),
        (
            lambda m: m.multilabel_ece([[0.5]], [[1]], average="micro"),
            "one of 'total', 'weighted', 'm",
        ),
    ],
)
def test_bad_options_are_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(metrics)
