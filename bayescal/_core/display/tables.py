"""Tables of text, for terminals and for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category

if TYPE_CHECKING:
    from rich.table import Table

#: Largest number of characters of a name in a table.
_MAX_NAME = 80


def printable(text: str) -> str:
    """Escape characters that control a terminal, except for line ends."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else repr(c)[1:-1] for c in text
    )


def shorten(text: str, length: int = 40) -> str:
    """Shorten a text to ``length`` characters by replacing its middle."""
    if len(text) <= length:
        return text
    end = length // 4
    return f"{text[: length - end - 3]}...{text[-end:]}"


def html_table(
    rows: Iterable[Sequence[object]], heads: Sequence[object] = (), caption: object = ""
) -> str:
    """Make an HTML table whose first column names the rows; names are escaped.

    The first column is left-aligned, and all others right-aligned if the table has headings.
    """

    def line(cells: Sequence[object], tags: Sequence[str]) -> str:
        inner = (
            f"<{tag} style='text-align:{'right' if index and heads else 'left'}'>"
            f"{escape(str(value))}</{tag[:2]}>"
            for index, (value, tag) in enumerate(zip(cells, tags, strict=True))
        )
        return f"<tr>{''.join(inner)}</tr>"

    column, row = 'th scope="col"', 'th scope="row"'
    body = "".join(line(cells, [row, *["td"] * (len(cells) - 1)]) for cells in rows)
    head = f"<thead>{line(heads, [column] * len(heads))}</thead>" if heads else ""
    title = f"<caption>{escape(str(caption))}</caption>" if caption else ""
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


def p_value(value: float | None) -> str:
    """Format a p-value for tables."""
    if value is None:
        return "–"
    return "< .001" if value < 0.001 else f"{value:.3f}".lstrip("0")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table in Markdown; the first column is left-aligned, and all others right-aligned."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(printable(cell).replace('|', chr(92) + '|') for cell in cells)} |"

    rule = f"|---|{'---:|' * (len(heads) - 1)}"
    return "\n".join([line(heads), rule, *map(line, rows)])


class TextTable(NamedTuple):
    """A title, headings, rows of cells and a caption; all columns but the first are figures."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    caption: str

    def __str__(self) -> str:
        return self.for_print(100)

    def for_terminal(self) -> Table:
        """Make a rich Table, in which names cannot control the terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title), caption=Text(self.caption), caption_justify="left")
        for index, head in enumerate(self.heads):
            table.add_column(
                Text(shorten(printable(head), _MAX_NAME)),
                justify="right" if index else "left",
                overflow="ellipsis" if index else "fold",
            )
        for cells in self.rows:
            table.add_row(*(Text(printable(cell)) for cell in cells))
        return table

    def to_markdown(self) -> str:
        """Make a table in Markdown, between title and caption."""
        table = markdown_table(self.heads, ([c.replace("\n", " ") for c in r] for r in self.rows))
        return f"**{printable(self.title)}**\n\n{table}\n\n{self.caption}\n"

    def for_print(self, width: int) -> str:
        """Make plain text of at most ``width`` columns."""
        from rich.console import Console

        console = Console(width=width, color_system=None)
        with console.capture() as capture:
            console.print(self.for_terminal())
        return capture.get().rstrip()

    def for_notebook(self) -> str:
        """Make HTML, in which names are escaped."""
        table = html_table(self.rows, self.heads, self.title)
        return f"{table}<p>{escape(self.caption)}</p>"
