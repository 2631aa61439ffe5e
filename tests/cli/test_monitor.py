"""``bayescal monitor``: rows that were appended, exit codes, settings, and what it writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from typer.testing import CliRunner, Result

import bayescal as bc
from bayescal.cli import _streams, app
from tests.cli.printed import check_error

ALARM = 3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cases(n: int = 900, slope: float = 0.3, start: int = 450) -> pd.DataFrame:
    """Return calibrated rows, and from a row on over-confident ones."""
    rng = np.random.default_rng(1)
    log_odds = rng.normal(0, 2, n)
    truth = np.where(np.arange(n) < start, log_odds, slope * log_odds)
    y = (rng.random(n) < expit(truth)).astype(int)
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(n), "h")
    weight = rng.choice([0.25, 1.0], n)
    return pd.DataFrame({"p": expit(log_odds), "y": y, "day": days, "w": weight})


def run(*line: str, file: str = "log.csv", label: str = "y") -> Result:
    command = ["monitor", file, "--label", label, "--state", "state.json", *line]
    return CliRunner().invoke(app, command)


def numbers(*line: str, code: int = 0, **options: str) -> dict[str, Any]:
    result = run(*line, "--json", "-", **options)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def wrong(message: str, *line: str, file: str = "log.csv") -> None:
    check_error(["monitor", file, "--label", "y", "--state", "state.json", *line], message)


def test_appended_rows_continue(folder: Path) -> None:
    table = cases()
    monitor = bc.Monitor()
    for end in (1, 300, 300, 450, 900):
        table[:end].to_csv("log.csv", index=False)
        code = ALARM if end == 900 else 0
        found = numbers("--model", "p", "--classes", "0,1", code=code)
        new = slice(monitor.n_rows_, end)
        monitor.update(table["p"][new], table["y"][new])
        assert (found["rows"], found["new_rows"]) == (end, new.stop - new.start)
        assert found["log_evidence"] == monitor.log_evidence_
        assert found["alarm"] is monitor.alarm_ is (end == 900)
    assert found["alarm_row"] == monitor.alarm_row_
    assert found["start_row"] == monitor.start_row_
    assert found["action"] == monitor.action_
    assert found["slope"] == pytest.approx(monitor.slope_interval(), rel=1e-9)
    assert found["offset"] == pytest.approx(monitor.offset_interval(), rel=1e-9)
    again = bc.Monitor.load("state.json")
    assert again.log_evidence_ == monitor.log_evidence_
    assert again.course_[1].tolist() == monitor.course_[1].tolist()


def test_text_says_what_to_do(folder: Path) -> None:
    table = cases()
    table.to_csv("log.csv", index=False)
    wrong("--plot must end in .png, .svg or .pdf, got x.gif", "--model", "p", "--plot", "x.gif")
    assert not Path("state.json").exists()
    result = run("--model", "p", "--time", "day", "--plot", "course.png", "--json", "out.json")
    assert result.exit_code == ALARM
    monitor = bc.Monitor().update(table["p"], table["y"], times=table["day"])
    row = monitor.alarm_row_
    assert row is not None
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    assert lines["Rows"] == "900, 900 of them new"
    assert lines["Alarm"] == f"row {row} ({monitor.alarm_time_}), counted from 0"
    assert pd.Timestamp(str(monitor.alarm_time_)) == table["day"][row]
    assert lines["Action"] == monitor.action_
    assert lines["Slope"] == "{:.2f} to {:.2f}".format(*monitor.slope_interval())
    assert "alarm above 3.00" in lines["Log evidence"]
    assert result.stderr == "bayescal: written: course.png\nbayescal: written: out.json\n"
    assert Path("course.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads(Path("out.json").read_text())["alarm_row"] == row


def test_new_files_are_not_skipped(folder: Path) -> None:
    table = cases()
    table[:450].to_csv("monday.csv", index=False)
    table[450:].to_csv("tuesday.csv", index=False)
    numbers("--new", "--model", "p", file="monday.csv")
    found = numbers("--new", "--model", "p", file="tuesday.csv", code=ALARM)
    whole = bc.Monitor().update(table["p"], table["y"])
    assert found["rows"] == 900
    assert found["log_evidence"] == pytest.approx(whole.log_evidence_, abs=1e-9)
    wrong("--new must be the same in all runs: it was True", file="monday.csv")


def test_weights_and_logits(folder: Path) -> None:
    table = cases()
    table["logit"] = np.log(table["p"]) - np.log1p(-table["p"])
    table.to_csv("log.csv", index=False)
    options = ("--model", "logit", "--inputs", "logits", "--weights", "w")
    found = numbers(*options, code=ALARM)
    whole = bc.Monitor().update(table["p"], table["y"], table["w"])
    assert found["log_evidence"] == pytest.approx(whole.log_evidence_, rel=1e-9)


def test_classes_by_name(folder: Path) -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(600, 3))
    names: Any = np.array(["ash", "birch", "cedar, old"])
    y = (softmax(0.3 * logits, axis=1).cumsum(axis=1) > rng.random((600, 1))).argmax(axis=1)
    table = pd.DataFrame(softmax(logits, axis=1), columns=names).assign(tree=names[y])
    table = table.reindex(columns=["cedar, old", "ash", "tree", "birch"])
    for end in (200, 600):
        table[:end].to_csv("log.csv", index=False)
        result = run("--json", "found.json", label="tree")
    assert result.exit_code == ALARM, result.output
    whole = bc.Monitor(task="multiclass").update(softmax(logits, axis=1), y)
    found = json.loads(Path("found.json").read_text())
    assert found["log_evidence"] == pytest.approx(whole.log_evidence_, abs=1e-9)
    assert found["slope"] is None
    again = bc.Monitor.load("state.json")
    assert again.classes == names.tolist()
    assert again.update(table.drop(columns="tree"), table["tree"]).n_rows_ == 1200


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_large_files_are_read_in_blocks(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = cases()
    for name, value in (("LARGE", 1000), ("ROWS", 70), ("BYTES", 3000)):
        monkeypatch.setattr(_streams, name, value)
    for end in (333, 900):
        part = table[:end]
        if kind == "csv":
            part.to_csv("log.csv", index=False)
        else:
            part.to_parquet("log.parquet", index=False)
        found = run("--model", "p", "--json", "found.json", file=f"log.{kind}")
    assert found.exit_code == ALARM
    whole = bc.Monitor().update(table["p"], table["y"])
    values = json.loads(Path("found.json").read_text())
    assert values["rows"] == 900
    assert values["log_evidence"] == pytest.approx(whole.log_evidence_, abs=1e-9)


def test_an_impossible_outcome_is_an_alarm(folder: Path) -> None:
    pd.DataFrame({"p": [0.5, 0.0, 0.5], "y": [0, 1, 1]}).to_csv("log.csv", index=False)
    found = numbers(code=ALARM)
    assert (found["refuted_row"], found["log_evidence"]) == (1, None)
    assert found["action"].startswith("row 1 had an outcome of probability zero")
    assert run().exit_code == ALARM


def test_other_settings_and_rows_are_errors(folder: Path) -> None:
    table = cases()
    table[:400].to_csv("log.csv", index=False)
    numbers("--model", "p", "--skip-missing")
    before = Path("state.json").read_text()
    wrong("--alpha must be the same in all runs: it was 0.05", "--alpha", "0.1")
    wrong("--time must be the same in all runs: it was None", "--time", "day")
    wrong("--model must be the same in all runs: it was p, got w", "--model", "w")
    wrong("--alpha must lie between 0 and 1, got 1", "--alpha", "1")
    wrong("no column named 'nothing' (--time)", "--time", "nothing", "--state", "other.json")
    table[:399].to_csv("short.csv", index=False)
    wrong("has 399 rows, fewer than the 400 of earlier runs", file="short.csv")
    table[1:450].to_csv("other.csv", index=False)
    wrong("the first 400 rows are not those of the earlier runs", file="other.csv")
    heavy = table.assign(w=2.0)
    heavy.to_csv("heavy.csv", index=False)
    line = ("--weights", "w", "--model", "p", "--state", "heavy.json")
    wrong("weights must lie in [0, 1], got 2", *line, file="heavy.csv")
    assert not Path("heavy.json").exists()
    assert Path("state.json").read_text() == before
    Path("broken.json").write_text("{}")
    wrong("must be a file that bayescal monitor has written", "--state", "broken.json")
