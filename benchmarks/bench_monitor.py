"""Monitor: false alarms, delays of alarms beside those of probcal's monitor, and time.

    python benchmarks/bench_monitor.py [--json benchmarks/results/bench_monitor.json]
        [--part false delays late time] [--runs 40] [--false-runs 1000] [--false-rows 100000]

- false: how many runs of calibrated probabilities ever raise an alarm at alpha 0.05. Every row is a
  look. The bound is 5 %; the largest number in 1,000 runs that is no evidence against it is 71 at
  the 0.1 % level, 64 at 2.5 %.
- delays: rows until the alarm if logit P(y = 1) is a logit p + b from the first row on. Both
  monitors see the same rows. bayescal's looks after every row; probcal's after every batch of 1, 10
  or 50 rows. Small batches are left out where they take too long, and runs end after as many
  batches as BATCHES says.
- late: rows from the change to the alarm after calm rows; runs with an alarm before the change are
  left out.
- time: seconds of processor time for a million rows at once and for single rows.

Log odds of p are N(0, 4). Needs ``probcal`` (0.4.0) for the comparison; without it only bayescal is
measured.
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
#: Sizes of batches of probcal, whose time is quadratic in their number, and the largest number.
BATCHES = {1: 250, 10: 200, 50: 1200}
#: Rows at which a run is given up. It then counts with the rows so far.
LONGEST = 60_000
KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "log odds N(0, 4)": lambda rng, n: sigmoid(rng.normal(0, 2, n)),
    "tenths": lambda rng, n: rng.integers(1, 10, n) / 10,
    "rare, log odds N(-4, 1)": lambda rng, n: sigmoid(rng.normal(-4, 1, n)),
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def draw(seed: list[int], n: int, slope: float, offset: float, start: int = 0) -> tuple:
    """Draw probabilities (n,), and labels that follow another map from a row on."""
    rng = np.random.default_rng(seed)
    log_odds = rng.normal(0, 2, n)
    wrong = np.arange(n) >= start
    truth = sigmoid(np.where(wrong, slope * log_odds + offset, log_odds))
    return sigmoid(log_odds), (rng.random(n) < truth).astype(int)


def alarm_of_bayescal(p: np.ndarray, y: np.ndarray) -> int | None:
    """Return the number of rows at the alarm."""
    monitor, size = bc.Monitor(), 1024
    for begin in range(0, len(p), size):
        monitor.update(p[begin : begin + size], y[begin : begin + size])
        if monitor.alarm_row_ is not None:
            return monitor.alarm_row_ + 1
    return None


def alarm_of_probcal(p: np.ndarray, y: np.ndarray, batch: int) -> int | None:
    """Return the number of rows at the alarm."""
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
    try:
        import probcal.monitor  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return False
    return True


def false_alarms(runs: int, rows: int) -> list[dict[str, Any]]:
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


def summary(delays: Sequence[int | None], most: int) -> dict[str, Any]:
    """Return the mean delay with its standard error, the median, and how many have no alarm.

    Runs without an alarm count with ``most`` rows.
    """
    known = np.array([most if delay is None else delay for delay in delays], float)
    return {
        "mean": round(float(known.mean()), 1),
        "standard_error": round(float(known.std(ddof=1) / np.sqrt(len(known))), 1),
        "median": float(np.median(known)),
        "missed": sum(delay is None for delay in delays),
    }


def delays(runs: int) -> list[dict[str, Any]]:
    result = []
    for slope, offset in TRUTHS:
        data = [draw([2, run], LONGEST, slope, offset) for run in range(runs)]
        ours = [alarm_of_bayescal(p, y) for p, y in data]
        row: dict[str, Any] = {"slope": slope, "offset": offset, "runs": runs}
        row["bayescal"] = summary(ours, LONGEST)
        for batch, number in BATCHES.items() if has_probcal() else ():
            most = min(LONGEST, batch * number)
            if 2 * row["bayescal"]["mean"] > most:
                continue
            theirs = [alarm_of_probcal(p[:most], y[:most], batch) for p, y in data]
            row[f"probcal, batches of {batch}"] = summary(theirs, most)
            gaps = [(a or most) - (b or most) for a, b in zip(ours, theirs, strict=True)]
            row[f"difference, batches of {batch}"] = summary(gaps, most)
        result.append(row)
        print(row, flush=True)
    return result


def late(runs: int) -> list[dict[str, Any]]:
    result = []
    for slope, offset in ((0.6, 0.3), (0.7, 0.0), (1.0, 0.3)):
        for start in (0, 1_000, 10_000, 100_000):
            data = [
                draw([3, run], start + LONGEST // 2, slope, offset, start) for run in range(runs)
            ]
            row: dict[str, Any] = {"slope": slope, "offset": offset, "calm": start, "runs": runs}
            ways: dict[str, Callable[..., int | None]] = {"bayescal": alarm_of_bayescal}
            if has_probcal() and start <= 1_000:
                ways["probcal, batches of 50"] = lambda p, y: alarm_of_probcal(p, y, 50)
            for way, alarm in ways.items():
                rows = [alarm(p, y) for p, y in data]
                after = [None if at is None else at - start for at in rows if not at or at > start]
                row[way] = {**summary(after, LONGEST // 2), "early": runs - len(after)}
            result.append(row)
            print(row, flush=True)
    return result


def times() -> list[dict[str, Any]]:
    n = 1_000_000
    p, y = draw([4], n, 1.0, 0.0)

    def seconds(call: Callable[[], object]) -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    def one_by_one() -> None:
        monitor = bc.Monitor()
        for i in range(2000):
            monitor.update(p[i : i + 1], y[i : i + 1])

    def of_probcal(rows: int, batch: int) -> None:
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
        "single rows": ("bayescal", 2000, one_by_one),
    }
    if has_probcal():
        calls["batches of 1,000"] = ("probcal", 100_000, lambda: of_probcal(100_000, 1000))
        calls["batches of 50"] = ("probcal", 5000, lambda: of_probcal(5000, 50))
        calls["single rows of probcal"] = ("probcal", 500, lambda: of_probcal(500, 1))
    result = []
    for what, (library, rows, call) in calls.items():
        taken = min(seconds(call) for _ in range(3 if library == "bayescal" else 1))
        row = {"library": library, "what": what, "rows": rows, "seconds": round(taken, 3)}
        result.append({**row, "microseconds_per_row": round(1e6 * taken / rows, 2)})
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
