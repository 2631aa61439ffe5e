"""Printed output: in the stream's encoding, without control characters, or a single-line error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayescal as bc
from bayescal.cli import _errors, app
from tests.cli.test_forms import run

ROOT = Path(__file__).resolve().parents[2]
EVIL = "\x1b[31mred\x07\x9b1m\u202e"
FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with rows, and with a calibrator fitted to them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    p = rng.uniform(size=100)
    rows = [f"{x!r},{int(rng.uniform() < x)},ü\n" for x in p.tolist()]
    Path("rows.csv").write_text("p,y,é\n" + "".join(rows), encoding="utf-8")
    run("fit", "rows.csv", "--label", "y", "--columns", "p", "--method", "beta", "--out", "m")
    return tmp_path


def run_command(monkeypatch: pytest.MonkeyPatch, *line: str, **streams: Any) -> tuple[int, str]:
    """Run a command with replaced streams, and return its exit code and standard error."""
    stderr = io.StringIO()
    with monkeypatch.context() as patch:
        for name, stream in {"stderr": stderr, **streams}.items():
            patch.setattr(sys, name, stream)
        code = app(list(line), standalone_mode=False)
    return code, stderr.getvalue()


FIT = "fit rows.csv --label y --columns p --out n --method beta".split()
EVALUATE = "evaluate rows.csv --label y --model p --replicates 20".split()


@FULL
@pytest.mark.parametrize(
    "line",
    [["--version"], FIT, ["methods"], ["apply", "m", "rows.csv", "--out", "-"],
     EVALUATE, [*EVALUATE, "--json", "-"]],
)  # fmt: skip
def test_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch, line: list[str]) -> None:
    stdout = open("/dev/full", "w")
    code, stderr = run_command(monkeypatch, *line, stdout=stdout)
    assert code == 2
    assert stderr.endswith("error: cannot write to standard output: No space left on device\n")
    with pytest.raises(OSError, match="No space"):
        stdout.close()


@FULL
@pytest.mark.parametrize("line", ["--version", "--help", "nonsense"])
def test_program_ends_with_one_line_on_a_full_disk(line: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from bayescal.cli import main; main()", line],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("bayescal: error: ") and done.stderr.count("\n") == 1


def test_closed_streams(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = ("evaluate", "-", "--label", "y")
    assert run_command(monkeypatch, *evaluate, stdin=None) == (
        2,
        "bayescal: error: -: standard input is closed\n",
    )
    code, message = run_command(monkeypatch, "apply", "m", "rows.csv", "--out", "-", stdout=None)
    assert code == 2 and "standard output is closed" in message and message.count("\n") == 1
    assert run_command(monkeypatch, *FIT, stdout=None)[0] == 0
    assert run_command(monkeypatch, "evaluate", "none.csv", "--label", "y", stderr=None)[0] == 2


def test_encodings_that_lack_characters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert run_command(monkeypatch, *FIT, stdout=stdout)[0] == 0
    report = bc.load("n").report_
    assert stdout.buffer.getvalue().decode() == f"{report}\n".replace("±", "+/-")
    line = [*EVALUATE[:3], "é", *EVALUATE[4:], "--classes", "ü,ж"]
    assert run_command(monkeypatch, *line, stdout=stdout)[0] == 0
    assert b"p is P(? = ?)" in stdout.buffer.getvalue()
    # Rows are UTF-8, as in files.
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert run_command(monkeypatch, "apply", "m", "rows.csv", "--out", "-", stdout=stdout)[0] == 0
    run("apply", "m", "rows.csv", "--out", "out.csv")
    assert stdout.buffer.getvalue() == Path("out.csv").read_bytes()


def test_nothing_controls_the_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that names of columns, classes, models and files are escaped everywhere."""
    text = Path("rows.csv").read_text(encoding="utf-8")
    text = text.replace("p,y", f"{EVIL}p,y").replace(",1,", f",{EVIL}1,")
    Path(f"{EVIL}.csv").write_text(text, encoding="utf-8")
    evaluate = ("evaluate", f"{EVIL}.csv", "--label", "y", "--replicates", "20")
    fit = ("fit", f"{EVIL}.csv", "--label", "y", "--out", f"{EVIL}m")
    apply = ("apply", f"{EVIL}m", f"{EVIL}.csv", "--out")
    for line in (
        (*evaluate, "--model", f"{EVIL}={EVIL}p", "--html", f"{EVIL}.html"),
        (*evaluate, "--model", f"{EVIL}p", "--json", "-"),
        (*evaluate, "--model", EVIL),
        (*evaluate, "--classes", f"0,{EVIL}"),
        ("evaluate", EVIL, "--label", "y"),
        fit,
        (*fit, "--columns", f"{EVIL}p"),
        (*fit, "--method", EVIL),
        (*apply, f"{EVIL}out.csv"),
        (*apply, f"{EVIL}/out.csv"),
        (EVIL,),
        ("demo", f"--{EVIL}"),
    ):
        stdout = io.StringIO()
        _, stderr = run_command(monkeypatch, *line, stdout=stdout)
        printed = stdout.getvalue() + stderr
        assert stderr or printed
        assert [c for c in printed if not c.isprintable() and c != "\n"] == []
    result = bc.evaluate({EVIL: [0.1, 0.4, 0.8]}, [0, 1, 1], replicates=20)
    assert [c for c in repr(result) if not c.isprintable() and c != "\n"] == []
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    assert run_command(monkeypatch, *apply, "-", stdout=terminal)[0] == 0
    assert "\\x1b[31mred\\x07\\x9b1m\\u202ep,y" in terminal.getvalue()
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*terminal.getvalue()}


