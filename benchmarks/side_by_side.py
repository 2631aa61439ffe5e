"""Run each entry of a benchmark in a fresh process, and print the results side by side.

An entry is one method for one task. Its process imports the library, makes the data, and fits once
(the first call, which includes compilation but not the import). It then fits repeatedly, and
reports the median wall time and the median processor time, summed over threads. The table shows the
error message of an entry whose library is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import write


class Entry(NamedTuple):
    """A method for a task.

    ``setup(*make(data))`` returns two functions. The first is the timed call. The second maps the
    result of that call to the objective: methods for one task are comparable only if they reach the
    same objective. ``module`` is imported before the clock starts.
    """

    task: str
    library: str
    label: str
    data: Any
    module: str
    setup: Callable[..., tuple[Callable[[], Any], Callable[[Any], float]]]


def worker(entry: Entry, make: Callable[[Any], Sequence[Any]]) -> dict[str, Any]:
    """Time one entry in this process."""
    warnings.simplefilter("ignore")
    if entry.library == "bayescal":
        import bayescal as bc

        assert bc.Logistic  # this imports scikit-learn
    elif entry.module:
        importlib.import_module(entry.module)
    call, quality = entry.setup(*make(entry.data))
    with contextlib.suppress(OSError):  # this resets the peak memory on Linux
        Path("/proc/self/clear_refs").write_text("5")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result = call()
    first = time.perf_counter() - start
    wall, cpu = [], []
    min_calls = 5 if first < 15 else 2
    while len(wall) < min_calls or (sum(wall) < 1 and len(wall) < 50):
        start, cpu_start = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return {
        "first_s": first,
        "warm_s": statistics.median(wall),
        "warm_cpu_s": statistics.median(cpu),
        # Increase of the peak; without a reset, only what exceeds the peak of making the data.
        "peak_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "quality": quality(result),
    }


def main(
    file: str,
    title: str,
    entries: Sequence[Entry],
    make: Callable[[Any], Sequence[Any]],
    libraries: Sequence[str],
    quality: str = "log loss",
) -> None:
    """Run every entry in a fresh process, print a table, and write the results if requested."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument(
        "--task", nargs="*", help="run only tasks whose names begin with one of these"
    )
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        sys.stdout.write(json.dumps(worker(entries[options.worker], make)) + "\n")
        return
    rows = []
    for number, entry in enumerate(entries):
        if options.task and not any(entry.task.startswith(name) for name in options.task):
            continue
        command = [sys.executable, file, "--worker", str(number)]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        row: dict[str, Any] = {"task": entry.task, "library": entry.library, "what": entry.label}
        if process.returncode:
            if entry.library == "bayescal":
                raise SystemExit(f"{entry.task} failed:\n{process.stderr}")
            row["error"] = process.stderr.strip().splitlines()[-1]
        else:
            row |= json.loads(process.stdout.splitlines()[-1])
        rows.append(row)
    show(rows, title, quality)
    if options.json:
        environment = {
            "device": f"cpu {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        }
        write(options.json, {"environment": environment, "rows": rows}, libraries)


def show(rows: list[dict[str, Any]], title: str, quality: str) -> None:
    """Print a table, with times relative to the first row of each task, which is bayescal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{title}: first call of a process, and median of later ones")
    names = "task", "library", "what", "first, s", "warm, s", "warm CPU, s", "CPU / bayescal"
    for name in (*names, "peak, MB", quality):
        table.add_column(name, justify="left" if name in names[:3] else "right")
    bayescal_cpu: dict[str, float] = {}
    for row in rows:
        labels = [row["task"], row["library"], row["what"]]
        if "error" in row:
            table.add_row(*labels, row["error"])
            continue
        bayescal_cpu.setdefault(row["task"], row["warm_cpu_s"])
        row["cpu_ratio"] = row["warm_cpu_s"] / bayescal_cpu[row["task"]]
        times = (f"{row[name]:.4f}" for name in ("first_s", "warm_s", "warm_cpu_s"))
        numbers = f"{row['cpu_ratio']:.1f}", f"{row['peak_mb']:.0f}", f"{row['quality']:.7f}"
        table.add_row(*labels, *times, *numbers)
    Console(width=140).print(table)
