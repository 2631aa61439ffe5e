"""Measure the false alarms, the delay and the time of Monitor, and compare it with probcal's.

    python benchmarks/bench_monitor.py [--json benchmarks/results/bench_monitor.json]
        [--part false delays late time] [--runs 40] [--false-runs 1000] [--false-rows 100000]

- false: number of runs with calibrated probabilities that ever raise an alarm at alpha 0.05. The
  monitor tests after every row. The bound is 5 %; in 1,000 runs, up to 64 alarms are consistent
  with it at the 2.5 % level, and up to 71 at the 0.1 % level.
- delays: rows until the alarm if logit P(y = 1) is a logit p + b from the first row on. Both
  monitors see the same rows. bayescal's tests after every row, and probcal's after every batch of
  1, 10 or 50 rows. Batch sizes whose runs would be too short are omitted; ``BATCHES`` has the
  number of batches after which a run ends.
- late: rows from the change to the alarm, after rows without a change; runs with an alarm before
  the change are omitted.
- time: seconds of processor time for a million rows at once and for single rows.

The log odds of p are N(0, 4). The comparison needs ``probcal`` (0.4.0); without it, only bayescal
is measured.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bayescal as bc
from benchmarks.provenance import read, write

TRUTHS = [
    (0.5, 0.0),
    (0.7, 0.0),
    (1.5, 0.0),
    (2.0, 0.0),
    (1.0, 0.1),
    (1.0, 0.3),
    (1.0, 0.5),
    (1.0, 1.0),
    (0.6, 0.3),
]
#: Batch sizes of probcal, and the maximum number of batches. Its time is quadratic in this number.
BATCHES = {1: 250, 10: 200, 50: 1200}
#: Number of rows after which a run ends; a run without an alarm counts as this many rows.
MAX_ROWS = 60_000
KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "log odds N(0, 4)": lambda rng, n: sigmoid(rng.normal(0, 2, n)),
    "tenths": lambda rng, n: rng.integers(1, 10, n) / 10,
    "rare, log odds N(-4, 1)": lambda rng, n: sigmoid(rng.normal(-4, 1, n)),
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def draw(seed: list[int], n: int, slope: float, offset: float, start: int = 0) -> tuple:
    """Draw probabilities (n,), and labels that follow another map from row ``start`` on."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0, 2, n)
    changed = np.arange(n) >= start
    truth = sigmoid(np.where(changed, slope * log_odds + offset, log_odds))
    return sigmoid(log_odds), (rng.random(n) < truth).astype(int)


def alarm_of_bayescal(p: np.ndarray, y: np.ndarray) -> int | None:
    """Return the number of rows until the alarm of bayescal, or None."""
    monitor, size = bc.Monitor(), 1024
    for begin in range(0, len(p), size):
        monitor.update(p[begin : begin + size], y[begin : begin + size])
        if monitor.alarm_row_ is not None:
            return monitor.alarm_row_ + 1
    return None


def alarm_of_probcal(p: np.ndarray, y: np.ndarray, batch: int) -> int | None:
    """Return the number of rows until the alarm of probcal, or None."""
    from probcal.monitor import CalibrationMonitor  # type: ignore[import-not-found]

    monitor = CalibrationMonitor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for begin in range(0, len(p), batch):
            part = slice(begin, begin + batch)
            if monitor.update(y[part], p[part]).alarm:
                return min(begin + batch, len(p))
    return None


def has_probcal() -> bool:
    """Check whether probcal is installed."""
    try:
        import probcal.monitor  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return False
    return True


def false_alarms(runs: int, rows: int) -> list[dict[str, Any]]:
    """Count the runs of calibrated probabilities with an alarm."""
    result = []
    for kind, sample in KINDS.items():
        alarms = 0
        for run in range(runs):
            rng = np.random.default_rng([1, run])
            p = sample(rng, rows)
            alarms += bc.Monitor().update(p, (rng.random(rows) < p).astype(int)).alarm_
        result.append({"probabilities": kind, "runs": runs, "rows": rows, "alarms": alarms})
        print(result[-1], flush=True)
    return result


def summary(delays: Sequence[int | None], max_rows: int) -> dict[str, Any]:
    """Compute the mean delay with its standard error, the median, and the number without an alarm.

    Runs without an alarm count as ``max_rows`` rows.
    """
    values = np.array([max_rows if delay is None else delay for delay in delays], float)
    return {
        "mean": round(float(values.mean()), 1),
        "standard_error": round(float(values.std(ddof=1) / np.sqrt(len(values))), 1),
        "median": float(np.median(values)),
        "missed": sum(delay is None for delay in delays),
    }