def test_long_names_are_abbreviated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = 50_000 * "ab"
    text = Path("rows.csv").read_text(encoding="utf-8")
    Path("long.csv").write_text(text.replace("p,y", f"{name},y"), encoding="utf-8")
    evaluate = ("evaluate", "long.csv", "--replicates", "20", "--label")
    for line in (
        (*evaluate, "y"),
        (*evaluate, "é"),
        (*evaluate, "none"),
        (*evaluate, name),
        (*evaluate, "y", "--model", f"{name},{name},{name}"),
        ("fit", "long.csv", "--label", "y", "--method", "beta", "--out", "n"),
        ("apply", "m", "long.csv", "--out", "n"),
        ("evaluate", name, "--label", "y"),
    ):
        stdout = io.StringIO()
        _, stderr = run_command(monkeypatch, *line, stdout=stdout)
        assert max(map(len, (stdout.getvalue() + stderr).splitlines())) < 2100


def test_circles_of_symbolic_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    for line, message in (
        (["apply", "m", "rows.csv", "--out", "a"], "a: the symbolic links lead in a circle"),
        (["apply", "m", "rows.csv", "--out", "a/b"], "a/b: the folder"),
        ([*EVALUATE, "--html", "a"], "a: the symbolic links lead in a circle"),
        (["evaluate", "a", "--label", "y"], "a: cannot read the file: Too many levels"),
        (["apply", "a", "rows.csv", "--out", "-"], "a: no such file"),
        (["demo", "--out", "a"], "a: cannot make the folder"),
        (["apply", "m", "rows.csv", "--out", 300 * "a"], "File name too long"),
    ):
        code, stderr = run_command(monkeypatch, *line)
        assert (code, stderr.count("\n")) == (2, 1)
        assert message in stderr
    assert Path("a").is_symlink() and Path("b").is_symlink()
    with pytest.raises(OSError, match="symbolic links"):
        bc.save(bc.load("m"), "a")


def test_memory_that_is_not_enough_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object, **__: object) -> None:
        np.zeros(1 << 60, np.int8)

    monkeypatch.setattr(bc, "evaluate", fill)
    code, stderr = run_command(monkeypatch, *EVALUATE)
    assert code == 2
    assert stderr.startswith("bayescal: error: out of memory") and stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "out of memory; use a smaller file or a machine with more memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: 3 GB"), "out of memory; use a smaller file"),
        (FileNotFoundError(2, "No such file", "a.csv"), "a.csv: No such file"),
        (OSError(28, "No space left"), "No space left"),
        (OSError("Not a gzipped file"), "Not a gzipped file"),
        (UnicodeEncodeError("ascii", "é", 0, 1, "no such letter"), "'ascii' codec can't encode"),
        (KeyError("a bug"), None),
    ],
)
def test_what_is_said_of_errors(error: Exception, text: str | None) -> None:
    message = _errors.describe(error)
    assert message is None if text is None else message is not None and message.startswith(text)


def test_programs_without_a_terminal_have_no_output_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    _errors.end_output()
