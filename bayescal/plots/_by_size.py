"""Curves of a metric over the size of the data, one for every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import as_numpy, check_names
from bayescal.data.label_names import column_names
from bayescal.plots._inputs import Arrays, read_vector
from bayescal.plots.style import (
    gray,
    label_axes,
    literal,
    new_axes,
    next_style,
    root_figure,
    tidy,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.lines import Line2D
    from matplotlib.offsetbox import AnnotationBbox
    from matplotlib.transforms import Bbox
    from matplotlib.typing import LineStyleType

_FLOOR = "bayescal-floor"
_DASHED = (0, (4, 3))
_FONT = 9.0
#: Height of a line of text as a multiple of its font size.
_LINE = 1.25
#: Widths in points: from the axes to the names, and of the piece of line beside a name.
_LEADER, _KEY = 14.0, 22.0
#: Widths in inches: of a figure, and of the names that fit in it.
_WIDTH, _NAME = 4.6, 0.9
#: Largest fraction of the figure's width for a name; smallest fraction of their width that the axes
#: keep.
_MAX_NAME_FRACTION, _MIN_AXES_FRACTION = 0.4, 0.4
_CONNECTION = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
#: Width in points that the label of a tick needs.
_TICK = 36.0


def by_size(
    sizes: ArrayLike,
    values: Arrays,
    *,
    names: Sequence[object] | None = None,
    errors: Arrays | None = None,
    floor: float | None = None,
    logx: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw how a metric changes with the size of the data, for several methods.

    Use it for learning curves. Names are at the right of the axes, in the order of the values at
    the ends of the lines, each with a piece of its line and marker. They do not overlap at any size
    of the figure: text shrinks if there is little space.

    Parameters
    ----------
    sizes : array of shape (s,)
        Sizes of the data sets, positive if ``logx``, in any order.
    values : array of shape (s, k), or mapping from names to arrays of shape (s,)
        The metric: one row for each size, one column for each method. NaN omits a point.
    names : sequence of k names, optional
        Names of the methods, by default the mapping's keys or the data frame's columns; without
        names the lines have no label.
    errors : array of shape (s, k), or mapping from the same names, optional
        Half the heights of bands around the lines, such as standard errors; not negative.
    floor : float, optional
        The best possible value, such as the loss of the true probabilities, drawn as a dashed line.
    logx : bool, default True
        Whether the axis of sizes is logarithmic.
    ax : matplotlib Axes, optional
        Where to draw, by default on a new figure. Drawing on the same axes again continues with the
        next color, marker and line.

    Returns
    -------
    matplotlib Axes
        ``ax``, or the axes of the new figure.

    Raises
    ------
    TypeError, ValueError
        If shapes or names do not match, sizes are not finite and positive, an error is negative
        or the floor is not finite.

    See Also
    --------
    bayescal.compare.compare : Tests of the differences between methods.

    Examples
    --------
    >>> loss = {"Platt": [0.52, 0.47, 0.46], "isotonic": [0.61, 0.48, 0.45]}
    >>> ax = by_size([30, 100, 300], loss, floor=0.44)
    >>> [line.get_label() for line in ax.lines]
    ['Platt', 'isotonic', 'best possible']
    """
    x = read_vector(sizes, "sizes", "s")
    if logx and (x <= 0).any():
        raise ValueError(f"sizes must be positive, got {x.min():g}; or pass logx=False")
    labels, table = _table(values, names, len(x))
    half = None if errors is None else _errors(errors, values, table.shape)
    if floor is not None:
        floor = float(floor)
        if not np.isfinite(floor):
            raise ValueError(f"floor must be finite, got {floor}")
    order = np.argsort(x, kind="stable")
    x, table = x[order], table[order]
    new_figure = ax is None
    if ax is None:
        ax = new_axes(_WIDTH, 3.0)
        tidy(ax)
    label_axes(ax, "Number of cases", "Metric")
    if logx:
        if ax.get_xscale() != "log":
            ax.set_xscale("log")
        _tick_sizes(ax, x)
    ends = ax.get_axes_locator()
    if not isinstance(ends, _LineLabels):
        ends = _LineLabels()
    for j in range(table.shape[1]):
        style = next_style(ax)
        y = table[:, j]
        if half is not None:
            error = half[order, j]
            style.fill(ax, x, y - error, y + error, alpha=0.18)
        label = f"_{j}" if labels is None else labels[j]
        line = style.draw(ax, x, y, linewidth=1.5, markersize=5, label=label, **style.markers)
        known = np.flatnonzero(np.isfinite(y))
        if labels is not None and len(known):
            ends.add(ax, line, style.linestyle, float(y[known[-1]]))
    if floor is not None:
        line = ax.axhline(floor, color=gray(ax, 0.35), linewidth=1, linestyle=_DASHED, zorder=1)
        line.set(gid=_FLOOR, label="best possible")
        ends.add(ax, line, _DASHED, floor)
    ends(ax, None)
    if new_figure and ends.texts:
        figure = root_figure(ax)
        longest = max(text.get_window_extent().width for text in ends.texts) / figure.dpi
        figure.set_figwidth(_WIDTH + max(0.0, longest - _NAME))
    ax.set_axes_locator(ends)
    return ax


