"""Multi-label data: scores, or features with a classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.data import array_names, choose, digest, find_files, read_arrays

_SUBFOLDER = Path("multilabel")
#: Arrays of data with scores, and of data with features.
_SCORES = ("scores", "labels")
_FEATURES = ("X_train", "Y_train", "X_test", "Y_test")
CALIBRATION_SHARE = {"scores": 1 / 2, "features": 1 / 3}


def _logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def _forest(seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, random_state=seed)


#: Functions that build a classifier of one label from a seed.
CLASSIFIERS: dict[str, Callable[[int], Any]] = {"logistic regression": _logistic, "forest": _forest}


class Labels(NamedTuple):
    """Probabilities (n, l) and labels (n, l) of calibration rows and of test rows."""

    probs: np.ndarray
    y: np.ndarray
    test_probs: np.ndarray
    test_y: np.ndarray


class LabelData(NamedTuple):
    """A data set of scores, or of features, which has the name of a classifier."""

    name: str
    arrays: dict[str, np.ndarray]
    classifier: str | None
    digest: str

    def split(self, seed: int) -> Labels:
        """Split rows at random; train the classifier, if any, on rows without another use."""
        rng = np.random.default_rng(seed)
        if self.classifier is None:
            scores, labels = (self.arrays[name] for name in _SCORES)
            order = rng.permutation(len(labels))
            size = round(CALIBRATION_SHARE["scores"] * len(labels))
            calibration, test = order[:size], order[size:]
            return Labels(scores[calibration], labels[calibration], scores[test], labels[test])
        x, y, test_x, test_y = (self.arrays[name] for name in _FEATURES)
        order = rng.permutation(len(y))
        size = round(CALIBRATION_SHARE["features"] * len(y))
        calibration, train = order[:size], order[size:]
        scored_rows = np.concatenate([x[calibration], test_x])
        make = CLASSIFIERS[self.classifier]
        columns = [_predict(make(seed), x[train], label, scored_rows) for label in y[train].T]
        probs = np.stack(columns, axis=1)
        return Labels(probs[:size], y[calibration], probs[size:], test_y)


def _predict(model: Any, x: np.ndarray, label: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Predict P(label) (m,); if all training rows or none have the label, it is one or zero."""
    if label.min() == label.max():
        return np.full(len(rows), float(label[0]))
    return model.fit(x, label).predict_proba(rows)[:, 1]


def find_label_data(folder: Path, names: Sequence[str] | None) -> list[LabelData]:
    """Find data sets: one per file with scores, one per classifier for each file with features."""
    expected = f".npz files with {' and '.join(_SCORES)}, or with {', '.join(_FEATURES)}"
    paths = find_files(folder, _SUBFOLDER, "*.npz", expected, lambda path: _kind(path) is not None)
    selected = choose(names, (path.stem for path in paths), "data")
    data_sets = []
    for path in paths:
        if path.stem in selected:
            arrays, array_digest = _read(path)
            kinds = (None,) if _kind(path) == _SCORES else tuple(CLASSIFIERS)
            data_sets += [
                LabelData(
                    path.stem if kind is None else f"{path.stem}, {kind}",
                    arrays,
                    kind,
                    array_digest,
                )
                for kind in kinds
            ]
    return data_sets


def _kind(path: Path) -> tuple[str, ...] | None:
    """Return the names of the arrays in a file, or None if it has other arrays.

    An unreadable file counts as a file with scores, so that reading it raises an error later.
    """
    names = array_names(path)
    if names is None:
        return _SCORES
    return next((kind for kind in (_SCORES, _FEATURES) if names.issuperset(kind)), None)


def _read(path: Path) -> tuple[dict[str, np.ndarray], str]:
    """Read and check arrays, as float64 and integers; return them and their hash."""
    names = _kind(path) or _SCORES
    arrays = read_arrays(path, names)
    for (x_name, x), (y_name, y) in zip(*[iter(arrays.items())] * 2, strict=True):
        if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(y) < 4:
            raise ValueError(
                f"{path}: {x_name} and {y_name} must be matrices with equally many rows, at least "
                f"4, got {x.shape} and {y.shape}"
            )
        if y.dtype.kind not in "iub" or not np.isin(y, (0, 1)).all():
            raise ValueError(f"{path}: {y_name} must hold 0 and 1 only")
        if x.dtype.kind not in "fiu" or not np.isfinite(x).all():
            raise ValueError(f"{path}: {x_name} must hold finite numbers")
        if names == _SCORES and (x.shape != y.shape or x.min() < 0 or x.max() > 1):
            raise ValueError(f"{path}: {x_name} must hold a probability for each of {y_name}")
        arrays[x_name], arrays[y_name] = x.astype(float), y.astype(int)
    if names == _FEATURES and any(
        arrays[f"{part}_train"].shape[1] != arrays[f"{part}_test"].shape[1] for part in "XY"
    ):
        raise ValueError(f"{path}: both parts must have the same features and labels")
    return arrays, digest(arrays.values())
