"""Labels of any values, their codes among the classes, and columns named after classes."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from datetime import date
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from bayescal._core.arrays import UserData

#: Labels in their order, k for 0, ..., k - 1, or None for those of the data.
Classes: TypeAlias = Sequence[object] | np.ndarray | int | None
_NUMBERS = {2: "two"}
#: Maximum number of classes that a message lists.
_MAX_LISTED = 100
#: Texts of a date with a time, and of a whole number with a decimal point.
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(\.\d+)?")
_WHOLE = re.compile(r"([+-]?\d+)\.0*")
_TRUTH = {"True": "1", "False": "0"}


def as_labels(y: UserData) -> np.ndarray:
    """Return labels as an array; a list of texts and other values becomes an array of objects."""
    labels = _plain(as_array(y))
    if labels.ndim != 1 or labels.dtype.kind not in "US" or hasattr(y, "dtype"):
        return labels
    alike = any(all(isinstance(label, kind) for label in y) for kind in (str, bytes))
    return labels if alike else np.asarray(y, object)


def as_array(values: UserData) -> np.ndarray:
    """Convert values to an array; nullable integers (n,) become objects if some are missing.

    NumPy would convert them to floats, which are rounded beyond 2**53.
    """
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.ndim != 1:
        return array
    kind = str(getattr(values, "dtype", getattr(values, "type", ""))).lower()
    if not kind.startswith(("int", "uint")):
        return array
    return np.array(values.to_pylist() if hasattr(values, "to_pylist") else [*values], object)


def check_classes(
    present: np.ndarray, classes: Classes, columns: int, advice: str = ""
) -> np.ndarray:
    """Choose the classes (columns,): the sorted labels of the data, or those given.

    ``advice`` ends the message if more than two classes are given for two columns.
    """
    if classes is None:
        if len(present) == columns:
            return present
        if _are_positions(present, columns):
            return np.arange(columns)
        raise ValueError(_wrong_number(present, columns))
    given = class_array(classes)
    count = is_count(given)
    try:
        differ = count or len(np.unique(given)) == columns
    except TypeError:
        raise TypeError(f"classes must be labels of one kind, got {classes!r}") from None
    if given.shape != (columns,) or not differ:
        raise ValueError(
            f"classes must be {_NUMBERS.get(columns, columns)} different labels, got {classes!r}"
            + (f"; for more, {advice}" if advice and columns == 2 < given.size else "")
        )
    if count and present.dtype.kind in "biu":
        strange = present[(present < 0) | (present >= columns)]
    else:
        strange = present[~np.isin(present, given)]
    if len(strange):
        named = label_list(given)
        listed = str(named) if columns <= _MAX_LISTED else f"{named[0]!r}, ..., {named[-1]!r}"
        raise ValueError(f"y must hold only the classes {listed}, got {label_list(strange)[0]!r}")
    return given


def class_array(classes: Sequence[object] | np.ndarray | int) -> np.ndarray:
    """Return given classes (k,) as an array."""
    if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
        classes = range(int(classes))
    if isinstance(classes, range):
        return np.arange(classes.start, classes.stop, classes.step)
    return _plain(np.asarray(classes))


def label_list(labels: np.ndarray) -> list[Hashable]:
    """Return labels (n,) as Python objects, but dates as NumPy's, which may be finer."""
    return list(labels) if labels.dtype.kind == "M" else labels.tolist()


def classes_to_json(classes: np.ndarray) -> object:
    """Return classes (k,) as values for JSON, which has neither dates nor byte strings."""
    if classes.dtype.kind == "M":
        return {"dates": classes.astype(str).tolist()}
    if classes.dtype.kind == "S":
        return {"byte strings": np.char.decode(classes, "latin-1").tolist()}
    return classes.tolist()


def classes_from_json(classes: Any) -> Any:
    """Return the classes that :func:`classes_to_json` has converted."""
    if not isinstance(classes, Mapping):
        return classes
    if "byte strings" in classes:
        return np.char.encode(classes["byte strings"], "latin-1")
    return np.array(classes["dates"], "M8")


