"""Which branches of the package the fast tests take, by folder.

    python benchmarks/branches.py [--processes 2] [--data FILE ...] [--keep FILE] [--json FILE]

Runs the fast tests with ``coverage`` (half an hour on two cores), and the programs that they
start, or reads the data files of earlier runs. ``--keep`` leaves a data file that also knows which
tests take which line, which ``mutants.py`` reads. Lines that no test can reach are in
``[tool.coverage.report]`` of pyproject.toml, with their reasons.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
COVERAGE = [sys.executable, "-m", "coverage"]
OPTIONS = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "-o"]
OPTIONS += ["addopts=--doctest-modules --import-mode=importlib --strict-markers"]


class Contexts:
    """A plugin of pytest that tells ``coverage`` which test runs."""

    def __init__(self, measured: Any) -> None:
        self.measured = measured

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid.partition("[")[0])
        try:
            return (yield)
        finally:
            self.measured.switch_context("")


def list_paths() -> list[Path]:
    """List the files with tests, those that hold most text first, and the package's doctests."""
    files = (ROOT / "tests").rglob("test_*.py")
    return [*sorted(files, key=lambda path: (-path.stat().st_size, str(path))), ROOT / "bayescal"]


def work(data: Path, part: int, parts: int) -> int:
    """Run the tests of each ``parts``-th path in this process."""
    from coverage import Coverage

    measured = Coverage(data_file=str(data), branch=True, source=[str(ROOT / "bayescal")])
    paths = [str(path.relative_to(ROOT)) for path in list_paths()[part::parts]]
    measured.start()
    try:
        return int(pytest.main([*OPTIONS, *paths], plugins=[Contexts(measured)]))
    finally:
        measured.stop()
        measured.save()


def measure(folder: Path, processes: int) -> list[int]:
    """Run the fast tests, and return the exit codes of pytest."""
    call = [sys.executable, __file__, "--worker", str(folder)]
    running = [
        subprocess.Popen([*call, str(part), str(processes)], cwd=ROOT) for part in range(processes)
    ]
    return [process.wait() for process in running]


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


def combine(option: str, data: Path | list[Path]) -> None:
    """Combine data files; programs that tests started may still write theirs in a folder."""
    for attempt in range(5):
        parts = [str(path) for path in (data.glob("data*") if isinstance(data, Path) else data)]
        if not subprocess.run([*COVERAGE, "combine", "--keep", option, *parts]).returncode:
            return
        time.sleep(2**attempt)
    sys.exit(f"coverage could not combine the files of {data}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--data", type=Path, nargs="*", help="data files of earlier runs")
    parser.add_argument("--keep", type=Path, help="where the data file is kept")
    parser.add_argument("--remark", help="what a reader must know of these runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    if options.worker:
        folder, part, parts = options.worker
        sys.exit(work(Path(folder) / f"data.{part}", int(part), int(parts)))
    folder, codes = Path(tempfile.mkdtemp(prefix="branches-")), None
    print(f"Data files are in {folder} until they are combined.", flush=True)
    if not options.data:
        codes = measure(folder, options.processes)
    one = f"--data-file={options.keep or folder / 'all'}"
    combine(one, options.data or folder)
    report = [*COVERAGE, "json", one, "-o", str(folder / "report.json")]
    subprocess.run(report, check=True)
    files = json.loads((folder / "report.json").read_text("utf-8"))["files"]
    shutil.rmtree(folder)
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

        facts = {"exit_codes": codes, "remark": options.remark}
        write(options.json, {**facts, "folders": folders, "missing": missing}, ["coverage"])


if __name__ == "__main__":
    main()
