"""Compare PriorShift with EM and BBSE for shifted class shares, and simulate its coverage.

    python benchmarks/bench_prior_shift.py [--json benchmarks/results/bench_prior_shift.json]
        [--part networks coverage] [--data FOLDER] [--repeats 6] [--sets 40] [--classes 2 3 10]

networks: test predictions of published networks for CIFAR-10 and CIFAR-100 are resampled. The
shares of the calibration rows fall geometrically over the classes, and those of the new rows are
reversed. All methods use the same calibrator, fitted to the calibration rows: ``Auto`` for 10
classes, and ``Temperature`` for 100.

- none: no correction
- EM: shares of maximum likelihood (Saerens, Latinne and Decaestecker, 2002), by quapy's ``EMQ.EM``
- BBSE: black-box shift estimation from the confusion matrix (Lipton, Wang and Smola, 2018); the
  least-squares solution is clipped to the simplex
- PriorShift: the posterior
- known: the true shares

The table shows the mean log loss of the new rows, the coverage of 90 % intervals of the shares,
this coverage if the calibrator is treated as exact, and the seconds of a fit of PriorShift and of
EM.

coverage: simulations of the coverage of 90 % intervals of the shares. Scores are computed from
independent normal features, one for each class, whose mean is 2.4 (1.7 for two classes) in their
class; they are over-confident by a factor of 1.25. Shares fall geometrically over the classes with
a ratio of 2, 5 or 20, and new shares are reversed. (For two classes, shares change from one half to
0.25, 0.1 and 0.025.) The calibrator is ``Auto`` for two classes, and ``Temperature`` for more. Each
class has at least two calibration rows. Ten classes have half as many data sets. The coverage is a
mean over classes and data sets, with its standard error.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bayescal as bc
from bayescal._core.numerics import log_softmax
from benchmarks.provenance import read, write

Array = np.ndarray
NETWORKS = {
    10: ("cy_cifar10_resnet20", "cy_cifar10_vgg16_bn", "kull_densenet40_c10", "gupta_resnet50_c10"),
    100: ("cy_cifar100_resnet20", "cy_cifar100_vgg16_bn"),
}
SIZES = {10: ((300, 500), (1000, 1500), (4000, 1500)), 100: ((4000, 1500),)}
RATIO = 20
METHODS = "none", "EM", "BBSE", "PriorShift", "known"


def read_network(folder: Path, name: str) -> tuple[Array, Array]:
    """Read the logits and labels of the test rows of a network."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        return log_softmax(file["logits_test"].astype(float)), file["y_test"].astype(int)


def sample(rng: np.random.Generator, y: Array, n: int, shares: Array, min_count: int) -> Array:
    """Draw n rows without replacement, with a minimum number of each class."""
    rows = []
    counts = np.maximum(rng.multinomial(n, shares), min_count)
    for label, count in enumerate(counts):
        candidates = np.flatnonzero(y == label)
        rows.append(rng.choice(candidates, min(count, len(candidates)), replace=False))
    return np.concatenate(rows)


def bbse(calibration_probs: Array, y: Array, probs: Array) -> Array:
    """Estimate the shares from the confusion matrix of the predicted classes."""
    k = calibration_probs.shape[1]
    confusion = np.zeros((k, k))
    np.add.at(confusion, (calibration_probs.argmax(axis=1), y), 1 / len(y))
    new = np.bincount(probs.argmax(axis=1), minlength=k) / len(probs)
    weights = np.clip(np.linalg.lstsq(confusion, new, rcond=None)[0], 0, None)
    shares = weights * np.bincount(y, minlength=k) / len(y)
    return shares / shares.sum()


def correct(probs: Array, old: Array, new: Array) -> Array:
    """Correct probabilities for new shares."""
    weighted = probs * new / old
    return weighted / weighted.sum(axis=1, keepdims=True)


