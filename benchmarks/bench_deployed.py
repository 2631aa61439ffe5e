"""Compare bayescal after deployment with other libraries, in accuracy and time.

    python benchmarks/bench_deployed.py [--json benchmarks/results/bench_deployed.json]
        [--part rates learning history shift groups levels monitor violated nba] [--runs 20]
        [--data FOLDER] [--large]

- rates: excess log loss of the next batch over the true probabilities, in 1e-4, for fixed
  forgetting rates and for "auto". The true log odds are 0.7 z + b; b is constant, follows a random
  walk, or jumps; 40 batches of 500 rows.
- learning: the same excess log loss for ``partial_fit``, for scikit-learn refitted to all rows, and
  for river's logistic regression on log odds, which learns row by row; time for each batch.
- history: largest difference in probability between ``partial_fit`` in batches and one fit to all
  rows, by calibrator, rows and classes. (``--large`` adds 600,000 x 10 and 200,000 x 100.)
- shift: two classes, calibrated at a share of 0.5 and applied at other shares: log loss and error
  of the estimated share, for PriorShift, for expectation maximization, and for probcal's offset,
  which is given the true share.
- groups: ``PartialPooling`` with and without interactions, and MCGrad, on crossed groups: log loss
  under the true probabilities, means over eight samples (MCGrad three), and processor time.
- levels: ``PartialPooling`` of 200 to 20,000 groups with 2 to 20 rows each: coverage of the
  intervals of the offsets, the estimated standard deviation of the offsets, and processor time.
- monitor: rows until the alarm, also for probcal's monitor, which tests after every 50 rows.
- violated: guarantees whose assumptions fail, in 100 data sets each: group offsets that are not
  normal, outcomes that are reported in an order that depends on them, and expected performance on
  rows whose log odds have moved by 0.5.
- nba: FiveThirtyEight's forecasts of basketball games from 2015 to 2022 (in ``forecasts`` of
  BAYESCAL_DATA): log loss on the next day or week, of the original forecasts and of calibrators
  that learn from each day or week.

The comparison omits libraries that are not installed (probcal, river, mcgrad with lightgbm).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench_monitor import alarm_of_bayescal, alarm_of_probcal, draw
from scipy.special import expit, logit, softmax

import bayescal as bc
from benchmarks.provenance import read, write

Array = np.ndarray
RATES: tuple[Any, ...] = (1.0, 0.97, 0.9, 0.8, 0.6, 0.4, "auto")
DRIFTS = {
    "no drift": 0.0,
    "random walk, 0.02 per batch": 0.02,
    "random walk, 0.05 per batch": 0.05,
    "random walk, 0.1 per batch": 0.1,
    "random walk, 0.3 per batch": 0.3,
    "jump of 0.7 in the middle": None,
}
BATCHES, ROWS = 40, 500


def cross_entropy(truth: Array, q: Array) -> float:
    """Compute the expected log loss of probabilities, given the true probabilities."""
    return float(-(truth * np.log(q) + (1 - truth) * np.log1p(-q)).mean())


def offsets(step: float | None, rng: np.random.Generator) -> Array:
    """Draw the offset of each batch."""
    if step is None:
        return np.where(np.arange(BATCHES + 1) < BATCHES // 2, 0.0, 0.7)
    return 0.2 + np.cumsum(rng.normal(0, step, BATCHES + 1))


class Learner:
    """``Logistic`` that learns batch by batch with ``partial_fit``."""

    def __init__(self, forgetting: Any) -> None:
        self.calibrator, self.forgetting = bc.Logistic(), forgetting

    def predict(self, p: Array) -> Array:
        """Predict the probabilities of class 1."""
        return self.calibrator.predict_proba(p)[:, 1]

    def learn(self, p: Array, y: Array) -> None:
        """Learn from a batch of probabilities and labels."""
        self.calibrator.partial_fit(p, y, classes=[0, 1], forgetting=self.forgetting)


class Refit:
    """Scikit-learn's logistic regression, refitted to all rows so far."""

    def __init__(self) -> None:
        from sklearn.linear_model import LogisticRegression

        self.model = LogisticRegression(C=1e6)
        self.rows: list[tuple[Array, Array]] = []

    def predict(self, p: Array) -> Array:
        """Predict the probabilities of class 1."""
        return self.model.predict_proba(logit(p)[:, None])[:, 1]

    def learn(self, p: Array, y: Array) -> None:
        """Learn from a batch of probabilities and labels."""
        self.rows.append((logit(p)[:, None], y))
        self.model.fit(*map(np.concatenate, zip(*self.rows, strict=True)))


