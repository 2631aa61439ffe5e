"""The commands themselves: results, exit codes, and single-line errors."""

import csv
import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import bayescal
from bayescal.cli import app
from bayescal.cli.tables import append as _append
from tests.cli.printed import check_failure

PRIOR = "gaussian:mu0=uniform(-2.5,0),mu1=uniform(0,2.5),sigma=1"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with scores.csv and new.csv; return it."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, size=60)
    scores = rng.normal(2 * labels - 1)
    rows = "".join(f"{y},{s!r}\n" for y, s in zip(labels, scores.tolist(), strict=True))
    (tmp_path / "scores.csv").write_text("y,s\n" + rows)
    (tmp_path / "new.csv").write_text('name,s,note\n"a,1",-1.5,x\nb,0,\n"c""",2e0,z\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arguments(*extra: str, **changes: str) -> list[str]:
    options = {"label": "y", "score": "s", "prior": PRIOR, "new": "new.csv", "out": "out.csv"}
    options |= {"integrator": "quadrature"} | changes
    listed = [part for key, value in options.items() for part in (f"--{key}", value)]
    return ["predict", "scores.csv", *listed, *extra]


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


def expected(files: Path, **options: object) -> bayescal.Prediction:
    known = np.loadtxt(files / "scores.csv", delimiter=",", skiprows=1)
    import numpyro.distributions as dist

    prior = bayescal.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0, 2.5), sigma=1.0)
    with jax.enable_x64(True):
        data = known[:, 1], known[:, 0].astype(int)
        return bayescal.posterior_predict(prior, data, np.array([-1.5, 0, 2]), **options)


def test_version_and_help() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"bayescal {bayescal.__version__}\n"
    for line in ([], ["--help"], ["demo", "--help"], ["predict", "--help"]):
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 0
        assert "Usage:" in result.stdout


def test_predict_adds_the_probabilities_of_the_library(files: Path) -> None:
    result = CliRunner().invoke(app, arguments())
    assert result.exit_code == 0, result.stderr
    header, *rows = read(files / "out.csv")
    assert header == ["name", "s", "note", "prob"]
    assert [row[:3] for row in rows] == [["a,1", "-1.5", "x"], ["b", "0", ""], ['c"', "2e0", "z"]]
    probs = expected(files, integrator="quadrature").probs
    np.testing.assert_allclose([float(row[3]) for row in rows], probs, rtol=1e-9)
    assert result.stdout == ""
    assert result.stderr.startswith("bayescal: 3 rows written to out.csv; quadrature, log evidence")
    assert sorted(os.listdir(files)) == ["new.csv", "out.csv", "scores.csv"]


def test_predict_hands_every_option_on(files: Path) -> None:
    line = arguments(
        *("--method", "preds", "--num-samples", "3000", "--class-prior", "0.3"),
        *("--seed", "5", "--interval", "0.8", "--column", "p"),
        integrator="montecarlo",
    )
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    header, *rows = read(files / "out.csv")
    assert header == ["name", "s", "note", "p", "lower", "upper"]
    prediction = expected(
        files, method="preds", integrator="montecarlo", num_samples=3000, class_prior=0.3, key=5
    )
    with jax.enable_x64(True):
        columns = [prediction.probs, *prediction.interval(0.8)]
    written = np.array([[float(cell) for cell in row[3:]] for row in rows])
    np.testing.assert_allclose(written.T, columns, rtol=1e-9)
    assert "effective sample size" in result.stderr
    assert "Pareto k" in result.stderr


def test_predict_reads_and_writes_gzip_and_standard_output(files: Path) -> None:
    (files / "new.csv.gz").write_bytes(gzip.compress((files / "new.csv").read_bytes()))
    (files / "new.csv").unlink()
    result = CliRunner().invoke(app, arguments(new="new.csv.gz", out="out.csv.gz"))
    assert result.exit_code == 0, result.stderr
    result = CliRunner().invoke(app, arguments(new="new.csv.gz", out="-"))
    assert result.stdout == gzip.decompress((files / "out.csv.gz").read_bytes()).decode()


def test_predict_may_replace_its_own_input(files: Path) -> None:
    result = CliRunner().invoke(app, arguments(out="new.csv"))
    assert result.exit_code == 0, result.stderr
    assert read(files / "new.csv")[0] == ["name", "s", "note", "prob"]
    result = CliRunner().invoke(app, arguments(out="new.csv"))
    message = "has a column 'prob' already; rename it or choose another name with --column"
    check_failure(result, message)


def test_bad_integration_is_a_warning_in_one_line(files: Path) -> None:
    wide = {"prior": "gaussian:mu0=normal(0,9),mu1=normal(0,9),sigma=1"}
    line = arguments("--num-samples", "100", **wide, integrator="montecarlo")
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.stderr
    warning, summary = result.stderr.splitlines()
    assert warning.startswith("bayescal: warning: few draws carry the weight")
    assert summary.startswith("bayescal: 3 rows written")


