"""Scores of a ranking: area under the ROC curve, and average precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading

#: Rows from which reports omit rankings by default: sorting takes longer than the rest.
_MANY_ROWS = 100_000


class Ranked(NamedTuple):
    """A score, and its derivatives (n,) with respect to the weights of rows."""

    value: float
    influence: np.ndarray


@ignoring_underflow
def roc_auc(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the area under the ROC curve: how well probabilities rank rows of two classes.

    .. math:: P(p_i > p_j \mid y_i = 1, y_j = 0) + \tfrac12 P(p_i = p_j \mid y_i = 1, y_j = 0)

    It says nothing about calibration: strictly increasing maps do not change it. Equal to
    :func:`sklearn.metrics.roc_auc_score`.

    Parameters
    ----------
    probs : array of shape (n,) or (n, 2)
        P(y = 1), or rows of two probabilities.
    y : array of shape (n,)
        Labels: 0 and 1, or any others (``classes``). Both classes must occur.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    float
        From 0 to 1, the best; 0.5 for a constant.

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, for more than two classes, or if a class does not occur.

    References
    ----------
    E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson (1988), Comparing the areas under two or
    more correlated receiver operating characteristic curves: a nonparametric approach.

    Examples
    --------
    >>> roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    return rank("roc_auc", as_predictions(probs, y, weights, Reading(classes, inputs))).value


@ignoring_underflow
def average_precision(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the average precision: the mean over rows of class 1 of the precision at their rank.

    .. math:: \frac{\sum_i w_i y_i \, P(y = 1 \mid p \ge p_i)}{\sum_i w_i y_i}

    It judges how well probabilities find a rare class, and says nothing about calibration. Equal to
    :func:`sklearn.metrics.average_precision_score`.

    Parameters
    ----------
    probs : array of shape (n,) or (n, 2)
        P(y = 1), or rows of two probabilities.
    y : array of shape (n,)
        Labels: 0 and 1, or any others (``classes``). Both classes must occur.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    float
        Up to 1, the best; the proportion of class 1 for a constant.

    Raises
    ------
    TypeError, ValueError
        If :func:`roc_auc` would raise.

    Examples
    --------
    >>> average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.83...
    """
    reading = Reading(classes, inputs)
    return rank("average_precision", as_predictions(probs, y, weights, reading)).value


def rank(name: str, data: Predictions) -> Ranked:
    """Compute a score of a ranking with the derivatives of its value."""
    if not isinstance(data, Predictions):
        raise TypeError(f"probs must be arrays in memory for {name}, which sorts all rows")
    if data.columns is not None:
        raise ValueError(
            f"probs must be of two classes for {name}, got {data.columns} columns; pass one column "
            "and whether its class happened"
        )
    probs, y = np.asarray(data.probs), np.asarray(data.y)
    if y.min() == y.max():
        raise ValueError(f"y must hold both classes for {name}, got one")
    cell, happened = np.unique(probs, return_inverse=True)[1], y == 1
    ones, zeros = (np.bincount(cell, data.weights * part) for part in (happened, ~happened))
    value, of_one, of_zero = RANKINGS[name](ones, zeros)
    return Ranked(float(value), np.where(happened, of_one[cell], of_zero[cell]))


def can_rank(data: object) -> bool:
    """Return whether reports rank predictions: two classes, both present, and few rows."""
    return (
        isinstance(data, Predictions)
        and data.columns is None
        and len(data.y) < _MANY_ROWS
        and data.y.min() < data.y.max()
    )


def _roc_auc(ones: np.ndarray, zeros: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Compute the area, and its derivatives with respect to weights of both classes by cell."""
    zeros_below = np.cumsum(zeros) - zeros / 2
    ones_above = np.cumsum(ones[::-1])[::-1] - ones / 2
    all_ones, all_zeros = ones.sum(), zeros.sum()
    pairs = all_ones * all_zeros
    value = ones @ zeros_below / pairs
    return value, zeros_below / pairs - value / all_ones, ones_above / pairs - value / all_zeros


def _average_precision(ones: np.ndarray, zeros: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Compute the mean, and its derivatives with respect to weights of both classes by cell."""
    true_positives = np.cumsum(ones[::-1])[::-1]
    predicted_positives = np.cumsum((ones + zeros)[::-1])[::-1]
    precision, all_ones = true_positives / predicted_positives, ones.sum()
    value = ones @ precision / all_ones
    # A row counts in the precision at its probability and at all lower ones.
    of_zero = -np.cumsum(ones * precision / predicted_positives) / all_ones
    of_one = of_zero + np.cumsum(ones / predicted_positives) / all_ones
    return value, of_one + (precision - value) / all_ones, of_zero


RANKINGS = {"roc_auc": _roc_auc, "average_precision": _average_precision}
