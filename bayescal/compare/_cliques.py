"""Cliques: groups of methods with adjacent ranks that do not differ."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import ArrayLike, UserData
from bayescal.compare.table import row_names
from bayescal.data.checks import as_numpy, check_finite


def cliques(ranks: ArrayLike, significant: ArrayLike) -> list[tuple[int, ...]]:
    """Find the maximal groups of methods with adjacent ranks in which no pair differs.

    The bars of a critical-difference diagram join these groups. Two methods that do not differ from
    each other, but do from one between them, are in no common group.

    Parameters
    ----------
    ranks : array of shape (k,)
        Average ranks; equal ones keep their order.
    significant : bool array of shape (k, k)
        Pairs that differ: symmetric; the diagonal does not matter. Rows and columns of a data frame
        may have any order if they are named like the index of ``ranks``.

    Returns
    -------
    list of tuples of int
        Indices of the methods of each group, best rank first, and groups in the same order. Groups
        with a single method are omitted.

    Raises
    ------
    ValueError
        If shapes do not match, ranks are not finite or ``significant`` is not symmetric.
    TypeError
        If ``significant`` is not boolean.

    See Also
    --------
    bayescal.plots.critical_difference : The diagram.
    Comparison.cliques : The groups by name.

    Examples
    --------
    >>> significant = [[False, False, True], [False, False, False], [True, False, False]]
    >>> cliques([1.2, 2.0, 2.8], significant)
    [(0, 1), (1, 2)]
    """
    names = row_names(ranks)
    if names is not None and {*names} == {*getattr(significant, "columns", ())}:
        table: UserData = significant
        significant = table.loc[names, names]
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
