"""Time logistic fits, and compare them with scikit-learn and NumPy at equal objectives.

    python benchmarks/bench_logistic.py [--json FILE]

The tasks are single fits to the log odds of binary scores (Platt's model with labels as targets;
1e4 and 1e6 rows), a multivariate fit (1e4 rows, 30 features, ridge 1), and 1e5 fits of 50 rows in
one call. The other libraries make these fits in a loop; their times are measured on 300 fits and
extrapolated. First calls run in a fresh process, without the import. Each row of the table is one
process. The NumPy fit uses plain Newton steps.

The last tasks have an absolute penalty whose strength is cross-validated (9 strengths, 10 folds),
on nearly dependent and on independent features. Their objective is that of one more fit at strength
0.1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import write

SIZES = {"1e4": (10_000, 1, 1), "1e6": (1_000_000, 1, 1), "30 features": (10_000, 30, 1)}
MANY = 100_000, 50
TIMED = 300
METHODS = ("bayescal", "numpy", "sklearn-lbfgs", "sklearn-newton")
LASSO = {"L1 cv 88 x 39": (88, 39, True), "L1 cv 300 x 10": (300, 10, False)}
LASSO_METHODS = ("bayescal", "sklearn-saga", "sklearn-liblinear")
STRENGTHS, LASSO_STRENGTH = np.geomspace(1e-5, 1e3, 9), 0.1


def make(task: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Draw features (batch, n, d) and labels (batch, n), with the strength of the ridge."""
    rng = np.random.default_rng(11)
    if task == "many":
        count, n = MANY
        y = np.tile(np.arange(n) % 2, (count, 1))
        return (rng.normal(size=(count, n)) + 1.6 * (y - 0.5))[..., None], y, 0.0
    n, d, _ = SIZES[task]
    if d > 1:
        x = rng.normal(size=(n, d))
        return x[None], (rng.random(n) < 1 / (1 + np.exp(-x[:, 0])))[None].astype(int), 1.0
    q = np.clip(1 / (1 + np.exp(-2 * rng.standard_normal(n))), 1e-9, 1 - 1e-9)
    p = 1 / (1 + np.exp(-(0.5 * np.log(q) - 0.8 * np.log1p(-q) - 0.3)))
    x = np.log(q) - np.log1p(-q)
    return x[None, :, None], (rng.random(n) < p)[None].astype(int), 0.0


def smoothed(y: np.ndarray) -> np.ndarray:
    """Compute Platt's targets, which keep fits of small separable data sets finite."""
    ones = y.sum(axis=-1, keepdims=True)
    zeros = y.shape[-1] - ones
    return np.where(y == 1, (ones + 1) / (ones + 2), 1 / (zeros + 2))


def objective(x: np.ndarray, t: np.ndarray, strength: float, beta: np.ndarray) -> np.ndarray:
    """Compute the objective (batch,) at coefficients (batch, d + 1) in float64."""
    line = beta[:, :1] + np.einsum("bnd,bd->bn", x, beta[:, 1:])
    loss = (np.logaddexp(0, line) - t * line).sum(axis=1)
    return loss + strength / 2 * (beta[:, 1:] ** 2).sum(axis=1)


def fit_numpy(x: np.ndarray, t: np.ndarray, strength: float) -> np.ndarray:
    """Fit one data set by undamped Newton steps."""
    design = np.column_stack([np.ones(len(x)), x])
    penalty = np.full(design.shape[1], strength)
    penalty[0] = 0
    beta = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ beta))
        gradient = design.T @ (p - t) + penalty * beta
        hessian = (design * (p * (1 - p))[:, None]).T @ design + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        beta -= step
        if gradient @ step < 1e-10 * len(x):
            break
    return beta


def fit_sklearn(x: np.ndarray, t: np.ndarray, strength: float, solver: str) -> np.ndarray:
    """Fit one data set; a soft target becomes two weighted rows."""
    from sklearn.linear_model import LogisticRegression

    c = 1 / strength if strength else np.inf
    model = LogisticRegression(C=c, solver=solver, tol=1e-8, max_iter=1000)
    if set(np.unique(t)) <= {0, 1}:
        model.fit(x, t.astype(int))
    else:
        labels = np.repeat([1, 0], len(t))
        model.fit(np.concatenate([x, x]), labels, sample_weight=np.concatenate([t, 1 - t]))
    return np.concatenate([model.intercept_, model.coef_[0]])


def fitter(method: str, x: np.ndarray, t: np.ndarray, strength: float) -> Callable[[], np.ndarray]:
    """Create a function that fits every data set and returns coefficients (batch, d + 1)."""
    if method == "bayescal":
        import jax

        from bayescal.regression.binary.fit import fit_many, fit_single
        from bayescal.regression.binary.objective import Regression

        def call() -> np.ndarray:
            batch = len(x)
            if batch == 1:
                return fit_single(Regression(x[0], t[0], np.ones_like(t[0]), 0.0, strength)).x[None]
            zero, ridge = np.zeros(batch), np.full(batch, strength)
            with jax.enable_x64(True):
                problem = jax.device_put(Regression(x, t, np.ones_like(t), zero, ridge))
                fits = fit_many(problem)
                return np.column_stack([fits.intercept, fits.coef])

        return call
    solvers = {"sklearn-lbfgs": "lbfgs", "sklearn-newton": "newton-cholesky"}
    single = (
        fit_numpy if method == "numpy" else lambda x, t, s: fit_sklearn(x, t, s, solvers[method])
    )
    return lambda: np.stack([single(a, b, strength) for a, b in zip(x, t, strict=True)])


