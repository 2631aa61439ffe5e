"""Time the synthetic study by stage, and compare it with NumPy and scikit-learn.

    python -m benchmarks.bench_study [--datasets 1000] [--test 10000] [--sample 3] [--json FILE]

The study (``python -m benchmarks.studies synthetic``) runs for question 1 and for all three
questions. Each run is a fresh process; the import is not timed, and nothing is stored or plotted.
"Wall" is the wall-clock time. Stages and compilation are sums over threads, so together they exceed
it. Compilation is what JAX reports for tracing, lowering and compiling. "Later block" is the time
for each further 125 data sets when everything is compiled: one block of each configuration, run in
the same way as the study.

The plain method is what one would write without bayescal: for each data set, scikit-learn's
estimators, SciPy's BFGS for soft targets, and a NumPy loop over 1e5 draws in chunks for the
predictions that know the prior, at every test point. It is timed on a few data sets of each
configuration and *extrapolated* to all.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import provenance

DRAWS, CHUNK, FOLDS = 100_000, 200, 10
Array = np.ndarray
Line = tuple[float, float]


def study(questions: list[int], datasets: int, n_test: int) -> dict[str, Any]:
    """Run the study in this process, and return times and memory."""
    import jax
    from jax import monitoring

    from bayescal._core.random.keys import as_key
    from bayescal.sweeps import _block
    from bayescal.sweeps._methods import as_recipes
    from bayescal.sweeps._run import Run
    from benchmarks.studies._synthetic_cells import METHODS, METRICS, configurations

    compile_seconds: defaultdict[str, float] = defaultdict(float)

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            compile_seconds[event.rsplit("/", 1)[1]] += seconds

    monitoring.register_event_duration_secs_listener(listen)
    cells = {
        configuration.data: configuration.cell
        for configuration in configurations(questions, n_test)
    }
    sweep = Run(cells, as_recipes(METHODS), METRICS, datasets, as_key(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu_start = time.perf_counter(), time.process_time()
    sweep.finish(None, None, None)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    compiled = dict(compile_seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    later = Run(cells, as_recipes(METHODS), METRICS, _block.SIZE, as_key(1))
    start = time.perf_counter()
    later.finish(None, None, None)
    return {
        "configurations": len(cells),
        "wall_s": wall,
        "cpu_s": cpu,
        "stages_s": dict(sweep.seconds),
        "compile_s": compiled,
        "later_block_s": (time.perf_counter() - start) / len(cells),
        "peak_mb": peak / 1024,
        "imports_mb": before / 1024,
        "device": f"{jax.devices()[0].platform} {jax.devices()[0].device_kind}",
    }


# --- the plain method -----------------------------------------------------------------------------


def soft_fit(x: Array, targets: Array, prior: Callable[[Array], tuple[float, Array]]) -> Line:
    """Fit a line to soft targets by BFGS; ``prior`` computes a penalty and its gradient."""
    from scipy.optimize import minimize
    from scipy.special import expit

    def value(theta: Array) -> tuple[float, Array]:
        line = theta[0] + theta[1] * x
        residuals = expit(line) - targets
        penalty, gradient = prior(theta)
        loss = np.logaddexp(0, line).sum() - targets @ line + penalty
        return loss, np.array([residuals.sum(), residuals @ x]) + gradient

    optimum = minimize(value, np.zeros(2), jac=True, method="BFGS").x
    return float(optimum[0]), float(optimum[1])


def no_prior(theta: Array) -> tuple[float, Array]:
    """Compute no penalty."""
    return 0.0, np.zeros(2)


def cauchy_prior(theta: Array) -> tuple[float, Array]:
    """Compute the penalty of a Cauchy prior, and its gradient."""
    scales = np.array([10.0, 2.5])
    ratio = (theta / scales) ** 2
    return float(np.log1p(ratio).sum()), 2 * theta / (scales**2 * (1 + ratio))


def splits(x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    """Split rows into stratified folds."""
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(FOLDS).split(x[:, None], y)


def smoothed(x: Array, y: Array) -> Line:
    """Fit a line to labels smoothed by a cross-validated factor."""
    factors = np.geomspace(1e-5, 1e-1, 40)
    losses = np.zeros(len(factors))
    for train, held_out in splits(x, y):
        for k, factor in enumerate(factors):
            a, b = soft_fit(x[train], np.abs(y[train] - factor), no_prior)
            line = a + b * x[held_out]
            losses[k] += np.sum(np.logaddexp(0, line) - y[held_out] * line)
    return soft_fit(x, np.abs(y - factors[losses.argmin()]), no_prior)


def penalized(ratio: float) -> Callable[[Array, Array], Line]:
    """Create a fit with a cross-validated L1 or L2 penalty."""

    def fit(x: Array, y: Array) -> Line:
        from sklearn.linear_model import LogisticRegressionCV

        solver = "saga" if ratio else "lbfgs"
        model = LogisticRegressionCV(
            Cs=1 / np.geomspace(1e-5, 1e3, 9),
            cv=FOLDS,
            scoring="neg_log_loss",
            l1_ratios=[ratio],
            solver=solver,
        )
        model.fit(x[:, None], y)
        return float(np.ravel(model.intercept_)[0]), float(np.ravel(model.coef_)[0])

    return fit


def normal(x: Array, y: Array) -> Line:
    """Fit a line without penalty."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=np.inf).fit(x[:, None], y)
    return float(model.intercept_[0]), float(model.coef_[0, 0])


