"""Curves of a metric over sizes."""

from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox

from bayescal import plots

SIZES = np.array([300, 30, 1000, 100])


def labels(ax: Axes) -> list[Any]:
    return [artist for artist in ax.artists if isinstance(artist, AnnotationBbox)]


def text(box: Any) -> Any:
    return box.offsetbox.get_children()[1].get_children()[0]


def test_lines_and_bands_are_those_given_in_order_of_size() -> None:
    values = {"a": np.array([3.0, 1, 4, 2]), "b": np.array([6.0, 5, 8, 7])}
    errors = {"b": np.full(4, 0.5), "a": np.full(4, 0.1)}
    ax = plots.by_size(SIZES, values, errors=errors, floor=0.5)
    first, second, floor = ax.lines
    np.testing.assert_array_equal(first.get_xydata(), [[30, 1], [100, 2], [300, 3], [1000, 4]])
    np.testing.assert_array_equal(second.get_ydata(), [5, 7, 6, 8])
    assert floor.get_ydata() == [0.5, 0.5] and floor.get_linestyle() == "--"
    for collection, line, half in zip(ax.collections, (first, second), (0.1, 0.5), strict=True):
        corners = {tuple(c) for c in collection.get_paths()[0].vertices.round(9)}
        x, y = line.get_xydata().T
        expected = {*zip(x, y - half, strict=True), *zip(x, y + half, strict=True)}
        assert corners == {(float(a), round(float(b), 9)) for a, b in expected}
    assert ax.get_xscale() == "log"
    assert plots.by_size(SIZES, values, logx=False).get_xscale() == "linear"


def test_arrays_have_a_column_for_each_method_and_nan_is_left_out() -> None:
    table = np.array([[1.0, 5], [2, 6], [np.nan, 7], [4, 8]])
    ax = plots.by_size([1, 2, 3, 4], table, names=["a", "b"])
    assert [line.get_label() for line in ax.lines] == ["a", "b"]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), table[:, 0])
    assert not labels(plots.by_size([1, 2, 3, 4], table))


def test_data_frames_have_the_names_of_their_columns() -> None:
    values = pd.DataFrame({"a": [3.0, 1, 4, 2], "b": [6.0, 5, 8, 7]})
    errors = pd.DataFrame({"b": np.full(4, 0.5), "a": np.full(4, 0.1)})
    ax = plots.by_size(SIZES, values, errors=errors)
    assert [line.get_label() for line in ax.lines] == ["a", "b"]
    for band, half in zip(ax.collections, (0.1, 0.5), strict=True):
        corners = band.get_paths()[0].vertices
        smallest = corners[corners[:, 0] == 30, 1]
        assert np.ptp(smallest) == pytest.approx(2 * half)
    ax = plots.by_size(SIZES, values, names=["one", "two"])
    assert [line.get_label() for line in ax.lines] == ["one", "two"]


@pytest.mark.parametrize("size", [(4.6, 3.0), (3.0, 1.5), (9.0, 6.0)])
def test_names_keep_clear_of_each_other_and_of_the_lines(size: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    names = [f"method {j}" for j in range(8)]
    values = 1 / np.sqrt(SIZES)[:, None] + 1e-3 * rng.random((4, 8))
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    plots.by_size(SIZES, values, names=names, floor=0.03, ax=ax)
    figure.canvas.draw()
    boxes = [text(one).get_window_extent() for one in labels(ax)]
    assert len(boxes) == 9
    order = np.argsort([box.y0 for box in boxes])
    last = np.append(values[2], 0.03)
    np.testing.assert_array_equal(order, np.argsort(last))
    inner = ax.get_window_extent()
    for low, high in pairwise(order):
        assert boxes[high].y0 >= boxes[low].y1 - 0.35 * boxes[low].height  # without descenders
    for box in boxes:
        assert box.x0 > inner.x1
        assert box.x1 <= figure.bbox.x1 + 1
        assert inner.y0 - 2 <= box.y0 and box.y1 <= inner.y1 + 2


def test_names_stand_at_the_ends_where_there_is_room() -> None:
    figure, ax = plt.subplots(layout="constrained")
    plots.by_size([1, 10], {"low": [3, 1.5], "high": [3, 2.5]}, ax=ax)
    for _ in range(2):
        figure.canvas.draw()
        for box, value in zip(labels(ax), (1.5, 2.5), strict=True):
            extent = text(box).get_window_extent()
            wanted = ax.transData.transform((1, value))[1]
            assert abs((extent.y0 + extent.y1) / 2 - wanted) < 4
        ax.set_ylim(0, 5)


def test_drawing_again_goes_on() -> None:
    ax = plots.by_size([1, 2], {"a": [1, 2]})
    assert plots.by_size([1, 2], {"b": [3, 4]}, ax=ax) is ax
    first, second = ax.lines
    assert first.get_color() != second.get_color()
    assert len(labels(ax)) == 2
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        (np.ones((3, 2)), {}, ValueError, r"values must have shape \(4, k\)"),
        ({"a": [1, 2]}, {}, ValueError, r"values\['a'\] must have shape \(4,\)"),
        ({}, {}, ValueError, "values must not be an empty mapping"),
        ({"a": np.ones(4)}, {"names": ["a"]}, ValueError, "names must be left out"),
        (np.ones((4, 2)), {"names": ["a"]}, ValueError, "names must be 2"),
        (np.full((4, 1), np.inf), {}, ValueError, "values must be finite"),
        (np.ones((4, 1)), {"errors": -np.ones((4, 1))}, ValueError, "not negative"),
        (np.ones((4, 1)), {"errors": np.ones((4, 2))}, ValueError, r"shape \(4, 1\) to match"),
        (np.ones((4, 1)), {"errors": {"a": np.ones(4)}}, TypeError, "if and only if"),
        ({"a": np.ones(4)}, {"errors": {"b": np.ones(4)}}, ValueError, "names of values"),
        (np.ones((4, 1)), {"floor": np.nan}, ValueError, "floor must be finite"),
        (np.ones((4, 1)), {"sizes": [0, 1, 2, 3]}, ValueError, "sizes must be positive, got 0"),
        (np.ones((4, 1)), {"sizes": [[1]]}, ValueError, r"sizes must have shape \(s,\)"),
    ],
)
def test_wrong_arguments_are_errors(
    values: Any, options: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plots.by_size(**{"sizes": SIZES, "values": values, **options})
    assert not plt.get_fignums()


@pytest.mark.parametrize("sizes", [[30, 100, 300], [50, 60, 100, 5000], [7]])
def test_ticks_are_the_sizes_that_have_room(sizes: list[int]) -> None:
    ax = plots.by_size(sizes, {"a": np.linspace(0.5, 0.3, len(sizes))})
    ax.figure.canvas.draw()
    shown = [label for label in ax.get_xticklabels() if label.get_text()]
    assert {label.get_text() for label in shown} <= {f"{size:,}" for size in sizes}
    assert shown[-1].get_text() == f"{sizes[-1]:,}"
    boxes = [label.get_window_extent() for label in shown]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    assert all(not label.get_text() for label in ax.get_xticklabels(minor=True))


def test_ticks_of_curves_drawn_later_join_those_of_the_first() -> None:
    ax = plots.by_size([30, 100, 300], {"a": [0.5, 0.4, 0.3]})
    plots.by_size([1000], {"b": [0.2]}, ax=ax)
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert shown == ["30", "100", "300", "1,000"]