def _table(
    values: Arrays, names: Sequence[object] | None, s: int
) -> tuple[list[str] | None, np.ndarray]:
    """Read the names and the values (s, k)."""
    if isinstance(values, Mapping) and names is not None:
        raise ValueError("names must be left out where values is a mapping: its keys are the names")
    table = _columns(values, "values", s)
    if names is None:
        names = list(values) if isinstance(values, Mapping) else column_names(values)
    labels = None if names is None else check_names(names, "values")
    if labels is not None and len(labels) != table.shape[1]:
        raise ValueError(f"names must be {table.shape[1]}, one for each method, got {len(labels)}")
    return labels, table


def _errors(errors: Arrays, values: Arrays, shape: tuple[int, ...]) -> np.ndarray:
    """Read the half heights (s, k) of bands."""
    if isinstance(errors, Mapping) != isinstance(values, Mapping):
        raise TypeError("errors must be a mapping if and only if values is one")
    if isinstance(errors, Mapping) and isinstance(values, Mapping):
        if set(errors) != set(values):
            raise ValueError(f"errors must have the names of values, got {list(errors)}")
        errors = {name: errors[name] for name in values}
    half = _columns(errors, "errors", shape[0])
    if half.shape != shape:
        raise ValueError(f"errors must have shape {shape} to match values, got {half.shape}")
    names, order = column_names(values), column_names(errors)
    if names and order and len(set(names)) == shape[1] and set(names) == set(order):
        half = half[:, [order.index(name) for name in names]]
    if (half < 0).any():
        raise ValueError("errors must be finite and not negative")
    return half


def _columns(given: Arrays, name: str, s: int) -> np.ndarray:
    """Read an array (s, k), or a mapping of columns (s,) side by side."""
    if isinstance(given, Mapping):
        if not given:
            raise ValueError(f"{name} must not be an empty mapping")
        arrays = []
        for key, column in given.items():
            label = f"{name}[{key!r}]"
            array = as_numpy(column, label)
            if array.shape != (s,):
                raise ValueError(
                    f"{label} must have shape ({s},) to match sizes, got {array.shape}"
                )
            arrays.append(array)
        table = np.stack(arrays, axis=1)
    else:
        table = as_numpy(given, name)
        if table.ndim != 2 or len(table) != s or table.shape[1] == 0:
            raise ValueError(
                f"{name} must have shape ({s}, k), one row for each size, got {table.shape}"
            )
    if np.isinf(table).any():
        raise ValueError(f"{name} must be finite, or NaN where they are missing")
    return table.astype(np.float64)


def _tick_sizes(ax: Any, sizes: np.ndarray) -> None:
    """Put ticks at the sizes, in plain numbers, except those too close to the next one."""
    from matplotlib.ticker import FixedLocator, NullFormatter

    if isinstance(ax.xaxis.get_minor_locator(), FixedLocator):
        sizes = np.concatenate([ax.get_xticks(), ax.get_xticks(minor=True), sizes])
    sizes = np.unique(sizes)
    width = ax.get_position().width * ax.figure.get_size_inches()[0] * 72
    room = np.log(sizes[-1] / sizes[0]) * _TICK / width
    shown = [sizes[-1]]
    for size in sizes[-2::-1]:
        if np.log(shown[-1] / size) >= room:
            shown.append(size)
    ax.set_xticks(shown[::-1], [f"{size:,.10g}" for size in shown[::-1]])
    ax.set_xticks(sizes, minor=True)
    ax.xaxis.set_minor_formatter(NullFormatter())


