"""Time ``import bayescal`` against ``import jax``, each in a fresh process.

The two take turns, so that a change in the load of the machine meets both alike. The clock runs
inside the process, around the import alone: starting Python is not counted.

    python benchmarks/bench_import.py [--repetitions 11] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("jax", "bayescal")
MIN_REPETITIONS = 11
TIMER = """
import importlib, sys, time
start = time.perf_counter()
importlib.import_module(sys.argv[1])
print(time.perf_counter() - start)
"""


def time_import(module: str) -> float:
    """Return the seconds that importing a module takes in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", TIMER, module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"import {module} failed:\n{done.stderr}")
    return float(done.stdout)


def measure(repetitions: int) -> dict[str, list[float]]:
    """Return the seconds of every import; the modules take turns, after one uncounted round."""
    for module in MODULES:  # writes the byte code and warms the file cache
        time_import(module)
    seconds: dict[str, list[float]] = {module: [] for module in MODULES}
    for turn in range(repetitions):
        for module in MODULES if turn % 2 == 0 else reversed(MODULES):
            seconds[module].append(time_import(module))
    return seconds


def summarize(seconds: dict[str, list[float]]) -> dict[str, object]:
    """Return medians, quartiles and the ratio of the medians."""
    medians = {module: statistics.median(values) for module, values in seconds.items()}
    return {
        "median_s": medians,
        "quartiles_s": {
            module: statistics.quantiles(values, n=4)[::2] for module, values in seconds.items()
        },
        "ratio": medians["bayescal"] / medians["jax"],
        "seconds": seconds,
        "python": platform.python_version(),
        "jax": version("jax"),
    }


def show(summary: dict[str, object], repetitions: int) -> None:
    """Print the table."""
    table = Table(
        title=f"Import time, {repetitions} fresh processes each "
        f"(Python {summary['python']}, JAX {summary['jax']})"
    )
    table.add_column("module")
    for heading in ("median [ms]", "quartiles [ms]", "ratio"):
        table.add_column(heading, justify="right")
    for module in MODULES:
        median = summary["median_s"][module]
        low, high = summary["quartiles_s"][module]
        table.add_row(
            module,
            f"{1e3 * median:.0f}",
            f"{1e3 * low:.0f} to {1e3 * high:.0f}",
            f"{median / summary['median_s']['jax']:.3f}",
        )
    Console().print(table)


def repetition_count(text: str) -> int:
    """Read the number of repetitions, at least `MIN_REPETITIONS`."""
    count = int(text)
    if count < MIN_REPETITIONS:
        raise argparse.ArgumentTypeError(f"must be at least {MIN_REPETITIONS}, got {count}")
    return count


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=repetition_count, default=MIN_REPETITIONS)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    summary = summarize(measure(arguments.repetitions))
    if arguments.json:
        print(json.dumps(summary, indent=2))
    else:
        show(summary, arguments.repetitions)


if __name__ == "__main__":
    main()
