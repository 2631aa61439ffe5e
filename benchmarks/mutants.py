"""Measure which changes of the numerical core the fast tests notice (mutation testing).

    python benchmarks/branches.py --keep branches.data
    python benchmarks/mutants.py --reached branches.data [--count 400] [--minutes 60] [--json FILE]
    python benchmarks/mutants.py --reached branches.data --again

A mutant is the package with one change: a different comparison, arithmetic operator or constant, or
a removed statement or term. Mutants are drawn at random, with a seed, from ``metrics/``,
``regression/`` and ``calibrators/``. Each one runs in a separate process, whose import hook
compiles the changed syntax tree; nothing is written to the working tree. Tests that run the changed
line come first, those that run the fewest lines before the others. Then come the tests of the files
that mention the definitions of the module, and frozen numbers. The run ends at the first failure,
or after two minutes of processor time. (Lines that are traced once and then compiled are recorded
for a single test only, which is why the other files are needed.)

Each verdict is written as soon as it is known. A second run continues with the missing mutants, and
repeats those whose code has changed. A change that no test can notice, because it computes the same
result or only affects speed, is listed in the file under ``equivalent`` with its reason.
``--again`` runs all fast tests of the folder for the other survivors, for ten minutes each.
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
#: Folders with tests of each folder, including tests of the layers that use its functions.
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
#: Maximum number of test files, chosen by mentions of the module's definitions.
MAX_FILES = 4
#: Maximum number of tests that are chosen because they run the changed line.
MAX_TESTS = 40
#: Processor time in seconds after which no further test of a mutant starts.
BUDGET = 120
#: Processor time in seconds for all tests of a mutant; a timeout counts as noticed.
LIMIT = 300
#: Message that ends the tests of a mutant.
TIME_IS_OVER = "the time is over"
#: Modules that take seconds to import and do not import the package.
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
    """A change of one node, given by its index in a walk of the module and the kind of change."""

    path: str
    line: int
    node: int
    change: str

    @property
    def name(self) -> str:
        """Path, node and change, which identify the mutant in the current version of the module."""
        return f"{self.path}:{self.node} {self.change}"

    @property
    def place(self) -> str:
        """Line of code and kind of change.

        This identifies a mutant even if other lines of the module change.
        """
        line = (ROOT / self.path).read_text("utf-8").splitlines()[self.line - 1]
        return f"{self.path}: {line.strip()}: {self.change}"


# --- changes ------------------------------------------------------------------------------------


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], ast.AST | None]]]:
    """Yield the possible changes of a node, each with a function that changes a copy of it."""
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
    """Describe the replacement of an operator."""
    return f"{type(operator).__name__} -> {SWAPPED[type(operator)].__name__}"


def _with_operator(field: str) -> Callable[[Any], ast.AST]:
    """Create a function that replaces the first operator in a field of a node."""

    def change(node: Any) -> ast.AST:
        old = getattr(node, field)
        first = old[0] if isinstance(old, list) else old
        new = SWAPPED[type(first)]()
        setattr(node, field, [new, *old[1:]] if isinstance(old, list) else new)
        return node

    return change


def _negated(node: Any) -> ast.AST:
    """Negate the condition of a node."""
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def numbered(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """Yield the nodes within functions and their numbers, without types, messages and defaults."""
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
    """Mark a node and its descendants as skipped."""
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
    """Compile the module of a mutant, with the change."""
    path = ROOT / mutant.path
    tree = ast.parse(path.read_text("utf-8"))
    nodes = list(ast.walk(tree))
    node = nodes[mutant.node]
    change = dict(changes(node))[mutant.change]
    changed = change(copy.deepcopy(node))
    assert changed is not None
    for parent in nodes:
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, ast.copy_location(changed, node))
            elif isinstance(value, list) and any(part is node for part in value):
                replaced = [ast.copy_location(changed, node) if p is node else p for p in value]
                setattr(parent, field, replaced)
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


def draw(count: int, seed: int) -> list[Mutant]:
    """Draw mutants at random.

    Draws are nested: a larger draw begins with the smaller ones. The order is that of hashes of the
    changed lines, so changes of other lines do not affect it.
    """
    ranked, num_seen = [], Counter[str]()
    for folder in FOLDERS:
        for path in sorted((ROOT / "bayescal" / folder).rglob("*.py")):
            lines = path.read_text("utf-8").splitlines()
            for mutant in mutants_of(path):
                text = f"{seed} {mutant.path} {lines[mutant.line - 1]} {mutant.change}"
                num_seen[text] += 1
                key = hashlib.sha256(f"{text} {num_seen[text]}".encode()).hexdigest()
                ranked.append((key, mutant))
    return [mutant for _, mutant in sorted(ranked)[:count]]


# --- tests --------------------------------------------------------------------------------------


def module_name(path: str) -> str:
    """Convert the path of a module to its dotted name."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def tests_of(path: str) -> list[str]:
    """Choose the test files that mention a module and its definitions most often."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    definitions = ast.FunctionDef | ast.ClassDef
    names = {node.name for node in tree.body if isinstance(node, definitions)}
    names |= {Path(path).stem.strip("_"), Path(path).parent.name}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    folder = path.split("/")[1]
    ranked = []
    for test_folder in TESTS[folder]:
        for file in sorted((ROOT / test_folder).glob("test_*.py")):
            text = file.read_text("utf-8")
            named_after_module = Path(path).stem.strip("_") in file.stem
            score = 50 * named_after_module + len(pattern.findall(text)) / (1 + len(text) / 20_000)
            ranked.append((-score, str(file.relative_to(ROOT))))
    return [*(name for score, name in sorted(ranked)[:MAX_FILES] if score), FROZEN[folder]]


class ImportHook(importlib.abc.MetaPathFinder):
    """An import hook that replaces the module by the changed one."""

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


class OrderedTests:
    """A pytest plugin that runs the most likely tests first, and stops when the time is up."""

    def __init__(self, reaching: list[str], files: list[str]) -> None:
        self.rank = {name: index for index, name in enumerate(reaching)}
        self.files = {str(ROOT / name) for name in files}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order the tests.

        The first case of each test comes before its other cases. Tests that run the changed line
        come before tests that do not.
        """
        ranked, num_seen = [], Counter[str]()
        for item in items:
            name = item.nodeid.partition("[")[0]
            rank = self.rank.get(name)
            if rank is None and str(item.path) not in self.files:
                continue
            num_seen[name] += 1
            ranked.append(((num_seen[name] > 1, rank is None, rank or 0, num_seen[name]), item))
        items[:] = [item for _, item in sorted(ranked, key=lambda pair: pair[0])]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """End the run when the time is used up."""
        if time.process_time() > BUDGET:
            item.session.shouldstop = TIME_IS_OVER