class _LineLabels:
    """Names at the right border, spread out whenever the axes are positioned.

    Matplotlib asks for the position of the axes before drawing them, and after a change of size.
    """

    def __init__(self) -> None:
        self.boxes: list[AnnotationBbox] = []
        self.names: list[str] = []
        self.texts: list[Any] = []
        self.written: tuple[float, ...] = ()
        self.values: list[float] = []

    def add(self, ax: Axes, line: Line2D, dashes: LineStyleType, value: float) -> None:
        """Add the name of a line that ends at ``value``, and a thin line that connects the two."""
        from matplotlib.lines import Line2D
        from matplotlib.offsetbox import AnnotationBbox, DrawingArea, HPacker, TextArea

        key = DrawingArea(_KEY, 8)
        properties = ("color", "linewidth", "markersize", "markeredgecolor", "markeredgewidth")
        style = {part: getattr(line, f"get_{part}")() for part in properties}
        key.add_artist(Line2D([0, _KEY], [4, 4], linestyle=dashes, **style))
        key.add_artist(Line2D([_KEY / 2], [4], marker=line.get_marker(), **style))
        name = TextArea("")
        box = AnnotationBbox(
            HPacker(children=[key, name], align="center", pad=0, sep=4), (1, value), (_LEADER, 0),
            xycoords=ax.get_yaxis_transform(), boxcoords="offset points", box_alignment=(0, 0.5),
            frameon=False, pad=0, annotation_clip=False,
            arrowprops={**_CONNECTION, "color": line.get_color()},
        )  # fmt: skip
        ax.add_artist(box)
        self.boxes.append(box)
        self.names.append(str(line.get_label()))
        self.texts.append(name.get_children()[0])
        literal(self.texts[-1], self.names[-1])
        self.values.append(value)

    def __call__(self, ax: Any, renderer: RendererBase | None) -> Bbox:
        from matplotlib.transforms import Bbox

        position = ax.get_position(original=True)
        if not self.boxes:
            return position
        figure = ax.get_figure(root=True)
        width, most = figure.bbox.width, _MAX_NAME_FRACTION * figure.bbox.width
        height = position.height * ax.figure.get_size_inches()[1] * 72
        # Limits that depend on the data are computed when they are requested.
        ax.get_ylim()
        ends = ax.transLimits.transform(ax.transScale.transform([(1, v) for v in self.values]))
        wanted = height * ends[:, 1]
        size = min(_FONT, height / (_LINE * len(wanted)))
        beside = (_LEADER + _KEY + 4) * figure.dpi / 72
        if (written := (size, width, len(wanted))) != self.written:
            self.written = written
            for text, name in zip(self.texts, self.names, strict=True):
                text.set_fontsize(size)
                write(text, name, most, lines=1)
        if figure.get_layout_engine() is None:
            # Keep names inside the figure, since no layout makes space for them.
            beside += max(text.get_window_extent(renderer).width for text in self.texts)
            least = position.x0 + _MIN_AXES_FRACTION * position.width
            right = max(min(position.x1, 1 - beside / width), least)
            position = Bbox.from_extents(position.x0, position.y0, right, position.y1)
        moved = _spread(wanted, _LINE * size, height) - wanted
        for box, shift in zip(self.boxes, moved, strict=True):
            if abs(box.xybox[1] - shift) > 1e-6:
                box.xybox = (_LEADER, float(shift))
                box.stale = True
        return position


def _spread(wanted: np.ndarray, distance: float, height: float) -> np.ndarray:
    """Return the heights nearest to those wanted that are at least ``distance`` apart.

    They lie in [0, height]. In order, heights minus multiples of the distance must not decrease: an
    isotonic regression.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(wanted, kind="stable")
    steps = distance * np.arange(len(wanted))
    fitted = isotonic_regression(wanted[order] - steps).x
    highest = max(height - distance / 2 - steps[-1], distance / 2)
    heights = np.empty(len(wanted))
    heights[order] = np.clip(fitted, distance / 2, highest) + steps
    return heights