def make_lasso(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw standardized features (n, d) and labels (n,)."""
    n, d, dependent = LASSO[task]
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, d))
    y = (rng.random(n) < 1 / (1 + np.exp(0.5 * x[:, 1] - x[:, 0]))).astype(int)
    if dependent:
        x = x[:, :8] @ rng.normal(size=(8, d)) + 0.1 * x
    return (x - x.mean(axis=0)) / x.std(axis=0), y


def lasso_worker(task: str, method: str) -> dict[str, Any]:
    """Time one method that chooses the strength of an absolute penalty."""
    import sklearn.linear_model as linear

    import bayescal as bc

    x, y = make_lasso(task)
    if method == "bayescal":
        cross_validated: Any = bc.LogisticRegression.preset("L1", random_state=0)
        single: Any = bc.LogisticRegression(penalty="l1", strength=LASSO_STRENGTH)
    else:
        # liblinear would run for minutes on dependent features.
        max_iter = 1000 if method == "sklearn-saga" else 100
        options: Any = {"solver": method.removeprefix("sklearn-"), "max_iter": max_iter}
        cross_validated = linear.LogisticRegressionCV(
            Cs=1 / STRENGTHS,
            l1_ratios=[1.0],
            cv=10,
            scoring="neg_log_loss",
            use_legacy_attributes=False,
            **options,
        )
        single = linear.LogisticRegression(C=1 / LASSO_STRENGTH, l1_ratio=1.0, **options)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        cross_validated.fit(x, y)
        times.append(time.perf_counter() - start)
    single.fit(x, y)
    beta = np.concatenate([single.intercept_, single.coef_[0]])[None]
    value = objective(x[None], y[None], 0.0, beta)[0] + LASSO_STRENGTH * np.abs(beta[0, 1:]).sum()
    return {
        "first_s": times[0],
        "warm_s": statistics.median(times[1:]),
        "mean_objective": float(value),
    }


def worker(task: str, method: str) -> dict[str, Any]:
    """Time one method for one task in this process."""
    warnings.simplefilter("ignore")
    if task in LASSO:
        return lasso_worker(task, method)
    x, y, strength = make(task)
    t = smoothed(y) if task == "many" else y.astype(float)
    if task == "many" and method != "bayescal":
        x, t = x[:TIMED], t[:TIMED]
    scale = MANY[0] / len(x) if task == "many" else 1.0
    if method.startswith("sklearn"):
        import sklearn.linear_model  # noqa: F401
    if method == "bayescal":
        import bayescal.regression.binary.fit  # noqa: F401
    call = fitter(method, x, t, strength)
    start = time.perf_counter()
    beta = call()
    first = time.perf_counter() - start
    times = []
    while len(times) < 5 or (sum(times) < 1 and len(times) < 50):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    value = objective(x[:TIMED], t[:TIMED], strength, beta[:TIMED])
    return {
        "first_s": first * scale,
        "warm_s": statistics.median(times) * scale,
        "mean_objective": float(value.mean()),
    }


def main() -> None:
    """Run every method for every task in a fresh process, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        sys.stdout.write(json.dumps(worker(*options.worker)) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Logistic fits: median of warm calls, and the first call of a process")
    columns = "task", "method", "first, s", "warm, s", "time / bayescal", "objective above the best"
    for column in columns:
        table.add_column(column, justify="left" if column in ("task", "method") else "right")
    results: dict[str, dict[str, Any]] = {}
    for task in (*SIZES, "many", *LASSO):
        for method in LASSO_METHODS if task in LASSO else METHODS:
            command = [sys.executable, __file__, "--worker", task, method]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode:
                raise SystemExit(f"{task}, {method} failed:\n{process.stderr}")
            results.setdefault(task, {})[method] = json.loads(process.stdout.splitlines()[-1])
        best = min(row["mean_objective"] for row in results[task].values())
        bayescal_time = results[task]["bayescal"]["warm_s"]
        for method, row in results[task].items():
            excess = row["mean_objective"] / best - 1
            cells = (
                f"{row['first_s']:.3f}",
                f"{row['warm_s']:.4f}",
                f"{row['warm_s'] / bayescal_time:.1f}",
            )
            table.add_row(task, method, *cells, f"{excess:.0e}")
        table.add_section()
    Console(width=100).print(table)
    if options.json:
        sizes = {**SIZES, "many": MANY, **LASSO}
        write(options.json, {"sizes": sizes, "results": results})


if __name__ == "__main__":
    main()