def by_class(y: Array) -> Array:
    """Compute the smoothing factors of Platt's targets."""
    return 1 / (np.bincount(y)[y] + 2)


def instance(x: Array, y: Array) -> Line:
    """Fit a line to instance-based smoothed labels."""
    from scipy.special import expit
    from sklearn.neighbors import KernelDensity

    scale = x.std()
    log_density = []
    for label in (0, 1):
        points = x[y == label, None] / scale
        width = (len(points) * 3 / 4) ** -0.2
        log_density.append(
            KernelDensity(bandwidth=width).fit(points).score_samples(x[:, None] / scale)
        )
    posterior = expit((2 * y - 1) * (log_density[1] - log_density[0]))
    return soft_fit(x, np.abs(y - by_class(y) * posterior), no_prior)


def cauchy(x: Array, y: Array) -> Line:
    """Fit a line with Cauchy priors."""
    mean, scale = x.mean(), 2 * x.std()
    a, b = soft_fit((x - mean) / scale, y.astype(float), cauchy_prior)
    return a - b * mean / scale, b / scale


REGRESSIONS: dict[str, Callable[[Array, Array], Line]] = {
    "normal": normal,
    "platt": lambda x, y: soft_fit(x, np.abs(y - by_class(y)), no_prior),
    "smoothed": smoothed,
    "L1": penalized(1.0),
    "L2": penalized(0.0),
    "ibls": instance,
    "cauchy_map": cauchy,
}


def informed(x: Array, y: Array, test: Array, draw: Callable[[int], Array]) -> dict[str, Array]:
    """Compute log odds of preds, coeffs and map by plain Monte Carlo, at every test point."""
    from scipy.special import expit, logit

    means = draw(DRAWS)
    log_likelihood = np.zeros(DRAWS)
    for label in (0, 1):
        for point in x[y == label]:
            log_likelihood -= 0.5 * (point - means[:, label]) ** 2
    weights = np.exp(log_likelihood - log_likelihood.max())
    weights /= weights.sum()
    slope = means[:, 1] - means[:, 0]
    intercept = 0.5 * (means[:, 0] ** 2 - means[:, 1] ** 2)
    total = np.zeros(len(test))
    for first in range(0, DRAWS, CHUNK):
        part = slice(first, first + CHUNK)
        total += weights[part] @ expit(intercept[part, None] + slope[part, None] * test)
    best = log_likelihood.argmax()
    return {
        "preds": logit(total),
        "coeffs": weights @ intercept + weights @ slope * test,
        "map": intercept[best] + slope[best] * test,
    }


def measure(log_odds: Array, y: Array) -> tuple[float, float]:
    """Compute the log loss, and the ECE in ten bins."""
    loss = np.logaddexp(0, np.where(y == 1, -log_odds, log_odds)).mean()
    p = 1 / (1 + np.exp(-log_odds))
    bins = np.clip(np.ceil(10 * p).astype(int) - 1, 0, 9)
    gaps = np.bincount(bins, p - y, 10)
    return float(loss), float(np.abs(gaps).sum() / len(y))


