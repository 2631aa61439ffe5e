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


def section(heading: str, *parts: str) -> Html:
    """Return a section of the page."""
    return Html(f"<section><h2>{markup(heading)}</h2>{''.join(map(markup, parts))}</section>")


def paragraph(value: str) -> Html:
    """Return a paragraph."""
    return Html(f"<p>{markup(value)}</p>")


def heading(value: str) -> Html:
    """Return a heading within a section."""
    return Html(f"<h3>{markup(value)}</h3>")


def number(value: float, form: str = ".4f") -> str:
    """Return a number with a true minus sign, and without one where it is rounded to zero."""
    shown = format(value, form)
    if float(shown.replace(",", "")) == 0:
        shown = shown.lstrip("-+")
    return shown.replace("-", "\N{MINUS SIGN}")


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table that scrolls within itself; the first cell of a row is its heading."""
    return Html(
        f'<p class="caption">{markup(caption)}</p>'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"{html_table(rows, heads, label=caption)}</div>"
    )


def terms(pairs: Mapping[str, str], kind: str = "") -> Html:
    """Return a list of terms and what is to be said of each."""
    items = "".join(
        f"<dt>{markup(key)}</dt><dd>{markup(value)}</dd>" for key, value in pairs.items()
    )
    return Html(f'<dl class="{kind}">{items}</dl>' if kind else f"<dl>{items}</dl>")


def items(values: Iterable[str], kind: str = "") -> Html:
    """Return a list."""
    inner = "".join(f"<li>{markup(value)}</li>" for value in values)
    return Html(f'<ul class="{kind}">{inner}</ul>' if kind else f"<ul>{inner}</ul>")


def details(summary: str, inner: Html) -> Html:
    """Return what is shown only when asked for."""
    return Html(f"<details><summary>{markup(summary)}</summary>{inner}</details>")


def figure(picture: Picture, kind: str = "") -> Html:
    """Return a figure with its heading and caption."""
    head = f'<p class="name">{markup(picture.heading)}</p>' if picture.heading else ""
    opened = f'<figure class="{kind}">' if kind else "<figure>"
    return Html(
        f"{opened}{head}{picture.svg}<figcaption>{markup(picture.caption)}</figcaption></figure>"
    )


def group(kind: str, parts: Iterable[str]) -> Html:
    """Return parts in a box of that class."""
    opened = f'<div class="{kind}">' if kind else "<div>"
    return Html(f"{opened}{''.join(parts)}</div>")
