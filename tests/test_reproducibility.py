"""Results do not depend on the number of threads or on JAX's compilation cache."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import reproducibility
from benchmarks.reproducibility import TOLERANCES, differences, run

RECORDED = Path(reproducibility.ROOT) / "benchmarks" / "results" / "reproducibility.json"


@pytest.mark.slow
def test_threads_and_cache_change_nothing(tmp_path: Path) -> None:
    """Check a small part; `benchmarks/reproducibility.py` computes everything."""
    results = [run("few", threads, str(tmp_path)) for threads in (2, 1)]
    for group, facts in differences(*results).items():
        assert facts["difference"] <= TOLERANCES[group][0], (group, facts)


def test_recorded_differences_are_within_what_is_stated() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    assert {name: tuple(t) for name, t in recorded["tolerances"].items()} == TOLERANCES
    rows = {row["variant"]: row["groups"] for row in recorded["rows"]}
    assert {"one thread", "an empty cache", "a full cache", "oldest", "newest"} <= rows.keys()
    for variant, groups in rows.items():
        assert groups.keys() == TOLERANCES.keys()
        for group, facts in groups.items():
            tolerance = TOLERANCES[group][variant in ("oldest", "newest")]
            assert tolerance is None or facts["difference"] <= tolerance, (variant, group)


def test_differences_are_the_largest() -> None:
    one: Any = {"results": {"a": {"x": [1.0, 2.0, math.nan], "y": [math.inf]}}}
    other: Any = {"results": {"a": {"x": [1.0, 2.5, math.nan], "y": [math.inf]}}}
    assert differences(one, one)["a"]["difference"] == 0
    assert differences(one, other)["a"] == {"difference": 0.5, "of": "x", "results": 2}
    # A number and a missing value count as infinitely far apart.
    other["results"]["a"]["y"] = [math.nan]
    assert differences(one, other)["a"]["of"] == "y"
