"""Proper scores and accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from types import ModuleType

import numpy as np

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_eps
from bayescal.data.predictions import (
    EPS,
    Classes,
    Inputs,
    Outcomes,
    Predictions,
    Reading,
    largest,
    of_class,
)
from bayescal.metrics.sums import MeanMetric, compute


@ignoring_underflow
def log_loss(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    eps: float | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    outcomes: Outcomes = "labels",
) -> float:
    r"""Compute the log loss: the mean negative log probability of the true class.

    .. math:: -\frac{\sum_i w_i \ln p_{i, y_i}}{\sum_i w_i}

    Probabilities are clipped to [eps, 1 - eps] first. The sum runs in float64.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), or Blocks
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,) or (n, k)
        Labels 0, ..., k - 1, or any other values (see ``classes``); or one-hot rows.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    eps : float, optional
        Clipping distance in [0, 0.5). By default the machine epsilon of float64, 2.2e-16, for
        probabilities of any type. With 0, a true class of probability zero costs infinity.
    classes : sequence of k labels, or int, optional
        The labels of the columns in order; k stands for 0, ..., k - 1. Without it, labels are
        booleans or 0, ..., k - 1 (in arrays in memory also -1 and 1 for two classes), or sorted
        strings or dates if all k occur. With strings as classes, numbers in ``y`` are positions
        among them. Data frame columns named like the classes, such as "yes" or "p_yes", may have
        any order.
    inputs : {"probs", "logits"}
        Whether ``probs`` are probabilities, or logits; logits of shape (n,) are log odds of the
        second class. Probabilities of logits are computed in float64. A logit of minus infinity
        marks an unavailable option, with probability zero.
    outcomes : {"labels", "fractional"}
        With "fractional", ``y`` holds proportions of outcomes: rows (n, k) that sum to one, or
        numbers (n,) in [0, 1], such as 0.5 for a tied game. A row counts as one row of each
        outcome, weighted by its proportion.

    Returns
    -------
    float
        In nats, 0 at best.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, ``probs`` are not probabilities, labels are missing or not among the
        classes, weights are negative or all zero, or labels come first, as in scikit-learn.

    References
    ----------
    I. J. Good (1952), Rational decisions.

    Examples
    --------
    >>> log_loss([0.8, 0.4], [1, 0])
    0.36698...
    >>> log_loss([[0.8, 0.1, 0.1], [0.3, 0.3, 0.4]], [0, 2])
    0.56971...
    >>> log_loss([[0.8, 0.1, 0.1], [0.3, 0.3, 0.4]], ["a", "c"], classes=["a", "b", "c"])
    0.56971...
    """
    reading = for_log_loss(Reading(classes, inputs, outcomes), eps)
    checked = as_predictions(probs, y, weights, reading, on_device=True)
    return compute(LogLoss(check_eps(eps, checked.eps)), checked)


def for_log_loss(reading: Reading, eps: object) -> Reading:
    """Read both classes if logarithms are clipped so late that 1 - p would lose a small p."""
    if isinstance(eps, Real) and eps < EPS and reading.second:
        return replace(reading, second=False, both=reading.inputs == "logits")
    return reading


@ignoring_underflow
def brier_score(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    outcomes: Outcomes = "labels",
) -> float:
    r"""Compute the Brier score: the mean squared distance between probability and outcome.

    .. math:: \frac{\sum_i w_i (p_i - y_i)^2}{\sum_i w_i}
       \quad\text{or}\quad
       \frac{\sum_i w_i \sum_j (p_{ij} - [y_i = j])^2}{\sum_i w_i}

    The first form is for two classes, whether ``probs`` have one column or two; the second is for
    three and more classes. For fractional outcomes, y is the fraction itself.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), or Blocks
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,) or (n, k)
        Labels 0, ..., k - 1, or any other values (see ``classes``); or one-hot rows.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    outcomes : {"labels", "fractional"}
        Whether ``y`` holds labels or proportions of outcomes, as in :func:`log_loss`.

    Returns
    -------
    float
        From 0, the best, to 1 for two classes and to 2 for more.

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise.

    References
    ----------
    G. W. Brier (1950), Verification of forecasts expressed in terms of probability.

    Examples
    --------
    >>> brier_score([0.75, 0.5], [1, 0])
    0.15625
    >>> brier_score([[0.25, 0.75], [0.5, 0.5]], [1, 0])
    0.15625
    >>> brier_score([[0.2, 0.7, 0.1], [0.5, 0.3, 0.2]], [1, 0])
    0.26
    """
    reading = Reading(classes, inputs, outcomes)
    checked = as_predictions(probs, y, weights, reading, on_device=True)
    score = compute(BrierScore(checked.columns), checked)
    if outcomes == "labels":
        return score
    # The score of labels drawn with these frequencies, minus their variance.
    return score - float(checked.weights @ checked.excess / checked.weights.sum())


@ignoring_underflow
def accuracy(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the accuracy: the fraction of rows whose most probable class is the true one.

    A probability of exactly one half, like all ties, goes to the lowest class.

    .. math:: \frac{\sum_i w_i [\arg\max_j p_{ij} = y_i]}{\sum_i w_i}

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), or Blocks
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise.

    Examples
    --------
    >>> accuracy([0.9, 0.2, 0.6, 0.5], [1, 0, 0, 0])
    0.75
    >>> accuracy([0.9, 0.2], [1, 1], weights=[3, 1])
    0.75
    """
    reading = Reading(classes, inputs)
    return compute(Accuracy(), as_predictions(probs, y, weights, reading, on_device=True))


