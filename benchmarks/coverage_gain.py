"""Simulate the coverage of reports: the expected loss of a fit on new rows, and its gain.

    python benchmarks/coverage_gain.py [--json benchmarks/results/coverage_gain.json]
        [--repeats 400] [--classes 2 3] [--rows 30 100 1000] [--ties]

Scores are drawn, and labels from known true probabilities. ``Auto`` is fitted, and its true loss
and gain are means over 20,000 new scores under their true probabilities. For each setting the table
shows the fraction of data sets in which the estimate ± 1.645 standard errors contains the true
value (nominal 0.9; the standard error with 400 data sets is 0.015); the standard deviation of the
error of the estimated gain, and the mean of its stated standard error; and the rates of the
verdicts "it helps" and "it hurts", and of wrong verdicts. Tied scores are rounded to tenths. For
three classes and tied scores, the folds of the cross-validation decide; ``--ties`` runs only this
setting.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import bayescal as bc
from bayescal._core.numerics import sigmoid, softmax
from benchmarks.provenance import read, write

Array = np.ndarray
TRUTHS = "calibrated", "slope", "bent"
NEW, LEVEL = 20_000, 1.645
#: If scores are unchanged, the gain and its error are zero up to this.
ROUNDING = 1e-12


def true_probs(probs: Array, truth: str) -> Array:
    """Compute the true probabilities (n, k) at scores (n, k)."""
    logs = np.log(probs)
    if truth == "calibrated":
        return probs
    if truth == "slope":
        return softmax(logs / 2)
    if probs.shape[1] == 2:
        z = logs[:, 1] - logs[:, 0]
        positive = sigmoid(np.where(z > 0, 0.4 * z, 1.2 * z))
        return np.stack([1 - positive, positive], axis=1)
    return softmax(np.where(logs > -1, 0.4 * logs, 1.2 * logs + 0.8) + np.array([0.5, 0, -0.5]))


def draw(rng: np.random.Generator, n: int, k: int, truth: str, tied: bool) -> tuple[Array, Array]:
    """Draw scores (n, k), and compute their true probabilities."""
    if k == 2:
        positive = sigmoid(rng.normal(0, 2, n))
        positive = np.clip(np.round(positive, 1), 0.05, 0.95) if tied else positive
        probs = np.stack([1 - positive, positive], axis=1)
    else:
        probs = softmax(rng.normal(0, 2, (n, k)))
        probs = np.round(probs, 1) + 0.02 if tied else probs
        probs /= probs.sum(axis=1, keepdims=True)
    return probs, true_probs(probs, truth)


def draw_labels(rng: np.random.Generator, probs: Array) -> Array:
    """Draw labels (n,) from probabilities (n, k)."""
    return np.argmax(np.log(probs) + rng.gumbel(size=probs.shape), axis=1)


def study(k: int, n: int, truth: str, tied: bool, repeats: int) -> dict[str, Any]:
    """Compute rates and means over data sets."""
    new, fresh = draw(np.random.default_rng(0), NEW, k, truth, tied)
    rows = []
    for seed in range(repeats):
        rng = np.random.default_rng([1, seed, n, k, tied])
        scores, probs = draw(rng, n, k, truth, tied)
        fitted = bc.Auto(classes=range(k)).fit(scores, draw_labels(rng, probs))
        report, after = fitted.report_, fitted.predict_proba(new)
        loss, before = (-(fresh * np.log(p)).sum(axis=1).mean() for p in (after, new))
        verdicts = report.helps, report.hurts
        stated = report.log_loss, report.log_loss_error, report.gain, report.gain_error
        rows.append((*stated, loss, before - loss, *verdicts))
    loss, loss_error, gain, error, true_loss, true_gain, helps, hurts = np.array(rows, float).T
    return {
        "classes": k,
        "rows": n,
        "truth": truth,
        "tied": tied,
        "repeats": repeats,
        "coverage_gain": np.mean(np.abs(gain - true_gain) <= LEVEL * error + ROUNDING),
        "coverage_loss": np.mean(np.abs(loss - true_loss) < LEVEL * loss_error),
        "bias": np.mean(gain - true_gain),
        "deviation": np.std(gain - true_gain),
        "error": error.mean(),
        "true_gain": true_gain.mean(),
        "truly_helps": np.mean(true_gain > 0),
        "helps": helps.mean(),
        "hurts": hurts.mean(),
        "wrong": np.mean(((helps == 1) & (true_gain <= 0)) | ((hurts == 1) & (true_gain >= 0))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulated coverage of what reports expect.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--rows", type=int, nargs="+", default=[30, 100, 1000])
    parser.add_argument("--ties", action="store_true", help="run only tied scores of three classes")
    args = parser.parse_args()
    studies = []
    for k in [3] if args.ties else args.classes:
        for n in args.rows:
            for tied in [True] if args.ties else [False, True][: 2 if k == 2 else 1]:
                for truth in TRUTHS:
                    row = study(k, n, truth, tied, args.repeats)
                    row = {x: round(y, 5) if isinstance(y, float) else y for x, y in row.items()}
                    studies.append(row)
                    print(json.dumps(row), flush=True)
    if args.json:
        results = read(args.json)
        old = results.get("studies", [])
        keys = [(row["classes"], row["rows"], row["tied"], row["truth"]) for row in studies]
        unchanged = [
            row
            for row in old
            if (row["classes"], row["rows"], row["tied"], row["truth"]) not in keys
        ]
        write(args.json, {**results, "studies": unchanged + studies})


if __name__ == "__main__":
    main()
