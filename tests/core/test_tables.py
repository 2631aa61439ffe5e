"""HTML tables: what is markup, what is a heading, and which style."""

from bayescal._core.tables import Html, TextTable, html_table


def test_table_of_facts() -> None:
    assert html_table([("a<b", 1)], caption="Facts & more") == (
        "<table><caption>Facts &amp; more</caption><tbody>"
        "<tr><th scope=\"row\" style='text-align:left'>a&lt;b</th>"
        "<td style='text-align:left'>1</td></tr></tbody></table>"
    )


def test_table_of_a_page_has_a_label_and_no_style() -> None:
    assert html_table([("a", Html("<i>1</i>"))], ["x", "y"], label='"L"') == (
        '<table aria-label="&quot;L&quot;"><thead><tr><th scope="col">x</th>'
        '<th scope="col">y</th></tr></thead><tbody><tr><th scope="row">a</th>'
        "<td><i>1</i></td></tr></tbody></table>"
    )


def test_figures_are_on_the_right() -> None:
    shown = TextTable("T", ["name", "n"], [["a", "1"]], "c < d").for_notebook()
    assert "<td style='text-align:right'>1</td>" in shown and shown.endswith("<p>c &lt; d</p>")
