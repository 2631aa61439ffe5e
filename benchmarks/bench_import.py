"""Time startup: imports, first calls, and help and errors of the command line.

Each program runs in a fresh process. The programs take turns, so that changes in the load of the
machine affect all of them. Wall-clock and processor times are of the whole process, imports and
compilation included; the first row is the startup of Python itself.

    python benchmarks/bench_import.py [--repetitions 11] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.provenance import versions, write

ROOT = Path(__file__).resolve().parents[1]
MIN_REPETITIONS = 11
IMPORTS = ("sys", "numpy", "jax", "bayescal", *(f"bayescal.{m}" for m in ("posterior", "metrics")))
COMMANDS = (
    "--help",
    "fit --help",
    "fit --nonsense",
    "fit none.csv --label y --out none --method nonsense",
    "evaluate none.csv --label y",
    "methods",
)
DATA = "import numpy as np; p = np.linspace(0.01, 0.99, 999); y = np.arange(999) % 7 < 7 * p**2; "
MANY = (
    "import numpy as np; r = np.random.default_rng(0); p = r.dirichlet(np.ones(10), {n}); "
    "y = r.integers(10, size={n}); "
)
SCORES = "import numpy as np; z = np.random.default_rng(0).normal(size=10_000); y = z > 0.3; "
#: First calls in a process, including imports, and calls to compare them with.
FIRST_USES = {
    "import sklearn.base": "import sklearn.base",
    "import sklearn.calibration": "import sklearn.calibration",
    "bayescal.Beta": "import bayescal; bayescal.Beta",
    "fit and predict Beta": DATA + "import bayescal as b; b.Beta().fit(p, y).predict_proba(p)",
    "fit and predict Auto": DATA + "import bayescal as b; b.Auto().fit(p, y).predict_proba(p)",
    "ece of 999 rows": DATA + "import bayescal as b; b.metrics.ece(p, y)",
    "data of 1e6 x 10": MANY.format(n=1_000_000),
    "ece of 1e6 x 10": MANY.format(n=1_000_000) + "import bayescal as b; b.metrics.ece(p, y)",
    "fit Kernel to 10,000 x 10": MANY.format(n=10_000)
    + "import bayescal as b; b.Kernel(bandwidth=0.1).fit(p, y).predict_proba(p[:1_000])",
    "smooth 10,000 labels by density estimates": SCORES
    + "from bayescal.smoothing import instance_targets; instance_targets(z, y)",
    "posterior_predict": "import numpy as np, numpyro.distributions as d; import bayescal as b; "
    "z = np.r_[np.linspace(-2, 1, 25), np.linspace(-1, 2, 25)]; y = np.arange(50) >= 25; "
    "prior = b.GaussianPrior(mu0=d.Uniform(-2.5, 0), mu1=d.Uniform(0, 2.5), sigma=1.0); "
    "b.posterior_predict(prior, (z, y), np.linspace(-3, 3, 100), key=0)",
}
PROGRAMS = {
    **{f"import {name}": (f"import {name}",) for name in (*IMPORTS, "bayescal.calibrators")},
    **{name: (code,) for name, code in FIRST_USES.items()},
    **{
        f"bayescal {line}": ("from bayescal.cli import main; main()", *line.split())
        for line in COMMANDS
    },
}


def time_process(program: tuple[str, ...]) -> tuple[float, float]:
    """Measure the wall-clock and processor seconds of a program."""
    before, start = os.times(), time.perf_counter()
    process = subprocess.run(
        [sys.executable, "-c", *program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, after = time.perf_counter() - start, os.times()
    if process.returncode not in (0, 2):
        raise SystemExit(f"{program} failed:\n{process.stderr}")
    children = after.children_user + after.children_system
    return seconds, children - before.children_user - before.children_system


def measure(repetitions: int) -> dict[str, list[tuple[float, float]]]:
    """Time every program; the programs take turns, after one round that is not counted."""
    for program in PROGRAMS.values():  # writes the byte code and warms the file cache
        time_process(program)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for turn in range(repetitions):
        for name in PROGRAMS if turn % 2 == 0 else reversed(PROGRAMS):
            times[name].append(time_process(PROGRAMS[name]))
    return times


def summarize(times: dict[str, list[tuple[float, float]]]) -> dict[str, object]:
    """Compute medians and quartiles of wall-clock times, and minimum processor times."""
    wall_times = {name: [wall for wall, _ in values] for name, values in times.items()}
    return {
        "median_s": {name: statistics.median(values) for name, values in wall_times.items()},
        "quartiles_s": {
            name: statistics.quantiles(values, n=4)[::2] for name, values in wall_times.items()
        },
        "least_processor_s": {
            name: min(cpu for _, cpu in values) for name, values in times.items()
        },
    }


def show(summary: dict[str, dict[str, float]], repetitions: int) -> None:
    """Print the times as a table."""
    installed = versions()
    table = Table(
        title=f"Startup, {repetitions} fresh processes each "
        f"(Python {installed['python']}, JAX {installed['jax']})"
    )
    table.add_column("process")
    for heading in ("median [ms]", "quartiles [ms]", "minimum processor time [ms]"):
        table.add_column(heading, justify="right")
    for name in PROGRAMS:
        low, high = summary["quartiles_s"][name]
        table.add_row(
            name,
            f"{1e3 * summary['median_s'][name]:.0f}",
            f"{1e3 * low:.0f} to {1e3 * high:.0f}",
            f"{1e3 * summary['least_processor_s'][name]:.0f}",
        )
    Console().print(table)


def repetition_count(text: str) -> int:
    """Parse the number of repetitions, which must be at least ``MIN_REPETITIONS``."""
    count = int(text)
    if count < MIN_REPETITIONS:
        raise argparse.ArgumentTypeError(f"must be at least {MIN_REPETITIONS} but got {count}")
    return count


def main() -> None:
    """Measure all programs, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=repetition_count, default=MIN_REPETITIONS)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    summary = summarize(measure(arguments.repetitions))
    show(summary, arguments.repetitions)
    if arguments.json:
        write(arguments.json, {"repetitions": arguments.repetitions, **summary})


if __name__ == "__main__":
    main()
