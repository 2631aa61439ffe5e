"""Known truth: output files, resumed runs, and the best methods."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from bayescal.datasets.simplex import sample
from benchmarks.studies import simplex

RECORDED = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "study_simplex.json"
QUICK = ("uncalibrated", "temperature", "dirichlet")
SMALL: dict[str, Any] = {"calibration_rows": 300, "test_rows": 2000}


@pytest.mark.slow
def test_run_writes_rows_and_what_they_say(tmp_path: Path) -> None:
    calls = []
    out = tmp_path / "new" / "out"
    summary = simplex.run(
        out,
        maps=QUICK,
        datasets=2,
        about={"a": "1"},
        progress=lambda *facts: calls.append(facts),
        **SMALL,
    )
    assert calls[0] == ("uncalibrated", 0, 6)
    assert calls[-1] == ("", 6, 6)
    assert sorted(os.listdir(out)) == ["parts", "simplex.csv", "simplex.json"]
    assert json.loads((out / "simplex.json").read_text()) == summary
    assert list(summary["maps"]) == [*QUICK, simplex.TRUTH]
    with (out / "simplex.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 7
    for name in QUICK:
        for key in simplex.METRICS:
            values = [float(row[key]) for row in rows if row["map"] == name]
            assert summary["maps"][name][key] == pytest.approx(np.mean(values))
            assert summary["maps"][name]["spread"][key] == [min(values), max(values)]
    spread = summary["maps"]["uncalibrated"]["spread"]["log_loss"]
    assert spread[0] == spread[1]
    truth = summary["maps"][simplex.TRUTH]
    assert truth["distance_l1"] == truth["loss_gap"] == 0
    for name in QUICK:
        for key in ("distance_l2", "log_loss", "brier_score"):
            assert summary["maps"][name][key] > truth[key]
    # Finished parts are not repeated.
    again = simplex.run(out, maps=QUICK, datasets=2, about={"a": "1"}, **SMALL)
    assert again["maps"] == summary["maps"]


def test_results_are_those_of_the_estimator(tmp_path: Path) -> None:
    result = simplex.run(tmp_path, maps=["dirichlet"], **SMALL)["maps"]["dirichlet"]
    train, test = sample(300, seed=0), sample(2000, seed=1_000_000)
    probs = bc.Dirichlet().fit(train.probs, train.y).predict_proba(test.probs)
    assert result["distance_l1"] == pytest.approx(np.abs(probs - test.truth).sum(axis=1).mean())
    expected = -(test.truth * np.log(probs)).sum(axis=1).mean()
    assert result["log_loss"] == pytest.approx(expected)


def test_without_a_wave_the_truth_is_nearly_a_dirichlet_map() -> None:
    data = simplex._sample(500, 3, 0.0)
    mass = np.array([1.0, 1.15, 0.9]) * (data.probs + 0.003) ** 0.65
    np.testing.assert_allclose(data.truth, mass / mass.sum(axis=1, keepdims=True), atol=1e-12)
    many = simplex._sample(200_000, 3, 0.0)
    share = np.bincount(many.y) / 200_000
    np.testing.assert_allclose(share, many.truth.mean(axis=0), atol=5e-3)
    # Given their true probabilities, labels are independent of predictions.
    rest = (many.y == 0) - many.truth[:, 0]
    assert abs(np.corrcoef(rest, many.probs[:, 0])[0, 1]) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table1", "wave_05"])
def test_recorded_table_is_that_of_today(name: str, tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.with_name(f"study_simplex_{name}.json").read_text())
    rows, maps = recorded["rows"]["test"], ["temperature", "dirichlet"]
    wave = recorded.get("wave", 0.15)
    result = simplex.run(tmp_path, maps=maps, datasets=2, test_rows=rows, wave=wave)["maps"]
    for method in maps:
        for key, values in result[method]["each"].items():
            assert values == pytest.approx(recorded["maps"][method]["each"][key][:2], abs=1e-5)


@pytest.mark.slow
def test_recorded_results_are_those_of_today(tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text())
    maps = recorded["maps"]
    for key in ("log_loss", "brier_score", "distance_l1", "loss_gap"):
        assert min(result[key] for result in maps.values()) == maps[simplex.TRUTH][key]
    for name in ("dirichlet", "kernel"):
        for key in simplex.METRICS:
            sign = -1 if key == "accuracy" else 1
            assert sign * maps[name][key] < sign * maps["temperature"][key]
    result = simplex.run(tmp_path, maps=["vector"], datasets=recorded["datasets"])["maps"]
    for name in ("vector", simplex.TRUTH):
        for key in simplex.METRICS:
            assert result[name][key] == pytest.approx(maps[name][key], abs=1e-5)