def plain(questions: list[int], n_test: int, sample: int) -> dict[str, Any]:
    """Time the plain method on a few data sets of each configuration, in seconds for each."""
    from benchmarks.studies._synthetic_cells import configurations

    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    rng = np.random.default_rng(0)
    stages: defaultdict[str, float] = defaultdict(float)
    losses: defaultdict[str, list[float]] = defaultdict(list)
    cells = {config.data: config.cell for config in configurations(questions, n_test)}
    for (name, n, ratio), _ in cells.items():
        draw = sampler(name, rng)
        ones = round(n * ratio)
        y, test_y = np.repeat([0, 1], [n - ones, ones]), np.repeat([0, 1], n_test // 2)
        for _ in range(sample):
            means = draw(1)[0]
            x, test = (means[part] + rng.standard_normal(len(part)) for part in (y, test_y))
            predictions: dict[str, Array] = {}
            for method, fit in REGRESSIONS.items():
                start = time.perf_counter()
                a, b = fit(x, y)
                predictions[method] = a + b * test
                stages[method] += time.perf_counter() - start
            start = time.perf_counter()
            predictions |= informed(x, y, test, draw)
            stages["preds, coeffs, map"] += time.perf_counter() - start
            start = time.perf_counter()
            for method, values in predictions.items():
                losses[method].append(measure(values, test_y)[0])
            stages["metrics"] += time.perf_counter() - start
    count = sample * len(cells)
    return {
        "data_sets": count,
        "configurations": len(cells),
        "seconds_each": {stage: seconds / count for stage, seconds in stages.items()},
        "mean_log_loss": {method: float(np.mean(values)) for method, values in losses.items()},
    }


def sampler(name: str, rng: np.random.Generator) -> Callable[[int], Array]:
    """Create a function that draws class means (count, 2) from the prior with this name."""
    if name in ("a", "b", "b+1"):
        width, shift = (0.5 if name == "a" else 2.5), (1.0 if name == "b+1" else 0.0)
        return lambda count: np.stack(
            [rng.uniform(-width, 0, count), rng.uniform(0, width, count) + shift], axis=1
        )
    shift = {"c": 1.0, "d": 3.0, "e": 5.0}[name]
    return lambda count: np.stack([rng.beta(2, 5, count), rng.beta(5, 2, count) + shift], axis=1)


# --- processes and tables -----------------------------------------------------------------------


def in_process(kind: str, questions: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one part in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.bench_study", "--worker", kind, questions]
    for name in ("datasets", "test", "sample"):
        command += [f"--{name}", str(getattr(options, name))]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{kind} {questions} failed:\n{process.stderr}")
    return json.loads(process.stdout.splitlines()[-1])


def show(name: str, stats: dict[str, Any], plain: dict[str, Any], datasets: int) -> None:
    """Print the times of both methods as a table."""
    from rich.console import Console
    from rich.table import Table

    count = stats["configurations"] * datasets
    console = Console(width=110)
    console.print(
        f"{name}: {stats['configurations']} configurations, {count:,} data sets. Wall "
        f"{stats['wall_s']:.1f} s, CPU {stats['cpu_s']:.1f} s; later block of 125 "
        f"{stats['later_block_s']:.2f} s; peak memory {stats['peak_mb']:.0f} MB, of which imports "
        f"{stats['imports_mb']:.0f} MB.",
        highlight=False,
    )
    table = Table(
        title=f"{name}: seconds by stage",
        caption=f"Plain: measured on {plain['data_sets']} data sets, EXTRAPOLATED to {count:,}.",
    )
    for heading in ("stage", "bayescal", "plain, one data set", "plain, extrapolated"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for stage, seconds in stats["stages_s"].items():
        other = plain["seconds_each"].get(stage)
        cells = ["", ""] if other is None else [f"{other:.4f}", f"{other * count:,.0f}"]
        table.add_row(stage, f"{seconds:.2f}", *cells)
    shared_stage = "preds, coeffs, map"
    other = plain["seconds_each"][shared_stage]
    combined = sum(stats["stages_s"][m] for m in ("preds", "coeffs", "map"))
    table.add_row(shared_stage, f"{combined:.2f}", f"{other:.4f}", f"{other * count:,.0f}")
    table.add_section()
    for stage, seconds in stats["compile_s"].items():
        table.add_row(stage, f"{seconds:.2f}", "", "")
    table.add_section()
    total = sum(plain["seconds_each"].values())
    table.add_row("wall, all", f"{stats['wall_s']:.1f}", f"{total:.3f}", f"{total * count:,.0f}")
    console.print(table)


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument(
        "--datasets", type=int, default=1000, help="data sets for each configuration"
    )
    parser.add_argument("--test", type=int, default=10_000, help="size of each test set")
    parser.add_argument("--sample", type=int, default=3, help="data sets for the plain method")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, questions = options.worker[0], [int(digit) for digit in options.worker[1]]
        if kind == "study":
            result = study(questions, options.datasets, options.test)
        else:
            result = plain(questions, options.test, options.sample)
        sys.stdout.write(json.dumps(result) + "\n")
        return
    results = {}
    for name, questions in {"question 1": "1", "questions 1 to 3": "123"}.items():
        study_result = in_process("study", questions, options)
        plain_result = in_process("plain", questions, options)
        show(name, study_result, plain_result, options.datasets)
        results[name] = {"bayescal": study_result, "plain": plain_result}
    if options.json:
        sizes = {name: getattr(options, name) for name in ("datasets", "test", "sample")}
        provenance.write(options.json, {"sizes": sizes, "results": results})


if __name__ == "__main__":
    main()