def _plain(labels: np.ndarray) -> np.ndarray:
    """Convert date objects to NumPy's dates, unsigned to signed integers, and strings to objects.

    NumPy compares the two kinds of integers as floats, for which long ones may be equal. The
    strings are those of NumPy's type of any length, which scikit-learn does not know, and neither
    does it know bfloat16, which becomes float32.
    """
    if labels.dtype.kind in "bi":
        return labels
    if labels.dtype.kind == "T":
        return labels.astype(object)
    if labels.dtype.name == "bfloat16":
        return labels.astype(np.float32)
    if labels.dtype == object and labels.ndim == 1:
        present = [label for label in labels if not _is_missing(label)]
        naive = all(isinstance(d, date) and getattr(d, "tzinfo", None) is None for d in present)
        return np.array(labels.tolist(), "M8") if present and naive else labels
    wide = labels.dtype.kind == "u" and labels.dtype.itemsize == 8
    return labels.astype(np.int64) if wide and labels.max(initial=0) < 2**63 else labels


def is_count(classes: np.ndarray) -> bool:
    """Return whether the classes are 0, ..., k - 1."""
    return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(classes.size))


def find_positions(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Find the positions (n,) of labels among the classes."""
    if y.dtype.kind in "biu" and classes.dtype.kind in "biu":
        # A search would take longer than a fit.
        if len(classes) == 2:
            return (y != classes[0]).astype(int)
        if is_count(classes):
            return y.astype(int)
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes[order], y)]


def check_present(y: np.ndarray, weights: UserData = None, name: str = "y") -> None:
    """Raise if a label of positive weight is missing: NaN, None, or NA of pandas."""
    missing = missing_labels(y)
    if missing.any() and np.shape(weights) == y.shape:
        missing &= np.asarray(weights) != 0
    if missing.any():
        row = int(np.argmax(missing))
        what = "NaN" if isinstance(y[row], float | np.floating) else str(y[row])
        raise ValueError(
            f"{name} must not have missing labels, got {what} in row {row} "
            f"({int(missing.sum())} in all); leave these rows out"
        )


def missing_labels(y: np.ndarray) -> np.ndarray:
    """Return which labels (n,) are missing, or an empty array if none is."""
    if y.dtype == object and not {type(label) for label in y} <= {str, int, bool}:
        return np.array([_is_missing(label) for label in y], bool)
    if y.dtype.kind == "M" or (y.dtype.kind == "f" and np.isnan(y.max(initial=0))):
        return np.isnan(y) if y.dtype.kind == "f" else np.isnat(y)
    return np.empty(0, bool)


def _is_missing(label: object) -> bool:
    if isinstance(label, tuple):
        return any(map(_is_missing, label))
    if isinstance(label, (float, np.floating)):
        return bool(np.isnan(label))
    return label is None or type(label).__name__ in ("NAType", "NaTType")


def of_one_kind(y: np.ndarray) -> np.ndarray:
    """Convert object labels (n,) of one type to that type; strings among others are an error."""
    kinds = {type(label) for label in y} if y.dtype == object else set()
    texts = any(all(issubclass(t, kind) for t in kinds) for kind in (str, bytes))
    if not texts and has_text(y):
        names = " and ".join(sorted(t.__name__ for t in kinds))
        raise TypeError(f"y must hold labels of one kind, got {names}")
    whole = all(issubclass(t, Integral) and t not in (bool, np.bool_) for t in kinds)
    if kinds and whole:
        return _plain(np.array([int(label) for label in y]))
    return np.array(y.tolist()) if kinds and (texts or kinds == {bool}) else y


def has_text(y: np.ndarray) -> bool:
    """Return whether some of the object labels (n,) are strings."""
    kinds = {type(label) for label in y} if y.dtype == object else set()
    return any(issubclass(t, (str, bytes)) for t in kinds)


def _are_positions(present: np.ndarray, columns: int) -> bool:
    """Return whether labels that lack a class of several are integers in 0, ..., ``columns`` - 1.

    A single label may be a mistake, and the labels 1, ..., ``columns`` - 1 may be counted from one.
    """
    if columns == 2 or present.dtype.kind not in "iu" or not 1 < len(present) < columns:
        return False
    from_one = len(present) == columns - 1 and present[0] == 1
    return bool(present[0] >= 0 and present[-1] < columns and not from_one)


def _wrong_number(classes: np.ndarray, columns: int) -> str:
    """Return the error message for a number of classes that does not match the columns."""
    if columns > 2:
        advice = (
            f"pass classes={columns} for labels 0, ..., {columns - 1}, of which the data may lack "
            "some, or classes=(label of each column, ...)"
        )
        if len(classes) > columns:
            advice = "pass scores with a column for each class, or leave out the other rows"
        return (
            f"y must hold {columns} classes to match the columns of the scores, got "
            f"{len(classes)}; {advice}"
        )
    if len(classes) == 1:
        return (
            f"y must hold two classes, got only one class, {label_list(classes)[0]!r}; where the "
            "data lack one, pass classes=(negative, positive)"
        )
    return (
        f"Only binary classification is supported. y must hold two classes, got {len(classes)}; "
        "Auto(), OneVsRest(Beta()) and others take several classes, with scores in columns"
    )


def label_text(label: object) -> str:
    """Return a common text of equal labels: True, 1, 1.0 and "1", or a date and its ISO text."""
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
    if (match := _DATE.fullmatch(text)) is not None:
        day, time = match[1], match[2] if len(match[2]) == 8 else f"{match[2]}:00"
        fraction = (match[3] or "").rstrip("0").rstrip(".")
        return day if time == "00:00:00" and not fraction else f"{day}T{time}{fraction}"
    return _TRUTH.get(text, text)


def label_name(label: object) -> str:
    """Return the name of a label in tables and figures; dates are without a time of zero."""
    if isinstance(label, tuple):
        return ", ".join(map(label_name, label))
    return label_text(label) if isinstance(label, np.datetime64 | date) else str(label)


def column_names(scores: UserData) -> list[object] | None:
    """Return the names of a data frame's columns, or of a series; None if there are none.

    The range 0, 1, ... and "column_0", "column_1", ..., which pandas and polars give to unnamed
    columns, do not count as names.
    """
    shape = getattr(scores, "shape", ())
    columns = getattr(scores, "columns", None) if len(shape) == 2 else None
    if columns is not None:
        names = list(columns)
        if names and hasattr(names[0], "to_pylist"):
            names = list(scores.schema.names)  # Arrow's batches list their arrays.
        unnamed = type(columns).__name__ == "RangeIndex" and names == [*range(len(names))]
        return None if unnamed or names == [f"column_{j}" for j in range(len(names))] else names
    name = getattr(scores, "name", None) if len(shape) == 1 else None
    return None if name is None or callable(name) else [name]


def text_names(frame: UserData) -> list[str] | None:
    """Return the names of a data frame's columns if they are several different texts."""
    names = [name for name in column_names(frame) or () if isinstance(name, str)]
    several = 1 < len(names) == len(set(names)) == np.shape(frame)[1]
    return names if several else None


def matched_names(frame: UserData, names: Sequence[object] | None) -> list[object] | None:
    """Return the names of columns to match with the columns of another data frame.

    Unnamed columns are numbered, and match if the other names are these numbers.
    """
    columns = column_names(frame)
    if columns is None and names is not None and hasattr(frame, "columns"):
        numbers: list[object] = [*range(len(names))]
        return numbers if len(frame.columns) == len(names) and set(names) == set(numbers) else None
    if columns is not None and names is None and set(columns) != set(range(len(columns))):
        return None
    return columns


def by_affixes(names: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """Find the position of each class among names that are classes with a common prefix and suffix.

    None if there are no common prefix and suffix, or if they are ambiguous.
    """
    orders = []
    for label in filter(None, classes):
        for match in re.finditer(f"(?={re.escape(label)})", names[0]):
            before, after = names[0][: match.start()], names[0][match.start() + len(label) :]
            wanted = [before + text + after for text in classes]
            if sorted(wanted) == sorted(names):
                orders.append([names.index(name) for name in wanted])
    return orders[0] if orders and all(order == orders[0] for order in orders) else None


def match_columns(
    names: Sequence[object], classes: Sequence[object] | np.ndarray, what: str = "probs"
) -> list[int] | None:
    """Find the position of each class among names of columns; None if names are not classes.

    Raises the errors of :func:`in_order`.
    """
    labels_of_classes = list(classes if isinstance(classes, list | range) else np.asarray(classes))
    normalized = [label_text(label) for label in labels_of_classes]
    exact = [str(label) for label in labels_of_classes]
    distinct = len(set(normalized)) == len(normalized)
    labels, texts = (normalized, map(label_text, names)) if distinct else (exact, map(str, names))
    position_of = {label: i for i, label in enumerate(labels)}
    positions = [position_of.get(text, -1) for text in texts]
    if max(positions, default=-1) < 0:
        if not len(names) == len(labels_of_classes) > 1 or not all(
            isinstance(name, str) for name in names
        ):
            return None
        given = [str(name) for name in names]
        words = ["False" if label == "0" else "True" for label in labels]
        forms = [labels, exact, words] if {*labels} == {"0", "1"} else [labels, exact]
        return next(filter(None, (by_affixes(given, form) for form in forms)), None)
    is_single = len(positions) == 1 < len(position_of)
    # A single number, such as the name of an unnamed column, may be a position.
    is_number = isinstance(names[0], Integral) and not isinstance(names[0], bool | np.bool_)
    if is_single and (positions == [1] or is_number):
        return None
    if is_single or sorted(positions) != [*range(len(position_of))]:
        raise ValueError(
            f"{what} must have columns named like all of the classes, {exact}, or like none of "
            f"them, got {[str(name) for name in names]}"
            + (
                "; pass the column of the second class"
                if is_single
                else "; for columns in the order of the classes pass an array without names"
            )
        )
    return [positions.index(i) for i in range(len(position_of))]


def in_order(
    rows: np.ndarray,
    names: Sequence[object] | None,
    classes: Sequence[object] | np.ndarray,
    what: str = "probs",
) -> np.ndarray:
    """Reorder the columns of rows (n, k) by their names into the order of the classes.

    Names may have a common prefix or suffix, as in "p_yes" and "p_no". If no name is a class, the
    columns keep their order. A single column belongs to the second of two classes. It is an error
    if only some names are classes, if classes are missing, or if a single column is named like the
    first class. ``what`` names the columns in the message.
    """
    order = None if names is None else match_columns(names, classes, what)
    return rows if order in (None, [*range(len(classes))]) else rows[:, order]


def rows_by_class(given: UserData, classes: Sequence[object] | np.ndarray, what: str) -> UserData:
    """Order the entries (k, ...) of a mapping, or of a series or data frame, by its classes.

    Entries of a series that are only numbered keep their order, as do arrays.
    """
    if isinstance(given, Mapping):
        names, given = list(given), np.asarray(list(given.values()))
        try:
            order = match_columns(names, classes, what) if len(names) == len(classes) else None
        except ValueError:  # only some names are classes
            order = None
        if order is None:
            known = label_list(np.asarray(classes))
            raise ValueError(f"{what} must have the classes {known}, got {names}")
        return given[order]
    index: Any = getattr(given, "index", None)
    names = list(index) if hasattr(index, "tolist") else []
    if type(index).__name__ == "RangeIndex" and names == [*range(len(names))]:
        return given
    order = match_columns(names, classes, what) if len(names) == len(classes) else None
    return given if order is None else np.asarray(given)[order]
