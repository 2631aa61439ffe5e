"""Read labels of any values: as positions among the classes, or as proportions of outcomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal._core.warnings import warn
from bayescal.data.checks import as_numpy, check_labels, check_range, check_unmasked
from bayescal.data.fitted import of_pairs, read_label_rows, read_shares
from bayescal.data.label_names import (
    Classes,
    as_labels,
    check_classes,
    check_present,
    class_array,
    column_names,
    find_positions,
    has_text,
    in_order,
    is_count,
    label_list,
    match_columns,
    matched_names,
    missing_labels,
    of_one_kind,
)
from bayescal.data.weights import check_weights

#: Advice where labels have more than two classes.
MORE = "use Auto, a multi-class map, or OneVsRest of this calibrator"
#: Distinct integer labels are counted instead of sorted if their range exceeds twice their number
#: by no more than this.
_MAX_EXTRA_RANGE = 1 << 16
#: NumPy's kinds of labels that are not numbers: text, objects and dates.
_TEXT = "OSUM"
_NAME_CLASSES = "pass classes=(label of each column, ...) for other labels"
_GIVE_ROWS = "pass a row of probabilities for each row of labels"
_NO_LABELS = np.empty(0, np.int64)


def read_rows(
    x: np.ndarray, y: ArrayLike, sample_weight: ArrayLike | None, classes: Classes, columns: int = 2
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the classes, and the rows of positive weight, labels as positions, and weights."""
    weights = check_weights(sample_weight, len(x))
    labels, codes = read_labels(y, len(x), classes, columns, weights)
    used = weights > 0
    if not used.all():
        x, codes, weights = x[used], codes[used], weights[used]
    return labels, x, codes, weights


