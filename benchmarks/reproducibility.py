"""Measure how far results differ between numbers of threads, caches and versions of libraries.

    python benchmarks/reproducibility.py [--oldest PYTHON] [--newest PYTHON] [--json FILE]

A fixed set of results (calibrators, posteriors, predictions by every integrator, NUTS, metrics and
bootstrap intervals, all with the same seeds) is computed in fresh processes:

- with one thread and with two (OpenMP, OpenBLAS, XLA and the CPUs that the process may use);
- without JAX's compilation cache, with an empty one, and with a full one;
- with the Python of other environments: ``--oldest`` has the lowest versions that pyproject.toml
  allows (NumPy 2.0), and ``--newest`` the newest.

Each variant is compared with two threads without a cache, by the largest absolute difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
#: Tolerances in the documentation, for the same versions of libraries and for other versions. NUTS
#: chains diverge after different rounding, so other versions have no tolerance (None).
TOLERANCES: dict[str, tuple[float, float | None]] = {
    "calibrators": (1e-12, 1e-9),
    "posteriors of calibrators": (1e-12, 1e-9),
    "functions": (1e-6, 1e-5),
    "metrics": (1e-12, 1e-12),
    "bootstrap intervals": (1e-12, 1e-12),
    "posterior predictions": (1e-6, 1e-5),
    "random draws": (1e-6, 1e-5),
    "NUTS": (1e-6, None),
}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Draw logits (300, 3) and labels."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(300, 3))
    return logits, np.argmax(logits / 2 + rng.gumbel(size=logits.shape), axis=1)


def compute(part: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the group, the name and the numbers of each result.

    ``part`` is "all", or "few" for the results that a test computes.
    """
    import bayescal as bc
    from bayescal.calibrators.catalog import METHODS
    from bayescal.calibrators.names import make_calibrator

    logits, y = data()
    binary_scores, binary_y, few = logits[:, 1] - logits[:, 0], (y == 1).astype(int), part == "few"
    names = ["AveragedBeta", "Isotonic", "StackedScaling", "Temperature"]
    for name in names if few else METHODS:
        for k in (2, 3):
            calibrator = make_calibrator(name, inputs="logits")
            if getattr(calibrator, "binary", False) and k == 3:
                continue
            if "random_state" in calibrator.get_params():
                calibrator.set_params(random_state=0)
            scores, labels = (binary_scores, binary_y) if k == 2 else (logits, y)
            fitted = calibrator.fit(scores, labels)
            yield "calibrators", f"{name}, {k} classes", fitted.predict_proba(scores)
            if name in names:
                values = fitted.as_function()(scores.astype(np.float32))
                yield "functions", f"{name}, {k} classes", values
    options: dict[str, Any] = {"num_samples": 100, "random_state": 0, "inputs": "logits"}
    for name in ("Beta", "Logistic", "Vector"):
        scores, labels = (logits, y) if name == "Vector" else (binary_scores, binary_y)
        fitted = make_calibrator(name, inference="laplace", **options).fit(scores, labels)
        yield "posteriors of calibrators", name, fitted.predict_interval(scores)
    probs = 1 / (1 + np.exp(-binary_scores))
    for name in ("log_loss", "brier_score", "ece", "debiased_ece", "smooth_ece"):
        yield "metrics", name, getattr(bc.metrics, name)(probs, binary_y)
        if name in ("ece", "log_loss"):
            interval = bc.metrics.interval(
                name, probs, binary_y, method="bootstrap", random_state=0
            )
            yield "bootstrap intervals", name, [interval.lower, interval.upper]
    yield from posteriors(binary_scores[:40], binary_y[:40], few)


def posteriors(x: np.ndarray, y: np.ndarray, few: bool) -> Iterator[tuple[str, str, Any]]:
    """Yield the group, the name and the numbers of predictions under a generative model."""
    import numpyro.distributions as dist

    import bayescal as bc
    from bayescal.inference import INTEGRATORS

    points = np.linspace(-3, 3, 9)
    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
    groups = {"quadrature": "posterior predictions", "nuts": "NUTS"}
    for name in ["quadrature", "montecarlo"] if few else INTEGRATORS:
        if name == "closed_form":
            parameters = {"kappa0": 1.0, "kappa1": 1.0, "alpha": 2.0, "beta": 2.0}
            exact_prior = bc.NormalInverseGammaPrior(-1.0, 1.0, **parameters)
            prediction = bc.posterior_predict(exact_prior, (x, y), points, integrator=name, key=0)
            yield "posterior predictions", name, prediction.probs
            continue
        options = {} if name == "quadrature" else {"num_samples": 200}
        prediction = bc.posterior_predict(prior, (x, y), points, integrator=name, key=0, **options)
        yield groups.get(name, "random draws"), name, prediction.probs


def worker(part: str) -> None:
    """Print the results of this process as JSON."""
    from benchmarks.provenance import versions

    warnings.simplefilter("ignore")
    results: dict[str, dict[str, Any]] = {}
    for group, name, numbers in compute(part):
        results.setdefault(group, {})[name] = np.asarray(numbers, float).ravel().tolist()
    sys.stdout.write(json.dumps({"versions": versions(), "results": results}) + "\n")


def run(
    part: str = "all", threads: int = 2, cache: str | None = None, python: str = sys.executable
) -> dict[str, Any]:
    """Compute the results in a fresh process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    environment |= {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL")}
    flag = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {flag}".strip()
    if cache:
        environment |= {"JAX_COMPILATION_CACHE_DIR": cache}
        environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [python, __file__, "--worker", part, str(threads)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{python} failed:\n{process.stderr[-2000:]}")
    return json.loads(process.stdout.splitlines()[-1])


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Find the largest difference in each group of results."""
    largest: dict[str, Any] = {}
    for group, results in one["results"].items():
        gap_of = {}
        for name, numbers in results.items():
            a, b = np.array(numbers), np.array(other["results"][group][name])
            same = np.isnan(a) & np.isnan(b) | (a == b)
            with np.errstate(invalid="ignore"):
                absolute = np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf)
            gap_of[name] = float(np.max(np.where(same, 0.0, absolute), initial=0.0))
        worst = max(gap_of, key=lambda name: gap_of[name])
        largest[group] = {"difference": gap_of[worst], "of": worst, "results": len(gap_of)}
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--oldest", help="Python of an environment with the lowest versions")
    parser.add_argument("--newest", help="Python of an environment with the newest versions")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        part, threads = options.worker[0], int(options.worker[1])
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        worker(part)
        return
    from benchmarks.provenance import write

    base = run()
    with tempfile.TemporaryDirectory() as cache:
        variants = {
            "again": run(),
            "one thread": run(threads=1),
            "an empty cache": run(cache=cache),
            "a full cache": run(cache=cache),
        }
    for name in ("oldest", "newest"):
        if python := getattr(options, name):
            variants[name] = run(python=python)
    rows = []
    for name, variant in variants.items():
        rows.append({"variant": name, "versions": variant["versions"]})
        rows[-1]["groups"] = differences(base, variant)
        for group, gap in rows[-1]["groups"].items():
            print(f"{name:16} {group:26} {gap['difference']:8.1e}  {gap['of']}", flush=True)
    if options.json:
        write(options.json, {"tolerances": TOLERANCES, "rows": rows})


if __name__ == "__main__":
    main()
