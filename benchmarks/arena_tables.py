"""Write scores of real data, for `python -m benchmarks.studies arena`.

    python -m benchmarks.arena_tables OUT [--tables DIR] [--networks DIR]
    python -m benchmarks.studies arena --data OUT --out RESULTS

Scores with 3 to 9 classes. Six models on tables of scikit-learn (some classes of digits; the target
of diabetes cut into parts of equal size), and on ``fetal_health.csv.gz`` in the folder of tables:
half of the rows train, a fifth calibrates, the rest tests. And networks in their folder, for images
of 3, 5 and 8 of their classes: their logits, without those of other classes.

The confirmation
----------------
Whatever was chosen was chosen on the scores above, on the networks, and on 17 binary tables.

    python -m benchmarks.arena_tables OUT --fresh DATA
    python -m benchmarks.studies arena --data OUT/adult --data OUT/mulan --data OUT/columns \
        --method auto --installed --out RESULTS
    python -m benchmarks.studies arena --data OUT/made --method auto --installed --out RESULTS/made

writes and judges others, by a protocol that was fixed before it ran. (It ran twice: the first time
had read two columns of single precision as the second and its complement, for all methods alike.)

- models that no choice was based on: :func:`fresh_models`;
- four collections, each a folder: ``adult`` (the census, other targets than the income), ``mulan``
  (scene: images with exactly one label; yeast: how many of the labels, and which of two or three;
  and single labels of both), ``columns`` (numeric columns of auto_price, mindcave2, sonar and
  banknote cut at quantiles, predicted from the others), and ``made``, synthetic and apart;
- the number of rows that calibrate is in :data:`ADULT`, :data:`MULAN`, :data:`COLUMNS` and
  :data:`MADE`: 50 to 499 for 3 to 10 classes, 50 to 5,000 for two. At most 400 rows and a third
  train, at most 2,000 of the rest test; splits are stratified, and their seed is the set's number;
- `Auto` as it is, against probmetrics' SVS, SMS and others with their defaults, and no calibration,
  by win rates, paired differences and post-hoc improvements of log loss and Brier score, by number
  of classes, rows and collection, with standard errors over sets. No experiment is left out.

Ties and skew
-------------
    python -m benchmarks.arena_tables OUT --tied DATA
    python -m benchmarks.studies arena --data OUT/tied --method auto --installed --out RESULTS

writes and judges the same sets, but for the synthetic ones, with :func:`tied_models`: models whose
scores have few values, zeros, or a skew. No choice was based on them either, but `Auto` had been
changed for other scores of this kind.

Later the prior odds of unchanged scores, a member of `AveragedBeta`, were chosen on the binary sets
of both confirmations: the figures of two classes are not independent of that choice.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn import datasets
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

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

# The confirmation. A target is a number of classes: the most frequent ones, or parts of equal size;
# or it is of two classes: a value, or what is greater than a number.
Target = int | float | str
NUMERIC = "age", "weight", "years", "gain", "loss", "hours"
CENSUS = (
    *("age", "work", "weight", "education", "years", "marital", "occupation", "relationship"),
    *("race", "sex", "gain", "loss", "hours", "country", "income"),
)
#: Not given to models, since they tell the target.
TELLING = {
    "marital": "relationship",
    "relationship": "marital",
    "sex": "relationship",
    "education": "years",
    "years": "education",
}
ADULT: tuple[tuple[str, Target, int], ...] = (
    *(("age", 3, 50), ("marital", 4, 60), ("occupation", 5, 100), ("hours", 4, 150)),
    *(("relationship", 6, 200), ("age", 7, 250), ("work", 6, 300), ("education", 8, 400)),
    *(("race", 5, 450), ("occupation", 10, 499)),
    *(("sex", "Male", 50), ("marital", "Married-civ-spouse", 70), ("hours", 40.0, 90)),
    *(("work", "Private", 99), ("country", "United-States", 120), ("gain", 0.0, 200)),
    *(("years", 9.0, 400), ("age", 40.0, 800), ("years", 10.0, 1000), ("sex", "Male", 1500)),
    *(("marital", "Never-married", 2500), ("age", 30.0, 3500), ("hours", 45.0, 5000)),
)
#: A data set; the numbers of labels of which one, or which pattern, is the target, or, of scene,
#: how many classes of images with one label, or, of yeast, the edges of the number of labels.
MULAN: tuple[tuple[str, str, tuple[int, ...], int], ...] = (
    *(("scene", "one", (3,), 60), ("scene", "one", (4,), 120), ("scene", "one", (5,), 200)),
    *(("scene", "one", (6,), 300), ("yeast", "count", (4, 5), 75)),
    *(("yeast", "count", (3, 4, 5, 6), 350), ("yeast", "which", (0, 1), 150)),
    *(("yeast", "which", (2, 3), 90), ("yeast", "which", (4, 5, 6), 499)),
    *(("yeast", "which", (0,), 50), ("scene", "which", (0,), 60), ("yeast", "which", (1,), 80)),
    *(("scene", "which", (1,), 95), ("yeast", "which", (2,), 150)),
    *(("scene", "which", (2,), 250), ("yeast", "which", (3,), 400)),
    *(("scene", "which", (3,), 600), ("scene", "which", (4,), 1000)),
    ("yeast", "which", (4,), 1200),
)
#: A table, the column (of those with 30 values or more), the number of parts, and the rows.
COLUMNS = (
    *(("auto_price", 0, 3, 50), ("auto_price", 1, 4, 50), ("mindcave2", 0, 3, 50)),
    *(("sonar", 10, 3, 60), ("sonar", 20, 4, 70), ("sonar", 30, 5, 80), ("sonar", 40, 6, 60)),
    *(("banknote", 0, 3, 90), ("banknote", 1, 5, 200), ("banknote", 2, 8, 350)),
    ("banknote", 3, 10, 499),
    *(
        ("auto_price", 2, 2, 50),
        ("mindcave2", 1, 2, 50),
        ("sonar", 15, 2, 60),
        ("sonar", 35, 2, 99),
    ),
    *(("banknote", 0, 2, 120), ("banknote", 1, 2, 300), ("banknote", 2, 2, 600)),
)
MADE = (3, 60), (5, 200), (8, 450), (2, 80), (2, 800), (2, 3000)
TRAIN, TEST, FEWEST = 400, 2000, 0.008


class Margins(OneVsRestClassifier):
    """One support vector machine for each class; probabilities are the softmax of their values."""

    def predict_proba(self, X: Array) -> Array:
        values = self.decision_function(X)
        return softmax(np.stack([-values, values], axis=1) if values.ndim == 1 else values)


def fresh_models(columns: int, seed: int) -> dict[str, Any]:
    """Return models that no choice was based on."""
    kernel = ConstantKernel(4.0) * RBF(np.sqrt(columns))
    models = {
        "knn": KNeighborsClassifier(10),
        "qda": QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.3),
        "svm": Margins(SVC()),
        "bag": BaggingClassifier(DecisionTreeClassifier(max_depth=4), 50, random_state=seed),
        "ada": AdaBoostClassifier(random_state=seed),
        "gp": GaussianProcessClassifier(kernel, optimizer=None),
    }
    return {name: make_pipeline(StandardScaler(), model) for name, model in models.items()}


class Votes(BaseEstimator, ClassifierMixin):
    """The predicted classes of a model as probabilities of zero and one."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Array, y: Array) -> Self:
        """Fit the model."""
        self.model_ = clone(self.model).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: Array) -> Array:
        return (self.model_.predict(X)[:, None] == self.classes_).astype(float)