def read_labels(
    y: ArrayLike, n: int, classes: Classes, columns: int = 2, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Read the classes (columns,), sorted or as given, and labels (n,) as positions among them."""
    values = label_array(y, n, weights=weights)
    used = None if weights is None or weights.all() else weights > 0
    labels, index = distinct(values if used is None else values[used])
    given = check_classes(labels, classes, columns, MORE)
    positions = find_positions(labels, given)
    found = index if is_count(positions) else positions[index]
    if used is None:
        return given, found
    codes = np.zeros(n, found.dtype)
    codes[used] = found
    return given, codes


def label_array(
    y: ArrayLike,
    n: int | None,
    *,
    match: str = "the scores",
    weights: object = None,
    name: str = "y",
) -> np.ndarray:
    """Read one label for each of n rows; rows of weight zero may lack theirs.

    Without ``n`` labels may have any length. ``match`` names what they have to match, and ``name``
    the argument in messages.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    check_unmasked(y, name)
    try:
        labels = as_labels(as_numpy(y, name) if hasattr(y, "detach") else y)
    except ValueError:
        labels = as_numpy(y, name)  # This error says more.
    if labels.ndim == 2 and labels.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        labels = labels[:, 0]
        warn(
            f"A column-vector {name} was passed when a 1d array was expected", DataConversionWarning
        )
    if labels.ndim != 1 or n not in (None, len(labels)):
        size = "n" if n is None else n
        raise ValueError(f"{name} must have shape ({size},) to match {match}, got {labels.shape}")
    check_present(labels, weights, name)
    return labels


def label_values(y: ArrayLike, n: int | None, *, weights: object = None) -> np.ndarray:
    """Read one label for each of n rows as numbers, text or dates, not as objects of one kind."""
    labels = label_array(y, n, match="probs", weights=weights)
    known = is_text(labels) and labels.dtype != object
    if labels.dtype.kind in "biuf" or known or has_text(labels):
        return labels
    labels = of_one_kind(labels)
    if labels.dtype == object:
        # Missing labels of nullable booleans, whose rows have no weight.
        missing = [type(label).__name__ == "NAType" for label in labels]
        labels = np.where(missing, np.nan, labels)
    return as_numpy(labels, "y")


def is_text(labels: np.ndarray) -> bool:
    """Return whether labels are text, dates or objects, not numbers."""
    return labels.dtype.kind in _TEXT


def as_text(labels: np.ndarray) -> np.ndarray:
    """Convert text labels of any kind to an array that NumPy sorts."""
    if not is_text(labels):
        raise TypeError(f"y must hold labels of one kind, got text and {labels.dtype}")
    return of_one_kind(labels)


def class_codes(
    labels: np.ndarray, k: int, classes: Classes = None, all_rows: bool = True
) -> tuple[np.ndarray | range, np.ndarray]:
    """Find the classes (k,) of k columns, and labels (n,) as positions among them.

    Unlike in fits, numbers are positions themselves, unless ``classes`` holds other numbers. Text
    is sorted if the labels are those of ``all_rows``; the labels of a batch may lack a class.
    """
    given = None if classes is None else class_array(classes)
    numbers = given is not None and given.dtype.kind not in _TEXT
    if not is_text(labels):
        if given is None or not numbers or is_count(given):
            codes = _number_codes(labels, k, given is None, all_rows)
            if given is not None:
                return check_classes(_NO_LABELS, given, k, _GIVE_ROWS), codes
            signs = k == 2 and labels.min(initial=0) < 0
            return np.array([-1, 1]) if signs else range(k), codes
    else:
        labels = as_text(labels)
        if numbers or (given is None and not all_rows):
            wanted = [*range(k)] if given is None else given.tolist()
            kind = "date" if labels.dtype.kind == "M" else "text"
            raise ValueError(
                f"y must be in {wanted}, got the {kind} {label_list(labels)[0]!r}; {_NAME_CLASSES}"
            )
    values, index = np.unique(labels, return_inverse=True)
    known = check_classes(values, classes, k, _GIVE_ROWS)
    return known, find_positions(values, known)[index]


def code_labels(data: UserData, k: int) -> tuple[UserData, np.ndarray]:
    """Replace labels that are no numbers, or are -1 and 1, by positions among the sorted classes.

    ``data`` is one data set, a batch or a list, as for :func:`bayescal.posterior`, whose other
    faults are left to ``check_data``. Returns also the classes (k,).
    """
    sets = data if isinstance(data, list) else [data]
    if not all(isinstance(data_set, tuple) and len(data_set) in (2, 3) for data_set in sets):
        return data, np.arange(k)
    labels = []
    for data_set in sets:
        y = data_set[1] if hasattr(data_set[1], "detach") else np.asarray(data_set[1])
        mask = data_set[2] if len(data_set) == 3 else None
        if mask is not None and np.shape(mask) == np.shape(y):
            y = np.where(np.asarray(mask, bool), y, np.ravel(y)[np.argmax(np.ravel(mask))])
        labels.append(y)
    signs = k == 2 and all(
        isinstance(y, np.ndarray) and y.dtype.kind in "if" and y.min(initial=0) == -1
        for y in labels
    )
    text = all(isinstance(y, np.ndarray) and is_text(y) for y in labels)
    if not text and not signs:
        return data, np.arange(k)
    together = np.concatenate([as_labels(np.ravel(y)) for y in labels])
    check_present(together, name="labels")
    if signs and not np.array_equal(np.unique(together), [-1, 1]):
        return data, np.arange(k)
    try:
        values, codes = np.unique(as_text(together) if text else together, return_inverse=True)
    except TypeError:
        raise TypeError("labels must be of one kind, which can be sorted") from None
    if len(values) != k:
        raise ValueError(
            f"labels must be {k} different ones, got {label_list(values)[:5]}; where the data lack "
            f"a class, pass the positions 0, ..., {k - 1} of the classes"
        )
    parts = np.split(codes, np.cumsum([y.size for y in labels])[:-1])
    coded = [
        (data_set[0], part.reshape(y.shape), *data_set[2:])
        for data_set, y, part in zip(sets, labels, parts, strict=True)
    ]
    return (coded if isinstance(data, list) else coded[0]), values


def _number_codes(labels: np.ndarray, k: int, unnamed: bool, all_rows: bool) -> np.ndarray:
    """Read numbers as positions among k classes; -1 and 1 are two unnamed classes."""
    advice, least = _NAME_CLASSES, labels.min(initial=0)
    if labels.dtype.kind == "f" and least >= 0 and labels.max(initial=0) <= 1:
        advice = "for proportions of outcomes pass outcomes='fractional'"
    if k == 2 and unnamed and least == -1:
        advice = "pass classes=(-1, 1) for labels -1 and 1"
    try:
        return check_labels(labels, k, "y", advice)
    except ValueError:
        if k == 2 and unnamed and all_rows and np.array_equal(np.unique(labels), [-1, 1]):
            return (labels > 0).astype(np.int64)
        raise


def outcome_shares(
    y: UserData, n: int, k: int, classes: Classes = None, fractional: bool = False
) -> np.ndarray | None:
    """Read the proportion of each outcome in each row (n, k), or None if y holds labels.

    Proportions other than 0 and 1 have to be ``fractional``.
    """
    if np.ndim(y) == 2 and (fractional or np.shape(y)[1] > 1):
        shares = read_shares(y, n, k)
        known = range(k) if classes is None else class_array(classes)
        shares = in_order(shares, column_names(y), known, "y")
    elif fractional and k == 2:
        second = check_range(as_numpy(y, "y").astype(np.float64), "y", "pass proportions")
        shares = read_shares(np.stack([1 - second, second], axis=-1), n, 2)
    elif fractional:
        raise ValueError(
            f"y must have shape ({n}, {k}) for outcomes='fractional', got {np.shape(y)}"
        )
    else:
        return None
    if not fractional and not ((shares == 0) | (shares == 1)).all():
        raise ValueError(
            "y must hold labels, or a 1 in one column of each row, got proportions of outcomes; "
            "pass outcomes='fractional', which log_loss, brier_score, ece and ecce have"
        )
    return shares


def classes_of_shares(
    y: UserData, k: int, classes: Classes = None
) -> np.ndarray | Sequence[object]:
    """Find the classes (k,) of proportions: those given, names of columns, or 0, ..., k - 1."""
    if classes is not None:
        return check_classes(_NO_LABELS, class_array(classes), k)
    names = column_names(y) if np.ndim(y) == 2 else None
    return range(k) if names is None or match_columns(names, range(k), "y") else names


def class_labels(y: object, weights: np.ndarray | None = None) -> np.ndarray:
    """Read labels (n,) for fitting a classifier, checked as scikit-learn does.

    Labels of rows of weight zero that are missing, or that no other row has, are replaced by the
    label of the heaviest row.
    """
    from sklearn.utils import assert_all_finite, column_or_1d

    labels = np.asarray(column_or_1d(as_labels(y), warn=True))
    check_present(labels, weights)
    if weights is not None and (missing := missing_labels(labels)).any():
        labels = np.where(missing, labels[[np.argmax(weights)]], labels)
    labels = of_one_kind(labels)
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    _check_discrete(labels)
    if weights is not None:
        labels = np.where(
            np.isin(labels, labels[weights > 0]), labels, labels[[np.argmax(weights)]]
        )
    return labels


def _check_discrete(y: np.ndarray) -> None:
    """Check labels (n,) as scikit-learn does, and say how proportions of outcomes are passed.

    Byte strings are valid, unlike in scikit-learn.
    """
    from sklearn.utils.multiclass import check_classification_targets

    if y.dtype.kind == "S":
        return
    try:
        check_classification_targets(y)
    except ValueError as error:
        if y.dtype.kind == "f" and y.min() >= 0 and y.max() <= 1:
            raise ValueError(f"{error} For proportions of outcomes pass rows (1 - y, y).") from None
        raise


def distinct(y: np.ndarray, whole: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct labels, sorted, and the index of each label (n,) among them.

    ``whole`` tells whether these are the labels of all rows: those of a block may all differ.
    """
    if y.dtype.kind in "biu" and len(y):
        # Sorting a million labels takes as long as a fit.
        low, high = y.min(), y.max()
        above = y != low
        if low != high and ((y == high) == above).all():
            return np.array([low, high]), above.astype(int)
        if int(high) - int(low) <= _MAX_EXTRA_RANGE + 2 * len(y):
            offset = (y - low if y.dtype.itemsize == 8 else y.astype(int) - int(low)).astype(int)
            present = np.bincount(offset) > 0
            return np.flatnonzero(present).astype(y.dtype) + low, (np.cumsum(present) - 1)[offset]
        return np.unique(y, return_inverse=True)
    from sklearn.utils import assert_all_finite

    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    y = of_one_kind(y)
    if whole or y.dtype.kind not in "biuSU":
        _check_discrete(y)
    return np.unique(y, return_inverse=True)


def in_columns(y: object) -> bool:
    """Return whether labels have two columns or more, without converting them."""
    shape = getattr(y, "shape", None)
    if isinstance(shape, tuple):
        return len(shape) == 2 and shape[1] > 1
    first = y[0] if isinstance(y, list | tuple) and len(y) else None
    return isinstance(first, list | tuple | np.ndarray) and np.ndim(first) == 1 and len(first) > 1


def of_shares(
    scores: object, y: np.ndarray, sample_weight: UserData, classes: Classes
) -> tuple[UserData, np.ndarray, np.ndarray, np.ndarray]:
    """Expand proportions of outcomes (n, k): one row for each outcome, weighted by its proportion.

    Also returns the classes, some of which may occur in no row.
    """
    from sklearn.utils import _safe_indexing
    from sklearn.utils.validation import _num_samples

    (n, k), rows = np.shape(y), _num_samples(scores)
    if n != rows:
        raise ValueError(f"y must have shape ({rows}, {k}) to match the scores, got {np.shape(y)}")
    shares, names = read_shares(y, n, k), column_names(y)
    labels = np.arange(k) if classes is None else class_array(classes)
    if names is not None:
        known = labels if len(labels) == k else np.arange(k)
        columns = column_names(scores) or []
        same_names = len(columns) == k and {*map(str, columns)} == {*map(str, names)}
        if same_names and classes is None and match_columns(names, known, "y") is None:
            known = columns
        shares = in_order(shares, names, known, "y")
    weights = check_weights(sample_weight, n)
    row, code = np.nonzero(shares)
    return _safe_indexing(scores, row), labels[code], weights[row] * shares[row, code], labels


def read_many(
    scores: UserData, y: UserData, weights: UserData = None
) -> tuple[np.ndarray, np.ndarray, list[object] | None]:
    """Read scores (n, labels) and labels in the same order, and the names of labels.

    Labels without names have those of the scores, so that new scores go by their names.
    """
    names = column_names(y)
    if names is None and all(isinstance(name, str) for name in column_names(scores) or [0]):
        names = column_names(scores)
    rows, present = score_rows(scores, names), read_label_rows(y, weights=weights)
    if present.shape != rows.shape:
        raise ValueError(f"y must have the shape of the scores, {rows.shape}, got {present.shape}")
    return rows, present, names


def score_rows(scores: UserData, labels: UserData) -> np.ndarray:
    """Read scores (n, labels) and put them in the order of the labels, if these have names."""
    names = matched_names(scores, labels)
    rows = as_numpy(of_pairs(scores, "scores"), "scores")
    if rows.ndim != 2:
        raise ValueError(f"scores must have shape (n, labels), got {rows.shape}")
    return in_order(rows, names, range(rows.shape[1]) if labels is None else labels, "scores")
