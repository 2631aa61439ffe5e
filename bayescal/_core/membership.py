"""Groups of rows, which may overlap: one column of True and False for each."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import as_numpy, check_finite
from bayescal._core.labels import column_names, matched_names

__all__ = ["check_groups", "check_same_groups"]

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