@dataclass(frozen=True)
class LogLoss(MeanMetric):
    """The logarithmic loss; without ``eps``, clipped where float64 ends."""

    eps: float | None = None

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, math.inf

    def cost(self, data: Predictions, xp: ModuleType) -> Array:
        eps = data.eps if self.eps is None else self.eps
        probs, y, rounding = data.probs, data.y, 0.0
        if probs.ndim == 2:
            true_prob = of_class(probs, y, xp)
        else:
            true_prob = probs if data.first is None else xp.where(y == 0, data.first, probs)
        true_prob = xp.clip(true_prob, eps, 1 - eps)
        if probs.ndim == 1 and data.first is None:
            # 1 - p for class 0 is rounded; the rounding error is computed exactly.
            is_zero = (y == 0).astype(true_prob.dtype)
            prob_of_one, true_prob = true_prob, true_prob - is_zero
            rounding = true_prob + is_zero
            rounding -= prob_of_one
            rounding /= true_prob + xp.finfo(true_prob.dtype).tiny
        with np.errstate(divide="ignore"):
            logs = xp.log(abs(true_prob))
        logs -= rounding
        # Subtracting from zero turns the -0.0 of perfect predictions into 0.0.
        return 0.0 - logs


@dataclass(frozen=True)
class BrierScore(MeanMetric):
    """The Brier score, for probabilities with this many columns."""

    columns: int | None = None

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0 if self.columns is None else 2.0

    def cost(self, data: Predictions, xp: ModuleType) -> Array:
        probs, y = data.probs, data.y
        if probs.ndim == 1:
            return (probs - y.astype(probs.dtype)) ** 2
        # The other classes, and the true one.
        true_prob = of_class(probs, y, xp)
        others = xp.einsum("ij,ij->i", probs, probs) - true_prob**2
        return xp.maximum(others, 0) + (1 - true_prob) ** 2


@dataclass(frozen=True)
class Accuracy(MeanMetric):
    """The proportion of rows whose most probable class is the true one."""

    def cost(self, data: Predictions, xp: ModuleType) -> Array:
        probs, y = data.probs, data.y
        decided = (probs > 0.5).astype(y.dtype) if probs.ndim == 1 else largest(probs, xp)[1]
        return (decided == y).astype(probs.dtype)
