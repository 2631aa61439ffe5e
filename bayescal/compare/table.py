"""Reading of tables of scores: user input becomes one array with names and consistent ties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.data.checks import as_numpy

#: One array, or several by name.
Scores = ArrayLike | Mapping[str, ArrayLike]
#: Machine epsilons of the types that are less precise than float64.
_EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Table(NamedTuple):
    """Scores (data sets, methods) in float64, where lower is better, and the methods' names.

    ``eps`` is the relative precision of the least precise scores.
    """

    values: np.ndarray
    names: tuple[str, ...]
    eps: float


def read_table(
    scores: Scores,
    names: Sequence[object] | None = None,
    *,
    lower_is_better: bool = True,
    finite: bool = True,
) -> Table:
    """Check a table of scores; NaN is an error, and infinities are if ``finite``.

    Data sets with names are matched by name. Scores on one data set that are equal up to rounding
    are made equal.
    """
    if isinstance(scores, Mapping):
        if names is not None:
            raise ValueError("names must be left out where scores is a mapping: its keys are names")
        if not scores:
            raise ValueError("scores must not be an empty mapping")
        names = list(scores)
        columns = in_one_order(scores, "scores[{!r}]")
        if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
            shapes = ", ".join(str(column.shape) for column in columns)
            raise ValueError(f"scores must hold arrays of one shape (data sets,), got {shapes}")
        array, eps = np.stack(columns, axis=1), precision(column.dtype for column in columns)
    else:
        if isinstance(scores, list | tuple) and any(row_names(row) for row in scores):
            rows = in_one_order(dict(enumerate(scores)), "scores[{}]")
            labels = row_names(scores[0])
            names = labels if names is None and not _are_numbers(labels) else names
            scores = np.stack(rows) if len({row.shape for row in rows}) == 1 else scores
        if names is None:
            names = getattr(scores, "columns", None)
        array = as_numpy(scores, "scores")
        eps = precision([array.dtype, *getattr(scores, "dtypes", [])])
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
    array = tied(array, eps)
    return Table(array if lower_is_better else -array, labels, eps)


Name = TypeVar("Name")


def in_one_order(columns: Mapping[Name, ArrayLike], called: str) -> list[np.ndarray]:
    """Convert vectors to arrays, those with named entries in the order of the first of them.

    ``called`` is a format for their names in messages. Names are the index of a pandas Series or
    the coordinate of an xarray DataArray. Vectors without names are taken in the order of their
    entries, as are vectors whose names are 0, 1, ... if others have real names.
    """
    arrays = [as_numpy(column, called.format(key)) for key, column in columns.items()]
    names = [row_names(column) for column in columns.values()]
    named = [labels for labels in names if labels is not None]
    if all(labels == named[0] for labels in named):
        return arrays
    unnamed = len(named) < len(names)
    if not unnamed and all(
        {*labels} == {*named[0]} and len({*labels}) == len(labels) for labels in named
    ):
        positions = ({name: position for position, name in enumerate(labels)} for labels in named)
        return [
            array[[position[name] for name in named[0]]]
            for array, position in zip(arrays, positions, strict=True)
        ]
    labeled = [labels for labels in named if not _are_numbers(labels)]
    if all(labels == labeled[0] for labels in labeled) and not any(
        set(labels) == set(range(len(labels))) for labels in labeled
    ):
        return arrays
    first = [*columns][next(i for i, labels in enumerate(names) if labels is not None)]
    other = next(key for key, labels in zip(columns, names, strict=True) if labels != named[0])
    raise ValueError(
        f"{called.format(other)} must have entries named like those of {called.format(first)}, "
        f"each once, got other names or another order{' beside entries without names' * unnamed}; "
        "pass one data frame, or arrays in one order"
    )


def _are_numbers(names: list[object] | None) -> bool:
    """Return whether names are absent or those that pandas assigns by default."""
    return names is None or names == list(range(len(names)))


def row_names(column: UserData) -> list[object] | None:
    """Return the names of the entries of a vector, or None if it has none."""
    dims = getattr(column, "dims", ())
    if len(dims) == 1 and dims[0] in getattr(column, "coords", ()):
        return np.asarray(column.coords[dims[0]]).tolist()
    index = getattr(column, "index", None)
    return None if index is None or callable(index) else list(index)


def _check_names(names: Iterable[object] | None, count: int) -> tuple[str, ...]:
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


def precision(kinds: Iterable[UserData]) -> float:
    """Return the machine epsilon of the least precise of float64 and types of any library."""
    plain = (getattr(kind, "numpy_dtype", kind) for kind in kinds)  # of pandas' types
    names = {str(getattr(kind, "name", kind)).lower() for kind in plain}
    return max([2.0**-52, *(_EPS[name] for name in names & _EPS.keys())])


def tied(values: np.ndarray, eps: float) -> np.ndarray:
    """Make scores (data sets, methods) equal that are equal up to rounding on one data set.

    Thus all tests agree on ties, for example 0.1 + 0.2 and 0.3.
    """
    order = np.argsort(values, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=1)
    first = np.ones(values.shape, bool)
    first[:, 1:] = _differ(ranked[:, :-1], ranked[:, 1:], eps)
    index = np.maximum.accumulate(np.where(first, np.arange(values.shape[1]), 0), axis=1)
    result = np.empty_like(values)
    np.put_along_axis(result, order, np.take_along_axis(ranked, index, axis=1), axis=1)
    return result


def _differ(lower: np.ndarray, upper: np.ndarray, eps: float) -> np.ndarray:
    """Return whether scores differ by more than the rounding of both."""
    with np.errstate(invalid="ignore", over="ignore"):
        gap = upper - lower > rounding(lower, upper, eps)
    return np.where(np.isfinite(lower) & np.isfinite(upper), gap, lower != upper)


def rounding(a: np.ndarray, b: np.ndarray, eps: float) -> np.ndarray:
    """Bound the rounding error of a - b."""
    # Decimals are stored to half a unit in the last place, and so are their differences.
    return eps * np.abs(a) + eps * np.abs(b)


def differences(a: np.ndarray, b: np.ndarray, eps: float) -> np.ndarray:
    """Compute a - b (n,), making absolute differences equal that are equal up to rounding.

    Thus decimal scores tie as on paper: 0.8 - 0.7 with 0.7 - 0.6. The scores must come from
    :func:`tied`, so that only equal scores have the difference zero.
    """
    raw = a - b
    size, error = np.abs(raw), rounding(a, b, eps)
    order = np.argsort(size, kind="stable")
    order = order[np.searchsorted(size[order], 0, side="right") :]
    size, slack = size[order], error[order]
    first = np.concatenate([[True], np.diff(size) > slack[1:] + slack[:-1]])[: len(size)]
    snapped = np.zeros_like(raw)
    snapped[order] = size[first][np.cumsum(first) - 1]
    return np.copysign(snapped, raw)
