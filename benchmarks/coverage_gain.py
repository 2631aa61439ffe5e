"""Simulated coverage of what reports expect: the loss of a fit on new rows, and its gain.

    python benchmarks/coverage_gain.py [--json benchmarks/results/coverage_gain.json]
        [--repeats 400] [--classes 2 3] [--rows 30 100 1000] [--ties]

Scores are drawn, and labels by a truth that is known; ``Auto`` is fitted, and its loss and gain on
new rows are means over 20,000 scores under their true probabilities. The table has the share of
data sets in which the estimate ± 1.645 errors holds them (of level 0.9, its standard error is 0.015
with 400), the standard deviation of the gain's estimate less the gain beside the mean of the stated
error, and the shares of the verdicts "it helps" and "it hurts", and of those that are wrong. Tied
scores are tenths. Of three classes and tied scores folds of cross-validation decide: ``--ties``
alone runs these, too.
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


def true_probs(probs: Array, truth: str) -> Array:
    """Return the true probabilities (n, k) at scores (n, k)."""
    logs = np.log(probs)
    if truth == "calibrated":
        return probs
    if truth == "slope":
        return softmax(logs / 2)
    if probs.shape[1] == 2:
        z = logs[:, 1] - logs[:, 0]
        one = sigmoid(np.where(z > 0, 0.4 * z, 1.2 * z))
        return np.stack([1 - one, one], axis=1)
    return softmax(np.where(logs > -1, 0.4 * logs, 1.2 * logs + 0.8) + np.array([0.5, 0, -0.5]))


def draw(rng: np.random.Generator, n: int, k: int, truth: str, tied: bool) -> tuple[Array, Array]:
    """Return scores (n, k), and their true probabilities."""
    if k == 2:
        one = sigmoid(rng.normal(0, 2, n))
        one = np.clip(np.round(one, 1), 0.05, 0.95) if tied else one
        probs = np.stack([1 - one, one], axis=1)
    else:
        probs = softmax(rng.normal(0, 2, (n, k)))
        probs = np.round(probs, 1) + 0.02 if tied else probs
        probs /= probs.sum(axis=1, keepdims=True)
    return probs, true_probs(probs, truth)


def labels_of(rng: np.random.Generator, probs: Array) -> Array:
    """Draw labels (n,) from probabilities (n, k)."""
    return np.argmax(np.log(probs) + rng.gumbel(size=probs.shape), axis=1)


def study(k: int, n: int, truth: str, tied: bool, repeats: int) -> dict[str, Any]:
    """Return shares and means over data sets."""
    new, fresh = draw(np.random.default_rng(0), NEW, k, truth, tied)
    rows = []
    for seed in range(repeats):
        rng = np.random.default_rng([1, seed, n, k, tied])
        scores, probs = draw(rng, n, k, truth, tied)
        fitted = bc.Auto(classes=range(k)).fit(scores, labels_of(rng, probs))
        report, after = fitted.report_, fitted.predict_proba(new)
        loss, before = (-(fresh * np.log(p)).sum(axis=1).mean() for p in (after, new))
        sides = report.helps, report.hurts
        stated = report.log_loss, report.log_loss_error, report.gain, report.gain_error
        rows.append((*stated, loss, before - loss, *sides))
    loss, loss_error, gain, error, true_loss, true_gain, helps, hurts = np.array(rows, float).T
    return {
        "classes": k,
        "rows": n,
        "truth": truth,
        "tied": tied,
        "repeats": repeats,
        "coverage_gain": np.mean(np.abs(gain - true_gain) < LEVEL * error),
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
    parser.add_argument("--ties", action="store_true", help="tied scores of three classes alone")
    args = parser.parse_args()
    found = []
    for k in [3] if args.ties else args.classes:
        for n in args.rows:
            for tied in [True] if args.ties else [False, True][: 2 if k == 2 else 1]:
                for truth in TRUTHS:
                    own = study(k, n, truth, tied, args.repeats)
                    own = {x: round(y, 5) if isinstance(y, float) else y for x, y in own.items()}
                    found.append(own)
                    print(json.dumps(own), flush=True)
    if args.json:
        results = read(args.json)
        old = results.get("studies", [])
        which = [(own["classes"], own["rows"], own["tied"], own["truth"]) for own in found]
        kept = [o for o in old if (o["classes"], o["rows"], o["tied"], o["truth"]) not in which]
        write(args.json, {**results, "studies": kept + found})


if __name__ == "__main__":
    main()
