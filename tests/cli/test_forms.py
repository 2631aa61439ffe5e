"""Files in every form that commands read and write, and what they say of methods."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from typer.testing import CliRunner

import bayescal as bc
from bayescal.calibrators.names import calibrator_names
from bayescal.cli import _streams, app

pyarrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
pytest.importorskip("pyarrow.csv")
pd = pytest.importorskip("pandas")

N = 400


def frame() -> Any:
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


def put(folder: Path, form: str) -> tuple[Path, list[str]]:
    """Write the frame in a form, and return the file and the options that say so."""
    data = frame()
    file = folder / f"scores.{form.partition(':')[0]}"
    if form == "feather":
        feather.write_feather(data, file, chunksize=100)
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


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(
    tmp_path: Path, form: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        for name, value in {"LARGE": 0, "ROWS": 64, "BYTES": 4096}.items():
            monkeypatch.setattr(_streams, name, value)
    file, more = put(tmp_path, form)
    data = frame()
    model, out = tmp_path / "m.safetensors", tmp_path / "out.csv"
    line = ["--label", "truth", "--columns", "p", "--method", "beta", "--out", model]
    run("fit", file, *line, *more)
    expected = bc.Beta(classes=("nicht", "wéi")).fit(data["p"].to_numpy(), data["truth"])
    run("apply", model, file, "--out", out, *more)
    found = pd.read_csv(out, sep=";" if ";" in form else ",")
    assert [*found.columns[-2:]] == ["calibrated_nicht", "calibrated_wéi"]
    assert found["note"].tolist() == data["note"].tolist()
    probs = found.to_numpy()[:, -2:].astype(float)
    np.testing.assert_allclose(probs, expected.predict_proba(data["p"].to_numpy()), atol=1e-9)
    said = run("evaluate", file, "--label", "truth", "--model", "p", "--replicates", 20, *more)
    loss = bc.metrics.log_loss(data["p"].to_numpy(), data["truth"].to_numpy())
    assert f"{loss:.4f}" in said.stdout


def test_forms_of_output(tmp_path: Path) -> None:
    file, _ = put(tmp_path, "feather")
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
        found = read(out)
        assert [*found.columns] == [*frame().columns, "calibrated_nicht", "calibrated_wéi"]
        np.testing.assert_array_equal(found["p"], frame()["p"])
    run("apply", model, file, "--out", tmp_path / "out.csv.zst")
    with pyarrow.input_stream(tmp_path / "out.csv.zst", compression="zstd") as stream:
        assert len(pd.read_csv(io.BytesIO(stream.read()))) == N


def test_standard_input(tmp_path: Path) -> None:
    data = frame()
    text = data.to_csv(index=False)
    said = run("evaluate", "-", "--label", "truth", "--model", "p", "--replicates", 20, input=text)
    assert (
        f"{bc.metrics.log_loss(data['p'].to_numpy(), data['truth'].to_numpy()):.4f}" in said.stdout
    )
    model = tmp_path / "m.safetensors"
    run("fit", "-", "--label", "truth", "--columns", "p", "--out", model, input=text)
    printed = run("apply", model, "-", "--out", "-", input=text).stdout
    assert len(pd.read_csv(io.StringIO(printed))) == N


def test_intervals(tmp_path: Path) -> None:
    file, _ = put(tmp_path, "csv")
    data, model, out = frame(), tmp_path / "m.safetensors", tmp_path / "out.csv"
    fit = ["fit", file, "--label", "truth", "--columns", "p", "--out", model]
    run(*fit, "--method", "Beta", "--option", "inference=laplace", "--option", "parameters=2")
    run("apply", model, file, "--out", out, "--interval", "0.8")
    expected = bc.Beta(inference="laplace", parameters=2, random_state=0).fit(
        data["p"].to_numpy(), data["truth"]
    )
    lower, upper = expected.predict_interval(data["p"].to_numpy(), 0.8)
    found = pd.read_csv(out)
    names = [f"calibrated_{name}" for name in ("nicht", "wéi", "wéi_lower", "wéi_upper")]
    assert [*found.columns[-4:]] == names
    np.testing.assert_allclose(found[names[2]], lower, atol=1e-9)
    np.testing.assert_allclose(found[names[3]], upper, atol=1e-9)
    run(*fit, "--method", "Beta")
    check_error(
        "--interval needs a posterior", "apply", model, file, "--out", out, "--interval", 0.8
    )
    check_error("between 0 and 1", "apply", model, file, "--out", out, "--interval", 1)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    file, _ = put(tmp_path, "csv:;")
    fit = ["--label", "truth", "--out", tmp_path / "m.npz"]
    check_error("if ';' stands between cells, pass --sep", "fit", file, *fit)
    check_error("--sep must be one character, got ';;'", "fit", file, *fit, "--sep", ";;")
    check_error("--encoding must be one that Python knows", "fit", file, *fit, "--encoding", "x")
    other, _ = put(tmp_path, "csv:latin-1")
    check_error("say what it is in with --encoding", "fit", other, *fit)
    plain = tmp_path / "two.csv"
    frame().assign(q=0.5).to_csv(plain, index=False)
    check_error("say which with --columns COLUMN for the score", "fit", plain, *fit)
    line = ["fit", plain, *fit, "--columns", "p"]
    check_error("--method must be one of auto, averaged_beta", *line, "--method", "bet")
    wrong = "--option must be NAME=VALUE with one of inference, num_samples, parameters"
    check_error(wrong, *line, "--method", "beta", "--option", "parameter=2")
    check_error("parameters must be", *line, "--method", "beta", "--option", "parameters=7")


def test_methods_are_listed() -> None:
    lines = run("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines] == calibrator_names()
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
    found = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    run(*line, "quadrature", "--new", file, "--out", tmp_path / "again.tsv")
    assert (tmp_path / "again.tsv").read_bytes() == (tmp_path / "out.tsv").read_bytes()
    assert [*found.columns] == ["s", "y", "prob"] and found["prob"].between(0, 1).all()


def test_predictions_in_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of both files in blocks, as neither need fit into memory."""
    for name, value in {"LARGE": 0, "ROWS": 32}.items():
        monkeypatch.setattr(_streams, name, value)
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 60)
    s = rng.normal(2 * y - 1)
    pd.DataFrame({"s": s, "y": y}).to_csv(known := tmp_path / "known.csv", index=False)
    new = frame()[:80].assign(s=np.linspace(-2, 2, 80), when=pd.Timestamp("2026-01-01"))
    new.to_parquet(file := tmp_path / "new.parquet", index=False)
    prior = bc.GaussianPrior(mu0=dist.Uniform(-3, 0), mu1=dist.Uniform(0, 3), sigma=1.0)
    with jax.enable_x64(True):
        points = new["s"].to_numpy()
        expected = bc.posterior_predict(prior, (s, y), points, num_samples=2000, key=3)
        columns = [np.asarray(each) for each in (expected.probs, *expected.interval(0.8))]
    said = "gaussian:mu0=uniform(-3,0),mu1=uniform(0,3),sigma=1"
    line = ["predict", known, "--label", "y", "--score", "s", "--prior", said, "--new"]
    more = ["--num-samples", 2000, "--seed", 3, "--interval", 0.8, "--out"]
    for ending, read in (
        ("feather", feather.read_feather),
        ("parquet", pd.read_parquet),
        ("tsv", lambda path: pd.read_csv(path, sep="\t")),
        ("csv.gz", pd.read_csv),
        ("csv.zst", lambda path: pyarrow.csv.read_csv(path).to_pandas()),
    ):
        out = tmp_path / f"out.{ending}"
        result = run(*line, file, *more, out)
        assert f"80 rows written to {out}" in result.stderr
        found = read(out)
        assert [*found.columns] == [*new.columns, "prob", "lower", "upper"]
        assert found["note"].tolist() == new["note"].tolist()
        if ending in ("feather", "parquet"):
            pd.testing.assert_frame_equal(found[[*new.columns]], new)
        np.testing.assert_allclose(found.to_numpy()[:, -3:].T.astype(float), columns, rtol=1e-9)
    table = pd.read_csv(io.StringIO(run(*line, file, *more, "-").stdout))
    np.testing.assert_allclose(table["prob"], columns[0], rtol=1e-9)
    wrong = "rows of text are written as text"
    check_error(wrong, *line, known, *more, tmp_path / "none.parquet")
    assert not (tmp_path / "none.parquet").exists()


def test_completion_is_offered() -> None:
    result = invoke("--help")
    assert "--install-completion" in result.stdout
    assert sys.modules["bayescal.cli"] is not None
