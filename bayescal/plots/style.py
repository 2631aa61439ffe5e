"""Colors, markers and lines that color-blind readers can distinguish, also in gray."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from bayescal.data.checks import check_count

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from matplotlib.text import Text
    from matplotlib.typing import LineStyleType

# The palette of Okabe and Ito without its yellow, which is too faint for lines on white. Black is
# replaced by white on dark axes.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
_LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)))


class _TextOptions(TypedDict, total=False):
    """Options of a text that show a name literally."""

    parse_math: bool
    fontfamily: list[str]


# Marks the lines that count as series, so that later calls continue with the next style.
_GROUP = "bayescal-series"
# Matplotlib's labels of lines without a name.
_UNNAMED = re.compile(r"_child\d+")
# A font that is installed with Matplotlib and has a placeholder for every letter.
_LAST_RESORT = "Last Resort High-Efficiency"
#: Smallest font size in points to which text is reduced.
_SMALLEST = 4.0


class Style(NamedTuple):
    """Color, marker and line style of one series."""

    color: str
    marker: str
    linestyle: LineStyleType
    #: Color of the background, used around markers.
    ground: str = "1"

    @property
    def markers(self) -> dict[str, object]:
        """Options of a line with markers."""
        return {"marker": self.marker, "markeredgecolor": self.ground, "markeredgewidth": 0.6}

    def draw(self, ax: Axes, x: np.ndarray, y: np.ndarray, **options: Any) -> Line2D:
        """Draw the line of the series, which is counted by ``next_style``."""
        properties = {"color": self.color, "linestyle": self.linestyle, "zorder": 3}
        return ax.plot(x, y, gid=_GROUP, **properties, **options)[0]

    def fill(
        self, ax: Axes, x: np.ndarray, lower: np.ndarray, upper: np.ndarray, alpha: float
    ) -> None:
        """Draw a band without an edge."""
        properties = {"color": self.color, "alpha": faded(ax, alpha)}
        ax.fill_between(x, lower, upper, linewidth=0, zorder=2, **properties)


def next_style(ax: Axes) -> Style:
    """Return the style that follows those that this package has drawn on ``ax``."""
    style = style_of(sum(line.get_gid() == _GROUP for line in ax.lines))
    if not is_dark(ax):
        return style
    color = "#FFFFFF" if style.color == COLORS[-1] else style.color
    return style._replace(color=color, ground="0")


def style_of(series: int) -> Style:
    """Return the style of series number ``series``, counted from 0, on light axes."""
    color, marker = COLORS[series % len(COLORS)], _MARKERS[series % len(_MARKERS)]
    return Style(color, marker, _LINES[series % len(_LINES)])


def root_figure(artist: Artist) -> Figure:
    """Return the figure on which an artist is drawn, not a part of the figure."""
    figure = artist.get_figure(root=True)
    assert figure is not None
    return figure


def is_dark(ax: Axes) -> bool:
    """Return whether the background of ``ax`` is dark.

    If axes and figure are transparent, the background counts as dark if text is light.
    """
    import matplotlib
    from matplotlib.colors import to_rgba

    figure = root_figure(ax)
    for color in (ax.get_facecolor(), figure.get_facecolor()):
        *rgb, alpha = to_rgba(color)
        if alpha > 0.5:
            return _brightness(rgb) < 0.5
    return _brightness(to_rgba(matplotlib.rcParams["text.color"])[:3]) > 0.5


def _brightness(rgb: Sequence[float]) -> float:
    return float(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2])


def gray(ax: Axes, level: float) -> str:
    """Return a gray between 0 (black) and 1 (white); on dark axes its opposite."""
    return f"{1 - level if is_dark(ax) else level:g}"


def faded(ax: Axes, alpha: float) -> float:
    """Return the opacity of a pale area, larger on dark axes, where dim colors vanish."""
    return min(1.0, 2 * alpha) if is_dark(ax) else alpha


def new_axes(width: float, height: float) -> Axes:
    """Create a figure of that size in inches and return its axes."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    return ax


def new_panels(
    count: int,
    columns: int | None,
    size: tuple[float, float],
    margins: tuple[float, float],
    layout: Literal["constrained", "compressed"],
) -> np.ndarray:
    """Create a figure of panels with common axes, by default at most three side by side.

    Sizes of a panel and of the margins are in inches. Returns the axes (count,).
    """
    import matplotlib.pyplot as plt

    across = (2 if count == 4 else 3) if columns is None else check_count(columns, "columns")
    across = min(across, count)
    down = -(-count // across)
    figsize = size[0] * across + margins[0], size[1] * down + margins[1]
    figure, grid = plt.subplots(
        down, across, figsize=figsize, layout=layout, sharex=True, sharey=True, squeeze=False
    )
    for ax in grid.ravel()[count:]:
        figure.delaxes(ax)
    return grid.ravel()[:count]


def label_axes(ax: Axes, x: str, y: str) -> None:
    """Label the axes unless they have labels."""
    ax.set_xlabel(ax.get_xlabel() or x)
    ax.set_ylabel(ax.get_ylabel() or y)


def tidy(ax: Axes) -> None:
    """Remove the sides of the frame that carry no scale."""
    ax.spines[["top", "right"]].set_visible(False)


def draw_legend(
    ax: Axes, width: float | None = None, height: float = 0.95, **options: Any
) -> Legend:
    """Draw a half-transparent legend where it covers least, and return it.

    Names are wrapped, abbreviated and reduced in size if they need more than ``width`` pixels (by
    default the width of the axes) or more than a fraction ``height`` of the height of the axes.
    """
    appearance = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "framealpha": 0.6}
    handles, names = legend_entries(ax)
    order = options.pop("order", range(len(names)))
    handles, names = [handles[i] for i in order], [names[i] for i in order]
    # Texts that Matplotlib shows: it omits names that begin with an underscore.
    texts = ["."] * len(names)
    legend = ax.legend(handles, texts, **{"handlelength": 2.6, **appearance, **options})
    ax.apply_aspect()
    box = ax.get_window_extent()
    room = box.width if width is None else width
    fill_legend(legend, names, room)
    if legend.get_window_extent().height > height * box.height:
        fill_legend(legend, names, room, lines=1)
    tall = legend.get_window_extent().height / (height * box.height)
    if tall > 1:
        for text in legend.get_texts():
            text.set_fontsize(max(float(text.get_fontsize()) / tall, _SMALLEST))
        legend.labelspacing = 0.2
    return legend


