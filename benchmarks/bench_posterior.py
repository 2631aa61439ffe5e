"""Compare ``posterior_predict`` with a plain NumPy loop over the draws: time, memory, accuracy.

    python benchmarks/bench_posterior.py [--json FILE] [--quick]

The task has 50 labeled scores, 1e5 draws from mu0 ~ U(-2.5, 0), mu1 ~ U(0, 2.5), sigma = 1, and 1e4
test points, for one data set and for 1,000 data sets with separate test points. Figures are for all
four methods together unless stated otherwise. First calls run in a fresh process, without the
import. The NumPy loop is the published algorithm: for each draw it computes the likelihood of the
data and the sigmoid of every test point. Its time for 1,000 data sets is that of one data set times
1,000. On a GPU, the script also times the plain average over all draws at all points (1e12 sigmoids
for 1,000 data sets), and compares it with the limit of the special-function units.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import write

DRAWS, OBSERVATIONS, POINTS, DATA_SETS = 100_000, 50, 10_000, 1_000
METHODS = ("predictive", "preds", "coeffs", "map")


def make_data(count: int, points: int = POINTS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw data sets (count, 50), their labels, and balanced test points (count, points)."""
    rng = np.random.default_rng(0)
    mu = np.stack([rng.uniform(-2.5, 0, count), rng.uniform(0, 2.5, count)])
    y = np.tile(np.arange(OBSERVATIONS) % 2, (count, 1))
    x = rng.normal(size=y.shape) + mu[y, np.arange(count)[:, None]]
    label = np.arange(points) % 2
    test = rng.normal(size=(count, points)) + mu[label[None], np.arange(count)[:, None]]
    return x, y, test


def make_prior() -> Any:
    """Create the prior with uniform means."""
    import numpyro.distributions as dist

    import bayescal as bc

    return bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0.0), mu1=dist.Uniform(0.0, 2.5), sigma=1.0)


def run(
    prior: Any, integrator: str, x: Any, y: Any, test: Any, key: int, methods: Any = METHODS
) -> Any:
    """Compute the posterior once, and predict by the methods; return computed probabilities."""
    import jax

    import bayescal as bc

    options = {"integrator": integrator, "num_samples": DRAWS, "class_prior": 0.5}
    post = bc.posterior(prior, (x, y), key=key, **options)
    return jax.block_until_ready({m: post.predict(test, method=m).probs for m in methods})


