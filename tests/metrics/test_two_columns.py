"""Two columns of a binary problem are equivalent to P(second class) in every function."""

from typing import Any

import numpy as np
import pytest

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
    for kind in ("binary", "confidence", "classwise", "top_label") if name == "ece" else ():
        assert function(ROWS, Y, kind=kind) == function(P, Y, kind=kind)


@pytest.mark.parametrize("classes", [None, 2, ("no", "yes")])
def test_accumulators_take_both_shapes(classes: Any) -> None:
    y = LABELS if isinstance(classes, tuple) else Y
    total = bc.metrics.Accumulator(["brier_score", "ece"], classes)
    total.add(P[:100], y[:100])
    total.add(ROWS[100:], y[100:])
    assert total.result()["ece"] == pytest.approx(bc.metrics.ece(P, Y), rel=1e-12)
    assert total.result()["brier_score"] == pytest.approx(np.mean((P - Y) ** 2), rel=1e-12)


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
