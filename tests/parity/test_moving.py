"""The table of docs/moving.md: the calls in both columns are equivalent."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

from tests.test_docs import DOCS

TEXT = (DOCS / "moving.md").read_text("utf-8")
LIBRARIES = {
    "scikit-learn": (),
    "netcal": ("netcal",),
    "betacal": ("betacal",),
    "probmetrics": ("probmetrics", "numba", "torch"),
    "torchmetrics": ("torchmetrics", "torch"),
}
#: Difference that a printed "0" allows.
ROUNDING = 1e-9


def sections() -> dict[str, str]:
    """Return the text of each section by heading, with "" for the text before the first."""
    first, *rest = re.split(r"^## (.+)\n", TEXT, flags=re.MULTILINE)
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def lines(text: str) -> list[list[str]]:
    """Return all cells of each table row but the header's."""
    result = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in result]


def test_all_sections_are_compared() -> None:
    assert list(sections())[1:] == list(LIBRARIES)
    for name in LIBRARIES:
        table = lines(sections()[name])
        assert len(table) >= 3
        assert all(len(line) == 4 for line in table), name


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.parity(*needed)) for n, needed in LIBRARIES.items()],
)
def test_both_columns_do_the_same(name: str) -> None:
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Other libraries may warn.
        for block in (*blocks(sections()[""]), blocks(sections()[name])[0]):
            exec(block, names)
        for theirs, ours, within, _ in lines(sections()[name]):
            one, other = (eval(code.strip("`"), names) for code in (theirs, ours))
            one, other = (np.asarray(value, float) for value in (one, other))
            limit = float(within) or ROUNDING
            message = f"{theirs}, {ours}"
            np.testing.assert_allclose(
                other.squeeze(),
                one.squeeze(),
                rtol=0,
                atol=limit,
                err_msg=message,
            )
            assert np.isfinite(one).all(), message
