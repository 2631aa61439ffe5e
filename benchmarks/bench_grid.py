"""Compare ten priors in one call with a loop over them: wall and processor time.

    python benchmarks/bench_grid.py [--json FILE]

The data are 50 labeled scores of two normal classes, and predictions are made at 100 points. The
means have uniform priors of ten widths. The standard deviation is 1, or unknown ("three"). Each
method runs in a fresh process, and the import is not timed. Warm times are medians of five calls
with slightly different priors. Processor times are comparable even if other programs run.
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


def worker(job: str, method: str) -> dict[str, float]:
    """Time one method for one job in this process."""
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
        for prior in [grid] if method == "grid" else grid.values():
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
    """Run all jobs and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
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
        for method in ("loop", "grid"):
            command = [sys.executable, __file__, "--worker", job, method]
            process = subprocess.run(command, capture_output=True, text=True, check=True)
            results[job][method] = json.loads(process.stdout.strip().splitlines()[-1])
    table = Table(title=f"{len(WIDTHS)} priors, {OBSERVATIONS} observations, {POINTS} points")
    heads = "integrator", "method", "first, s", "processor, s", "warm, s", "processor, s"
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    for job, methods in results.items():
        for method, row in methods.items():
            table.add_row(job, method, *(f"{value:.3f}" for value in row.values()))
    Console(width=100).print(table)
    if options.json:
        shared = "other programs ran on these cores: compare processor times"
        write(options.json, {"environment": {"shared": shared}, "results": results})


if __name__ == "__main__":
    main()
