"""Every command with unusual and invalid files: a result, or a single-line error."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import bayescal as bc
from bayescal.cli import app
from tests.hostile.strange import P, Y

ROWS = [f"{p},{y}" for p, y in zip(P.tolist(), Y.tolist(), strict=True)]
PLAIN = "\n".join(["p,y", *ROWS]) + "\n"
GAUSSIAN = "gaussian:mu0=normal(-1,1),mu1=normal(1,1),sigma=1"


def table_with(index: int, cells: str) -> bytes:
    return "\n".join(["p,y", *ROWS[:index], cells, *ROWS[index + 1 :]]).encode()


RIGHT: dict[str, bytes] = {
    "plain": PLAIN.encode(),
    "lines of Windows": PLAIN.replace("\n", "\r\n").encode(),
    "with a mark of order": b"\xef\xbb\xbf" + PLAIN.encode(),
    "without a last end of line": PLAIN.strip().encode(),
    "empty lines": PLAIN.replace("\n", "\n\n").encode(),
    "quoted": "\n".join(['"p","y"', *('"' + r.replace(",", '","') + '"' for r in ROWS)]).encode(),
    "spaces": "\n".join(["p , y", *(r.replace(",", " , ") for r in ROWS)]).encode(),
    "compressed": gzip.compress(PLAIN.encode()),
    "exponents": table_with(3, "3125e-4,0"),
}
WRONG: dict[str, bytes] = {
    "nothing": b"",
    "a header": b"p,y\n",
    "no header": "\n".join(ROWS).encode(),
    "NaN": table_with(3, "nan,0"),
    "infinity": table_with(3, "inf,0"),
    "text": table_with(3, "high,0"),
    "a hole": table_with(3, ",0"),
    "above one": table_with(3, "1.5,0"),
    "another label": table_with(3, "0.5,7"),
    "no label": table_with(3, "0.5,"),
    "short": table_with(3, "0.5"),
    "long": table_with(3, "0.5,0,0"),
    "an open quote": table_with(3, '"0.5,0'),
    "twice a column": PLAIN.replace("p,y", "p,p").encode(),
    "zero bytes": PLAIN.replace("0", "\0").encode(),
    "UTF-16": PLAIN.encode("utf-16"),
    "no text": bytes(range(256)),
    "half of an archive": gzip.compress(PLAIN.encode())[:30],
    "tabs": PLAIN.replace(",", "\t").encode(),
    "JSON": b'{"p": [0.5], "y": [1]}',
    "underscores": table_with(3, "0_1,0"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a valid table, and a calibrator fitted to it."""
    path = tmp_path_factory.mktemp("commands")
    (path / "good.csv").write_text(PLAIN)
    fit = ["fit", str(path / "good.csv"), "--label", "y", "--out", str(path / "c.safetensors")]
    result = CliRunner().invoke(app, [*fit, "--method", "Beta"])
    assert result.exit_code == 0, result.stderr
    return path


def lines(folder: Path, file: Path) -> list[list[str]]:
    """Return command lines that read a file."""
    good, made = str(folder / "good.csv"), str(folder / "c.safetensors")
    page = str(folder / "page.html")
    predict = ["--label", "y", "--score", "p", "--prior", GAUSSIAN, "--integrator", "quadrature"]
    return [
        ["fit", str(file), "--label", "y", "--method", "Beta", "--out", str(folder / "new")],
        ["apply", made, str(file), "--out", "-"],
        ["evaluate", str(file), "--label", "y", "--html", page, "--replicates", "20"],
        ["predict", str(file), *predict, "--new", good, "--out", "-"],
        ["predict", good, *predict, "--new", str(file), "--out", "-"],
        ["monitor", str(file), "--label", "y", "--state", f"{file}.json"],
    ]


def run(line: list[str]) -> str:
    """Return the single-line error of a command, or an empty string if it succeeds."""
    result = CliRunner().invoke(app, line)
    if result.exit_code == 0:
        return ""
    assert result.exit_code == 2, (line, result.output, result.exception)
    assert isinstance(result.exception, SystemExit), (line, result.exception)
    assert result.stdout == "" and result.stderr.startswith("bayescal: error: "), (
        line,
        result.stderr,
    )
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", RIGHT)
def test_tables_that_look_odd(kind: str, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    file.write_bytes(RIGHT[kind])
    for line in lines(folder, file):
        assert run(line) == "", (kind, line)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
def test_wrong_tables(kind: str, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "wrong.csv"
    file.write_bytes(WRONG[kind])
    for line in lines(folder, file):
        # New points need no labels, and normal densities are defined everywhere.
        error = run(line)
        least = "label" in kind or (kind == "above one" and line[0] == "predict")
        assert error or (least and line[0] in ("apply", "predict")), (kind, line)
        assert not error or "wrong.csv" in error or "good.csv" in error or "p" in error, error


@pytest.mark.slow
def test_damaged_calibrators(folder: Path, tmp_path: Path) -> None:
    content = (folder / "c.safetensors").read_bytes()
    file, rng = tmp_path / "damaged", np.random.default_rng(0)
    damaged = [content[:size] for size in range(0, len(content), max(1, len(content) // 20))]
    for bit in rng.integers(0, 8 * len(content), 60).tolist():
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for data in [*damaged, b"", PLAIN.encode(), content + b"x"]:
        file.write_bytes(data)
        assert str(file) in run(["apply", str(file), str(folder / "good.csv"), "--out", "-"])
        assert str(file) in run(["export", str(file), str(tmp_path / "program.stablehlo")])
    for missing in (tmp_path, tmp_path / "none"):
        error = run(["apply", str(missing), str(folder / "good.csv"), "--out", "-"])
        assert str(missing) in error


@pytest.mark.slow
@given(
    content=st.one_of(st.binary(max_size=80), st.text(alphabet="py01.,\n\"'-e+ \t", max_size=80))
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content(content: Any, folder: Path) -> None:
    file = folder / "any.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for line in lines(folder, file)[:3]:
        run(line)


def test_all_commands_are_here(folder: Path) -> None:
    # "demo" and "methods" read no file, and "export" reads no table.
    known = {line[0] for line in lines(folder, folder)} | {"demo", "methods", "export"}
    names = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert names == known, names
    assert isinstance(bc.load(folder / "c.safetensors"), bc.Beta)
