"""Tables of text, for terminals and for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table


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

        def line(cells: list[str], tag: str) -> str:
            sides = ["left", *["right"] * (len(cells) - 1)]
            inner = "".join(
                f"<{tag} style='text-align:{side}'>{html.escape(cell)}</{tag}>"
                for cell, side in zip(cells, sides, strict=True)
            )
            return f"<tr>{inner}</tr>"

        body = "".join(line(cells, "td") for cells in self.rows)
        return (
            f"<table><caption>{html.escape(self.title)}</caption>"
            f"<thead>{line(self.heads, 'th')}</thead><tbody>{body}</tbody></table>"
            f"<p>{html.escape(self.caption)}</p>"
        )
