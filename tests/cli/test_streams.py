"""``bayescal fit`` and ``apply`` on blocks of CSV and Parquet files, against in-memory results."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from typer.testing import CliRunner

import bayescal as bc
from bayescal.cli import _errors, app
from bayescal.cli.tables import labeled as _labeled
from bayescal.cli.tables import streams as _streams
from bayescal.cli.tables.streams import open_rows
from tests.cli.printed import check_error

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

N = 1000
#: Compressed CSV and Parquet with Arrow, and CSV without it ("plain").
FORMS = ["csv.gz", "parquet", "plain csv"]


def make_columns(k: int = 2, n: int = N) -> dict[str, np.ndarray]:
    """Return columns: scores, string labels, weights and an unused column."""
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(n, k))
    y = np.argmax(0.5 * z + rng.gumbel(size=z.shape), axis=1)
    names = np.array(["ape", "bee", "cat", "dog"])[:k]
    scores = dict(zip([f"z_{name}" for name in names], z.T, strict=True))
    if k == 2:
        scores = {"p": 1 / (1 + np.exp(z[:, 0] - z[:, 1]))}
    other = np.array(["of, text", 'and "quotes"', "two\nlines"])[np.arange(n) % 3]
    return {**scores, "truth": names[y], "w": rng.integers(1, 4, n), "other": other}


def write(path: Path, columns: dict[str, np.ndarray]) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(columns), path)
        return path
    text = io.StringIO(newline="")
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    csv.writer(text).writerows([[*columns], *rows])
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LARGE": 0, "ROWS": 64, "BYTES": 4096}.items():
        monkeypatch.setattr(_streams, name, value)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if "plain" in request.param:
        monkeypatch.setattr(_streams, "_arrow", lambda: None)
    return request.param.removeprefix("plain ")


def run(*line: object) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == 0, result.stderr
    return result


def load(path: Path) -> Any:
    """Load a calibrator, and remove its column names so that it takes plain arrays."""
    fitted = bc.load(path)
    del fitted.feature_names_in_
    return fitted


def fit(file: Path, out: Path, method: str, *more: str) -> Any:
    return run("fit", file, "--label", "truth", "--out", out, "--method", method, *more)


@pytest.mark.parametrize("large", [False, True])
def test_rows_of_weight_zero_need_no_label(
    tmp_path: Path, form: str, large: bool, request: pytest.FixtureRequest
) -> None:
    if large:
        request.getfixturevalue("in_blocks")
    columns = make_columns()
    labels, rows = columns["truth"].astype(object), np.arange(0, N, 5)
    columns["w"][rows] = 0
    labels[rows[::2]], labels[rows[1::2]] = "", "no class"
    file, model = write(tmp_path / f"cal.{form}", columns | {"truth": labels}), tmp_path / "m.npz"
    fit(file, model, "Beta", "--columns", "p", "--weights", "w")
    expected = bc.Beta().fit(columns["p"], columns["truth"], columns["w"])
    at = np.linspace(0, 1, 21)
    actual = load(model).predict_proba(at[:, None])
    np.testing.assert_allclose(actual, expected.predict_proba(at), atol=1e-9, rtol=0)
    line = ["evaluate", file, "--label", "truth", "--weights", "w", "--model", "p"]
    result = json.loads(run(*line, "--replicates", "2", "--json", "-").stdout)
    loss = bc.metrics.log_loss(columns["p"], columns["truth"], weights=columns["w"])
    assert result["models"]["p"]["metrics"]["log loss"]["value"] == pytest.approx(loss, rel=1e-9)

    row = int(np.flatnonzero(columns["w"] > 0)[3])
    labels[row] = ""
    write(file, columns | {"truth": labels})
    message = f"column 'truth' must hold labels, got an empty cell in row {row + 1}"
    line = ["fit", file, "--label", "truth", "--out", model, "--columns", "p", "--weights", "w"]
    check_error([str(word) for word in line], message)
    write(file, columns | {"w": np.zeros(len(labels))})
    check_error([str(word) for word in line], "column 'w' must hold a weight that is not zero")


@pytest.mark.usefixtures("in_blocks")
def test_two_classes(tmp_path: Path, form: str) -> None:
    columns = make_columns()
    file, model = write(tmp_path / f"cal.{form}", columns), tmp_path / "beta.npz"
    blocks = [*open_rows(file).rows(_streams.Wanted("truth", ["p"], "w"))]
    assert len(blocks) > 5
    np.testing.assert_array_equal(np.concatenate([b.scores for b in blocks])[:, 0], columns["p"])
    stderr = fit(file, model, "Beta", "--columns", "p", "--weights", "w").stderr
    cut = bc.Blocks.of(columns["p"], columns["truth"], columns["w"])
    bc.Beta().fit(cut)
    assert f"1,000 rows of p, {cut.passes + 1} passes over the file" in stderr
    expected = bc.Beta().fit(columns["p"], columns["truth"], columns["w"])
    at = np.linspace(0, 1, 21)
    actual = load(model).predict_proba(at[:, None])
    np.testing.assert_allclose(actual, expected.predict_proba(at), atol=1e-9, rtol=0)
    out = tmp_path / "out.csv"
    stderr = run("apply", model, file, "--out", out).stderr
    assert "1,000 rows with columns 'calibrated_ape', 'calibrated_bee'" in stderr
    with out.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["other"] for row in rows] == columns["other"].tolist()
    assert [row["p"] for row in rows] == [str(p) for p in columns["p"].tolist()]
    probs = [[float(row["calibrated_ape"]), float(row["calibrated_bee"])] for row in rows]
    np.testing.assert_allclose(probs, expected.predict_proba(columns["p"]), atol=1e-9, rtol=0)


@pytest.mark.usefixtures("in_blocks")
def test_several_classes_go_by_name(tmp_path: Path, form: str) -> None:
    columns = make_columns(3)
    z = np.stack([columns[f"z_{name}"] for name in ("ape", "bee", "cat")], axis=1)
    turned = {name: columns[name] for name in ("other", "z_cat", "truth", "z_ape", "z_bee")}
    file, model = write(tmp_path / f"cal.{form}", turned), tmp_path / "t.npz"
    stderr = fit(file, model, "Temperature", "--inputs", "logits").stderr
    assert "columns without numbers are left out: 'other'" in stderr
    assert "1,000 rows of z_ape, z_bee, z_cat, " in stderr
    expected = bc.Temperature(inputs="logits").fit(z, columns["truth"])
    actual = load(model).temperature_
    np.testing.assert_allclose(actual, expected.temperature_, rtol=1e-9)


def two_models() -> dict[str, np.ndarray]:
    columns = make_columns()
    return {**columns, "q": columns["p"] ** 1.1}


@cache
def evaluate_in_memory(weights: str | None) -> Any:
    """Evaluate these models in memory."""
    columns = two_models()
    return bc.evaluate(
        {"p": columns["p"], "b": columns["q"]},
        (columns["truth"] == "bee").astype(int),
        weights=None if weights is None else columns[weights],
        replicates=30,
        classes=["ape", "bee"],
    ).to_dict()


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize(
    ("form", "weights", "many"),
    [
        ("csv.gz", "w", False),
        ("parquet", "w", True),
        ("plain csv.gz", None, False),
    ],
    indirect=["form"],
)
def test_models_are_judged(
    tmp_path: Path, form: str, weights: str | None, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = two_models()
    file, page = write(tmp_path / f"new.{form}", columns), tmp_path / "page.html"
    if many:
        # Use the code path for a hundred million rows.
        monkeypatch.setattr("bayescal.evaluation._evaluate._MIN_ROWS_IN_CELLS", 100)
        monkeypatch.setattr("bayescal.metrics.uncertainty.measured_blocks.MANY", 100)
        monkeypatch.setattr("bayescal.metrics.uncertainty.calibration_tests.MANY", 100)
    line = ["evaluate", file, "--label", "truth", "--model", "p", "--model", "b=q"]
    line += ["--json", "-", "--replicates", "30", *(["--html", page] if weights is None else [])]
    actual = json.loads(run(*line, *(["--weights", weights] if weights else [])).stdout)
    assert actual["columns"] == {"p": ["p"], "b": ["q"]} and actual["cases"] == N
    expected = evaluate_in_memory(weights)
    assert actual["classes"] == expected["classes"]
    for name, known in expected["models"].items():
        for metric, interval in known["metrics"].items():
            if many and metric in ("ROC AUC", "average precision"):
                # Ranking metrics need all rows at once.
                assert metric not in actual["models"][name]["metrics"]
                continue
            ours = actual["models"][name]["metrics"][metric]
            assert ours["value"] == pytest.approx(interval["value"], abs=1e-9)
            if not many:
                assert ours == pytest.approx(interval, abs=1e-9)
        for field in ("verdict", "mean_confidence", "observed"):
            assert actual["models"][name][field] == pytest.approx(known[field], abs=1e-9)
    if weights is None:
        assert "1,000" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("in_blocks")
def test_what_is_wrong_with_probabilities_is_said(tmp_path: Path, form: str) -> None:
    columns = make_columns()
    columns["p"][700], columns["w"][650] = 1.5, -1
    file = write(tmp_path / f"new.{form}", columns)
    line = ["evaluate", str(file), "--label", "truth", "--model", "p"]
    for more, message in (([], "got 1.5 in row 701"), (["--weights", "w"], "got -1 in row 651")):
        stderr = CliRunner().invoke(app, [*line, *more]).stderr
        assert message in stderr and stderr.count("\n") == 1


@pytest.mark.parametrize("large", [False, True])
def test_rows_that_do_not_add_up_are_named(
    tmp_path: Path, form: str, large: bool, request: pytest.FixtureRequest
) -> None:
    if large:
        request.getfixturevalue("in_blocks")
    columns = make_columns(3)
    names = [name for name in columns if name.startswith("z_")]
    probs = softmax(np.stack([columns[name] for name in names], axis=1), axis=1)
    probs[700] *= 0.9
    columns = {**dict(zip(names, probs.T, strict=True)), "truth": columns["truth"]}
    file, model = write(tmp_path / f"cal.{form}", columns), str(tmp_path / "m.npz")
    line = ["fit", str(file), "--label", "truth", "--method", "Temperature", "--out", model]
    check_error(line, "the probabilities must add up to one, got 0.9 in row 701")
    # Rows of weight zero may hold anything.
    probs[700] = 2
    weights = np.ones(N)
    weights[700] = 0
    columns |= {**dict(zip(names, probs.T, strict=True)), "w": weights}
    write(file, columns)
    run(*line, "--weights", "w")
    others = np.arange(N) != 700
    expected = bc.Temperature().fit(probs[others], columns["truth"][others])
    assert load(Path(model)).temperature_ == pytest.approx(expected.temperature_, rel=1e-6)


@pytest.mark.usefixtures("in_blocks")
def test_what_needs_all_rows_gets_them(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = make_columns()
    file, model = write(tmp_path / f"cal.{form}", columns), tmp_path / "knn.npz"
    assert ", 2 passes over the file" in fit(file, model, "KNN", "--columns", "p").stderr
    expected = bc.KNN().fit(columns["p"], columns["truth"])
    at = np.linspace(0, 1, 21)
    actual = load(model).predict_proba(at[:, None])
    np.testing.assert_array_equal(actual, expected.predict_proba(at))
    # Small files are read once.
    monkeypatch.setattr(_streams, "LARGE", 1 << 20)
    assert ", 1 pass over the file" in fit(file, model, "Beta", "--columns", "p").stderr


GOOD = "".join(f"0.{1 + i % 8},{'ab'[i % 2]},\n" for i in range(500))


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ("p,truth,x\n" + GOOD + "abc,a,\n", []),
        ("p,truth,x\n" + GOOD + "nan,a,\n" + GOOD, []),
        ("p,truth,x\n" + GOOD + ",a,\n" + GOOD, []),
        ("p,truth,x\n" + GOOD + "1_0,a,\n" + GOOD, []),
        ("p,truth,x\n" + GOOD + "0.5, ,\n" + GOOD, []),
        ("p,truth,x\n" + GOOD + "0.5,a\n" + GOOD, []),
        ("p,truth,x\n" + GOOD + '0.5,a,"\n' + GOOD, []),
        ("p,truth,x\n" + GOOD + '0.5,a,"open\n' + GOOD + '0.5,a,"open\n' + GOOD, []),
        ("p,truth,x\n\n" + GOOD + "1e999,a,\n", []),
        ('"p",truth,"x\ny"\n\n' + GOOD + '\n0.5,b,"two\nlines"\n-1x,a,\n', []),
        ("p,truth,x\n" + GOOD, ["--classes", "a,c"]),
        ("p,truth,x\n" + GOOD.replace("b", "a"), []),
        ("p,truth,x\n" + GOOD, ["--columns", "q"]),
        ("p,truth,x\n" + GOOD, ["--columns", "truth"]),
        ("p,truth,x\n" + GOOD, ["--weights", "x"]),
        ("p,truth,x\n" + GOOD.replace(",\n", ",1\n") + "0.5,a,-1\n", ["--weights", "x"]),
        ("p,truth,truth\n" + GOOD, []),
        ("p,truth,x\n" + GOOD + "0.5,\0,\n", []),
        ("p,truth,x\n", []),
        ("", []),
    ],
)
@pytest.mark.parametrize("arrow", [True, False])
def test_errors_are_those_of_small_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    content: str,
    more: list[str],
    arrow: bool,
) -> None:
    file = tmp_path / "cal.csv"
    file.write_text(content, newline="")
    line = ["fit", str(file), "--label", "truth", "--out", str(tmp_path / "m.npz")]
    line += ["--method", "Beta", *more]
    expected = CliRunner().invoke(app, line)
    assert expected.exit_code == 2, expected.output
    request.getfixturevalue("in_blocks")
    if not arrow:
        monkeypatch.setattr(_streams, "_arrow", lambda: None)
    result = CliRunner().invoke(app, line)
    assert (result.exit_code, result.stdout) == (2, "")
    errors = [text for text in result.stderr.splitlines() if "left out" not in text]
    assert errors == [text for text in expected.stderr.splitlines() if "left out" not in text]


def test_parquet_without_rows(tmp_path: Path) -> None:
    file = tmp_path / "cal.parquet"
    parquet.write_table(pyarrow.table({"p": [0.5], "truth": ["a"]}).slice(0, 0), file)
    line = ["fit", str(file), "--label", "truth", "--out", str(tmp_path / "m.npz")]
    check_error(line, "the file must have rows")


@pytest.mark.parametrize("passes", [0, 1])
def test_a_type_error_after_a_pass_is_no_want_of_all_rows(passes: int) -> None:
    given: list[tuple[Any, ...]] = []

    class Calibrator:
        def fit(self, *rows: Any) -> None:
            given.append(rows)
            if isinstance(rows[0], bc.Blocks):
                for _ in range(passes):
                    bc.metrics.log_loss(rows[0])
                raise TypeError("cannot be fitted")

    block = np.array([0.2, 0.7]), np.array([0, 1])
    source: Any = SimpleNamespace(
        source=SimpleNamespace(large=True),
        _rows=lambda calibrator: iter([block]),
        _at_once=lambda read: next(iter(read())),
        _watch=lambda *parts: None,
    )
    if passes:
        with pytest.raises(TypeError, match="cannot be fitted"):
            _labeled.Training._fit(source, Calibrator())
        assert len(given) == 1
    else:
        _labeled.Training._fit(source, Calibrator())
        assert given[1] == block


@pytest.mark.usefixtures("in_blocks")
def test_what_only_the_slower_reader_takes(tmp_path: Path) -> None:
    """Check a quote inside a cell, which needs Python's reader, and spaces around cells."""
    columns = make_columns()
    p, y = columns["p"].tolist(), columns["truth"].tolist()
    lines = [f" {p[j]!r}, {y[j]} ,{'its' if j != 800 else '3' + chr(34)}\n" for j in range(N)]
    file = tmp_path / "cal.csv"
    file.write_text(" p,truth ,other\n" + "".join(lines))
    with pytest.raises(_streams.UnreadableError):
        [*open_rows(file).rows(_streams.Wanted("truth", ["p"], None))]
    fit(file, tmp_path / "m.npz", "Beta", "--columns", "p")
    expected = bc.Beta().fit(columns["p"], columns["truth"])
    np.testing.assert_allclose(
        load(tmp_path / "m.npz").predict_proba([[0.3]]), expected.predict_proba([0.3]), atol=1e-9
    )


