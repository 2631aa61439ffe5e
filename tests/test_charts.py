"""Charts of the benchmarks match the result files."""

import re
from pathlib import Path

import pytest

from benchmarks.charts import CHARTS, digest
from benchmarks.figures import in_units
from benchmarks.update_readme import fresh

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"


@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_of_the_results(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text("utf-8")
    advice = "run python docs/make_pictures.py --charts"
    assert f"numbers {digest(CHARTS[name][1]())}" in text, advice
    for row in (row for rows in CHARTS[name][1]().values() for row in rows):
        assert f">{row}</text>" in text


def test_numbers_are_those_of_the_tables() -> None:
    differences = CHARTS["accuracy"][1]()["held-out experiments"]
    shown = [
        in_units({"difference": difference, "error": error})
        for opponents in differences.values()
        for difference, error in opponents.values()
    ]
    assert re.findall(r"\| (-?\d+ ± \d+) \| -?\d+ ± \d+ \|", fresh()) == shown
