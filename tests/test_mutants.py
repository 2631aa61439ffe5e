"""The mutation script: what it changes, and which tests it runs."""

import ast
import contextlib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import mutants

SOURCE = '''
"""Module 1."""

LIMIT = 7


def f(x: int = 3, *, y: "1 < 2" = 0) -> float:
    """Return 5 < 6."""
    if not x < 2 and y == 1:
        raise ValueError(f"{x + 1}" + "a")
    total = -x + 2.0
    total *= 3
    print(total)
    return total
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return path


def test_changes_of_a_function(module: Path) -> None:
    result = sorted((m.line, m.change) for m in mutants.mutants_of(module))
    condition = ["Lt -> LtE", "Eq -> NotEq", "And -> Or", "2 -> 3", "1 -> 2"]
    condition += ["drop Not", "negate the condition"]
    assert [change for line, change in result if line == 9] == sorted(condition)
    assert [change for line, change in result if line == 11] == sorted(
        ["Add -> Sub", "drop the second term", "drop USub", "2.0 -> 4.0"]
    )
    assert {line for line, _ in result} == {9, 11, 12, 13}


def test_mutants_compute_something_else(module: Path) -> None:
    values = {}
    for mutant in mutants.mutants_of(module):
        names: dict[str, Any] = {}
        exec(mutants.compiled(mutant), names)
        with contextlib.suppress(ValueError):
            values[mutant.line, mutant.change] = names["f"](5)
    names = {}
    exec(compile(ast.parse(SOURCE), "module", "exec"), names)
    assert names["f"](5) == -9
    assert values[11, "Add -> Sub"] == -21
    assert values[11, "drop the second term"] == -15
    assert values[12, "drop the statement"] == -3
    assert values[12, "3 -> 4"] == -12
    assert (9, "And -> Or") not in values
    assert values[9, "Lt -> LtE"] == values[13, "drop the statement"] == -9


def test_a_docstring_is_no_code(module: Path) -> None:
    before = mutants.digest("module.py"), [m.name for m in mutants.mutants_of(module)]
    module.write_text(SOURCE.replace("Return 5 < 6.", "Compute.\n\n    In two lines.\n    # Why"))
    assert before == (mutants.digest("module.py"), [m.name for m in mutants.mutants_of(module)])
    module.write_text(SOURCE.replace("total *= 3", "total *= 4"))
    assert mutants.digest("module.py") != before[0]


def test_draws_are_nested_and_have_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "FOLDERS", ("regression",))
    first, more = mutants.draw(5, 0), mutants.draw(9, 0)
    assert more[:5] == first and mutants.draw(5, 1) != first
    for mutant in first:
        assert mutants.compiled(mutant)
        tests = mutants.tests_of(mutant.path)
        assert len(tests) >= 2 and all((mutants.ROOT / name).exists() for name in tests)