def peak_mib() -> float:
    """Read the peak memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def numpy_loop(x: np.ndarray, y: np.ndarray, test: np.ndarray, draws: int) -> dict[str, Any]:
    """Average over draws one by one, as published, and normalize the weights at the end."""
    rng = np.random.default_rng(1)
    mu0, mu1 = rng.uniform(-2.5, 0, draws), rng.uniform(0, 2.5, draws)
    preds, ones, zeros = np.zeros_like(test), np.zeros_like(test), np.zeros_like(test)
    total, a_sum, b_sum, best_weight, best_coefficients = 0.0, 0.0, 0.0, -1.0, (0.0, 0.0)
    for m0, m1 in zip(mu0, mu1, strict=True):
        mean = np.where(y == 1, m1, m0)
        weight = np.exp(-0.5 * np.sum((x - mean) ** 2))
        a, b = m1 - m0, 0.5 * (m0**2 - m1**2)
        preds += weight / (1 + np.exp(-(a * test + b)))
        ones += weight * np.exp(-0.5 * (test - m1) ** 2)
        zeros += weight * np.exp(-0.5 * (test - m0) ** 2)
        total, a_sum, b_sum = total + weight, a_sum + weight * a, b_sum + weight * b
        if weight > best_weight:
            best_weight, best_coefficients = weight, (a, b)

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    return {
        "predictive": ones / (ones + zeros),
        "preds": preds / total,
        "coeffs": sigmoid(a_sum / total * test + b_sum / total),
        "map": sigmoid(best_coefficients[0] * test + best_coefficients[1]),
    }


def worker(task: str) -> dict[str, Any]:
    """Run one task in this process, and return its figures."""
    name, _, option = task.partition(":")
    result: dict[str, Any] = {}
    if name == "numpy":
        x, y, test = make_data(1)
        draws = int(option)
        start = time.perf_counter()
        probs = numpy_loop(x[0], y[0], test[0], draws)
        result["run_s"] = (time.perf_counter() - start) * DRAWS / draws
        result["draws_timed"] = draws
        truth = run(make_prior(), "quadrature", x[0], y[0], test[0], 0)
        result["error"] = {m: float(np.abs(probs[m] - truth[m]).max()) for m in METHODS}
        result["peak_mib"] = None
        return result
    integrator, _, methods = option.partition(",")
    methods = METHODS if methods == "all" else (methods,)
    count = {"one": 1, "many": DATA_SETS}[name]
    prior = make_prior()
    x, y, test = make_data(count)
    if count == 1:
        x, y, test = x[0], y[0], test[0]
    result["peak_before_mib"] = peak_mib()
    start = time.perf_counter()
    probs = run(prior, integrator, x, y, test, 0, methods)
    result["first_s"] = time.perf_counter() - start
    warm = []
    for key in range(1, 22 if count == 1 else 4):
        start = time.perf_counter()
        run(prior, integrator, x, y, test, key, methods)
        warm.append(time.perf_counter() - start)
    result["warm_s"] = statistics.median(warm)
    result["peak_mib"] = peak_mib()
    if integrator != "quadrature":
        truth = run(make_prior(), "quadrature", x, y, test, 0, methods)
        result["error"] = {m: float(np.abs(probs[m] - truth[m]).max()) for m in methods}
    return result


def gpu_limit() -> dict[str, Any]:
    """Time 1e12 sigmoids as plain averages, and compare with the special-function limit."""
    import jax

    import bayescal as bc

    x, y, test = make_data(DATA_SETS)
    post = bc.posterior(make_prior(), (x, y), num_samples=DRAWS, class_prior=0.5)
    float32_test = test.astype(np.float32)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(post.predict(float32_test, method="preds", interpolate=False).probs)
        times.append(time.perf_counter() - start)
    device = jax.devices()[0]
    # A multiprocessor has 16 special-function units; a sigmoid needs an exp2 and a reciprocal.
    clock = float(os.environ.get("BAYESCAL_GPU_CLOCK_HZ", "1.98e9"))
    units = 16 * int(getattr(device, "core_count", 132))
    limit = 2 * DRAWS * POINTS * DATA_SETS / (units * clock)
    return {
        "first_s": times[0],
        "warm_s": min(times[1:]),
        "limit_s": limit,
        "ratio": min(times[1:]) / limit,
        "clock_hz": clock,
        "device": device.device_kind,
    }


def in_fresh_process(task: str) -> dict[str, Any]:
    """Run ``worker(task)`` in a new interpreter."""
    command = [sys.executable, __file__, "--worker", task]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{task} failed:\n{process.stderr}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def environment() -> dict[str, Any]:
    """Describe the device and the sizes."""
    import jax

    device = jax.devices()[0]
    return {
        "device": f"{device.platform} {device.device_kind}",
        "sizes": {
            "draws": DRAWS,
            "observations": OBSERVATIONS,
            "points": POINTS,
            "data_sets": DATA_SETS,
        },
    }


def main() -> None:
    """Run all tasks and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--quick", action="store_true", help="time the NumPy loop on 2,000 draws")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        figures = gpu_limit() if options.worker == "gpu" else worker(options.worker)
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    tasks = [f"numpy:{2_000 if options.quick else DRAWS}"]
    for integrator in ("montecarlo", "sobol", "importance", "quadrature"):
        tasks.append(f"one:{integrator},all")
    for integrator in ("montecarlo", "quadrature"):
        tasks += [f"one:{integrator},predictive", f"many:{integrator},all"]
    results = {task: in_fresh_process(task) for task in tasks}
    everything = {"environment": environment(), "results": results}
    if everything["environment"]["device"].startswith("gpu"):
        results["gpu"] = in_fresh_process("gpu")

    table = Table(title="posterior_predict: 1e5 draws, 50 observations, 1e4 test points")
    for column in ("task", "first call, s", "warm, s", "peak MiB", "largest error", "NumPy / warm"):
        table.add_column(column, justify="left" if column == "task" else "right")
    console = Console(width=110)
    loop = results[tasks[0]]["run_s"]
    for task, row in results.items():
        error = max(row["error"].values()) if "error" in row else None
        warm = row.get("warm_s", row.get("run_s"))
        scale = DATA_SETS if task.startswith("many") else 1
        comparable = task.endswith("all") or task.startswith("numpy")
        table.add_row(
            task,
            f"{row['first_s']:.2f}" if "first_s" in row else "",
            f"{warm:.4f}",
            f"{row['peak_mib']:.0f}" if row.get("peak_mib") else "",
            "" if error is None else f"{error:.1e}",
            f"{loop * scale / warm:,.0f}" if comparable else "",
        )
    console.print(table)
    if "gpu" in results:
        row = results["gpu"]
        console.print(
            f"1e12 sigmoids on {row['device']}: {row['warm_s']:.2f} s, limit of the "
            f"special-function units {row['limit_s']:.2f} s, ratio {row['ratio']:.2f}"
        )
    if options.json:
        write(options.json, everything)


if __name__ == "__main__":
    main()