class River:
    """River's logistic regression, which starts from the identity map."""

    def __init__(self) -> None:
        from river import linear_model, optim  # type: ignore[import-not-found]

        self.model = linear_model.LogisticRegression(optim.SGD(0.01), l2=0.0)
        self.model._weights["z"] = 1.0

    def predict(self, p: Array) -> Array:
        """Predict the probabilities of class 1."""
        return np.array([self.model.predict_proba_one({"z": z})[True] for z in logit(p).tolist()])

    def learn(self, p: Array, y: Array) -> None:
        """Learn from a batch of probabilities and labels."""
        for z, label in zip(logit(p).tolist(), y.tolist(), strict=True):
            self.model.learn_one({"z": z}, bool(label))


def follow(makers: dict[str, Callable[[], Any]], step: float | None, runs: int) -> dict[str, Any]:
    """Compute the mean excess log loss (1e-4) and the mean time of a batch (ms), over runs."""
    excess, seconds = np.zeros((runs, len(makers))), np.zeros(len(makers))
    for run in range(runs):
        rng = np.random.default_rng([7, run])
        b, learners = offsets(step, rng), [make() for make in makers.values()]
        for batch in range(BATCHES + 1):
            z = rng.normal(0, 2, ROWS)
            p, truth = expit(z), expit(0.7 * z + b[batch])
            y = (rng.random(ROWS) < truth).astype(int)
            for i, learner in enumerate(learners):
                start = time.process_time()
                if batch:
                    q = np.clip(learner.predict(p), 1e-12, 1 - 1e-12)
                    loss = cross_entropy(truth, q) - cross_entropy(truth, truth)
                    excess[run, i] += 1e4 * loss / BATCHES
                if batch < BATCHES:
                    learner.learn(p, y)
                seconds[i] += (time.process_time() - start) / runs / BATCHES
    return {
        name: {
            "excess": round(float(excess[:, i].mean()), 1),
            "standard_error": round(float(excess[:, i].std(ddof=1) / runs**0.5), 1),
            "milliseconds": round(1e3 * seconds[i], 2),
        }
        for i, name in enumerate(makers)
    }


