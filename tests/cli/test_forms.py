"""File formats that commands read and write, and their messages about methods."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from typer.testing import CliRunner

import bayescal as bc
from bayescal.calibrators.catalog import METHODS
from bayescal.cli import app
from bayescal.cli.tables import files as _files
from bayescal.cli.tables import streams as _streams
from bayescal.cli.tables.columns import find_classes
from bayescal.cli.tables.json_lines import with_members
from bayescal.cli.tables.streams import open_rows

pyarrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
pytest.importorskip("pyarrow.csv")
pd = pytest.importorskip("pandas")

N = 400


def make_frame() -> Any:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, N)
    truth = np.where(rng.uniform(size=N) < p, "wéi", "nicht")
    return pd.DataFrame({"p": p, "truth": truth, "note": [f'a;b\t"{i}",c' for i in range(N)]})


def invoke(*line: object, **more: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in line], **more)


def run(*line: object, **more: Any) -> Any:
    result = invoke(*line, **more)
    assert result.exit_code == 0, result.stderr
    return result


def check_error(message: str, *line: object) -> None:
    result = invoke(*line)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and result.stderr.count("\n") == 1


def write_form(folder: Path, form: str) -> tuple[Path, list[str]]:
    """Write the frame in a format, and return the file and the matching options."""
    data = make_frame()
    file = folder / f"scores.{form.partition(':')[0]}"
    if form == "feather":
        feather.write_feather(data, file, chunksize=100)
        return file, []
    if form.startswith("jsonl"):
        text = "".join(f"{json.dumps(row)}\n" for row in data.to_dict("records"))
        file.write_bytes(gzip.compress(text.encode()) if form.endswith(".gz") else text.encode())
        return file, []
    sep = {"tsv": "\t", "tsv.gz": "\t", "csv:;": ";"}.get(form, ",")
    encoding = {"csv:latin-1": "latin-1", "csv:utf-16": "utf-16"}.get(form, "utf-8")
    text = data.to_csv(index=False, sep=sep).encode(encoding)
    if form.endswith(".gz"):
        text = gzip.compress(text)
    if form.endswith(".zst"):
        stream = pyarrow.BufferOutputStream()
        with pyarrow.CompressedOutputStream(stream, "zstd") as packed:
            packed.write(text)
        text = stream.getvalue().to_pybytes()
    file.write_bytes(text)
    more = ["--sep", ";"] if sep == ";" else []
    return file, [*more, *(["--encoding", encoding] if encoding != "utf-8" else [])]


FORMS = ["csv", "tsv", "tsv.gz", "csv.zst", "csv:;", "csv:latin-1", "csv:utf-16", "feather"]
FORMS += ["jsonl", "jsonl.gz"]


SMALL = ["csv:;", "csv:latin-1", "feather", "jsonl.gz"]


@pytest.mark.parametrize(
    ("form", "large"), [*((form, True) for form in FORMS), *((form, False) for form in SMALL)]
)
def test_every_form_is_read(
    tmp_path: Path, form: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        for name, value in {"LARGE": 0, "ROWS": 64, "BYTES": 4096}.items():
            monkeypatch.setattr(_streams, name, value)
    file, more = write_form(tmp_path, form)
    data = make_frame()
    model, out = tmp_path / "m.safetensors", tmp_path / "out.csv"
    line = ["--label", "truth", "--columns", "p", "--method", "beta", "--out", model]
    run("fit", file, *line, *more)
    expected = bc.Beta(classes=("nicht", "wéi")).fit(data["p"].to_numpy(), data["truth"])
    run("apply", model, file, "--out", out, *more)
    actual = pd.read_csv(out, sep=";" if ";" in form else ",")
    assert [*actual.columns[-2:]] == ["calibrated_nicht", "calibrated_wéi"]
    assert actual["note"].tolist() == data["note"].tolist()
    probs = actual.to_numpy()[:, -2:].astype(float)
    np.testing.assert_allclose(probs, expected.predict_proba(data["p"].to_numpy()), atol=1e-9)
    result = run("evaluate", file, "--label", "truth", "--model", "p", "--replicates", 20, *more)
    loss = bc.metrics.log_loss(data["p"].to_numpy(), data["truth"].to_numpy())
    assert f"{loss:.4f}" in result.stdout


def test_forms_of_output(tmp_path: Path) -> None:
    file, _ = write_form(tmp_path, "feather")
    model = tmp_path / "m.safetensors"
    run("fit", file, "--label", "truth", "--columns", "p", "--method", "BETA", "--out", model)
    for ending, read in (
        ("feather", feather.read_feather),
        ("parquet", pd.read_parquet),
        ("tsv", lambda path: pd.read_csv(path, sep="\t")),
        ("csv.gz", pd.read_csv),
    ):
        out = tmp_path / f"out.{ending}"
        run("apply", model, file, "--out", out)
        actual = read(out)
        assert [*actual.columns] == [*make_frame().columns, "calibrated_nicht", "calibrated_wéi"]
        np.testing.assert_array_equal(actual["p"], make_frame()["p"])
    run("apply", model, file, "--out", tmp_path / "out.csv.zst")
    with pyarrow.input_stream(tmp_path / "out.csv.zst", compression="zstd") as stream:
        assert len(pd.read_csv(io.BytesIO(stream.read()))) == N


def test_standard_input(tmp_path: Path) -> None:
    data = make_frame()
    text = data.to_csv(index=False)
    line = ["evaluate", "-", "--label", "truth", "--model", "p", "--replicates", 20]
    expected = bc.metrics.log_loss(data["p"].to_numpy(), data["truth"].to_numpy())
    assert f"{expected:.4f}" in run(*line, input=text).stdout
    model = tmp_path / "m.safetensors"
    run("fit", "-", "--label", "truth", "--columns", "p", "--out", model, input=text)
    printed = run("apply", model, "-", "--out", "-", input=text).stdout
    assert len(pd.read_csv(io.StringIO(printed))) == N


def test_intervals(tmp_path: Path) -> None:
    file, _ = write_form(tmp_path, "csv")
    data, model, out = make_frame(), tmp_path / "m.safetensors", tmp_path / "out.csv"
    fit = ["fit", file, "--label", "truth", "--columns", "p", "--out", model]
    run(*fit, "--method", "Beta", "--option", "inference=laplace", "--option", "parameters=2")
    run("apply", model, file, "--out", out, "--interval", "0.8")
    expected = bc.Beta(inference="laplace", parameters=2, random_state=0).fit(
        data["p"].to_numpy(), data["truth"]
    )
    lower, upper = expected.predict_interval(data["p"].to_numpy(), 0.8)
    actual = pd.read_csv(out)
    names = [f"calibrated_{name}" for name in ("nicht", "wéi", "wéi_lower", "wéi_upper")]
    assert [*actual.columns[-4:]] == names
    np.testing.assert_allclose(actual[names[2]], lower, atol=1e-9)
    np.testing.assert_allclose(actual[names[3]], upper, atol=1e-9)
    run(*fit, "--method", "Beta")
    check_error(
        "--interval needs a posterior", "apply", model, file, "--out", out, "--interval", 0.8
    )
    check_error("between 0 and 1", "apply", model, file, "--out", out, "--interval", 1)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_a_byte_order_mark_is_no_part_of_a_name(
    tmp_path: Path, encoding: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(_streams, "LARGE", 0)
    file, out = tmp_path / "scores.csv", tmp_path / "m.safetensors"
    file.write_bytes(f"\ufeff{make_frame()[['p', 'truth']].to_csv(index=False)}".encode(encoding))
    run(
        "fit", file, "--columns", "p", "--label", "truth", "--method", "platt", "--out", out,
        "--encoding", encoding,
    )  # fmt: skip
    assert bc.load(out).feature_names_in_.tolist() == ["p"]


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    file, _ = write_form(tmp_path, "csv:;")
    fit = ["--label", "truth", "--out", tmp_path / "m.npz"]
    check_error("if ';' separates cells, pass --sep", "fit", file, *fit)
    check_error("--sep must be one character, got ';;'", "fit", file, *fit, "--sep", ";;")
    check_error("--encoding must be one that Python knows", "fit", file, *fit, "--encoding", "x")
    other, _ = write_form(tmp_path, "csv:latin-1")
    check_error("pass its encoding with --encoding", "fit", other, *fit)
    plain = tmp_path / "two.csv"
    make_frame().assign(q=0.5).to_csv(plain, index=False)
    check_error("pass --columns COLUMN for the score", "fit", plain, *fit)
    line = ["fit", plain, *fit, "--columns", "p"]
    check_error("--method must be one of Auto, AveragedBeta", *line, "--method", "bet")
    wrong = "--option must be NAME=VALUE with one of inference, num_samples, parameters"
    check_error(wrong, *line, "--method", "beta", "--option", "parameter=2")
    check_error("parameters must be", *line, "--method", "beta", "--option", "parameters=7")


def test_methods_are_listed() -> None:
    lines = run("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines] == METHODS
    assert all(len(line.split()) > 3 for line in lines)
    two = [line.split()[0] for line in lines if "two classes" in line[20:45]]
    assert "Isotonic" in two and "Temperature" not in two


def test_predictions_at_the_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 60)
    data = pd.DataFrame({"s": rng.normal(2 * y - 1), "y": y})
    file = tmp_path / "scores.tsv"
    data.to_csv(file, sep="\t", index=False)
    prior = "gaussian:mu0=uniform(-3,0),mu1=uniform(0,3),sigma=1"
    line = ["predict", file, "--label", "y", "--score", "s", "--prior", prior, "--integrator"]
    printed = run(*line, "quadrature", "--out", tmp_path / "out.tsv")
    assert printed.stdout == ""
    actual = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    run(*line, "quadrature", "--new", file, "--out", tmp_path / "again.tsv")
    assert (tmp_path / "again.tsv").read_bytes() == (tmp_path / "out.tsv").read_bytes()
    assert [*actual.columns] == ["s", "y", "prob"] and actual["prob"].between(0, 1).all()


def test_predictions_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check both files in blocks, since neither has to fit in memory."""
    for name, value in {"LARGE": 0, "ROWS": 32}.items():
        monkeypatch.setattr(_streams, name, value)
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 60)
    s = rng.normal(2 * y - 1)
    pd.DataFrame({"s": s, "y": y}).to_csv(known := tmp_path / "known.csv", index=False)
    new = make_frame()[:80].assign(s=np.linspace(-2, 2, 80), when=pd.Timestamp("2026-01-01"))
    new.to_parquet(file := tmp_path / "new.parquet", index=False)
    prior = bc.GaussianPrior(mu0=dist.Uniform(-3, 0), mu1=dist.Uniform(0, 3), sigma=1.0)
    with jax.enable_x64(True):
        points = new["s"].to_numpy()
        expected = bc.posterior_predict(prior, (s, y), points, num_samples=2000, key=3)
        columns = [np.asarray(column) for column in (expected.probs, *expected.interval(0.8))]
    prior_text = "gaussian:mu0=uniform(-3,0),mu1=uniform(0,3),sigma=1"
    line = ["predict", known, "--label", "y", "--score", "s", "--prior", prior_text, "--new"]
    more = ["--num-samples", 2000, "--seed", 3, "--interval", 0.8, "--out"]
    for ending, read in (
        ("feather", feather.read_feather),
        ("csv.zst", lambda path: pyarrow.csv.read_csv(path).to_pandas()),
    ):
        out = tmp_path / f"out.{ending}"
        result = run(*line, file, *more, out)
        assert f"80 rows written to {out}" in result.stderr
        actual = read(out)
        assert [*actual.columns] == [*new.columns, "prob", "lower", "upper"]
        assert actual["note"].tolist() == new["note"].tolist()
        if ending == "feather":
            pd.testing.assert_frame_equal(actual[[*new.columns]], new)
        np.testing.assert_allclose(actual.to_numpy()[:, -3:].T.astype(float), columns, rtol=1e-9)
    table = pd.read_csv(io.StringIO(run(*line, file, *more, "-").stdout))
    np.testing.assert_allclose(table["prob"], columns[0], rtol=1e-9)
    wrong = "rows of text are written as text"
    check_error(wrong, *line, known, *more, tmp_path / "none.parquet")
    assert not (tmp_path / "none.parquet").exists()