@pytest.mark.usefixtures("in_blocks")
def test_a_separator_that_arrow_does_not_take(tmp_path: Path) -> None:
    columns = make_columns()
    rows = zip(columns["p"].tolist(), columns["truth"].tolist(), strict=True)
    file, model = tmp_path / "cal.csv", tmp_path / "m.npz"
    file.write_text("p§truth\n" + "".join(f"{p}§{y}\n" for p, y in rows), "utf-8")
    fit(file, model, "Beta", "--columns", "p", "--sep", "§")
    expected = bc.Beta().fit(columns["p"], columns["truth"]).predict_proba([0.3])
    np.testing.assert_allclose(load(model).predict_proba([[0.3]]), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [*[0.5] * 600, None, *[0.5] * 399]}, "numbers, got None in row 601"),
        ({"p": [*[0.5] * 600, np.nan, *[0.5] * 399]}, "numbers, got nan in row 601"),
        ({"p": [[0.5]] * N}, "got '[0.5]' in row 1; write one number in each cell"),
        ({"truth": [*"ab" * 300, None, *"a" * 399]}, "labels, got an empty cell in row 601"),
        ({"truth": [*"ab" * 300, " ", *"a" * 399]}, "labels, got an empty cell in row 601"),
    ],
)
@pytest.mark.usefixtures("in_blocks")
def test_errors_of_parquet(tmp_path: Path, change: dict[str, list], message: str) -> None:
    file = tmp_path / "cal.parquet"
    parquet.write_table(pyarrow.table({**make_columns(), **change}), file)
    line = ["fit", str(file), "--label", "truth", "--columns", "p", "--method", "Beta"]
    check_error([*line, "--out", str(tmp_path / "m.npz")], message)