def rates(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Compare forgetting rates."""
    makers = {str(rate): (lambda rate=rate: Learner(rate)) for rate in RATES}
    return [{"drift": name, **follow(makers, step, runs)} for name, step in DRIFTS.items()]


def learning(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Compare methods that learn batch by batch."""
    makers: dict[str, Callable[[], Any]] = {
        "partial_fit": lambda: Learner(1.0),
        'partial_fit, "auto"': lambda: Learner("auto"),
        "scikit-learn, all rows": Refit,
    }
    if find_spec("river"):
        makers["river"] = River
    names = "no drift", "random walk, 0.1 per batch", "jump of 0.7 in the middle"
    return [{"drift": name, **follow(makers, DRIFTS[name], max(4, runs // 2))} for name in names]


def draw_shifted(n: int, share: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw labels with a share of class 1, and log odds that are calibrated at one half."""
    y = (rng.random(n) < share).astype(int)
    return 2.4 * (rng.normal(size=n) + 2.4 * (y - 0.5)), y


def maximum_likelihood_share(p: Array, old: float, steps: int = 1000) -> float:
    """Estimate the share of class 1 by maximum likelihood, with expectation maximization."""
    share = old
    for _ in range(steps):
        one, zero = p * share / old, (1 - p) * (1 - share) / (1 - old)
        share = float((one / (one + zero)).mean())
    return share


def shift(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Compare corrections for changed class shares."""
    rows = []
    for share, m in ((0.1, 50), (0.1, 500), (0.1, 5000), (0.025, 500)):
        results: dict[str, list[tuple[float, float, float]]] = {}
        for run in range(runs):
            rng = np.random.default_rng([8, run])
            calibration = draw_shifted(2000, 0.5, rng)
            scores, _ = draw_shifted(m, share, rng)
            new, y = draw_shifted(20_000, share, rng)
            calibrator = bc.Auto(inputs="logits").fit(*calibration)
            p, q = (calibrator.predict_proba(z)[:, 1] for z in (scores, new))
            old = float(calibration[1].mean())

            def probcal_offset(target: float, p: Array = p, q: Array = q) -> tuple[Array, float]:
                from probcal.offset import LogitOffset  # type: ignore[import-not-found]

                return LogitOffset(target_mean=target).fit(p).transform(q), target

            def posterior(
                calibrator: Any = calibrator, scores: Array = scores, new: Array = new
            ) -> tuple[Array, float]:
                fitted = bc.PriorShift(calibrator).fit(scores)
                return fitted.predict_proba(new)[:, 1], float(fitted.shares_[1])

            def expectation_maximization(
                p: Array = p, q: Array = q, old: float = old
            ) -> tuple[Array, float]:
                estimated = maximum_likelihood_share(p, old)
                return expit(logit(q) - logit(old) + logit(max(estimated, 1e-9))), estimated

            methods: dict[str, Callable[[], tuple[Array, float]]] = {
                "no correction": lambda q=q, old=old: (q, old),
                "expectation maximization": expectation_maximization,
                "`PriorShift`": posterior,
            }
            if find_spec("probcal"):
                known_share = "probcal's offset, share known"
                methods[known_share] = lambda target=share: probcal_offset(target)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for name, method in methods.items():
                    start = time.process_time()
                    probs, estimate = method()
                    seconds = time.process_time() - start
                    loss = bc.metrics.log_loss(np.clip(probs, 1e-12, 1 - 1e-12), y)
                    results.setdefault(name, []).append((loss, abs(estimate - share), seconds))
        for name, values in results.items():
            loss, error, _ = np.mean(values, axis=0)
            rows.append(
                {
                    "share": share,
                    "rows": m,
                    "method": name,
                    "log_loss": round(float(loss), 4),
                    "error": round(float(error), 4),
                    "milliseconds": round(1e3 * float(np.median([v[2] for v in values])), 1),
                }
            )
            print(rows[-1], flush=True)
    return rows


def crossed(n: int, rng: np.random.Generator) -> tuple[Array, Array, pd.DataFrame, Array]:
    """Draw log odds, labels, crossed groups, and the true probabilities."""
    fixed = np.random.default_rng(99)
    z, age = 1.5 * rng.normal(size=n), rng.normal(size=n)
    region, device = rng.integers(0, 5, n), rng.integers(0, 4, n)
    effects = fixed.normal(0, 0.3, 5)[region] + fixed.normal(0, 0.3, 4)[device]
    effects += fixed.normal(0, 0.4, (5, 4))[region, device]
    effects += fixed.normal(0, 0.4, (5, 2))[region, (age > 0).astype(int)]
    p = expit(z * (1 + fixed.normal(0, 0.15, 5))[region] + effects)
    frame = pd.DataFrame({"region": np.array([*"abcde"])[region], "device": device, "age": age})
    return z, (rng.random(n) < p).astype(int), frame, p


def fit_mcgrad(z: Array, y: Array, frame: pd.DataFrame) -> Callable[[Array, pd.DataFrame], Array]:
    """Fit MCGrad, and return a function that predicts new rows."""
    from mcgrad.methods import MCGrad  # type: ignore[import-not-found]

    columns = {
        "prediction_column_name": "p",
        "categorical_feature_column_names": ["region", "device"],
        "numerical_feature_column_names": ["age"],
    }
    model = MCGrad()
    model.fit(frame.assign(p=expit(z), y=y), label_column_name="y", **columns)
    return lambda new, groups: model.predict(groups.assign(p=expit(new)), **columns)


def groups(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Compare calibration with crossed groups."""
    rows = []
    new, _, new_groups, truth = crossed(100_000, np.random.default_rng(1234))
    rows.append(
        {"rows": None, "method": "no correction", "log_loss": cross_entropy(truth, expit(new))}
    )
    rows.append(
        {"rows": None, "method": "true probabilities", "log_loss": cross_entropy(truth, truth)}
    )
    interactions_of: dict[str, int] = {"`PartialPooling`": 2, "`PartialPooling(interactions=1)`": 1}
    for n in (2000, 20_000, 100_000):
        results: dict[str, list[tuple[float, float]]] = {}
        for run in range(min(8, runs)):
            z, y, frame, _ = crossed(n, np.random.default_rng([9, run]))
            for name, interactions in interactions_of.items():
                start = time.process_time()
                fitted = bc.PartialPooling(interactions, inputs="logits").fit(z, y, groups=frame)
                seconds = time.process_time() - start
                q = fitted.predict_proba(new, groups=new_groups)[:, 1]
                results.setdefault(name, []).append((cross_entropy(truth, q), seconds))
            if find_spec("mcgrad") and find_spec("lightgbm") and run < 3:
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    predict = fit_mcgrad(z, y, frame)
                    seconds = time.process_time() - start
                    q = np.clip(predict(new, new_groups), 1e-9, 1 - 1e-9)
                results.setdefault("MCGrad", []).append((cross_entropy(truth, q), seconds))
        for name, values in results.items():
            losses, times = np.transpose(values)
            row = {"rows": n, "method": name, "samples": len(values)}
            row["log_loss"] = float(losses.mean())
            row["standard_error"] = float(losses.std(ddof=1) / len(losses) ** 0.5)
            row["seconds"] = float(np.median(times))
            rows.append(row)
            print(row, flush=True)
    return rows


def levels(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Fit one column of many levels with few rows each, whose offsets are normal."""
    rows = []
    for count in (200, 2000, 20_000):
        for rows_per_level in (2, 5, 20):
            for deviation in (0.5, 1.5):
                results = []
                for run in range(max(1, runs * 100 // count)):
                    rng = np.random.default_rng([14, run])
                    n = count * rows_per_level
                    group, z = rng.integers(0, count, n), rng.normal(0, 1.5, n)
                    shift = deviation * rng.normal(size=count)
                    y = (rng.random(len(z)) < expit(z + shift[group])).astype(int)
                    start = time.process_time()
                    fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
                    taken = time.process_time() - start
                    inside = [
                        effect.lower <= shift[int(str(effect.level[0]))] <= effect.upper
                        for effect in fitted.group_effects()
                    ]
                    results.append((np.mean(inside), fitted.deviations_[0,][0], taken))
                covered, estimated, seconds = np.mean(results, axis=0)
                row = {
                    "levels": count,
                    "rows": rows_per_level,
                    "deviation": deviation,
                    "runs": len(results),
                }
                row |= {"covered": covered, "found": estimated, "seconds": seconds}
                rows.append({name: round(float(value), 4) for name, value in row.items()})
                print(rows[-1], flush=True)
    return rows


def multinomial(n: int, k: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw over-confident probabilities with wrong class offsets, and labels."""
    logits = rng.normal(0, 1.5, (n, k))
    shift = np.linspace(-0.5, 0.5, k)
    y = (0.7 * logits + shift + rng.gumbel(size=(n, k))).argmax(axis=1)
    return softmax(logits, axis=1), y


LARGE = (600_000, 10, 6), (200_000, 100, 10)


def history(runs: int, folder: Path, large: bool = False) -> list[dict[str, Any]]:
    """Compare ``partial_fit`` in batches with one fit to all rows."""
    binary = bc.Temperature, bc.Logistic, bc.Beta, bc.Quadratic, bc.AveragedBeta
    multiclass = bc.Temperature, bc.Vector, bc.StructuredVector, bc.Matrix, bc.StructuredMatrix
    sizes = ((400, 2, 40), (4000, 2, 8), (40_000, 2, 40), (4000, 3, 8), (20_000, 10, 10))
    rows = []
    for n, k, batches in (*sizes, *(LARGE if large else ())):
        p, y = multinomial(n, k, np.random.default_rng([11, n, k]))
        scores = p[:, 1] if k == 2 else p
        for calibrator in binary if k == 2 else multiclass[: 3 if k > 16 else 5]:
            at_once, in_batches = calibrator().fit(scores, y), calibrator()
            start = time.process_time()
            for part in np.array_split(np.arange(n), batches):
                in_batches.partial_fit(scores[part], y[part], classes=range(k))
            seconds = time.process_time() - start
            difference = np.abs(
                in_batches.predict_proba(scores) - at_once.predict_proba(scores)
            ).max()
            row = {"rows": n, "classes": k, "batches": batches, "calibrator": calibrator.__name__}
            rows.append(row | {"difference": float(difference), "seconds": round(seconds, 2)})
            print(rows[-1], flush=True)
    return rows


def monitor(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Measure the rows until an alarm."""
    rows, max_rows = [], 10_000
    for slope, offset in ((0.6, 0.3), (0.7, 0.0), (1.0, 0.5)):
        data = [draw([10, run], max_rows, slope, offset) for run in range(runs)]
        monitors: dict[str, Callable[..., int | None]] = {"`Monitor`": alarm_of_bayescal}
        if find_spec("probcal"):
            monitors["probcal"] = lambda p, y: alarm_of_probcal(p, y, 50)
        row: dict[str, Any] = {"slope": slope, "offset": offset, "runs": runs}
        for name, find_alarm in monitors.items():
            start = time.process_time()
            delays = [find_alarm(p, y) or max_rows for p, y in data]
            seconds = (time.process_time() - start) / sum(delays)
            row[name] = {"rows": float(np.mean(delays)), "microseconds": round(1e6 * seconds, 1)}
        rows.append(row)
        print(row, flush=True)
    return rows


def violated(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Measure guarantees on data that violate their assumptions."""
    rows: list[dict[str, Any]] = []

    def add(case: str, hits: list[Any]) -> None:
        rows.append({"case": case, "data sets": len(hits), "share": round(float(np.mean(hits)), 3)})
        print(rows[-1], flush=True)

    num_sets = 5 * runs
    normal, outlier, without_outlier, heavy_tails = [], [], [], []
    alarms, alarms_ordered = [], []
    for run in range(num_sets):
        rng = np.random.default_rng([12, run])
        group, z = np.repeat(np.arange(25), 100), 1.5 * rng.normal(size=2500)
        draws = rng.normal(0, 0.5, 25), np.where(np.arange(25) == 0, 3.0, 0.0)
        for kind, shift in enumerate((*draws, 0.3 * rng.standard_t(2, 25))):
            y = (rng.random(2500) < expit(z + shift[group])).astype(int)
            fitted = bc.PartialPooling(inputs="logits").fit(z, y, groups=group)
            inside = [
                effect.lower <= value <= effect.upper
                for effect, value in zip(fitted.group_effects(), shift, strict=True)
            ]
            if kind == 1:
                outlier.append(inside[0])
                without_outlier.append(np.mean(inside[1:]))
            else:
                (normal if kind == 0 else heavy_tails).append(np.mean(inside))
        p = expit(rng.normal(0, 2, 2000))
        y = (rng.random(2000) < p).astype(int)
        order = np.lexsort((y, np.arange(2000) // 100))
        alarms.append(bc.Monitor().update(p, y).alarm_)
        alarms_ordered.append(bc.Monitor().update(p[order], y[order]).alarm_)
    add("groups, normal offsets: intervals contain the offset", normal)
    add("groups, one of 25 is off by 3: intervals of this one", outlier)
    add("groups, one of 25 is off by 3: intervals of the others", without_outlier)
    add("groups, heavy tails (t with 2 degrees of freedom)", heavy_tails)
    add("monitor, 2,000 rows in random order: false alarms", alarms)
    add("monitor, negatives are reported first in each 100 rows: false alarms", alarms_ordered)
    for delta in (0.0, 0.5):
        hits = []
        for run in range(num_sets):
            rng = np.random.default_rng([13, run])
            z, new = rng.normal(0, 2, 2000), rng.normal(0, 2, 1000)
            calibrator = bc.Auto(inputs="logits").fit(z, rng.random(2000) < expit(z))
            y = rng.random(1000) < expit(new + delta)
            low, high = bc.expected_performance(calibrator, new).log_loss.realized
            loss = bc.metrics.log_loss(calibrator.predict_proba(new), y)
            hits.append(low <= loss <= high)
        add(
            f"expected log loss, log odds shifted by {delta:g}: intervals contain the realized one",
            hits,
        )
    return rows


def nba(runs: int, folder: Path) -> list[dict[str, Any]]:
    """Measure what learning from each day or week gains for forecasts of basketball games."""
    path = folder / "forecasts" / "538_nba_games.csv.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt") as file:
        games = sorted(csv.DictReader(file), key=lambda game: game["date"])
    days = np.array([game["date"] for game in games])
    p = np.array([float(game["prob1"]) for game in games])
    y = np.array([int(game["prob1_outcome"]) for game in games])
    seasons = np.array([game["season"] for game in games])
    methods: dict[str, Any] = {
        "no forgetting": (bc.Logistic(), 1.0),
        "forgetting of 0.99 per day": (bc.Logistic(), 0.99),
        'forgetting="auto" by weeks': (bc.Logistic(), "auto"),
    }
    # The first season is used only for learning.
    first = seasons == seasons[0]
    losses = {name: np.full(len(y), np.nan) for name in methods}
    weeks = days.astype("M8[D]").astype("M8[W]")
    for name, (calibrator, rate) in methods.items():
        periods = weeks if rate == "auto" else days
        calibrator.partial_fit(p[first], y[first], forgetting=1.0)
        for period in np.unique(periods[~first]):
            part = (periods == period) & ~first
            q = calibrator.predict_proba(p[part])[np.arange(part.sum()), y[part]]
            losses[name][part] = -np.log(q)
            calibrator.partial_fit(p[part], y[part], forgetting=rate)
    raw = -np.log(np.where(y == 1, p, 1 - p))
    monitor_ = bc.Monitor().update(p, y, times=days.astype("M8[D]"))
    rows: list[dict[str, Any]] = []
    for name, loss in {"original forecasts": raw, **losses}.items():
        gain = (raw - loss)[~first]
        rows.append(
            {
                "method": name,
                "games": int((~first).sum()),
                "log_loss": round(float(loss[~first].mean()), 4),
                "gain": round(float(gain.mean()), 4),
                "standard_error": round(float(gain.std(ddof=1) / len(gain) ** 0.5), 4),
            }
        )
        print(rows[-1], flush=True)
    row: dict[str, Any] = {"method": "Monitor", "alarm": monitor_.alarm_}
    row["log_evidence"] = round(monitor_.max_log_evidence_, 2)
    row["alarm_row"], row["alarm_day"] = monitor_.alarm_row_, str(monitor_.alarm_time_)[:10]
    row |= {"start": str(monitor_.start_time_)[:10], "action": monitor_.action_}
    row["slope"] = [round(end, 2) for end in monitor_.slope_interval()]
    row["offset"] = [round(end, 2) for end in monitor_.offset_interval()]
    rows.append(row)
    print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parts = {
        f.__name__: f
        for f in (nba, violated, monitor, groups, levels, shift, history, learning, rates)
    }
    parser.add_argument("--part", choices=[*parts], nargs="*", default=[*parts])
    parser.add_argument("--runs", type=int, default=20)
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=os.environ.get("BAYESCAL_DATA", shared))
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", ".*the scores separate the labels")
    parts["history"] = partial(history, large=options.large)
    for name in options.part:
        start = time.perf_counter()
        rows = parts[name](options.runs, Path(options.data))
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        if options.json:
            old = read(options.json)
            write(options.json, {**old, name: rows}, ["probcal", "river", "mcgrad"])


if __name__ == "__main__":
    main()
