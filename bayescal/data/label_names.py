"""Labels of any values, their places among the classes, and columns that are named like these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

#: Labels in their order, k for 0, ..., k - 1, or None for those that are there.
Classes: TypeAlias = Sequence[object] | np.ndarray | int | None
_NUMBERS = {2: "two"}
#: So many classes are named in a message.
_SAID = 100
#: Texts of a date with a time, and of a whole number with a decimal point.
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(\.\d+)?")
_WHOLE = re.compile(r"([+-]?\d+)\.0*")
_TRUTH = {"True": "1", "False": "0"}


def as_labels(y: Any) -> np.ndarray:
    """Return labels as an array; in a list what stands between texts does not become one."""
    found = _plain(np.asarray(y))
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
        named = label_list(given)
        said = str(named) if columns <= _SAID else f"{named[0]!r}, ..., {named[-1]!r}"
        raise ValueError(f"y must hold only the classes {said}, got {label_list(strange)[0]!r}")
    return given


def class_array(classes: Sequence[object] | np.ndarray | int) -> np.ndarray:
    """Return given classes (k,) as an array."""
    if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
        classes = range(int(classes))
    if isinstance(classes, range):
        return np.arange(classes.start, classes.stop, classes.step)
    return _plain(np.asarray(classes))


def label_list(labels: np.ndarray) -> list[Any]:
    """Return labels (n,) as Python's; dates, of which it lacks fine ones, as NumPy's."""
    return list(labels) if labels.dtype.kind == "M" else labels.tolist()


def _plain(labels: np.ndarray) -> np.ndarray:
    """Return dates that are objects as NumPy's, and integers without a sign with one.

    NumPy compares both kinds of integers as floats, and so takes long ones for equal.
    """
    if labels.dtype == object and labels.ndim == 1:
        there = [label for label in labels if not _is_missing(label)]
        naive = all(isinstance(d, date) and getattr(d, "tzinfo", None) is None for d in there)
        return np.array(labels.tolist(), "M8") if there and naive else labels
    wide = labels.dtype.kind == "u" and labels.dtype.itemsize == 8
    return labels.astype(np.int64) if wide and labels.max(initial=0) < 2**63 else labels


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
    elif y.dtype.kind == "M" or (y.dtype.kind == "f" and np.isnan(y.max(initial=0))):
        missing = np.isnan(y) if y.dtype.kind == "f" else np.isnat(y)
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
    whole = all(issubclass(own, Integral) and own not in (bool, np.bool_) for own in kinds)
    if kinds and whole:
        return _plain(np.array([int(label) for label in y]))
    return np.array(y.tolist()) if kinds and (texts or kinds == {bool}) else y


def has_text(y: np.ndarray) -> bool:
    """Return whether some labels (n,), of objects, are texts."""
    kinds = {type(label) for label in y} if y.dtype == object else set()
    return any(issubclass(own, (str, bytes)) for own in kinds)


def _wrong_number(found: np.ndarray, columns: int) -> str:
    """Return what to say if labels have another number of classes than the scores have columns."""
    if columns > 2:
        return (
            f"y must hold {columns} classes to match the columns, got {len(found)}; pass "
            "classes=(label of each column, ...), which the data may then lack"
        )
    if len(found) == 1:
        return (
            f"y must hold two classes, got only one class, {label_list(found)[0]!r}; where the "
            "data lack one, pass classes=(negative, positive)"
        )
    return f"Only binary classification is supported. y must hold two classes, got {len(found)}"


def label_text(label: object) -> str:
    """Return a text that equal labels share: True, 1, 1.0 and "1", or a date and its ISO text."""
    if isinstance(label, np.generic) and label.dtype.kind != "M":
        label = label.item()
    if isinstance(label, Integral):
        return str(int(label))
    if isinstance(label, date):
        label = label.isoformat()
    text = str(label)
    if isinstance(label, float):
        return str(int(label)) if label.is_integer() else text
    if (whole := _WHOLE.fullmatch(text)) is not None:
        return str(int(whole[1]))
    if (found := _DATE.fullmatch(text)) is not None:
        day, time = found[1], found[2] if len(found[2]) == 8 else f"{found[2]}:00"
        fraction = (found[3] or "").rstrip("0").rstrip(".")
        return day if time == "00:00:00" and not fraction else f"{day}T{time}{fraction}"
    return _TRUTH.get(text, text)


def label_name(label: object) -> str:
    """Return what tables and figures call a label: a date without a time of zero."""
    return label_text(label) if isinstance(label, np.datetime64 | date) else str(label)


def column_names(scores: object) -> list[object] | None:
    """Return the names of a data frame's columns, or that of a series; None where there are none.

    The range 0, 1, ... and "column_0", "column_1", ..., which pandas and polars give to columns
    without names, are none.
    """
    shape = getattr(scores, "shape", ())
    columns = getattr(scores, "columns", None) if len(shape) == 2 else None
    if columns is not None:
        names = list(columns)
        unnamed = type(columns).__name__ == "RangeIndex" and names == [*range(len(names))]
        return None if unnamed or names == [f"column_{j}" for j in range(len(names))] else names
    name = getattr(scores, "name", None) if len(shape) == 1 else None
    return None if name is None or callable(name) else [name]


def matched_names(frame: Any, names: Sequence[object] | None) -> list[object] | None:
    """Return the names of columns that are to be found among those of another data frame.

    Columns without names are numbered; that says something where the others are these numbers, too.
    """
    own = column_names(frame)
    if own is None and names is not None and hasattr(frame, "columns"):
        numbers: list[object] = [*range(len(names))]
        return numbers if len(frame.columns) == len(names) and set(names) == set(numbers) else None
    if own is not None and names is None and set(own) != set(range(len(own))):
        return None
    return own


def by_affixes(names: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """Return the place of each class among names that all have it between the same two texts.

    None if there are no such two texts, one of which may be empty, or if some give other places.
    """
    found = []
    for label in filter(None, classes):
        for match in re.finditer(f"(?={re.escape(label)})", names[0]):
            before, after = names[0][: match.start()], names[0][match.start() + len(label) :]
            wanted = [before + own + after for own in classes]
            if sorted(wanted) == sorted(names):
                found.append([names.index(own) for own in wanted])
    return found[0] if found and all(own == found[0] for own in found) else None


def class_places(
    names: Sequence[object], classes: Sequence[object] | np.ndarray, what: str = "probs"
) -> list[int] | None:
    """Return the place of each class among names of columns; None if these say nothing.

    Raises what :func:`in_order` raises.
    """
    own = list(classes if isinstance(classes, list | range) else np.asarray(classes))
    plain, exact = [label_text(label) for label in own], [str(label) for label in own]
    distinct = len(set(plain)) == len(plain)
    labels, texts = (plain, map(label_text, names)) if distinct else (exact, map(str, names))
    place = {label: position for position, label in enumerate(labels)}
    found = [place.get(text, -1) for text in texts]
    if max(found, default=-1) < 0:
        if not len(names) == len(own) > 1 or not all(isinstance(name, str) for name in names):
            return None
        given: Any = names
        words = ["False" if label == "0" else "True" for label in labels]
        forms = [labels, exact, words] if {*labels} == {"0", "1"} else [labels, exact]
        return next(filter(None, (by_affixes(given, form) for form in forms)), None)
    alone = len(found) == 1 < len(place)
    # A number alone, as of a column of a frame without names, may be a position.
    position = isinstance(names[0], Integral) and not isinstance(names[0], bool | np.bool_)
    if alone and (found == [1] or position):
        return None
    if alone or sorted(found) != [*range(len(place))]:
        raise ValueError(
            f"{what} must have columns named like all of the classes, {exact}, or like none of "
            f"them, got {[str(name) for name in names]}"
            + (
                "; give the column of the second class"
                if alone
                else "; for columns in the order of the classes pass an array without names"
            )
        )
    return [found.index(position) for position in range(len(place))]


def in_order(
    rows: np.ndarray,
    names: Sequence[object] | None,
    classes: Sequence[object] | np.ndarray,
    what: str = "probs",
) -> np.ndarray:
    """Return rows (n, k) with their columns in the order of the classes that they are named like.

    Names may have a prefix or suffix in common, as in "p_yes" and "p_no". Names that are no classes
    say nothing: the columns are in order. One column alone is that of the second of two classes.
    It is an error if some of the names are classes and others not, if classes are lacking, or if a
    column alone has the name of the first class. ``what`` they hold is said then.
    """
    places = None if names is None else class_places(names, classes, what)
    return rows if places in (None, [*range(len(classes))]) else rows[:, places]
