"""Ten priors in one call beside a loop over them: first call and warm, wall and processor time.

    python benchmarks/bench_grid.py [--json FILE]

50 labeled scores, 100 points, two normal classes. Means have uniform priors of ten widths, and the
deviation is 1, or unknown ("three"). Each way runs in a fresh process, import apart; warm is the
median of five calls with other numbers. Processor time counts where others use the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import write

WIDTHS, POINTS, OBSERVATIONS, REPEATS = np.linspace(0.5, 5, 10), 100, 50, 5
JOBS = "montecarlo", "importance", "quadrature", "quadrature three"


def worker(job: str, way: str) -> dict[str, float]:
    """Time one way to do one job in this process."""
    import warnings

    import jax
    import numpyro.distributions as dist

    import bayescal as bc

    warnings.simplefilter("ignore")
    integrator, _, three = job.partition(" ")
    y = np.arange(OBSERVATIONS) % 2
    data = np.random.default_rng(0).normal(2.0 * y - 1), y
    x = np.linspace(-3, 3, POINTS)

    def run(shift: float) -> None:
        deviation: Any = dist.LogNormal(0.0, 0.3) if three else 1.0
        grid = {
            f"{w:.1f}": bc.GaussianPrior(
                dist.Uniform(-w - shift, 0.0), dist.Uniform(0.0, w + shift), deviation
            )
            for w in WIDTHS
        }
        for prior in [grid] if way == "grid" else grid.values():
            jax.block_until_ready(bc.posterior_predict(prior, data, x, integrator=integrator).probs)

    walls, cpus = [], []
    for repeat in range(1 + REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        run(0.01 * repeat)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {
        "first_s": walls[0],
        "first_cpu_s": cpus[0],
        "warm_s": statistics.median(walls[1:]),
        "warm_cpu_s": statistics.median(cpus[1:]),
    }


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        sys.stdout.write(json.dumps(worker(*options.worker)) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    results: dict[str, dict[str, dict[str, float]]] = {}
    for job in JOBS:
        results[job] = {}
        for way in ("loop", "grid"):
            command = [sys.executable, __file__, "--worker", job, way]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results[job][way] = json.loads(done.stdout.strip().splitlines()[-1])
    table = Table(title=f"{len(WIDTHS)} priors, {OBSERVATIONS} observations, {POINTS} points")
    heads = "integrator", "way", "first, s", "processor, s", "warm, s", "processor, s"
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    for job, ways in results.items():
        for way, row in ways.items():
            table.add_row(job, way, *(f"{value:.3f}" for value in row.values()))
    Console(width=100).print(table)
    if options.json:
        shared = "other programs ran on these cores: compare processor times"
        write(options.json, {"environment": {"shared": shared}, "results": results})


if __name__ == "__main__":
    main()
