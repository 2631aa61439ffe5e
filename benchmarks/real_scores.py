"""Calibrate the scores of a linear SVM on real tables, and compare the losses of methods.

Each of the 19 binary tables is split 5 times, stratified. 30 % of the rows are for testing; of the
rest, 30 % are for calibration, and 70 % train the SVM (``LinearSVC``, C = 1, with features
standardized on the training rows). Every calibrator is fitted to the decision values and labels of
the calibration rows.

The prior was chosen before any test result was seen, and has not changed since. Scores are
standardized by the mean and the standard deviation of the calibration rows, without labels. Then
sigma**2 + pi (1 - pi) (mu1 - mu0)**2 is about 1. Therefore sigma is below about 1, and for balanced
classes the means are between 0 and 2 apart; the mean of a rare class may be further out. A
classifier is trained to give class 1 higher scores, so

    mu0 ~ Normal(-0.5, 1.5), mu1 ~ Normal(0.5, 1.5), sigma ~ HalfNormal(1)

Each mean is half a unit from the center, and its prior is wide enough to be overruled by a few
observations. The class prior is the smoothed frequency of class 1 among the labels that are not for
testing: (n1 + 1) / (n + 2). A second model, "unequal", has one standard deviation per class, both
HalfNormal(1).

"uncalibrated" is the sigmoid of the decision value. "logistic" is scikit-learn's logistic
regression without penalty, with the default tolerance. If the calibration rows are separable, it
has no optimum, and the tolerance determines how confident it is. "platt" has Platt's soft targets.

    python -m benchmarks.real_scores [--data DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import bayescal as bc
from bayescal import metrics
from benchmarks import provenance
from benchmarks.studies._binary_tables import read_table, split_rows

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("BAYESCAL_DATA") or ROOT.parent / "shared" / "data")
FOLDER = Path("tabular", "thesis40")
NUM_SPLITS = 5
TEST_SHARE = CALIBRATION_SHARE = 0.3
EPS = 1e-15  # probabilities are clipped to this in the log losses of all methods
BAYES = ("predictive", "preds", "coeffs", "map")
METHODS = ("uncalibrated", "logistic", "platt", *BAYES, "unequal")
METRICS = {
    "log_loss": lambda p, y: metrics.log_loss(p, y, eps=EPS),
    "brier": metrics.brier_score,
    "ece": lambda p, y: metrics.ece(p, y, bins=10),
}
TITLES = {"log_loss": "Log loss", "brier": "Brier score", "ece": "ECE, 10 bins of equal width"}


class Split(NamedTuple):
    """Decision values of an SVM, and labels, for calibration and for testing."""

    scores: np.ndarray
    y: np.ndarray
    test_scores: np.ndarray
    test_y: np.ndarray
    class_prior: float


def shared_prior() -> bc.Prior:
    """Create the prior on standardized scores, with one standard deviation for both classes."""
    return bc.GaussianPrior(dist.Normal(-0.5, 1.5), dist.Normal(0.5, 1.5), dist.HalfNormal(1.0))


def unequal_prior() -> bc.Prior:
    """Create the prior on standardized scores, with one standard deviation per class."""
    deviation = dist.HalfNormal(1.0)
    means = dist.Normal(-0.5, 1.5), dist.Normal(0.5, 1.5)
    return bc.GaussianPrior(*means, sigma0=deviation, sigma1=deviation)


def tables(data: Path) -> list[Path]:
    """List the files of the tables, in alphabetical order."""
    return sorted((data / FOLDER).glob("*.csv.gz"))


def score(x: np.ndarray, y: np.ndarray, seed: int) -> Split:
    """Train the SVM of one split, and compute its decision values for the other rows."""
    random = np.random.default_rng(seed)
    train, test = split_rows(y, np.arange(len(y)), TEST_SHARE, random)
    fit, calibration = split_rows(y, train, CALIBRATION_SHARE, random)
    svm = make_pipeline(StandardScaler(), LinearSVC(C=1.0, dual=False, max_iter=10_000))
    svm.fit(x[fit], y[fit])
    class_prior = (y[train].sum() + 1) / (len(train) + 2)
    return Split(
        svm.decision_function(x[calibration]),
        y[calibration],
        svm.decision_function(x[test]),
        y[test],
        float(class_prior),
    )


def standardize(split: Split) -> Split:
    """Standardize scores by the mean and standard deviation of the calibration rows."""
    center, scale = split.scores.mean(), split.scores.std()
    return split._replace(
        scores=(split.scores - center) / scale, test_scores=(split.test_scores - center) / scale
    )


def logistic(split: Split, targets: tuple[float, float]) -> np.ndarray:
    """Fit a logistic curve to soft targets of classes 0 and 1, without penalty, and predict."""
    soft = np.where(split.y == 1, targets[1], targets[0])
    model = LogisticRegression(C=np.inf, max_iter=1000)
    # Each score occurs once with each label, weighted by the probability of the label.
    model.fit(
        np.tile(split.scores, 2)[:, None],
        np.repeat([0, 1], len(soft)),
        sample_weight=np.concatenate([1 - soft, soft]),
    )
    return expit(model.decision_function(split.test_scores[:, None]))


def platt_targets(y: np.ndarray) -> tuple[float, float]:
    """Compute the targets of classes 0 and 1 by which Platt's method avoids over-confidence."""
    positive = int(y.sum())
    return 1 / (len(y) - positive + 2), (positive + 1) / (positive + 2)


