"""Shifted class shares: PriorShift beside EM and BBSE, and the coverage of its intervals.

    python benchmarks/bench_prior_shift.py [--json benchmarks/results/bench_prior_shift.json]
        [--part networks coverage] [--data FOLDER] [--repeats 6] [--sets 40] [--classes 2 3 10]

networks: The test predictions of published networks on CIFAR-10 and CIFAR-100 are resampled:
calibration rows with shares that fall geometrically over the classes, new rows with the reversed
shares. ``Auto`` of the calibration rows (``Temperature`` of 100 classes) is the calibrator of all
methods.

- none: no correction
- EM: the most probable shares (Saerens, Latinne and Decaestecker, 2002), by quapy's ``EMQ.EM``
- BBSE: black-box shift estimation from the confusion matrix (Lipton, Wang and Smola, 2018), the
  least-squares solution within the simplex by clipping
- PriorShift: the posterior
- known: the true shares

The table has the mean log loss of the new rows, the coverage of 90 % intervals of the shares, the
same with the calibrator taken for exact, and seconds of a fit of PriorShift and of EM.

coverage: how often 90 % intervals of the shares hold the true ones, in simulations. Scores have
independent normal features, one for each class, with mean 2.4 (two classes: 1.7) in their class;
they are over-confident by a factor of 1.25. Shares fall geometrically over the classes with a ratio
of 2, 5 or 20 (two classes: from one half each to 0.25, 0.1 and 0.025), and new shares are the
reverse. ``Auto`` of two classes, ``Temperature`` of more. Each class has at least two calibration
rows, and ten classes have half as many data sets. The coverage is the mean over classes and data
sets, with its standard error.
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


def sample(rng: np.random.Generator, y: Array, n: int, shares: Array, least: int) -> Array:
    """Draw n rows without replacement, with a least number of each class."""
    rows = []
    counts = np.maximum(rng.multinomial(n, shares), least)
    for label, count in enumerate(counts):
        own = np.flatnonzero(y == label)
        rows.append(rng.choice(own, min(count, len(own)), replace=False))
    return np.concatenate(rows)


def bbse(known: Array, y: Array, probs: Array) -> Array:
    """Solve the confusion matrix of the predicted classes for the shares."""
    k = known.shape[1]
    confusion = np.zeros((k, k))
    np.add.at(confusion, (known.argmax(axis=1), y), 1 / len(y))
    new = np.bincount(probs.argmax(axis=1), minlength=k) / len(probs)
    weights = np.clip(np.linalg.lstsq(confusion, new, rcond=None)[0], 0, None)
    share = weights * np.bincount(y, minlength=k) / len(y)
    return share / share.sum()


def corrected(probs: Array, old: Array, new: Array) -> Array:
    """Correct probabilities for new shares."""
    found = probs * new / old
    return found / found.sum(axis=1, keepdims=True)


def run(folder: Path, repeats: int) -> list[dict[str, object]]:
    """Measure all methods; return a row of figures for each setting."""
    from quapy.method.aggregative import EMQ  # python -m pip install quapy

    rows = []
    for k, names in NETWORKS.items():
        for n, m in SIZES[k]:
            losses, hits, plain, seconds, seconds_of_em = [], [], [], [], []
            for number, name in enumerate(names):
                logits, y = read_network(folder, name)
                for repeat in range(repeats):
                    rng = np.random.default_rng((k, n, number, repeat))
                    shares = np.geomspace(1, 1 / RATIO, k)
                    shares = rng.permutation(shares / shares.sum())
                    half = rng.permutation(len(y))
                    first, second = half[: len(y) // 2], half[len(y) // 2 :]
                    a = first[sample(rng, y[first], n, shares, 2)]
                    rank = np.argsort(np.argsort(shares))
                    true = np.sort(shares)[::-1][rank]
                    b = second[sample(rng, y[second], m, true, 0)]
                    make = bc.Auto if k == 10 else bc.Temperature
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        calibrator = make(inputs="logits").fit(logits[a], y[a])
                        start = time.perf_counter()
                        shift = bc.PriorShift(calibrator).fit(
                            logits[b], calibration=(logits[a], y[a])
                        )
                        seconds.append(time.perf_counter() - start)
                        old = np.bincount(y[a], minlength=k) / len(a)
                        exact = bc.PriorShift(calibrator, calibration_shares=old).fit(logits[b])
                        known, probs = (calibrator.predict_proba(logits[own]) for own in (a, b))
                        start = time.perf_counter()
                        most_probable, _ = EMQ.EM(old, probs)
                        seconds_of_em.append(time.perf_counter() - start)
                    found = {
                        "none": probs,
                        "EM": corrected(probs, old, most_probable),
                        "BBSE": corrected(probs, old, bbse(known, y[a], probs)),
                        "PriorShift": shift.predict_proba(logits[b]),
                        "known": corrected(probs, old, true),
                    }
                    losses.append([bc.metrics.log_loss(found[own], y[b]) for own in METHODS])
                    for model, out in ((shift, hits), (exact, plain)):
                        low, high = model.shares_interval(0.9)
                        out.append(float(((low <= true) & (true <= high)).mean()))
            mean = dict(zip(METHODS, np.mean(losses, axis=0).round(4).tolist(), strict=True))
            rows.append(
                {
                    "classes": k,
                    "calibration rows": n,
                    "new rows": m,
                    "data sets": len(losses),
                    **mean,
                    "coverage": round(float(np.mean(hits)), 3),
                    "coverage, exact": round(float(np.mean(plain)), 3),
                    "seconds": round(float(np.median(seconds)), 3),
                    "seconds, EM": round(float(np.median(seconds_of_em)), 5),
                }
            )
            print(rows[-1], flush=True)
    return rows


def shares_of(k: int, ratio: float) -> tuple[Array, Array]:
    """Return the class shares of calibration rows and of new rows."""
    if k == 2:
        new = {2: 0.25, 5: 0.1, 20: 0.025}[int(ratio)]
        return np.full(2, 0.5), np.array([1 - new, new])
    old = np.geomspace(1, 1 / ratio, k)
    return old / old.sum(), old[::-1] / old.sum()


def draw(rng: np.random.Generator, n: int, shares: Array, old: Array, least: int) -> tuple:
    """Draw logits that are over-confident under the old shares, and labels."""
    k = len(shares)
    y = rng.choice(k, n, p=shares)
    y[: least * k] = np.tile(np.arange(k), least)
    signal = 2.4 / np.sqrt(2) if k == 2 else 2.4
    x = rng.normal(size=(n, k))
    x[np.arange(n), y] += signal
    return 1.25 * log_softmax(signal * x + np.log(old)), y


def coverage(sets: int, classes: Sequence[int]) -> list[dict[str, object]]:
    """Simulate how often intervals of the shares hold the true ones."""
    rows = []
    for k in classes:
        for ratio in (2, 5, 20):
            old, new = shares_of(k, ratio)
            for n in (200, 2000):
                hits: dict[int, list[float]] = {50: [], 500: [], 5000: []}
                widths: dict[int, list[float]] = {m: [] for m in hits}
                seconds: dict[int, list[float]] = {m: [] for m in hits}
                for run in range(sets if k < 10 else max(4, sets // 2)):
                    rng = np.random.default_rng((3, k, ratio, n, run))
                    scores, y = draw(rng, n, old, old, 2)
                    make = bc.Auto if k == 2 else bc.Temperature
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        calibrator = make(inputs="logits").fit(scores, y)
                        for m in hits:
                            start = time.process_time()
                            shift = bc.PriorShift(calibrator).fit(draw(rng, m, new, old, 0)[0])
                            seconds[m].append(time.process_time() - start)
                            low, high = shift.shares_interval(0.9)
                            # One of the two shares is one minus the other.
                            inside = ((low <= new) & (new <= high))[k == 2 :]
                            hits[m].append(float(inside.mean()))
                            widths[m].append(float((high - low).mean()))
                for m, values in hits.items():
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
    """Write rows in place of those with as many classes."""
    known = read(path)
    classes = {row["classes"] for row in rows}
    rows = [row for row in known.get(part, []) if row["classes"] not in classes] + rows
    results = {**known, part: sorted(rows, key=lambda row: row["classes"])}
    write(path, results, ["quapy"])


if __name__ == "__main__":
    main()
