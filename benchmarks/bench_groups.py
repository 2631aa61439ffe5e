"""Intervals from groups of cases beside those from cases: coverage, width, false alarms and time.

    python benchmarks/bench_groups.py [--json benchmarks/results/bench_groups.json] [--repeats 200]
        [--rows 20000] [--metric NAME ...]

The same data sets are measured twice: by a bootstrap of cases, and, as if they were very many, of
groups of cases. In the table, of intervals of level 0.9: the share that holds the true value, of
both models and their difference; the mean of widths of the latter over those by cases; the share of
differences with a p-value of 0.05 or less; seconds for each data set. True values and models are
those of ``bench_intervals.py``; of the first two the two models are equally good. Means over cases
have analytic intervals, and those of sums by group where these came in blocks.
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
from bayescal.metrics.uncertainty.measured import MeasuredMetric, measure
from benchmarks.provenance import read, write

METRICS = ("log_loss", "brier_score", "ece", "ece, equal mass", "debiased_ece")
TRUTHS = (
    "calibrated, other scores",
    "too sure, other scores",
    "calibrated, a bit too sure",
)


def simulate(title: str, name: str, n: int, repeats: int) -> list[dict[str, Any]]:
    """Return what was found by cases and by groups."""
    metric, options = base.METRICS[name]
    draw = base.TRUTHS[title]
    truth = base.endless(draw, metric, options)
    values = np.array([*truth, truth[0] - truth[1]])
    rng = np.random.default_rng(1)
    found: dict[str, list[list[float]]] = {"cases": [], "groups": []}
    for run in range(repeats):
        *probs, y = draw(rng, n)
        for way, rows in found.items():
            _measured.MANY = 1 if way == "groups" else n + 1
            start = time.perf_counter()
            pair = [measure(metric, p, y, None, options, base.REPLICATES, run) for p in probs]
            if way == "groups":
                # As of blocks: of means, too.
                prepared = [_measured.prepare(metric, p, y, None, options) for p in probs]
                pair = [
                    MeasuredMetric(metric, sums.metric, sums, base.REPLICATES)
                    for data, made in prepared
                    if (sums := group_sums(made, data, run)) is not None
                ]
            first, second = pair
            gap = first.less(second, base.LEVEL)
            assert gap.p_value is not None
            own = first.interval(base.LEVEL), second.interval(base.LEVEL), gap
            taken = time.perf_counter() - start
            held = [
                each.lower - base.SLACK <= value <= each.upper + base.SLACK
                for each, value in zip(own, values, strict=True)
            ]
            width = own[0].upper - own[0].lower, gap.upper - gap.lower
            rows.append([*held, gap.p_value <= 0.05, *width, taken])
    keys = "first", "second", "difference", "rejected", "width", "difference's width", "seconds"
    facts = {"metric": name, "models": title, "rows": n, "repeats": repeats}
    return [
        {
            **facts,
            "drawn": way,
            **dict(zip(keys, np.mean(own, axis=0).round(6).tolist(), strict=True)),
        }
        for way, own in found.items()
    ]


def consistency(n: int, repeats: int) -> list[dict[str, Any]]:
    """Return how often calibration of calibrated predictions is rejected, at 0.05 and at 0.5."""
    rows = []
    for way in ("cases", "cells"):
        _significance.MANY = 1 if way == "cells" else n + 1
        rng, found = np.random.default_rng(2), []
        for run in range(repeats):
            p = rng.random(n) ** 3
            y = (rng.random(n) < p).astype(int)
            for binning in ("equal_width", "equal_mass"):
                test = _significance.consistency_test(
                    "ece", p, y, binning=binning, resamples=199, seed=run
                )
                found.append(test.p_value)
        p_values = np.reshape(found, (-1, 2))
        for binning, own in zip(("equal_width", "equal_mass"), p_values.T, strict=True):
            shares = {f"at {level}": float(np.mean(own <= level)) for level in (0.05, 0.5)}
            facts = {"metric": f"consistency, {binning}", "rows": n, "repeats": repeats}
            rows.append({**facts, "drawn": way, **shares})
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
            both = simulate(title, name, options.rows, options.repeats)
            rows += both
            for row in both:
                width = row["difference's width"] / both[0]["difference's width"]
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
        kept, new = read(options.json), {row["metric"] for row in rows}
        others = [row for row in kept.get("rows", []) if row["metric"] not in new]
        write(options.json, {**kept, "level": base.LEVEL, "rows": others + rows})


if __name__ == "__main__":
    main()