class Rounded(Votes):
    """The probabilities of a model, rounded to tenths."""

    def predict_proba(self, X: Array) -> Array:
        probs = self.model_.predict_proba(X).round(1)
        total = probs.sum(axis=1, keepdims=True)
        return np.where(total > 0, probs / np.maximum(total, 0.1), 1 / probs.shape[1])


class Biased(Votes):
    """A model that is trained with a third of the rows of every second class."""

    def fit(self, X: Array, y: Array) -> Self:
        """Fit the model to some of the rows."""
        kept = (y % 2 == 0) | (np.arange(len(y)) % 3 == 0)
        kept[np.unique(y, return_index=True)[1]] = True
        return super().fit(X[kept], y[kept])

    def predict_proba(self, X: Array) -> Array:
        return self.model_.predict_proba(X)


def tied_models(seed: int) -> dict[str, Any]:
    """Return models whose scores have few values, zeros, or a skew."""
    forest = RandomForestClassifier(50, random_state=seed)
    line = LogisticRegression(max_iter=1000)
    models = {
        "deep": DecisionTreeClassifier(random_state=seed),
        "stump": DecisionTreeClassifier(max_depth=1, random_state=seed),
        "knn5": KNeighborsClassifier(5),
        "votes": Votes(forest),
        "rounded": Rounded(forest),
        "weighted": LogisticRegression(max_iter=1000, class_weight="balanced"),
        "biased": Biased(line),
        "gnb": GaussianNB(),
    }
    return {name: make_pipeline(StandardScaler(), model) for name, model in models.items()}


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


def read_csv(path: Path) -> Array:
    """Return the cells of a table as text."""
    with gzip.open(path, "rt", newline="") as stream:
        return np.array([[cell.strip() for cell in row] for row in csv.reader(stream) if row])


def cut(values: Array, target: Target) -> Array:
    """Return labels of a target, -1 of rows to leave out."""
    if isinstance(target, str):
        return (values == target).astype(int)
    if isinstance(target, float):
        return (values > target).astype(int)
    if values.dtype.kind == "f":
        edges = np.unique(np.quantile(values, np.arange(1, target) / target))
        return np.searchsorted(edges, values, side="right")
    every, counts = np.unique(values[values != "?"], return_counts=True)
    chosen = np.sort(every[np.argsort(-counts, kind="stable")[:target]])
    place = np.minimum(np.searchsorted(chosen, values), len(chosen) - 1)
    return np.where(chosen[place] == values, place, -1)


