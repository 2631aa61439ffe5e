"""Small reliability diagrams side by side, with a common legend and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayescal.plots._inputs import Arrays
from bayescal.plots._reliability.diagram import reliability
from bayescal.plots.style import fill_legend, legend_entries, literal, new_panels, write

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

#: Sizes of one diagram and of the labels around all of them, in inches.
_PANEL, _LABELS = 1.6, 0.35
#: Fraction of its row that a title may take before its letters shrink, and by which factors.
_HEIGHT, _FONTS = 0.35, (1, 0.85, 0.7, 0.55)
#: Lines of title that fit in a diagram, and the height of another line in inches.
_LINES, _LINE = 2, 0.15
#: Largest widths of a title, in widths of the axes and of the cell of the grid.
_TITLE, _CELL = 1.05, 0.86


class Panel(NamedTuple):
    """The data of one diagram, and its title."""

    probs: Arrays
    y: np.ndarray
    title: str


def draw_panels(
    panels: list[Panel],
    axes: Axes | Sequence[Axes] | np.ndarray | None,
    columns: int | None,
    options: dict[str, Any],
    note: str = "",
) -> np.ndarray:
    """Draw diagrams on the given axes, or on a new figure, and return the axes (panels,)."""
    options = {"histogram": False, **options}
    all_axes = _axes_of_panels(axes, len(panels), columns, options["histogram"])
    new_figure = all_axes[0].figure if axes is None else None
    try:
        for ax, panel in zip(all_axes, panels, strict=True):
            reliability(panel.probs, panel.y, ax=ax, **options)
    except Exception:
        if new_figure is not None:
            import matplotlib.pyplot as plt

            plt.close(new_figure)
        raise
    # Common labels and the legend are drawn only once.
    x_label, y_label = all_axes[0].get_xlabel(), all_axes[0].get_ylabel()
    legend = legend_entries(all_axes[0]) if all_axes[0].get_legend() else None
    for index, (ax, panel) in enumerate(zip(all_axes, panels, strict=True)):
        _simplify(ax, panel.title, first=index == 0, legend=new_figure is None)
        if new_figure is not None:
            ax.set(xlabel="", ylabel="")
            ax.label_outer()
    if new_figure is not None:
        # The axis above an empty cell is the last in its column.
        across = all_axes[0].get_subplotspec().get_gridspec().ncols
        for ax in all_axes[-across:]:
            ax.tick_params(labelbottom=True)
        lines = [ax.get_title().count("\n") + 1 for ax in all_axes]
        tallest = [max(lines[i : i + across]) for i in range(0, len(lines), across)]
        more = sum(max(0, height - _LINES) for height in tallest)
        new_figure.set_figheight(new_figure.get_figheight() + _LINE * more)
        new_figure.supxlabel(x_label + note, fontsize="medium")
        new_figure.supylabel(y_label, fontsize="medium")
        if legend is not None:
            _draw_legend(new_figure, *legend)
    return all_axes


def _axes_of_panels(
    axes: Axes | Sequence[Axes] | np.ndarray | None,
    count: int,
    columns: int | None,
    histogram: bool,
) -> np.ndarray:
    """Return the axes (count,), by default those of a new figure."""
    if axes is not None:
        flat = np.asarray(axes, dtype=object).ravel()
        if len(flat) < count:
            raise ValueError(f"axes must be at least {count}, got {len(flat)}")
        return flat[:count]
    size = _PANEL, _PANEL * (1.4 if histogram else 1.25)
    return new_panels(count, columns, size, (_LABELS, _LABELS), "compressed")


def _draw_legend(figure: Figure, handles: list[Artist], names: list[str]) -> None:
    """Draw the legend above all diagrams, in rows of its entries."""
    appearance = {"loc": "outside upper center", "fontsize": "small", "frameon": False}
    width = (figure.get_figwidth() - 0.1) * figure.dpi

    def draw(columns: int) -> Legend:
        texts = ["."] * len(names)
        legend = figure.legend(handles, texts, ncols=columns, **appearance, handlelength=2.6)
        fill_legend(legend, names, width / columns, lines=2)
        return legend

    legend = draw(1)
    columns = min(len(names), int(width / legend.get_window_extent().width))
    if columns > 1:
        legend.remove()
        legend = draw(columns)
    high = legend.get_window_extent().height / figure.dpi
    figure.set_figheight(figure.get_figheight() + high)


class _Title:
    """A title and labels fitted to the size of the axes whenever these are positioned."""

    def __init__(self, ax: Axes, title: str) -> None:
        self.title, self.labels = title, (ax.get_xlabel(), ax.get_ylabel())
        self.font, self.sizes = float(ax.title.get_fontsize()), (-1.0, -1.0)

    def __call__(self, ax: Any, renderer: RendererBase | None) -> Bbox:
        position = ax.get_position(original=True)
        spec, fraction, rows = ax.get_subplotspec(), _TITLE * position.width, 1
        if spec is not None and ax.figure.get_layout_engine() is not None:
            grid = spec.get_gridspec()
            # Before the layout is computed, only this much is certain.
            fraction, rows = min(fraction, _CELL * len(spec.colspan) / grid.ncols), grid.nrows
        width, height = (
            round(part, 1) for part in ax.figure.bbox.size * (fraction, _HEIGHT / rows)
        )
        if (width, height) != self.sizes:
            self.sizes = width, height
            for smaller in _FONTS:
                ax.title.set_fontsize(smaller * self.font)
                self._write(ax.title, width)
                if ax.title.get_window_extent().height <= height:
                    break
            # Axis labels, if the figure has none for all diagrams.
            for axis, label in zip((ax.xaxis, ax.yaxis), self.labels, strict=True):
                if axis.label.get_text():
                    write(axis.label, label, width, lines=3)
        return position

    def _write(self, text: Text, width: float) -> None:
        name, _, error = self.title.rpartition("\n")
        write(text, error, width, lines=9)
        error = text.get_text()
        if name:
            write(text, name, width, lines=2)
            text.set_text(f"{text.get_text()}\n{error}")

    def get_subplotspec(self) -> None:
        """Return no cell of a grid; Matplotlib asks the axes for theirs."""


def _simplify(ax: Axes, title: str, first: bool, legend: bool) -> None:
    """Make a diagram fit in a small space; only the first one keeps the common parts."""
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
    legend_ = ax.get_legend()
    if legend_ is not None and not (first and legend):
        legend_.remove()
    if not first:
        for strip in ax.child_axes:
            strip.set_ylabel("")
