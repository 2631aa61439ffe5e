"""Simulated coverage of credible bands: the share of a curve that lies in intervals of level 0.9.

    python benchmarks/coverage_bands.py [--json benchmarks/results/coverage_bands.json]
        [--repeats 40] [--method NAME ...] [--truth NAME ...] [--rows 20 100 1000]

Of two classes log odds are drawn from N(0, 2^2), and the truth is a curve of them; coverage is the
mean over 21 quantiles of that distribution and over data sets. Of three classes logits are drawn
from N(0, 2^2), and the coverage is the mean over 21 new rows and their classes. Standard errors are
those over data sets.
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
AT = SPREAD * np.array([NormalDist().inv_cdf((i + 0.5) / POINTS) for i in range(POINTS)])
SHIFTS = np.array([0.5, 0.0, -0.5])
#: Log odds of class 1 at log odds of scores; and probabilities (n, 3) at logits (n, 3).
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
_SEVERAL = {**_BINARY, "classes": [0, 1, 2]}
METHODS: dict[str, tuple[Callable[[], Any], bool]] = {
    "Spline": (lambda: bc.Spline(**_BINARY), True),
    "Spline, curvature": (lambda: bc.Spline(penalty="curvature", **_BINARY), True),
    "Logistic": (lambda: bc.Logistic(**_BINARY), True),
    "Beta": (lambda: bc.Beta(**_BINARY), True),
    "AveragedBeta": (lambda: bc.AveragedBeta(classes=[0, 1], inputs="logits"), True),
    "Isotonic": (lambda: bc.Isotonic(classes=[0, 1], inputs="logits"), True),
    "GaussianProcess": (lambda: bc.GaussianProcess(**_BINARY), True),
    "GaussianProcess, 3 classes": (lambda: bc.GaussianProcess(**_SEVERAL), False),
    "EnsembleTemperature, 3 classes": (lambda: bc.EnsembleTemperature(**_SEVERAL), False),
    "StackedScaling, 3 classes": (
        lambda: bc.StackedScaling(classes=[0, 1, 2], inputs="logits"),
        False,
    ),
    "Temperature, 3 classes": (lambda: bc.Temperature(**_SEVERAL), False),
}


def study(method: str, truth: str, n: int, repeats: int) -> dict[str, Any]:
    """Return the mean coverage over data sets, with its standard error."""
    make, binary = METHODS[method]
    found = []
    for seed in range(repeats):
        rng = np.random.default_rng([seed, n])
        if binary:
            z, new = rng.normal(0, SPREAD, n), AT
            y = (rng.random(n) < sigmoid(TWO[truth](z))).astype(int)
            true = sigmoid(TWO[truth](new))
        else:
            z, new = rng.normal(0, SPREAD, (n, 3)), rng.normal(0, SPREAD, (POINTS, 3))
            y = np.argmax(np.log(THREE[truth](z)) + rng.gumbel(size=z.shape), axis=1)
            true = THREE[truth](new)
        lower, upper = make().fit(z, y).predict_interval(new, LEVEL)
        found.append(((lower <= true) & (true <= upper)).mean())
    error = np.std(found) / np.sqrt(repeats)
    return {
        "method": method,
        "truth": truth,
        "rows": n,
        "repeats": repeats,
        "coverage": round(float(np.mean(found)), 3),
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
            own = [study(method, truth, n, args.repeats) for n in args.rows]
            print(method, truth, *(f"{s['coverage']:.2f} ± {s['error']:.2f}" for s in own))
            if args.json:
                kept = read(args.json)
                keys = [(s["method"], s["truth"], s["rows"]) for s in own]
                old = kept.get("rows", [])
                old = [s for s in old if (s["method"], s["truth"], s["rows"]) not in keys]
                write(args.json, {**kept, "rows": old + own})


if __name__ == "__main__":
    main()
