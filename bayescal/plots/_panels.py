"""Small reliability diagrams side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayescal._core.checks import check_count
from bayescal.plots._reliability import reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Sizes of one diagram, of the labels around all, and of an entry of the legend, in inches.
_PANEL, _LABELS = 1.6, 0.35
_ENTRY, _ROW = 1.6, 0.2


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
    legend = places[0].get_legend_handles_labels() if places[0].get_legend() else None
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


def _draw_legend(figure: Any, handles: list[Any], labels: list[str]) -> None:
    """Draw the legend above all diagrams, in a row of its own."""
    columns = max(1, min(len(labels), int(figure.get_figwidth() / _ENTRY)))
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + _ROW * rows + 0.1)
    figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, fontsize="small",
        frameon=False, handlelength=2.6,
    )  # fmt: skip


def _simplify(ax: Axes, title: str, first: bool, legend: bool) -> None:
    """Make a diagram fit for a small place; the first alone says what holds for all."""
    ax.set_title(title, fontsize="small")
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