def test_files_of_parquet_need_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "cal.parquet", make_columns())
    line = ["fit", str(file), "--label", "truth", "--out", str(tmp_path / "m.npz")]
    (tmp_path / "cut.parquet").write_bytes(file.read_bytes()[:-9])
    check_error([line[0], str(tmp_path / "cut.parquet"), *line[2:]], "cannot read the file")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check_error(line, 'Parquet and Feather need pyarrow: run pip install "bayescal[files]"')


def test_labels_of_any_type_in_parquet(tmp_path: Path) -> None:
    z = make_columns()["p"]
    for labels, classes in (
        (pyarrow.array(np.arange(N) % 3 == 0), ["False", "True"]),
        (pyarrow.array(np.arange(N) % 2 * 1.0), ["0", "1"]),
        # A category without rows is not a class.
        (pyarrow.array(np.array(["b", "a"])[np.arange(N) % 2]).dictionary_encode(), ["a", "b"]),
        (pyarrow.DictionaryArray.from_arrays(np.arange(N) % 2, ["b", "a", "c"]), ["a", "b"]),
    ):
        file = tmp_path / "cal.parquet"
        parquet.write_table(pyarrow.table({"p": z, "truth": labels}), file)
        fit(file, tmp_path / "m.npz", "Beta", "--columns", "p")
        assert load(tmp_path / "m.npz").classes_.tolist() == classes


