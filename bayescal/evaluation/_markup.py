"""Pieces of HTML; everything that is not markup made here is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from bayescal._core.tables import Html, html_table, markup


class Picture(NamedTuple):
    """A figure as SVG, a heading and a caption, both plain text."""

    svg: str
    heading: str
    caption: str


def element(tag: str, inner: str, css_class: str = "") -> Html:
    """Return an element around what is markup already."""
    attribute = f' class="{css_class}"' if css_class else ""
    return Html(f"<{tag}{attribute}>{inner}</{tag}>")


def section(title: str, *parts: str) -> Html:
    """Return a section of the page."""
    return element("section", f"<h2>{markup(title)}</h2>{''.join(map(markup, parts))}")


def paragraph(value: str, css_class: str = "") -> Html:
    """Return a paragraph."""
    return element("p", markup(value), css_class)


def heading(value: str) -> Html:
    """Return a heading within a section."""
    return element("h3", markup(value))


def number(value: float, form: str = ".4f") -> str:
    """Return a number with a true minus sign, and without one where it is rounded to zero."""
    shown = format(value, form)
    if float(shown.replace(",", "")) == 0:
        shown = shown.lstrip("-+")
    return shown.replace("-", "\N{MINUS SIGN}")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table that scrolls within itself; the first cell of a row is its heading."""
    return Html(
        f"{paragraph(caption, 'caption')}"
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"{html_table(rows, heads, label=caption)}</div>"
    )


def terms(pairs: Mapping[str, str], css_class: str = "") -> Html:
    """Return a list of terms and what is to be said of each."""
    inner = (element("dt", markup(key)) + element("dd", markup(pairs[key])) for key in pairs)
    return element("dl", "".join(inner), css_class)


def items(values: Iterable[str], css_class: str = "") -> Html:
    """Return a list."""
    return element("ul", "".join(element("li", markup(value)) for value in values), css_class)


def details(summary: str, inner: Html) -> Html:
    """Return what is shown only when asked for."""
    return element("details", element("summary", markup(summary)) + inner)


def figure(picture: Picture, css_class: str = "") -> Html:
    """Return a figure with its heading and caption."""
    head = paragraph(picture.heading, "name") if picture.heading else ""
    caption = element("figcaption", markup(picture.caption))
    return element("figure", f"{head}{picture.svg}{caption}", css_class)


def group(css_class: str, parts: Iterable[str]) -> Html:
    """Return parts in a box of that class."""
    return element("div", "".join(parts), css_class)
