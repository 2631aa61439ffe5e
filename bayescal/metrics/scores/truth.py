"""Calibration errors beside other probabilities: the true ones, or those of a calibrator."""

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
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        The names of columns, and what ``probs`` are, as in :func:`log_loss`.

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


@ignoring_underflow
def variational_ece(
    probs: ArrayLike,
    y: ArrayLike,
    recalibrated: ArrayLike,
    *,
    kind: Literal["binary", "confidence", "classwise"] | None = None,
    norm: float = 1,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute a lower bound on the calibration error, from other probabilities.

    Let g be the probabilities that a calibrator fitted to **other** rows, as in cross-validation,
    computes from p. They show that p are wrong to the extent that the labels agree with g:

    .. math:: \frac{\sum_i w_i \big( d_i^q + q\, d_i^{q-1} s_i\, (e_i - g_i) \big)}{\sum_i w_i},
        \qquad d_i = |g_i - p_i|, \quad s_i = \operatorname{sign}(g_i - p_i)

    with :math:`e_i` whether the event happened, and q the ``norm``. Because :math:`|g - p|^q` is
    convex in g, the expectation is largest if g is the true probability of the event given p; then
    it is :math:`\mathrm E |P(e \mid p) - p|^q`, the error itself. The mean is thus too small by
    what the calibrator misses, but it has no bias from bins, even for many classes. The better the
    calibrator, the tighter the bound. The result is the root of order q of the mean, with its sign:
    a value below zero means that nothing is proved.

    Similarly, the loss of g estimates from above the refinement error, which no map of p can
    remove. The loss of p minus the loss of g estimates the calibration error under this loss: use
    ``log_loss(probs, y) - log_loss(recalibrated, y)``.

    Time O(n k).

    Parameters
    ----------
    probs, y, weights, classes, inputs
        Probabilities (n,) or (n, k), labels (n,), row weights (n,), and how they are read, as for
        :func:`log_loss`.
    recalibrated : array of the shape of ``probs``
        g: probabilities from calibrators that were not fitted to the labels of these rows.
    kind : {"binary", "confidence", "classwise"}, optional
        Events: y = 1; that the predicted class happens; or each class in turn, averaged inside the
        root. By default "binary" for two classes and "confidence" for more. Always pass all
        probabilities of a row, not only that of the event.
    norm : float, default 1
        q above, finite and at least 1.

    Returns
    -------
    float
        A fraction of at most 1.

    Raises
    ------
    TypeError, ValueError
        If :func:`true_calibration_error` would raise, or for an infinite norm.

    References
    ----------
    A variational estimator for Lp calibration errors (2026), arXiv:2602.24230. E. Berta,
    D. Holzmüller, M. I. Jordan and F. Bach (2025), Rethinking early stopping: refine, then
    calibrate, arXiv:2501.19195.

    Examples
    --------
    Probabilities of 0.9 for what happens in 8 of 10 rows:

    >>> import bayescal as bc
    >>> y = [1] * 8 + [0] * 2
    >>> round(bc.metrics.variational_ece([0.9] * 10, y, [0.8] * 10), 6)
    0.1

    >>> from sklearn.model_selection import cross_val_predict
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(2000)
    >>> y = rng.random(2000) < p**2  # The error is 1/6.
    >>> g = cross_val_predict(bc.AveragedBeta(), p, y, cv=5, method="predict_proba")[:, 1]
    >>> round(bc.metrics.variational_ece(p, y, g), 3)
    0.169
    """
    norm = check_norm(norm)
    if math.isinf(norm):
        raise ValueError(f"norm must be finite, got {norm}; use true_calibration_error or ece")
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    predicted, reference, happened = matched(
        checked, recalibrated, weights, kind, "recalibrated", probs
    )
    distance, sign = np.abs(reference - predicted), np.sign(reference - predicted)
    slope = norm * (distance ** (norm - 1)) * sign
    by_case = distance**norm + slope * (happened - reference)
    by_case = by_case if by_case.ndim == 1 else by_case.mean(axis=1)
    mean = float(np.average(by_case, weights=checked.weights))
    return math.copysign(abs(mean) ** (1 / norm), mean)