@pytest.mark.usefixtures("in_blocks")
def test_parquet_is_written(tmp_path: Path) -> None:
    columns = {**make_columns(), "when": np.datetime64("2020-01-01") + np.arange(N)}
    file, out = write(tmp_path / "new.parquet", columns), tmp_path / "out.parquet"
    model = tmp_path / "m.npz"
    fit(file, model, "Beta", "--columns", "p")
    run("apply", model, file, "--out", out, "--prefix", "q_")
    actual, given = parquet.read_table(out), parquet.read_table(file)
    assert parquet.ParquetFile(out).num_row_groups > 5
    assert actual.column_names == [*columns, "q_ape", "q_bee"]
    assert actual.select([*columns]).equals(given)
    expected = load(model).predict_proba(columns["p"][:, None])
    np.testing.assert_array_equal(np.stack([actual["q_ape"], actual["q_bee"]], axis=1), expected)
    pd = pytest.importorskip("pandas")
    given.to_pandas().to_parquet(file)
    run("apply", model, file, "--out", out, "--prefix", "q_")
    assert list(pd.read_parquet(out)) == actual.column_names
    check_error(["apply", str(model), str(out), "--out", str(out), "--prefix", "q_"], "already")
    csv_file = write(tmp_path / "new.csv", columns)
    check_error(["apply", str(model), str(csv_file), "--out", str(out)], "written as text")


