"""Simulate the coverage of 90 % credible bands: the fraction of a curve inside the intervals.

    python benchmarks/coverage_bands.py [--json benchmarks/results/coverage_bands.json]
        [--repeats 40] [--method NAME ...] [--truth NAME ...] [--rows 20 100 1000]

For two classes, scores are log odds from N(0, 2^2), and the true log odds are a function of them.
The coverage is a mean over 21 quantiles of that distribution and over data sets. For three classes,
scores are logits from N(0, 2^2), and the coverage is a mean over 21 new rows and their classes.
Standard errors are over data sets.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

import bayescal as bc
from bayescal._core.numerics import sigmoid, softmax
from benchmarks.provenance import read, write

Array = np.ndarray
LEVEL, POINTS, SPREAD = 0.9, 21, 2.0
QUANTILES = SPREAD * np.array([NormalDist().inv_cdf((i + 0.5) / POINTS) for i in range(POINTS)])
SHIFTS = np.array([0.5, 0.0, -0.5])
#: True log odds as functions of scores, and true probabilities (n, 3) as functions of logits.
TWO: dict[str, Callable[[Array], Array]] = {
    "calibrated": lambda z: z,
    "slope": lambda z: 0.4 * z + 0.3,
    "symmetric slope": lambda z: 0.4 * z,
    "bent": lambda z: np.where(z > 0, 0.4 * z, 1.2 * z),
    "wavy": lambda z: z + np.sin(2 * z),
    "flat": lambda z: 0 * z + np.log(0.3 / 0.7),
}
THREE: dict[str, Callable[[Array], Array]] = {
    "calibrated": softmax,
    "temperature": lambda z: softmax(z / 2),
    "class shifts": lambda z: softmax(z / 2 + SHIFTS),
    "mixture": lambda z: 0.6 * softmax(z / 2) + 0.2 * softmax(z) + 0.2 / 3,
}
_BINARY = {"classes": [0, 1], "inputs": "logits", "inference": "laplace", "random_state": 0}
_MULTICLASS = {**_BINARY, "classes": [0, 1, 2]}
METHODS: dict[str, tuple[Callable[[], Any], bool]] = {
    "Spline": (lambda: bc.Spline(**_BINARY), True),
    "Spline, curvature": (lambda: bc.Spline(penalty="curvature", **_BINARY), True),
    "Logistic": (lambda: bc.Logistic(**_BINARY), True),
    "Beta": (lambda: bc.Beta(**_BINARY), True),
    "AveragedBeta": (lambda: bc.AveragedBeta(classes=[0, 1], inputs="logits"), True),
    "Isotonic": (lambda: bc.Isotonic(classes=[0, 1], inputs="logits"), True),
    "GaussianProcess": (lambda: bc.GaussianProcess(**_BINARY), True),
    "GaussianProcess, 3 classes": (lambda: bc.GaussianProcess(**_MULTICLASS), False),
    "EnsembleTemperature, 3 classes": (lambda: bc.EnsembleTemperature(**_MULTICLASS), False),
    "StackedScaling, 3 classes": (
        lambda: bc.StackedScaling(classes=[0, 1, 2], inputs="logits"),
        False,
    ),
    "Temperature, 3 classes": (lambda: bc.Temperature(**_MULTICLASS), False),
}


def study(method: str, truth: str, n: int, repeats: int) -> dict[str, Any]:
    """Simulate the mean coverage over data sets, with its standard error."""
    make, binary = METHODS[method]
    coverages = []
    for seed in range(repeats):
        rng = np.random.default_rng([seed, n])
        if binary:
            z, new = rng.normal(0, SPREAD, n), QUANTILES
            y = (rng.random(n) < sigmoid(TWO[truth](z))).astype(int)
            true_probs = sigmoid(TWO[truth](new))
        else:
            z, new = rng.normal(0, SPREAD, (n, 3)), rng.normal(0, SPREAD, (POINTS, 3))
            y = np.argmax(np.log(THREE[truth](z)) + rng.gumbel(size=z.shape), axis=1)
            true_probs = THREE[truth](new)
        lower, upper = make().fit(z, y).predict_interval(new, LEVEL)
        coverages.append(((lower <= true_probs) & (true_probs <= upper)).mean())
    error = np.std(coverages) / np.sqrt(repeats)
    return {
        "method": method,
        "truth": truth,
        "rows": n,
        "repeats": repeats,
        "coverage": round(float(np.mean(coverages)), 3),
        "error": round(float(error), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulated coverage of credible bands.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--truth", nargs="+", default=[*TWO, *THREE])
    parser.add_argument("--rows", type=int, nargs="+", default=[20, 100, 1000])
    args = parser.parse_args()
    for method in args.method:
        truths = TWO if METHODS[method][1] else THREE
        for truth in [name for name in truths if name in args.truth]:
            new = [study(method, truth, n, args.repeats) for n in args.rows]
            print(method, truth, *(f"{s['coverage']:.2f} ± {s['error']:.2f}" for s in new))
            if args.json:
                results = read(args.json)
                keys = [(s["method"], s["truth"], s["rows"]) for s in new]
                old = results.get("rows", [])
                old = [s for s in old if (s["method"], s["truth"], s["rows"]) not in keys]
                write(args.json, {**results, "rows": old + new})


if __name__ == "__main__":
    main()
