"""HTML tables: headings and styles."""

import pytest

from bayescal._core.display.tables import TextTable, html_table, p_value


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.00099, "< .001"), (0.001, ".001"), (0.0504, ".050"), (1.0, "1.000")],
)
def test_p_values(value: float | None, text: str) -> None:
    assert p_value(value) == text
