"""Help texts: fast, complete and accurate."""

import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from bayescal.calibrators.catalog import METHODS
from bayescal.cli import _COMMANDS, app
from bayescal.cli._errors import CommandError
from bayescal.cli.commands.calibrate import _check_method

ROOT = Path(__file__).resolve().parents[2]
HEAVY = "arviz jax matplotlib numpyro pandas pyarrow scipy sklearn".split()
# Run commands in one process, and print their exit codes and output, and what they imported.
LOADED = """
import contextlib, io, json, sys
from bayescal.cli import main
done = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["bayescal", *line]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = main()
        except SystemExit as end:
            code = end.code
    done.append([code or 0, output.getvalue()])
print(json.dumps([done, [*{name.split(".")[0] for name in sys.modules}]]))
"""


def examples(command: str) -> list[str]:
    """Return the examples in the help of a command."""
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0, result.output
    _, shown = result.stdout.split("\nExamples:\n\n")
    return re.split(r"\n(?=bayescal )", shown.rstrip())


@pytest.mark.parametrize("command", _COMMANDS)
def test_list_of_commands_says_what_they_say(command: str) -> None:
    target, line = _COMMANDS[command]
    module, _, function = target.rpartition(".")
    callback = getattr(import_module(f"bayescal.cli.{module}"), function)
    assert line == inspect.getdoc(callback).splitlines()[0]
    output = " ".join(CliRunner().invoke(app, ["--help"]).stdout.replace("│", "").split())
    assert f" {command} {line} " in output


NO_PRIOR = "--prior: the family gaussian must have the parameters"
LINES = [
    ("--help", 0, "Usage: bayescal"),
    ("--version", 0, "bayescal 0."),
    ("methods", 0, "VennAbers"),
    ("fit --help", 0, "Usage: bayescal fit"),
    ("nonsense", 2, "No such command"),
    ("fit --nonsense", 2, "No such option"),
    ("fit no.csv --label y --out m", 2, "no.csv: no such file"),
    ("fit no.csv --label y --out m --method x", 2, "--method must"),
    ("apply no.safetensors no.csv --out -", 2, "no.safetensors: no such file"),
    ("export no.safetensors m.onnx", 2, "no.safetensors: no such file"),
    ("evaluate no.csv --label y", 2, "no.csv: no such file"),
    ("monitor no.csv --label y --state s", 2, "no.csv: no such file"),
    ("monitor no.csv --label y", 2, "Missing option '--state'"),
    ("predict no.csv --label y --score s --out - --prior gaussian:sigma=1", 2, NO_PRIOR),
]


def test_help_and_errors_import_little(tmp_path: Path) -> None:
    lines = json.dumps([line.split() for line, *_ in LINES])
    printed = subprocess.run(
        [sys.executable, "-c", LOADED, lines],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    done, loaded = json.loads(printed)
    for (code, output), (line, expected, message) in zip(done, LINES, strict=True):
        assert code == expected and message in output, (line, output)
    assert "bayescal" in loaded and not {*HEAVY} & {*loaded}


def test_the_package_runs_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bayescal", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("bayescal", run_name="__main__")
    assert capsys.readouterr().out.startswith("bayescal 0.")


def test_methods_are_known_before_they_are_imported() -> None:
    with pytest.raises(CommandError) as caught:
        _check_method("nonsense")
    (listed,) = re.findall(r"one of (.*), got", str(caught.value))
    *actual, platt, sigmoid = listed.split(", ")
    assert (platt, sigmoid) == ("platt", "sigmoid")
    assert sorted(actual) == sorted(METHODS)
    for name in ("Venn_Abers", "VENNABERS", *METHODS, *actual, "sigmoid", "platt"):
        _check_method(name)


@pytest.mark.parametrize("command", _COMMANDS)
def test_examples_are_whole(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    shown = examples(command)
    monkeypatch.setenv("COLUMNS", "80")
    assert examples(command) == shown
    lines = "\n".join(shown).splitlines()
    assert max(map(len, lines)) < 80
    assert all(line.endswith("\\") for line, then in pairwise(lines) if then[0] == " ")


@pytest.mark.slow
def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples in order, since some read files that earlier ones write."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    s = rng.normal(2 * y - 1.0)
    p, q = (1 / (1 + np.exp(-slope * s)) for slope in (4, 2))
    cases = pd.DataFrame({"y": y, "s": s, "p": p, "q": q})
    cases.to_csv(tmp_path / "scores.csv", index=False)
    cases[["s", "p"]].to_csv(tmp_path / "new.csv", index=False)
    cases[["s", "p"]].to_parquet(tmp_path / "new.parquet", index=False)
    marks = rng.integers(0, 3, 300)
    logits = rng.normal(size=(300, 3)) + 2 * np.eye(3)[marks]
    kinds = pd.DataFrame(logits, columns=["cat", "dog", "eel"])
    kinds = kinds.assign(**{"class": kinds.columns.to_numpy()[marks]})
    kinds.to_parquet(tmp_path / "logits.parquet", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for line in (line for command in _COMMANDS for line in examples(command)):
        program, *arguments = shlex.split(line.replace("\\\n", ""))
        assert program == "bayescal"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        for option, value in pairwise(arguments):
            if option in ("--out", "--html") and value != "-":
                assert Path(value).exists(), line
    assert Path("calibrator.stablehlo").stat().st_size > 0
