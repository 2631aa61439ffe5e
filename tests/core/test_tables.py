"""HTML tables: what is a heading, and which style."""

from bayescal._core.tables import TextTable, html_table


def test_table_of_facts() -> None:
    assert html_table([("a<b", 1)], caption="Facts & more") == (
        "<table><caption>Facts &amp; more</caption><tbody>"
        "<tr><th scope=\"row\" style='text-align:left'>a&lt;b</th>"
        "<td style='text-align:left'>1</td></tr></tbody></table>"
    )


def test_names_of_rows_and_columns_are_headings() -> None:
    assert html_table([("a", 1)], ["<x>", "y"]) == (
        "<table><thead><tr><th scope=\"col\" style='text-align:left'>&lt;x&gt;</th>"
        "<th scope=\"col\" style='text-align:right'>y</th></tr></thead><tbody>"
        "<tr><th scope=\"row\" style='text-align:left'>a</th>"
        "<td style='text-align:right'>1</td></tr></tbody></table>"
    )


def test_figures_are_on_the_right() -> None:
    shown = TextTable("T", ["name", "n"], [["a", "1"]], "c < d").for_notebook()
    assert "<td style='text-align:right'>1</td>" in shown and shown.endswith("<p>c &lt; d</p>")
