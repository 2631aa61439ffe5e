"""Metrics of multi-label predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import numpy as np

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.binning import TIE, bin_of, binned_error
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_choice, check_count, check_level, check_norm
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.metrics.calibration.cumulative import (
    CUMULATIVE_KINDS,
    CumulativeError,
    CumulativeKind,
)
from bayescal.metrics.calibration.ece import BINNINGS, Binning
from bayescal.metrics.calibration.mass import MassMetric
from bayescal.metrics.sums import BinMetric, Group, MeanMetric, Piece, WidthMetric, compute


@other_words
@ignoring_underflow
def multilabel_ece(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    average: Literal["total", "weighted", "mean"] = "total",
    bins: int = 10,
    binning: Binning = "equal_width",
    norm: float = 1,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the calibration errors of all labels, and combine them.

    With :math:`\mathrm{ECE}_l` the error of label l against its absence, as :func:`ece` defines it,
    and :math:`n_l` the number of n rows that have the label,

    .. math:: \mathrm{ECE}_{total} = \sum_l \mathrm{ECE}_l, \qquad
        \mathrm{ECE}_{weighted} = \sum_l \frac{n_l}{n} \mathrm{ECE}_l .

    Parameters
    ----------
    probs : array of shape (n, l), or list of l arrays of shape (n, 2), or Blocks
        Probability of each label for each row; or of its absence and presence, as scikit-learn
        gives it.
    y : array or sparse matrix of shape (n, l)
        1 where a row has the label, else 0, of any type.
    average : {"total", "weighted", "mean"}
        One of the sums above, or the total divided by the number of labels.
    bins : int, default 10
        Number of bins for each label.
    binning : {"equal_width", "equal_mass"}
        How the bins are laid out.
    norm : float, default 1
        Order of the norm over bins, as in :func:`ece`.
    weights : array of shape (n,), optional
        Non-negative weights of rows.
    classes : sequence of l names, optional
        Names of the columns in order. Data frame columns with these names may have any order.
    inputs : {"probs", "logits"}
        Whether ``probs`` are probabilities or the log odds of each label.

    Returns
    -------
    float
        From 0 to the number of labels, or to 1 for "mean". The weighted sum may exceed 1 if rows
        have several labels.

    Raises
    ------
    TypeError, ValueError
        If shapes differ, ``probs`` are not probabilities, labels are not 0 or 1, or options or
        weights are invalid.

    References
    ----------
    A theoretical insight of histogram binning and extending to multi-label classification,
    anonymous submission to ICLR.

    Examples
    --------
    Errors of 0.25 and 0.5 with one bin; one of two rows has the first label, none the second:

    >>> probs, y = [[0.5, 0.5], [1.0, 0.5]], [[0, 0], [1, 0]]
    >>> multilabel_ece(probs, y, bins=1), multilabel_ece(probs, y, bins=1, average="weighted")
    (0.75, 0.125)
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs, multilabel=True))
    labels = checked.columns
    metric = make_multilabel(labels, average=average, bins=bins, binning=binning, norm=norm)
    return compute(metric, checked)


@ignoring_underflow
def multilabel_ecce(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    kind: CumulativeKind = "max",
    average: Literal["total", "weighted", "mean"] = "total",
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the cumulative calibration errors of all labels, and combine them.

    The error of each label is that of :func:`ecce`, which needs no bins.

    Parameters
    ----------
    probs, y, weights, classes, inputs
        Probabilities (n, l) or Blocks, labels (n, l), row weights (n,), and how they are read, as
        for :func:`multilabel_ece`.
    kind : {"max", "range"}
        See :func:`ecce`.
    average : {"total", "weighted", "mean"}
        How the errors of labels are added, see :func:`multilabel_ece`.

    Returns
    -------
    float
        From 0 to the number of labels, or to 1 for "mean".

    Raises
    ------
    TypeError, ValueError
        If :func:`multilabel_ece` would raise, or for unknown kinds.

    Examples
    --------
    Errors of 0.25 and 0.5:

    >>> probs, y = [[0.5, 0.5], [1.0, 0.5]], [[0, 0], [1, 0]]
    >>> multilabel_ecce(probs, y), multilabel_ecce(probs, y, average="mean")
    (0.75, 0.375)
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs, multilabel=True))
    return compute(make_multilabel_ecce(checked.columns, kind=kind, average=average), checked)


@ignoring_underflow
def hamming_loss(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    threshold: float = 0.5,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the fraction of wrong labels.

    .. math:: \frac{\sum_i w_i \sum_{l=1}^L [(p_{il} > t) \neq y_{il}]}{L \sum_i w_i}

    Parameters
    ----------
    probs, y, weights, classes, inputs
        Probabilities (n, l) or Blocks, labels (n, l), row weights (n,), and how they are read, as
        for :func:`multilabel_ece`.
    threshold : float, default 0.5
        t above, strictly between 0 and 1: a label is predicted where its probability is larger, by
        more than rounding.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If :func:`multilabel_ece` would raise.

    References
    ----------
    R. E. Schapire and Y. Singer (1999), Improved boosting algorithms using confidence-rated
    predictions.

    Examples
    --------
    >>> hamming_loss([[0.9, 0.2], [0.6, 0.5]], [[1, 1], [1, 0]])
    0.25
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs, multilabel=True))
    return compute(make_hamming(checked.columns, threshold=threshold), checked)


@other_words
def make_multilabel(
    columns: int | None,
    *,
    average: str = "total",
    bins: int = 10,
    binning: str = "equal_width",
    norm: float = 1,
) -> LabelError | LabelMassError:
    """Check options, and make the metric for this many labels."""
    check_choice(average, "average", ("total", "weighted", "mean"))
    check_choice(binning, "binning", BINNINGS)
    cls = LabelError if binning == "equal_width" else LabelMassError
    return cls(columns or 1, average, check_count(bins, "bins"), check_norm(norm))


def make_multilabel_ecce(
    columns: int | None, *, kind: str = "max", average: str = "total"
) -> CumulativeError:
    """Check options, and make the metric for this many labels."""
    check_choice(kind, "kind", CUMULATIVE_KINDS)
    return CumulativeError(make_multilabel(columns, average=average), kind, average)


def make_hamming(columns: int | None, *, threshold: float = 0.5) -> HammingLoss:
    """Check options, and make the metric for this many labels."""
    return HammingLoss(columns or 1, check_level(threshold, "threshold"))


@dataclass(frozen=True)
class _Labels(BinMetric):
    labels: int
    average: str
    bins: int
    norm: float

    @property
    def groups(self) -> int:
        return self.labels

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0 if self.average == "mean" else float(self.labels)

    def split(self, data: Predictions, xp: ModuleType) -> Iterator[Group]:
        for j in range(self.labels):
            yield data.probs[:, j], data.y[:, j].astype(data.probs.dtype), data.weights

    def by_cell(
        self, data: Predictions, cells: int | np.ndarray, xp: ModuleType
    ) -> tuple[Piece, Piece, Piece]:
        cell, cells = bin_of(data.probs, cells, xp, data.precision)
        cell = cell + cells * xp.arange(self.labels).astype(cell.dtype)
        happened = data.y.astype(data.probs.dtype)
        return Piece(cell, None), Piece(cell, data.probs), Piece(cell, happened)

    def finish(self, sums: Array, ratio: Array | float | None, xp: ModuleType) -> Array:
        by_label = sums[..., :3, :].reshape(*sums.shape[:-2], 3, self.labels, self.bins)
        errors = binned_error(xp.moveaxis(by_label, -2, -3), self.norm, xp)
        if self.average == "mean":
            return errors.mean(-1)
        if self.average == "total":
            return errors.sum(-1)
        mass = by_label.sum(-1)
        return (errors * mass[..., 2, :] / mass[..., 0, :]).sum(-1)


@dataclass(frozen=True)
class LabelError(_Labels, WidthMetric):
    """The errors over bins of equal width."""

    def width(self, columns: int) -> int:
        return 2 * columns


@dataclass(frozen=True)
class LabelMassError(_Labels, MassMetric):
    """The errors over bins of equal mass."""


@dataclass(frozen=True)
class HammingLoss(MeanMetric):
    """The proportion of wrong labels."""

    labels: int
    threshold: float

    def cost(self, data: Predictions, xp: ModuleType) -> Array:
        # Probabilities that equal the threshold up to rounding are not larger.
        border = self.threshold * (1 + xp.maximum(data.precision / 2, TIE))
        wrong = (data.probs > border) != (data.y == 1)
        return wrong.astype(data.probs.dtype).mean(axis=1)
