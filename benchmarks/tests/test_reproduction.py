"""docs/papers/reproduction.md: its snippets give the stated output, its tables match results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers" / "reproduction.md"
#: Fewer data sets and nodes change no loss by more than 3e-6, except where one fit is unstable.
FEWER = {"datasets = 200\n": "datasets = 80\n", "hermgauss(80)": "hermgauss(40)"}


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    """Run the snippets in order, with fewer data sets and nodes."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for given, fewer in FEWER.items():
        assert given in blocks[0]
        blocks[0] = blocks[0].replace(given, fewer)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    return names["shown"]


@pytest.mark.parametrize(
    "script", [["benchmarks/update_reproduction.py"], ["-m", "benchmarks.papers"]]
)
def test_tables_are_those_of_the_results(script: list[str]) -> None:
    command = [sys.executable, *script, "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.computes
def test_no_method_reaches_two_published_entries(shown: dict[str, Any]) -> None:
    assert shown["floor"]["b"] > 0.1846 + 0.09
    assert shown["floor"]["d"] > shown["least in d"] > 0.0342 + 0.02


@pytest.mark.slow
@pytest.mark.computes
def test_the_cauchy_prior_is_no_worse_than_even_odds(shown: dict[str, Any]) -> None:
    published = {"a": 0.7238, "b": 0.7722, "c": 0.7581, "d": 0.7846, "e": 0.7679}
    assert all(shown["cauchy_map"][name] < loss - 0.04 for name, loss in published.items())
    for name, loss in shown["cauchy at one"].items():
        assert loss == pytest.approx(shown["cauchy_map"][name], abs=0.003)


@pytest.mark.slow
@pytest.mark.computes
def test_the_prior_counted_twice_costs_a_little(shown: dict[str, Any]) -> None:
    mean, error = shown["prior twice"]
    assert 2 * error < mean < 0.001
    mode, likeliest = shown["map"]
    assert mode < likeliest < 0.01


@pytest.mark.slow
@pytest.mark.computes
def test_the_average_of_models_is_not_the_optimum(shown: dict[str, Any]) -> None:
    mean, error = shown["preds - predictive"]
    assert mean > 2 * error


@pytest.mark.slow
@pytest.mark.computes
def test_ratios_of_log_densities_smooth_less(shown: dict[str, Any]) -> None:
    for name in "bd":
        losses = shown[name]
        assert losses["ibls, log densities"] < losses["ibls"] < losses["platt"]
        assert losses["platt"] < losses["platt without +2"]
    # This is closer to the published 0.1263 than with densities, as intended there.
    assert abs(shown["d"]["ibls, log densities"] - 0.1263) < abs(shown["d"]["ibls"] - 0.1263)


@pytest.mark.slow
@pytest.mark.computes
def test_stopping_early_is_a_penalty(shown: dict[str, Any]) -> None:
    losses = shown["normal"]
    assert losses[1e-2] < losses[1e-1] and losses[1e-2] < losses[1e-4]
