"""Colours, markers and lines that colour-blind readers can distinguish, also in grey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = [
    "COLORS",
    "Style",
    "draw_legend",
    "faded",
    "grey",
    "is_dark",
    "label_axes",
    "new_axes",
    "next_style",
    "style_of",
    "tidy",
]

# The palette of Okabe and Ito without its yellow, which is too faint for lines on white. Black
# is white on dark axes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)))

# Marks the lines that take part in the count, so that later calls go on with the next style.
_GROUP = "bayescal-series"


class Style(NamedTuple):
    """Look of one series."""

    color: str
    marker: str
    linestyle: str | tuple
    #: Of what lies behind, around markers.
    ground: str = "1"

    @property
    def markers(self) -> dict[str, Any]:
        """Options of a line with markers."""
        return {"marker": self.marker, "markeredgecolor": self.ground, "markeredgewidth": 0.6}

    def draw(self, ax: Axes, x: np.ndarray, y: np.ndarray, **options: Any) -> Line2D:
        """Draw the line of the series, which takes part in the count."""
        look = {"color": self.color, "linestyle": self.linestyle, "zorder": 3}
        return ax.plot(x, y, gid=_GROUP, **look, **options)[0]

    def fill(
        self, ax: Axes, x: np.ndarray, lower: np.ndarray, upper: np.ndarray, alpha: float
    ) -> None:
        """Draw a band without an edge."""
        look: dict[str, Any] = {"color": self.color, "alpha": faded(ax, alpha)}
        ax.fill_between(x, lower, upper, linewidth=0, zorder=2, **look)


def next_style(ax: Axes) -> Style:
    """Return the style that follows those already drawn on ``ax`` by this package."""
    style = style_of(sum(line.get_gid() == _GROUP for line in ax.lines))
    if not is_dark(ax):
        return style
    color = "#FFFFFF" if style.color == COLORS[-1] else style.color
    return style._replace(color=color, ground="0")


def style_of(series: int) -> Style:
    """Return the style of the series of that number, from 0, on light axes."""
    color, marker = COLORS[series % len(COLORS)], _MARKERS[series % len(_MARKERS)]
    return Style(color, marker, _LINES[series % len(_LINES)])


def is_dark(ax: Axes) -> bool:
    """Return whether what is drawn on ``ax`` lies on a dark ground.

    Where axes and figure are transparent, the ground is taken for dark if text is light.
    """
    import matplotlib
    from matplotlib.colors import to_rgba

    figure: Any = ax.get_figure(root=True)
    for color in (ax.get_facecolor(), figure.get_facecolor()):
        *rgb, alpha = to_rgba(color)
        if alpha > 0.5:
            return _brightness(rgb) < 0.5
    return _brightness(to_rgba(matplotlib.rcParams["text.color"])[:3]) > 0.5


def _brightness(rgb: Any) -> float:
    return float(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2])


def grey(ax: Axes, level: float) -> str:
    """Return a grey between black, 0, and white, 1, as on white; on dark axes its opposite."""
    return f"{1 - level if is_dark(ax) else level:g}"


def faded(ax: Axes, alpha: float) -> float:
    """Return the opacity of a pale area; on dark axes more, as dim colours vanish there."""
    return min(1.0, 2 * alpha) if is_dark(ax) else alpha


def new_axes(width: float, height: float) -> Axes:
    """Return the axes of a new figure of that size in inches."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def label_axes(ax: Axes, x: str, y: str) -> None:
    """Write what the axes are, where nothing is written yet."""
    ax.set_xlabel(ax.get_xlabel() or x)
    ax.set_ylabel(ax.get_ylabel() or y)


def tidy(ax: Axes) -> None:
    """Take away the frame where it carries no scale."""
    ax.spines[["top", "right"]].set_visible(False)


def draw_legend(ax: Axes, **options: Any) -> None:
    """Draw the legend where it covers least; what it covers shines through."""
    look = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "framealpha": 0.6}
    ax.legend(handlelength=2.6, **{**look, **options})