@pytest.mark.usefixtures("in_blocks")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_wrong_row_leaves_the_old_file(tmp_path: Path, ending: str) -> None:
    model, file, out = tmp_path / "m.npz", tmp_path / f"new.{ending}", tmp_path / f"o.{ending}"
    fit(write(file, make_columns()), model, "Beta", "--columns", "p")
    columns = make_columns()
    columns["p"][900] = np.nan
    write(file, columns)
    out.write_bytes(b"old")
    check_error(["apply", str(model), str(file), "--out", str(out)], "in row 901")
    assert out.read_bytes() == b"old"
    assert {path.name for path in tmp_path.iterdir()} == {"m.npz", file.name, out.name}


@pytest.mark.usefixtures("in_blocks")
def test_progress_is_lines_where_there_is_no_terminal(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, model = write(tmp_path / f"cal.{form}", make_columns()), tmp_path / "m.npz"
    stderr = fit(file, model, "Beta", "--columns", "p").stderr
    assert "%" not in stderr
    monkeypatch.setattr(_errors, "SECONDS", 0.0)
    lines = fit(file, model, "Beta", "--columns", "p").stderr.splitlines()
    shown = [re.fullmatch(rf"bayescal: {file.name}: (.+): (\d+)%", line) for line in lines]
    steps = [(match[1], int(match[2])) for match in shown if match]
    assert list(dict.fromkeys(name for name, _ in steps))[:3] == ["labels", "pass 2", "pass 3"]
    for name in ("labels", "pass 2", "pass 3"):
        shares = [share for step, share in steps if step == name]
        assert shares == sorted(shares) and shares[-1] == 100 and len(shares) > 5
    lines = run("apply", model, file, "--out", tmp_path / "out.csv").stderr.splitlines()
    assert f"bayescal: {file.name}: 100%" in lines


@pytest.mark.usefixtures("in_blocks")
def test_progress_is_a_bar_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(_errors, "SECONDS", 0.0)
    file = write(tmp_path / "cal.csv", make_columns())
    stderr = fit(file, tmp_path / "m.npz", "Beta", "--columns", "p").stderr
    assert "━" in stderr and "%" not in stderr


@pytest.mark.usefixtures("in_blocks")
def test_a_column_that_is_no_label_does_not_fill_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayescal.cli.tables.labeled._MAX_LABELS", 100)
    file = write(tmp_path / "cal.csv", make_columns())
    line = ["fit", str(file), "--label", "p", "--out", str(tmp_path / "m.npz")]
    check_error(line, "column 'p' must hold labels, got more than 100 different ones")


COMMANDS = """
import sys
from functools import cache
from pathlib import Path
from bayescal.data.blocks import reader as _rows
from bayescal.cli import app
from bayescal.cli.tables import streams as _streams

_streams.LARGE = _streams.BYTES = 1 << 18
_streams.ROWS, _rows._SAMPLE = 1 << 13, 1 << 12
folder, file = Path(sys.argv[1]), sys.argv[2]
lines = ["fit", file, "--label", "truth", "--method", "Beta", "--out", str(folder / "m.npz")]
app(lines, standalone_mode=False)
lines = ["apply", str(folder / "m.npz"), file, "--out", str(folder / ("out" + Path(file).suffix))]
app(lines, standalone_mode=False)
status = Path("/proc/self/status").read_text().splitlines()
print("most", next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, ending: str) -> None:
    most = []
    for n in (50_000, 500_000):
        columns = make_columns(n=n)
        file = write(tmp_path / f"cal.{ending}", {name: columns[name] for name in ("p", "truth")})
        line = [sys.executable, "-c", COMMANDS, str(tmp_path), str(file)]
        output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
        most.append(int(output.rpartition("most ")[2]) / 1024)
    # All rows as text would take 100 MB.
    assert most[1] < most[0] + 40, most
