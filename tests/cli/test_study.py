"""``bayescal study``: tables on the terminal, files, and one line for each error."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bayescal
from bayescal.cli import app
from bayescal.study import adult, real

QUICK = ("--method", "uncalibrated", "--method", "platt", "--method", "cauchy_map")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with tables/one.csv and tables/two.csv; return it."""
    (tmp_path / "tables").mkdir()
    for seed, name in enumerate(("one", "two")):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(80, 2)).round(3)
        y = (x.sum(axis=1) + rng.logistic(size=80) > 0).astype(int)
        lines = [f"{a},{b},{label}" for (a, b), label in zip(x, y, strict=True)]
        (tmp_path / "tables" / f"{name}.csv").write_text("\n".join(["a,b,class", *lines]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cells(text: str, name: str) -> list[list[str]]:
    """Return the other cells of the rows of printed tables that begin with ``name``."""
    found = [line.split("│")[1:-1] for line in text.splitlines() if "│" in line]
    rows = [[cell.strip() for cell in row] for row in found]
    return [row[1:] for row in rows if row[0] == name]


def check_error(line: list[str], message: str) -> None:
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("bayescal: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_real_prints_means_beside_published_ones(folder: Path) -> None:
    line = ["study", "real", "--data", "tables", "--out", "new/out", "--splits", "2", *QUICK]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    out = folder / "new" / "out"
    assert sorted(os.listdir(out)) == ["parts", "results.csv", "summary.json"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["about"]["bayescal"] == bayescal.__version__
    with (out / "results.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 2 * (3 + 2)
    for place, experiment in enumerate(real.EXPERIMENTS):
        mine = [r for r in rows if (r["experiment"], r["method"]) == (experiment, "platt")]
        means = {key: np.mean([float(r[key]) for r in mine]) for key in real.METRICS}
        shown = cells(result.stdout, "platt")[place]
        published = (("0.1323", "0.0180"), ("0.6665", "0.1050"))[place]
        assert shown[:6] == [
            f"{means['log_loss']:.4f}",
            published[0],
            f"{means['ece']:.4f}",
            published[1],
            f"{means['brier_score']:.4f}",
            f"{means['accuracy']:.4f}",
        ]
    assert len(cells(result.stdout, "uncalibrated")) == 1
    for words in ("means over 2 tables", "over 2 splits", "40 tables, 0 of them", "results.csv"):
        assert words in " ".join(result.stdout.split())
    # Once more: nothing is left to do, and all is said again.
    again = CliRunner().invoke(app, line)
    assert again.stdout == result.stdout


def test_real_takes_single_tables(folder: Path) -> None:
    line = ["study", "real", "--data", "tables", "--out", "out", "--splits", "1", *QUICK]
    result = CliRunner().invoke(app, [*line, "--table", "two"])
    assert result.exit_code == 0, result.stderr
    assert os.listdir(folder / "out" / "parts") == ["two-0.json"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["real", "--data", "none"], "none is not a folder"),
        (["real", "--data", "tables", "--table", "three"], "no table named 'three'; there are one"),
        (["real", "--data", "tables", "--method", "magic"], "no method named 'magic'"),
        (["real", "--data", "tables", "--splits", "0"], "splits must be at least 1, got 0"),
        (["real", "--data", "tables", "--splits", "x"], "Invalid value for '--splits'"),
        (["real", "--data", ".", *QUICK], "must hold tables, .csv or .csv.gz"),
        (["real"], "Missing option '--data'"),
        (["adult", "--data", "tables"], "tables must hold adult_train.csv"),
        (["adult"], "Missing option '--data'"),
        (["unreal"], "No such command 'unreal'"),
        (["real", "--data", "tables", "--out", "tables/one.csv"], "tables/one.csv"),
    ],
)
def test_errors_take_one_line(folder: Path, line: list[str], message: str) -> None:
    check_error(["study", *line], message)
    assert sorted(os.listdir("tables")) == ["one.csv", "two.csv"]


def test_folder_that_cannot_be_written_is_an_error(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "results.csv").mkdir()
    line = ["study", "real", "--data", "tables", "--out", "out", "--splits", "1", *QUICK]
    check_error(line, "cannot write the results")


def test_interrupt_is_quiet_and_keeps_what_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(x: object, y: object, split: int, methods: object) -> object:
        if split == 1:
            raise KeyboardInterrupt
        return original(x, y, split, methods)

    original = real.evaluate
    monkeypatch.setattr(real, "evaluate", interrupted)
    line = ["study", "real", "--data", "tables", "--out", "out", "--splits", "2", *QUICK]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 130
    assert result.output == "bayescal: interrupted\n"
    assert os.listdir(folder / "out" / "parts") == ["one-0.json"]


def test_adult_prints_the_differences(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        "cross_validated": 0.43,
        "held_out": [0.41, 0.44, 0.44],
        "published": 0.4287,
        "impossible": 2,
        "impossible_held_out": [0, 3, 1],
    }
    found = {
        "held_out_share": 0.25,
        "encodings": {"some": 0.74, "other": 0.5},
        "closest_encoding": "some",
        "methods": {"this": facts, "that": {**facts, "published": None}},
        "remarks": ["A remark."],
    }
    calls = []

    def run(data: Path, out: Path, **options: object) -> dict:
        calls.append((data, out, options["about"]["bayescal"]))
        options["progress"]("some", 0, 1)
        return found

    monkeypatch.setattr(adult, "run", run)
    result = CliRunner().invoke(app, ["study", "adult", "--data", "x", "--out", "y"])
    assert result.exit_code == 0, result.stderr
    assert calls == [(Path("x"), Path("y"), bayescal.__version__)]
    shown = ["0.4300", "0.4287", "+0.0013", "0.4300", "0.4100", "0.4400", "2; 0 to 3"]
    assert cells(result.stdout, "this") == [shown]
    assert cells(result.stdout, "that") == [[shown[0], "", "", *shown[3:]]]
    assert cells(result.stdout, "some  <- closest") == [["0.7400"]]
    assert "A remark." in result.stdout


def test_help_names_the_studies() -> None:
    result = CliRunner().invoke(app, ["study", "--help"])
    assert result.exit_code == 0
    for word in ("Usage:", "real", "adult"):
        assert word in result.stdout
    for name in ("real", "adult"):
        result = CliRunner().invoke(app, ["study", name, "--help"])
        assert result.exit_code == 0
        assert "--data" in result.stdout
