"""Groups of rows, which may overlap: one column of True and False for each."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.checks import as_numpy, check_finite, column_names

__all__ = ["check_groups"]

_ADVICE = "of labels make columns first, as by pandas.get_dummies"


def check_groups(groups: ArrayLike, n: int) -> tuple[np.ndarray, list[object]]:
    """Return who is in which group, booleans (n, g), and the names of groups, by default 0, ..."""
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
    if array.dtype.kind not in "b":
        check_finite(array, "groups")
        if not np.isin(array, (0, 1)).all():
            wrong = array[~np.isin(array, (0, 1))].flat[0]
            raise ValueError(f"groups must hold only True and False, got {wrong:g}; {_ADVICE}")
    return array.astype(bool), [*range(array.shape[1])] if names is None else names
