"""Labels of any values, as positions among the classes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import as_numpy, check_unmasked, check_weights

#: Labels in their order, k for 0, ..., k - 1, or None for those that are there.
Classes: TypeAlias = Sequence[object] | np.ndarray | int | None
_NUMBERS = {2: "two"}
#: So many classes are named in a message.
_SAID = 100
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
    given = check_classes(found, classes, columns)
    return given, find_positions(found, given)[position]


def label_array(y: ArrayLike, n: int) -> np.ndarray:
    """Return labels (n,) as they are, of which none is missing."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    check_unmasked(y, "y")
    if hasattr(y, "detach"):
        y = as_numpy(y, "y")
    y = np.asarray(y)
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


def check_classes(found: np.ndarray, classes: Classes, columns: int) -> np.ndarray:
    """Return the classes (columns,): the labels that were found, sorted, or those given."""
    if classes is None:
        if len(found) != columns:
            raise ValueError(_wrong_number(found, columns))
        return found
    given = class_array(classes)
    count = _is_count(given)
    if given.shape != (columns,) or not (count or len(np.unique(given)) == columns):
        binary = "; for more, take Auto, a map of several classes or OneVsRest of this one"
        raise ValueError(
            f"classes must be {_NUMBERS.get(columns, columns)} different labels, got {classes!r}"
            f"{binary if columns == 2 < given.size else ''}"
        )
    if count and found.dtype.kind in "biu":
        strange = found[(found < 0) | (found >= columns)]
    else:
        strange = found[~np.isin(found, given)]
    if len(strange):
        named = given.tolist()
        said = str(named) if columns <= _SAID else f"{named[0]!r}, ..., {named[-1]!r}"
        raise ValueError(f"y must hold only the classes {said}, got {strange[0]!r}")
    return given


def class_array(classes: Sequence[object] | np.ndarray | int) -> np.ndarray:
    """Return given classes (k,) as an array."""
    if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
        classes = range(int(classes))
    if isinstance(classes, range):
        return np.arange(classes.start, classes.stop, classes.step)
    return np.asarray(classes)


def _is_count(classes: np.ndarray) -> bool:
    """Return whether the classes are 0, ..., k - 1."""
    return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(classes.size))


def find_positions(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the places (n,) of labels, each of which is one of the classes."""
    if y.dtype.kind in "biu" and classes.dtype.kind in "biu":
        # Without a search, which takes longer than a fit.
        if len(classes) == 2:
            return (y != classes[0]).astype(int)
        if _is_count(classes):
            return y.astype(int)
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes[order], y)]


def check_present(y: np.ndarray) -> None:
    """Raise if a label is missing: NaN, None, or NA of pandas."""
    missing = np.isnan(y) if y.dtype.kind == "f" else np.zeros(len(y), bool)
    if y.dtype == object:
        missing = np.array([_is_missing(label) for label in y], bool)
    if missing.any():
        row = int(np.argmax(missing))
        what = "NaN" if isinstance(y[row], float) else str(y[row])
        raise ValueError(
            f"y must not have missing labels, got {what} in row {row} ({int(missing.sum())} in "
            "all); leave these rows out"
        )


def _is_missing(label: object) -> bool:
    if isinstance(label, (float, np.floating)):
        return bool(np.isnan(label))
    return label is None or type(label).__name__ in ("NAType", "NaTType")


def of_one_kind(y: np.ndarray) -> np.ndarray:
    """Return labels (n,) that are objects, but all texts or all integers, as what they are."""
    kinds = {type(label) for label in y} if y.dtype == object else set()
    return np.array(y.tolist()) if kinds in ({str}, {int}, {bool}) else y


def frames_to_caller() -> int:
    """Return the ``stacklevel`` of the first frame that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("bayescal"):
        level, frame = level + 1, frame.f_back
    return level


def _wrong_number(found: np.ndarray, columns: int) -> str:
    """Return what to say if labels have another number of classes than the scores have columns."""
    if columns > 2:
        return (
            f"y must hold {columns} classes to match the columns of the scores, got {len(found)}; "
            "say classes=(label of each column, ...), which the data may then lack"
        )
    if len(found) == 1:
        return (
            f"y must hold two classes, got only one class, {found.tolist()[0]!r}; where the "
            "data lack one, say classes=(negative, positive)"
        )
    return f"Only binary classification is supported. y must hold two classes, got {len(found)}"


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
