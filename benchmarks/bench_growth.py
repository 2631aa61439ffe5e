"""Time fits, predictions and metrics per row, from a thousand rows to a hundred million.

    python -m benchmarks.bench_growth [--most 100000000] [--json FILE]

Probabilities of two classes are in memory as float64, and labels as integers of one byte. Each time
is the shortest of up to five runs after the first. ``docs/pictures/growth.svg`` shows the times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bayescal as bc
from benchmarks import provenance
from benchmarks.bench_scale import STEP, draw


def draw_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities and labels in blocks, which need little additional memory."""
    p, y = np.empty(n), np.empty(n, np.int8)
    for block, first in enumerate(range(0, n, STEP)):
        part = slice(first, min(first + STEP, n))
        p[part], y[part] = draw(block, part.stop - first)
    return p, y


def jobs(p: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Create the timed functions."""
    auto = bc.Auto().fit(p[:100_000], y[:100_000])
    return {
        "Beta, fit": lambda: bc.Beta().fit(p, y),
        "Auto, fit": lambda: bc.Auto().fit(p, y),
        "Auto, predict": lambda: auto.predict_proba(p),
        "log_loss": lambda: bc.metrics.log_loss(p, y),
        "ece": lambda: bc.metrics.ece(p, y),
    }


def shortest_time(run: Callable[[], Any]) -> float:
    """Measure the shortest time of up to five runs, after a first run that is not timed."""
    run()
    seconds: list[float] = []
    while not seconds or (len(seconds) < 5 and sum(seconds) < 2):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=10**8, help="the largest number of rows")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    n = 1000
    while n <= options.most:
        for job, run in jobs(*draw_rows(n)).items():
            rows.append({"job": job, "rows": n, "seconds": shortest_time(run)})
            print(f"{job:14} {n:>11,} {1e9 * rows[-1]['seconds'] / n:10.1f} ns a row", flush=True)
        n *= 10
    if options.json:
        provenance.write(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
