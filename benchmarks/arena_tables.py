"""Write scores of models for real data, for `python -m benchmarks.studies arena`.

    python -m benchmarks.arena_tables OUT [--tables DIR] [--networks DIR]
    python -m benchmarks.studies arena --data OUT --out RESULTS

These scores have 3 to 9 classes. Six models are trained on tables of scikit-learn (subsets of the
classes of digits; the target of diabetes cut into bins of equal size), and on
``fetal_health.csv.gz`` in the folder of tables. Half of the rows are for training, a fifth for
calibration, and the rest for testing. Networks in the second folder are restricted to images of 3,
5 and 8 of their classes; the logits of the other classes are removed.

The confirmation
----------------
All design decisions were based on the scores above, on the networks, and on 17 binary tables.

    python -m benchmarks.arena_tables OUT --fresh DATA
    python -m benchmarks.studies arena --data OUT/adult --data OUT/mulan --data OUT/columns \
        --method auto --installed --out RESULTS
    python -m benchmarks.studies arena --data OUT/made --method auto --installed --out RESULTS/made

writes and evaluates other scores, by a protocol that was fixed before it ran. (It ran twice: the
first run read two columns of single precision as the second column and its complement, for all
methods.)

- Models: :func:`fresh_models`; no design decision was based on them.
- Data: four collections, each in its own folder. ``adult`` is the census, with targets other than
  the income. ``mulan`` has scenes (images with exactly one label) and yeast (the number of labels,
  and which of two or three labels), and single labels of both. ``columns`` has numeric columns of
  auto_price, mindcave2, sonar and banknote, cut at quantiles and predicted from the other columns.
  ``made`` is synthetic, and is evaluated separately.
- Sizes: :data:`ADULT`, :data:`MULAN`, :data:`COLUMNS` and :data:`MADE` list the numbers of
  calibration rows: 50 to 499 for 3 to 10 classes, and 50 to 5,000 for two. At most 400 rows, and at
  most a third, are for training, and at most 2,000 of the rest for testing. Splits are stratified;
  their seed is the index of the data set in its collection.
- Methods: `Auto` unchanged, probmetrics' SVS, SMS and others with their defaults, and no
  calibration.
- Figures: win rates, paired differences and post-hoc improvements of log loss and Brier score, by
  number of classes, rows and collection, with standard errors over data sets. No experiment is
  excluded.

Ties and skew
-------------
    python -m benchmarks.arena_tables OUT --tied DATA
    python -m benchmarks.studies arena --data OUT/tied --method auto --installed --out RESULTS

writes and evaluates the same data sets, except the synthetic ones, with :func:`tied_models`: models
whose scores have few distinct values, zeros, or a skew. No design decision was based on them, but
`Auto` had been changed for other scores of this kind.

Later, the prior odds of unchanged scores, a member of `AveragedBeta`, and the rule that returns
scores unchanged were chosen on the binary data sets of both confirmations. The figures for two
classes are therefore not independent of these choices.
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

# The confirmation. An int is a number of classes: the most frequent values of a categorical column,
# or quantile bins of a numeric one. Other targets are binary: a str is the value of class 1, and
# values above a float are class 1.
Target = int | float | str
NUMERIC = "age", "weight", "years", "gain", "loss", "hours"
CENSUS = (
    *("age", "work", "weight", "education", "years", "marital", "occupation", "relationship"),
    *("race", "sex", "gain", "loss", "hours", "country", "income"),
)
#: Columns that reveal a target, and are therefore not features of it.
REVEALING = {
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
#: Data set, kind of target, numbers, and calibration rows. The target is the pattern of the labels
#: with these numbers ("which"), the number of labels binned at these edges ("count"), or the only
#: label of an image, with this number of classes ("one").
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
#: Table, index among the columns with 30 or more distinct values, number of bins, calibration rows.
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
#: Number of classes, and calibration rows, of synthetic data sets.
MADE = (3, 60), (5, 200), (8, 450), (2, 80), (2, 800), (2, 3000)
#: Largest numbers of training and test rows; classes with a smaller share of rows are removed.
TRAIN, TEST, MIN_SHARE = 400, 2000, 0.008


class Margins(OneVsRestClassifier):
    """One support vector machine per class; probabilities are the softmax of their values."""

    def predict_proba(self, X: Array) -> Array:
        values = self.decision_function(X)
        return softmax(np.stack([-values, values], axis=1) if values.ndim == 1 else values)


def fresh_models(columns: int, seed: int) -> dict[str, Any]:
    """Create the models of the confirmation, which played no part in design decisions."""
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
    """A model whose probabilities are 1 for the predicted class and 0 for the others."""

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
    """A model whose probabilities are rounded to tenths."""

    def predict_proba(self, X: Array) -> Array:
        probs = self.model_.predict_proba(X).round(1)
        total = probs.sum(axis=1, keepdims=True)
        return np.where(total > 0, probs / np.maximum(total, 0.1), 1 / probs.shape[1])


class Biased(Votes):
    """A model that is trained on a third of the rows of every second class."""

    def fit(self, X: Array, y: Array) -> Self:
        """Fit the model to the selected rows, with at least one row of each class."""
        selected = (y % 2 == 0) | (np.arange(len(y)) % 3 == 0)
        selected[np.unique(y, return_index=True)[1]] = True
        return super().fit(X[selected], y[selected])

    def predict_proba(self, X: Array) -> Array:
        return self.model_.predict_proba(X)


def tied_models(seed: int) -> dict[str, Any]:
    """Create models whose scores have few distinct values, zeros, or a skew."""
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
    """Yield the name, the features, and the labels 0 to k - 1 of each table."""
    for name, load in (("iris", datasets.load_iris), ("wine", datasets.load_wine)):
        yield name, *load(return_X_y=True)
    X, target = datasets.load_diabetes(return_X_y=True)
    for k in SUBSETS:
        edges = np.quantile(target, np.arange(1, k) / k)
        yield f"diabetes_{k}", X, np.searchsorted(edges, target, side="right")
    X, y = datasets.load_digits(return_X_y=True)
    for k in (3, 5, 7, 9):
        chosen = np.sort(np.random.default_rng(k).permutation(10)[:k])
        selected = np.isin(y, chosen)
        yield f"digits_{k}", X[selected], np.searchsorted(chosen, y[selected])
    if folder is not None:
        with gzip.open(folder / "fetal_health.csv.gz", "rt", newline="") as stream:
            rows = [row for row in csv.reader(stream) if row][1:]
        table = np.array(rows, float)
        yield "fetal_health", table[:, :-1], table[:, -1].astype(int) - 1


def split(X: Array, y: Array) -> list[Array]:
    """Split features and labels into training, calibration and test rows."""
    train, rest, train_y, rest_y = train_test_split(
        X, y, train_size=0.5, stratify=y, random_state=1
    )
    others = train_test_split(rest, rest_y, train_size=0.4, stratify=rest_y, random_state=1)
    return [train, train_y, *others]


def read_csv(path: Path) -> Array:
    """Read the cells of a table as text."""
    with gzip.open(path, "rt", newline="") as stream:
        return np.array([[cell.strip() for cell in row] for row in csv.reader(stream) if row])


def make_labels(values: Array, target: Target) -> Array:
    """Derive the labels of a target from a column; rows with label -1 are excluded."""
    if isinstance(target, str):
        return (values == target).astype(int)
    if isinstance(target, float):
        return (values > target).astype(int)
    if values.dtype.kind == "f":
        edges = np.unique(np.quantile(values, np.arange(1, target) / target))
        return np.searchsorted(edges, values, side="right")
    distinct, counts = np.unique(values[values != "?"], return_counts=True)
    chosen = np.sort(distinct[np.argsort(-counts, kind="stable")[:target]])
    index = np.minimum(np.searchsorted(chosen, values), len(chosen) - 1)
    return np.where(chosen[index] == values, index, -1)


def adult_sets(folder: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the name, features, labels and number of calibration rows: targets of the census."""
    parts = (read_csv(folder / "more" / f"adult_{part}.csv.gz") for part in ("train", "test"))
    columns = dict(zip(CENSUS, np.concatenate(list(parts)).T, strict=True))
    del columns["income"]
    columns |= {name: columns[name].astype(float) for name in NUMERIC}
    features = {}
    for name, values in columns.items():
        if name in NUMERIC:
            features[name] = values[:, None]
        else:
            distinct, counts = np.unique(values, return_counts=True)
            features[name] = values[:, None] == distinct[counts >= 0.01 * len(values)]
    for name, target, rows in ADULT:
        hidden = name, REVEALING.get(name)
        X = np.hstack([part for other, part in features.items() if other not in hidden])
        yield name, X.astype(float), make_labels(columns[name], target), rows