def in_blocks(monkeypatch: pytest.MonkeyPatch, arrow: bool = True) -> None:
    """Read files in blocks, with Arrow or with Python."""
    for name, value in {"LARGE": 0, "ROWS": 64, "BYTES": 4096}.items():
        monkeypatch.setattr(_streams, name, value)
    if not arrow:
        monkeypatch.setattr(_streams, "_arrow", lambda: None)


@pytest.fixture
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "at once":
        in_blocks(monkeypatch, request.param == "Arrow")
    return request.param


def loss(*line: object) -> float:
    actual = json.loads(run("evaluate", *line, "--replicates", 20, "--json", "-").stdout)
    (model,) = actual["models"].values()
    return model["metrics"]["log loss"]["value"]


@pytest.mark.parametrize(
    ("reader", "sep"), [("at once", ","), ("Arrow", ";"), ("Python", ",")], indirect=["reader"]
)
def test_decimal_commas(tmp_path: Path, reader: str, sep: str) -> None:
    data = make_frame().assign(w=np.linspace(0.5, 2.5, N))
    file, model, out = tmp_path / "in.csv", tmp_path / "m.safetensors", tmp_path / "out.csv"
    written = data.assign(p=data["p"].map(repr).str.replace(".", ","))
    written.to_csv(file, sep=sep, index=False, decimal=",", quoting=csv.QUOTE_NONNUMERIC)
    form = ["--sep", sep, "--decimal", ","]
    p, y, w = data["p"].to_numpy(), data["truth"].to_numpy(), data["w"].to_numpy()
    expected = bc.metrics.log_loss(p, y, weights=w)
    line = ["--label", "truth", "--weights", "w", *form]
    assert loss(file, "--model", "p", *line) == pytest.approx(expected, rel=1e-9)
    run("fit", file, *line, "--columns", "p", "--method", "beta", "--out", model)
    run("apply", model, file, "--out", out, *form)
    actual = pd.read_csv(out, sep=sep, decimal=",")
    np.testing.assert_array_equal(actual["p"], p)
    expected = bc.Beta().fit(p, y, w).predict_proba(p)
    np.testing.assert_allclose(actual[[*actual.columns[-2:]]], expected, atol=1e-9)
    # The output file is read in the format in which it was written.
    column = "calibrated_wéi"
    assert loss(out, "--label", "truth", "--model", column, *form) == pytest.approx(
        bc.metrics.log_loss(expected[:, 1], y), abs=1e-9
    )
    # Points would be thousands separators.
    file.write_text(file.read_text("utf-8").replace("0,", "0."), "utf-8")
    check_error("for decimal points leave out --decimal", "evaluate", file, "--model", "p", *line)


