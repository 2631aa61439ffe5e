"""Groups of rows: columns of True and False, which may overlap, or one label for each row.

Labels name clusters: rows with one label are dependent, rows with different labels are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.data.checks import as_numpy, check_finite, check_unmasked
from bayescal.data.label_names import check_present, column_names, matched_names

__all__ = ["check_clusters", "check_groups", "check_same_groups", "sum_test"]

_ADVICE = "of labels make columns first, as by pandas.get_dummies"


def check_groups(groups: ArrayLike, n: int) -> tuple[np.ndarray, list[object] | None]:
    """Return who is in which group, booleans (n, g), and the names of groups if there are any."""
    names = column_names(groups)
    try:
        array = as_numpy(groups, "groups")
    except TypeError as error:
        raise TypeError(f"{error}; {_ADVICE}") from None
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(
            "groups must have shape (n, g), True and False for each of g groups, got "
            f"{array.shape}; {_ADVICE}"
        )
    if len(array) != n:
        raise ValueError(f"groups must have {n} rows to match probs, got {len(array)}")
    if names is not None and len(set(map(str, names))) < len(names):
        raise ValueError(f"groups must have different names, got {names}")
    if array.dtype.kind != "b":
        check_finite(array, "groups")
        if not np.isin(array, (0, 1)).all():
            wrong = array[~np.isin(array, (0, 1))].flat[0]
            raise ValueError(f"groups must hold only True and False, got {wrong:g}; {_ADVICE}")
    return array.astype(bool), names


def check_same_groups(groups: ArrayLike, n: int, names: list[object] | None, g: int) -> np.ndarray:
    """Return the same of the g groups of before, in whose order named columns are put."""
    array, _ = check_groups(groups, n)
    if array.shape[1] != g:
        raise ValueError(f"groups must have {g} columns as in the fit, got {array.shape[1]}")
    found = matched_names(groups, names)
    if found is None:
        return array
    names = [*range(g)] if names is None else names
    place = {str(name): position for position, name in enumerate(found)}
    if place.keys() != set(map(str, names)):
        raise ValueError(f"groups must have the columns {names} of the fit, got {found}")
    return array[:, [place[str(name)] for name in names]]


def check_clusters(groups: Any, n: int, weights: ArrayLike | None = None) -> np.ndarray:
    """Return the number of each row's cluster, counted from 0 in order of appearance.

    Labels are hashable values of any kind, in a sequence, an array or a column of a data frame.
    Rows of weight zero are left out.
    """
    labels = _as_vector(groups)
    if labels.shape != (n,):
        raise ValueError(
            f"groups must have shape ({n},), one label for each row, got {labels.shape}; for "
            "labels in several columns pass a list of tuples"
        )
    check_present(labels, weights, "groups")
    if weights is not None:
        labels = labels[as_numpy(weights, "weights") > 0]
    numbers: dict[object, int] = {}
    try:
        found = (numbers.setdefault(label, len(numbers)) for label in labels.tolist())
        return np.fromiter(found, np.intp, len(labels))
    except TypeError as error:
        raise TypeError(f"groups must hold hashable labels: {error}") from None


def _as_vector(groups: Any) -> np.ndarray:
    """Return labels as an array; tuples in a list stay whole."""
    check_unmasked(groups, "groups")
    if hasattr(groups, "detach"):
        return as_numpy(groups, "groups")
    if (
        isinstance(groups, Iterable)
        and not hasattr(groups, "shape")
        and not isinstance(groups, str)
    ):
        values = list(groups)
        array = np.empty(len(values), object)
        for row, value in enumerate(values):
            array[row] = value
        return array
    array = np.asarray(groups)
    if array.dtype.kind not in "mM":
        return array
    dates = array.astype(object)
    dates[np.isnat(array)] = None
    return dates


def sum_test(values: np.ndarray, variance: float, clusters: np.ndarray) -> tuple[float, float]:
    """Return a statistic and a p-value of the hypothesis that rows sum to zero but for chance.

    The statistic is the sum of values (n,) over its standard error, from the squares of sums by
    cluster, and has Student's law with as many degrees of freedom as squares that are as unequal
    tell, which is fewer than clusters. ``variance`` is that of independent rows, below which that
    of the sum is not put.
    """
    from scipy.special import stdtr

    sums = np.bincount(clusters, values)
    total, squares, scale = float(sums.sum()), sums**2, float(np.abs(values).sum())
    if len(sums) == 1:
        return math.nan, 1.0
    error = math.sqrt(max(float(squares.sum()), variance))
    if error <= 1e-12 * scale or scale == 0:
        return 0.0, 1.0
    free = float(np.clip(squares.sum() ** 2 / max((squares**2).sum(), 1e-300), 1, len(sums) - 1))
    statistic = total / error
    return statistic, 2 * float(stdtr(free, -abs(statistic)))
