"""Which branches of the package the fast tests take, by folder.

    python benchmarks/branches.py [--data FILE ...] [--json FILE]

Runs the fast tests in one process with ``coverage`` (an hour or more), or reads the data files of
earlier runs. Lines that no test can reach are in ``[tool.coverage.report]`` of pyproject.toml, with
their reasons.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COVERAGE = [sys.executable, "-m", "coverage"]
OPTIONS = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-o"]
OPTIONS += ["addopts=--doctest-modules --import-mode=importlib --strict-markers"]


def measure(folder: Path) -> int:
    """Run the fast tests, and return the exit code of pytest."""
    call = [*COVERAGE, "run", "--branch", "--parallel-mode", f"--source={ROOT / 'bayescal'}"]
    call += [f"--data-file={folder / 'data'}", "-m", "pytest", *OPTIONS, "tests", "bayescal"]
    return subprocess.run(call, cwd=ROOT, check=False).returncode


def by_folder(files: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Add the counts of the files of a folder, as of ``coverage json``."""
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    sums: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(names, 0))
    for path, facts in files.items():
        parts = Path(path.replace("\\", "/")).parts
        inside = parts[parts.index("bayescal") + 1 :]
        for folder in ("all", inside[0] if len(inside) > 1 else "top level"):
            for name in names:
                sums[folder][name] += facts["summary"][name]
    for facts in sums.values():
        facts["lines"] = facts["covered_lines"] / max(facts["num_statements"], 1)
        facts["branches"] = facts["covered_branches"] / max(facts["num_branches"], 1)
    return dict(sorted(sums.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="*", help="data files of earlier runs")
    parser.add_argument("--remark", help="what a reader must know of these runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, code = Path(name), None
        if not options.data:
            code = measure(folder)
        parts = map(str, options.data or folder.glob("data*"))
        one = f"--data-file={folder / 'all'}"
        subprocess.run([*COVERAGE, "combine", "--keep", one, *parts], cwd=ROOT, check=True)
        report = [*COVERAGE, "json", one, "-o", str(folder / "report.json")]
        subprocess.run(report, cwd=ROOT, check=True)
        files = json.loads((folder / "report.json").read_text("utf-8"))["files"]
    folders = by_folder(files)
    missing = {
        path[path.index("bayescal") :]: [f"{a} -> {b}" for a, b in facts["missing_branches"]]
        for path, facts in sorted(files.items())
        if facts["missing_branches"]
    }
    for folder, facts in folders.items():
        print(f"{folder:20} {facts['lines']:7.1%} {facts['branches']:7.1%}")
    if options.json:
        from benchmarks.provenance import write

        facts = {"exit_code": code, "remark": options.remark}
        write(options.json, {**facts, "folders": folders, "missing": missing}, ["coverage"])


if __name__ == "__main__":
    main()