def mulan_sets(folder: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the name, features, labels and number of calibration rows: scenes and genes."""
    for name, kind, numbers, rows in MULAN:
        with np.load(folder / f"mulan_{name}.npz") as file:
            X, labels = (np.concatenate([file[f"{a}_train"], file[f"{a}_test"]]) for a in "XY")
        if kind == "one":
            y = np.where(labels.sum(axis=1) == 1, labels.argmax(axis=1), -1)
            y[y >= numbers[0]] = -1
        elif kind == "count":
            y = np.searchsorted(numbers, labels.sum(axis=1), side="right")
        else:
            y = labels[:, numbers].astype(int) @ (1 << np.arange(len(numbers)))
        yield f"{name}_{kind}_{'_'.join(map(str, numbers))}", X.astype(float), y, rows


def column_sets(folder: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the name, features, labels and number of calibration rows: numeric columns."""
    for name, column, k, rows in COLUMNS:
        if name in ("sonar", "banknote"):
            file = {"banknote": "banknote_authentication"}.get(name, name)
            cells = read_csv(folder / "more" / f"{file}.csv.gz")
        else:
            cells = read_csv(folder / "thesis40" / f"{name}.csv.gz")[1:]
        X = cells[:, :-1].astype(float)
        candidates = [i for i, values in enumerate(X.T) if len(np.unique(values)) >= 30]
        hidden = candidates[column]
        yield f"{name}_{column}", np.delete(X, hidden, axis=1), make_labels(X[:, hidden], k), rows


def made_sets(_: Path) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the name, features, labels and number of calibration rows: synthetic data."""
    for k, rows in MADE:
        X, y = datasets.make_classification(
            6000, 12, n_informative=8, n_classes=k, flip_y=0.05, random_state=rows
        )
        yield "classes", X, y, rows


def write_fresh(out: Path, data: Path, tied: bool) -> None:
    """Write the scores of the confirmation, one folder per collection, or the tied scores."""
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
            classes, counts = np.unique(y[y >= 0], return_counts=True)
            classes = classes[counts >= MIN_SHARE * len(y)]
            selected = np.isin(y, classes)
            X, y = X[selected], np.searchsorted(classes, y[selected])
            X, rest, y, rest_y = train_test_split(
                X, y, train_size=min(TRAIN, len(y) // 3), stratify=y, random_state=seed
            )
            cal, test, cal_y, test_y = train_test_split(
                rest, rest_y, train_size=rows, stratify=rest_y, random_state=seed
            )
            test, test_y = test[:TEST], test_y[:TEST]
            k = len(classes)
            models = tied_models(seed) if tied else fresh_models(X.shape[1], seed)
            for model_name, model in models.items():
                model.fit(X, y)
                pc, pt = (model.predict_proba(part).astype(np.float32) for part in (cal, test))
                path = out / collection / f"tab-{collection}_{name}_{k}_{rows}-{model_name}.npz"
                np.savez_compressed(path, pc=pc, yc=cal_y, pt=pt, yt=test_y)
            sizes = f"{len(y)} training rows, {rows} calibration, {len(test)} test"
            print(f"{collection}, {name}: {k} classes, {sizes}", flush=True)


def restrict_classes(logits: Array, y: Array, chosen: Array) -> tuple[Array, Array]:
    """Select the rows of some classes, and return their probabilities and labels among these."""
    selected = np.isin(y, chosen)
    return softmax(logits[selected][:, chosen].astype(float)), np.searchsorted(chosen, y[selected])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--tables", type=Path, help="folder with fetal_health.csv.gz")
    parser.add_argument("--networks", type=Path, help="folder of networks' predictions")
    parser.add_argument(
        "--fresh", type=Path, help="write the scores of the confirmation, from data in this folder"
    )
    parser.add_argument(
        "--tied", type=Path, help="write scores with ties and skew, from data in this folder"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for folder, tied in ((options.fresh, False), (options.tied, True)):
        if folder is not None:
            write_fresh(options.out, folder, tied)
    if options.fresh is not None or options.tied is not None:
        return
    for name, X, y in read_tables(options.tables):
        train, train_y, cal, test, cal_y, test_y = split(X, y)
        for model_name, model in MODELS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(train, train_y)
            pc, pt = (model.predict_proba(part).astype(np.float32) for part in (cal, test))
            path = options.out / f"tab-{name}-{model_name}.npz"
            np.savez_compressed(path, pc=pc, yc=cal_y, pt=pt, yt=test_y)
        print(f"{name}: {len(cal)} calibration rows, {y.max() + 1} classes", flush=True)
    if options.networks is None:
        return
    for name, path in find_experiments([options.networks]).items():
        experiment = read_experiment(name, path)
        if experiment.inputs != "logits" or experiment.scores.shape[1] < 10:
            continue
        for k in SUBSETS:
            order = np.random.default_rng(k).permutation(experiment.scores.shape[1])
            chosen = np.sort(order[:k])
            pc, yc = restrict_classes(experiment.scores, experiment.y, chosen)
            pt, yt = restrict_classes(experiment.test_scores, experiment.test_y, chosen)
            path = options.out / f"tab-{name.removeprefix('cnn-')}-{k}.npz"
            np.savez_compressed(path, pc=pc, yc=yc, pt=pt, yt=yt)
        print(f"{name}: 3, 5 and 8 of {len(order)} classes", flush=True)


if __name__ == "__main__":
    main()