def legend_entries(ax: Axes) -> tuple[list[Artist], list[str]]:
    """Return the artists with names, and their names, even names that begin with "_"."""
    handles, _ = ax.get_legend_handles_labels()
    hidden = [line for line in ax.lines if line.get_gid() == _GROUP and line not in handles]
    known = [line for line in hidden if not _UNNAMED.fullmatch(str(line.get_label()))]
    lines = [line for line in ax.lines if line in [*handles, *known]]
    handles = [*lines, *(handle for handle in handles if handle not in lines)]
    return handles, [str(handle.get_label()) for handle in handles]


def fill_legend(legend: Legend, names: Sequence[str], width: float, lines: int = 3) -> None:
    """Write names beside the keys of a legend; an entry may have ``width`` pixels."""
    texts = legend.get_texts()
    size = float(texts[0].get_fontsize()) * root_figure(legend).dpi / 72
    keys = (
        legend.handlelength + legend.handletextpad + 2 * legend.borderpad + 2 * legend.borderaxespad
    )
    for text, name in zip(texts, names, strict=True):
        write(text, name, width - keys * size, lines)


def write(text: Text, name: str, width: float | None = None, lines: int = 3) -> None:
    """Write a name literally, wrapped and abbreviated to ``width`` pixels and ``lines`` lines.

    Dollar signs do not start formulas, and letters that the font lacks are taken from other fonts.
    """
    literal(text, name)
    if width is None:
        return

    def too_wide(shown: str) -> float:
        text.set_text(shown)
        box = text.get_window_extent()
        return (box.height if text.get_rotation() == 90 else box.width) / max(width, 1.0)

    if lines == 1:
        name = " ".join(name.split("\n"))
    shown, letters = name, max(map(len, name.split("\n")))
    while (excess := too_wide(shown)) > 1 and letters > 1:
        letters = max(1, min(letters - 1, int(letters / excess)))
        parts = (wrap(part, letters) or [""] for part in name.split("\n"))
        shown = _cut([line for part in parts for line in part], lines, letters)
    text.set_text(_cut(shown.split("\n"), max(lines, name.count("\n") + 1), letters))


def _cut(lines: Sequence[str], max_lines: int, letters: int) -> str:
    """Limit the number of lines; if there are more, dots replace the middle of the rest."""
    if len(lines) > max_lines:
        end = "".join(lines[max_lines - 1 :])
        first, last = letters // 3, letters - 1 - letters // 3
        lines = [*lines[: max_lines - 1], f"{end[:first]}…{end[len(end) - last :]}"]
    return "\n".join(lines)


def literal(text: Text, name: str) -> None:
    """Make a text show a name literally, in fonts that have its letters."""
    text.set_text(name)
    text.set(**literal_options(name, text.get_fontfamily()))


def literal_options(name: str, family: Sequence[str] | None = None) -> _TextOptions:
    """Return options of a text that show a name literally."""
    import matplotlib

    given = matplotlib.rcParams["font.family"] if family is None else family
    families = [given] if isinstance(given, str) else list(given)
    others = _fonts_with(frozenset(name) - {"\n"}, tuple(families))
    options: _TextOptions = {"parse_math": False}
    if others:
        options["fontfamily"] = [*families, *others]
    return options


@lru_cache(maxsize=256)
def _fonts_with(letters: frozenset[str], families: tuple[str, ...]) -> list[str]:
    """Return font families with the letters that ``families`` lack; the last has placeholders."""
    from matplotlib import font_manager
    from matplotlib.font_manager import FontProperties

    def lacking(missing: set[int], path: str) -> set[int]:
        return missing - font_manager.get_font(path).get_charmap().keys()

    missing = {ord(letter) for letter in letters}
    for family in families:
        missing = lacking(missing, font_manager.findfont(FontProperties(family=[family])))
    fallbacks: list[str] = []
    if not missing:
        return fallbacks
    entries = font_manager.fontManager.ttflist
    for entry in entries:
        if entry.name == _LAST_RESORT or not missing:
            continue
        try:
            rest = lacking(missing, entry.fname)
        except (OSError, RuntimeError):  # no font after all
            continue
        if rest != missing:
            missing = rest
            fallbacks.append(entry.name)
    if missing and any(entry.name == _LAST_RESORT for entry in entries):
        fallbacks.append(_LAST_RESORT)
    return fallbacks