def run(folder: Path, repeats: int) -> list[dict[str, object]]:
    """Compare all methods on the predictions of networks, with one row for each setting."""
    from quapy.method.aggregative import EMQ  # python -m pip install quapy

    rows = []
    for k, names in NETWORKS.items():
        for n, m in SIZES[k]:
            losses, covered, covered_if_exact, seconds, seconds_of_em = [], [], [], [], []
            for number, name in enumerate(names):
                logits, y = read_network(folder, name)
                for repeat in range(repeats):
                    rng = np.random.default_rng((k, n, number, repeat))
                    shares = np.geomspace(1, 1 / RATIO, k)
                    shares = rng.permutation(shares / shares.sum())
                    order = rng.permutation(len(y))
                    first, second = order[: len(y) // 2], order[len(y) // 2 :]
                    old_rows = first[sample(rng, y[first], n, shares, 2)]
                    rank = np.argsort(np.argsort(shares))
                    true = np.sort(shares)[::-1][rank]
                    new_rows = second[sample(rng, y[second], m, true, 0)]
                    calibrator_class = bc.Auto if k == 10 else bc.Temperature
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        calibrator = calibrator_class(inputs="logits").fit(
                            logits[old_rows], y[old_rows]
                        )
                        start = time.perf_counter()
                        shift = bc.PriorShift(calibrator).fit(
                            logits[new_rows], calibration=(logits[old_rows], y[old_rows])
                        )
                        seconds.append(time.perf_counter() - start)
                        old = np.bincount(y[old_rows], minlength=k) / len(old_rows)
                        exact = bc.PriorShift(calibrator, calibration_shares=old).fit(
                            logits[new_rows]
                        )
                        calibration_probs, probs = (
                            calibrator.predict_proba(logits[part]) for part in (old_rows, new_rows)
                        )
                        start = time.perf_counter()
                        em_shares, _ = EMQ.EM(old, probs)
                        seconds_of_em.append(time.perf_counter() - start)
                    predictions = {
                        "none": probs,
                        "EM": correct(probs, old, em_shares),
                        "BBSE": correct(probs, old, bbse(calibration_probs, y[old_rows], probs)),
                        "PriorShift": shift.predict_proba(logits[new_rows]),
                        "known": correct(probs, old, true),
                    }
                    losses.append(
                        [bc.metrics.log_loss(predictions[name], y[new_rows]) for name in METHODS]
                    )
                    for model, results in ((shift, covered), (exact, covered_if_exact)):
                        low, high = model.shares_interval(0.9)
                        results.append(float(((low <= true) & (true <= high)).mean()))
            mean = dict(zip(METHODS, np.mean(losses, axis=0).round(4).tolist(), strict=True))
            rows.append(
                {
                    "classes": k,
                    "calibration rows": n,
                    "new rows": m,
                    "data sets": len(losses),
                    **mean,
                    "coverage": round(float(np.mean(covered)), 3),
                    "coverage, exact": round(float(np.mean(covered_if_exact)), 3),
                    "seconds": round(float(np.median(seconds)), 3),
                    "seconds, EM": round(float(np.median(seconds_of_em)), 5),
                }
            )
            print(rows[-1], flush=True)
    return rows


def shift_shares(k: int, ratio: float) -> tuple[Array, Array]:
    """Compute the class shares of calibration rows and of new rows."""
    if k == 2:
        new = {2: 0.25, 5: 0.1, 20: 0.025}[int(ratio)]
        return np.full(2, 0.5), np.array([1 - new, new])
    old = np.geomspace(1, 1 / ratio, k)
    return old / old.sum(), old[::-1] / old.sum()


def draw(rng: np.random.Generator, n: int, shares: Array, old: Array, min_count: int) -> tuple:
    """Draw logits that are over-confident under the old shares, and labels."""
    k = len(shares)
    y = rng.choice(k, n, p=shares)
    y[: min_count * k] = np.tile(np.arange(k), min_count)
    signal = 2.4 / np.sqrt(2) if k == 2 else 2.4
    x = rng.normal(size=(n, k))
    x[np.arange(n), y] += signal
    return 1.25 * log_softmax(signal * x + np.log(old)), y


def coverage(sets: int, classes: Sequence[int]) -> list[dict[str, object]]:
    """Simulate the coverage of intervals of the shares."""
    rows = []
    for k in classes:
        for ratio in (2, 5, 20):
            old, new = shift_shares(k, ratio)
            for n in (200, 2000):
                coverages: dict[int, list[float]] = {50: [], 500: [], 5000: []}
                widths: dict[int, list[float]] = {m: [] for m in coverages}
                seconds: dict[int, list[float]] = {m: [] for m in coverages}
                for run in range(sets if k < 10 else max(4, sets // 2)):
                    rng = np.random.default_rng((3, k, ratio, n, run))
                    scores, y = draw(rng, n, old, old, 2)
                    calibrator_class = bc.Auto if k == 2 else bc.Temperature
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        calibrator = calibrator_class(inputs="logits").fit(scores, y)
                        for m in coverages:
                            start = time.process_time()
                            shift = bc.PriorShift(calibrator).fit(draw(rng, m, new, old, 0)[0])
                            seconds[m].append(time.process_time() - start)
                            low, high = shift.shares_interval(0.9)
                            # One of the two shares is one minus the other.
                            covered = ((low <= new) & (new <= high))[k == 2 :]
                            coverages[m].append(float(covered.mean()))
                            widths[m].append(float((high - low).mean()))
                for m, values in coverages.items():
                    rows.append(
                        {
                            "classes": k,
                            "ratio": ratio,
                            "calibration rows": n,
                            "new rows": m,
                            "data sets": len(values),
                            "coverage": round(float(np.mean(values)), 3),
                            "standard error": round(
                                float(np.std(values, ddof=1) / len(values) ** 0.5), 3
                            ),
                            "width": round(float(np.mean(widths[m])), 4),
                            "seconds": round(float(np.median(seconds[m])), 4),
                        }
                    )
                    print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(os.environ.get("BAYESCAL_DATA", "data")) / "predictions"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--classes", type=int, choices=[2, 3, 10], nargs="*", default=[2, 3, 10])
    parser.add_argument(
        "--part", choices=["networks", "coverage"], nargs="*", default=["networks", "coverage"]
    )
    arguments = parser.parse_args()
    for part in arguments.part:
        if part == "networks":
            rows = run(arguments.data, arguments.repeats)
        else:
            rows = coverage(arguments.sets, arguments.classes)
        if arguments.json:
            keep(arguments.json, part, rows)


def keep(path: Path, part: str, rows: list[dict[str, Any]]) -> None:
    """Write rows to the file, in place of rows with the same numbers of classes."""
    old = read(path)
    classes = {row["classes"] for row in rows}
    rows = [row for row in old.get(part, []) if row["classes"] not in classes] + rows
    results = {**old, part: sorted(rows, key=lambda row: row["classes"])}
    write(path, results, ["quapy"])


if __name__ == "__main__":
    main()