@pytest.mark.parametrize(
    ("changes", "extra", "message"),
    [
        ({"label": "label"}, (), "scores.csv: no column named 'label' (--label); the columns are"),
        ({"score": "z"}, (), "scores.csv: no column named 'z' (--score); the columns are 'y', 's'"),
        ({"label": "s"}, (), "scores.csv: column 's' must hold labels 0 or 1"),
        ({"new": "none.csv"}, (), "none.csv: no such file"),
        ({"out": "none/out.csv"}, (), "none/out.csv: the folder"),
        ({"out": "."}, (), "must be a file, not a folder or device"),
        ({"prior": "gauss"}, (), "--prior: unknown family 'gauss'"),
        ({"prior": "beta:alpha0=1,beta0=1,alpha1=1,beta1=1"}, (), "x must lie strictly between 0"),
        ({"integrator": "magic"}, (), "integrator must be one of 'montecarlo'"),
        ({}, ("--method", "magic"), "method must be one of 'predictive'"),
        ({}, ("--class-prior", "1"), "class_prior must lie strictly between 0 and 1, got 1"),
        ({}, ("--num-samples", "0"), "num_samples must be at least 1, got 0"),
        ({}, ("--num-samples", "many"), "Invalid value for '--num-samples'"),
        ({}, ("--seed", "-1"), "Invalid value for '--seed'"),
        ({}, ("--interval", "1.5"), "--interval must lie strictly between 0 and 1, got 1.5"),
        ({}, ("--column", "note"), "new.csv: the file has a column 'note' already"),
        ({}, ("--depth", "3"), "No such option"),
        (None, ("calibrate",), "No such command 'calibrate'"),
        (None, ("predict",), "Missing"),
        (None, ("predict", "scores.csv"), "Missing option"),
        (None, ("demo", "--seed", "-1"), "Invalid value for '--seed'"),
    ],
)
def test_errors_take_one_line_and_write_nothing(
    files: Path, changes: dict[str, str] | None, extra: tuple[str, ...], message: str
) -> None:
    line = extra if changes is None else arguments(*extra, **changes)
    result = CliRunner().invoke(app, line)
    check_failure(result, message)
    assert sorted(os.listdir(files)) == ["new.csv", "scores.csv"]


def test_probabilities_that_are_not_finite_are_an_error(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Result:
        probs = np.array([0.1, np.nan, 0.3])

    monkeypatch.setattr(bayescal.Posterior, "predict", lambda *_, **__: Result)
    result = CliRunner().invoke(app, arguments())
    check_failure(result, "did not reach finite probabilities")


def test_interrupt_is_quiet_and_leaves_nothing(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    result = CliRunner().invoke(app, arguments())
    assert result.exit_code == 130
    assert result.output == "bayescal: interrupted\n"
    assert sorted(os.listdir(files)) == ["new.csv", "scores.csv"]


def test_bugs_are_not_hidden(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bayescal, "posterior", broken)
    result = CliRunner().invoke(app, arguments())
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.fixture
def run(files: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the program in a separate process."""

    def run(*line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from bayescal.cli import main; main()", *line],
            cwd=files,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (arguments(prior="gaussian:mu0=normal(0"), "'(' was never closed"),
        (["calibrate"], "No such command"),
    ],
)
def test_program_says_errors_in_one_line(run: Callable, line: list[str], message: str) -> None:
    done = run(*line)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("bayescal: error: ") and message in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_interrupted_program_ends_cleanly(files: Path) -> None:
    # The sampler prints a line, then waits: the signal arrives with JAX loaded and files untouched.
    # A shell makes background processes ignore interrupts unless they restore the handler.
    driver = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import bayescal\n"
        "from bayescal.cli import main\n"
        "def wait(*_, **__):\n"
        "    print('waiting', flush=True)\n"
        "    time.sleep(600)\n"
        "bayescal.posterior = wait\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", driver, *arguments()],
        cwd=files,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert stderr == "bayescal: interrupted\n"
    assert sorted(os.listdir(files)) == ["new.csv", "scores.csv"]


def test_rows_that_all_lack_a_number_have_no_results() -> None:
    scores = np.array([[np.nan, 1.0], [0.5, np.nan], [2.0, 3.0]])

    def double(rows: np.ndarray) -> np.ndarray:
        assert len(rows) and np.isfinite(rows).all()
        return 2 * rows

    np.testing.assert_array_equal(
        _append.compute_known(double, scores[:2], 2), np.full((2, 2), np.nan)
    )
    np.testing.assert_array_equal(_append.compute_known(double, scores, 2)[2], [4.0, 6.0])
    np.testing.assert_array_equal(_append.compute_known(double, scores[2:], 2), [[4.0, 6.0]])


def test_completion_of_unknown_commands_finds_nothing() -> None:
    import click
    import typer

    group: Any = typer.main.get_command(app)
    context = click.Context(group, resilient_parsing=True)
    assert group.resolve_command(context, ["calibrat", "x"])[1] is None
    name, command, rest = group.resolve_command(context, ["fit", "x"])
    assert (name, rest) == ("fit", ["x"]) and command.name == "fit"
