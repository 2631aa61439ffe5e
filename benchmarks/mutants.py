"""Which changes of the numerical core do the fast tests notice?

    python benchmarks/mutants.py [--count 400] [--minutes 60] [--json FILE]

A mutant is the package with one change: another comparison, arithmetic operator, constant, or a
statement or term less. Mutants are drawn at random, with a seed, from ``metrics/``, ``regression/``
and ``calibrators/``. Each one runs in a process whose import hook compiles the changed syntax tree;
nothing is written to the working tree. The test files that name what the module defines run first,
then frozen numbers, until one fails: one case of each test, then all cases.

Each verdict is written as soon as it is known; a second run goes on with the mutants that are
missing, and repeats those whose module has changed. A mutant that no test can notice, since it
computes the same or only tunes speed, is listed in the file under ``equivalent`` with its reason.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import importlib.abc
import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

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
#: Seconds of processor time for the tests of a mutant; one that takes longer counts as noticed.
LIMIT = 300

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
        return f"{self.path}:{self.line}:{self.node} {self.change}"


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


def verdict(mutant: Mutant, log: Path) -> dict[str, Any]:
    """Run one case of each test on a mutant, and all cases if it survives."""
    few = run(mutant, log, "one")
    return few if few["verdict"] != "survived" else run(mutant, log, "all")


def run(mutant: Mutant, log: Path, cases: str) -> dict[str, Any]:
    """Run the tests of a mutant in a process, and say how they ended."""
    start = time.perf_counter()
    call = [sys.executable, __file__, "--worker", *map(str, mutant), cases]
    with log.open("wb") as output:
        process = subprocess.Popen(call, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    text = log.read_text("utf-8", errors="replace")
    seconds = round(usage.ru_utime + usage.ru_stime, 1)
    facts = {"seconds": seconds, "wall": round(time.perf_counter() - start, 1)}
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGTERM, signal.SIGINT):
        raise KeyboardInterrupt
    if os.WIFSIGNALED(status):
        return {"verdict": "timeout" if seconds >= LIMIT else "killed", "by": "signal", **facts}
    by = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    code = os.WEXITSTATUS(status)
    if code == 0:
        return {"verdict": "survived", **facts}
    if code > 2 or by is None:
        raise RuntimeError(f"pytest did not run:\n{text[-2000:]}")
    return {"verdict": "killed", "by": by[1], **facts}


def worker(mutant: Mutant, cases: str) -> int:
    """Run the tests in this process, in which one module is changed."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 10))
    sys.meta_path.insert(0, Hook(mutant))
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-o", "addopts=--import-mode=importlib --strict-markers", "--timeout=600"]
    options += ["--one-case"] if cases == "one" else []
    return int(pytest.main([*options, *tests_of(mutant.path)]))


def digest(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Count the verdicts, without mutants that are known to be equivalent."""
    equivalent = results.get("equivalent", {})
    judged = {n: r["verdict"] for n, r in results["mutants"].items() if n not in equivalent}
    survivors = sorted(name for name, found in judged.items() if found == "survived")
    return {"judged": len(judged), "killed": len(judged) - len(survivors), "survivors": survivors}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/mutants.json")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    if options.worker:
        path, line, node, change, cases = options.worker
        sys.exit(worker(Mutant(path, int(line), int(node), change), cases))
    from benchmarks.provenance import read, write

    results = read(options.json)
    known = results.setdefault("mutants", {})
    end = time.monotonic() + 60 * options.minutes
    log = Path(tempfile.gettempdir()) / f"mutant-{os.getpid()}.log"
    for mutant in draw(options.count, options.seed):
        state = digest(mutant.path)
        if known.get(mutant.name, {}).get("module") == state:
            continue
        if time.monotonic() > end:
            break
        known[mutant.name] = {"module": state, **verdict(mutant, log)}
        print(mutant.name, known[mutant.name], flush=True)
        results |= {"seed": options.seed, "asked": options.count}
        results["summary"] = summary(results)
        results.pop("provenance", None)
        write(options.json, results)
    log.unlink(missing_ok=True)
    print(summary(results))


if __name__ == "__main__":
    main()
