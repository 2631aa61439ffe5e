"""``bayescal monitor``: appended rows, exit codes, settings and output files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from typer.testing import CliRunner, Result

import bayescal as bc
from bayescal.cli import app
from bayescal.cli.tables import streams as _streams
from tests.cli.printed import check_error

ALARM = 3


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_rows(n: int = 900, slope: float = 0.3, start: int = 450) -> pd.DataFrame:
    """Return calibrated rows that become over-confident at a given row."""
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


def run_json(*line: str, code: int = 0, **options: str) -> dict[str, Any]:
    result = run(*line, "--json", "-", **options)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def check_invalid(message: str, *line: str, file: str = "log.csv") -> None:
    check_error(["monitor", file, "--label", "y", "--state", "state.json", *line], message)


def test_appended_rows_continue(folder: Path) -> None:
    table = make_rows()
    monitor = bc.Monitor()
    for end in (1, 300, 300, 450, 900):
        table[:end].to_csv("log.csv", index=False)
        code = ALARM if end == 900 else 0
        actual = run_json("--model", "p", "--classes", "0,1", code=code)
        new = slice(monitor.n_rows_, end)
        monitor.update(table["p"][new], table["y"][new])
        assert (actual["rows"], actual["new_rows"]) == (end, new.stop - new.start)
        assert actual["log_evidence"] == monitor.log_evidence_
        assert actual["alarm"] is monitor.alarm_ is (end == 900)
    assert actual["alarm_row"] == monitor.alarm_row_
    assert actual["start_row"] == monitor.start_row_
    assert actual["action"] == monitor.action_
    assert actual["slope"] == pytest.approx(monitor.slope_interval(), rel=1e-9)
    assert actual["offset"] == pytest.approx(monitor.offset_interval(), rel=1e-9)
    again = bc.Monitor.load("state.json")
    assert again.log_evidence_ == monitor.log_evidence_
    assert again.course_[1].tolist() == monitor.course_[1].tolist()


def test_text_says_what_to_do(folder: Path) -> None:
    table = make_rows()
    table.to_csv("log.csv", index=False)
    check_invalid(
        "--plot must end in .png, .svg or .pdf, got x.gif", "--model", "p", "--plot", "x.gif"
    )
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
    table = make_rows()
    table[:450].to_csv("monday.csv", index=False)
    table[450:].to_csv("tuesday.csv", index=False)
    run_json("--new", "--model", "p", file="monday.csv")
    actual = run_json("--new", "--model", "p", file="tuesday.csv", code=ALARM)
    whole = bc.Monitor().update(table["p"], table["y"])
    assert actual["rows"] == 900
    assert actual["log_evidence"] == pytest.approx(whole.log_evidence_, abs=1e-9)
    check_invalid("--new must be the same in all runs: it was True", file="monday.csv")


def test_weights_and_logits(folder: Path) -> None:
    table = make_rows()
    table["logit"] = np.log(table["p"]) - np.log1p(-table["p"])
    table.to_csv("log.csv", index=False)
    options = ("--model", "logit", "--inputs", "logits", "--weights", "w")
    actual = run_json(*options, code=ALARM)
    whole = bc.Monitor().update(table["p"], table["y"], table["w"])
    assert actual["log_evidence"] == pytest.approx(whole.log_evidence_, rel=1e-9)


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
    actual = json.loads(Path("found.json").read_text())
    assert actual["log_evidence"] == pytest.approx(whole.log_evidence_, abs=1e-9)
    assert actual["slope"] is None
    again = bc.Monitor.load("state.json")
    assert again.classes == names.tolist()
    assert again.update(table.drop(columns="tree"), table["tree"]).n_rows_ == 1200


def test_large_files_are_read_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_rows()
    for name, value in (("LARGE", 1000), ("ROWS", 70), ("BYTES", 3000)):
        monkeypatch.setattr(_streams, name, value)
    for end in (333, 900):
        table[:end].to_csv("log.csv", index=False)
        actual = run("--model", "p", "--json", "found.json")
    assert actual.exit_code == ALARM
    whole = bc.Monitor().update(table["p"], table["y"])
    values = json.loads(Path("found.json").read_text())
    assert values["rows"] == 900
    assert values["log_evidence"] == pytest.approx(whole.log_evidence_, abs=1e-9)


def test_an_impossible_outcome_is_an_alarm(folder: Path) -> None:
    pd.DataFrame({"p": [0.5, 0.0, 0.5], "y": [0, 1, 1]}).to_csv("log.csv", index=False)
    actual = run_json(code=ALARM)
    assert (actual["refuted_row"], actual["log_evidence"]) == (1, None)
    assert actual["action"].startswith("row 1 had an outcome of probability zero")
    assert run().exit_code == ALARM


def test_other_settings_and_rows_are_errors(folder: Path) -> None:
    table = make_rows()
    table[:400].to_csv("log.csv", index=False)
    run_json("--model", "p", "--skip-missing")
    before = Path("state.json").read_text()
    check_invalid("--alpha must be the same in all runs: it was 0.05", "--alpha", "0.1")
    check_invalid("--time must be the same in all runs: it was None", "--time", "day")
    check_invalid("--model must be the same in all runs: it was p, got w", "--model", "w")
    # The command has no option --normalize.
    table.assign(p=0.5, q=0.4).to_csv("sums.csv", index=False)
    problem = "must add up to one, got 0.9 in row 1 (line 2); where they were rounded, write more"
    check_invalid(problem, "--model", "p,q", "--state", "other.json", file="sums.csv")
    for line, problem in (
        (("--alpha", "1"), "--alpha must lie between 0 and 1, got 1"),
        (("--inputs", "scores"), "--inputs must be probs, percent or logits, got 'scores'"),
        (("--state", "-"), "--state must be a file, got -"),
        (("--plot", "-"), "--plot must be a file, got -"),
    ):
        check_invalid(problem, *line)
    check_invalid(
        "no column named 'nothing' (--time)", "--time", "nothing", "--state", "other.json"
    )
    table[:399].to_csv("short.csv", index=False)
    check_invalid("has 399 rows, fewer than the 400 of earlier runs", file="short.csv")
    table[1:450].to_csv("other.csv", index=False)
    check_invalid("the first 400 rows are not those of the earlier runs", file="other.csv")
    heavy = table.assign(w=2.0)
    heavy.to_csv("heavy.csv", index=False)
    line = ("--weights", "w", "--model", "p", "--state", "heavy.json")
    check_invalid("weights must lie in [0, 1], got 2", *line, file="heavy.csv")
    assert not Path("heavy.json").exists()
    assert Path("state.json").read_text() == before
    Path("broken.json").write_text("{}")
    check_invalid("must be a file that bayescal monitor has written", "--state", "broken.json")


NAMES = ["ash", "birch", "cedar"]


def make_labels(n: int = 900) -> pd.DataFrame:
    """Return probabilities of three labels, the second of which is over-confident."""
    rng = np.random.default_rng(5)
    log_odds = rng.normal(0, 2, (n, 3))
    y = rng.random((n, 3)) < expit(log_odds * [1, 0.3, 1])
    probs = pd.DataFrame(expit(log_odds), columns=[f"p_{name}" for name in NAMES])
    table = probs.assign(**{f"is_{name}": y[:, j].astype(int) for j, name in enumerate(NAMES)})
    return table.assign(w=rng.choice([0.25, 1.0], n), day=np.arange(n))


def run_labels(*line: str, code: int = 0) -> dict[str, Any]:
    return run_json(*line, code=code, label="is_ash,is_birch,is_cedar")


@pytest.mark.parametrize("given", ["in order", "by name", "with a name", "not named"])
def test_several_labels(given: str, folder: Path) -> None:
    table = make_labels()
    probs, y = table.filter(like="p_"), table.filter(like="is_")
    line = ["--model", "p_cedar,p_ash,p_birch"]
    if given == "in order":
        table.columns = [name.replace("p_", "score") for name in table.columns]
        table = table.rename(columns=dict(zip(table.columns[:3], "abc", strict=True)))
        line = ["--model", "a,b,c"]
    elif given == "with a name":
        line = ["--model", "net=p_cedar,p_ash,p_birch"]
    elif given == "not named":
        table, line = table.drop(columns=["w", "day"]), []
    monitor = bc.Monitor(task="multilabel", classes=[f"is_{name}" for name in NAMES])
    for end in (10, 900):
        table[:end].to_csv("log.csv", index=False)
        actual = run_labels(*line, code=ALARM if end == 900 else 0)
        new = slice(monitor.n_rows_, end)
        monitor.update(probs[new].to_numpy(), y[new].to_numpy())
        assert actual["log_evidence"] == pytest.approx(monitor.log_evidence_, abs=1e-9)
    assert actual["action"] == monitor.action_
    assert actual["action"].startswith("label is_birch: confidence is too high")
    assert actual["slope"]["is_birch"] == pytest.approx(monitor.slope_interval(1), rel=1e-9)
    again = bc.Monitor.load("state.json")
    assert (again.task, again.classes) == (monitor.task, monitor.classes)


@pytest.mark.parametrize("several", [False, True])
def test_names_of_columns_may_have_equals_signs(several: bool, folder: Path) -> None:
    table = make_labels().add_prefix("y=") if several else make_rows().add_prefix("y=")
    label, columns = ("y=is_ash,y=is_birch", "y=p_ash,y=p_birch") if several else ("y=y", "y=p")
    for end in (10, 20):
        table[:end].to_csv("log.csv", index=False)
        assert run("--model", columns, label=label).exit_code in (0, ALARM)
    assert bc.Monitor.load("state.json").n_rows_ == 20


def test_outcomes_of_several_labels_may_have_decimal_commas(folder: Path) -> None:
    table = make_labels()[["p_ash", "p_birch", "is_ash", "is_birch"]].astype(float)
    table.to_csv("log.csv", index=False, sep=";", decimal=",")
    actual = run_json("--sep", ";", "--decimal", ",", code=ALARM, label="is_ash,is_birch")
    monitor = bc.Monitor(task="multilabel").update(table.iloc[:, :2], table.iloc[:, 2:].astype(int))
    assert actual["log_evidence"] == pytest.approx(monitor.log_evidence_, abs=1e-9)


def test_several_labels_with_weights_times_and_logits(folder: Path) -> None:
    table = make_labels()
    probs, y, w = table.filter(like="p_"), table.filter(like="is_"), table["w"]
    table.update(np.log(probs) - np.log1p(-probs))
    table = table.astype(dict.fromkeys(y.columns, bool))
    table.to_csv("log.csv", index=False)
    table.to_parquet("log.parquet", index=False)
    line = ["--model", ",".join(probs.columns), "--inputs", "logits", "--weights", "w"]
    monitor = bc.Monitor(task="multilabel").update(probs.to_numpy(), y.to_numpy(), w)
    for file in ("log.csv", "log.parquet"):
        state = ["--state", f"{file}.json", "--time", "day"]
        actual = run_json(*line, *state, code=ALARM, file=file, label=",".join(y.columns))
        assert actual["log_evidence"] == pytest.approx(monitor.log_evidence_, rel=1e-9)
        assert actual["alarm_time"] == str(actual["alarm_row"])
    result = run(*line, "--state", "text.json", "--plot", "course.png", label=",".join(y.columns))
    assert "Label is_birch: slope 0." in result.stdout


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_time_stamps_may_be_missing(
    kind: str, large: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        for name, value in (("LARGE", 1000), ("ROWS", 70), ("BYTES", 3000)):
            monkeypatch.setattr(_streams, name, value)
    table = make_rows()
    monitor = bc.Monitor().update(table["p"], table["y"], times=table["day"])
    start = monitor.start_row_
    table.loc[table.index != start, "day"] = pd.NaT
    writer = table.to_csv if kind == "csv" else table.to_parquet
    writer(f"log.{kind}", index=False)
    actual = run_json("--model", "p", "--time", "day", code=ALARM, file=f"log.{kind}")
    assert (actual["alarm_row"], actual["start_row"]) == (monitor.alarm_row_, start)
    assert (actual["alarm_time"], actual["start_time"]) == (None, str(monitor.start_time_))
    assert actual["log_evidence"] == pytest.approx(monitor.log_evidence_, rel=1e-9)


@pytest.mark.parametrize(
    ("stamp", "first"),
    [
        (lambda row: 1_700_000_000_000_000_001 + row, 1_700_000_000_000_000_001),
        (lambda row: 0.5 * row, 0.0),
        (lambda row: 2 * row if row else None, None),
        (lambda row: 20260101 + row % 9, np.datetime64("2026-01-01T00:00:00")),
    ],
    ids=["nanoseconds", "fractions", "missing", "dates"],
)
def test_time_stamps_that_are_numbers(
    stamp: Callable[[int], Any], first: object, folder: Path
) -> None:
    table = make_rows(start=0, slope=-1.0)
    table["day"] = pd.array([stamp(row) for row in range(len(table))], object)
    table.to_csv("log.csv", index=False)
    actual = run_json("--model", "p", "--time", "day", code=ALARM)
    monitor = bc.Monitor.from_dict(json.loads(Path("state.json").read_text()))
    row = monitor.start_row_
    expected = first if row == 0 else stamp(row)
    assert (monitor.start_time_, row) == (expected, actual["start_row"])
    assert actual["start_time"] == (None if expected is None else str(expected))
    stamps = monitor.times_at([100, 101, 102])
    assert stamps is not None
    if stamps.dtype.kind != "M":
        np.testing.assert_array_equal(stamps, [stamp(row) for row in (100, 101, 102)])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_several_labels_in_large_files(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_labels()
    for name, value in (("LARGE", 1000), ("ROWS", 70), ("BYTES", 3000)):
        monkeypatch.setattr(_streams, name, value)
    table.loc[::7, "p_ash"] = np.nan
    writer = table.to_csv if kind == "csv" else table.to_parquet
    writer(f"log.{kind}", index=False)
    labels = ",".join(table.filter(like="is_").columns)
    line = ["--model", "p_ash,p_birch,p_cedar", "--skip-missing"]
    actual = run_json(*line, code=ALARM, file=f"log.{kind}", label=labels)
    kept = table[table["p_ash"].notna()]
    whole = bc.Monitor(task="multilabel").update(
        kept.filter(like="p_").to_numpy(), kept.filter(like="is_").to_numpy()
    )
    assert actual["rows"] == len(kept)
    assert actual["log_evidence"] == pytest.approx(whole.log_evidence_, abs=1e-9)


def test_wrong_labels_are_errors(folder: Path) -> None:
    table = make_labels(50)
    table.to_csv("log.csv", index=False)
    start = ["monitor", "log.csv", "--state", "state.json", "--label"]
    for line, message in (
        (["is_ash,is_fir"], "no column named 'is_fir' (--label)"),
        (["is_ash,is_ash"], "--label must name different columns"),
        (["is_ash,is_birch"], "are not named like the labels"),
        (["is_ash,is_birch", "--model", "p_ash"], "must name 2 columns, as there are 2 labels"),
        (["is_ash,day", "--model", "p_ash,p_birch"], "must hold zeros and ones"),
        (["is_ash,is_birch", "--classes", "0,1"], "--classes must be left out"),
        (["is_ash,is_birch", "--model", "p_ash,day"], "column 'day' of model"),
    ):
        check_error([*start, *line], message)
    run("--model", "p_ash,p_birch", label="is_ash,is_birch")
    line = [*start, "is_ash,is_birch", "--model", "p_ash,p_cedar"]
    check_error(line, "--model must be the same in all runs: it was p_ash,p_birch")


def test_a_column_whose_name_has_a_comma_is_one_label(folder: Path) -> None:
    make_rows().rename(columns={"y": "p,w"}).drop(columns=["w"]).to_csv("log.csv", index=False)
    assert run_json("--model", "p", code=ALARM, label="p,w")["rows"] == 900
