"""Costs of decisions."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.metrics import brier_score_loss

from bayescal import plots


@pytest.fixture
def forecasts() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    probs = rng.beta(0.7, 0.9, size=150).round(2)
    return probs, (rng.random(150) < probs**1.4).astype(int)


def cost(p: np.ndarray, y: np.ndarray, t: float) -> float:
    """Compute the cost by counting errors row by row."""
    paid = [2 * t * (1 - b) if a > t else 2 * (1 - t) * b for a, b in zip(p, y, strict=True)]
    return sum(paid) / len(p)


def test_costs_are_those_of_each_decision(forecasts: Any) -> None:
    p, y = forecasts
    # Include predictions themselves, at which p > t is false, and both ends.
    ratios = np.array([0.5, 0.0, 1.0, p[0], p[1], 0.123])
    ax = plots.decision_cost(p, y, ratios=ratios)
    t, drawn = ax.lines[1].get_data()
    np.testing.assert_array_equal(t, np.sort(ratios))
    np.testing.assert_allclose(drawn, [cost(p, y, one) for one in t], atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_costs_in_low_precision_are_those_in_double_precision(
    forecasts: Any, dtype: type[np.floating]
) -> None:
    p, y = forecasts
    p = p.round(1)  # Rounded to the type, half of them are above the ratio.
    ratios = np.arange(11) / 10
    drawn = [
        plots.decision_cost(probs, y, ratios=ratios).lines[1].get_ydata()
        for probs in (p, p.astype(dtype), 1 - (1 - p))
    ]
    np.testing.assert_allclose(drawn[0], [cost(p, y, t) for t in ratios], atol=1e-12)
    np.testing.assert_allclose(drawn, [drawn[0]] * 3, atol=1e-12)


def test_the_area_is_the_brier_score(forecasts: Any) -> None:
    p, y = forecasts
    # The cost is linear between multiples of 0.01, so the midpoint rule is exact.
    middles = (np.arange(100) + 0.5) / 100
    ax = plots.decision_cost({"raw": p}, y, ratios=middles)
    area = ax.lines[1].get_ydata().mean()
    assert area == pytest.approx(brier_score_loss(y, p), abs=1e-12)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [f"raw  {area:.3f}", "always or never"]
    t, drawn = plots.decision_cost(p, y).lines[1].get_data()
    assert len(t) == 501 and t[0] == 0 and t[-1] == 1
    assert np.trapezoid(drawn, t) == pytest.approx(area, abs=2e-3)


def test_dashed_line_is_the_better_of_always_and_never(forecasts: Any) -> None:
    p, y = forecasts
    ax = plots.decision_cost(p, y)
    t = np.linspace(0, 1, 33)
    best = [min(cost(np.full(150, 2.0), y, s), cost(np.full(150, -1.0), y, s)) for s in t]
    # The corner is the share of class 1.
    np.testing.assert_allclose(np.interp(t, *ax.lines[0].get_data()), best, atol=1e-12)


def test_rows_of_two_classes_and_several_models(forecasts: Any) -> None:
    p, y = forecasts
    ax = plots.decision_cost({"raw": np.stack([1 - p, p], axis=1), "flat": np.full(150, 0.5)}, y)
    again = plots.decision_cost(p, y, label="raw")
    plots.decision_cost(np.full(150, 0.5), y, ax=again, label="flat")
    assert len(ax.lines) == len(again.lines) == 3
    for one, other in zip(ax.lines, again.lines, strict=True):
        np.testing.assert_allclose(one.get_xydata(), other.get_xydata(), atol=1e-12)
        assert one.get_color() == other.get_color()
        assert one.get_label() == other.get_label()


def test_legend_lies_above_the_lines(forecasts: Any) -> None:
    p, y = forecasts
    for labels in (y, 1 - y):
        ax = plots.decision_cost({f"model {i}": p ** (1 + i) for i in range(4)}, labels)
        ax.figure.canvas.draw()
        box = ax.get_legend().get_window_extent()
        top = max(line.get_ydata().max() for line in ax.lines)
        assert box.y0 >= ax.transData.transform((0, top))[1] - 1
        assert box.y1 <= ax.get_window_extent().y1 + 1


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0.5, 1.5], [0, 1]), {}, r"probs must lie in \[0, 1\]"),
        ((np.full((2, 3), 1 / 3), [0, 1]), {}, "probs must be of two classes"),
        (({}, [0, 1]), {}, "probs must not be an empty mapping"),
        (({"a": [0.5, 0.5]}, [0, 1]), {"label": "b"}, "label must be left out"),
        (([0.5, 0.5], [0, 1]), {"ratios": [0.5, 1.5]}, r"ratios must lie in \[0, 1\]"),
        (([0.5, 0.5], [0, 1]), {"ratios": []}, r"ratios must have shape \(m,\)"),
        (([0.5, 0.5], [0, 1]), {"ratios": [np.nan]}, "ratios must be finite"),
    ],
)
def test_wrong_arguments_are_errors(arguments: tuple, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.decision_cost(*arguments, **options)
    assert not plt.get_fignums()
