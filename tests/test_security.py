"""The promises of SECURITY.md: the tests that each row of its table names."""

import ast
import gzip
import io
import json
import pickle
import re
import resource
import runpy
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bayescal as bc
from bayescal._core.files import read_arrays
from bayescal.cli import app
from bayescal.cli.tables.files import LINE
from bayescal.data.blocks.checkpoint import Checkpoint
from bayescal.sweeps._store import Store, _digest

ROOT = Path(__file__).resolve().parents[1]
P, Y = np.array([0.1, 0.4, 0.35, 0.8, 0.6, 0.3]), np.array([0, 0, 1, 1, 1, 0])
#: Text that runs in a page, moves a terminal's cursor, and is a formula in a spreadsheet.
EVIL = "<script>alert(1)</script>\x1b[2J\x9b1m"

# --- the table ----------------------------------------------------------------------------------


def test_each_promise_has_tests() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = re.findall(r"^\| (?!---|promise)(.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert len(rows) >= 5
    for promise, named in rows:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", named)
        assert tests, promise
        for file, name in tests:
            tree = ast.parse((ROOT / file).read_text("utf-8"))
            assert name in {node.name for node in ast.walk(tree) if hasattr(node, "name")}, name


# --- no code from files -------------------------------------------------------------------------


class Touch:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def read_sweep(path: Path) -> Any:
    question = {"a": 1}
    store = Store(path.parent / "store")
    store._path(question).write_bytes(path.read_bytes() + _digest(question, path.read_bytes()))
    if (arrays := store.get(question)) is None:
        raise ValueError("computed again")
    return arrays


def apply(path: Path) -> Any:
    rows = path.parent / "rows.csv"
    rows.write_text("p,y\n0.1,0\n0.8,1\n")
    for line in (
        ["apply", str(path), str(rows), "--out", str(path.parent / "out.csv")],
        ["evaluate", str(path), "--label", "y"],
        ["monitor", str(path), str(rows), "--label", "y"],
    ):
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 2
        assert "Traceback" not in result.output
    raise ValueError(result.output)


READERS: dict[str, Callable[[Path], Any]] = {
    "load": bc.load,
    "Monitor.load": bc.Monitor.load,
    "checkpoint": lambda path: Checkpoint(path).read(),
    "store": read_sweep,
    "commands": apply,
}


def archive(member: str = "digests.npy", compressed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    arrays = {member.removesuffix(".npy"): np.zeros(1), "blocks": np.zeros(1), **arrays}
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("reader", READERS)
def test_files_run_no_code(reader: str, tmp_path: Path) -> None:
    created, path = tmp_path / "created", tmp_path / "evil.csv"
    evil: Any = np.array([Touch(created)], object)
    text = f"__import__('pathlib').Path({str(created)!r}).touch()"
    contents = [
        pickle.dumps(Touch(created)),
        archive(digests=evil),
        archive(**{"0/a": evil}),
        json.dumps({"bayescal_monitor": text, "code": text}).encode(),
        text.encode(),
        f"p,y\n{text},{text}\n".encode(),
        f"!!python/object/apply:os.system ['touch {created}']".encode(),
    ]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError):
            READERS[reader](path)
        assert not created.exists()


def test_texts_of_options_run_no_code(tmp_path: Path) -> None:
    rows, created = tmp_path / "rows.csv", tmp_path / "created"
    rows.write_text("x,y\n0.1,0\n0.8,1\n")
    text = f"__import__('pathlib').Path({str(created)!r}).touch()"
    for prior in (f"gaussian:mu0={text}", text, f"gaussian:mu0=normal({text},1)"):
        line = ["predict", str(rows), "--label", "y", "--prior", prior, "--out", "-"]
        assert CliRunner().invoke(app, line).exit_code == 2
        assert not created.exists()


# --- bounded memory -----------------------------------------------------------------------------


def peak_growth(call: Callable[[], Any]) -> float:
    """Return by how many MB a call raises the peak of resident memory."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        pytest.skip("no /proc")
    reset.write_text("5")

    def read(name: str) -> int:
        (line,) = (line for line in status.read_text().splitlines() if line.startswith(name))
        return int(line.split()[1])

    before = read("VmRSS")
    call()
    return (read("VmHWM") - before) / 1024


def header(shape: int, name: str = "digests.npy") -> bytes:
    """Return an archive whose array claims more numbers than it holds."""
    head = io.BytesIO()
    facts = {"descr": "<f8", "fortran_order": False, "shape": (shape,)}
    np.lib.format.write_array_header_1_0(head, facts)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        written.writestr(name, head.getvalue() + bytes(64))
    return file.getvalue()


@pytest.fixture
def limited() -> Any:
    """Limit the address space to 8 GB more, so that a fault ends the test and not the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Return 256 MB of zeros, 0.3 MB compressed."""
    return archive(compressed=True, blocks=np.zeros(1 << 25))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
@pytest.mark.parametrize("reader", ["load", "checkpoint", "store"])
def test_archives_take_no_more_memory_than_their_files(
    reader: str, bomb: bytes, tmp_path: Path, limited: None
) -> None:
    path = tmp_path / "large"
    for content in (bomb, header(1 << 28), header(1 << 50)):
        path.write_bytes(content)

        def read() -> None:
            with pytest.raises(ValueError):
                READERS[reader](path)

        assert peak_growth(read) < 40


def test_archives_that_numpy_writes_are_read() -> None:
    arrays = read_arrays(io.BytesIO(archive(a=P, b=np.array(["x"]))))
    np.testing.assert_array_equal(arrays["a"], P)
    assert arrays["b"].tolist() == ["x"]


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_monitors_take_no_more_memory_than_their_files(task: Any, tmp_path: Path) -> None:
    probs = {"binary": P, "multiclass": np.full((6, 2), 0.5), "multilabel": np.full((6, 2), 0.5)}
    labels = np.eye(2, dtype=int)[Y] if task == "multilabel" else Y
    monitor = bc.Monitor(task=task).update(probs[task], labels)
    path = tmp_path / "state"
    for name, value in (
        ("_k", 1 << 40),
        ("_k", 10_000_000),
        ("evidence", [{}]),
        ("histories", [{"cells": [1 << 40]}]),
        ("course", None),
        ("alpha", "x"),
    ):
        path.write_text(json.dumps({**monitor.to_dict(), name: value}))

        def read() -> None:
            with pytest.raises(ValueError, match="must be that of a monitor|alpha must"):
                bc.Monitor.load(path)

        assert peak_growth(read) < 20
    path.write_text(100_000 * "[")
    with pytest.raises(ValueError, match="does not hold a monitor"):
        bc.Monitor.load(path)
    monitor.save(path)
    assert bc.Monitor.load(path).log_evidence_ == monitor.log_evidence_


@pytest.mark.slow
@pytest.mark.parametrize("text", ["0,", '{"p": '])
def test_compressed_text_is_read_in_bounded_memory(text: str, tmp_path: Path) -> None:
    """Check a line of 300 MB in a file of 0.3 MB, which must give a single-line error."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"p,y\n")
        for _ in range(300):
            file.write((text * (1 << 20))[: 1 << 20].encode())
    line = ["evaluate", str(path), "--label", "y"]
    CliRunner().invoke(app, line)  # imports what the command needs
    # Resident memory is not measured: how much of many small allocations stays resident depends on
    # the allocator's history.
    tracemalloc.start()
    try:
        result = CliRunner().invoke(app, line)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    # The longest accepted line, in pieces and as one string.
    assert peak < 2 * LINE + 10 * 2**20


# --- text of files is text ----------------------------------------------------------------------


class Elements(HTMLParser):
    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


def named_objects() -> dict[str, Any]:
    """Return objects whose tables show names from data."""
    y = np.array([EVIL, "no"])[Y]
    probs = {EVIL: P, "other": 1 - P}
    named = np.column_stack([1 - P, P])
    fitted = bc.Isotonic().fit(named, y)
    return {
        "report": bc.metrics.report(named, y, replicates=20),
        "isotonic": fitted.report_,
        "logistic": bc.Logistic().fit(named, y).report_,
        "evaluation": bc.evaluate(probs, y, classes=["no", EVIL], replicates=20),
        "monitor": bc.Monitor(classes=["no", EVIL]).update(P, y),
    }


def test_names_are_escaped_in_notebooks_and_terminals() -> None:
    shown = 0
    for name, item in named_objects().items():
        assert [c for c in repr(item) if not c.isprintable() and c != "\n"] == [], name
        page = getattr(item, "_repr_html_", lambda: None)()
        if page is not None:
            shown += 1
            assert "script" not in Elements(page).tags, name
    assert shown >= 3


# --- spreadsheets -------------------------------------------------------------------------------


def test_cells_that_are_added_are_no_formulas(tmp_path: Path) -> None:
    """Check that input cells are copied, and added cells begin with a prefix or a digit."""
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    formula = "=cmd|' /C calc'!A0"
    labels = [formula, "@SUM(1)"]
    rows.write_text(
        "p,y,note\n" + "".join(f"{p},{labels[y]},{formula}\n" for p, y in zip(P, Y, strict=True))
    )
    model = tmp_path / "model"
    fit = ["fit", str(rows), "--label", "y", "--columns", "p", "--method", "logistic"]
    fit += ["--classes", ",".join(labels), "--out", str(model)]
    assert (done := CliRunner().invoke(app, fit)).exit_code == 0, done.output
    line = ["apply", str(model), str(rows), "--out", str(out)]
    assert (done := CliRunner().invoke(app, line)).exit_code == 0, done.output
    given, written = rows.read_text().splitlines(), out.read_text().splitlines()
    for before, after in zip(given, written, strict=True):
        assert after.startswith(f"{before},")
        for cell in after.removeprefix(f"{before},").split(","):
            assert cell[0] not in "=+-@\t\r", cell


# --- vulnerabilities of other packages ----------------------------------------------------------


def test_the_audit_fails_only_where_there_is_a_remedy() -> None:
    audit = runpy.run_path(str(ROOT / ".ci" / "audit.py"))
    judge, ours = audit["judge"], {"name": "bayescal", "skip_reason": "not on the index"}
    assert judge("no network") == (0, ["pip-audit was skipped: no network"])
    unknown = {"name": "a", "skip_reason": "not found"}
    code, lines = judge([ours, unknown])
    assert code == 0 and "skipped" in lines[0] and "of the 1 packages" in lines[0]
    fault = {"id": "V-1", "aliases": ["C-1"], "fix_versions": ["2"]}
    package = {"name": "b", "version": "1", "vulns": [fault]}
    assert judge([ours, unknown, package])[0] == 1
    assert judge([{**package, "vulns": [{**fault, "fix_versions": []}]}])[0] == 0
    assert judge([{**package, "vulns": []}])[0] == 0
    audit["IGNORED"]["C-1"] = "bayescal does not call it"
    assert judge([package]) == (
        0,
        [
            "pip-audit: 1 of 1 packages were looked up",
            "b 1: V-1: ignored: bayescal does not call it",
        ],
    )
