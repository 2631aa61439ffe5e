"""Labels of any values, as positions among the classes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import _safe_indexing, assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples

from bayescal._core.arrays import ArrayLike
from bayescal._core.warnings import frames_to_caller
from bayescal.data.checks import as_numpy, check_unmasked, check_weights
from bayescal.data.fitted import of_pairs, read_label_rows, read_shares
from bayescal.data.label_names import (
    Classes,
    as_labels,
    check_classes,
    check_present,
    class_array,
    class_places,
    column_names,
    find_positions,
    in_order,
    matched_names,
    of_one_kind,
)

#: What to do with more than two classes.
MORE = "take Auto, a map of several classes or OneVsRest of this one"
#: So many more numbers than twice the labels may lie between their least and greatest, that they
#: are counted rather than sorted.
_SPAN = 1 << 16


def read_rows(
    x: np.ndarray, y: ArrayLike, sample_weight: ArrayLike | None, classes: Classes, columns: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the classes, and rows, labels as their positions and weights of used rows."""
    found, label = read_labels(y, len(x), classes, columns)
    weights = check_weights(sample_weight, len(x))
    used = weights > 0
    if not used.all():
        x, label, weights = x[used], label[used], weights[used]
    return found, x, label, weights


def read_labels(
    y: ArrayLike, n: int, classes: Classes, columns: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes (columns,), sorted or as given, and labels (n,) as their positions."""
    found, position = distinct(label_array(y, n))
    given = check_classes(found, classes, columns, MORE)
    return given, find_positions(found, given)[position]


def label_array(y: ArrayLike, n: int) -> np.ndarray:
    """Return labels (n,) as they are, of which none is missing."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    check_unmasked(y, "y")
    if hasattr(y, "detach"):
        y = as_numpy(y, "y")
    y = as_labels(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected",
            DataConversionWarning,
            stacklevel=frames_to_caller(),
        )
    if y.ndim != 1:
        raise ValueError(f"y must have shape (n,), got {y.shape}")
    if len(y) != n:
        raise ValueError(f"y must have {n} labels to match the scores, got {len(y)}")
    check_present(y)
    return y


def class_labels(y: Any) -> np.ndarray:
    """Return labels (n,) of a classifier's fit, checked as scikit-learn does."""
    label = np.asarray(column_or_1d(as_labels(y), warn=True))
    check_present(label)
    label = of_one_kind(label)
    if label.dtype.kind == "f":
        assert_all_finite(label, input_name="y")
    check_classification_targets(label)
    return label


def distinct(y: np.ndarray, whole: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels, sorted, and the place of each label among them.

    Labels that are but a part of all may be mostly different.
    """
    if y.dtype.kind in "biu" and len(y):
        # Without sorting, which for a million labels takes as long as a fit.
        low, high = y.min(), y.max()
        above = y != low
        if low != high and ((y == high) == above).all():
            return np.array([low, high]), above.astype(int)
        if int(high) - int(low) <= _SPAN + 2 * len(y):
            place = (y - low if y.dtype.itemsize == 8 else y.astype(int) - int(low)).astype(int)
            there = np.bincount(place) > 0
            seen = np.flatnonzero(there)
            return seen.astype(y.dtype) + low, (np.cumsum(there) - 1)[place]
        return np.unique(y, return_inverse=True)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    y = of_one_kind(y)
    if whole or y.dtype.kind not in "biuSU":
        check_classification_targets(y)
    return np.unique(y, return_inverse=True)


def in_columns(y: Any) -> bool:
    """Return whether labels come in two columns or more; nothing is converted."""
    shape = getattr(y, "shape", None)
    if isinstance(shape, tuple):
        return len(shape) == 2 and shape[1] > 1
    first = y[0] if isinstance(y, list | tuple) and len(y) else None
    return isinstance(first, list | tuple | np.ndarray) and np.ndim(first) == 1 and len(first) > 1


def of_shares(
    scores: Any, y: Any, sample_weight: Any, classes: Classes
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a row for each outcome that has a share (n, k) in one, and that share as weight.

    Outcomes that happened in no row get one of weight zero.
    """
    (n, k), rows = np.shape(y), _num_samples(scores)
    if n != rows:
        raise ValueError(f"y must have {rows} labels to match the scores, got {n}")
    shares, names = read_shares(y, n, k), column_names(y)
    labels = np.arange(k) if classes is None else class_array(classes)
    if names is not None:
        known: Any = labels if len(labels) == k else np.arange(k)
        own = column_names(scores)
        alike = own is not None and len(own) == k and {*map(str, own)} == {*map(str, names)}
        if alike and classes is None and class_places(names, known, "y") is None:
            known = own
        shares = in_order(shares, names, known, "y")
    weights = check_weights(sample_weight, n)
    row, code = np.nonzero(shares)
    lacking = np.flatnonzero(~shares.any(axis=0))
    row, code = np.append(row, 0 * lacking), np.append(code, lacking)
    return _safe_indexing(scores, row), labels[code], weights[row] * shares[row, code]


def read_many(scores: Any, Y: Any) -> tuple[np.ndarray, np.ndarray, list[object] | None]:
    """Return scores (n, labels) and labels as integers in one order, and the names of labels."""
    names = column_names(Y)
    rows, present = score_rows(scores, names), read_label_rows(Y, "Y")
    if present.shape != rows.shape:
        raise ValueError(f"Y must have the shape of the scores, {rows.shape}, got {present.shape}")
    return rows, present, names


def score_rows(scores: Any, labels: Any) -> np.ndarray:
    """Return scores (n, labels) in the order of labels, whose names are given, or None."""
    names = matched_names(scores, labels)
    rows = as_numpy(of_pairs(scores, "scores"), "scores")
    if rows.ndim != 2:
        raise ValueError(f"scores must have shape (n, labels), got {rows.shape}")
    return in_order(rows, names, range(rows.shape[1]) if labels is None else labels, "scores")