class CoveringTests:
    """Finds the tests that run a line, in the data that branches.py kept."""

    def __init__(self, data: Path) -> None:
        from coverage import CoverageData

        self.data = CoverageData(str(data))
        self.data.read()
        with contextlib.closing(sqlite3.connect(data)) as database:
            counts = "select context_id, count(*) as number from arc group by context_id"
            query = f"select context, number from ({counts}) join context on context_id = id"
            self.lines = dict(database.execute(query).fetchall())
        self.names = {
            "bayescal/" + Path(name).as_posix().rpartition("/bayescal/")[2]: name
            for name in self.data.measured_files()
        }

    def __call__(self, mutant: Mutant) -> list[str]:
        by_line = self.data.contexts_by_lineno(self.names.get(mutant.path, ""))
        tests = {name for name in by_line.get(mutant.line, []) if name.startswith("tests/")}
        return sorted(tests, key=lambda name: (self.lines[name], name))[:MAX_TESTS]


def start(mutant: Mutant, reaching: list[str], log: Path) -> int:
    """Fork a process that runs the tests of a mutant, with the modules imported so far."""
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
    """Interpret the exit status and the output of the tests of a mutant."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGTERM, signal.SIGINT):
        raise KeyboardInterrupt
    if os.WIFSIGNALED(status):
        return {"verdict": "timeout" if seconds >= LIMIT else "killed", "by": "signal"}
    failure = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    if failure:
        return {"verdict": "killed", "by": failure[1]}
    if os.WEXITSTATUS(status) == 0 or TIME_IS_OVER in text:
        return {"verdict": "survived"}
    if text.startswith("ImportError while loading conftest"):
        return {"verdict": "killed", "by": "import"}
    raise RuntimeError(f"pytest did not run:\n{text[-2000:]}")


def worker(mutant: Mutant, reaching: list[str]) -> int:
    """Run the tests in this process, with one module changed."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 10))
    sys.meta_path.insert(0, ImportHook(mutant))
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += [
        "-o",
        "addopts=--import-mode=importlib --strict-markers",
        "--timeout=200",
        "--assert=plain",
    ]
    files = tests_of(mutant.path)
    paths = dict.fromkeys([*(name.partition("::")[0] for name in reaching), *files])
    return int(pytest.main([*options, *paths], plugins=[OrderedTests(reaching, files)]))


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
    judged = [row for row in results["mutants"].values() if row["place"] not in equivalent]
    survivors = sorted(row["place"] for row in judged if row["verdict"] == "survived")
    return {"judged": len(judged), "killed": len(judged) - len(survivors), "survivors": survivors}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/mutants.json")
    parser.add_argument(
        "--reached", type=Path, required=True, help="data file that branches.py kept"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="run more tests for the survivors")
    options = parser.parse_args()
    options.json, options.reached = options.json.resolve(), options.reached.resolve()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    for name in ("tests.conftest", *HEAVY):
        importlib.import_module(name)
    assert "bayescal" not in sys.modules, "children must import the package themselves"
    reached = CoveringTests(options.reached)
    from benchmarks import provenance

    results = provenance.read(options.json)
    verdicts = results.setdefault("mutants", {})
    results |= {"seed": options.seed, "asked": options.count}
    digests = {mutant: digest(mutant.path) for mutant in draw(options.count, options.seed)}

    def judged(mutant: Mutant) -> bool:
        return verdicts.get(mutant.name, {}).get("module") == digests[mutant]

    missing = [mutant for mutant in digests if not judged(mutant)]
    if options.again:
        global MAX_FILES, BUDGET, LIMIT
        MAX_FILES, BUDGET, LIMIT = 1000, 600, 700
        survivors = summary(results)["survivors"]
        missing = [mutant for mutant in digests if judged(mutant) and mutant.place in survivors]
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
            outcome = verdict(status, seconds, log.read_text("utf-8", errors="replace"))
            outcome = {"place": mutant.place, "seconds": seconds, **outcome}
            verdicts[mutant.name] = {"module": digests[mutant], **outcome}
            print(mutant.name, verdicts[mutant.name], flush=True)
            if time.monotonic() > end:
                missing.clear()
            options.json.write_text(json.dumps(results), "utf-8")
    # Verdicts for earlier versions of a module are no longer valid.
    results["mutants"] = {
        mutant.name: verdicts[mutant.name] for mutant in digests if judged(mutant)
    }
    results["summary"] = summary(results)
    print(results["summary"])
    # This imports the package, which children would inherit if it were called earlier.
    provenance.write(options.json, results, ["coverage"])


if __name__ == "__main__":
    main()
