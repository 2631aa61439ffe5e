"""Critical-difference diagrams: drawn values equal the statistics, and all names are readable."""

import itertools
import pickle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from bayescal import compare, plots
from bayescal.plots import _critical_difference

NAMES = [
    "Temperature", "Vector", "Matrix", "Dirichlet", "Beta", "Isotonic", "CenteredIsotonic",
    "Histogram", "BBQ", "VennAbers", "Quadratic", "Spline", "CDFSpline", "OrderPreserving",
    "WeightScaling", "BinwiseTemperature", "StructuredMatrix", "StackedScaling", "KNN", "raw",
]  # fmt: skip


def make_table(methods: int, data_sets: int = 25) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(methods)
    shifts = np.linspace(0, 3, methods)
    return {
        name: shift + rng.normal(size=data_sets)
        for name, shift in zip(NAMES[:methods], shifts, strict=True)
    }


def lines_with_gid(ax: Axes, gid: str) -> list[Line2D]:
    return [line for line in ax.lines if line.get_gid() == gid]


def dots(ax: Axes) -> list[float]:
    return [float(line.get_xdata()[0]) for line in ax.lines if line.get_marker() == "o"]


def names_of(ax: Axes) -> list[Any]:
    return [text for text in ax.texts if text.get_text() in NAMES]


def line_from(ax: Axes, name: Any) -> float:
    """Return the rank at which the line to a name begins."""
    x, y = name.xy
    (actual,) = [
        line for line in ax.lines
        if len(line.get_xdata()) == 3 and (line.get_xdata()[2], line.get_ydata()[2]) == (x, y)
    ]  # fmt: skip
    return float(actual.get_xdata()[0])


@pytest.mark.parametrize(
    ("methods", "test"), [(2, "wilcoxon"), (3, "nemenyi"), (8, "wilcoxon"), (20, "nemenyi")]
)
def test_lines_and_bars_are_those_of_the_statistics(methods: int, test: str) -> None:
    scores = make_table(methods)
    result = compare.compare(scores, draws=10)
    ax = plots.critical_difference(result, test=test)
    np.testing.assert_allclose(sorted(dots(ax)), np.sort(result.ranks))
    rank_of = dict(zip(result.names, result.ranks, strict=True))
    for text in names_of(ax):
        assert line_from(ax, text) == pytest.approx(rank_of[text.get_text()])
    bars = lines_with_gid(ax, "bayescal-clique")
    groups = result.cliques(test)
    assert len(bars) == len(groups)
    for bar, group in zip(bars, groups, strict=True):
        start, end = bar.get_xdata()
        low, high = (f(rank_of[name] for name in group) for f in (min, max))
        assert start + end == pytest.approx(low + high)
        assert 0 < low - start < 0.01 * methods
    if test == "nemenyi":
        (line,) = lines_with_gid(ax, "bayescal-cd")
        assert np.ptp(line.get_xdata()) == pytest.approx(result.nemenyi.critical_difference)
    else:
        assert not lines_with_gid(ax, "bayescal-cd")


@pytest.mark.parametrize("test", ["nemenyi"])
def test_table_gives_the_same_picture_as_its_comparison(test: str) -> None:
    scores = make_table(6)
    one = plots.critical_difference(scores, test=test, level=0.2, lower_is_better=False)
    result = compare.compare(scores, level=0.2, lower_is_better=False, draws=10)
    other = plots.critical_difference(result, test=test)
    for first, second in zip(one.lines, other.lines, strict=True):
        np.testing.assert_array_equal(first.get_xydata(), second.get_xydata())
    assert [t.get_text() for t in one.texts] == [t.get_text() for t in other.texts]


def test_bars_that_meet_are_on_different_rows() -> None:
    ax = plots.critical_difference(make_table(20), test="nemenyi")
    bars = [(*bar.get_xdata(), bar.get_ydata()[0]) for bar in lines_with_gid(ax, "bayescal-clique")]
    assert len(bars) > 3
    for (a, b, y), (c, d, z) in itertools.combinations(bars, 2):
        assert y != z or b < c or d < a


