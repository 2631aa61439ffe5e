"""Compare bootstrap intervals from groups of rows with those from rows: coverage, width and time.

    python benchmarks/bench_groups.py [--json benchmarks/results/bench_groups.json] [--repeats 200]
        [--rows 20000] [--metric NAME ...]

Every data set is measured twice: by a bootstrap of rows ("cases"), and by the bootstrap of groups
of rows that large data sets use. The table shows, for 90 % intervals, the coverage for both models
and for their difference; the mean width of the interval of the difference, relative to that of the
bootstrap of rows; how often the p-value of the difference is 0.05 or less; and the seconds for each
data set. ``bench_intervals.py`` defines the models and computes the true values; the two models of
each of the first two pairs are equally good. Means over rows have analytic intervals by rows, and
intervals from sums by group as for data that are read in blocks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import bench_intervals as base
import numpy as np

from bayescal.metrics.uncertainty import calibration_tests as _significance
from bayescal.metrics.uncertainty import measured as _measured
from bayescal.metrics.uncertainty.groups import group_sums
from bayescal.metrics.uncertainty.measured import MeasuredMetric
from bayescal.metrics.uncertainty.ranking import measure
from benchmarks.provenance import read, write

METRICS = ("log_loss", "brier_score", "ece", "ece, equal mass", "debiased_ece")
TRUTHS = (
    "calibrated, other scores",
    "too sure, other scores",
    "calibrated, a bit too sure",
)


def simulate(title: str, name: str, n: int, repeats: int) -> list[dict[str, Any]]:
    """Measure the coverage, width and time of intervals from rows and from groups of rows."""
    metric, options = base.METRICS[name]
    draw = base.TRUTHS[title]
    truth = base.true_values(draw, metric, options)
    values = np.array([*truth, truth[0] - truth[1]])
    rng = np.random.default_rng(1)
    outcomes: dict[str, list[list[float]]] = {"cases": [], "groups": []}
    for run in range(repeats):
        *probs, y = draw(rng, n)
        for method, rows in outcomes.items():
            _measured.MANY = 1 if method == "groups" else n + 1
            start = time.perf_counter()
            models = [measure(metric, p, y, None, options, base.REPLICATES, run) for p in probs]
            if method == "groups":
                # Data that are read in blocks have sums by group also for means.
                prepared = [_measured.prepare(metric, p, y, None, options) for p in probs]
                models = [
                    MeasuredMetric(metric, sums.metric, sums, base.REPLICATES)
                    for data, metric_object in prepared
                    if (sums := group_sums(metric_object, data, run)) is not None
                ]
            first, second = models
            difference = first.less(second, base.LEVEL)
            assert difference.p_value is not None
            intervals = first.interval(base.LEVEL), second.interval(base.LEVEL), difference
            seconds = time.perf_counter() - start
            covered = [
                interval.lower - base.SLACK <= value <= interval.upper + base.SLACK
                for interval, value in zip(intervals, values, strict=True)
            ]
            width = intervals[0].upper - intervals[0].lower, difference.upper - difference.lower
            rows.append([*covered, difference.p_value <= 0.05, *width, seconds])
    keys = "first", "second", "difference", "rejected", "width", "difference's width", "seconds"
    setting = {"metric": name, "models": title, "rows": n, "repeats": repeats}
    return [
        {
            **setting,
            "drawn": method,
            **dict(zip(keys, np.mean(values, axis=0).round(6).tolist(), strict=True)),
        }
        for method, values in outcomes.items()
    ]


def consistency(n: int, repeats: int) -> list[dict[str, Any]]:
    """Measure how often calibrated predictions are rejected, at levels 0.05 and 0.5."""
    rows = []
    for method in ("cases", "cells"):
        _significance.MANY = 1 if method == "cells" else n + 1
        rng, p_list = np.random.default_rng(2), []
        for run in range(repeats):
            p = rng.random(n) ** 3
            y = (rng.random(n) < p).astype(int)
            for binning in ("equal_width", "equal_mass"):
                test = _significance.consistency_test(
                    "ece", p, y, binning=binning, resamples=199, seed=run
                )
                p_list.append(test.p_value)
        p_values = np.reshape(p_list, (-1, 2))
        for binning, values in zip(("equal_width", "equal_mass"), p_values.T, strict=True):
            rates = {f"at {level}": float(np.mean(values <= level)) for level in (0.05, 0.5)}
            setting = {"metric": f"consistency, {binning}", "rows": n, "repeats": repeats}
            rows.append({**setting, "drawn": method, **rates})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    names = [*METRICS, "consistency"]
    parser.add_argument("--metric", choices=names, nargs="*", default=names)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(f"{'metric':16} {'models':28} drawn   first second difference width rejected seconds")
    for name in METRICS:
        for title in TRUTHS if name in options.metric else ():
            results = simulate(title, name, options.rows, options.repeats)
            rows += results
            for row in results:
                width = row["difference's width"] / results[0]["difference's width"]
                print(
                    f"{name:16} {title:28} {row['drawn']:7} {row['first']:.3f} "
                    f"{row['second']:.3f}  {row['difference']:.3f}      {width:.3f} "
                    f"{row['rejected']:.3f}    {row['seconds']:.3f}",
                    flush=True,
                )
    for row in (
        consistency(options.rows, options.repeats) if "consistency" in options.metric else ()
    ):
        rows.append(row)
        print(row, flush=True)
    if options.json:
        old, new = read(options.json), {row["metric"] for row in rows}
        unchanged = [row for row in old.get("rows", []) if row["metric"] not in new]
        write(options.json, {**old, "level": base.LEVEL, "rows": unchanged + rows})


if __name__ == "__main__":
    main()
