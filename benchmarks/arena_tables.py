"""Write scores of real data with 3 to 9 classes, for `python -m benchmarks.studies arena`.

    python -m benchmarks.arena_tables OUT [--tables DIR] [--networks DIR]
    python -m benchmarks.studies arena --data OUT --out RESULTS

Six models on tables of scikit-learn (some classes of digits; the target of diabetes cut into parts
of equal size), and on ``fetal_health.csv.gz`` in the folder of tables: half of the rows train, a
fifth calibrates, the rest tests. And networks in their folder, for images of 3, 5 and 8 of their
classes: their logits, without those of other classes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn import datasets
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayescal._core.numerics import softmax
from benchmarks.studies.arena import find_experiments, read_experiment

Array = np.ndarray
MODELS = {
    "rf": RandomForestClassifier(200, random_state=1),
    "et": ExtraTreesClassifier(200, random_state=1),
    "hgb": HistGradientBoostingClassifier(random_state=1),
    "nb": GaussianNB(),
    "mlp": make_pipeline(StandardScaler(), MLPClassifier((100,), max_iter=300, random_state=1)),
    "lr": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
}
SUBSETS = 3, 5, 8


def read_tables(folder: Path | None) -> Iterator[tuple[str, Array, Array]]:
    """Yield names, features and labels 0 to k - 1."""
    for name, load in (("iris", datasets.load_iris), ("wine", datasets.load_wine)):
        yield name, *load(return_X_y=True)
    X, target = datasets.load_diabetes(return_X_y=True)
    for k in SUBSETS:
        edges = np.quantile(target, np.arange(1, k) / k)
        yield f"diabetes_{k}", X, np.searchsorted(edges, target, side="right")
    X, y = datasets.load_digits(return_X_y=True)
    for k in (3, 5, 7, 9):
        chosen = np.sort(np.random.default_rng(k).permutation(10)[:k])
        own = np.isin(y, chosen)
        yield f"digits_{k}", X[own], np.searchsorted(chosen, y[own])
    if folder is not None:
        with gzip.open(folder / "fetal_health.csv.gz", "rt", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row][1:]
        table = np.array(rows, float)
        yield "fetal_health", table[:, :-1], table[:, -1].astype(int) - 1


def split(X: Array, y: Array) -> list[Array]:
    """Return features and labels of rows to train on, to calibrate on, and to test on."""
    own, rest, own_y, rest_y = train_test_split(X, y, train_size=0.5, stratify=y, random_state=1)
    return [
        own,
        own_y,
        *train_test_split(rest, rest_y, train_size=0.4, stratify=rest_y, random_state=1),
    ]


def some_classes(logits: Array, y: Array, chosen: Array) -> tuple[Array, Array]:
    """Return probabilities and labels of rows of some classes, of these alone."""
    own = np.isin(y, chosen)
    return softmax(logits[own][:, chosen].astype(float)), np.searchsorted(chosen, y[own])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--tables", type=Path, help="folder with fetal_health.csv.gz")
    parser.add_argument("--networks", type=Path, help="folder of networks' predictions")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, X, y in read_tables(options.tables):
        own, own_y, cal, test, cal_y, test_y = split(X, y)
        for model_name, model in MODELS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(own, own_y)
            pc, pt = (model.predict_proba(part).astype(np.float32) for part in (cal, test))
            path = options.out / f"tab-{name}-{model_name}.npz"
            np.savez_compressed(path, pc=pc, yc=cal_y, pt=pt, yt=test_y)
        print(f"{name}: {len(cal)} rows to calibrate on, {y.max() + 1} classes", flush=True)
    if options.networks is None:
        return
    for name, path in find_experiments([options.networks]).items():
        experiment = read_experiment(name, path)
        if experiment.inputs != "logits" or experiment.scores.shape[1] < 10:
            continue
        for k in SUBSETS:
            order = np.random.default_rng(k).permutation(experiment.scores.shape[1])
            chosen = np.sort(order[:k])
            pc, yc = some_classes(experiment.scores, experiment.y, chosen)
            pt, yt = some_classes(experiment.test_scores, experiment.test_y, chosen)
            path = options.out / f"tab-{name.removeprefix('cnn-')}-{k}.npz"
            np.savez_compressed(path, pc=pc, yc=yc, pt=pt, yt=yt)
        print(f"{name}: 3, 5 and 8 of {len(order)} classes", flush=True)


if __name__ == "__main__":
    main()
