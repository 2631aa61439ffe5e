"""Proper scores and accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal.metrics._inputs import check_eps, check_predictions

__all__ = ["accuracy", "brier_score", "log_loss"]


def log_loss(probs: Any, y: Any, *, weights: Any = None, eps: float | None = None) -> float:
    r"""Logarithmic loss, the mean negative log probability of what happened.

    .. math:: -\frac{\sum_i w_i \ln p_{i, y_i}}{\sum_i w_i}

    Probabilities are clipped to [eps, 1 - eps] first. The sum runs in float64.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    weights : array of shape (n,), optional
        Non-negative case weights; only their ratios matter.
    eps : float, optional
        Clipping distance in [0, 0.5). By default the machine epsilon of the type of ``probs``,
        2.2e-16 for float64 and 1.2e-7 for float32. With 0 a case that was said to be impossible
        costs infinity.

    Returns
    -------
    float
        Natural logarithm, 0 at best.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, ``probs`` are no probabilities, labels are no class codes, or weights are
        negative or all zero.

    References
    ----------
    I. J. Good (1952), Rational decisions.

    Examples
    --------
    >>> log_loss([0.8, 0.4], [1, 0])
    0.36698...
    >>> log_loss([[0.8, 0.1, 0.1], [0.3, 0.3, 0.4]], [0, 2])
    0.56971...
    """
    checked = check_predictions(probs, y, weights)
    eps = check_eps(eps, checked.eps)
    clipped = np.clip(checked.probs, eps, 1 - eps)
    with np.errstate(divide="ignore"):
        if clipped.ndim == 1:
            happened = np.where(checked.y == 1, np.log(clipped), np.log1p(-clipped))
        else:
            happened = np.log(clipped[np.arange(len(clipped)), checked.y])
    # Adding zero turns the -0.0 of perfect predictions into 0.0.
    return float(-np.average(happened, weights=checked.weights)) + 0.0


def brier_score(probs: Any, y: Any, *, weights: Any = None) -> float:
    r"""Brier score, the mean squared distance between probability and outcome.

    .. math:: \frac{\sum_i w_i (p_i - y_i)^2}{\sum_i w_i}
       \quad\text{or}\quad
       \frac{\sum_i w_i \sum_j (p_{ij} - [y_i = j])^2}{\sum_i w_i}

    With rows for two classes the second form is twice the first.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    weights : array of shape (n,), optional
        Non-negative case weights; only their ratios matter.

    Returns
    -------
    float
        From 0, the best, to 1 for shape (n,) and to 2 for shape (n, k).

    Raises
    ------
    TypeError, ValueError
        As :func:`log_loss`.

    References
    ----------
    G. W. Brier (1950), Verification of forecasts expressed in terms of probability.

    Examples
    --------
    >>> brier_score([0.75, 0.5], [1, 0])
    0.15625
    >>> brier_score([[0.25, 0.75], [0.5, 0.5]], [1, 0])
    0.3125
    """
    checked = check_predictions(probs, y, weights)
    if checked.probs.ndim == 1:
        squares = (checked.probs - checked.y) ** 2
    else:
        distance = checked.probs.copy()
        distance[np.arange(len(checked.y)), checked.y] -= 1
        squares = (distance**2).sum(axis=1)
    return float(np.average(squares, weights=checked.weights))


def accuracy(probs: Any, y: Any, *, weights: Any = None) -> float:
    r"""Share of cases whose most probable class is the one that happened.

    A probability of exactly one half, like all ties, goes to the lowest class.

    .. math:: \frac{\sum_i w_i [\arg\max_j p_{ij} = y_i]}{\sum_i w_i}

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    weights : array of shape (n,), optional
        Non-negative case weights; only their ratios matter.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        As :func:`log_loss`.

    Examples
    --------
    >>> accuracy([0.9, 0.2, 0.6, 0.5], [1, 0, 0, 0])
    0.75
    >>> accuracy([0.9, 0.2], [1, 1], weights=[3, 1])
    0.75
    """
    checked = check_predictions(probs, y, weights)
    if checked.probs.ndim == 1:
        decided = (checked.probs > 0.5).astype(np.int64)
    else:
        decided = checked.probs.argmax(axis=1)
    return float(np.average(decided == checked.y, weights=checked.weights))
