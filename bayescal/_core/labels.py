"""Labels of any values, and their places among the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

#: Labels in their order, k for 0, ..., k - 1, or None for those that are there.
Classes: TypeAlias = Sequence[object] | np.ndarray | int | None
_NUMBERS = {2: "two"}
#: So many classes are named in a message.
_SAID = 100


def as_labels(y: Any) -> np.ndarray:
    """Return labels as an array; in a list what stands between texts does not become one."""
    found = np.asarray(y)
    if found.ndim != 1 or found.dtype.kind not in "US" or hasattr(y, "dtype"):
        return found
    alike = any(all(isinstance(label, kind) for label in y) for kind in (str, bytes))
    return found if alike else np.asarray(y, object)


def check_classes(
    found: np.ndarray, classes: Classes, columns: int, advice: str = ""
) -> np.ndarray:
    """Return the classes (columns,): the labels that were found, sorted, or those given.

    ``advice`` is what a message says where there are more than two, of which nothing else can be.
    """
    if classes is None:
        if len(found) != columns:
            raise ValueError(_wrong_number(found, columns))
        return found
    given = class_array(classes)
    count = is_count(given)
    if given.shape != (columns,) or not (count or len(np.unique(given)) == columns):
        raise ValueError(
            f"classes must be {_NUMBERS.get(columns, columns)} different labels, got {classes!r}"
            + (f"; for more, {advice}" if advice and columns == 2 < given.size else "")
        )
    if count and found.dtype.kind in "biu":
        strange = found[(found < 0) | (found >= columns)]
    else:
        strange = found[~np.isin(found, given)]
    if len(strange):
        named = given.tolist()
        said = str(named) if columns <= _SAID else f"{named[0]!r}, ..., {named[-1]!r}"
        raise ValueError(f"y must hold only the classes {said}, got {strange.tolist()[0]!r}")
    return given


def class_array(classes: Sequence[object] | np.ndarray | int) -> np.ndarray:
    """Return given classes (k,) as an array."""
    if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
        classes = range(int(classes))
    if isinstance(classes, range):
        return np.arange(classes.start, classes.stop, classes.step)
    return np.asarray(classes)


def is_count(classes: np.ndarray) -> bool:
    """Return whether the classes are 0, ..., k - 1."""
    return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(classes.size))


def find_positions(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the places (n,) of labels, each of which is one of the classes."""
    if y.dtype.kind in "biu" and classes.dtype.kind in "biu":
        # Without a search, which takes longer than a fit.
        if len(classes) == 2:
            return (y != classes[0]).astype(int)
        if is_count(classes):
            return y.astype(int)
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes[order], y)]


def check_present(y: np.ndarray, weights: Any = None, name: str = "y") -> None:
    """Raise if a label is missing: NaN, None, or NA of pandas; not where weights are zero."""
    if y.dtype == object and not {type(label) for label in y} <= {str, int, bool}:
        missing = np.array([_is_missing(label) for label in y], bool)
    elif y.dtype.kind == "f" and np.isnan(y.max(initial=0)):
        missing = np.isnan(y)
    else:
        return
    if missing.any() and np.shape(weights) == y.shape:
        missing &= np.asarray(weights) != 0
    if missing.any():
        row = int(np.argmax(missing))
        what = "NaN" if isinstance(y[row], float | np.floating) else str(y[row])
        raise ValueError(
            f"{name} must not have missing labels, got {what} in row {row} "
            f"({int(missing.sum())} in all); leave these rows out"
        )


def _is_missing(label: object) -> bool:
    if isinstance(label, (float, np.floating)):
        return bool(np.isnan(label))
    return label is None or type(label).__name__ in ("NAType", "NaTType")


def of_one_kind(y: np.ndarray) -> np.ndarray:
    """Return labels (n,) that are objects, but all texts or all integers, as what they are.

    Texts among others are an error: they have no order.
    """
    kinds = {type(label) for label in y} if y.dtype == object else set()
    texts = any(all(issubclass(own, kind) for own in kinds) for kind in (str, bytes))
    if not texts and has_text(y):
        found = " and ".join(sorted(own.__name__ for own in kinds))
        raise TypeError(f"y must hold labels of one kind, got {found}")
    return np.array(y.tolist()) if kinds and (texts or kinds in ({int}, {bool})) else y


def has_text(y: np.ndarray) -> bool:
    """Return whether some labels (n,), of objects, are texts."""
    kinds = {type(label) for label in y} if y.dtype == object else set()
    return any(issubclass(own, (str, bytes)) for own in kinds)


def _wrong_number(found: np.ndarray, columns: int) -> str:
    """Return what to say if labels have another number of classes than the scores have columns."""
    if columns > 2:
        return (
            f"y must hold {columns} classes to match the columns, got {len(found)}; say "
            "classes=(label of each column, ...), which the data may then lack"
        )
    if len(found) == 1:
        return (
            f"y must hold two classes, got only one class, {found.tolist()[0]!r}; where the "
            "data lack one, say classes=(negative, positive)"
        )
    return f"Only binary classification is supported. y must hold two classes, got {len(found)}"
