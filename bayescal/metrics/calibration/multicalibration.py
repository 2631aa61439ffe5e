"""The calibration error of groups of rows that may overlap."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import as_numpy
from bayescal.data.membership import check_groups
from bayescal.data.predictions import Classes, Inputs, Reading
from bayescal.metrics.calibration.ece import Binning, Kind, make_ece
from bayescal.metrics.sums import compute


class MulticalibrationError(NamedTuple):
    """The largest calibration error over groups, and its components.

    Attributes
    ----------
    error : float
        Largest of ``errors``.
    worst : object
        The group with the largest error, by column name or position; the first in a tie.
    groups : list of g names or positions
    errors : array of shape (g,)
        Error within each group, times its proportion to the power 1 / q.
    shares : array of shape (g,)
        Proportion of the total weight in each group.
    within : array of shape (g,)
        Calibration error of the rows of each group; NaN for groups without rows.
    """

    error: float
    worst: object
    groups: list[object]
    errors: np.ndarray
    shares: np.ndarray
    within: np.ndarray


@other_words
@ignoring_underflow
def multicalibration_error(
    probs: ArrayLike,
    y: ArrayLike,
    groups: ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "equal_width",
    kind: Kind | None = None,
    k: int | None = None,
    norm: float = 1,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> MulticalibrationError:
    r"""Compute the largest calibration error over groups, weighted by their proportions of rows.

    .. math:: \max_g\, s_g^{1/q}\, \mathrm{ECE}_q(g) =
        \max_g \Big(\sum_b \frac{n_{gb}}{n} |\bar p_{gb} - \bar y_{gb}|^{q}\Big)^{1/q}

    with :math:`s_g = n_g / n` the proportion of group g, and :math:`\mathrm{ECE}_q(g)` the
    :func:`ece` of its rows with the same options; q is ``norm``. With ``norm=1``, the error within
    a group is multiplied by its proportion, so small groups count little. ``math.inf`` gives the
    largest gap of any bin of any group, even if the bin holds few rows. Groups may overlap. All
    rows together are a group only if a column says so. Like ``ece``, the estimate is biased upwards
    if bins hold few rows, and the maximum of many groups more so.

    Time O(n_1 + ... + n_g), that of ``ece`` for each group; bins of equal mass also take a sort of
    each group. Memory O(n g) for a copy of the groups.

    Parameters
    ----------
    probs, y, weights, classes, inputs
        Probabilities (n,) or (n, k), labels (n,), row weights (n,), and how they are read, as for
        :func:`ece`.
    groups : array or data frame of shape (n, g)
        True (or 1) where a row belongs to a group. A data frame gives names. Or text (n,), the
        name of the group of each row.
    bins, binning, kind, k, norm : optional
        Options of :func:`ece`. Bins of equal mass are computed within each group.

    Returns
    -------
    MulticalibrationError
        ``error``, ``worst``, and arrays by group.

    Raises
    ------
    TypeError, ValueError
        If :func:`ece` would raise, and for groups with another shape, other values, or no rows.

    References
    ----------
    Ú. Hébert-Johnson, M. P. Kim, O. Reingold and G. N. Rothblum (2018), Multicalibration:
    calibration for the (computationally-identifiable) masses. I. Globus-Harris et al. (2023),
    Multicalibration as boosting for regression. D. Hansen et al. (2024), When is multicalibration
    post-processing necessary?

    Examples
    --------
    Right on average, but wrong by 0.25 for each half:

    >>> from bayescal.metrics import ece
    >>> p, y = [0.5] * 8, [0, 0, 0, 1, 1, 1, 1, 0]
    >>> ece(p, y)
    0.0
    >>> import pandas as pd
    >>> groups = pd.DataFrame({"all": [True] * 8, "young": [True] * 4 + [False] * 4})
    >>> result = multicalibration_error(p, y, groups)
    >>> result.error, result.worst, result.within.tolist()
    (0.125, 'young', [0.0, 0.25])
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    metric = make_ece(checked.columns, bins=bins, binning=binning, kind=kind, k=k, norm=norm)
    _ = checked.probs  # raises for Blocks
    members, labels = check_groups(groups, np.shape(probs)[0])
    names: list[object] = labels or [*range(members.shape[1])]
    if weights is not None:
        members = members[as_numpy(weights, "weights") > 0]
    if not members.any():
        raise ValueError("groups must hold a row of positive weight, got none in any group")
    shares, within = np.zeros(len(names)), np.full(len(names), np.nan)
    total = checked.weights.sum()
    for index, rows in enumerate(members.T):
        if rows.any():
            group = checked.part(rows)
            shares[index] = group.weights.sum() / total
            within[index] = compute(metric, group)
    power = 0.0 if math.isinf(norm) else 1 / norm
    errors = np.where(shares > 0, shares**power * np.nan_to_num(within), 0.0)
    worst = int(np.argmax(errors))
    return MulticalibrationError(float(errors[worst]), names[worst], names, errors, shares, within)