@pytest.mark.parametrize("reader", ["at once", "Arrow", "Python"], indirect=True)
def test_labels_with_decimal_commas(tmp_path: Path, reader: str) -> None:
    """Check that numbers of labels, not their texts, order the classes."""
    data = make_frame()
    p, y = data["p"].to_numpy(), np.where(data["truth"] == "wéi", 10.0, 9.5)
    file, model = tmp_path / "in.csv", tmp_path / "m.safetensors"
    pd.DataFrame({"p": p, "y": y}).to_csv(file, sep=";", decimal=",", index=False)
    line = [file, "--label", "y", "--sep", ";", "--decimal", ","]
    assert loss(*line) == pytest.approx(bc.metrics.log_loss(p, y == 10), rel=1e-9)
    run("fit", *line, "--method", "beta", "--out", model)
    assert bc.load(model).classes_.tolist() == ["9.5", "10"]


def test_decimal_commas_of_other_files(tmp_path: Path) -> None:
    data = make_frame()
    data.to_parquet(file := tmp_path / "in.parquet")
    model, out = tmp_path / "m.safetensors", tmp_path / "out.csv"
    run("fit", file, "--label", "truth", "--columns", "p", "--method", "beta", "--out", model)
    run("apply", model, file, "--out", out, "--sep", ";", "--decimal", ",")
    actual = pd.read_csv(out, sep=";", decimal=",")
    np.testing.assert_array_equal(actual["p"], data["p"])
    assert actual["calibrated_wéi"].dtype == float
    exact = data.assign(p=[Decimal(f"{p:.6f}") for p in data["p"]])
    exact.to_parquet(file)
    run("apply", model, file, "--out", out, "--sep", ";", "--decimal", ",")
    actual = pd.read_csv(out, sep=";", decimal=",")
    np.testing.assert_array_equal(actual["p"], exact["p"].astype(float))
    text = data.assign(p=data["p"].map(repr).str.replace(".", ","))
    text.to_parquet(file)
    expected = bc.metrics.log_loss(data["p"].to_numpy(), data["truth"].to_numpy())
    line = [file, "--label", "truth", "--model", "p"]
    assert loss(*line, "--decimal", ",") == pytest.approx(expected, rel=1e-12)
    check_error("for decimal commas pass --decimal ,", "evaluate", *line)
    check_error("--decimal must be . or ,", "evaluate", *line, "--decimal", ";")
    y = np.arange(60) % 2
    s = np.random.default_rng(1).normal(2 * y - 1)
    scores = pd.DataFrame({"s": s, "y": y})
    args = ["--label", "y", "--score", "s", "--integrator", "quadrature", "--out", "-", "--prior"]
    args.append("gaussian:mu0=uniform(-3,0),mu1=uniform(0,3),sigma=1")
    actual = []
    for sep, point in ((",", "."), (";", ",")):
        scores.to_csv(known := tmp_path / "known.csv", sep=sep, decimal=point, index=False)
        printed = run("predict", known, *args, "--sep", sep, "--decimal", point).stdout
        actual.append(pd.read_csv(io.StringIO(printed), sep=sep, decimal=point))
    pd.testing.assert_frame_equal(*actual)


