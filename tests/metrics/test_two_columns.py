"""Two columns of a binary problem are equivalent to P(second class) in every function."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

import bayescal as bc
from bayescal.metrics.registry import METRICS

RNG = np.random.default_rng(3)
P = RNG.random(300)
Y = (RNG.random(300) < P**1.5).astype(int)
ROWS = np.stack([1 - P, P], axis=1)
LABELS = np.array(["no", "yes"])[Y]
NAMES = [name for name, e in METRICS.items() if "binary" in e.shapes and e.labels]


@pytest.mark.parametrize("name", NAMES)
def test_metrics_agree(name: str) -> None:
    function: Any = METRICS[name].function
    one = function(P, Y)
    assert function(ROWS, Y) == pytest.approx(one, rel=1e-12, abs=1e-15)
    assert function(ROWS, LABELS) == pytest.approx(one, rel=1e-12, abs=1e-15)
    logits = np.log(ROWS)
    assert function(logits, Y, inputs="logits") == pytest.approx(one, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", ["binary", "confidence", "classwise", "top_label"])
def test_kinds_of_errors_agree(kind: Any) -> None:
    assert bc.metrics.ece(ROWS, Y, kind=kind) == bc.metrics.ece(P, Y, kind=kind)


def test_brier_score_is_that_of_scikit_learn() -> None:
    expected = brier_score_loss(Y, P)
    assert bc.metrics.brier_score(ROWS, Y) == pytest.approx(expected, rel=1e-14)
    rows = RNG.dirichlet(np.ones(3), 50)
    y = RNG.integers(0, 3, 50)
    by_hand = ((rows - np.eye(3)[y]) ** 2).sum(axis=1).mean()
    assert bc.metrics.brier_score(rows, y) == pytest.approx(by_hand, rel=1e-12)


def test_report_evaluate_and_metrics_agree() -> None:
    report = bc.metrics.report({"p": ROWS}, LABELS, replicates=50)
    same = bc.metrics.report({"p": P}, Y, replicates=50)
    page = bc.evaluate({"p": ROWS}, LABELS, replicates=50)
    assert report.intervals == same.intervals and report.tests == same.tests
    for title, interval in report.intervals["p"].items():
        assert page.report.intervals["p"][title].value == interval.value, title
        name = {"log loss": "log_loss", "Brier score": "brier_score", "accuracy": "accuracy"}
        if title in name:
            direct = METRICS[name[title]].function(ROWS, LABELS)
            assert direct == pytest.approx(interval.value, rel=1e-12)
    assert bc.metrics.ece(ROWS, LABELS) == report.intervals["p"]["ECE"].value


def test_scorers_agree() -> None:
    X = P[:, None]
    model = LogisticRegression().fit(X, LABELS)
    rows = model.predict_proba(X)
    for name in ("log_loss", "brier_score", "ece"):
        expected = -bc.metrics.interval(name, rows, LABELS, replicates=10).value
        assert bc.metrics.scorer(name)(model, X, LABELS) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [None, 2, ("no", "yes")])
def test_accumulators_take_both_shapes(classes: Any) -> None:
    y = LABELS if isinstance(classes, tuple) else Y
    total = bc.metrics.Accumulator(["brier_score", "ece"], classes)
    total.add(P[:100], y[:100])
    total.add(ROWS[100:], y[100:])
    assert total.result()["ece"] == pytest.approx(bc.metrics.ece(P, Y), rel=1e-12)
    assert total.result()["brier_score"] == pytest.approx(np.mean((P - Y) ** 2), rel=1e-12)


def test_blocks_agree() -> None:
    parts = [(ROWS[:100], Y[:100]), (ROWS[100:], Y[100:])]
    for name in ("brier_score", "ece", "debiased_ece"):
        function: Any = METRICS[name].function
        assert function(bc.Blocks(parts)) == pytest.approx(function(P, Y), rel=1e-9)


def test_plots_agree() -> None:
    model = LogisticRegression().fit(P[:, None], LABELS)
    rows = model.predict_proba(P[:, None])
    drawn = [
        bc.plots.reliability(rows, LABELS),
        bc.plots.reliability(rows[:, 1], Y),
        bc.plots.reliability(model, P[:, None], LABELS),
        bc.plots.reliability({"a": model, "b": rows}, P[:, None], LABELS),
    ]
    for ax in drawn:
        assert ax.get_xlabel() == drawn[0].get_xlabel() == "Mean predicted probability"
        assert ax.get_ylabel() == drawn[0].get_ylabel()
    assert len(bc.plots.classwise(rows, LABELS)) == 2


def test_true_calibration_error_takes_both_shapes() -> None:
    truth = P**1.5
    expected = bc.metrics.true_calibration_error(P, truth)
    both = np.stack([1 - truth, truth], axis=1)
    assert bc.metrics.true_calibration_error(ROWS, both) == pytest.approx(expected, rel=1e-12)


def test_extreme_probabilities_keep_their_digits_in_log_loss() -> None:
    rows = np.array([[1e-13, 1 - 1e-13], [0.5, 0.5]])
    expected = (-np.log(1e-13) - np.log(0.5)) / 2
    assert bc.metrics.log_loss(rows, [0, 1]) == pytest.approx(expected, rel=1e-12)


class _Given:
    """A classifier that predicts its features."""

    classes_ = np.arange(2)

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        return rows


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_log_loss_is_that_of_the_given_probability_of_the_label_everywhere(dtype: Any) -> None:
    """Check dtypes in which the second column rounds to one or is far from one minus the first."""
    small = np.array([1e-4, 3e-4, 0.1, 0.6]) if dtype == np.float16 else 10.0 ** -np.arange(1, 13)
    rows = np.tile(np.stack([small, 1 - small], axis=1).astype(dtype), (40, 1))
    y = RNG.integers(0, 2, len(rows))
    weights = RNG.integers(0, 3, len(rows)).astype(float)
    given = rows.astype(float)[np.arange(len(y)), y]
    expected = np.average(-np.log(given), weights=weights)
    flat = np.full(rows.shape, 0.5, dtype)
    how: Any = {"replicates": 20}
    total = bc.metrics.Accumulator(["log_loss"], 2)
    parts = [(rows[i::3], y[i::3], weights[i::3]) for i in range(3)]
    for part in parts:
        total.add(*part)
    page = bc.evaluate({"p": rows, "flat": flat}, y, weights=weights, **how).report
    result = {
        "function": bc.metrics.log_loss(rows, y, weights=weights),
        "interval": bc.metrics.interval("log_loss", rows, y, weights=weights, **how).value,
        "in clusters": bc.metrics.interval(
            "log_loss", rows, y, weights=weights, groups=np.arange(len(y)) // 12, **how
        ).value,
        "difference": bc.metrics.difference("log_loss", rows, flat, y, weights=weights, **how).value
        + np.log(2),
        "page": page.intervals["p"]["log loss"].value,
        "difference on the page": page.differences["flat"]["log loss"].value * -1 + np.log(2),
        "accumulator": total.result()["log_loss"],
        "blocks": bc.metrics.log_loss(bc.Blocks(parts)),
        "scorer": -bc.metrics.scorer("log_loss")(_Given(), rows, y, weights),
        "scorer of the other class": -bc.metrics.scorer("log_loss", pos_label=0)(
            _Given(), rows, y, weights
        ),
        "interval of blocks": bc.metrics.interval("log_loss", bc.Blocks(parts), **how).value,
    }
    assert result == pytest.approx(dict.fromkeys(result, expected), rel=1e-12)
