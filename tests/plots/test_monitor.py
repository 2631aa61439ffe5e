"""Plots of a monitor over time."""

from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.dates import num2date
from scipy.special import expit

import bayescal as bc
from bayescal import plots


def draw_rows(n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities, and outcomes that are less certain in the second half."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0, 2, n)
    truth = np.where(np.arange(n) < n // 2, log_odds, 0.3 * log_odds)
    return expit(log_odds), (rng.random(n) < expit(truth)).astype(int)


def vertical_lines(ax: Any) -> dict[str, float]:
    """Return the positions of vertical lines by the first word of their label."""
    lines = [line for line in ax.lines if line.get_gid() == "bayescal-mark"]
    return {
        str(line.get_label()).split(",")[0]: line.get_xdata()[0]
        for line in lines
        if "row" in str(line.get_label())
    }


def test_lines_are_those_of_the_monitor() -> None:
    monitor = bc.Monitor(alpha=0.01).update(*draw_rows())
    axes = monitor.plot()
    rows, values = monitor.course_
    course, threshold = axes[0].lines[:2]
    np.testing.assert_array_equal(course.get_xydata(), np.column_stack([rows, values]))
    np.testing.assert_allclose(threshold.get_ydata(), np.log(100))
    names = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert names[:2] == ["log evidence", "alarm above log(100)"]
    assert names[2] == f"alarm, row {monitor.alarm_row_:,}"
    sequence = monitor.confidence_sequence()
    for ax, name, calibrated in zip(axes[1:], ("slope", "offset"), (1, 0), strict=True):
        assert set(ax.lines[0].get_ydata()) == {calibrated}
        for line, ends in zip(ax.lines[1:3], sequence[name].T, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), sequence["rows"])
            low, high = ax.get_ylim()
            inside = (ends > low) & (ends < high)
            assert inside.mean() > 0.5
            np.testing.assert_array_equal(np.asarray(line.get_ydata())[inside], ends[inside])
            assert np.isfinite(line.get_ydata()).all()
        corners = ax.collections[0].get_paths()[0].vertices
        assert {sequence["rows"][0], sequence["rows"][-1]} <= set(corners[:, 0])
    for ax in axes:
        marks = {"alarm": monitor.alarm_row_, "probable start": monitor.start_row_}
        assert vertical_lines(ax) == marks
    assert [ax.get_ylabel() for ax in axes] == ["Log evidence", "Slope", "Offset"]
    assert axes[-1].get_xlabel() == "Row"


def test_calm_monitors_have_no_marks() -> None:
    p, y = draw_rows()
    axes = plots.monitor(bc.Monitor().update(p[:900], y[:900]))
    assert [vertical_lines(ax) for ax in axes] == [{}, {}, {}]
    assert len(axes[0].get_legend().get_texts()) == 2


@pytest.mark.parametrize("n", [1, 15, 16, 40])
def test_few_rows_are_drawn(n: int) -> None:
    p, y = draw_rows()
    axes = plots.monitor(bc.Monitor().update(p[:n], y[:n]))
    axes[0].figure.canvas.draw()
    assert len(axes[0].lines[0].get_xdata()) == n


@pytest.mark.slow
def test_dates_and_numbers_are_on_the_axis() -> None:
    p, y = draw_rows()
    dates = np.datetime64("2026-03-01T00", "h") + np.arange(len(p))
    monitor = bc.Monitor().update(p, y, times=dates)
    axes = monitor.plot()
    axes[0].figure.canvas.draw()
    assert axes[-1].get_xlabel() == "Time"
    shown = num2date(axes[-1].get_xlim())
    assert shown[0].year == 2026 and (shown[1] - shown[0]).days in range(80, 100)
    assert vertical_lines(axes[1])["alarm"] == dates[monitor.alarm_row_]
    boxes = [t.get_window_extent() for t in axes[-1].get_xticklabels() if t.get_text()]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    numbers = bc.Monitor().update(p, y, times=10.0 * np.arange(len(p)))
    assert vertical_lines(numbers.plot()[0])["alarm"] == 10.0 * (numbers.alarm_row_ or 0)
    texts = bc.Monitor().update(p, y, times=[f"batch {i}" for i in range(len(p))])
    assert texts.plot()[-1].get_xlabel() == "Row"


def test_an_impossible_outcome_ends_the_line() -> None:
    p, y = draw_rows(500)
    p[300], y[300] = 0.0, 1
    axes = bc.Monitor().update(p, y).plot()
    axes[0].figure.canvas.draw()
    values = np.asarray(axes[0].lines[0].get_ydata())
    assert np.isnan(values[300:]).all() and np.isfinite(values[:300]).all()
    assert vertical_lines(axes[0])["alarm"] == 300


def test_classes_have_the_evidence_alone_and_labels_are_chosen() -> None:
    p, y = draw_rows()
    classes = bc.Monitor(task="multiclass").update(np.column_stack([1 - p, p]), y)
    assert len(classes.plot()) == 1
    many = bc.Monitor(task="multilabel")
    many.update(np.column_stack([p, p[::-1]]), np.column_stack([y, y[::-1]]))
    ends = many.plot(label=1)[1].lines[1].get_ydata()
    assert list(ends[-3:]) == list(many.confidence_sequence(1)["slope"][-3:, 0])


def test_given_axes_are_used() -> None:
    monitor = bc.Monitor().update(*draw_rows())
    _, ax = plt.subplots()
    ax.set(xlabel="day", ylabel="log e")
    (drawn,) = monitor.plot(axes=ax)
    assert drawn is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("day", "log e")
    _, three = plt.subplots(1, 3)
    assert list(monitor.plot(axes=three)) == list(three)
    with pytest.raises(ValueError, match="axes must be one or three, got 2"):
        monitor.plot(axes=three[:2])
    with pytest.raises(ValueError, match="must have rows, got none"):
        bc.Monitor().plot()
    assert len(plt.get_fignums()) == 2
