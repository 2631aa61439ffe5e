"""Each result file states its origin, and is not much older than the code that it measures."""

import json
import shlex
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import bayescal
from benchmarks import provenance

FILES = sorted(provenance.RESULTS.glob("*.json"))
RUN = {
    "commit": "0123456789",
    "versions": {"bayescal": "0.1.0"},
    "machine": "x86_64, 2 cores, Linux",
    "command": "python benchmarks/bench_metrics.py",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_results_say_where_they_come_from(path: Path) -> None:
    results = json.loads(path.read_text("utf-8"))
    assert provenance.problems(results, bayescal.__version__) == []
    # The script still exists.
    words = shlex.split(results["provenance"]["command"])
    script = Path(words[1]) if words[1] != "-m" else Path(words[2].replace(".", "/"))
    assert [p for p in (script, script.with_suffix(".py")) if (provenance.ROOT / p).exists()]


def test_old_files_without_all_facts_do_not_become_more() -> None:
    """Check that only old files lack facts; before, commits were read from the history."""
    results = {path.stem: json.loads(path.read_text("utf-8"))["provenance"] for path in FILES}
    old = {name for name, facts in results.items() if "commit_is" in facts}
    assert {name for name, facts in results.items() if "not_recorded" in facts} <= old
    assert len(old) <= 4


@pytest.mark.parametrize("name", provenance.FIELDS)
def test_a_missing_fact_is_a_problem(name: str) -> None:
    run: dict[str, Any] = {k: v for k, v in RUN.items() if k != name}
    assert f"no {name}" in provenance.problems({"provenance": run}, "0.1.0")
    assert provenance.problems({"provenance": {**RUN, name: None}}, "0.1.0")
    assert provenance.problems({"rows": []}, "0.1.0") == ["no provenance"]
    assert provenance.problems([], "0.1.0") == ["no provenance"]


@pytest.mark.parametrize(
    ("measured", "current", "old"),
    [
        ("0.1.0", "0.1.3", False),
        ("0.1.0", "0.2.0", False),
        ("0.1.9", "0.3.0", True),
        ("0.9.0", "1.0.0", True),
        ("0.9.0", "0.10.0", False),
    ],
)
def test_results_more_than_a_minor_version_behind_are_a_problem(
    measured: str, current: str, old: bool
) -> None:
    run: dict[str, Any] = deepcopy(RUN) | {"versions": {"bayescal": measured}}
    assert bool(provenance.problems({"provenance": run}, current)) == old
    # A file that keeps rows of an earlier run is as old as these rows.
    new = RUN | {"versions": {"bayescal": current}, "earlier": [run]}
    assert bool(provenance.problems({"provenance": new}, current)) == old


def test_written_results_have_a_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "result.json"
    monkeypatch.setattr(sys, "argv", ["bench.py", "--json", str(path), "--part", "two words"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    provenance.write(path, {**provenance.read(path), "a": 1})
    first = provenance.read(path)
    assert first["a"] == 1 and provenance.problems(first, bayescal.__version__) == []
    assert first["provenance"]["command"] == f"python bench.py --json {path} --part 'two words'"
    assert first["provenance"]["versions"]["bayescal"] == bayescal.__version__
    monkeypatch.setattr(sys, "argv", ["bench.py"])
    provenance.write(path, {**provenance.read(path), "b": 2})
    second = provenance.read(path)
    assert second["provenance"]["earlier"] == [first["provenance"]]
    assert (second["a"], second["b"]) == (1, 2)
