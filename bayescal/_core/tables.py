"""Tables of text, for terminals, for notebooks and for pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def markup(value: object) -> str:
    """Return markup as it is, and anything else escaped."""
    return value if isinstance(value, Html) else escape(str(value))


def html_table(
    rows: Iterable[Sequence[object]],
    heads: Sequence[object] = (),
    caption: object = "",
    label: str = "",
) -> Html:
    """Return a table whose first column names the rows; names are text and nothing else.

    With ``label``, which a screen reader says, a page's own style decides how it looks. Without,
    the first column is on the left, and all others on the right if the table has heads.
    """

    def cell(value: object, place: int, scope: str) -> str:
        tag, scoped = ("th", f' scope="{scope}"') if scope else ("td", "")
        side = "right" if place and heads else "left"
        style = "" if label else f" style='text-align:{side}'"
        return f"<{tag}{scoped}{style}>{markup(value)}</{tag}>"

    def line(cells: Sequence[object], scopes: Sequence[str]) -> str:
        inner = zip(cells, range(len(cells)), scopes, strict=True)
        return f"<tr>{''.join(cell(*one) for one in inner)}</tr>"

    body = "".join(line(cells, ["row", *[""] * (len(cells) - 1)]) for cells in rows)
    head = f"<thead>{line(heads, ['col'] * len(heads))}</thead>" if heads else ""
    opened = f'<table aria-label="{escape(label)}">' if label else "<table>"
    title = f"<caption>{markup(caption)}</caption>" if caption else ""
    return Html(f"{opened}{title}{head}<tbody>{body}</tbody></table>")


class TextTable(NamedTuple):
    """A title, headings, rows of cells and a caption; all but the first column are figures."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    caption: str

    def for_terminal(self) -> Table:
        """Return a rich Table."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title), caption=Text(self.caption), caption_justify="left")
        for place, head in enumerate(self.heads):
            table.add_column(
                Text(head),
                justify="right" if place else "left",
                overflow="ellipsis" if place else "fold",
            )
        for cells in self.rows:
            table.add_row(*(Text(cell) for cell in cells))
        return table

    def for_notebook(self) -> str:
        """Return HTML, in which names are text and nothing else."""
        table = html_table(self.rows, self.heads, self.title)
        return f"{table}<p>{escape(self.caption)}</p>"
