"""The calibration error where the true probabilities are known."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.checks import check_norm
from bayescal.data.predictions import (
    Classes,
    Inputs,
    Predictions,
    Reading,
    as_rows,
    largest,
    of_class,
    read_truth,
)
from bayescal.metrics.calibration.ece import SINGLE, resolve_kind


@ignoring_underflow
def true_calibration_error(
    probs: ArrayLike,
    true_probs: ArrayLike,
    *,
    kind: Literal["binary", "confidence", "classwise"] | None = None,
    norm: float = 1,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the mean distance of probabilities from the true ones.

    .. math:: \Big( \frac{\sum_i w_i |p_i - c_i|^q}{\sum_i w_i} \Big)^{1/q}

    where :math:`c_i` is the true probability of the event with predicted probability :math:`p_i`,
    and q is ``norm``. If the true probabilities are conditional on the predictions, this is the
    calibration error that :func:`ece` and similar metrics estimate from labels. If they are
    conditional on all features, it includes the part that no calibration map can remove.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or class probabilities in rows.
    true_probs : array of the same shape
        What the probabilities should be. Columns of two data frames go by their names.
    kind : {"binary", "confidence", "classwise"}, optional
        Events: y = 1; that the predicted class happens; or each class in turn, averaged inside the
        root. By default "binary" for two classes and "confidence" for more.
    norm : float, default 1
        q above, at least 1; ``math.inf`` gives the largest distance.
    weights, classes, inputs : optional
        Row weights (n,), and how arrays are read, as for :func:`log_loss`.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If :func:`ece` would raise, or if ``true_probs`` are not probabilities.

    Examples
    --------
    >>> true_calibration_error([0.2, 0.9], [0.3, 0.7])
    0.15
    >>> true_calibration_error([[0.5, 0.3, 0.2]], [[0.4, 0.4, 0.2]], kind="classwise")
    0.06666...
    """
    norm = check_norm(norm)
    reading = Reading(classes, inputs)
    checked = as_predictions(probs, reading.any_labels(probs), weights, reading)
    predicted, truth, _ = matched(checked, true_probs, weights, kind, given=probs)
    distance = np.abs(predicted - truth)
    if math.isinf(norm):
        return float(distance.max())
    powers = distance**norm
    by_case = powers if powers.ndim == 1 else powers.mean(axis=1)
    return float(np.average(by_case, weights=checked.weights) ** (1 / norm))


def matched(
    checked: Predictions,
    truth: ArrayLike,
    weights: ArrayLike | None,
    kind: str | None,
    name: str = "true_probs",
    given: object = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predicted probabilities, other probabilities, and outcomes of events.

    Their shape is (n,) or (n, k).
    """
    assert checked.classes is not None
    truth = read_truth(truth, checked.probs, weights, checked.classes, name, given)
    chosen, _ = resolve_kind(kind, None, checked.columns, (*SINGLE, "classwise"))
    predicted, happened = checked.probs, checked.y
    if chosen == "binary":
        return predicted, truth, happened
    predicted, truth = as_rows(predicted), as_rows(truth)
    if chosen == "classwise":
        return predicted, truth, happened[:, None] == np.arange(predicted.shape[1])
    confidence, label = largest(predicted, np)
    return np.asarray(confidence), np.asarray(of_class(truth, label, np)), label == happened
