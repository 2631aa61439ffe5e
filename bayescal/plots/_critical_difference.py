"""Critical-difference diagrams: average ranks, and bars over methods that do not differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal.compare import Comparison, average_ranks, cliques, nemenyi, wilcoxon
from bayescal.compare.comparison import TESTS, significant_gaps
from bayescal.compare.table import Scores, read_table
from bayescal.data.checks import check_choice, check_level
from bayescal.plots.style import COLORS, gray, literal, new_axes, root_figure, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.gridspec import SubplotSpec
    from matplotlib.lines import Line2D
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

# Vertical distances in points if there is enough space; otherwise all shrink by one factor.
_FONT = 9.0
_SMALL_FONT = 8.0
_PAD = 3.0
_LINE = 12.0
_TICK = 3.5
_BAR = 3.6
_BAR_STEP = 6.5
_ROW = 13.5
_TALLEST = 1.6
#: Smallest fraction of the width for the axis of ranks beside long names, and after these shrank.
_AXIS_FRACTION, _MIN_AXIS_FRACTION = 0.3, 0.15
_SMALLEST = 6.0
#: Space between a name and its line, in points.
_GAP = 4.0
#: Fractions of the axis by which lines to names extend beyond it, and bars beyond their methods.
_STUB = 0.03
_OVERHANG = 0.005
_GREY = 0.35


def critical_difference(
    scores: Comparison | Scores,
    *,
    names: Sequence[object] | None = None,
    level: float | None = None,
    test: str = "wilcoxon",
    lower_is_better: bool | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the average ranks of methods, with bars that join methods that do not differ.

    Use it to compare several methods over many data sets. The best methods are at the left. A bar
    joins methods with adjacent ranks of which no two differ significantly. Names do not overlap at
    any size of the axes: text shrinks if there is little space.

    Parameters
    ----------
    scores : Comparison, array of shape (n, k), or mapping from names to arrays of shape (n,)
        The result of :func:`bayescal.compare.compare`, or a table of scores: one row for each data
        set, one column for each method.
    names : sequence of k names, optional
        Names of the methods, by default the mapping's keys or the data frame's columns.
    level : float, default 0.05
        Significance level of the test.
    test : {"wilcoxon", "nemenyi"}
        Wilcoxon's signed-rank test with Holm's correction over all pairs, which considers every
        pair separately; or Nemenyi's test, by the distance of average ranks, which is drawn above
        the axis. An arrow at its end means that it is longer than the axis.
    lower_is_better : bool, default True
        Whether a lower score is better.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError, ValueError
        If :func:`bayescal.compare.wilcoxon` or :func:`bayescal.compare.nemenyi` would raise; for an
        unknown test; if a ``Comparison`` comes with names, a level or a direction.

    See Also
    --------
    bayescal.compare.compare : Compute the tests.

    References
    ----------
    J. Demšar (2006), Statistical comparisons of classifiers over multiple data sets.

    Examples
    --------
    >>> loss = {"raw": [3.1, 4.2, 2.9, 5.5, 4.0, 3.7], "beta": [2.8, 4.0, 2.5, 5.1, 3.8, 3.6]}
    >>> ax = critical_difference(loss, test="nemenyi")
    >>> sorted(text.get_text() for text in ax.texts)
    ['1', '2', 'CD = 0.80', 'average rank', 'beta', 'raw']
    """
    check_choice(test, "test", TESTS)
    labels, ranks, significant, critical = _statistics(scores, names, level, test, lower_is_better)
    order = np.argsort(ranks, kind="stable").tolist()
    low, high = _range(ranks, critical)
    stub, over = _STUB * (high - low), _OVERHANG * (high - low)
    groups = cliques(ranks, significant)
    bars = _levels([(ranks[g[0]] - over, ranks[g[-1]] + over) for g in groups])
    rows = -(-len(order) // 2)
    depth = 1 + max((row for _, _, row in bars), default=-1)
    head = _PAD + _LINE * (1 if critical is None else 2.3) + _LINE + _TICK
    first_row = head + _BAR_STEP * (depth + 0.5) + 0.6 * _ROW
    height = first_row + _ROW * (rows - 0.5) + _PAD
    if ax is None:
        longest = max(len(name) for name in labels)
        ax = new_axes(min(4.2 + 0.07 * longest, 6.5), height / 72 + 0.1)
    ax.set_axis_off()
    ink = gray(ax, 0)
    ax.plot([low, high], [-head, -head], color=ink, linewidth=1.1, zorder=2)
    ticks = []
    for rank in range(low, high + 1):
        ax.plot([rank, rank], [-head, -head + _TICK], color=ink, linewidth=0.9, zorder=2)
        ticks.append(ax.text(rank, -head + _TICK + 1, str(rank), ha="center", va="bottom"))
    title = 0.5 * (low + high), -head + _TICK + _LINE
    small = [ax.text(*title, "average rank", ha="center", va="bottom", color=gray(ax, _GREY))]
    if critical is not None:
        small.append(_draw_critical(ax, low, high, critical))
    thick = []
    for start, end, row in bars:
        y = -head - _BAR_STEP * (row + 1)
        thick += ax.plot(
            [start, end], [y, y], color=COLORS[0], solid_capstyle="butt", zorder=3,
            gid="bayescal-clique",
        )  # fmt: skip
    sides: tuple[list[Text], list[Text]] = ([], [])
    shown: tuple[list[str], list[str]] = ([], [])
    for position, method in enumerate(order):
        right = position >= rows
        y = -first_row - _ROW * (len(order) - 1 - position if right else position)
        edge = high + stub if right else low - stub
        x = float(ranks[method])
        ax.plot([x, x, edge], [-head, y, y], color=gray(ax, _GREY), linewidth=0.9, zorder=2)
        ax.plot(x, -head, "o", color=ink, markersize=3, zorder=4)
        sides[right].append(
            ax.annotate(
                "", (edge, y), (_GAP if right else -_GAP, 0),
                textcoords="offset points", annotation_clip=False,
                ha="left" if right else "right", va="center",
            )
        )  # fmt: skip
        shown[right].append(" ".join(labels[method].split("\n")))
        literal(sides[right][-1], shown[right][-1])
    fit = _Fit(ax, sides, shown, ticks, ticks + small, thick, (low - stub, high + stub), height)
    fit(ax, None)
    ax.set_axes_locator(fit)
    return ax


def _statistics(
    scores: Comparison | Scores,
    names: Sequence[object] | None,
    level: float | None,
    test: str,
    lower_is_better: bool | None,
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, float | None]:
    """Return names, average ranks, the pairs that differ, and Nemenyi's critical difference."""
    if isinstance(scores, Comparison):
        if names is not None or level is not None or lower_is_better is not None:
            raise ValueError(
                "names, level and lower_is_better must be left out where scores is a Comparison"
            )
        critical = scores.nemenyi.critical_difference if test == "nemenyi" else None
        return scores.names, scores.ranks, scores.significant(test), critical
    level, lower = check_level(0.05 if level is None else level), lower_is_better is not False
    table = read_table(scores, names, finite=test == "wilcoxon", lower_is_better=lower)
    ranks = average_ranks(table.values)
    if test == "wilcoxon":
        return table.names, ranks, wilcoxon(table.values).adjusted <= level, None
    result = nemenyi(table.values, level)
    return table.names, ranks, significant_gaps(ranks, result), result.critical_difference


def _levels(intervals: list[tuple[float, float]]) -> list[tuple[float, float, int]]:
    """Assign every interval to the first row in which it overlaps no other; they must be sorted."""
    ends: list[float] = []
    assigned = []
    for start, end in intervals:
        row = next((i for i, last in enumerate(ends) if last < start), len(ends))
        ends[row : row + 1] = [end]
        assigned.append((start, end, row))
    return assigned


def _range(ranks: np.ndarray, critical: float | None) -> tuple[int, int]:
    """Return integer ranks for the ends of an axis for all methods and, if possible, the bar."""
    low, high = math.floor(ranks.min()), math.ceil(ranks.max())
    length = min(max(critical or 0, 1), len(ranks) - 1)
    while high - low < length:
        low, high = (low, high + 1) if high < len(ranks) else (low - 1, high)
    return low, high


def _draw_critical(ax: Axes, low: int, high: int, critical: float) -> Text:
    """Draw the critical difference above the left end of the axis."""
    y = -_PAD - _LINE - 3
    end = min(low + critical, high)
    ink = gray(ax, 0)
    ax.plot([low, end], [y, y], color=ink, linewidth=1.3, gid="bayescal-cd")
    ax.plot(low, y, "|", color=ink, markersize=6, markeredgewidth=1.3)
    ax.plot(end, y, "|" if low + critical <= high else ">", color=ink, markersize=6)
    return ax.text(low, y + 3, f"CD = {critical:.2f}", ha="left", va="bottom")


@dataclass(eq=False)
class _Fit:
    """Fits the sizes of texts and the limits of the axes whenever the axes are positioned.

    Matplotlib asks for the position of the axes before drawing them, and after a change of size.
    """

    axes: Axes
    sides: tuple[list[Text], list[Text]]
    names: tuple[list[str], list[str]]
    ticks: list[Text]
    small: list[Text]
    bars: list[Line2D]
    ends: tuple[float, float]
    height: float
    cut_to: float | None = None

    def get_subplotspec(self) -> SubplotSpec | None:
        """Return the axes' cell of the grid, which a tight layout asks for."""
        return self.axes.get_subplotspec()

    def __call__(self, ax: Any, renderer: RendererBase | None) -> Bbox:
        position = ax.get_position(original=True)
        points = 72 / root_figure(ax).dpi
        width, height = position.size * ax.figure.bbox.size * points
        upright = min(1.0, height / self.height)
        _resize(self.small, upright * _SMALL_FONT)
        # Letters are fitted to pixels, so small ones are wider than in proportion: measure them.
        scale, widths = upright, [0.0, 0.0]
        if self.cut_to not in (None, width):
            self._write(None)
        for _ in range(5):
            widths = [_resize(side, scale * _FONT, renderer) for side in self.sides]
            fraction = _AXIS_FRACTION if scale * _FONT > _SMALLEST else _MIN_AXIS_FRACTION
            excess = (sum(widths) + 2 * _PAD) / ((1 - fraction) * width)
            if excess <= 1:
                break
            smaller = scale / excess
            crosses = smaller * _FONT < _SMALLEST < scale * _FONT
            scale = _SMALLEST / _FONT if crosses else smaller
        least = min(upright, _SMALLEST / _FONT)
        if scale < least and self.cut_to != width:
            # Abbreviate names whose letters would be too small to read.
            for side in self.sides:
                _resize(side, least * _FONT, renderer)
            self._write(((1 - _MIN_AXIS_FRACTION) * width / 2 - _PAD - _GAP) / points)
            self.cut_to = width
            widths = [_resize(side, least * _FONT, renderer) for side in self.sides]
        axis = max(width - sum(widths) - 2 * _PAD, 0.1 * width)
        unit = (self.ends[1] - self.ends[0]) / axis
        left, right = ((side + _PAD) * unit for side in widths)
        limits = self.ends[0] - left, self.ends[1] + right
        if not np.allclose(ax.get_xlim(), limits, rtol=1e-6, atol=0):
            ax.set_xlim(limits)
        bottom = -max(self.height, height / _TALLEST)
        if not np.allclose(ax.get_ylim(), (bottom, 0), rtol=1e-6, atol=0):
            ax.set_ylim(bottom, 0)
        for bar in self.bars:
            if bar.get_linewidth() != upright * _BAR:
                bar.set_linewidth(upright * _BAR)
        least = 2 * upright * _SMALL_FONT * unit
        steps = (part * 10**power for power in range(9) for part in (1, 2, 5))
        step = next(step for step in steps if step >= least)
        for i, text in enumerate(self.ticks):
            if text.get_visible() != (i % step == 0):
                text.set_visible(not text.get_visible())
        return position

    def _write(self, max_pixels: float | None) -> None:
        """Write the names, abbreviated to ``max_pixels``."""
        self.cut_to = None
        for side, names in zip(self.sides, self.names, strict=True):
            for text, name in zip(side, names, strict=True):
                write(text, name, max_pixels, lines=1)


def _resize(texts: list[Text], size: float, renderer: RendererBase | None = None) -> float:
    """Set the size of texts; return the width of the widest with its gap, in points."""
    for text in texts:
        if text.get_fontsize() != size:
            text.set_fontsize(size)
    pixels = max(text.get_window_extent(renderer).width for text in texts)
    return _GAP + pixels * 72 / root_figure(texts[0]).dpi
