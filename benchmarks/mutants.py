"""Which changes of the numerical core do the fast tests notice?

    python benchmarks/branches.py --keep branches.data
    python benchmarks/mutants.py --reached branches.data [--count 400] [--minutes 60] [--json FILE]
    python benchmarks/mutants.py --reached branches.data --again

A mutant is the package with one change: another comparison, arithmetic operator, constant, or a
statement or term less. Mutants are drawn at random, with a seed, from ``metrics/``, ``regression/``
and ``calibrators/``. Each one runs in a process of its own, whose import hook compiles the changed
syntax tree; nothing is written to the working tree. The tests that take the changed line run first,
the most special ones before those that take many lines; then those of the files that name what the
module defines, and frozen numbers, until one fails or two minutes of processor time are over.
(Lines that are traced once and then compiled are known of a single test: hence the other files.)

Each verdict is written as soon as it is known; a second run goes on with the mutants that are
missing, and repeats those whose code has changed. A change that no test can notice, since it
computes the same or only tunes speed, is listed in the file under ``equivalent`` with its reason.
``--again`` judges the others that survived by all fast tests of their folder, in ten minutes each.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib.abc
import importlib.util
import json
import os
import re
import resource
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("metrics", "regression", "calibrators")
#: Tests of the other layers that use the functions of a folder.
TESTS = {
    "metrics": ("tests/metrics",),
    "regression": ("tests/regression", "tests/calibrators"),
    "calibrators": ("tests/calibrators",),
}
FROZEN = {
    "metrics": "tests/frozen/test_frozen_metrics.py",
    "regression": "tests/frozen/test_frozen.py",
    "calibrators": "tests/frozen/test_frozen.py",
}
#: Test files that name a module's definitions most often, and that run for a mutant.
MAX_FILES = 4
#: Tests that take the changed line, and run for a mutant.
MAX_TESTS = 40
#: Seconds of processor time after which no further test of a mutant begins.
BUDGET = 120
#: Seconds of processor time for all tests of a mutant; one that takes longer counts as noticed.
LIMIT = 300
#: What takes seconds to import, and does not import the package.
HEAVY = ["jax", "numpyro", "optax", "pandas", "scipy.stats", "scipy.optimize"]
HEAVY += ["sklearn.calibration", "sklearn.ensemble", "sklearn.isotonic", "hypothesis.extra.numpy"]

SWAPPED: dict[type, type] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult},
    **{ast.And: ast.Or, ast.Or: ast.And},
}


class Mutant(NamedTuple):
    """A change of one node: its number in the walk of the module, and what it becomes."""

    path: str
    line: int
    node: int
    change: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.node} {self.change}"

    @property
    def place(self) -> str:
        """What is changed, in words that stay the same if the module changes elsewhere."""
        line = (ROOT / self.path).read_text("utf-8").splitlines()[self.line - 1]
        return f"{self.path}: {line.strip()}: {self.change}"


# --- changes ------------------------------------------------------------------------------------


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], ast.AST | None]]]:
    """Yield what a node may become; the functions change a copy, and return its replacement."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        yield _swap(node.ops[0]), _with_operator("ops")
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in SWAPPED:
        yield _swap(node.op), _with_operator("op")
    if isinstance(node, ast.BoolOp):
        yield _swap(node.op), _with_operator("op")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield "drop the second term", lambda node: node.left
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield f"drop {type(node.op).__name__}", lambda node: node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} -> {not node.value}", lambda node: ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        new = node.value + 1 if isinstance(node.value, int) else 2 * node.value or 1.0
        yield f"{node.value} -> {new}", lambda node, new=new: ast.Constant(new)
    if isinstance(node, ast.AugAssign):
        yield "drop the statement", lambda node: ast.Pass()
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "drop the statement", lambda node: ast.Pass()
    if isinstance(node, ast.If):
        yield "negate the condition", _negated


def _swap(operator: ast.AST) -> str:
    return f"{type(operator).__name__} -> {SWAPPED[type(operator)].__name__}"


def _with_operator(field: str) -> Callable[[Any], ast.AST]:
    def change(node: Any) -> ast.AST:
        old = getattr(node, field)
        first = old[0] if isinstance(old, list) else old
        new = SWAPPED[type(first)]()
        setattr(node, field, [new, *old[1:]] if isinstance(old, list) else new)
        return node

    return change


