"""Real tables: results against scikit-learn and SciPy, and runs that were killed."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.studies import _summary, real
from benchmarks.studies._binary_tables import read_table, split_rows

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("uncalibrated", "normal", "platt", "cauchy_map", "cauchy")
METRICS = ("log_loss", "brier_score", "ece", "accuracy")


def draw(seed: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw features of very different scales and noisy labels, 40 % of them 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).round(3)
    latent = x.sum(axis=1) + rng.logistic(size=n)
    return x * 10.0 ** np.arange(d), (latent > np.quantile(latent, 0.6)).astype(int)


def text_of(x: np.ndarray, y: np.ndarray) -> str:
    header = ["class", *(f'"x{j}"' for j in range(x.shape[1]))]
    rows = [[label, *row] for label, row in zip(y.tolist(), x.tolist(), strict=True)]
    return "\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a folder of two tables: north.csv with 90 rows, south.csv.gz with 120."""
    directory = tmp_path / "tables"
    directory.mkdir()
    (directory / "north.csv").write_text(text_of(*draw(0, 90, 2)))
    (directory / "south.csv.gz").write_bytes(gzip.compress(text_of(*draw(1, 120, 3)).encode()))
    return directory


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, tuple[str, ...]]]:
    """Record rows, split and methods of each evaluation."""
    made = []

    def evaluate(x: Any, y: Any, split: int, methods: Any) -> Any:
        made.append((len(y), split, tuple(methods)))
        return original(x, y, split, methods)

    original = real.evaluate
    monkeypatch.setattr(real, "evaluate", evaluate)
    return made


def test_run_writes_rows_and_what_they_say(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    calls = []
    summary = real.run(
        folder,
        out,
        splits=2,
        methods=QUICK,
        about={"a": "1"},
        progress=lambda *facts: calls.append(facts),
    )
    assert calls == [("north", 0, 4), ("north", 1, 4), ("south", 2, 4), ("south", 3, 4), ("", 4, 4)]
    assert sorted(os.listdir(out)) == ["parts", "results.csv", "summary.json"]
    assert len(os.listdir(out / "parts")) == 4
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["about"] == {"a": "1"}
    assert summary["tables"]["south"] == {"rows": 120, "features": 3, "ones": 48}

    rows = read(out / "results.csv")
    assert list(rows[0]) == ["table", "split", "experiment", "method", *METRICS, "status"]
    assert len(rows) == 2 * 2 * (5 + 4)
    for experiment in real.EXPERIMENTS:
        methods = [m for m in QUICK if experiment == "svm" or m != "uncalibrated"]
        for metric in METRICS:
            values: dict[tuple[str, ...], list[float]] = {}
            for row in rows:
                key = row["table"], row["experiment"], row["method"]
                values.setdefault(key, []).append(float(row[metric]))
            means = [
                [np.mean(values[table, experiment, method]) for method in methods]
                for table in ("north", "south")
            ]
            result = summary["experiments"][experiment][metric]
            assert list(result["mean"]) == methods
            np.testing.assert_allclose(list(result["mean"].values()), np.mean(means, axis=0))
            sign = -1 if metric == "accuracy" else 1
            ranks = rankdata(sign * np.array(means), axis=1)
            np.testing.assert_allclose(list(result["mean_rank"].values()), ranks.mean(axis=0))
            best = np.sum(sign * np.array(means) == np.min(sign * np.array(means), 1)[:, None], 0)
            assert list(result["best"].values()) == best.tolist()


def test_results_are_those_of_scikit_learn(folder: Path) -> None:
    x, y = draw(1, 120, 3)
    for split in (0, 3):
        result = real.evaluate(x, y, split, ["uncalibrated", "normal"])
        random = np.random.default_rng(split)
        train, test = split_rows(y, np.arange(len(y)), 0.3, random)
        fit, calibration = split_rows(y, train, 0.3, random)
        expected = {}
        scaled = StandardScaler().fit(x[fit]).transform(x)
        svm = LinearSVC(C=1.0, dual=False).fit(scaled[fit], y[fit])
        score = svm.decision_function(scaled)[:, None]
        expected["svm", "uncalibrated"] = 1 / (1 + np.exp(-score[test, 0]))
        scaled = StandardScaler().fit(x[train]).transform(x)
        for name, features, rows in (("svm", score, calibration), ("multivariate", scaled, train)):
            model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
            model.fit(features[rows], y[rows])
            expected[name, "normal"] = model.predict_proba(features[test])[:, 1]
        for (experiment, method), probs in expected.items():
            mine = result[experiment][method]
            assert mine["status"] == "converged"
            assert mine["log_loss"] == pytest.approx(log_loss(y[test], probs), abs=1e-6)
            assert mine["brier_score"] == pytest.approx(brier_score_loss(y[test], probs), abs=1e-6)
            assert mine["accuracy"] == accuracy_score(y[test], probs > 0.5)
            bins = np.ceil(probs * 10).astype(int)
            gaps = [abs(np.sum((y[test] - probs)[bins == b])) for b in range(1, 11)]
            assert mine["ece"] == pytest.approx(sum(gaps) / len(test), abs=1e-6)


def test_splits_are_stratified_and_reproducible() -> None:
    y = np.repeat([0, 1], [70, 31])
    sizes = set()
    for seed in range(5):
        train, test = split_rows(y, np.arange(101), 0.3, np.random.default_rng(seed))
        again = split_rows(y, np.arange(101), 0.3, np.random.default_rng(seed))
        np.testing.assert_array_equal(test, again[1])
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(101))
        sizes.add((*np.bincount(y[test]), *np.bincount(y[train])))
        other = split_rows(y, np.arange(101), 0.3, np.random.default_rng(seed + 1))
        assert not np.array_equal(test, other[1])
    assert sizes == {(21, 9, 49, 22)}


