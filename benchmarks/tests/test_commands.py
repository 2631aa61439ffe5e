"""``python -m benchmarks.studies``: tables on the terminal, files, and single-line errors."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bayescal
from benchmarks.studies import adult, real
from benchmarks.studies.app import app
from benchmarks.tests.failing import check_error
from tests.cli.printed import cells

QUICK = ("--method", "uncalibrated", "--method", "platt", "--method", "cauchy_map")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with tables/one.csv and tables/two.csv, and return it."""
    (tmp_path / "tables").mkdir()
    for seed, name in enumerate(("one", "two")):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(80, 2)).round(3)
        y = (x.sum(axis=1) + rng.logistic(size=80) > 0).astype(int)
        lines = [f"{a},{b},{label}" for (a, b), label in zip(x, y, strict=True)]
        (tmp_path / "tables" / f"{name}.csv").write_text("\n".join(["a,b,class", *lines]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_real_prints_means_beside_published_ones(folder: Path) -> None:
    line = ["real", "--data", "tables", "--out", "new/out", "--splits", "2", *QUICK]
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
    for index, experiment in enumerate(real.EXPERIMENTS):
        mine = [r for r in rows if (r["experiment"], r["method"]) == (experiment, "platt")]
        means = {key: np.mean([float(r[key]) for r in mine]) for key in real.METRICS}
        shown = cells(result.stdout, "platt")[index]
        published = (("0.1323", "0.0180"), ("0.6665", "0.1050"))[index]
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
    # In a second run nothing is left to compute, and the output is repeated.
    again = CliRunner().invoke(app, line)
    assert again.stdout == result.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["real", "--data", "none"], "none is not a folder"),
        (["real", "--data", "tables", "--splits", "x"], "Invalid value for '--splits'"),
        (["real", "--data", ".", *QUICK], "must hold tables, .csv or .csv.gz"),
        (["real"], "Missing option '--data'"),
        (["adult", "--data", "tables"], "tables must hold adult_train.csv"),
        (["unreal"], "No such command 'unreal'"),
        (["real", "--data", "tables", "--out", "tables/one.csv"], "tables/one.csv"),
        (["multilabel", "--data", "tables"], "tables must hold .npz files with scores and labels"),
        (["multilabel", "--data", "tables", "--splits", "0"], "splits must be at least 1"),
        (["cnn", "--data", "tables"], "tables must hold predictions of networks"),
        (["cnn", "--data", "tables", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["simplex", "--maps", "magic"], "no map named 'magic'; there are uncalibrated"),
        (["simplex", "--datasets", "0"], "datasets must be at least 1, got 0"),
        (["simplex", "--test-rows", "0"], "n must be"),
    ],
)
def test_errors_take_one_line(folder: Path, line: list[str], message: str) -> None:
    check_error([*line], message)
    assert sorted(os.listdir("tables")) == ["one.csv", "two.csv"]


def test_folder_that_cannot_be_written_is_an_error(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "results.csv").mkdir()
    line = ["real", "--data", "tables", "--out", "out", "--splits", "1", *QUICK]
    check_error([*line, "--table", "two"], "cannot write the results")
    assert os.listdir(folder / "out" / "parts") == ["two-0.json"]


def test_interrupt_is_quiet_and_keeps_what_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(x: object, y: object, split: int, methods: object) -> object:
        if split == 1:
            raise KeyboardInterrupt
        return original(x, y, split, methods)

    original = real.evaluate
    monkeypatch.setattr(real, "evaluate", interrupted)
    line = ["real", "--data", "tables", "--out", "out", "--splits", "2", *QUICK]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 130
    assert result.output == "studies: interrupted\n"
    assert os.listdir(folder / "out" / "parts") == ["one-0.json"]