def adult_sets(folder: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield names, features, labels and rows to calibrate on: the census."""
    parts = (read_csv(folder / "more" / f"adult_{part}.csv.gz") for part in ("train", "test"))
    columns = dict(zip(CENSUS, np.concatenate(list(parts)).T, strict=True))
    del columns["income"]
    columns |= {name: columns[name].astype(float) for name in NUMERIC}
    features = {}
    for name, values in columns.items():
        if name in NUMERIC:
            features[name] = values[:, None]
        else:
            every, counts = np.unique(values, return_counts=True)
            features[name] = values[:, None] == every[counts >= 0.01 * len(values)]
    for name, target, rows in ADULT:
        hidden = name, TELLING.get(name)
        X = np.hstack([own for other, own in features.items() if other not in hidden])
        yield name, X.astype(float), cut(columns[name], target), rows


def mulan_sets(folder: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the same of images and genes."""
    for name, kind, own, rows in MULAN:
        with np.load(folder / f"mulan_{name}.npz") as file:
            X, labels = (np.concatenate([file[f"{a}_train"], file[f"{a}_test"]]) for a in "XY")
        if kind == "one":
            y = np.where(labels.sum(axis=1) == 1, labels.argmax(axis=1), -1)
            y[y >= own[0]] = -1
        elif kind == "count":
            y = np.searchsorted(own, labels.sum(axis=1), side="right")
        else:
            y = labels[:, own].astype(int) @ (1 << np.arange(len(own)))
        yield f"{name}_{kind}_{'_'.join(map(str, own))}", X.astype(float), y, rows


def column_sets(folder: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the same of numeric columns."""
    for name, column, k, rows in COLUMNS:
        if name in ("sonar", "banknote"):
            file = {"banknote": "banknote_authentication"}.get(name, name)
            cells = read_csv(folder / "more" / f"{file}.csv.gz")
        else:
            cells = read_csv(folder / "thesis40" / f"{name}.csv.gz")[1:]
        X = cells[:, :-1].astype(float)
        able = [i for i, values in enumerate(X.T) if len(np.unique(values)) >= 30]
        hidden = able[column]
        yield f"{name}_{column}", np.delete(X, hidden, axis=1), cut(X[:, hidden], k), rows


def made_sets(_: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the same, synthetic."""
    for k, rows in MADE:
        X, y = datasets.make_classification(
            6000, 12, n_informative=8, n_classes=k, flip_y=0.05, random_state=rows
        )
        yield "classes", X, y, rows


def write_fresh(out: Path, data: Path, tied: bool) -> None:
    """Write the experiments of the confirmation, a folder for each collection, or the tied ones."""
    collections = {
        "adult": adult_sets(data / "tabular"),
        "mulan": mulan_sets(data / "multilabel"),
        "columns": column_sets(data / "tabular"),
    }
    if tied:
        collections = {"tied": chain(*collections.values())}
    else:
        collections["made"] = made_sets(data)
    for collection, sets in collections.items():
        (out / collection).mkdir(parents=True, exist_ok=True)
        for seed, (name, X, y, rows) in enumerate(sets):
            every, counts = np.unique(y[y >= 0], return_counts=True)
            every = every[counts >= FEWEST * len(y)]
            own = np.isin(y, every)
            X, y = X[own], np.searchsorted(every, y[own])
            X, rest, y, rest_y = train_test_split(
                X, y, train_size=min(TRAIN, len(y) // 3), stratify=y, random_state=seed
            )
            cal, test, cal_y, test_y = train_test_split(
                rest, rest_y, train_size=rows, stratify=rest_y, random_state=seed
            )
            test, test_y = test[:TEST], test_y[:TEST]
            k = len(every)
            models = tied_models(seed) if tied else fresh_models(X.shape[1], seed)
            for model_name, model in models.items():
                model.fit(X, y)
                pc, pt = (model.predict_proba(part).astype(np.float32) for part in (cal, test))
                path = out / collection / f"tab-{collection}_{name}_{k}_{rows}-{model_name}.npz"
                np.savez_compressed(path, pc=pc, yc=cal_y, pt=pt, yt=test_y)
            sizes = f"{len(y)} rows train, {rows} calibrate, {len(test)} test"
            print(f"{collection}, {name}: {k} classes, {sizes}", flush=True)


def some_classes(logits: Array, y: Array, chosen: Array) -> tuple[Array, Array]:
    """Return probabilities and labels of rows of some classes, of these alone."""
    own = np.isin(y, chosen)
    return softmax(logits[own][:, chosen].astype(float)), np.searchsorted(chosen, y[own])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--tables", type=Path, help="folder with fetal_health.csv.gz")
    parser.add_argument("--networks", type=Path, help="folder of networks' predictions")
    parser.add_argument("--fresh", type=Path, help="write the confirmation's, of this folder")
    parser.add_argument("--tied", type=Path, help="write those with ties and skew, of this folder")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for folder, tied in ((options.fresh, False), (options.tied, True)):
        if folder is not None:
            write_fresh(options.out, folder, tied)
    if options.fresh is not None or options.tied is not None:
        return
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