@pytest.mark.parametrize(
    ("reader", "sign"),
    [("at once", ""), ("at once", " %"), ("Arrow", "%"), ("Arrow", ""), ("Python", "%")],
    indirect=["reader"],
)
def test_percentages(tmp_path: Path, reader: str, sign: str) -> None:
    data = make_frame()
    percent = 100 * data["p"]
    file, model = tmp_path / "in.csv", tmp_path / "m.safetensors"
    data.assign(p=percent.map(repr) + sign).to_csv(file, index=False)
    p, y = percent.to_numpy() / 100, data["truth"].to_numpy()
    line, more = [file, "--label", "truth"], ["--inputs", "percent"]
    advice = "for percentages pass --inputs percent"
    fit = ["fit", *line, "--columns", "p", "--method", "beta", "--out", model]
    check_error(advice, "evaluate", *line, "--model", "p")
    check_error(advice, *fit)
    expected = bc.metrics.log_loss(p, y)
    assert loss(*line, "--model", "p", *more) == pytest.approx(expected, rel=1e-9)
    run(*fit, *more)
    apply = ["apply", model, file, "--out", tmp_path / "out.csv"]
    check_error(advice, *apply)
    check_error("--inputs must be percent or left out", *apply, "--inputs", "probs")
    run(*apply, *more)
    actual = pd.read_csv(tmp_path / "out.csv")["calibrated_wéi"]
    np.testing.assert_allclose(actual, bc.Beta().fit(p, y).predict_proba(p)[:, 1], atol=1e-9)