def _negated(node: Any) -> ast.AST:
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def numbered(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """Number the nodes within functions: without docstrings, types, messages and defaults."""
    for number, node in enumerate(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                for part in value if isinstance(value, list) else [value]:
                    _skip(part)
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments):
            _skip(node)
        if isinstance(node, ast.FunctionDef):
            for part in ast.walk(node):
                part.inside = True  # type: ignore[attr-defined]
        if getattr(node, "inside", False) and not getattr(node, "skipped", False):
            yield number, node


def _skip(node: ast.AST | None) -> None:
    for part in ast.walk(node) if node else ():
        part.skipped = True  # type: ignore[attr-defined]


def mutants_of(path: Path) -> list[Mutant]:
    """List all mutants of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    name = str(path.relative_to(ROOT))
    return [
        Mutant(name, getattr(node, "lineno", 0), number, change)
        for number, node in numbered(tree)
        for change, _ in changes(node)
    ]


def compiled(mutant: Mutant) -> CodeType:
    """Compile the module of a mutant with its change."""
    path = ROOT / mutant.path
    tree = ast.parse(path.read_text("utf-8"))
    nodes = list(ast.walk(tree))
    node = nodes[mutant.node]
    make = dict(changes(node))[mutant.change]
    new = make(copy.deepcopy(node))
    assert new is not None
    for parent in nodes:
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, ast.copy_location(new, node))
            elif isinstance(value, list) and any(part is node for part in value):
                replaced = [ast.copy_location(new, node) if p is node else p for p in value]
                setattr(parent, field, replaced)
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


def draw(count: int, seed: int) -> list[Mutant]:
    """Draw mutants at random; the first ones of a larger draw are those of a smaller.

    The order is that of hashes of the changed lines: changes elsewhere do not alter it.
    """
    keyed, met = [], Counter[str]()
    for folder in FOLDERS:
        for path in sorted((ROOT / "bayescal" / folder).rglob("*.py")):
            lines = path.read_text("utf-8").splitlines()
            for mutant in mutants_of(path):
                text = f"{seed} {mutant.path} {lines[mutant.line - 1]} {mutant.change}"
                met[text] += 1
                key = hashlib.sha256(f"{text} {met[text]}".encode()).hexdigest()
                keyed.append((key, mutant))
    return [mutant for _, mutant in sorted(keyed)[:count]]


# --- tests --------------------------------------------------------------------------------------


def module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def tests_of(path: str) -> list[str]:
    """Choose the test files for a module: those that name it and what it defines most often."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    kinds = ast.FunctionDef | ast.ClassDef
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    names |= {Path(path).stem.strip("_"), Path(path).parent.name}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    folder = path.split("/")[1]
    scored = []
    for place in TESTS[folder]:
        for file in sorted((ROOT / place).glob("test_*.py")):
            text = file.read_text("utf-8")
            named = Path(path).stem.strip("_") in file.stem
            score = 50 * named + len(pattern.findall(text)) / (1 + len(text) / 20_000)
            scored.append((-score, str(file.relative_to(ROOT))))
    return [*(name for score, name in sorted(scored)[:MAX_FILES] if score), FROZEN[folder]]


class Hook(importlib.abc.MetaPathFinder):
    """Imports the changed module in place of the file's."""

    def __init__(self, mutant: Mutant) -> None:
        self.name, self.path = module_name(mutant.path), str(ROOT / mutant.path)
        self.code = compiled(mutant)

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = SourceFileLoader(fullname, self.path)
        loader.get_code = lambda fullname: self.code  # type: ignore[method-assign]
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class Chosen:
    """A plugin of pytest that runs the likeliest tests first, and none when time is over."""

    def __init__(self, reaching: list[str], files: list[str]) -> None:
        self.rank = {name: place for place, name in enumerate(reaching)}
        self.files = {str(ROOT / name) for name in files}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order: one case of each test, then all; those that take the line before others."""
        chosen, met = [], Counter[str]()
        for item in items:
            name = item.nodeid.partition("[")[0]
            rank = self.rank.get(name)
            if rank is None and str(item.path) not in self.files:
                continue
            met[name] += 1
            chosen.append(((met[name] > 1, rank is None, rank or 0, met[name]), item))
        items[:] = [item for _, item in sorted(chosen, key=lambda pair: pair[0])]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if time.process_time() > BUDGET:
            item.session.shouldstop = "the time is over"


class Reached:
    """Which tests take a line: the data that branches.py kept."""

    def __init__(self, data: Path) -> None:
        from coverage import CoverageData

        self.data = CoverageData(str(data))
        self.data.read()
        with contextlib.closing(sqlite3.connect(data)) as base:
            counts = "select context_id, count(*) as number from arc group by context_id"
            query = f"select context, number from ({counts}) join context on context_id = id"
            self.lines = dict(base.execute(query).fetchall())
        self.names = {
            "bayescal/" + Path(name).as_posix().rpartition("/bayescal/")[2]: name
            for name in self.data.measured_files()
        }

    def __call__(self, mutant: Mutant) -> list[str]:
        by_line = self.data.contexts_by_lineno(self.names.get(mutant.path, ""))
        found = {name for name in by_line.get(mutant.line, []) if name.startswith("tests/")}
        return sorted(found, key=lambda name: (self.lines[name], name))[:MAX_TESTS]


def start(mutant: Mutant, reaching: list[str], log: Path) -> int:
    """Run the tests of a mutant in a process, which begins with what this one has imported."""
    child = os.fork()
    if not child:
        code = 3
        try:
            with log.open("wb") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            code = worker(mutant, reaching)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return child


def verdict(status: int, seconds: float, text: str) -> dict[str, Any]:
    """Say how the tests of a mutant ended."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGTERM, signal.SIGINT):
        raise KeyboardInterrupt
    if os.WIFSIGNALED(status):
        return {"verdict": "timeout" if seconds >= LIMIT else "killed", "by": "signal"}
    by = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    if by:
        return {"verdict": "killed", "by": by[1]}
    if os.WEXITSTATUS(status) == 0 or "the time is over" in text:
        return {"verdict": "survived"}
    raise RuntimeError(f"pytest did not run:\n{text[-2000:]}")


def worker(mutant: Mutant, reaching: list[str]) -> int:
    """Run the tests in this process, in which one module is changed."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 10))
    sys.meta_path.insert(0, Hook(mutant))
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += [
        "-o",
        "addopts=--import-mode=importlib --strict-markers",
        "--timeout=200",
        "--assert=plain",
    ]
    files = tests_of(mutant.path)
    places = dict.fromkeys([*(name.partition("::")[0] for name in reaching), *files])
    return int(pytest.main([*options, *places], plugins=[Chosen(reaching, files)]))


def digest(path: str) -> str:
    """Hash the code of a module, without comments and docstrings."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Count the verdicts, without mutants that are known to be equivalent."""
    equivalent = results.get("equivalent", {})
    judged = [found for found in results["mutants"].values() if found["place"] not in equivalent]
    survivors = sorted(found["place"] for found in judged if found["verdict"] == "survived")
    return {"judged": len(judged), "killed": len(judged) - len(survivors), "survivors": survivors}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/mutants.json")
    parser.add_argument("--reached", type=Path, required=True, help="what branches.py kept")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="judge survivors by more tests")
    options = parser.parse_args()
    options.json, options.reached = options.json.resolve(), options.reached.resolve()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    for name in ("tests.conftest", *HEAVY):
        importlib.import_module(name)
    assert "bayescal" not in sys.modules, "a child imports the changed package"
    reached = Reached(options.reached)
    from benchmarks import provenance

    results = provenance.read(options.json)
    known = results.setdefault("mutants", {})
    results |= {"seed": options.seed, "asked": options.count}
    states = {mutant: digest(mutant.path) for mutant in draw(options.count, options.seed)}

    def judged(mutant: Mutant) -> bool:
        return known.get(mutant.name, {}).get("module") == states[mutant]

    missing = [mutant for mutant in states if not judged(mutant)]
    if options.again:
        global MAX_FILES, BUDGET, LIMIT
        MAX_FILES, BUDGET, LIMIT = 1000, 600, 700
        survivors = summary(results)["survivors"]
        missing = [mutant for mutant in states if judged(mutant) and mutant.place in survivors]
    end = time.monotonic() + 60 * options.minutes
    running: dict[int, tuple[Mutant, Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        while running or missing:
            while missing and len(running) < options.processes:
                mutant = missing.pop(0)
                log = Path(folder) / f"{len(missing)}.log"
                running[start(mutant, reached(mutant), log)] = mutant, log
            child, status, usage = os.wait4(-1, 0)
            mutant, log = running.pop(child)
            seconds = round(usage.ru_utime + usage.ru_stime, 1)
            facts = verdict(status, seconds, log.read_text("utf-8", errors="replace"))
            facts = {"place": mutant.place, "seconds": seconds, **facts}
            known[mutant.name] = {"module": states[mutant], **facts}
            print(mutant.name, known[mutant.name], flush=True)
            if time.monotonic() > end:
                missing.clear()
            options.json.write_text(json.dumps(results), "utf-8")
    # Those of earlier versions of a module stand for nothing now.
    results["mutants"] = {mutant.name: known[mutant.name] for mutant in states if judged(mutant)}
    results["summary"] = summary(results)
    print(results["summary"])
    # Not before: it imports the package, which the children would have from this process.
    provenance.write(options.json, results, ["coverage"])


if __name__ == "__main__":
    main()
