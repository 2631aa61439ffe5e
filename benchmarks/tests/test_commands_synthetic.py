"""``python -m benchmarks.studies synthetic``: tables, figures, options and errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import bayescal
from bayescal.sweeps import _run
from benchmarks.studies import draws, factors
from benchmarks.studies._cli_synthetic import _published, _with_error
from benchmarks.studies.app import app
from benchmarks.tests.failing import check_error
from tests.cli.printed import cells

LINE = ["synthetic", "--question", "1", "--datasets", "5", "--test", "200"]
QUICK = [f"--method={m}" for m in ("normal", "platt", "optimal")]


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_run, "SIZE", 8)
        yield


@pytest.mark.slow
def test_tables_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = [*LINE, *QUICK, "--seed", "7", "--out", "out"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    actual = json.loads((tmp_path / "out" / "synthetic.json").read_text())
    assert actual["about"]["bayescal"] == bayescal.__version__
    assert (actual["seed"], actual["datasets"], actual["n_test"]) == (7, 5, 200)
    shown = {m: cells(result.stdout, m) for m in ("platt", "optimal", "floor", "normal")}
    for metric, row in zip(("log_loss", "ece"), shown["platt"][:2], strict=True):
        means = [f["metrics"][metric]["platt"] for f in actual["configurations"].values()]
        assert row[::2] == [_with_error(estimate) for estimate in means]
        known = [f["published"][metric]["platt"] for f in actual["configurations"].values()]
        assert row[1::2] == [f"{estimate['mean']:.4f}" for estimate in known]
    assert shown["normal"][0][-1] == "∞"
    assert "!: below the floor, so impossible" in " ".join(result.stdout.split())
    assert shown["optimal"][0][1] == ""
    assert shown["floor"][0][2] == "0.2829"
    ranks = actual["rankings"]["1"]["log_loss"]["ten"]["ranks"]
    assert shown["platt"][2][-1] == f"{ranks['platt']:.2f}"
    for words in ("Means over 5 data sets, 200 test points", "(e) B(2, 5), B(5, 2) + 5"):
        assert words in " ".join(result.stdout.split())
    assert "Fits of normal without finite optimum: 1" in result.stdout
    again = CliRunner().invoke(app, line)
    assert again.stdout == result.stdout


def test_published_entries_and_errors_in_the_last_digits() -> None:
    known = {"mean": 0.0342, "deviation": 0.05, "impossible": True}
    assert _published(known) == "0.0342!"
    assert _published({**known, "impossible": False}) == "0.0342"
    assert _published({**known, "mean": None, "impossible": False}) == "∞"
    assert _published(None) == ""
    assert _with_error({"mean": 0.29361, "error": 0.0106}) == "0.2936(106)"
    assert _with_error({"mean": 1.0987, "error": 0.3041}) == "1.10(30)"
    assert _with_error({"mean": 81.6978, "error": 79.5932}) == "81.7(796)"


def test_figure_14(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common = {"sizes": [1, 1024, 8192], "loss": [[0.5, 0.4], [0.31, 0.3], [0.3, 0.3]]}
    facts = {
        "floor": 0.29,
        "quadrature": {"preds": 0.3},
        "montecarlo": {"preds": {**common, "sufficient": 1024}},
        "sobol": {"preds": {**common, "sufficient": None}},
    }
    calls = []

    def run(out: Path, **options: Any) -> dict[str, Any]:
        options.pop("progress")("one", 0, 1)
        calls.append((out, options))
        return {
            "datasets": 4,
            "n_train": 50,
            "repeats": 2,
            "tolerance": 0.1,
            "priors": {"P": facts},
        }

    monkeypatch.setattr(draws, "run", run)
    line = ["synthetic", "--figure", "14", "--datasets", "4", "--tolerance", "0.1"]
    result = CliRunner().invoke(app, [*line, "--seed", "3", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    ((out, options),) = calls
    assert out == tmp_path
    assert (options["tolerance"], options["datasets"], options["seed"]) == (0.1, 4, 3)
    assert cells(result.stdout, "preds") == [
        ["0.30000", "1,024", "1.0e-02", "0.0e+00", "none", "", "0.0e+00"]
    ]


@pytest.mark.slow
def test_figure_15(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = factors.run
    monkeypatch.setattr(
        factors, "run", lambda out, **more: original(out, sizes=[20], separations=[2.0], **more)
    )
    line = ["synthetic", "--figure", "15", "--datasets", "10", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads((tmp_path / "figure_15.json").read_text())["rows"]
    shown = cells(result.stdout, "20")[0]
    assert shown[:2] == ["2", f"{row['best']:.5f}"]
    assert shown[3] == "0.08333"
    assert re.search("results: .*figure_15.svg", " ".join(result.stdout.split()))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--question", "4"], "--question must be 1, 2, 3 or all, got '4'"),
        (["--figure", "22"], "--figure must be 14 or 15, got '22'"),
        (["--figure", "14", "--test", "100"], "leave them out with --figure"),
        (["--figure", "14", "--method", "platt"], "leave them out with --figure"),
        (["--figure", "14", "--tolerance", "0"], "tolerance must be positive"),
        (["--datasets", "x"], "Invalid value for '--datasets'"),
        (["--out", "file/out"], "cannot write the results"),
        (["--figure", "15", "--out", "file/out"], "cannot write the results"),
    ],
)
def test_errors_take_one_line(
    line: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    check_error(["synthetic", *line], message)
    assert os.listdir(tmp_path) == ["file"]
