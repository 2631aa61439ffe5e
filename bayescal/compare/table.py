"""Tables of scores: what users pass, made into one array and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import as_numpy

__all__ = ["Table", "differences", "read_table"]
#: One array, or several by name.
Scores = ArrayLike | Mapping[str, ArrayLike]


class Table(NamedTuple):
    """Scores (data sets, methods), float64 and lower is better, with the methods' names."""

    values: np.ndarray
    names: tuple[str, ...]


def read_table(
    scores: Scores,
    names: Sequence[object] | None = None,
    *,
    lower_is_better: bool = True,
    finite: bool = True,
) -> Table:
    """Check a table of scores; infinities pass unless ``finite``, NaN never does."""
    if isinstance(scores, Mapping):
        if names is not None:
            raise ValueError("names must be left out where scores is a mapping: its keys are names")
        if not scores:
            raise ValueError("scores must not be an empty mapping")
        names = list(scores)
        columns = [as_numpy(column, f"scores[{key!r}]") for key, column in scores.items()]
        if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
            shapes = ", ".join(str(column.shape) for column in columns)
            raise ValueError(f"scores must hold arrays of one shape (data sets,), got {shapes}")
        array = np.stack(columns, axis=1)
    else:
        if names is None:
            names = getattr(scores, "columns", None)
        array = as_numpy(scores, "scores")
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise ValueError(
            "scores must have shape (data sets, methods), with one data set and two methods or "
            f"more, got {array.shape}"
        )
    labels = _check_names(names, array.shape[1])
    array = array.astype(np.float64)
    missing = np.isnan(array)
    bad = missing | (finite & np.isinf(array))
    if bad.any():
        row, column = np.argwhere(missing if missing.any() else bad)[0]
        kind = "NaN" if missing.any() else "infinity"
        raise ValueError(
            f"scores must {'be finite' if finite else 'not be NaN'}, got {kind} for method "
            f"{labels[column]!r} on data set {row} ({int(bad.sum())} in all)"
        )
    return Table(array if lower_is_better else -array, labels)


def _check_names(names: Any, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"method {i}" for i in range(count))
    if isinstance(names, str):
        raise TypeError(f"names must be one name for each method, got the text {names!r}")
    labels = tuple(str(name) for name in names)
    if len(labels) != count:
        raise ValueError(f"names must be {count}, one for each method, got {len(labels)}")
    for name in labels:
        if labels.count(name) > 1:
            raise ValueError(f"names must differ, got {name!r} {labels.count(name)} times")
    return labels


def differences(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a - b (n,), where absolute differences equal up to rounding are made equal.

    So that decimal scores tie as they do on paper: 0.8 - 0.7 with 0.7 - 0.6.
    """
    raw = a - b
    # Decimals are stored to half a unit in the last place, and so is their difference.
    error = np.finfo(np.float64).eps * (np.abs(a) + np.abs(b))
    order = np.argsort(np.abs(raw), kind="stable")
    size = np.concatenate([[0.0], np.abs(raw)[order]])
    slack = np.concatenate([[0.0], error[order]])
    first = np.concatenate([[True], np.diff(size) > slack[1:] + slack[:-1]])
    group = np.cumsum(first) - 1
    snapped = np.empty_like(raw)
    snapped[order] = size[first][group][1:]
    return np.copysign(snapped, raw)
