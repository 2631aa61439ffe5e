"""Splines on the votes of a random forest, which replaces a forest on restricted records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bayescal import Isotonic, Logistic, Spline
from benchmarks.studies._binary_tables import split_rows
from benchmarks.studies._measures import EPS
from benchmarks.studies.data import read_arrays
from benchmarks.studies.paired import paired, row_losses, verdict

_FILES = ("adult_randomforest.npz", "predictions/adult_randomforest.npz")
METHODS: dict[str, Callable[[], Any]] = {
    "isotonic": Isotonic,
    "Platt, of probabilities": lambda: Logistic(inputs="scores"),
    "spline": lambda: Spline(None, penalty="coefficients", rule="best"),
    "spline, default rule": lambda: Spline(None),
    "logit spline, unity prior": lambda: Spline(
        "logit", 30, "coefficients", rule="best", unity_prior_weight=20.0
    ),
}
#: Claims of table 1 and section 4.1 that the first method has a lower log loss than the second.
CLAIMS = {
    "spline below uncalibrated": ("spline", "uncalibrated"),
    "spline below isotonic": ("spline", "isotonic"),
    "spline below Platt": ("spline", "Platt, of probabilities"),
    "uncalibrated below isotonic": ("uncalibrated", "isotonic"),
    "uncalibrated below Platt": ("uncalibrated", "Platt, of probabilities"),
}


def find_forest(data: Path) -> Path | None:
    """Find the file of the forest's predictions; None if it is missing."""
    return next((data / name for name in _FILES if (data / name).is_file()), None)


def run_forest(path: Path) -> dict[str, Any]:
    """Calibrate each half of the rows on the other half, and test the claims by log losses."""
    arrays = read_arrays(path, ("p", "y"))
    p, y = arrays["p"].astype(float), arrays["y"].astype(int)
    halves = split_rows(y, np.arange(len(y)), 0.5, np.random.default_rng(0))
    probs = {"uncalibrated": p, **{name: np.empty(len(y)) for name in METHODS}}
    for calibration, test in (halves, halves[::-1]):
        for name, make in METHODS.items():
            probs[name][test] = (
                make().fit(p[calibration], y[calibration]).predict_proba(p[test])[:, 1]
            )
    losses = {n: row_losses(np.stack([1 - q, q], axis=1), y, EPS) for n, q in probs.items()}
    claims = {}
    for claim, (first, second) in CLAIMS.items():
        comparison = paired(losses[first], losses[second])
        claims[claim] = {**comparison, "verdict": verdict(comparison)}
    return {
        "rows": len(y),
        "log_loss": {name: float(values.mean()) for name, values in losses.items()},
        "impossible": {name: int(np.sum(q == 1 - y)) for name, q in probs.items()},
        "claims": claims,
    }
