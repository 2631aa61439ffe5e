"""Measure which branches of the package the fast tests cover, by folder.

    python benchmarks/branches.py [--processes 2] [--data FILE ...] [--keep FILE] [--json FILE]
                                  [--at-least SHARE]

The script runs the fast tests, and the programs that they start, with ``coverage`` (half an hour on
two cores), or reads the data files of earlier runs. ``--keep`` writes a data file that also records
which tests run each line; ``mutants.py`` reads it. ``--at-least`` lists the branches that are not
taken, and fails if the others are a smaller share. Lines that no test can reach are listed in
``[tool.coverage.report]`` of pyproject.toml, with the reasons.
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
    """A pytest plugin that reports the running test to ``coverage``."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid.partition("[")[0])
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")


def list_paths() -> list[Path]:
    """List the test files, largest first, and the package, which has doctests."""
    files = (ROOT / "tests").rglob("test_*.py")
    return [*sorted(files, key=lambda path: (-path.stat().st_size, str(path))), ROOT / "bayescal"]


def run_part(data: Path, part: int, parts: int) -> int:
    """Run the tests of every ``parts``-th path in this process."""
    from coverage import Coverage

    coverage = Coverage(data_file=str(data), branch=True, source=[str(ROOT / "bayescal")])
    paths = [str(path.relative_to(ROOT)) for path in list_paths()[part::parts]]
    coverage.start()
    try:
        return int(pytest.main([*OPTIONS, *paths], plugins=[Contexts(coverage)]))
    finally:
        coverage.stop()
        coverage.save()


def measure(folder: Path, processes: int) -> list[int]:
    """Run the fast tests in several processes, and return the exit codes of pytest."""
    command = [sys.executable, __file__, "--worker", str(folder)]
    workers = [
        subprocess.Popen([*command, str(part), str(processes)], cwd=ROOT)
        for part in range(processes)
    ]
    return [process.wait() for process in workers]


def by_folder(files: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Sum the counts of ``coverage json`` over the files of each folder."""
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    sums: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(names, 0))
    for path, counts in files.items():
        parts = Path(path.replace("\\", "/")).parts
        relative = parts[parts.index("bayescal") + 1 :]
        for folder in ("all", relative[0] if len(relative) > 1 else "top level"):
            for name in names:
                sums[folder][name] += counts["summary"][name]
    for counts in sums.values():
        counts["lines"] = counts["covered_lines"] / max(counts["num_statements"], 1)
        counts["branches"] = counts["covered_branches"] / max(counts["num_branches"], 1)
    return dict(sorted(sums.items()))


def combine(option: str, data: Path | list[Path]) -> None:
    """Combine data files into one.

    Programs that tests started may still be writing their files, so failures are retried.
    """
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
    parser.add_argument("--keep", type=Path, help="write the combined data file here")
    parser.add_argument("--at-least", type=float, help="fail below this share of branches")
    parser.add_argument("--remark", help="note for readers of the results")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    if options.worker:
        folder, part, parts = options.worker
        sys.exit(run_part(Path(folder) / f"data.{part}", int(part), int(parts)))
    folder, codes = Path(tempfile.mkdtemp(prefix="branches-")), None
    print(f"Data files are in {folder} until they are combined.", flush=True)
    if not options.data:
        codes = measure(folder, options.processes)
    data_option = f"--data-file={options.keep or folder / 'all'}"
    combine(data_option, options.data or folder)
    report = [*COVERAGE, "json", data_option, "-o", str(folder / "report.json")]
    subprocess.run(report, check=True)
    files = json.loads((folder / "report.json").read_text("utf-8"))["files"]
    shutil.rmtree(folder)
    folders = by_folder(files)
    missing = {
        path[path.index("bayescal") :]: [f"{a} -> {b}" for a, b in facts["missing_branches"]]
        for path, facts in sorted(files.items())
        if facts["missing_branches"]
    }
    for folder, counts in folders.items():
        print(f"{folder:20} {counts['lines']:7.1%} {counts['branches']:7.1%}")
    if options.at_least is not None:
        for path, arcs in missing.items():
            print(f"{path}: {', '.join(arcs)}")
        share = folders["all"]["branches"]
        if share < options.at_least:
            sys.exit(f"{share:.2%} of the branches are taken, less than {options.at_least:.0%}")
    if options.json:
        from benchmarks.provenance import write

        run = {"exit_codes": codes, "remark": options.remark}
        write(options.json, {**run, "folders": folders, "missing": missing}, ["coverage"])


if __name__ == "__main__":
    main()
