"""Conversion of Matplotlib figures to SVG within HTML, with the colors of the page's theme."""

from __future__ import annotations

import contextlib
import html
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from bayescal.plots.style import COLORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_POINT = re.compile(r"([ML]) (\S+) (\S+)\s*")
_LINK = re.compile(r"url\(#([^)]+)\)")
_SIZE = re.compile(r"([\d.]+)px")
_DROPPED = "metadata", "style"
#: Number of points of a path above which it is thinned, and the distance of the remaining points in
#: points of 1/72 inch: finer than a screen shows.
_MANY_POINTS, _NEAR = 300, 0.2


@contextlib.contextmanager
def plain_style() -> Iterator[None]:
    """Draw with Matplotlib's defaults, whatever the user's settings are, and keep text as text."""
    import matplotlib.style

    options = {"svg.fonttype": "none", "svg.hashsalt": "bayescal", "font.size": 10}
    with matplotlib.style.context(["default", options]):
        yield


def to_svg(figure: Figure, description: str, prefix: str, series: int = 0) -> str:
    """Convert a figure to an SVG element, with a description for readers who cannot see it.

    The prefix makes the names of its parts unique within the page; the series is the index of the
    figure's first color among the page's colors.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)  # type: ignore[attr-defined]
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    # Matplotlib has just written this text, in which names are escaped.
    root = ElementTree.fromstring(stream.getvalue())  # nosec B314
    box = root.attrib["viewBox"]
    used = _used(root)
    inner = "".join(_write(child, prefix, series, used) for child in root)
    return (
        f'<svg class="plot" role="img" viewBox="{box}" aria-label="{html.escape(description)}">'
        f"{inner}</svg>"
    )


def theme_color(color: str, series: int = 0) -> str:
    """Return the theme's name of a color given in hex."""
    if color.upper() in COLORS[:-1]:
        return f"var(--series-{(COLORS.index(color.upper()) + series) % len(COLORS)})"
    shade = color[1:3]
    if color != f"#{3 * shade}":
        return color
    return {"00": "currentColor", "ff": "var(--surface)"}.get(shade, "var(--muted)")


def _used(root: ElementTree.Element) -> set[str]:
    """Return the names of parts that are referred to."""
    names = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            names |= set(_LINK.findall(value))
            if key.endswith("href"):
                names.add(value.removeprefix("#"))
    return names


def _write(element: ElementTree.Element, prefix: str, series: int, used: set[str]) -> str:
    """Convert an element and its content to text."""
    tag = element.tag.split("}")[1]
    if tag in _DROPPED:
        return ""
    inner = "".join(_write(child, prefix, series, used) for child in element)
    if tag == "text":
        inner = html.escape(element.text or "") + inner
    attributes = "".join(
        f' {key}="{html.escape(value)}"'
        for key, value in _attributes(element, prefix, series, used)
        if value
    )
    if tag in ("g", "defs") and not inner:
        return ""
    if tag == "g" and not attributes:
        return inner
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"


def _attributes(
    element: ElementTree.Element, prefix: str, series: int, used: set[str]
) -> Iterator[tuple[str, str]]:
    for name, value in element.attrib.items():
        key = name.split("}")[-1]
        if key == "id":
            yield key, f"{prefix}-{value}" if value in used else ""
        elif key == "href":
            yield key, f"#{prefix}-{value.removeprefix('#')}"
        elif key == "style":
            yield key, "; ".join(_declarations(value, series))
        elif key == "d":
            yield key, _NUMBER.sub(_shorten, _thin(value))
        elif key == "transform" and value.startswith("rotate(-0 "):
            yield key, ""
        else:
            yield key, _NUMBER.sub(_shorten, _LINK.sub(rf"url(#{prefix}-\1)", value))


def _declarations(style: str, series: int) -> Iterator[str]:
    """Yield the declarations of a style, with the page's colors and without font names."""
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font" and (size := _SIZE.search(value)):
            yield f"font-size: {size[1]}px"
        elif key and key not in ("font", "font-family"):
            yield f"{key}: {theme_color(value, series) if value.startswith('#') else value}"


def _thin(path: str) -> str:
    """Remove points of a path of lines that cannot be distinguished from the previous one."""
    if path.count("L") <= _MANY_POINTS or path.count("M") > 1 or "C" in path or "Q" in path:
        return " ".join(path.split())
    kept: list[str] = []
    last, skipped = (float("inf"), 0.0), ""
    for letter, x, y in _POINT.findall(path):
        point = (float(x), float(y))
        if abs(point[0] - last[0]) + abs(point[1] - last[1]) >= _NEAR:
            kept.append(f"{letter} {x} {y}")
            last, skipped = point, ""
        else:
            skipped = f"{letter} {x} {y}"
    # Keep the last point.
    end = "z" if path.rstrip().endswith("z") else ""
    return " ".join(part for part in (*kept, skipped, end) if part)


def _shorten(number: re.Match[str]) -> str:
    """Round a number to a hundredth of a point."""
    short = f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if short in ("-0", "") else short
