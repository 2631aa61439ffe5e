"""Run entries of a benchmark each in a process of its own, and print them side by side.

An entry is a method of a task. Its process imports, makes the data, fits once (the first call,
compiling included, the import apart) and then again and again (median of wall and of processor
time, of all threads). Libraries that are not installed are left out, with a note.
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
    """A method of a task.

    ``setup(*make(data))`` returns a call, and a function of its result that says how good it is:
    methods of a task reach the same objective or they are not comparable. ``module`` is imported
    before the clock starts.
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

        assert bc.Logistic  # imports scikit-learn
    elif entry.module:
        importlib.import_module(entry.module)
    call, quality = entry.setup(*make(entry.data))
    with contextlib.suppress(OSError):  # on Linux the peak so far is forgotten
        Path("/proc/self/clear_refs").write_text("5")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result = call()
    first = time.perf_counter() - start
    wall, cpu = [], []
    enough = 5 if first < 15 else 2
    while len(wall) < enough or (sum(wall) < 1 and len(wall) < 50):
        start, busy = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - busy)
    return {
        "first_s": first,
        "warm_s": statistics.median(wall),
        "warm_cpu_s": statistics.median(cpu),
        # Beyond what is held before; where the system keeps the peak of making the data, beyond it.
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
    """Run every entry in a fresh process, print a table, and write the figures if asked to."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--task", nargs="*", help="only tasks whose names begin so")
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
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        row: dict[str, Any] = {"task": entry.task, "library": entry.library, "what": entry.label}
        if done.returncode:
            if entry.library == "bayescal":
                raise SystemExit(f"{entry.task} failed:\n{done.stderr}")
            row["error"] = done.stderr.strip().splitlines()[-1]
        else:
            row |= json.loads(done.stdout.splitlines()[-1])
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
    """Print a table; ratios are to the first line of each task, which is ours."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{title}: first call of a process, and median of later ones")
    names = "task", "library", "what", "first, s", "warm, s", "warm CPU, s", "theirs / ours"
    for name in (*names, "peak, MB", quality):
        table.add_column(name, justify="left" if name in names[:3] else "right")
    own: dict[str, float] = {}
    for row in rows:
        facts = [row["task"], row["library"], row["what"]]
        if "error" in row:
            table.add_row(*facts, row["error"])
            continue
        own.setdefault(row["task"], row["warm_cpu_s"])
        row["cpu_ratio"] = row["warm_cpu_s"] / own[row["task"]]
        times = (f"{row[name]:.4f}" for name in ("first_s", "warm_s", "warm_cpu_s"))
        ends = f"{row['cpu_ratio']:.1f}", f"{row['peak_mb']:.0f}", f"{row['quality']:.7f}"
        table.add_row(*facts, *times, *ends)
    Console(width=140).print(table)
