"""``bayescal evaluate``: columns, labels, options, errors, and the files that it writes."""

import csv
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import bayescal
from bayescal.cli import app
from bayescal.cli.tables.columns import by_name
from tests.cli.printed import check_failure

NAMES = ("ash", "birch", "cedar")


def write(path: Path, header: Sequence[str], columns: Sequence[Any]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(zip(*(np.asarray(c).tolist() for c in columns), strict=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draw_binary(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    p = rng.uniform(0.02, 0.98, size=n)
    return p, (rng.uniform(size=n) < p).astype(int)


def draw_classes(n: int = 90, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(n, k))
    odds = np.exp(logits)
    return odds / odds.sum(axis=1, keepdims=True), rng.integers(0, k, size=n)


def run(*line: str, replicates: int = 20) -> Result:
    return CliRunner().invoke(app, ["evaluate", *line, "--replicates", str(replicates)])


def run_json(*line: str) -> dict[str, Any]:
    result = run(*line, "--json", "-")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def losses(actual: dict[str, Any]) -> dict[str, float]:
    return {name: model["metrics"]["log loss"]["value"] for name, model in actual["models"].items()}


def test_table_is_that_of_the_report(folder: Path) -> None:
    p, y = draw_binary()
    write(folder / "probs.csv", ["name", "p", "y"], [[f"n{i}" for i in range(80)], p, y])
    result = run("probs.csv", "--label", "y", "--level", "0.8", "--seed", "4")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "bayescal: columns without numbers are left out: 'name'\n"
    report = bayescal.metrics.report({"p": p}, y, replicates=20, level=0.8, seed=4)
    shown = [line.rstrip() for line in result.stdout.splitlines()]
    assert all(line.rstrip() in shown for line in repr(report).splitlines()[:-3])
    assert "Columns: p is P(y = 1)" in result.stdout
    assert re.search(
        "^p: (Calibrated|Over|Under|Mis|Too|Slightly|Strongly)", result.stdout, re.MULTILINE
    )
    assert list(folder.iterdir()) == [folder / "probs.csv"]


def test_json_has_every_number(folder: Path) -> None:
    p, y = draw_binary()
    write(folder / "probs.csv", ["p", "y"], [p, y])
    options = ("--level", "0.5", "--bins", "7", "--seed", "9")
    actual = run_json("probs.csv", "--label", "y", *options)
    evaluation = bayescal.evaluate(
        {"p": p}, y, replicates=20, level=0.5, bins=7, seed=9, classes=["0", "1"]
    ).to_dict()
    assert actual == {
        "file": "probs.csv",
        "columns": {"p": ["p"]},
        **json.loads(json.dumps(evaluation)),
    }
    result = run("probs.csv", "--label", "y", "--json", "out.json", *options)
    assert "log loss" in result.stdout
    assert result.stderr == "bayescal: written: out.json\n"
    assert json.loads((folder / "out.json").read_text()) == actual


def test_several_models_stand_side_by_side(folder: Path) -> None:
    p, y = draw_binary()
    write(folder / "probs.csv.tmp", ["raw", "a,b", "y", "id"], [p, p**2, y, range(80)])
    (folder / "probs.csv.gz").write_bytes(gzip.compress((folder / "probs.csv.tmp").read_bytes()))
    line = ("probs.csv.gz", "--label", "y", "--model", "raw", "--model", 'squared="a,b"')
    actual = run_json(*line)
    log_loss = bayescal.metrics.log_loss
    assert losses(actual) == {"raw": log_loss(p, y), "squared": log_loss(p**2, y)}
    models = [part for j in range(8) for part in ("--model", f"model number {j}=raw")]
    result = run(*line, *models)
    assert "vs. raw" in result.stdout
    assert "Model squared: a,b is P(y = 1)" in result.stdout
    assert "…" not in result.stdout and "model number 7" in result.stdout


@pytest.mark.parametrize(
    "header",
    [("x1", "x2", "x3"), ("birch_p", "ash_p", "cedar_p"), ("p_birch", "p_ash", "p_cedar")],
)
def test_columns_of_classes_go_by_name_or_in_sorted_order(
    folder: Path, header: tuple[str, ...]
) -> None:
    probs, codes = draw_classes()
    positions = [NAMES.index(c) for h in header for c in NAMES if c in h] or [0, 1, 2]
    labels = np.array(NAMES)[codes]
    write(folder / "probs.csv", [*header, "kind"], [*probs[:, positions].T, labels])
    actual = run_json("probs.csv", "--label", "kind")
    assert losses(actual) == {"model": bayescal.metrics.log_loss(probs, codes)}
    assert actual["columns"]["model"] == [header[positions.index(j)] for j in range(3)]
    assert list(actual["classes"]) == list(NAMES)


def test_classes_can_be_told(folder: Path) -> None:
    probs, codes = draw_classes(k=3)
    labels = np.array(NAMES)[codes]
    order = ("cedar", "ash", "oak", "birch")
    padded = np.stack([probs[:, 2], probs[:, 0], np.zeros(90), probs[:, 1]], axis=1)
    write(folder / "probs.csv", ["a", "b", "c", "d", "kind"], [*padded.T, labels])
    actual = run_json("probs.csv", "--label", "kind", "--classes", ", ".join(order))
    new = np.array([1, 3, 0])[codes]
    assert losses(actual) == {"model": bayescal.metrics.log_loss(padded, new)}
    assert actual["classes"]["oak"] == 0
    # With two classes the second one is the event.
    p, y = draw_binary()
    write(folder / "two.csv", ["p", "y"], [p, np.where(y == 1, "bad", "good")])
    actual = run_json("two.csv", "--label", "y", "--classes", "good,bad")
    assert losses(actual) == {"p": bayescal.metrics.log_loss(p, y)}


def test_numbers_as_labels_are_sorted_as_numbers(folder: Path) -> None:
    probs, codes = draw_classes()
    labels = np.array(["9.0", "10", "1e2"])[codes]
    write(folder / "probs.csv", ["a", "b", "c", "y"], [*probs.T, labels])
    actual = run_json("probs.csv", "--label", "y", "--classes", "9,10,100")
    assert list(actual["classes"]) == ["9", "10", "100"]
    assert actual == run_json("probs.csv", "--label", "y")


def test_labels_of_eighteen_digits_differ(folder: Path) -> None:
    p, y = draw_binary()
    codes = np.array([900000000000207009, 900000000000207008])
    write(folder / "probs.csv", ["p", "code"], [p, codes[1 - y]])
    actual = run_json("probs.csv", "--label", "code")
    assert [*actual["classes"]] == ["900000000000207008", "900000000000207009"]
    assert losses(actual) == {"p": bayescal.metrics.log_loss(p, y)}


def test_two_columns_of_two_classes(folder: Path) -> None:
    p, y = draw_binary()
    write(folder / "probs.csv", ["p_1", "p_0", "y"], [p, 1 - p, y])
    value = bayescal.metrics.brier_score(p, y)
    for line in ((), ("--model", "m=p_0,p_1"), ("--model", "m=p_1,p_0")):
        actual = run_json("probs.csv", "--label", "y", *line)
        (model,) = actual["models"].values()
        assert model["metrics"]["Brier score"]["value"] == pytest.approx(value, abs=1e-15)


def test_logits_weights_and_rounded_rows(folder: Path) -> None:
    p, y = draw_binary()
    w = np.tile([1, 2, 3, 0.5], 20)
    write(folder / "odds.csv", ["s", "y", "w"], [np.log(p / (1 - p)), y, w])
    actual = run_json("odds.csv", "--label", "y", "--inputs", "logits", "--weights", "w")
    expected = bayescal.metrics.log_loss(p, y, weights=w)
    assert losses(actual)["s"] == pytest.approx(expected, rel=1e-12)
    probs, codes = draw_classes()
    write(folder / "logits.csv", [*"abc", "y"], [*np.log(probs).T, codes])
    actual = run_json("logits.csv", "--label", "y", "--inputs", "logits")
    expected = bayescal.metrics.log_loss(probs, codes)
    assert losses(actual)["model"] == pytest.approx(expected, rel=1e-12)
    rough = probs.round(2)
    write(folder / "rough.csv", [*"abc", "y"], [*rough.T, codes])
    check_failure(run("rough.csv", "--label", "y"), "must add up to one")
    actual = run_json("rough.csv", "--label", "y", "--normalize")
    normal = rough / rough.sum(axis=1, keepdims=True)
    assert losses(actual)["model"] == bayescal.metrics.log_loss(normal, codes)
    near = probs * 1.0005  # sums within the tolerance of metrics, 0.001
    write(folder / "near.csv", [*"abc", "y"], [*near.T, codes])
    actual = run_json("near.csv", "--label", "y")
    assert losses(actual)["model"] == bayescal.metrics.log_loss(near, codes)


def test_page_is_that_of_the_library(folder: Path) -> None:
    p, y = draw_binary()
    evil = "<script>alert(1)</script>"
    write(folder / "probs.csv", [evil, "y"], [p, np.where(y == 1, "<b>yes", "no & no")])
    result = run(
        "probs.csv", "--label", "y", "--html", "report.html", "--classes", "no & no,<b>yes"
    )
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "bayescal: written: report.html\n"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<script>") == 1 and "<b>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; is P(y = &lt;b&gt;yes)" in page
    actual = bayescal.evaluate({evil: p}, y, classes=["no & no", "<b>yes"], replicates=20)
    for interval in actual.report.intervals[evil].values():
        assert f"{interval.value:.4f}" in page


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("none.csv", "--label", "y"), "none.csv: no such file"),
        (("probs.csv",), "Missing option '--label'"),
        (("probs.csv", "--label", "z"), "no column named 'z' (--label); the columns are"),
        (("probs.csv", "--label", "y", "--model", "q"), "no column named 'q' (--model)"),
        (("probs.csv", "--label", "y"), "2 columns of numbers, 'p', 'n', and 2 classes, '0', '1'"),
        (("probs.csv", "--label", "y"), "pass --model NAME=COLUMN"),
        (("probs.csv", "--label", "y", "--model", "n"), "column 'n' of model 'n' must hold prob"),
        (("probs.csv", "--label", "y", "--model", "n"), "got 10 in row 1 (line 2)"),
        (("probs.csv", "--label", "y", "--model", "a=p,p,p"), "must name one column or two"),
        (("probs.csv", "--label", "y", "--model", "a=p,n"), "must hold probabilities, got 10"),
        (("probs.csv", "--label", "y", "--model", "p", "--model", "p"), "names that differ"),
        (("probs.csv", "--label", "y", "--model", "=p"), "names that differ"),
        (("probs.csv", "--label", "y", "--model", "a="), "must be names with commas between"),
        (("probs.csv", "--label", "y", "--model", 'a="p'), "must be names with commas between"),
        (("probs.csv", "--label", "t"), "got an empty cell in row 2 (line 3)"),
        (("probs.csv", "--label", "one"), "must hold two classes or more, got only '7'"),
        (("probs.csv", "--label", "y", "--classes", "0,2"), "only the classes '0', '2' (--classes"),
        (("probs.csv", "--label", "y", "--classes", "0,1,0"), "--classes must be different"),
        (
            ("probs.csv", "--label", "y", "--classes", "0,1,2"),
            "2 columns of numbers, 'p', 'n', and",
        ),
        (("probs.csv", "--label", "y", "--model", "p", "--weights", "m"), "not negative, got -1"),
        (("probs.csv", "--label", "y", "--model", "p", "--inputs", "x"), "--inputs must be probs"),
        (("probs.csv", "--label", "y", "--model", "p", "--level", "2"), "level must lie strictly"),
        (("probs.csv", "--label", "y", "--model", "p", "--bins", "0"), "bins must be at least 1"),
        (("probs.csv", "--label", "y", "--model", "p", "--html", "-"), "--html must be a file"),
        (("probs.csv", "--label", "y", "--html", "no/a.html"), "no/a.html: the folder"),
        (("probs.csv", "--label", "y", "--json", "."), "must be a file, not a folder"),
        (("texts.csv", "--label", "y"), "no column of numbers beside the label"),
    ],
)
def test_errors_take_one_line_and_write_nothing(
    folder: Path, line: tuple[str, ...], message: str
) -> None:
    (folder / "probs.csv").write_text("p,n,y,t,one,m\n.5,10,0,a,7,-1\n.2,20,1,,7,-1\n")
    (folder / "texts.csv").write_text("p,y\na,0\nb,1\n")
    if "'p', 'n'" in message or "pass --model" in message:
        (folder / "probs.csv").write_text("p,n,y\n.5,10,0\n.2,20,1\n")
    check_failure(run(*line), message)
    assert sorted(path.name for path in folder.iterdir()) == ["probs.csv", "texts.csv"]


def test_columns_are_matched_by_name() -> None:
    assert by_name(["p11", "p1"], ["1", "11"]) == ["p1", "p11"]
    assert by_name(["b", "a"], ["a", "b"]) == ["a", "b"]
    assert by_name(["x", "y"], ["a", "b"]) is None
    assert by_name(["pa", "qb"], ["a", "b"]) is None


def test_columns_in_low_precision_have_the_same_numbers(folder: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    p, y = np.repeat([0.6, 0.7], 100), np.repeat([1, 0, 1, 0], [80, 20, 50, 50])
    actual = []
    for kind in ("float64", "float32", "float16"):
        for name, values in (("probs", p), ("percent", 100 * p)):
            table = arrow.table({"p": values.astype(kind), "y": y})
            parquet.write_table(table, folder / "d.parquet")
            report = run_json("d.parquet", "--label", "y", "--bins", "10", "--inputs", name)
            actual.append(report["models"]["p"]["metrics"]["ECE"]["value"])
    assert actual == pytest.approx([0.2] * 6, abs=3e-4)


def test_rows_of_a_group_are_dependent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p, y = draw_binary()
    groups = [f"race {i // 4}" for i in range(80)]
    write(Path("d.csv"), ["race", "y", "p"], [groups, y, p])
    expected = bayescal.metrics.interval("ece", p, y, groups=groups, replicates=20, bins=15)
    for large in (False, True):
        if large:
            monkeypatch.setattr("bayescal.cli.tables.streams.LARGE", 10)
        actual = run_json("d.csv", "--label", "y", "--groups", "race")
        assert actual["groups"] == 20
        assert actual["models"]["p"]["metrics"]["ECE"]["upper"] == pytest.approx(expected.upper)
    assert "Group column: race" in run("d.csv", "--label", "y", "--groups", "race").stdout
    check_failure(
        run("d.csv", "--label", "y", "--groups", "rac"), "no column named 'rac' (--groups)"
    )


def test_subgroups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p, y = draw_binary()
    races = [f"race {i // 40}" for i in range(80)]
    write(Path("d.csv"), ["race", "y", "p"], [races, y, p])
    how = "d.csv", "--label", "y", "--by", "race"
    expected = bayescal.metrics.log_loss(p[40:], y[40:])
    for large in (False, True):
        if large:
            monkeypatch.setattr("bayescal.cli.tables.streams.LARGE", 10)
        part = run_json(*how)["subgroups"]["race 1"]
        assert part["models"]["p"]["metrics"]["log loss"]["value"] == pytest.approx(expected)
    printed = run(*how, "--html", "page.html").stdout
    assert "Subgroup column: race" in printed and "By subgroup" in printed
    assert "<h2>Subgroups</h2>" in Path("page.html").read_text("utf-8")
    check_failure(run(*how[:-1], "rac"), "no column named 'rac' (--by)")


def fit(file: str, *line: str) -> None:
    done = CliRunner().invoke(app, ["fit", file, "--out", "fitted.safetensors", *line])
    assert done.exit_code == 0, done.stderr


CALIBRATED = "--label", "y", "--calibrator", "fitted.safetensors"


@pytest.mark.parametrize("inputs", ["logits", "scores"])
def test_a_calibrator_is_compared_with_its_columns(
    folder: Path, monkeypatch: pytest.MonkeyPatch, inputs: str
) -> None:
    p, y = draw_binary()
    s = 2 * np.log(p / (1 - p))
    labels = np.where(y == 1, "yes", "no")
    write(Path("fit.csv"), ["id", "s", "y"], [range(40), s[:40], labels[:40]])
    write(Path("test.csv"), ["y", "id", "s"], [labels[40:], range(40), s[40:]])
    fit("fit.csv", "--label", "y", "--columns", "s", "--inputs", inputs, "--method", "logistic")
    fitted = bayescal.Logistic(inputs=inputs).fit(s[:40], labels[:40])
    expected = bayescal.metrics.log_loss(fitted.predict_proba(s[40:]), labels[40:])
    for large in (False, True):
        if large:
            monkeypatch.setattr("bayescal.cli.tables.streams.LARGE", 10)
        actual = losses(run_json("test.csv", *CALIBRATED))
        assert [*actual] == (["calibrated"] if inputs == "scores" else ["raw", "calibrated"])
        assert actual["calibrated"] == pytest.approx(expected, rel=1e-6)
    if inputs != "scores":
        raw = bayescal.metrics.log_loss(s[40:], labels[40:], inputs=inputs)
        assert actual["raw"] == pytest.approx(raw)
    about = run("test.csv", *CALIBRATED).stdout
    assert "Model calibrated: fitted.safetensors applied to s" in about
    assert ("s is" in about.partition("Model calibrated")[0]) == (inputs != "scores")


def test_a_calibrator_of_several_classes_with_missing_rows(folder: Path) -> None:
    probs, y = draw_classes()
    names = np.array(NAMES)[y]
    shuffled = [names, probs[:, 2], probs[:, 0], probs[:, 1]]
    head = ["y", "p_cedar", "p_ash", "p_birch"]
    write(Path("fit.csv"), head, shuffled)
    fit("fit.csv", "--label", "y")
    actual = losses(run_json("fit.csv", *CALIBRATED))
    fitted = bayescal.Auto().fit(probs, names)
    calibrated = fitted.predict_proba(probs)
    assert actual["raw"] == pytest.approx(bayescal.metrics.log_loss(probs, names))
    assert actual["calibrated"] == pytest.approx(
        bayescal.metrics.log_loss(calibrated, names), rel=1e-6
    )
    text = Path("fit.csv").read_text().splitlines()
    text[3] = text[3].rpartition(",")[0] + ","
    Path("miss.csv").write_text("\n".join(text))
    part = losses(run_json("miss.csv", *CALIBRATED, "--skip-missing"))
    kept = np.arange(len(y)) != 2
    expected = bayescal.metrics.log_loss(calibrated[kept], names[kept])
    assert part["calibrated"] == pytest.approx(expected, rel=1e-6)


def test_options_that_contradict_a_calibrator(folder: Path) -> None:
    p, y = draw_binary()
    write(Path("d.csv"), ["y", "p"], [y, p])
    fit("d.csv", "--label", "y")
    check_failure(run("d.csv", *CALIBRATED, "--inputs", "logits"), "as in the fit of --calibrator")
    check_failure(run("d.csv", *CALIBRATED, "--classes", "0,1"), "--classes must be left out")
    check_failure(run("d.csv", *CALIBRATED, "--model", "raw=p"), "names other than raw, calibrated")
    check_failure(run("d.csv", *CALIBRATED[:3], "d.csv"), "written by bayescal.save")
    both = losses(run_json("d.csv", *CALIBRATED, "--model", "other=p"))
    assert [*both] == ["raw", "calibrated", "other"] and both["raw"] == both["other"]
