"""The synthetic study: output files, resumed runs, and bounds on its results."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayescal._core.random.keys import as_key
from bayescal.sweeps import _block, _run
from benchmarks.studies import synthetic
from benchmarks.studies._published_synthetic import TABLE_6, impossible
from benchmarks.studies._synthetic_cells import (
    INFORMED,
    METHODS,
    OPTIMAL,
    TEN,
    UNINFORMED,
    configurations,
)
from benchmarks.studies._synthetic_conclusions import CLAIMS, conclude
from benchmarks.studies._synthetic_statistics import describe, rank, rankings

RECORDED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "study_synthetic.json"
QUICK = ("normal", "platt", "cauchy_map", "optimal")
SMALL: dict[str, Any] = {"datasets": 6, "n_test": 200}


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_block, "SIZE", 8)
        patch.setattr(_run, "SIZE", 8)
        yield


@pytest.fixture(scope="module")
def done(small_blocks: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, list]:
    """Return the folder of a small run, its return value, and its progress calls."""
    calls: list[tuple[str, int, int]] = []
    out = tmp_path_factory.mktemp("study") / "new" / "out"
    show = lambda *facts: calls.append(facts)  # noqa: E731
    result = synthetic.run(
        out, questions=[1], methods=QUICK, about={"a": "1"}, progress=show, **SMALL
    )
    return out, result, calls


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def draw_values(seed: int = 0, count: int = 40) -> tuple[list, dict, dict]:
    """Return all configurations with plausible random values, and their status."""
    rng = np.random.default_rng(seed)
    chosen = configurations((1, 2, 3), 100)
    values = {
        configuration.name: {m: np.abs(rng.normal(0.5, 0.1, (count, 2))) for m in METHODS}
        for configuration in chosen
    }
    status = {
        configuration.name: {m: np.zeros(count, np.int8) for m in METHODS}
        for configuration in chosen
    }
    return chosen, values, status


def test_configurations_are_those_of_the_tables() -> None:
    chosen = configurations((1, 2, 3), 100)
    assert [configuration.name for configuration in chosen] == [
        *(f"1{letter}" for letter in "abcde"),
        *(f"{q}{letter}" for q in (2, 3) for letter in "abcdef"),
    ]
    sizes = {
        configuration.name: (configuration.cell.n_train, configuration.cell.class_ratio)
        for configuration in chosen
    }
    assert [sizes[f"2{x}"][0] for x in "abcdef"] == [50, 100, 500] * 2
    assert [sizes[f"3{x}"] for x in "abcdef"] == [(100, 0.5), (100, 0.7), (100, 0.9)] * 2
    assert {sizes[f"1{x}"] for x in "abcde"} == {(50, 0.5)}
    assert len({configuration.data for configuration in chosen}) == 13
    moved = next(configuration for configuration in chosen if configuration.name == "2c").cell.prior
    assert (float(moved.values["mu1"].low), float(moved.values["mu1"].high)) == (1.0, 3.5)


@pytest.mark.slow
def test_run_writes_what_it_says(done: tuple[Path, dict, list]) -> None:
    out, result, calls = done
    assert calls[-1][1:] == (5, 5)
    assert sorted(os.listdir(out)) == [
        *("figure_22.svg", "parts", "synthetic.csv", "synthetic.json"),
        *("synthetic_pairs.csv", "synthetic_values.csv"),
    ]
    assert json.loads((out / "synthetic.json").read_text()) == result
    assert result["about"] == {"a": "1"}
    single = rows_of(out / "synthetic_values.csv")
    assert len(single) == 5 * len(QUICK) * 6
    for row in rows_of(out / "synthetic.csv"):
        some = [
            float(record[row["metric"]])
            for record in single
            if (record["configuration"], record["method"]) == (row["configuration"], row["method"])
        ]
        facts = result["configurations"][row["configuration"]]["metrics"][row["metric"]]
        assert float(row["mean"]) == facts[row["method"]]["mean"] == pytest.approx(np.mean(some))
        assert float(row["error"]) == pytest.approx(np.std(some, ddof=1) / math.sqrt(6))
    pairs = rows_of(out / "synthetic_pairs.csv")
    # Three of the ten methods give three pairs, in five configurations and overall, by two metrics.
    assert len([row for row in pairs if row["ranking"] == "ten"]) == 6 * 2 * 3


@pytest.mark.slow
def test_values_are_those_of_a_sweep(done: tuple[Path, dict, list]) -> None:
    import bayescal as bc
    from bayescal.datasets import synthetic as data

    sweep = bc.sweep(
        {"b": data.experiments()["b"]},
        methods=["platt", "optimal"],
        num_datasets=6,
        n_test=200,
        key=as_key(0),
        progress=False,
    )
    for metric in ("log_loss", "ece"):
        for method in ("platt", "optimal"):
            mean = float(sweep.value.sel(metric=metric).sel({"calibrator": method}).mean())
            facts = done[1]["configurations"]["1b"]["metrics"][metric][method]
            assert facts["mean"] == pytest.approx(mean)


@pytest.mark.slow
def test_equal_configurations_share_their_data(tmp_path: Path) -> None:
    result = synthetic.run(tmp_path, questions=[1, 2], methods=["platt"], datasets=2, n_test=200)
    same = {name: facts["data_of"] for name, facts in result["configurations"].items()}
    assert {name: first for name, first in same.items() if name != first} == {
        "2a": "1b",
        "2d": "1d",
    }
    for name, first in same.items():
        facts = result["configurations"]
        assert facts[name]["metrics"] == facts[first]["metrics"]
    # A single method allows no ranks or claims.
    assert result["pictures"] == result["conclusions"] == []


@pytest.mark.slow
def test_published_figures_and_the_impossible_ones() -> None:
    for table in TABLE_6.values():
        assert list(table) == list("abcde")
        assert all(set(methods) == set(TEN) for methods in table.values())
    assert TABLE_6["log_loss"]["b"]["preds"] == (0.1846, 0.1616)
    assert TABLE_6["ece"]["e"]["cauchy_map"] == (0.5272, 0.0026)
    infinite = {m for m, entry in TABLE_6["log_loss"]["e"].items() if math.isinf(entry.mean)}
    assert infinite == {"L2", "normal", "smoothed"}
    chosen, values, status = draw_values()
    facts = describe(chosen, values, status)
    marked = {
        (name, method)
        for name, configuration in facts.items()
        for method, known in configuration["published"]["log_loss"].items()
        if known["impossible"]
    }
    assert marked == {("1b", "preds"), ("1d", "preds")}
    assert not any(
        configuration["published"]["log_loss"] for n, configuration in facts.items() if n[0] != "1"
    )
    # Chance may move a mean below the floor, but not far.
    assert not impossible(0.28, 0.2829, 0.18)
    assert impossible(0.25, 0.2829, 0.18)


def test_ranks_and_groups() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(60)
    values = {
        "platt": np.stack([base, base], axis=1),
        "ibls": np.stack([base - 0.01, base + 0.01], axis=1),
        "normal": np.stack([base + rng.normal(0, 0.1, 60), base], axis=1),
    }
    by_loss, by_ece = (rank(values, TEN, metric) for metric in ("log_loss", "ece"))
    assert by_loss is not None and by_ece is not None
    assert by_loss.beats("ibls", "platt") and not by_loss.beats("platt", "ibls")
    assert by_ece.beats("platt", "ibls")
    assert list(by_loss.ranks) == sorted(by_loss.ranks)
    assert by_loss.ranks.sum() == pytest.approx(6)
    assert [set(group) for group in by_ece.summary()["groups"]] == [{"platt", "normal"}]
    assert rank(values, ["preds"], "ece") is None


@pytest.mark.slow
def test_conclusions_follow_the_figures() -> None:
    chosen, values, status = draw_values(count=60)
    order = [*INFORMED, "ibls", "platt", "smoothed", "L1", "L2", "cauchy_map", "normal"]
    for losses in values.values():
        for index, method in enumerate(order):
            losses[method] = losses["preds"] + 0.0001 * index
    result = {
        c["claim"]: c for c in conclude(describe(chosen, values, status), rankings(chosen, values))
    }
    assert len(result) == len(CLAIMS)
    for claim in ("preds ranks first, before every other", "ibls beats platt"):
        assert result[claim]["verdict"] == "holds"
    assert result["preds, coeffs and map beat all uninformed methods"]["of"] == 34
    assert result["normal is the worst uninformed in 1d and 1e"]["verdict"] == "holds"
    for claim in ("normal is the best uninformed in 1c", "cauchy_map has the highest mean"):
        assert result[claim]["verdict"] == "fails"
    values["1a"]["ibls"] = values["1a"]["platt"] + 0.001
    result = {
        c["claim"]: c for c in conclude(describe(chosen, values, status), rankings(chosen, values))
    }
    assert result["ibls beats platt"]["verdict"] == "in part"
    failed = [c for c in result["ibls beats platt"]["checks"] if not c["holds"]]
    assert [c["where"] for c in failed] == ["1a log loss", "1a ECE"]


@pytest.mark.slow
def test_pictures_name_methods_and_configurations(done: tuple[Path, dict, list]) -> None:
    text = (done[0] / "figure_22.svg").read_text()
    words = " ".join(re.findall(r">([^<>]+)<", text))
    assert words.count("cauchy_map") == (5 + 2) * 2
    assert "(e) B(2, 5), B(5, 2) + 5; n = 50, 0.5 of class 1: ECE" in words
    assert text.count("<path") > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"questions": [4]}, "questions must be among 1, 2 and 3"),
        ({"questions": []}, "questions must be among"),
        ({"methods": ["magic"]}, "methods must be among normal"),
        ({"methods": []}, "methods must be among"),
        ({"datasets": 1}, "at least 2"),
        ({"n_test": 1}, "at least 2"),
        ({"datasets": 0}, "datasets must be"),
    ],
)
def test_wrong_arguments_are_said(tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synthetic.run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_recorded_figures() -> None:
    """Check the recorded study: losses respect the floor, and informed methods come near it."""
    result = json.loads(RECORDED.read_text())
    assert result["datasets"] >= 100
    for name, facts in result["configurations"].items():
        losses = facts["metrics"]["log_loss"]
        best = losses[OPTIMAL]
        assert abs(best["mean"] - facts["floor"]) <= 4 * best["error"], name
        assert all(losses[m]["mean"] > best["mean"] for m in METHODS if m != OPTIMAL)
        assert min(UNINFORMED, key=lambda m: losses[m]["mean"]) not in ("normal",)
        for method in INFORMED:
            assert losses[method]["mean"] - best["mean"] < 0.01
