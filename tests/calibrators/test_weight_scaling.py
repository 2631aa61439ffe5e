"""Weight scaling by hand, against loops over bins and against a search over weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import bayescal as bc
from bayescal import metrics
from bayescal._core.numerics import softmax
from bayescal.calibrators import WeightScaling
from bayescal.calibrators.multiclass import weight_scaling as module
from bayescal.calibrators.multiclass.binwise import equal_mass_error
from bayescal.data.rows import Rows
from tests.calibrators.brute import example


@pytest.mark.parametrize("bins", [1, 4, 13])
def test_equal_mass_against_a_loop_over_parts_of_the_order(bins: int) -> None:
    p, y, _ = example(650, 5)
    state = WeightScaling(bins)._fit(Rows(p, y, np.ones(650)), 0)
    confidence = p.max(axis=1)
    result = WeightScaling(bins).apply(state, p)
    for b, part in enumerate(np.array_split(np.argsort(confidence), bins)):
        accuracy, mean = (p.argmax(axis=1) == y)[part].mean(), confidence[part].mean()
        alpha = min(1, max(1e-9, (accuracy - 0.2) / (mean - 0.2)))
        assert state["alpha"][b] == pytest.approx(alpha, abs=1e-12)
        np.testing.assert_allclose(result[part], alpha * p[part] + (1 - alpha) / 5, atol=1e-12)
        if 0 < alpha < 1:
            assert result[part].max(axis=1).mean() == pytest.approx(accuracy)
    assert len(state["edges"]) == bins - 1


def test_equal_width_by_hand() -> None:
    # Bins (0, 1/4], ..., (3/4, 1]: two rows in the third, one of them on its border, and one above.
    p = np.array([[0.75, 0.25], [0.4, 0.6], [0.9, 0.1], [0.8, 0.2]])
    y = np.array([0, 0, 0, 1])
    state = WeightScaling(4, "equal_width")._fit(Rows(p, y, np.array([1.0, 1, 3, 2])), 0)
    np.testing.assert_array_equal(state["edges"], [0.25, 0.5, 0.75])
    np.testing.assert_array_equal(state["bin_weights"], [0, 0, 2, 5])
    # Third bin: accuracy 1/2, so the weight is zero. Fourth: 3/5 with confidence (2.7 + 1.6) / 5 =
    # 0.86. All: accuracy 4/7, confidence (0.75 + 0.6 + 4.3) / 7.
    together = (4 / 7 - 0.5) / (5.65 / 7 - 0.5)
    np.testing.assert_allclose(state["alpha"], [together, together, 1e-9, 0.1 / 0.36], atol=1e-14)
    assert state["objective"] == pytest.approx(0, abs=1e-9)


def test_limits_by_hand() -> None:
    p, ones = np.array([[0.7, 0.2, 0.1]] * 4), np.ones(4)
    # Under-confident, worse than chance, and nothing to scale.
    assert WeightScaling(1)._fit(Rows(p, np.array([0, 0, 0, 0]), ones), 0)["alpha"] == 1
    assert WeightScaling(1)._fit(Rows(p, np.array([0, 1, 2, 1]), ones), 0)["alpha"] == 1e-9
    uniform = np.full((4, 3), 1 / 3)
    for chosen in (WeightScaling(), WeightScaling(3), WeightScaling(5, "equal_width")):
        assert (chosen._fit(Rows(uniform, np.array([0, 1, 1, 1]), ones), 0)["alpha"] == 1).all()
    # A remaining error: 1 - 0.7 in the first case.
    state = WeightScaling(1)._fit(Rows(p, np.zeros(4, int), ones), 0)
    assert state["objective"] == pytest.approx(0.3)


@pytest.mark.parametrize("sharpness", [0.5, 1, 2, 5])
def test_one_weight_is_the_best_of_a_grid(sharpness: float) -> None:
    p, y, _ = example(450, 4, seed=3)
    p = softmax(sharpness * np.log(p))
    correct, confidence = p.argmax(axis=1) == y, p.max(axis=1)

    def error(alpha: float) -> float:
        return equal_mass_error(alpha * confidence + (1 - alpha) / 4, correct, np.ones(450))

    state = WeightScaling()._fit(Rows(p, y, np.ones(450)), 0)
    alpha = float(state["alpha"][0])
    grid = np.linspace(0.01, 1, 400)
    errors = np.array([error(a) for a in grid])
    assert state["objective"] == pytest.approx(error(alpha), abs=1e-12)
    assert state["objective"] <= errors.min() + 1e-12
    # Among equally good weights, the one nearest to one.
    assert alpha >= grid[errors <= errors.min() + 1e-12].max() - 1e-2
    np.testing.assert_allclose(WeightScaling().apply(state, p), alpha * p + (1 - alpha) / 4)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_error_of_one_weight_is_what_metrics_report(k: int, weighted: bool) -> None:
    p, y, w = example(450, k)
    weights = w if weighted else None
    model = WeightScaling().fit(softmax(2 * np.log(p)), y, weights)
    probs = model.predict_proba(softmax(2 * np.log(p)))
    reported = metrics.ece(probs, y, kind="confidence", binning="equal_mass", weights=weights)
    assert 0.01 < model.alpha_[0] < 1
    assert model.objective_ == pytest.approx(reported, rel=1e-9)


def test_only_what_is_left_to_one_tells_confident_rows_apart() -> None:
    doubt = np.logspace(-2, -30, 12)
    p = np.stack([1 - doubt, doubt], axis=1)
    y = np.arange(12) // 6
    state = WeightScaling(2)._fit(Rows(p, y, np.ones(12)), 0)
    np.testing.assert_array_equal(state["bin_weights"], [6, 6])
    np.testing.assert_allclose(WeightScaling(2).apply(state, p)[6:], 0.5, atol=1e-9)


@pytest.mark.realdata
def test_published_figures_of_densenet(shared_data: Path) -> None:
    data = np.load(shared_data / "predictions" / "kull_densenet40_c10.npz")
    given, test = (softmax(data[name]) for name in ("logits_val", "logits_test"))
    y = data["y_val"].astype(int)

    def error(probs: np.ndarray) -> float:
        return 100 * metrics.ece(probs, data["y_test"], bins=25)

    # In percent, with 25 bins of equal width; the second with 13 bins of equal mass.
    assert error(test) == pytest.approx(5.507, abs=1e-3)
    chosen = WeightScaling(13)
    result = chosen.apply(chosen._fit(Rows(given, y, np.ones(len(y))), 0), test)
    assert error(result) == pytest.approx(1.314, abs=0.03)
    np.testing.assert_array_equal(result.argmax(axis=1), test.argmax(axis=1))


@pytest.mark.parametrize("seed", range(4))
def test_one_weight_of_squares_is_the_minimum_over_the_bins(seed: int) -> None:
    from scipy.optimize import minimize_scalar

    p, y, _ = example(900, 4, seed)
    # 15 bins of 60 rows, as for a single weight.
    order = np.argsort(p.max(axis=1)).reshape(15, 60)
    confidence = p.max(axis=1)[order].mean(axis=1)
    accuracy = (p.argmax(axis=1) == y)[order].mean(axis=1)

    def error(alpha: float) -> float:
        return float(np.mean((accuracy - alpha * confidence - (1 - alpha) / 4) ** 2))

    best = minimize_scalar(error, bounds=(1e-9, 1), method="bounded", options={"xatol": 1e-10})
    result = WeightScaling(norm=2).fit(p, y)
    assert result.alpha_[0] == pytest.approx(best.x, abs=1e-6)
    assert result.objective_ == pytest.approx(error(result.alpha_[0]))
    assert WeightScaling().fit(p, y).alpha_[0] != result.alpha_[0]


@pytest.mark.parametrize("norm", [1, 2])
def test_bins_without_room_leave_predictions_as_they_are(norm: int) -> None:
    mass, uniform = np.array([3.0, 2.0]), np.full(2, 0.25)
    assert module._one_weight(module._Sums(mass, np.array([0.1, 0.9]), uniform), 4, norm) == 1.0
    # One bin may be scaled: its accuracy above 1/4, divided by its confidence above 1/4.
    sums = module._Sums(mass, np.array([0.5, 0.9]), np.array([0.75, 0.25]))
    assert module._one_weight(sums, 4, norm) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "make",
    [
        bc.WeightScaling,
        partial(bc.WeightScaling, norm=2),
        partial(bc.WeightScaling, 4),
        partial(bc.Temperature, "adaptive_ece"),
        partial(bc.BinwiseTemperature, "confidence", bins=4),
    ],
)
def test_tied_largest_probabilities_have_no_order(make: Any) -> None:
    rng = np.random.default_rng(0)
    p = np.maximum((rng.dirichlet(np.ones(3), 200) * 5).round(), 0.0)
    p = np.where(p.sum(axis=1, keepdims=True) > 0, p, 1.0)
    p /= p.sum(axis=1, keepdims=True)
    assert ((p == p.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum() > 20
    y, order = rng.integers(0, 3, 200), np.array([2, 0, 1])
    one = make().fit(p, y).predict_proba(p)
    other = make().fit(p[:, order], np.argsort(order)[y]).predict_proba(p[:, order])
    np.testing.assert_allclose(other, one[:, order], atol=1e-9)


def test_a_tied_row_is_right_in_proportion() -> None:
    # The label is one of the two largest in 12 of 20 rows, so the accuracy is 0.3 in both orders.
    p, y = np.tile([0.45, 0.45, 0.1], (20, 1)), np.repeat([0, 1, 2], [9, 3, 8])
    fitted = bc.WeightScaling(1).fit(p, y)
    assert fitted.accuracy_ == pytest.approx(0.3)
    assert fitted.alpha_ == pytest.approx(1e-9)
    y = np.repeat([0, 1, 2], [14, 2, 4])
    fitted = bc.WeightScaling(1).fit(p, y)
    assert fitted.alpha_ == pytest.approx((0.4 - 1 / 3) / (0.45 - 1 / 3))


@pytest.mark.parametrize("unit", [1.0, 0.3])
def test_intervals_of_a_bin_are_quantiles_of_a_beta_posterior(unit: float) -> None:
    p = np.array([[0.2, 0.5, 0.3]] * 20 + [[0.1, 0.8, 0.1]] * 10)
    y = np.repeat([1, 0, 1, 2], [8, 12, 7, 3])
    fitted = WeightScaling(2, "equal_width").fit(p, y, np.full(30, unit))
    alpha = fitted.alpha_
    for row, confidence, right, wrong, b in ((0, 0.5, 8, 12, 0), (20, 0.8, 7, 3, 1)):
        accuracy = stats.beta(right + 1, wrong + 1).ppf([0.1, 0.9])
        ends = np.clip((accuracy - 1 / 3) / (confidence - 1 / 3), 1e-9, 1)
        assert ends[0] <= alpha[b] <= ends[1]
        mixed = ends[:, None] * p[row] + (1 - ends[:, None]) / 3
        lower, upper = fitted.predict_interval(p[[row]], level=0.8)
        np.testing.assert_allclose(lower[0], mixed.min(axis=0), rtol=1e-4)
        np.testing.assert_allclose(upper[0], mixed.max(axis=0), rtol=1e-4)
    del fitted.state_["unit"]  # files of the first version lack it
    with pytest.raises(ValueError, match="the file of this calibrator has no intervals"):
        fitted.predict_interval(p)


@pytest.mark.parametrize("bins", [None, 4])
def test_all_rows_determine_a_single_weight_and_that_of_empty_bins(bins: int | None) -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(300, 3))
    p = softmax(logits)
    p = p[p.max(axis=1) < 0.75]
    y = (rng.random(len(p))[:, None] > np.cumsum(0.5 * p + 0.5 / 3, axis=1)).sum(axis=1)
    fitted = WeightScaling(bins, "equal_width").fit(p, y)
    filled = fitted.bin_weights_ > 0
    assert filled.all() == (bins is None)
    weight, accuracy, confidence = (
        values[filled] for values in (fitted.bin_weights_, fitted.accuracy_, fitted.confidence_)
    )
    room = confidence - 1 / 3

    def likelihood(alpha: float) -> float:
        probs = np.clip(alpha * room + 1 / 3, 0, 1)
        right = weight * accuracy
        parts = probs ** (right / 60) * (1 - probs) ** ((weight - right) / 60)
        return float((2 * np.prod(parts)) ** 60)

    ends = np.array([-1 / 3, 2 / 3]) / np.average(room, weights=weight)
    total = integrate.quad(likelihood, *ends, epsabs=0, epsrel=1e-10, limit=500)[0]
    row = np.array([[0.9, 0.06, 0.04]])
    lower, upper = (v[0, 0] for v in fitted.predict_interval(row))
    for end, tail in ((lower, 0.05), (upper, 0.95)):
        alpha = (end - 1 / 3) / (0.9 - 1 / 3)
        assert 1e-9 < alpha < 1
        below = integrate.quad(likelihood, ends[0], alpha, epsabs=0, epsrel=1e-10, limit=500)[0]
        assert below / total == pytest.approx(tail, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("n", [2, 30, 200])
def test_intervals_cover_the_true_probabilities(n: int, k: int, tied: bool) -> None:
    for bins, alpha in ((None, 0.5), (None, 1.0), (5, 1e-9), (5, 0.7)):
        covered = []
        for seed in range(200):
            rng = np.random.default_rng(seed)
            p = softmax(2 * rng.normal(size=(n + 100, k)))
            p = np.round(p, 1) + 1e-3 if tied else p
            p /= p.sum(axis=1, keepdims=True)
            truth = alpha * p + (1 - alpha) / k
            y = (rng.random(n)[:, None] > truth[:n].cumsum(axis=1)[:, :-1]).sum(axis=1)
            fitted = WeightScaling(bins, classes=range(k)).fit(p[:n], y)
            lower, upper = fitted.predict_interval(p[n:])
            at = truth[n:, 1] if k == 2 else truth[n:]
            covered.append(np.mean((lower - 1e-12 <= at) & (at <= upper + 1e-12)))
        assert 0.82 < np.mean(covered) <= 1, (bins, alpha)