def test_separable_rows_are_counted_and_losses_finite(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 60)[:, None]
    (tmp_path / "easy.csv").write_text(text_of(x, (x[:, 0] > 0).astype(int)))
    summary = real.run(tmp_path, tmp_path / "out", splits=2, methods=["normal", "cauchy_map"])
    for experiment in real.EXPERIMENTS:
        result = summary["experiments"][experiment]
        assert result["without_finite_optimum"] == {"normal": 2, "cauchy_map": 0}
        assert 0 < result["log_loss"]["mean"]["cauchy_map"] < 0.3


def test_run_goes_on_where_it_was_stopped(folder: Path, tmp_path: Path, counted: list) -> None:
    options = {"splits": 2, "methods": ["uncalibrated", "platt"]}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    real.run(folder, whole, **options)
    assert len(counted) == 4

    def stop(name: str, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        real.run(folder, stopped, **options, progress=stop)
    parts = stopped / "parts"
    assert sorted(os.listdir(parts)) == ["north-0.json", "north-1.json", "south-0.json"]
    assert not (stopped / "results.csv").exists()
    # A truncated file and a file of another part are computed again, like the missing one.
    text = (parts / "north-1.json").read_text()
    (parts / "north-1.json").write_text(text[: len(text) // 2])
    (parts / "south-0.json").write_text((parts / "north-0.json").read_text())
    counted.clear()
    real.run(folder, stopped, **options)
    assert [made[:2] for made in counted] == [(90, 1), (120, 0), (120, 1)]
    assert (stopped / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()
    counted.clear()
    real.run(folder, stopped, **options)
    assert counted == []


def test_strange_files_are_done_again(folder: Path, tmp_path: Path) -> None:
    options = {"splits": 1, "methods": ["platt"], "tables": ["north"]}
    real.run(folder, tmp_path / "out", **options)
    rows = (tmp_path / "out" / "results.csv").read_bytes()
    answer = '{"answer": {"results": {}}, "question": {}, "sha256": "0"}'
    for content in ("", "[]", '"text"', "{}", "\x00\x01", answer, '{"results": [1, 2]}', "[" * 50):
        (tmp_path / "out" / "parts" / "north-0.json").write_text(content)
        real.run(folder, tmp_path / "out", **options)
        assert (tmp_path / "out" / "results.csv").read_bytes() == rows


def test_changed_numbers_data_and_versions_are_seen(
    folder: Path, tmp_path: Path, counted: list
) -> None:
    def run(version: str) -> None:
        real.run(folder, out, splits=1, methods=["platt"], tables=["north"], about={"it": version})

    out = tmp_path / "out"
    path = out / "parts" / "north-0.json"
    run("1")
    path.write_text(path.read_text().replace('"log_loss": 0.', '"log_loss": 1.'))
    run("1")
    run("2")
    (folder / "north.csv").write_text(text_of(*draw(2, 90, 2)))
    run("2")
    assert len(counted) == 4
    run("2")
    assert len(counted) == 4


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_killed_process_leaves_parts_that_serve(
    folder: Path, tmp_path: Path, counted: list
) -> None:
    # The third part never ends, so the process is killed during the work.
    out = tmp_path / "out"
    driver = (
        "import sys, time\n"
        "from benchmarks.studies import real\n"
        "wait = lambda name, done, total: time.sleep(600 * (done == 2))\n"
        "real.run(*sys.argv[1:], splits=2, methods=['platt'], progress=wait)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", driver, str(folder), str(out)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 120
    with process:
        while process.poll() is None and time.monotonic() < deadline:
            if (out / "parts" / "north-1.json").exists():
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    real.run(folder, out, splits=2, methods=["platt"])
    assert [made[0] for made in counted] == [120, 120]
    real.run(folder, tmp_path / "whole", splits=2, methods=["platt"])
    files = [directory / "results.csv" for directory in (out, tmp_path / "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["plat"]}, "no method named 'plat'; there are uncalibrated, normal"),
        ({"tables": ["north", "west"]}, "no table named 'west'; there are north, south"),
        ({"splits": 0}, "splits must be at least 1, got 0"),
        ({"data": "nowhere"}, "nowhere is not a folder"),
    ],
)
def test_wrong_options_are_errors(
    folder: Path, tmp_path: Path, options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        real.run(**{"data": folder, "out": tmp_path / "out"} | options)
    assert not (tmp_path / "out" / "results.csv").exists()


def change_text(change: Callable[[str], str]) -> str:
    return change(text_of(*draw(0, 20, 2)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", r"a.csv: the header must name one column 'class', got \[\]"),
        ("a.csv", change_text(lambda t: t.replace("class", "label")), "name one column 'class'"),
        ("a.csv", change_text(lambda t: t + "1,2\n"), "a.csv: rows must have 3 cells, got 2"),
        ("a.csv", change_text(lambda t: t + "1,2,x\n"), "cells must be numbers: .* 'x'"),
        ("a.csv", change_text(lambda t: t + "1,2,nan\n"), "cells must be finite numbers"),
        ("a.csv", change_text(lambda t: t + "2,1,1\n"), "column 'class' must hold 0 and 1 only"),
        ("a.csv", "class,x\n" + "0,1\n" * 9 + "1,2\n" * 4, "must have 5 rows or more, got 4"),
        ("a.csv", "class\n" + "0\n1\n" * 9, "there must be a feature beside"),
        ("a.csv", '"class\n', "a.csv: cannot read the file"),
        ("a.csv.gz", "class,x\n", "a.csv.gz: cannot read the file: Not a gzipped file"),
        ("a.txt", "class,x\n", "must hold tables, .csv or .csv.gz"),
    ],
)
def test_broken_tables_are_errors(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        real.run(tmp_path, tmp_path / "out")


def test_table_that_is_there_twice_is_an_error(folder: Path, tmp_path: Path) -> None:
    (folder / "north.csv.gz").write_bytes(gzip.compress((folder / "north.csv").read_bytes()))
    with pytest.raises(ValueError, match="must hold each table once"):
        real.run(folder, tmp_path / "out")


def remarks(losses: dict[str, float], tables: list[str]) -> list[str]:
    rows = [
        [table, 0, "svm", method, loss, loss, loss / 3, "converged"]
        for table in tables
        for method, loss in losses.items()
    ]
    metrics = ["log_loss", "ece", "brier_score"]
    return _summary.summarize(rows, ["svm"], metrics)["svm"]["remarks"]


def test_impossible_means_are_remarked() -> None:
    names = sorted(_summary.KNOWN_TABLES)
    assert len(names) == 19
    lines = remarks({"platt": 0.4, "normal": 0.5}, names)
    assert "40 tables sum to 5.92. The 19 of them here sum to 7.60" in lines[0]
    assert lines[0].endswith(
        "Brier scores here are 0.1333 to 0.1667: 1 of 2 published means are these within 2%."
    )
    assert "sum to 0.72" in lines[1]
    assert remarks({"platt": 0.1, "normal": 0.1}, names)[0].startswith("Published means of the ECE")
    assert remarks({"platt": 0.01, "cauchy_map": 0.01}, names) == []
    assert remarks({"platt": 9.0}, ["another"]) == []


@pytest.mark.slow
@pytest.mark.realdata
def test_all_tables_agree_with_what_is_recorded(shared_data: Path, tmp_path: Path) -> None:
    summary = real.run(shared_data, tmp_path, methods=["uncalibrated", "platt", "cauchy_map"])
    assert set(summary["tables"]) == _summary.KNOWN_TABLES
    result = summary["experiments"]["svm"]["log_loss"]
    # Published as 0.5055, four times the loss of all other methods.
    assert result["mean"]["cauchy_map"] < result["mean"]["platt"] + 0.005
    results = ROOT / "benchmarks" / "results"
    recorded = json.loads((results / "study_real.json").read_text())
    for experiment, metrics in summary["experiments"].items():
        for metric in METRICS:
            old = recorded["experiments"][experiment][metric]["by_table"]
            for table, values in metrics[metric]["by_table"].items():
                expected = {method: old[table][method] for method in values}
                assert values == pytest.approx(expected, abs=1e-4)
    # The benchmark of posteriors creates equal splits with separate code.
    other = json.loads((results / "real_scores.json").read_text())["results"]
    for row in other:
        for method in ("uncalibrated", "platt"):
            mine = result["by_table"][row["table"]][method]
            assert mine == pytest.approx(row["log_loss"][method], abs=2e-4)


def test_the_class_column_is_found_and_cells_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    lines = ['"class","a","b"', '"1",2,3.5', '0,"4",-1', *["0,1,1"] * 5, *["1,2,2"] * 5]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    name, x, y = read_table("table", path)
    assert name == "table"
    assert x[:2].tolist() == [[2, 3.5], [4, -1]]
    assert y[:2].tolist() == [1, 0]
    with gzip.open(path, "at", encoding="utf-8") as file:
        file.write("0,nan,1\n")
    with pytest.raises(ValueError, match="cells must be finite"):
        read_table("table", path)