@pytest.mark.parametrize(
    ("layout", "width", "height", "methods"),
    [
        (None, 3, 1.2, 3),
        (None, 9, 5, 20),
        ("tight", 3, 3, 8),
        ("tight", 3, 1.2, 20),
        ("constrained", 3, 1.2, 8),
        ("constrained", 3, 3, 20),
    ],
)
def test_names_neither_overlap_nor_leave_the_axes(
    layout: str | None, width: float, height: float, methods: int
) -> None:
    figure, ax = plt.subplots(figsize=(width, height), layout=layout, dpi=100)
    plots.critical_difference(make_table(methods), test="nemenyi", ax=ax)
    figure.canvas.draw()
    check_readable(ax)


def test_long_names_and_new_figures() -> None:
    ax = plots.critical_difference(make_table(20), test="nemenyi")
    ax.figure.canvas.draw()
    check_readable(ax)
    ax.figure.set_size_inches(4, 3)
    ax.figure.canvas.draw()
    check_readable(ax)
    long = [f"{'long ' * 12}{i}" for i in range(4)]
    ax = plots.critical_difference(np.stack(list(make_table(4).values()), axis=1), names=long)
    ax.figure.canvas.draw()
    check_readable(ax)


def check_readable(ax: Axes) -> None:
    outside = ax.get_window_extent().padded(0.5)
    boxes = [text.get_window_extent() for text in ax.texts if text.get_visible()]
    for box in boxes:
        assert box.x0 >= outside.x0
        assert box.x1 <= outside.x1
        assert box.y0 >= outside.y0
        assert box.y1 <= outside.y1
    for one, other in itertools.combinations(boxes, 2):
        # Boxes include room below the letters, so neighbors may overlap slightly.
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        along = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert across <= 0 or along <= 0.25 * min(one.height, other.height)


def test_all_equal_gives_one_bar_at_the_middle() -> None:
    ax = plots.critical_difference(np.ones((3, 4)))
    (bar,) = lines_with_gid(ax, "bayescal-clique")
    start, end = bar.get_xdata()
    assert start < 2.5 < end
    assert dots(ax) == [2.5] * 4


def test_critical_difference_longer_than_the_axis_ends_in_an_arrow() -> None:
    ax = plots.critical_difference([[1.0, 2.0, 3.0]], test="nemenyi")
    assert [line.get_marker() for line in ax.lines].count(">") == 1
    (line,) = lines_with_gid(ax, "bayescal-cd")
    assert list(line.get_xdata()) == [1, 3]
    assert "CD = 3.31" in [text.get_text() for text in ax.texts]


def test_axes_are_those_given_and_can_be_pickled() -> None:
    figure, (left, right) = plt.subplots(1, 2)
    assert plots.critical_difference(make_table(4), ax=right) is right
    assert not left.lines
    copy = pickle.loads(pickle.dumps(figure))
    copy.canvas.draw()


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ([[1, np.nan]], {"test": "nemenyi"}, "scores must not be NaN, got NaN for method"),
        ([[1, np.inf]], {}, "scores must be finite, got infinity for method 'method 1'"),
        ([[1, 2]], {"test": "t"}, "test must be one of 'wilcoxon', 'nemenyi', got 't'"),
        ([[1, 2]], {"level": 1}, "level must lie strictly"),
        ([[1, 2]], {"names": ["a", "a"]}, "names must differ"),
    ],
)
def test_bad_input_is_an_error_and_draws_nothing(scores: Any, options: dict, message: str) -> None:
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=message):
        plots.critical_difference(scores, ax=ax, **options)
    assert not ax.lines
    assert ax.axison


@pytest.mark.parametrize("options", [{"names": "ab"}, {"level": 0.1}, {"lower_is_better": True}])
def test_comparison_brings_its_own_options(options: dict) -> None:
    result = compare.compare([[1, 2], [2, 3]], draws=10)
    with pytest.raises(ValueError, match="must be left out where scores is a Comparison"):
        plots.critical_difference(result, **options)


@pytest.mark.parametrize(
    ("ranks", "critical", "ends"),
    [
        ([2.0, 2.0, 2.0], None, (2, 3)),
        ([2.0, 2.0, 2.0], 1.6, (1, 3)),
        ([1.5, 1.5], None, (1, 2)),
        ([3.0, 3.0, 3.0, 3.0, 3.0], 9.0, (1, 5)),
        ([1.2, 2.9, 1.9], 0.4, (1, 3)),
    ],
)
def test_the_axis_holds_the_ranks_and_the_bar(
    ranks: list[float], critical: float | None, ends: tuple[int, int]
) -> None:
    assert _critical_difference._range(np.array(ranks), critical) == ends
