"""Reliability diagrams: drawn values equal computations in NumPy."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.special
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

import bayescal as bc
from bayescal import plots


@pytest.fixture
def forecasts() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    probs = rng.beta(0.7, 0.9, size=500)
    return probs, (rng.random(500) < probs**1.3).astype(int)


def series(ax: Axes) -> list[Line2D]:
    return [line for line in ax.lines if line.get_marker() not in ("None", "", None)]


def bars(ax: Axes) -> list[np.ndarray]:
    return [np.array(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection)]


def strip(ax: Axes) -> Axes:
    (child,) = ax.child_axes
    return child


def test_markers_stand_at_the_means_of_the_bins(forecasts: Any) -> None:
    probs, y = forecasts
    (line,) = series(plots.reliability(probs, y, bins=10))
    bin_index = np.minimum(np.ceil(probs * 10).astype(int), 10)
    filled = [b for b in range(1, 11) if (bin_index == b).any()]
    np.testing.assert_allclose(line.get_xdata(), [probs[bin_index == b].mean() for b in filled])
    np.testing.assert_allclose(line.get_ydata(), [y[bin_index == b].mean() for b in filled])


def test_bins_of_equal_mass(forecasts: Any) -> None:
    probs, y = forecasts
    (line,) = series(plots.reliability(probs, y, bins=4, binning="equal_mass"))
    parts = np.array_split(np.argsort(probs), 4)
    np.testing.assert_allclose(line.get_xdata(), [probs[part].mean() for part in parts])
    np.testing.assert_allclose(line.get_ydata(), [y[part].mean() for part in parts])


def test_equal_predictions_are_one_bin_of_as_many_cases() -> None:
    y = np.repeat([1, 0], [36, 64])
    ax = plots.reliability(np.full(100, 0.3), y, binning="equal_mass", bins=15, level=0.9)
    (line,) = series(ax)
    assert (line.get_xdata(), line.get_ydata()) == (pytest.approx([0.3]), pytest.approx([0.36]))
    (segments,) = bars(ax)
    expected = scipy.stats.binom.ppf([0.05, 0.95], 100, 0.3) / 100
    np.testing.assert_allclose(segments[0][:, 1], expected)
    display = plots.ReliabilityDisplay.from_predictions(
        y, np.full(100, 0.3), strategy="quantile", n_bins=15
    )
    assert display.prob_true == pytest.approx([0.36])


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_bars_hold_binomial_quantiles(forecasts: Any, level: float) -> None:
    probs, y = forecasts
    ax = plots.reliability(probs, y, bins=5, level=level)
    (segments,) = bars(ax)
    part_of = np.minimum(np.ceil(probs * 5).astype(int), 5)
    for b, ((x, lower), (same_x, upper)) in enumerate(segments, start=1):
        part = probs[part_of == b]
        n, mean = len(part), part.mean()
        assert x == same_x == pytest.approx(mean)
        for end, tail in ((lower, (1 - level) / 2), (upper, (1 + level) / 2)):
            cases = round(end * n)
            assert end == pytest.approx(cases / n)
            # The quantile is the first count at which the distribution function reaches the tail.
            assert scipy.special.bdtr(cases, n, mean) >= tail
            assert cases == 0 or scipy.special.bdtr(cases - 1, n, mean) < tail


def test_strip_shows_where_the_predictions_lie(forecasts: Any) -> None:
    probs, y = forecasts
    steps = strip(plots.reliability(probs, y)).patches[0].get_data()
    expected = np.histogram(probs, bins=20, range=(0, 1))[0] / len(probs)
    np.testing.assert_allclose(steps.values, expected)
    np.testing.assert_allclose(steps.edges, np.linspace(0, 1, 21))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_strip_and_errors_are_those_of_decimals_of_every_type(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    tenths = rng.integers(0, 11, 300)
    y = (rng.random(300) < (tenths / 10) ** 1.3).astype(int)
    probs = (tenths / 10).astype(dtype)
    ax = plots.reliability(probs, y, legend="ece", label="raw")
    heights = strip(ax).patches[0].get_data().values  # type: ignore[attr-defined]
    expected = np.bincount(np.maximum(2 * tenths - 1, 0), minlength=20) / 300
    np.testing.assert_allclose(heights, expected, atol=1e-12)
    error = f"ECE {bc.metrics.ece(probs, y, bins=10):.3f}"
    legend = ax.get_legend()
    assert legend is not None and legend.get_texts()[0].get_text() == f"raw, {error}"
    (small,) = plots.by_model({"raw": probs}, y)
    assert small.get_title() == f"raw\n{error}"
    (marks,), (same,) = series(ax), series(small)
    np.testing.assert_array_equal(marks.get_xydata(), same.get_xydata())
    rows = rng.multinomial(10, [0.2, 0.3, 0.5], 300) / 10
    y = (rows.cumsum(axis=1) < rng.random((300, 1))).sum(axis=1).clip(0, 2)
    rows = rows.astype(dtype)
    for j, ax in enumerate(plots.classwise(rows, y)):
        error = bc.metrics.ece(rows[:, j], y == j, bins=10)
        assert ax.get_title() == f"class {j}\nECE {error:.3f}"
        curve = bc.metrics.reliability_curve(rows[:, j], y == j, bins=10)
        np.testing.assert_allclose(series(ax)[0].get_xdata(), curve.predicted, atol=1e-12)


def test_confidence_of_many_classes() -> None:
    rng = np.random.default_rng(5)
    probs, y = rng.dirichlet(np.ones(4), size=200), rng.integers(0, 4, size=200)
    ax = plots.reliability(probs, y, bins=1)
    (line,) = series(ax)
    np.testing.assert_allclose(line.get_xdata(), [probs.max(axis=1).mean()])
    np.testing.assert_allclose(line.get_ydata(), [(probs.argmax(axis=1) == y).mean()])
    assert ax.get_xlabel() == "Mean confidence"
    assert ax.get_ylabel() == "Accuracy"


def test_models_differ_in_color_and_marker(forecasts: Any) -> None:
    probs, y = forecasts
    models = {f"m{i}": probs ** (1 + i / 10) for i in range(7)}
    ax = plots.reliability(models, y)
    lines = series(ax)
    assert [line.get_label() for line in lines] == list(models)
    assert len({line.get_color() for line in lines}) == 7
    assert len({line.get_marker() for line in lines}) == 7
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(models)


def test_drawing_again_goes_on_where_the_last_call_ended(forecasts: Any) -> None:
    probs, y = forecasts
    ax = plots.reliability(probs, y, label="first")
    plots.reliability(probs**2, y, ax=ax, label="second")
    together = plots.reliability({"first": probs, "second": probs**2}, y)
    for one, other in zip(ax.lines, together.lines, strict=True):
        np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
        assert one.get_color() == other.get_color()
    diagonals = [line for line in ax.lines if line.get_xydata().tolist() == [[0, 0], [1, 1]]]
    assert len(ax.child_axes) == len(diagonals) == 1
    assert len(strip(ax).patches) == 4
    flat = plots.reliability({"flat": np.full(500, 0.6), "real": probs}, y)
    assert strip(flat).get_ylim()[1] >= 1
    # One column and two are drawn together.
    pair = plots.reliability({"one": probs, "two": np.stack([1 - probs, probs], axis=1)}, y)
    np.testing.assert_array_equal(*(one.get_xydata() for one in series(pair)))


def test_parts_can_be_left_out(forecasts: Any) -> None:
    ax = plots.reliability(*forecasts, level=None, histogram=False)
    assert not bars(ax)
    assert not ax.child_axes
    assert ax.get_legend() is None
    assert ax.get_ylim() == ax.get_xlim()


@pytest.mark.parametrize("layout", [None, "tight", "constrained"])
def test_everything_lies_inside_the_figure(forecasts: Any, layout: str | None) -> None:
    figure, ax = plt.subplots(layout=layout)
    plots.reliability(*forecasts, ax=ax, label="model")
    ax.set_title("title")
    figure.canvas.draw()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height
    title, top = ax.title.get_window_extent(), strip(ax).get_window_extent()
    assert title.y0 >= top.y1


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0.5, 1.5], [0, 1]), {}, r"probs must lie in \[0, 1\]"),
        (([0.5, 0.5], [0, 2]), {}, r"y must be in \{0, 1\}"),
        (([0.5, 0.5], [0, 1]), {"level": 1}, "level must lie strictly between 0 and 1"),
        (([0.5, 0.5], [0, 1]), {"bins": 0}, "bins must be at least 1"),
        (([0.5, 0.5], [0, 1]), {"legend": "auc"}, "legend must be one of"),
        (({}, [0, 1]), {}, "probs must not be an empty mapping"),
        (({"a": [0.5, 0.5]}, [0, 1]), {"label": "b"}, "label must be left out"),
        (({"a": [0.5], "b": [[0.5, 0.25, 0.25]]}, [0]), {}, r"all of shape \(n,\) or"),
        (([0.2, 0.4], [0, 1]), {"method": "loess"}, "method must be one of 'binned', 'corp'"),
        (([0.2, 0.4], [0, 1]), {"band": "credible"}, "band must be one of 'consistency'"),
        (
            ([0.2, 0.4], [0, 1]),
            {"method": "smooth", "bandwidth": 0.0},
            "bandwidth must be positive",
        ),
        (([0.2, 1.2], [0, 1]), {"method": "corp"}, r"probs must lie in \[0, 1\]"),
        (([0.2, 0.4], [0, 3]), {"method": "smooth"}, r"y must be in \{0, 1\}"),
        (([0.2, 0.4], [0, 1]), {"method": "corp", "kind": "classwise"}, "kind must be one of"),
        (([0.2, 0.4], [0, 1]), {"weights": [1, -1]}, "weights must not be negative"),
        (([0.2, 0.4], [0, 1]), {"weights": [1]}, r"weights must have shape \(2,\) to match probs"),
    ],
)
def test_bad_input_is_an_error_and_draws_nothing(
    arguments: tuple, options: dict, message: str
) -> None:
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=message):
        plots.reliability(*arguments, ax=ax, **options)
    assert not ax.lines
    assert not ax.collections


@pytest.mark.parametrize(
    ("kind", "binning", "method"),
    [("binary", "equal_mass", "binned"), ("confidence", "equal_width", "corp")],
)
def test_legend_has_errors_and_numbers_of_cases(
    forecasts: Any, kind: str, binning: Any, method: str
) -> None:
    probs, y = forecasts
    how: Any = {"bins": 7, "binning": binning, "kind": kind}
    models = {"raw": probs, "bent": probs**2}
    ax = plots.reliability(models, y, method=method, legend=("ece", "n"), **how)
    errors = [bc.metrics.ece(p, y, **how) for p in models.values()]
    assert errors[0] != pytest.approx(errors[1], abs=1e-3)
    assert legend_of(ax) == [
        f"{name}\nECE {error:.3f}, n = 500" for name, error in zip(models, errors, strict=True)
    ]
    (alone,) = legend_of(plots.reliability(probs, y, legend="ece", **how))
    assert alone == f"ECE {errors[0]:.3f}"
    (named,) = legend_of(plots.reliability(probs, y, legend=["n"], label="raw", **how))
    assert named == "raw, n = 500"


def test_legend_counts_cases_by_their_weights(forecasts: Any) -> None:
    probs, y = forecasts
    weights = np.arange(500) % 3
    (counted,) = legend_of(plots.reliability(probs, y, weights=weights, legend=("n", "ece")))
    error = bc.metrics.ece(np.repeat(probs, weights), np.repeat(y, weights), bins=10)
    assert counted == f"n = {weights.sum()}, ECE {error:.3f}"
    shares = 0.5 + np.arange(500) / 1000
    (shared,) = legend_of(plots.reliability(probs, y, weights=shares, legend="n"))
    assert shared == f"n = {round(shares.sum() ** 2 / (shares**2).sum())}"


def test_legend_lies_where_the_line_does_not(forecasts: Any) -> None:
    _, y = forecasts
    rng = np.random.default_rng(0)
    for sure, low in ((0.3, True), (1.0, False)):
        # Under-confident models lie in the upper left, so the legend goes elsewhere.
        p = np.where(y == 1, rng.uniform(0.05, 0.35, 500), rng.uniform(0, 0.1, 500)) * sure
        p = p if low else 1 - p
        ax = plots.reliability(p, y if low else 1 - y, label="model", legend="ece", level=None)
        ax.figure.canvas.draw()
        box = ax.get_legend().get_window_extent()
        points = ax.transData.transform(series(ax)[0].get_xydata())
        assert not any(box.contains(*point) for point in points)


def test_many_names_stand_beside_the_diagram(forecasts: Any) -> None:
    probs, y = forecasts
    for count in (3, 7):
        models = {f"model of number {i}": probs ** (1 + i / 10) for i in range(count)}
        ax = plots.reliability(models, y, level=None)
        ax.figure.canvas.draw()
        legend: Any = ax.get_legend()
        box, inside = legend.get_window_extent(), ax.get_window_extent()
        assert (box.x0 >= inside.x1) == (count > 3)
        assert box.x1 <= ax.figure.bbox.x1
    _, axes = plt.subplots()
    plots.reliability(models, y, ax=axes)
    axes.figure.canvas.draw()
    legend = axes.get_legend()
    assert legend.get_window_extent().x1 <= axes.get_window_extent().x1


def legend_of(ax: Axes) -> list[str]:
    legend: Any = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()]
