"""The calibration error of groups of cases that may overlap."""

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
        The greatest of ``errors``.
    worst : object
        Its group: the name of the column of a data frame, or the position; the first of equals.
    groups : list of g names or positions
    errors : array of shape (g,)
        Of each group the error within, times the root of order q of its share.
    shares : array of shape (g,)
        Weight of the group by the weight of all cases.
    within : array of shape (g,)
        Error within the group, by its cases alone; NaN for groups without cases.
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
    r"""Compute the largest calibration error over groups, each weighted by its share of cases.

    .. math:: \max_g\, s_g^{1/q}\, \mathrm{ECE}_q(g) =
        \max_g \Big(\sum_b \frac{n_{gb}}{n} |\bar p_{gb} - \bar y_{gb}|^{q}\Big)^{1/q}

    with :math:`s_g = n_g / n` the share of group g, and :math:`\mathrm{ECE}_q(g)` the :func:`ece`
    of its cases alone, by the same options; q is ``norm``. With ``norm=1`` it is the share times
    the error within, so that a small group counts only as much as it weighs; ``math.inf`` gives the
    greatest gap of any bin of any group, however few its cases. Groups may overlap. All cases
    together are a group only if a column says so. As ``ece``, the estimate is biased upwards where
    bins hold few cases, and the greatest of many groups more so.

    Time is that of ``ece`` for each group: O(n_1 + ... + n_g), of bins of equal mass with a sort
    of the group; memory O(n g) for a copy of the groups.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    groups : array or data frame of shape (n, g)
        True (or 1) where a case belongs to a group. A data frame gives names. Or text (n,), the
        name of the group of each case.
    bins, binning, kind, k, norm : optional
        As :func:`ece` has them. Bins of equal mass are those of the group.
    weights : array of shape (n,), optional
        Non-negative case weights.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    MulticalibrationError
        ``error``, ``worst``, and arrays by group.

    Raises
    ------
    TypeError, ValueError
        As :func:`ece`, and for groups of another shape, with other values, or without any case.

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
        raise ValueError("groups must hold a case of positive weight, got none in any group")
    shares, within = np.zeros(len(names)), np.full(len(names), np.nan)
    total = checked.weights.sum()
    for index, rows in enumerate(members.T):
        if rows.any():
            group = checked._replace(
                probs=checked.probs[rows], y=checked.y[rows], weights=checked.weights[rows]
            )
            shares[index] = group.weights.sum() / total
            within[index] = compute(metric, group)
    power = 0.0 if math.isinf(norm) else 1 / norm
    errors = np.where(shares > 0, shares**power * np.nan_to_num(within), 0.0)
    worst = int(np.argmax(errors))
    return MulticalibrationError(float(errors[worst]), names[worst], names, errors, shares, within)