def test_logits_are_not_taken_for_percentages(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    for cells, advice in (
        ("90,2,70", "for percentages pass --inputs percent"),
        ("0.5,0.2,100", "for percentages pass --inputs percent"),
        ("3.2,-0.1,1", "for logits pass --inputs logits"),
        ("3.2,0.1,101", "for logits pass --inputs logits"),
    ):
        rows = [f"{cell},{j % 2}\n" for j, cell in enumerate(cells.split(","))]
        file.write_text("p,y\n" + "".join(rows))
        check_error(advice, "evaluate", file, "--label", "y")
        check_error(advice, "fit", file, "--label", "y", "--out", tmp_path / "m")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("0,9", "'0,9', which is not a number; for decimal commas pass --decimal ,"),
        ("4,327", "commas between thousands must be removed"),
        ("90%", "'90%', which is not a number; for percentages pass --inputs perc"),
        ("90,5%", "for percentages pass --inputs percent and --decimal ,"),
        ("[0.1 0.9]", "holds '[0.1 0.9]', which is not a number; write one number in each cell"),
        ("high", "column 'p' holds 'high', which is not a number; there must be probabilities"),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_cells_in_another_notation_are_named(
    tmp_path: Path, ending: str, cell: str, message: str
) -> None:
    data = pd.DataFrame({"id": ["a", "b"], "y": [0, 1], "p": [cell, cell]})
    file = tmp_path / f"in.{ending}"
    data.to_csv(file, index=False) if ending == "csv" else data.to_parquet(file)
    check_error(message, "evaluate", file, "--label", "y")
    check_error(message, "fit", file, "--label", "y", "--out", tmp_path / "m")
    # Next to a numeric column it is left out with the advice above.
    data.assign(q=0.5).to_csv(file := tmp_path / "two.csv", index=False)
    stderr = run("evaluate", file, "--label", "y", "--replicates", 20).stderr
    assert (message.partition("which")[0] in stderr) == (cell != "high")
    named = invoke("evaluate", file, "--label", "y", "--model", "p").stderr
    assert f"column 'p' must hold finite numbers, got {cell!r} in row 1 (line 2)" in named


LONG = [900000000000207008, 900000000000207009, 900000000000207011]


@pytest.mark.parametrize(
    ("reader", "ending"),
    [("at once", "parquet"), ("Arrow", "csv"), ("Arrow", "parquet"), ("Python", "csv")],
    indirect=["reader"],
)
def test_long_numbers_as_labels_stay_apart(tmp_path: Path, reader: str, ending: str) -> None:
    """Check labels as text and as 64-bit integers."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(N, 3))
    y = rng.integers(0, 3, N)
    data = pd.DataFrame(logits, columns=[str(label) for label in LONG])
    data = data.assign(y=np.array(LONG)[y])[["y", *map(str, LONG[::-1])]]
    file = tmp_path / f"in.{ending}"
    data.to_csv(file, index=False) if ending == "csv" else data.to_parquet(file)
    line = [file, "--label", "y", "--inputs", "logits"]
    expected = bc.metrics.log_loss(logits, y, inputs="logits")
    assert loss(*line) == pytest.approx(expected, rel=1e-9)
    model = tmp_path / "m.safetensors"
    run("fit", *line, "--method", "temperature", "--out", model)
    assert bc.load(model).classes_.tolist() == [str(label) for label in LONG]


def test_equal_numbers_are_one_label_and_others_are_not() -> None:
    def classes(*cells: str) -> list[str]:
        return find_classes(Path("f"), "y", cells, None)[0]

    many = "1", "1.0", "10", "+1e1", "2.50", "2.5", "-0", "0E500"
    assert classes(*many) == ["0", "1", "2.5", "10"]
    long = "9007199254740992", "9007199254740993", "90071992547409935e-1"
    assert classes(long[1], f"{long[0]}.0", "9007199254740993.5") == [*long]
    near = "1000000000000000055511151231257827"
    assert classes("0.1", f"0.{near}") == ["0.1", f"{near}e-34"]
    assert classes("1e-99999999999999999999", "1") == ["1", "1e-99999999999999999999"]


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_what_unpacks_to_much_is_read_in_blocks(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "p,y,t\n" + "".join(f"0.{1 + j % 9},{j % 2},{80 * 'x'}\n" for j in range(5000))
    with pyarrow.CompressedOutputStream(
        file := tmp_path / f"in.csv.{ending}", {"gz": "gzip"}.get(ending, "zstd")
    ) as stream:
        stream.write(text.encode())
    assert not open_rows(file).large
    packed = file.read_bytes()
    assert len(packed) < 1 << 16 < len(text)
    line = ["evaluate", file, "--label", "y", "--model", "p", "--replicates", 20]
    expected = run(*line).stdout
    monkeypatch.setattr(_streams, "LARGE", 1 << 16)
    assert open_rows(file).large
    assert run(*line).stdout == expected
    # Input that can be read only once is refused.
    monkeypatch.setattr(_streams, "PIPED", 1 << 16)
    result = invoke("evaluate", "-", "--label", "y", input=packed)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "-: input that is not a regular file must have at most" in result.stderr


def test_lines_and_blocks_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "in.csv"
    monkeypatch.setattr(_files, "LINE", 1000)
    for lines in (["p,y", "0" * 1001], ["p" * 2000 + ",y", "0.5,1"]):
        file.write_text("\n".join(lines))
        number = 1 + (len(lines[0]) < 1000)
        check_error(f"line {number} has more than 1,000 char", "evaluate", file, "--label", "y")
        in_blocks(monkeypatch)
        check_error(f"line {number} has more than 1,000 char", "evaluate", file, "--label", "y")
        monkeypatch.setattr(_streams, "LARGE", 1 << 20)
    monkeypatch.setattr(_files, "CELLS", 100)
    columns = {f"c{j}": np.arange(90) for j in range(30)}
    pd.DataFrame(columns).to_csv(file, index=False)
    pd.DataFrame(columns).to_parquet(other := tmp_path / "in.parquet")
    in_blocks(monkeypatch)
    for path in (file, other):
        assert [len(table.rows) for table in open_rows(path).tables()] == 30 * [3]


OBJECTS = [
    '{"id": 900000000000207008, "p": 0.10, "y": false, "tags": ["a", {"b": 1.50}], "note": "ü\\n"}',
    '{"y": true, "p": 9e-1, "extra": null}',
    "",
    '{"p": 0.75, "y": true, "id": 7 }',
    '{"p": "0.25", "y": false}',
]


@pytest.mark.parametrize("large", [False, True])
def test_json_lines(tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that objects keep their members and gain new ones."""
    if large:
        in_blocks(monkeypatch)
    file, model, out = tmp_path / "in.jsonl", tmp_path / "m.safetensors", tmp_path / "out.jsonl"
    file.write_text("\n".join(OBJECTS), "utf-8")
    p, y = np.array([0.1, 0.9, 0.75, 0.25]), np.array([0, 1, 1, 0])
    line = ["--label", "y", "--model", "p"]
    assert loss(file, *line) == pytest.approx(bc.metrics.log_loss(p, y), rel=1e-12)
    fit = ["--label", "y", "--columns", "p", "--method", "isotonic", "--out", model]
    run("fit", file, *fit)
    assert bc.load(model).classes_.tolist() == ["false", "true"]
    expected = bc.Isotonic().fit(p, y).predict_proba(p)
    run("apply", model, file, "--out", out)
    lines = out.read_text("utf-8").splitlines()
    given = [text for text in OBJECTS if text]
    assert [text.partition(', "calibrated')[0] for text in lines] == [
        text[:-1].rstrip() for text in given
    ]
    added = [[*json.loads(text).items()][-2:] for text in lines]
    assert [[name for name, _ in pairs] for pairs in added] == 4 * [
        ["calibrated_false", "calibrated_true"]
    ]
    np.testing.assert_allclose([[q for _, q in pairs] for pairs in added], expected, atol=1e-9)
    # The format is also detected from the first line, and used for printing.
    text = file.read_text("utf-8")
    assert run("apply", model, "-", "--out", "-", input=text).stdout.splitlines() == lines
    run("apply", model, file, "--out", tmp_path / "out.csv")
    actual = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert [*actual.columns] == ["id", "p", "y", "tags", "note", "extra", *dict(added[0])]
    assert [*actual.iloc[0, :5]] == ["900000000000207008", "0.10", "false", "[a, {b: 1.50}]", "ü\n"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file must not be empty"),
        ('{"p": 0.5, "y": 1}\n{"p": 0.5,', "line 2 is not JSON: "),
        ("[1]", "line 1 must be a JSON object"),
        ('{"p": 0.5, "y": 1}\n{"y": 0}', "must hold finite numbers, got '' in row 2 (line 2)"),
        ('{"p": [0.5, 0.5], "y": 1}\n{"p": [1, 0], "y": 0}', "write one number in each cell"),
        ('{"p": 0.5, "y": ' + 100_000 * "[", "line 1 is not JSON: "),
        ('{"p": NaN, "y": 1}\n{"p": 1, "y": 0}', "finite numbers, got 'NaN' in row 1"),
    ],
)
def test_wrong_json_lines(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(content)
    check_error(message, "evaluate", file, "--label", "y")


def test_json_lines_are_made_of_json_lines(tmp_path: Path) -> None:
    file, _ = write_form(tmp_path, "csv")
    model = tmp_path / "m.safetensors"
    run("fit", file, "--label", "truth", "--columns", "p", "--method", "beta", "--out", model)
    apply = ["apply", model, file, "--out"]
    check_error("only JSON lines are written as JSON lines", *apply, tmp_path / "out.jsonl")
    assert with_members("{}", ["a"], [0.5]) == '{"a": 0.5}\n'


@pytest.mark.parametrize(
    ("reader", "form"),
    [("at once", "jsonl"), ("Arrow", "csv"), ("Arrow", "parquet"), ("Python", "csv")],
    indirect=["reader"],
)
def test_missing_predictions_are_skipped(tmp_path: Path, reader: str, form: str) -> None:
    data = make_frame().assign(q=lambda table: table["p"] ** 1.1, w=1.0)
    data.loc[[3, 70, 71, N - 1], "p"] = np.nan
    data.loc[[5, 71], "q"] = np.nan
    file = tmp_path / f"in.{form}"
    if form == "csv":
        data.to_csv(file, index=False, na_rep="NA")
    elif form == "jsonl":
        rows = data.astype(object).where(data.notna(), None).to_dict("records")
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        data.to_parquet(file)
    line, skip = [file, "--label", "truth", "--weights", "w"], "--skip-missing"
    models = ["--model", "p", "--model", "q"]
    check_error("in row 4", "evaluate", *line, *models)
    missing = ["fit", *line, "--columns", "p", "--out", tmp_path / "m.safetensors"]
    check_error("; pass --skip-missing to skip rows", *missing)
    known = data.dropna()
    result = run("evaluate", *line, *models, skip, "--replicates", 20, "--json", "-")
    assert "rows without predictions, left out: 5 of 400" in result.stderr
    actual = json.loads(result.stdout)
    for name in ("p", "q"):
        expected = bc.metrics.log_loss(known[name].to_numpy(), known["truth"].to_numpy())
        value = actual["models"][name]["metrics"]["log loss"]["value"]
        assert value == pytest.approx(expected, rel=1e-9)
    model, out = tmp_path / "m.safetensors", tmp_path / f"out.{form}"
    fit = ["fit", *line, "--columns", "p", "--method", "beta", "--out", model]
    assert "rows without predictions, left out: 4 of 400" in run(*fit, skip).stderr
    apply = ["apply", model, file, "--out", out]
    check_error("in row 4", *apply)
    assert "rows without scores, which got empty cells: 4" in run(*apply, skip).stderr
    read = {"csv": pd.read_csv, "jsonl": partial(pd.read_json, lines=True)}
    probs = read.get(form, pd.read_parquet)(out)["calibrated_wéi"].to_numpy(float)
    p, y = data["p"].to_numpy(), data["truth"].to_numpy()
    given = ~np.isnan(p)
    expected = bc.Beta().fit(p[given], y[given]).predict_proba(p[given])[:, 1]
    np.testing.assert_allclose(probs[given], expected, atol=1e-9)
    assert np.isnan(probs[~given]).all()


def test_what_is_not_skipped(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    line = ["evaluate", file, "--label", "y", "--model", "p", "--skip-missing"]
    for rows, more, message in (
        ("0.5,1,\n0.4,0,1\n", ["--weights", "w"], "column 'w' must hold finite numbers, got ''"),
        ("0.5,,1\n0.4,0,1\n", [], "must hold labels, got an empty cell in row 1"),
        ("high,1,1\n0.4,0,1\n", [], "column 'p' must hold finite numbers, got 'high'"),
        ("inf,1,1\n0.4,0,1\n", [], "column 'p' must hold finite numbers, got 'inf'"),
        (",1,1\nNA,0,1\n", [], "every row lacks a prediction"),
    ):
        file.write_text(f"p,y,w\n{rows}")
        check_error(message, *line, *more)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("fit d.csv --method iso", ["isotonic"]),
        ("evaluate d.csv --inputs ", ["probs", "percent", "logits"]),
        ("predict --integrator n", ["nuts"]),
        ("apply d.csv --decimal ", [".", ","]),
    ],
)
def test_shells_complete_values(words: str, values: list[str]) -> None:
    position = str(len(words.split(" ")))
    shell = {"COMP_WORDS": f"bayescal {words}", "COMP_CWORD": position}
    code = "import sys; sys.argv[0] = 'bayescal'; from bayescal.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **shell, "_BAYESCAL_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert result.stdout.split() == values