def test_adult_prints_the_differences(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        "cross_validated": 0.43,
        "held_out": [0.41, 0.44, 0.44],
        "published": 0.4287,
        "impossible": 2,
        "impossible_held_out": [0, 3, 1],
    }
    actual = {
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
        return actual

    monkeypatch.setattr(adult, "run", run)
    result = CliRunner().invoke(app, ["adult", "--data", "x", "--out", "y"])
    assert result.exit_code == 0, result.stderr
    assert calls == [(Path("x"), Path("y"), bayescal.__version__)]
    shown = ["0.4300", "0.4287", "+0.0013", "0.4300", "0.4100", "0.4400", "2; 0 to 3"]
    assert cells(result.stdout, "this") == [shown]
    assert cells(result.stdout, "that") == [[shown[0], "", "", *shown[3:]]]
    assert cells(result.stdout, "some  <- closest") == [["0.7400"]]
    assert "A remark." in result.stdout


@pytest.fixture
def network(folder: Path) -> Path:
    """Add nets/kull_densenet40_c10.npz, a three-class network with a published name."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, n in (("val", 90), ("test", 120)):
        z = rng.normal(size=(n, 3))
        arrays[f"logits_{part}"] = 4 * z
        arrays[f"y_{part}"] = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    (folder / "nets").mkdir()
    np.savez(folder / "nets" / "kull_densenet40_c10.npz", **arrays)
    return folder


def test_cnn_prints_metrics_and_published_figures(network: Path) -> None:
    line = ["cnn", "--data", "nets", "--out", "new/out", "--seeds", "2"]
    line += ["--maps", "uncalibrated", "--maps", "temperature", "--maps", "forest"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    out = network / "new" / "out"
    assert sorted(os.listdir(out)) == ["cnn.csv", "cnn.json", "parts"]
    summary = json.loads((out / "cnn.json").read_text())
    assert summary["about"]["bayescal"] == bayescal.__version__
    facts = summary["networks"]["kull_densenet40_c10"]
    actual = facts["maps"]["temperature"]
    metrics, valk, kull = cells(result.stdout, "temperature (TS)")[:3]
    assert metrics[0] == f"{actual['accuracy']:.4f}"
    percents = ("ece", "ece_mass", "ece_25", "class_wise_ece", "class_wise_ece_mass")
    assert metrics[1:6] == [f"{100 * actual[key]:.2f}" for key in percents]
    assert metrics[6:9] == [f"{actual[key]:.4f}" for key in ("brier_score", "log_loss", "loss_gap")]
    assert valk[-2] == f"{actual['log_loss']:.3f}/0.225"
    assert valk[1] == f"{100 * actual['ece_mass']:.3f}/0.924"
    assert kull[-1] == f"{actual['log_loss']:.4f}/0.2251"
    least, greatest = facts["maps"]["forest"]["spread"]["log_loss"]
    assert cells(result.stdout, "forest")[1][2] == f"{least:.4f} to {greatest:.4f}"
    shown = " ".join(result.stdout.split())
    for words in ("90 rows to calibrate (validation rows), 120 to test", "means over 2 seeds"):
        assert words in shown
    for line_of in facts["published"]["remarks"]:
        assert " ".join(line_of.split()) in shown
    again = CliRunner().invoke(app, line)
    assert again.stdout == result.stdout


def test_simplex_prints_distances_and_the_floor(folder: Path) -> None:
    line = ["simplex", "--out", "out", "--maps", "dirichlet", "--maps", "temperature"]
    line += ["--calibration-rows", "200", "--test-rows", "1000", "--datasets", "2"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    actual = json.loads((folder / "out" / "simplex.json").read_text())["maps"]
    for name, label in (("dirichlet", "dirichlet"), ("truth", "truth")):
        first = cells(result.stdout, label)[0]
        assert first[0] == f"{actual[name]['distance_l1']:.4f}"
        assert first[6] == f"{100 * actual[name]['ece']:.2f}"
    published = ["0.000", "0.000", "0.477", "0.790", "0.627", "0.000"]
    assert cells(result.stdout, "truth")[1] == published
    assert "Means over calibration sets (2) of 200 rows" in " ".join(result.stdout.split())


def test_multilabel_prints_means_and_deviations(folder: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((80, 2))
    labels = np.stack([rng.random(80) < scores[:, 0], scores[:, 1] > 0.5], axis=1).astype(int)
    (folder / "labels").mkdir()
    np.savez(folder / "labels" / "some.npz", scores=scores, labels=labels)
    line = ["multilabel", "--data", "labels", "--out", "out", "--splits", "2"]
    line += ["--name", "some", "--method", "uncalibrated", "--method", "logistic"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    actual = json.loads((folder / "out" / "multilabel.json").read_text())
    for method, values in actual["data"]["some"]["methods"].items():
        mean, deviation = (values[key]["ece_total"] for key in ("mean", "deviation"))
        assert cells(result.stdout, method)[0][0] == f"{mean:.4f} ± {deviation:.4f}"
    assert "Fits without finite optimum, of 4: logistic 2." in result.stdout