def delays(runs: int) -> list[dict[str, Any]]:
    """Measure the rows until the alarm if predictions are miscalibrated from the first row on."""
    result = []
    for slope, offset in TRUTHS:
        data = [draw([2, run], MAX_ROWS, slope, offset) for run in range(runs)]
        bayescal_delays = [alarm_of_bayescal(p, y) for p, y in data]
        row: dict[str, Any] = {"slope": slope, "offset": offset, "runs": runs}
        row["bayescal"] = summary(bayescal_delays, MAX_ROWS)
        for batch, number in BATCHES.items() if has_probcal() else ():
            max_rows = min(MAX_ROWS, batch * number)
            if 2 * row["bayescal"]["mean"] > max_rows:
                continue
            probcal_delays = [alarm_of_probcal(p[:max_rows], y[:max_rows], batch) for p, y in data]
            row[f"probcal, batches of {batch}"] = summary(probcal_delays, max_rows)
            differences = [
                (a or max_rows) - (b or max_rows)
                for a, b in zip(bayescal_delays, probcal_delays, strict=True)
            ]
            row[f"difference, batches of {batch}"] = summary(differences, max_rows)
        result.append(row)
        print(row, flush=True)
    return result


def late(runs: int) -> list[dict[str, Any]]:
    """Measure the rows until the alarm after a change that follows calibrated rows."""
    result = []
    for slope, offset in ((0.6, 0.3), (0.7, 0.0), (1.0, 0.3)):
        for start in (0, 1_000, 10_000, 100_000):
            data = [
                draw([3, run], start + MAX_ROWS // 2, slope, offset, start) for run in range(runs)
            ]
            row: dict[str, Any] = {"slope": slope, "offset": offset, "calm": start, "runs": runs}
            monitors: dict[str, Callable[..., int | None]] = {"bayescal": alarm_of_bayescal}
            if has_probcal() and start <= 1_000:
                monitors["probcal, batches of 50"] = lambda p, y: alarm_of_probcal(p, y, 50)
            for name, find_alarm in monitors.items():
                rows = [find_alarm(p, y) for p, y in data]
                after_change = [
                    None if alarm is None else alarm - start
                    for alarm in rows
                    if not alarm or alarm > start
                ]
                row[name] = {
                    **summary(after_change, MAX_ROWS // 2),
                    "early": runs - len(after_change),
                }
            result.append(row)
            print(row, flush=True)
    return result


def times() -> list[dict[str, Any]]:
    """Measure the processor time of updates."""
    n = 1_000_000
    p, y = draw([4], n, 1.0, 0.0)

    def seconds(call: Callable[[], object]) -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    def update_rows() -> None:
        monitor = bc.Monitor()
        for i in range(2000):
            monitor.update(p[i : i + 1], y[i : i + 1])

    def update_probcal(rows: int, batch: int) -> None:
        from probcal.monitor import CalibrationMonitor  # type: ignore[import-not-found]

        monitor = CalibrationMonitor()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for begin in range(0, rows, batch):
                monitor.update(y[begin : begin + batch], p[begin : begin + batch])

    logits = np.random.default_rng(5).normal(0, 1.5, (100_000, 10))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    classes = np.random.default_rng(6).integers(0, 10, 100_000)
    calls: dict[str, tuple[str, int, Callable[[], object]]] = {
        "all rows at once": ("bayescal", n, lambda: bc.Monitor().update(p, y)),
        "10 classes, all rows at once": (
            "bayescal",
            100_000,
            lambda: bc.Monitor(task="multiclass").update(probs, classes),
        ),
        "single rows": ("bayescal", 2000, update_rows),
    }
    if has_probcal():
        calls["batches of 1,000"] = ("probcal", 100_000, lambda: update_probcal(100_000, 1000))
        calls["batches of 50"] = ("probcal", 5000, lambda: update_probcal(5000, 50))
        calls["single rows of probcal"] = ("probcal", 500, lambda: update_probcal(500, 1))
    result = []
    for what, (library, rows, call) in calls.items():
        elapsed = min(seconds(call) for _ in range(3 if library == "bayescal" else 1))
        row = {"library": library, "what": what, "rows": rows, "seconds": round(elapsed, 3)}
        result.append({**row, "microseconds_per_row": round(1e6 * elapsed / rows, 2)})
        print(result[-1], flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    names = ["false", "delays", "late", "time"]
    parser.add_argument("--part", choices=names, nargs="*", default=names)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--false-runs", type=int, default=1000)
    parser.add_argument("--false-rows", type=int, default=100_000)
    options = parser.parse_args()
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "time": times,
        "delays": lambda: delays(options.runs),
        "late": lambda: late(options.runs),
        "false": lambda: false_alarms(options.false_runs, options.false_rows),
    }
    for name, part in parts.items():
        if name in options.part:
            rows = part()
            if options.json:
                write(options.json, {**read(options.json), name: rows}, ["probcal"])


if __name__ == "__main__":
    main()
