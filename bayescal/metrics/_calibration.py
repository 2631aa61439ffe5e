"""Binned reliability curves and the expected calibration error that is read off them."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np

from bayescal._core.checks import check_choice, check_count
from bayescal.metrics._inputs import Predictions, check_norm, check_predictions

__all__ = ["ReliabilityCurve", "ece", "reliability_curve"]

Binning = Literal["equal_width", "equal_mass"]
Kind = Literal["binary", "confidence"]


class ReliabilityCurve(NamedTuple):
    """Predicted and observed frequency in each bin that holds a case.

    Attributes
    ----------
    predicted : array of shape (bins,)
        Mean prediction: of P(y = 1), or of the confidence.
    observed : array of shape (bins,)
        Share of cases with y = 1, or of cases that were classified correctly.
    weight : array of shape (bins,)
        Sum of the case weights: the number of cases where no weights were given.
    """

    predicted: np.ndarray
    observed: np.ndarray
    weight: np.ndarray


def reliability_curve(
    probs: Any,
    y: Any,
    *,
    bins: int = 15,
    binning: Binning = "equal_width",
    kind: Kind | None = None,
    weights: Any = None,
) -> ReliabilityCurve:
    r"""Mean predicted and observed frequency, bin by bin.

    Bins of equal width are (lower, upper], with 0 in the first. Bins of equal mass hold equally
    many cases, the first ones one more where the number does not divide; cases with the same
    prediction that lie across a border are shared between the bins in proportion, so the order of
    the cases does not matter. Weights that are whole numbers are counts: the same as repeating
    cases. Other weights are shares, and each bin of equal mass holds exactly the same share.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    bins : int, default 15
        Number of bins; empty ones are left out of the result.
    binning : {"equal_width", "equal_mass"}
        How the bins are laid out.
    kind : {"binary", "confidence"}, optional
        "binary" compares P(y = 1) with the frequency of y = 1 and needs two classes; "confidence"
        compares the largest probability with the frequency of being right. By default "binary"
        for shape (n,) and "confidence" for shape (n, k).
    weights : array of shape (n,), optional
        Non-negative case weights.

    Returns
    -------
    ReliabilityCurve
        Arrays ``predicted``, ``observed`` and ``weight``, in ascending order of ``predicted``.

    Raises
    ------
    TypeError, ValueError
        As :func:`log_loss`, and for unknown bins or kinds.

    References
    ----------
    M. H. DeGroot and S. E. Fienberg (1983), The comparison and evaluation of forecasters.

    Examples
    --------
    >>> curve = reliability_curve([0.1, 0.3, 0.9, 0.7], [0, 1, 1, 1], bins=2)
    >>> curve.predicted.tolist(), curve.observed.tolist(), curve.weight.tolist()
    ([0.2, 0.8], [0.5, 1.0], [2.0, 2.0])
    """
    bins = check_count(bins, "bins")
    check_choice(binning, "binning", ("equal_width", "equal_mass"))
    predicted, observed, weight = _events(check_predictions(probs, y, weights), kind)
    sums = _equal_width if binning == "equal_width" else _equal_mass
    total, total_predicted, total_observed = sums(predicted, observed, weight, bins)
    filled = total > 0
    total = total[filled]
    return ReliabilityCurve(total_predicted[filled] / total, total_observed[filled] / total, total)


def ece(
    probs: Any,
    y: Any,
    *,
    bins: int = 15,
    binning: Binning = "equal_width",
    kind: Kind | None = None,
    norm: float = 1,
    weights: Any = None,
) -> float:
    r"""Return the expected calibration error: the mean gap of predicted and observed frequency.

    .. math:: \Big(\sum_b \frac{n_b}{n} |\bar p_b - \bar y_b|^{q}\Big)^{1/q}

    over the bins of :func:`reliability_curve`, which says how they are made; q is ``norm``.
    This plug-in estimate is biased upwards when bins hold few cases.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or one row of class probabilities per case.
    y : array of shape (n,)
        Labels in {0, 1}, or class codes in {0, ..., k - 1}.
    bins : int, default 15
        Number of bins.
    binning : {"equal_width", "equal_mass"}
        How the bins are laid out.
    kind : {"binary", "confidence"}, optional
        What is predicted: P(y = 1), or the largest probability. By default "binary" for shape
        (n,) and "confidence" for shape (n, k).
    norm : float, default 1
        Order of the norm over bins, at least 1; ``math.inf`` gives the maximum calibration error.
    weights : array of shape (n,), optional
        Non-negative case weights.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        As :func:`log_loss`, and for unknown bins, kinds or norms.

    References
    ----------
    M. P. Naeini, G. F. Cooper and M. Hauskrecht (2015), Obtaining well calibrated probabilities
    using Bayesian binning.

    Examples
    --------
    Two bins, with gaps of 0.3 and 0.2, two cases in each:

    >>> ece([0.1, 0.3, 0.9, 0.7], [0, 1, 1, 1], bins=2)
    0.25
    """
    norm = check_norm(norm)
    curve = reliability_curve(probs, y, bins=bins, binning=binning, kind=kind, weights=weights)
    gaps = np.abs(curve.predicted - curve.observed)
    if math.isinf(norm):
        return float(gaps.max())
    return float(np.average(gaps**norm, weights=curve.weight) ** (1 / norm))


def _events(checked: Predictions, kind: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the predicted probability of an event, whether it happened, and the weights."""
    probs, y = checked.probs, checked.y
    if kind is None:
        kind = "binary" if probs.ndim == 1 else "confidence"
    check_choice(kind, "kind", ("binary", "confidence"))
    if kind == "binary":
        if probs.ndim == 2:
            if probs.shape[1] != 2:
                raise ValueError(
                    f"kind must be 'confidence' for {probs.shape[1]} classes, got 'binary'"
                )
            probs = probs[:, 1]
        return probs, y.astype(np.float64), checked.weights
    if probs.ndim == 1:
        probs = np.stack([1 - probs, probs], axis=1)
    right = probs.argmax(axis=1) == y
    return probs.max(axis=1), right.astype(np.float64), checked.weights


def _equal_width(
    predicted: np.ndarray, observed: np.ndarray, weight: np.ndarray, bins: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum weights, predictions and outcomes over the bins (lower, upper]."""
    # Quotients are rounded correctly, so that 0.2 lies on the border 3 / 15; linspace is not.
    borders = np.arange(1, bins) / bins
    place = np.searchsorted(borders, predicted, side="left")

    def over_bins(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, values, minlength=bins)

    return over_bins(weight), over_bins(weight * predicted), over_bins(weight * observed)


def _equal_mass(
    predicted: np.ndarray, observed: np.ndarray, weight: np.ndarray, bins: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum weights, predictions and outcomes over bins of equal mass.

    Cumulative sums over distinct predictions, straight in between, are read off at the borders:
    that shares ties and the cases on a border in proportion.
    """
    distinct, place = np.unique(predicted, return_inverse=True)

    def cumulative(values: np.ndarray) -> np.ndarray:
        return np.concatenate([[0.0], np.cumsum(np.bincount(place, values, len(distinct)))])

    mass = cumulative(weight)
    total = mass[-1]
    steps = np.arange(bins + 1)
    if np.array_equal(weight, np.floor(weight)):
        size, rest = divmod(total, bins)
        borders = steps * size + np.minimum(steps, rest)
    else:
        borders = steps / bins * total

    def over_bins(values: np.ndarray) -> np.ndarray:
        return np.diff(np.interp(borders, mass, cumulative(values)))

    return np.diff(borders), over_bins(weight * predicted), over_bins(weight * observed)
