"""Groups of rows: overlapping groups as boolean columns, clusters and subgroups as labels of rows.

Rows with equal cluster labels are dependent; rows with different labels are independent. Subgroups
are evaluated one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.data.checks import as_numpy, check_finite, check_unmasked
from bayescal.data.label_names import check_present, column_names, label_name, matched_names

#: Largest number of subgroups.
_MAX_SUBGROUPS = 100

_ADVICE = "make columns of labels by pandas.get_dummies(labels)"


def check_groups(
    groups: ArrayLike, n: int, weights: np.ndarray | None = None
) -> tuple[np.ndarray, list[object] | None]:
    """Read groups as booleans (n, g); also return their names, if any.

    Text (n,) is the name of the group of each row. With ``weights`` (n,), names that only rows of
    weight zero have are left out.
    """
    labels = _group_names(groups)
    if labels is not None:
        if len(labels) != n:
            raise ValueError(f"groups must have {n} rows to match probs, got {len(labels)}")
        used = labels if weights is None else labels[weights > 0]
        distinct = sorted(set(used.tolist()))
        return _indicators(labels, distinct), list(distinct)
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
    """Read g groups in the order of the fit; named columns are matched by name.

    Rows with a label that is not among the names belong to no group.
    """
    labels = _group_names(groups)
    if labels is not None and len(labels) == n:
        if names is None:
            raise ValueError(f"groups must have {g} columns as in the fit, got one name for a row")
        return _indicators(labels, [str(name) for name in names])
    array, _ = check_groups(groups, n)
    if array.shape[1] != g:
        raise ValueError(f"groups must have {g} columns as in the fit, got {array.shape[1]}")
    matched = matched_names(groups, names)
    if matched is None:
        return array
    names = [*range(g)] if names is None else names
    position = {str(name): i for i, name in enumerate(matched)}
    if position.keys() != set(map(str, names)):
        raise ValueError(f"groups must have the columns {names} of the fit, got {matched}")
    return array[:, [position[str(name)] for name in names]]


def _group_names(groups: UserData) -> np.ndarray | None:
    """Return the names (n,) of the groups of rows if groups are text, else None."""
    if getattr(groups, "ndim", 1) != 1 or hasattr(groups, "detach"):
        return None
    labels = label_vector(groups, "groups")
    text = labels.ndim == 1 and labels.size and all(isinstance(v, str) for v in labels.tolist())
    return labels if text else None


def _indicators(labels: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Return which of the names (g,) each label (n,) is, as booleans (n, g)."""
    return labels.astype(object)[:, None] == np.array(names, object)


def check_clusters(groups: object, n: int, weights: ArrayLike | None = None) -> np.ndarray:
    """Count the clusters of rows of positive weight from 0, by labels of any hashable kind."""
    return _number(groups, n, weights, "groups")[0]


def read_subgroups(
    by: object, n: int, weights: ArrayLike | None = None
) -> list[tuple[str, np.ndarray]]:
    """Read the names of subgroups and the indices of their rows, in ascending order of the labels.

    Categories of pandas keep their order. Rows of weight zero are omitted and not counted.
    """
    codes, labels = _number(by, n, weights, "by")
    if len(labels) > _MAX_SUBGROUPS:
        raise ValueError(
            f"by must have at most {_MAX_SUBGROUPS} different values, got {len(labels)}; cut "
            "numbers into ranges first, as by pandas.cut"
        )
    categories = getattr(getattr(by, "dtype", None), "categories", None)
    positions = {
        label: position for position, label in enumerate([] if categories is None else categories)
    }
    try:
        order = sorted(labels, key=positions.__getitem__ if positions else None)
    except TypeError:  # labels of several kinds
        order = list(labels)
    names = [label_name(label) for label in order]
    if len(set(names)) < len(names):
        raise ValueError(f"by must hold values that differ as text, got {names}")
    rows = (np.flatnonzero(codes == labels[label]) for label in order)
    return list(zip(names, rows, strict=True))


def _number(
    given: UserData, n: int, weights: ArrayLike | None, name: str
) -> tuple[np.ndarray, dict[Any, int]]:
    """Count the labels of rows of positive weight from 0 in order of appearance."""
    labels = label_vector(given, name)
    if labels.shape != (n,):
        raise ValueError(
            f"{name} must have shape ({n},), one label for each row, got {labels.shape}; for "
            "labels in several columns pass a list of tuples"
        )
    check_present(labels, weights, name)
    if weights is not None:
        labels = labels[as_numpy(weights, "weights") > 0]
    numbers = {}
    try:
        codes = (numbers.setdefault(label, len(numbers)) for label in labels.tolist())
        return np.fromiter(codes, np.intp, len(labels)), numbers
    except TypeError as error:
        raise TypeError(f"{name} must hold hashable labels: {error}") from None


def label_vector(groups: UserData, name: str) -> np.ndarray:
    """Convert labels to an array (n,); tuples in a list are single labels."""
    check_unmasked(groups, name)
    if hasattr(groups, "detach"):
        return as_numpy(groups, name)
    is_plain = isinstance(groups, Iterable) and not hasattr(groups, "shape")
    if is_plain and not isinstance(groups, str):
        return np.fromiter(groups, object)
    array = np.asarray(groups)
    if array.dtype.kind not in "mM":
        return array
    dates = array.astype(object)
    dates[np.isnat(array)] = None
    return dates


def sum_test(values: np.ndarray, variance: float, clusters: np.ndarray) -> tuple[float, float]:
    """Test the hypothesis that the expected sum of values (n,) is zero.

    Returns the statistic and its p-value. The statistic is the sum over its standard error, which
    follows from squared sums by cluster. It has Student's t distribution, whose degrees of freedom
    are the effective number of squares, less than the number of clusters. The variance of the sum
    is at least ``variance``, that of independent rows.
    """
    from scipy.special import stdtr

    sums = np.bincount(clusters, values)
    total, squares, scale = float(sums.sum()), sums**2, float(np.abs(values).sum())
    if len(sums) == 1:
        return math.nan, 1.0
    error = math.sqrt(max(float(squares.sum()), variance))
    if error <= 1e-12 * scale or scale == 0:
        return 0.0, 1.0
    degrees = float(np.clip(squares.sum() ** 2 / max((squares**2).sum(), 1e-300), 1, len(sums) - 1))
    statistic = total / error
    return statistic, 2 * float(stdtr(degrees, -abs(statistic)))