def predict(
    splits: Sequence[Split],
    methods: Sequence[str] = METHODS,
    integrator: str = "quadrature",
    num_samples: int = 100_000,
) -> dict[str, np.ndarray]:
    """Compute the probabilities (splits, m) of class 1 by each method, in float64."""
    standard = [standardize(split) for split in splits]
    data = [(split.scores, split.y) for split in standard]
    points = np.stack([split.test_scores for split in standard])
    (class_prior,) = {split.class_prior for split in splits}
    probs: dict[str, Any] = {}
    if "uncalibrated" in methods:
        probs["uncalibrated"] = expit([split.test_scores for split in splits])
    if "logistic" in methods:
        probs["logistic"] = [logistic(split, (0.0, 1.0)) for split in standard]
    if "platt" in methods:
        probs["platt"] = [logistic(split, platt_targets(split.y)) for split in standard]
    posteriors = {}
    if set(BAYES) & set(methods):
        posteriors["shared"] = bc.posterior(
            shared_prior(),
            data,
            integrator=integrator,
            num_samples=num_samples,
            class_prior=class_prior,
        )
    if "unequal" in methods:  # four parameters are too many for quadrature
        posteriors["unequal"] = bc.posterior(
            unequal_prior(), data, integrator="importance", class_prior=class_prior
        )
    for method in methods:
        if method in BAYES:
            prediction = posteriors["shared"].predict(points, method=method)
        elif method == "unequal":
            prediction = posteriors["unequal"].predict(points)
        else:
            continue
        probs[method] = expit(np.asarray(prediction.log_odds, np.float64))
    return {method: np.asarray(probs[method]) for method in methods}


def evaluate(path: Path, methods: Sequence[str] = METHODS, **options: Any) -> dict[str, Any]:
    """Compute the sizes of a table, and mean losses over the splits by metric and method.

    ``options`` are passed to ``predict``.
    """
    _, x, y = read_table(path.name, path)
    splits = [score(x, y, seed) for seed in range(NUM_SPLITS)]
    probs = predict(splits, methods, **options)
    losses = {
        name: {
            method: float(
                np.mean([metric(p, s.test_y) for p, s in zip(probs[method], splits, strict=True)])
            )
            for method in methods
        }
        for name, metric in METRICS.items()
    }
    sizes = {
        "rows": len(y),
        "features": x.shape[1],
        "class_1": int(y.sum()),
        "calibration": len(splits[0].y),
        "test": len(splits[0].test_y),
    }
    return {"table": path.name.removesuffix(".csv.gz"), **sizes, **losses}


def summarize(results: Sequence[dict[str, Any]], methods: Sequence[str] = METHODS) -> dict:
    """Compute means over tables, and count tables on which a method has the lower log loss."""
    means = {
        name: {method: float(np.mean([r[name][method] for r in results])) for method in methods}
        for name in METRICS
    }
    wins = {
        rival: {
            method: sum(r["log_loss"][method] < r["log_loss"][rival] for r in results)
            for method in methods
            if method != rival
        }
        for rival in ("uncalibrated", "logistic", "platt")
        if rival in methods
    }
    return {"tables": len(results), "mean": means, "lower_log_loss_than": wins}


def show(results: Sequence[dict[str, Any]], summary: dict[str, Any]) -> None:
    """Print a table for each metric, and one of the wins."""
    console = Console(width=max(Console().width, 130))
    for name in METRICS:
        table = Table(title=f"{TITLES[name]}, mean of {NUM_SPLITS} splits")
        table.add_column("table")
        for heading in ("n", *METHODS):
            table.add_column(heading, justify="right")
        for result in results:
            values = [result[name][method] for method in METHODS]
            best = min(values)
            cells = [f"[bold]{v:.4f}[/bold]" if v == best else f"{v:.4f}" for v in values]
            table.add_row(result["table"], str(result["calibration"]), *cells)
        table.add_section()
        table.add_row("mean", "", *(f"{summary['mean'][name][m]:.4f}" for m in METHODS))
        console.print(table)
    table = Table(title=f"Tables out of {summary['tables']} with a lower log loss than ...")
    table.add_column("method")
    rivals = summary["lower_log_loss_than"]
    for rival in rivals:
        table.add_column(rival, justify="right")
    for method in METHODS:
        table.add_row(method, *(str(wins.get(method, "")) for wins in rivals.values()))
    console.print(table)


def main() -> None:
    """Evaluate every table, and report the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of real data sets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file")
    arguments = parser.parse_args()
    paths = tables(arguments.data)
    if not paths:
        parser.error(f"no tables in {arguments.data / FOLDER}; set --data or BAYESCAL_DATA")
    results = [evaluate(path) for path in paths]
    summary = summarize(results)
    show(results, summary)
    if arguments.json:
        settings = {
            "splits": NUM_SPLITS,
            "eps": EPS,
            "prior": repr(shared_prior()),
            "prior_unequal": repr(unequal_prior()),
        }
        provenance.write(arguments.json, {**settings, "summary": summary, "results": results})


if __name__ == "__main__":
    main()
