"""Binned reliability curves and the expected calibration error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayLike
from bayescal._core.binning import bin_of, binned_error
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_choice, check_count, check_norm
from bayescal.data.predictions import (
    Classes,
    Inputs,
    Outcomes,
    Predictions,
    Reading,
    as_rows,
    largest,
    of_class,
)
from bayescal.metrics.calibration.mass import MassMetric
from bayescal.metrics.sums import BinMetric, Group, Piece, WidthMetric, collect, compute

Kind = Literal["binary", "confidence", "classwise", "top_label", "top_k_confidence", "top_k_label"]
KINDS = "binary", "confidence", "classwise", "top_label", "top_k_confidence", "top_k_label"
#: Kinds with one event for each row.
SINGLE = "binary", "confidence"
_BY_LABEL = "top_label", "top_k_label"
Binning = Literal["equal_width", "equal_mass"]
BINNINGS = "equal_width", "equal_mass"


class ReliabilityCurve(NamedTuple):
    """Predicted and observed frequency in each bin that is not empty.

    Attributes
    ----------
    predicted : array of shape (bins,)
        Mean prediction: of P(y = 1), or of the confidence.
    observed : array of shape (bins,)
        Proportion of rows with y = 1, or of rows that were classified correctly.
    weight : array of shape (bins,)
        Sum of the row weights: the number of rows if no weights were given.
    """

    predicted: np.ndarray
    observed: np.ndarray
    weight: np.ndarray


@other_words
@ignoring_underflow
def reliability_curve(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    bins: int = 15,
    binning: Binning = "equal_width",
    kind: Literal["binary", "confidence"] | None = None,
    ties: Literal["shared", "together"] = "shared",
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> ReliabilityCurve:
    r"""Compute the mean prediction and the observed frequency in each bin.

    Bins of equal width are (lower, upper], with 0 in the first. A prediction within the machine
    epsilon of its type from a border counts as on it: 0.6 is in the same bin in single and double
    precision, and 0.1 + 0.2 is in the bin of 0.3. Bins of equal mass hold equally many rows; if the
    number does not divide, the first ones hold one more. Rows with equal predictions on both sides
    of a border are divided between the bins in proportion, so the order of rows does not matter.
    Predictions that differ only by rounding, such as 0.93 and 1 - 0.07, are equal. Integer weights
    are counts, equal to repeating rows. Other weights are proportions, and each bin of equal mass
    holds exactly the same proportion.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,)
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    bins : int, default 15
        Number of bins; empty ones are left out of the result.
    binning : {"equal_width", "equal_mass"}
        How the bins are laid out.
    kind : {"binary", "confidence"}, optional
        "binary" compares P(y = 1) with the frequency of y = 1 and needs two classes; "confidence"
        compares the largest probability with the frequency of being right. By default "binary"
        for two classes and "confidence" for more.
    ties : {"shared", "together"}
        How to treat equal predictions across a border of bins of equal mass. "shared" divides them
        between the bins. "together" keeps them in one bin, whose border moves to their nearer end;
        ``weight`` is then the number of independent rows in a bin, which bands need.
    weights : array of shape (n,), optional
        Non-negative row weights.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    ReliabilityCurve
        Arrays ``predicted``, ``observed`` and ``weight``, in ascending order of ``predicted``.

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or for unknown bins or kinds.

    References
    ----------
    M. H. DeGroot and S. E. Fienberg (1983), The comparison and evaluation of forecasters.

    Examples
    --------
    >>> curve = reliability_curve([0.1, 0.3, 0.9, 0.7], [0, 1, 1, 1], bins=2)
    >>> curve.predicted.tolist(), curve.observed.tolist(), curve.weight.tolist()
    ([0.2, 0.8], [0.5, 1.0], [2.0, 2.0])
    """
    checked = as_predictions(probs, y, weights, Reading(classes, inputs))
    chosen, _ = resolve_kind(kind, None, checked.columns, SINGLE)
    metric = make_ece(checked.columns, bins=bins, binning=binning, kind=chosen)
    if check_choice(ties, "ties", ("shared", "together")) == "together" and binning == "equal_mass":
        metric = CutError(*astuple(metric))
    mass = isinstance(metric, MassMetric)
    sums = metric.sums(checked, np)[0] if mass else collect(metric, checked)
    sums = sums[:, sums[0] > 0]
    return ReliabilityCurve(sums[1] / sums[0], sums[2] / sums[0], sums[0])


@other_words
@ignoring_underflow
def ece(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    bins: int = 15,
    binning: Binning = "equal_width",
    kind: Kind | None = None,
    k: int | None = None,
    norm: float = 1,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
    outcomes: Outcomes = "labels",
) -> float:
    r"""Compute the expected calibration error: the mean gap between prediction and frequency.

    .. math:: \Big(\sum_b \frac{n_b}{n} |\bar p_b - \bar y_b|^{q}\Big)^{1/q}

    The sum runs over the bins of :func:`reliability_curve`, and q is ``norm``. This plug-in
    estimate is biased upwards if bins have few rows; :func:`debiased_ece` corrects it. The meaning
    of p and y depends on ``kind``:

    - "binary": P(y = 1), and whether y is 1.
    - "confidence": the largest probability, and whether its class is the true one.
    - "classwise": the probability of each class in turn, and whether it is the true one. The sum
      above is averaged over classes, so with ``norm=1`` the result is the mean over classes.
    - "top_label": like "confidence", but each predicted class has separate bins.
    - "top_k_confidence": the j-th largest probability, and whether its class is the true one. The
      sum is averaged over the ranks j = 1, ..., k.
    - "top_k_label": like "top_k_confidence", with separate bins for each rank and class.

    Of classes with equal probabilities, the first one in the order of the columns has the higher
    rank, as in :func:`accuracy`, so the order of the columns matters.

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), or Blocks
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,) or (n, k)
        Labels 0, ..., k - 1, or any other values (see ``classes``); or one-hot rows.
    bins : int, default 15
        Number of bins; for each class, rank or label if these have separate bins.
    binning : {"equal_width", "equal_mass"}
        How the bins are laid out.
    kind : str, optional
        Which probabilities are judged, see above. By default "binary" for two classes and
        "confidence" for more.
    k : int, optional
        Number of ranks for the kinds that begin with "top_k"; by default 5, or all if fewer.
    norm : float, default 1
        Order of the norm over bins, at least 1; ``math.inf`` gives the maximum calibration error.
    weights : array of shape (n,), optional
        Non-negative row weights.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.
    outcomes : {"labels", "fractional"}
        Whether ``y`` contains labels or fractional outcomes, as in :func:`log_loss`.

    Returns
    -------
    float
        A fraction in [0, 1].

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or for unknown bins, kinds or norms.

    References
    ----------
    M. P. Naeini, G. F. Cooper and M. Hauskrecht (2015), Obtaining well calibrated probabilities
    using Bayesian binning. M. Kull et al. (2019), Beyond temperature scaling (classwise). C. Gupta
    and A. Ramdas (2022), Top-label calibration and multiclass-to-binary reductions.

    Examples
    --------
    Two bins, with gaps of 0.3 and 0.2, two rows in each:

    >>> ece([0.1, 0.3, 0.9, 0.7], [0, 1, 1, 1], bins=2)
    0.25

    Predictions of class 0 are always right here, and those of class 1 never:

    >>> probs, y = [[0.5, 0.5], [0.4, 0.6], [0.4, 0.6]], [0, 0, 0]
    >>> [ece(probs, y, bins=1, kind=kind) for kind in ("confidence", "top_label")]
    [0.23333..., 0.56666...]
    """
    reading = Reading(classes, inputs, outcomes)
    checked = as_predictions(probs, y, weights, reading, on_device=True)
    metric = make_ece(checked.columns, bins=bins, binning=binning, kind=kind, k=k, norm=norm)
    return compute(metric, checked)


@other_words
def make_ece(
    columns: int | None,
    *,
    bins: int = 15,
    binning: str = "equal_width",
    kind: str | None = None,
    k: int | None = None,
    norm: float = 1,
) -> BinnedError | EqualMassError:
    """Check options, and make the metric for probabilities with this many columns."""
    norm, bins = check_norm(norm), check_count(bins, "bins")
    check_choice(binning, "binning", BINNINGS)
    kind, ranks = resolve_kind(kind, k, columns)
    num_parts, num_labels = (columns or 2 if kind == "classwise" else ranks), 1
    if kind in _BY_LABEL:
        num_labels = columns or 2
    cls = BinnedError if binning == "equal_width" else EqualMassError
    return cls(bins, kind, ranks, num_parts, num_labels, norm)


@dataclass(frozen=True)
class _Binned(BinMetric):
    """The calibration error, for bins of any kind."""

    bins: int
    kind: str
    ranks: int
    parts: int
    labels: int
    norm: float

    @property
    def groups(self) -> int:
        return self.parts * self.labels

    def split(self, data: Predictions, xp: ModuleType) -> Iterator[Group]:
        events = find_events(data, self.kind, self.ranks, xp)
        columns = (slice(None), None) if events.predicted.ndim == 1 else ...
        by_part = events.predicted[columns]
        for j in range(by_part.shape[1]):
            predicted = by_part[:, j]
            observed = (events.happened & (events.part == j)).astype(predicted.dtype)
            if events.label is None:
                yield predicted, observed, data.weights
                continue
            label = events.label[columns][:, j]
            for code in range(self.labels):
                rows = label == code
                if xp is np:
                    yield predicted[rows], observed[rows], data.weights[rows]
                else:
                    yield predicted, observed, xp.where(rows, data.weights, 0)

    def by_cell(
        self, data: Predictions, cells: int | np.ndarray, xp: ModuleType
    ) -> tuple[Piece, Piece, Piece]:
        events = find_events(data, self.kind, self.ranks, xp)
        cell, bins = bin_of(events.predicted, cells, xp, data.precision)
        if events.label is not None:
            cell = cell + bins * events.label.astype(cell.dtype)
        hit = cell
        if cell.ndim == 2:
            cell = cell + bins * self.labels * xp.arange(cell.shape[1]).astype(cell.dtype)
            hit = of_class(cell, events.part, xp)
        happened = events.happened if xp is np else events.happened.astype(events.predicted.dtype)
        return Piece(cell, None), Piece(cell, events.predicted), Piece(hit, happened)

    def finish(self, sums: Array, ratio: Array | float | None, xp: ModuleType) -> Array:
        return binned_error(sums, self.norm, xp)


@dataclass(frozen=True)
class BinnedError(_Binned, WidthMetric):
    """The error over bins of equal width."""

    def width(self, columns: int) -> int:
        return columns + self.parts


@dataclass(frozen=True)
class EqualMassError(_Binned, MassMetric):
    """The error over bins of equal mass."""


@dataclass(frozen=True)
class CutError(EqualMassError):
    """The error over bins of equal mass, where equal predictions stay in one bin."""

    least_cases = 1


class Events(NamedTuple):
    """Events whose calibration is measured, in parts; at most one part happens in each row.

    Parts are the classes, or the ranks of the predicted probabilities; "binary" and "confidence"
    have one. Events of different parts, or of different labels, never share a bin.
    """

    #: Probabilities of the events, (n,) or (n, parts).
    predicted: AnyArray
    #: Predicted class of each event, for kinds with separate bins for each predicted class.
    label: Array | None
    #: Whether one of the events of a row happened, (n,).
    happened: Array
    #: The part that happened, (n,); arbitrary if none did.
    part: Array


def resolve_kind(
    kind: str | None, k: int | None, columns: int | None, kinds: tuple[str, ...] = KINDS
) -> tuple[str, int]:
    """Check the kind of events, by default that for the shape, and the number of ranks.

    ``columns`` is the number of columns of the probabilities, None for shape (n,).
    """
    if kind is None:
        kind = "binary" if columns is None else "confidence"
    check_choice(kind, "kind", kinds)
    if kind == "binary" and columns not in (None, 2):
        raise ValueError(f"kind must be 'confidence' for {columns} classes, got 'binary'")
    if not kind.startswith("top_k"):
        if k is not None:
            raise ValueError(f"k must be left out for kind {kind!r}, got {k}")
        return kind, 1
    classes = columns or 2
    ranks = min(5, classes) if k is None else check_count(k, "k")
    if ranks > classes:
        raise ValueError(f"k must be at most the number of classes, {classes}, got {ranks}")
    return kind, ranks


def find_events(data: Predictions, kind: str, ranks: int, xp: ModuleType) -> Events:
    """Find the events of a kind; ``xp`` is NumPy or jax.numpy."""
    probs, y = data.probs, data.y
    if kind == "binary":
        predicted = probs if probs.ndim == 1 else probs[:, 1]
        return Events(predicted, None, y == 1, xp.broadcast_to(0, y.shape))
    probs = as_rows(probs, xp)
    if kind == "classwise":
        return Events(probs, None, xp.ones(y.shape, bool), y)
    if ranks == 1:
        confidence, label = largest(probs, xp)
        by_label = label if kind in _BY_LABEL else None
        return Events(confidence, by_label, label == y, xp.broadcast_to(0, y.shape))
    order = xp.argsort(-probs, axis=1, stable=True)[:, :ranks]
    hit = order == y[:, None]
    predicted = xp.take_along_axis(probs, order, axis=1)
    by_label = order if kind in _BY_LABEL else None
    return Events(predicted, by_label, hit.any(axis=1), hit.argmax(axis=1))
