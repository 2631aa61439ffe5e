"""Groups of methods, adjacent in rank, that do not differ."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal.compare.table import row_names
from bayescal.data.checks import as_numpy, check_finite


def cliques(ranks: ArrayLike, significant: ArrayLike) -> list[tuple[int, ...]]:
    """Return the maximal groups of methods, adjacent in rank, of which no pair differs.

    These are what the bars of a critical-difference diagram join. A group may lie between two
    methods that do not differ from each other but do from one in between: such two stay apart.

    Parameters
    ----------
    ranks : array of shape (k,)
        Average ranks; equal ones keep their order.
    significant : bool array of shape (k, k)
        Which pairs differ: symmetric; the diagonal does not matter. Of a data frame that names the
        methods as the index of ``ranks`` does, rows and columns may stand in any order.

    Returns
    -------
    list of tuples of int
        Indices of the methods of each group, best rank first; the groups too. Groups of one are
        left out.

    Raises
    ------
    ValueError
        If shapes do not fit, ranks are not finite or ``significant`` is not symmetric.
    TypeError
        If ``significant`` is not boolean.

    Examples
    --------
    >>> significant = [[False, False, True], [False, False, False], [True, False, False]]
    >>> cliques([1.2, 2.0, 2.8], significant)
    [(0, 1), (1, 2)]
    """
    names: Any = row_names(ranks)
    if names is not None and {*names} == {*getattr(significant, "columns", ())}:
        significant = cast("Any", significant).loc[names, names]
    means = as_numpy(ranks, "ranks")
    if means.ndim != 1:
        raise ValueError(f"ranks must have shape (methods,), got {means.shape}")
    check_finite(means, "ranks")
    differ = as_numpy(significant, "significant")
    if differ.dtype != bool:
        raise TypeError(f"significant must be boolean, got dtype {differ.dtype}")
    if differ.shape != (len(means), len(means)):
        raise ValueError(
            f"significant must have shape {(len(means), len(means))}, got {differ.shape}"
        )
    if (differ != differ.T).any():
        raise ValueError("significant must be symmetric")
    order = np.argsort(means, kind="stable")
    differ = differ[np.ix_(order, order)]
    groups, last_end = [], 0
    for start in range(len(order)):
        end = start + 1
        while end < len(order) and not differ[start:end, end].any():
            end += 1
        if end - start > 1 and end > last_end:
            groups.append(tuple(order[start:end].tolist()))
            last_end = end
    return groups
