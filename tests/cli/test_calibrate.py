"""``bayescal fit`` and ``apply``: their output equals that of the library."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from typer.testing import CliRunner

import bayescal as bc
from bayescal.cli import app
from tests.cli.printed import check_error

Array = np.ndarray


def write(path: Path, header: list[str], *columns: Array) -> Path:
    with path.open("w", newline="") as stream:
        rows = zip(*(column.tolist() for column in columns), strict=True)
        csv.writer(stream).writerows([header, *rows])
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def binary(tmp_path: Path) -> tuple[Path, Array, Array]:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, 200)
    y = np.where(rng.random(200) < expit(z / 2), "yes", "no")
    return write(tmp_path / "cal.csv", ["p", "name", "truth"], expit(z), y, y), expit(z), y


def test_two_classes(binary: tuple[Path, Array, Array], tmp_path: Path) -> None:
    file, p, y = binary
    line = ["fit", str(file), "--label", "truth", "--out", str(tmp_path / "auto.npz")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    expected = bc.Auto().fit(p, y)
    assert result.stdout.strip() == str(expected.report_)
    assert "name" in result.stderr  # it must be reported as left out
    new = write(tmp_path / "new.csv", ["id", "p"], np.arange(3), np.array([0.1, 0.5, 0.9]))
    out = tmp_path / "out.csv"
    line = ["apply", str(tmp_path / "auto.npz"), str(new), "--out", str(out)]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    actual = read(out)
    assert list(actual[0]) == ["id", "p", "calibrated_no", "calibrated_yes"]
    probs = [[float(row["calibrated_no"]), float(row["calibrated_yes"])] for row in actual]
    np.testing.assert_allclose(probs, expected.predict_proba([0.1, 0.5, 0.9]), rtol=1e-12)


def test_probabilities_beyond_one_by_rounding_are_no_percentages(tmp_path: Path) -> None:
    p, y = np.array([0.1, 0.4, 0.6, 1 + 5e-7] * 5), np.array([0, 1, 0, 1] * 5)
    file, fitted = write(tmp_path / "p.csv", ["p", "y"], p, y), tmp_path / "beta.npz"
    out = tmp_path / "out.csv"
    for line in (
        ["fit", str(file), "--label", "y", "--method", "beta", "--out", str(fitted)],
        ["apply", str(fitted), str(file), "--out", str(out)],
        ["evaluate", str(file), "--label", "y", "--calibrator", str(fitted), "--replicates", "20"],
    ):
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 0, result.stderr
    actual = [float(row["calibrated_1"]) for row in read(out)]
    np.testing.assert_allclose(actual, bc.Beta().fit(p, y).predict_proba(p)[:, 1], rtol=1e-12)


def test_programs(
    binary: tuple[Path, Array, Array], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, program = tmp_path / "beta.safetensors", tmp_path / "beta.stablehlo"
    bc.save(bc.Beta().fit(*binary[1:]), model)
    result = CliRunner().invoke(app, ["export", str(model), str(program)])
    assert result.exit_code == 0, result.stderr
    at = np.array([[0.1], [0.5], [0.9]], np.float32)
    actual = jax.export.deserialize(bytearray(program.read_bytes())).call(at)
    np.testing.assert_allclose(np.asarray(actual), bc.load(model).predict_proba(at), atol=1e-6)
    check_error(["export", str(model), str(tmp_path / "beta.txt")], "path must end in")
    check_error(["export", str(model), str(program), "--dtype", "int8"], "dtype must be")
    monkeypatch.setitem(sys.modules, "ndonnx", None)
    check_error(["export", str(model), str(tmp_path / "beta.onnx")], "needs a library")


def test_several_classes_go_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (150, 3))
    y = (rng.random((150, 1)) > np.cumsum(softmax(z / 2, axis=1), axis=1)).sum(axis=1)
    names = np.array(["ape", "bee", "cat"])
    # The columns are not in the order of the classes.
    file = write(tmp_path / "cal.csv", ["z_cat", "z_ape", "z_bee", "y"], *z.T[[2, 0, 1]], names[y])
    out = tmp_path / "vector.npz"
    line = ["fit", str(file), "--label", "y", "--inputs", "logits", "--method", "StructuredVector"]
    result = CliRunner().invoke(app, [*line, "--out", str(out)])
    assert result.exit_code == 0, result.stderr
    result = CliRunner().invoke(app, ["apply", str(out), str(file), "--out", "-", "--prefix", "p_"])
    assert result.exit_code == 0, result.stderr
    rows = list(csv.DictReader(result.stdout.splitlines()))
    expected = bc.StructuredVector(inputs="logits").fit(z, names[y]).predict_proba(z)
    actual = [[float(row[f"p_{name}"]) for name in names] for row in rows]
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("columns", ["P(y=1)", "P(y=0),P(y=1)", "name=P(y=1)"])
def test_names_of_columns_may_have_equals_signs(
    binary: tuple[Path, Array, Array], tmp_path: Path, columns: str
) -> None:
    _, p, y = binary
    file = write(tmp_path / "equals.csv", ["P(y=0)", "P(y=1)", "y"], 1 - p, p, y)
    out = tmp_path / "m.npz"
    line = ["fit", str(file), "--label", "y", "--columns", columns, "--method", "Temperature"]
    result = CliRunner().invoke(app, [*line, "--out", str(out)])
    assert result.exit_code == 0, result.stderr
    assert bc.load(out).temperature_ == pytest.approx(bc.Temperature().fit(p, y).temperature_)


def test_methods_have_names_in_any_case(binary: tuple[Path, Array, Array], tmp_path: Path) -> None:
    file, p, y = binary
    for name, calibrator in (("venn_abers", bc.VennAbers()), ("SIGMOID", bc.Logistic("platt"))):
        out = tmp_path / name
        line = ["fit", str(file), "--label", "truth", "--columns", "p", "--method", name]
        output = CliRunner().invoke(app, [*line, "--out", str(out)]).stdout
        expected = calibrator.fit(p, y)
        np.testing.assert_allclose(
            bc.load(out).predict_proba(pd.DataFrame({"p": p})), expected.predict_proba(p), rtol=1e-9
        )
        assert output.strip() == str(expected.report_)


def test_errors(binary: tuple[Path, Array, Array], tmp_path: Path) -> None:
    file, *_ = binary
    out = ["--out", str(tmp_path / "c.npz")]
    fit = ["fit", str(file), "--label", "truth", "--columns", "p"]
    check_error([*fit, "--method", "Magic", *out], "--method must be one of Auto, AveragedBeta")
    check_error([*fit, "--inputs", "odds", *out], "--inputs must be")
    check_error([*fit, "--seed", "-1", *out], "Invalid value for '--seed'")
    check_error([*fit, "--out", "-"], "--out must be a file")
    check_error([*fit, "--columns", "q", *out], "no column named 'q'")
    check_error([*fit, "--inputs", "logits", "--method", "Histogram", "--weights", "name", *out],
                "must hold finite numbers")  # fmt: skip
    check_error(["apply", str(file), str(file), "--out", "-"], "written by bayescal.save")
    bc.save(bc.Beta().fit([0.2, 0.4, 0.6, 0.5], [0, 1, 1, 0]), tmp_path / "beta.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "beta.npz").read_bytes()[:-1])
    check_error(["apply", str(tmp_path / "cut.npz"), str(file), "--out", "-"], "whole, got")
    check_error(["apply", str(tmp_path / "beta.npz"), str(file), "--out", "-"], "by bayescal fit")
    assert CliRunner().invoke(app, [*fit, *out]).exit_code == 0
    twice = ["apply", str(tmp_path / "c.npz"), str(file), "--out", str(tmp_path / "o.csv")]
    assert CliRunner().invoke(app, twice).exit_code == 0
    again = ["apply", str(tmp_path / "c.npz"), str(tmp_path / "o.csv"), "--out", "-"]
    check_error(again, "choose another --prefix")
