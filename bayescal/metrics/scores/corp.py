"""Scores decomposed by isotonic regression."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_choice, check_eps
from bayescal.data.order.cumulative import sums_by_prediction
from bayescal.data.predictions import Classes, Inputs, Reading
from bayescal.metrics.calibration.ece import SINGLE, find_events, resolve_kind


class Corp(NamedTuple):
    """A mean score and its parts: score = miscalibration - discrimination + uncertainty.

    Attributes
    ----------
    score : float
        Mean score of the predictions.
    miscalibration : float
        Loss that recalibration would save, at least 0.
    discrimination : float
        Loss that recalibrated predictions save compared with a constant, at least 0.
    uncertainty : float
        Score of the constant prediction that equals the observed frequency.
    predicted : array of shape (m,)
        Distinct predictions, ascending.
    recalibrated : array of shape (m,)
        Isotonic regression of outcomes on predictions: the reliability diagram.
    weight : array of shape (m,)
        Sum of the weights of each distinct prediction.
    """

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    predicted: np.ndarray
    recalibrated: np.ndarray
    weight: np.ndarray


@ignoring_underflow
def corp(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    score: Literal["brier", "log_loss"] = "brier",
    kind: Literal["binary", "confidence"] | None = None,
    eps: float | None = None,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> Corp:
    r"""Decompose a score into miscalibration, discrimination and uncertainty.

    With :math:`\hat c` the isotonic regression of outcomes on predictions (the best monotone
    recalibration for every proper score), and mean scores S,

    .. math:: \mathrm{MCB} = S(p) - S(\hat c(p)), \qquad
        \mathrm{DSC} = S(\bar y) - S(\hat c(p)), \qquad \mathrm{UNC} = S(\bar y),

    so that :math:`S(p) = \mathrm{MCB} - \mathrm{DSC} + \mathrm{UNC}`. Unlike bins, it needs no
    choices. Time O(n log n).

    Parameters
    ----------
    probs, y, weights, classes, inputs
        Probabilities (n,) or (n, k), labels (n,), row weights (n,), and how they are read, as for
        :func:`log_loss`.
    score : {"brier", "log_loss"}
        The squared distance of prediction and outcome, or the logarithmic loss in nats.
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for two
        classes and "confidence" for more.
    eps : float, optional
        Distance from 0 and 1 at which probabilities are clipped for "log_loss", as in
        :func:`log_loss`.

    Returns
    -------
    Corp

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or for unknown scores or kinds.

    References
    ----------
    T. Dimitriadis, T. Gneiting and A. I. Jordan (2021), Stable reliability diagrams for
    probabilistic classifiers.

    Examples
    --------
    >>> result = corp([0.1, 0.4, 0.6, 0.8], [0, 1, 0, 1])
    >>> result.recalibrated.tolist()
    [0.0, 0.5, 0.5, 1.0]
    >>> result.score, result.miscalibration, result.discrimination, result.uncertainty
    (0.1925, 0.0675, 0.125, 0.25)
    """
    from scipy.optimize import isotonic_regression

    check_choice(score, "score", ("brier", "log_loss"))
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    eps = check_eps(eps, checked.eps)
    chosen, _ = resolve_kind(kind, None, checked.columns, SINGLE)
    events = find_events(checked, chosen, 1, np)
    fractions = checked.weights / checked.weights.sum()
    addends = np.stack([fractions * events.happened, fractions])
    predicted, (happened, mass) = sums_by_prediction(events.predicted, addends)
    # Sums of weights carry rounding errors.
    frequency = np.clip(happened / mass, 0, 1)
    recalibrated = isotonic_regression(frequency, weights=mass).x

    def mean_score(p: np.ndarray) -> float:
        if score == "brier":
            costs = happened * (1 - p) ** 2 + (mass - happened) * p**2
        else:
            p = np.clip(p, eps, 1 - eps)
            # Outcomes of weight zero cost nothing, even if their logarithm is infinite.
            with np.errstate(divide="ignore", invalid="ignore"):
                costs = -np.where(happened > 0, happened * np.log(p), 0)
                costs = costs - np.where(mass > happened, (mass - happened) * np.log1p(-p), 0)
        return float(costs.sum())

    total = mean_score(predicted)
    best = mean_score(recalibrated)
    constant = mean_score(np.full_like(predicted, happened.sum() / mass.sum()))
    return Corp(
        total,
        max(total - best, 0.0),
        max(constant - best, 0.0),
        constant,
        predicted,
        recalibrated,
        mass * checked.weights.sum(),
    )
