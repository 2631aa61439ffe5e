"""Simulate the coverage of ``metrics.interval`` and ``metrics.difference``, and false rejections.

    python benchmarks/bench_intervals.py [--json benchmarks/results/bench_intervals.json]
        [--repeats 200] [--metric NAME ...] [--truth NAME ...] [--rows 30 ...]

Two models predict the same rows in every simulated data set. The true value of a metric is computed
from a million rows, or from 100,000 for kernel estimators ("skce" averages 40 samples of 1,000
rows). The table shows the coverage of 90 % intervals, with a tolerance of 2e-4, for both models and
for their difference. It also shows how often the p-value of the difference is 0.05 or less; this is
the false-alarm rate if the true values are equal. With 200 data sets, the standard error of a
coverage of 0.9 is 0.021. The result file keeps the rows of metrics that are not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bayescal import metrics
from bayescal._core.numerics import sigmoid
from bayescal.metrics.uncertainty.ranking import measure
from benchmarks.provenance import read, write

Array = np.ndarray
Draw = Callable[[np.random.Generator, int], tuple[Array, Array, Array]]
LEVEL, REPLICATES, SLACK = 0.9, 200, 2e-4


def two_classes(
    first: tuple[float, float],
    second: tuple[float, float],
    same: bool,
    rng: np.random.Generator,
    n: int,
) -> tuple[Array, Array, Array]:
    """Draw the probabilities of two models, and labels of two normal classes.

    Each model multiplies the log odds of a score by a slope and adds an intercept. If ``same`` is
    true, both models use the same score; otherwise the noise of the two scores is independent.
    """
    y = rng.integers(0, 2, n)
    noise = [rng.normal(size=n) for _ in range(2)]
    scores = [2 * (2 * y - 1 + noise[0]), 2 * (2 * y - 1 + noise[0 if same else 1])]
    probs = [sigmoid(a * z + b) for z, (a, b) in zip(scores, (first, second), strict=True)]
    return probs[0], probs[1], y


def three_classes(
    first: float, second: float, rng: np.random.Generator, n: int
) -> tuple[Array, Array, Array]:
    """Draw the probabilities of two models that multiply logits of three classes by a factor."""
    z = 2 * rng.normal(size=(n, 3))
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    exps = [np.exp(factor * (z - z.max(axis=1, keepdims=True))) for factor in (first, second)]
    return (*(e / e.sum(axis=1, keepdims=True) for e in exps), y)  # type: ignore[return-value]


#: Slope and intercept of the log odds of two models, and whether both see the same score.
TRUTHS: dict[str, Draw] = {
    "calibrated, other scores": partial(two_classes, (1, 0), (1, 0), False),
    "too sure, other scores": partial(two_classes, (2, 0), (2, 0), False),
    "too high, too low": partial(two_classes, (1, 1), (1, -1), True),
    "calibrated, too sure": partial(two_classes, (1, 0), (2, 0), True),
    "calibrated, a bit too sure": partial(two_classes, (1, 0), (1.3, 0), True),
    "too sure, surer": partial(two_classes, (1.5, 0), (2.5, 0), True),
    "three classes, calibrated, too sure": partial(three_classes, 1, 2),
    "three classes, too sure, surer": partial(three_classes, 1.5, 2.5),
}
METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "log_loss": ("log_loss", {}),
    "brier_score": ("brier_score", {}),
    "accuracy": ("accuracy", {}),
    "ece": ("ece", {}),
    "ece, equal mass": ("ece", {"binning": "equal_mass"}),
    "ece, norm 2": ("ece", {"norm": 2}),
    "ece, class-wise": ("ece", {"kind": "classwise"}),
    "debiased_ece": ("debiased_ece", {}),
    "debiased_ece, norm 1": ("debiased_ece", {"norm": 1}),
    "debiased_ece, equal width": ("debiased_ece", {"binning": "equal_width"}),
    "smooth_ece": ("smooth_ece", {}),
    "kde_ece": ("kde_ece", {}),
    "loss_gap": ("loss_gap", {}),
    "skce": ("skce", {"bandwidth": 0.3}),
}
#: Number and size of the samples from which true values are computed.
TRUTH_SAMPLES = {"skce": (40, 1000), "smooth_ece": (1, 100_000), "kde_ece": (1, 100_000)}


def true_values(draw: Draw, metric: str, options: dict[str, Any]) -> Array:
    """Compute the true values (2,) of a metric for both models."""
    rng = np.random.default_rng(99)
    num_samples, n = TRUTH_SAMPLES.get(metric, (1, 1_000_000))
    samples = []
    for _ in range(num_samples):
        *probs, y = draw(rng, n)
        samples.append([getattr(metrics, metric)(p, y, **options) for p in probs])
    return np.mean(samples, axis=0)


def simulate(draw: Draw, name: str, n: int, repeats: int) -> dict[str, Any]:
    """Simulate the true values, the coverage of intervals, and the rate of rejected nulls."""
    metric, options = METRICS[name]
    truth = true_values(draw, metric, options)
    rng = np.random.default_rng(1)
    outcomes = []
    for run in range(repeats):
        *probs, y = draw(rng, n)
        first, second = (measure(metric, p, y, None, options, REPLICATES, run) for p in probs)
        difference = first.less(second, LEVEL)
        assert difference.p_value is not None
        covered = []
        values = (*truth, truth[0] - truth[1])
        intervals = (first.interval(LEVEL), second.interval(LEVEL), difference)
        for interval, value in zip(intervals, values, strict=True):
            covered.append(interval.lower - SLACK <= value <= interval.upper + SLACK)
        outcomes.append([*covered, difference.p_value <= 0.05])
    rates = np.mean(outcomes, axis=0).round(4).tolist()
    keys = ("first", "second", "difference", "rejected")
    return {"truth": truth.round(5).tolist(), **dict(zip(keys, rates, strict=True))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--metric", choices=METRICS, nargs="*", default=list(METRICS))
    parser.add_argument("--truth", choices=TRUTHS, nargs="*", default=list(TRUTHS))
    parser.add_argument("--rows", type=int, nargs="*", default=[10, 30, 100])
    options = parser.parse_args()
    rows = []
    print(f"{'metric':26} {'models':36} rows  true values  first second difference rejected")
    for name in options.metric:
        for title in options.truth:
            for n in options.rows:
                row = simulate(TRUTHS[title], name, n, options.repeats)
                rows.append({"metric": name, "models": title, "rows": n, **row})
                values = " ".join(f"{value:.4f}" for value in row["truth"])
                coverage = f"{row['first']:.3f}  {row['second']:.3f}  {row['difference']:.3f}"
                line = f"{name:26} {title:36} {n:4} {values}  {coverage}      {row['rejected']:.3f}"
                print(line, flush=True)
    if options.json:
        old = read(options.json)
        unchanged = [row for row in old.get("rows", []) if row["metric"] not in options.metric]
        new = {"level": LEVEL, "repeats": options.repeats, "rows": unchanged + rows}
        write(options.json, {**old, **new})


if __name__ == "__main__":
    main()
