"""Small reliability diagrams side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayescal.data.checks import check_count
from bayescal.plots._reliability import reliability
from bayescal.plots.style import fill_legend, legend_entries, literal, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

#: Sizes of one diagram and of the labels around all, in inches.
_PANEL, _LABELS = 1.6, 0.35
#: Share of its row that a title may take before letters are made smaller, and by how much.
_HEIGHT, _FONTS = 0.35, (1, 0.85, 0.7, 0.55)
#: Lines of titles that a diagram has room for, and the height of another in inches.
_LINES, _LINE = 2, 0.15
#: Width of a title for one of the axes: some room is between these.
_TITLE, _CELL = 1.05, 0.86


class Panel(NamedTuple):
    """What is drawn in one diagram, and its title."""

    probs: Any
    y: np.ndarray
    title: str


def draw_panels(
    panels: list[Panel],
    axes: Axes | Sequence[Axes] | np.ndarray | None,
    columns: int | None,
    options: dict[str, Any],
    note: str = "",
) -> np.ndarray:
    """Draw diagrams on the axes (panels,), of a new figure if none are given, and return these."""
    options = {"histogram": False, **options}
    places = _places(axes, len(panels), columns, options["histogram"])
    own = places[0].figure if axes is None else None
    try:
        for ax, panel in zip(places, panels, strict=True):
            reliability(panel.probs, panel.y, ax=ax, **options)
    except Exception:
        if own is not None:
            import matplotlib.pyplot as plt

            plt.close(own)
        raise
    # What the axes are, and whose the lines, is said once for all.
    x_label, y_label = places[0].get_xlabel(), places[0].get_ylabel()
    legend = legend_entries(places[0]) if places[0].get_legend() else None
    for place, (ax, panel) in enumerate(zip(places, panels, strict=True)):
        _simplify(ax, panel.title, first=place == 0, legend=own is None)
        if own is not None:
            ax.set(xlabel="", ylabel="")
            ax.label_outer()
    if own is not None:
        # Above a place that is empty an axis is the last one.
        across = places[0].get_subplotspec().get_gridspec().ncols
        for ax in places[-across:]:
            ax.tick_params(labelbottom=True)
        rows = -(-len(places) // across)
        lines = [ax.get_title().count("\n") + 1 for ax in places]
        tallest = [max(lines[row * across : (row + 1) * across]) for row in range(rows)]
        more = sum(max(0, most - _LINES) for most in tallest)
        own.set_figheight(own.get_figheight() + _LINE * more)
        own.supxlabel(x_label + note, fontsize="medium")
        own.supylabel(y_label, fontsize="medium")
        if legend is not None:
            _draw_legend(own, *legend)
    return places


def _places(
    axes: Axes | Sequence[Axes] | np.ndarray | None,
    count: int,
    columns: int | None,
    histogram: bool,
) -> np.ndarray:
    """Return the axes (count,), of a new figure if none are given."""
    if axes is not None:
        flat = np.asarray(axes, dtype=object).ravel()
        if len(flat) < count:
            raise ValueError(f"axes must be at least {count}, got {len(flat)}")
        return flat[:count]
    import matplotlib.pyplot as plt

    across = (2 if count == 4 else 3) if columns is None else check_count(columns, "columns")
    across = min(across, count)
    down = -(-count // across)
    panel = _PANEL * (1.4 if histogram else 1.25)
    figure, grid = plt.subplots(
        down,
        across,
        figsize=(_PANEL * across + _LABELS, panel * down + _LABELS),
        layout="compressed",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    flat = grid.ravel()
    for ax in flat[count:]:
        figure.delaxes(ax)
    return flat[:count]


def _draw_legend(figure: Any, handles: list[Any], names: list[str]) -> None:
    """Draw the legend above all diagrams, in rows of its own."""
    look = {"loc": "outside upper center", "fontsize": "small", "frameon": False}
    width = (figure.get_figwidth() - 0.1) * figure.dpi
    legend = figure.legend(handles, ["."] * len(names), **look, handlelength=2.6)
    fill_legend(legend, names, width, lines=2)
    columns = max(1, min(len(names), int(width / legend.get_window_extent().width)))
    if columns > 1:
        legend.remove()
        own = figure.legend(handles, ["."] * len(names), ncols=columns, **look, handlelength=2.6)
        fill_legend(own, names, width / columns, lines=2)
        legend = own
    high = legend.get_window_extent().height / figure.dpi
    figure.set_figheight(figure.get_figheight() + high)


class _Title:
    """A title and labels that are fitted to the size of axes, whenever these are placed."""

    def __init__(self, ax: Axes, title: str) -> None:
        self.title, self.labels = title, (ax.get_xlabel(), ax.get_ylabel())
        self.font, self.sizes = float(ax.title.get_fontsize()), (-1.0, -1.0)

    def __call__(self, ax: Any, renderer: RendererBase | None) -> Bbox:
        place = ax.get_position(original=True)
        spec, share, rows = ax.get_subplotspec(), _TITLE * place.width, 1
        if spec is not None and ax.figure.get_layout_engine() is not None:
            grid = spec.get_gridspec()
            # A layout that has not been made yet leaves no more than this.
            share, rows = min(share, _CELL * len(spec.colspan) / grid.ncols), grid.nrows
        width, height = (round(part, 1) for part in ax.figure.bbox.size * (share, _HEIGHT / rows))
        if (width, height) != self.sizes:
            self.sizes = width, height
            for smaller in _FONTS:
                ax.title.set_fontsize(smaller * self.font)
                self._write(ax.title, width)
                if ax.title.get_window_extent().height <= height:
                    break
            # Where a figure has none for all diagrams.
            for axis, label in zip((ax.xaxis, ax.yaxis), self.labels, strict=True):
                if axis.label.get_text():
                    write(axis.label, label, width, lines=3)
        return place

    def _write(self, text: Text, width: float) -> None:
        name, _, error = self.title.rpartition("\n")
        write(text, error, width, lines=9)
        error = text.get_text()
        if name:
            write(text, name, width, lines=2)
            text.set_text(f"{text.get_text()}\n{error}")

    def get_subplotspec(self) -> None:
        """Return no place in a grid; Matplotlib asks the axes for theirs."""


def _simplify(ax: Axes, title: str, first: bool, legend: bool) -> None:
    """Make a diagram fit for a small place; the first alone says what holds for all."""
    ax.set_title(title, fontsize="small")
    literal(ax.title, title)
    fit = _Title(ax, title)
    fit(ax, None)
    if ax.get_axes_locator() is None:
        ax.set_axes_locator(fit)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.tick_params(labelsize="small")
    for line in ax.lines:
        line.set_markersize(min(line.get_markersize(), 4))
    known = ax.get_legend()
    if known is not None and not (first and legend):
        known.remove()
    if not first:
        for strip in ax.child_axes:
            strip.set_ylabel("")
