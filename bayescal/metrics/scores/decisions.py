"""Costs of decisions made by probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, Array, ArrayLike, ArrayT
from bayescal._core.binning import TIE, threshold_slack
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal.data.blocks.predictions import as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import as_numpy, check_count, check_finite
from bayescal.data.label_names import class_array, column_names, in_order, rows_by_class
from bayescal.data.order.equal_rows import is_first
from bayescal.data.predictions import (
    Classes,
    Inputs,
    Predictions,
    Reading,
    as_rows,
    in_right_order,
    read_truth,
)
from bayescal.metrics.sums import Piece, SumMetric, compute


class DecisionCost(NamedTuple):
    """Costs of decisions made by probabilities.

    Attributes
    ----------
    expected : array of shape (n, d)
        Expected cost of each decision, if the probabilities are right.
    decision : int array of shape (n,)
        The decision with the lowest expected cost; the first in a tie, up to rounding.
    predicted : float
        Mean expected cost of the decisions that were made.
    realized : float or None
        Mean actual cost of these decisions; None without labels.
    """

    expected: np.ndarray
    decision: np.ndarray
    predicted: float
    realized: float | None


@ignoring_underflow
def decision_cost(
    probs: ArrayLike,
    y: ArrayLike | None = None,
    *,
    costs: ArrayLike,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> DecisionCost:
    r"""Compute the expected costs of decisions, the best decisions, and their realized cost.

    .. math:: e_{id} = \sum_j p_{ij} c_{jd}, \qquad \delta_i = \arg\min_d e_{id}, \qquad
        \text{predicted} = \frac{\sum_i w_i e_{i \delta_i}}{\sum_i w_i}, \qquad
        \text{realized} = \frac{\sum_i w_i c_{y_i \delta_i}}{\sum_i w_i}

    Parameters
    ----------
    probs : array of shape (n,) or (n, k)
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,), optional
        Labels 0, ..., k - 1, or any other values (see ``classes``).
    costs : array of shape (k, d)
        Cost of each decision for each class, in any unit; gains are negative. A data frame whose
        index has the classes, or a dictionary of rows by class, may have any order.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter. Rows of weight zero are kept in the
        result.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    DecisionCost

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or if ``costs`` are infinite or do not match the classes.

    References
    ----------
    S. Zhao et al. (2021), Calibrating predictions to decisions.

    Examples
    --------
    To treat or not to treat, for one benign and three malign classes:

    >>> costs = [[3.3, 0.0], [1.0, 8.0], [2.0, 10.0], [3.0, 7.0]]
    >>> result = decision_cost([[0.60, 0.25, 0.05, 0.10]], [0], costs=costs)
    >>> result.expected.tolist(), result.decision.tolist(), result.realized
    ([[2.63, 3.2]], [0], 3.3)
    """
    reading, names = Reading(classes, inputs), column_names(probs)
    labels = reading.any_labels(probs) if y is None else y
    checked = as_predictions(probs, labels, weights, reading)
    array = as_numpy(probs, "probs")
    positive = np.ones(len(array), bool) if weights is None else as_numpy(weights, "weights") > 0
    rows = as_rows(reading.probs(in_order(array.astype(np.float64), names, checked.classes)))
    if checked.classes is not None:
        costs = rows_by_class(costs, checked.classes, "costs")
    costs = as_numpy(costs, "costs").astype(np.float64)
    if costs.ndim != 2 or costs.shape[0] != rows.shape[1] or costs.shape[1] < 1:
        raise ValueError(f"costs must have shape ({rows.shape[1]}, decisions), got {costs.shape}")
    check_finite(costs, "costs")
    # Minima over the few decisions are several times as fast where a decision's costs are adjacent.
    expected, sizes = (costs.T @ rows.T).T, (np.abs(costs).T @ rows.T).T
    decision = _cheapest(expected, sizes, checked.precision, np)
    chosen, mass = decision[positive], checked.weights / checked.weights.sum()
    predicted = float(mass @ expected[positive, chosen])
    realized = None if y is None else float(mass @ costs[checked.y, chosen])
    return DecisionCost(expected, decision, predicted, realized)


def _cheapest(expected: ArrayT, sizes: ArrayT, precision: AnyArray, xp: ModuleType) -> ArrayT:
    """Return the first of decisions (..., d) with the least expected cost, up to rounding.

    ``sizes`` (..., d) are the expected absolute costs, and ``precision`` that of probabilities.
    """
    slack = sizes * xp.maximum(precision / 2, TIE)
    least = (expected + slack).min(axis=-1, keepdims=True)
    return (expected - slack <= least).argmax(axis=-1)


class Threshold(NamedTuple):
    """Threshold of decisions for the second class, as returned by :func:`best_threshold`.

    Attributes
    ----------
    threshold : float
        Decide for the second class from this probability on; optimal for calibrated probabilities.
    cost : float or None
        Mean cost of these decisions on the data, if there are any.
    empirical, empirical_cost : float or None
        The lowest threshold with the least cost on the data, and this cost, which is too low for
        new rows. If it is much lower than ``cost``, calibrate first.
    """

    threshold: float
    cost: float | None = None
    empirical: float | None = None
    empirical_cost: float | None = None


@ignoring_underflow
def best_threshold(
    costs: ArrayLike,
    probs: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> Threshold:
    r"""Compute the threshold above which to decide for the second class, given costs.

    .. math:: t = \frac{c_{01} - c_{00}}{c_{01} - c_{00} + c_{10} - c_{11}}

    Parameters
    ----------
    costs : array of shape (2, 2)
        Cost of each decision (column) for each class (row), in any unit; gains are negative. A
        wrong decision must cost more than the right one. Rows and columns of a data frame that are
        named like the classes may have any order, as may a dictionary of rows by class.
    probs : array of shape (n,) or (n, 2), optional
        P(y = 1), or rows of two probabilities, to compare with the best threshold on these data.
    y : array of shape (n,), optional
        Labels: 0 and 1, or any others (``classes``).
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    Threshold

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise; if costs have another shape or are not finite, or a wrong
        decision costs no more than the right one; for more than two classes.

    See Also
    --------
    decision_cost : Costs of any number of decisions and classes.

    References
    ----------
    C. Elkan (2001), The foundations of cost-sensitive learning.

    Examples
    --------
    A missed case costs ten times as much as a false alarm:

    >>> best_threshold([[0, 1], [10, 0]]).threshold
    0.0909...
    >>> best_threshold([[0, 1], [10, 0]], [0.05, 0.2, 0.4, 0.6], [0, 0, 1, 1])
    Threshold(threshold=0.0909..., cost=0.25, empirical=0.4, empirical_cost=0.0)
    """
    rows = list(costs.values()) if isinstance(costs, Mapping) else costs
    table = as_numpy(rows, "costs").astype(np.float64)
    if table.shape != (2, 2):
        raise ValueError(
            f"costs must have shape (2, 2), got {table.shape}; they come first: "
            "best_threshold(costs, probs, y)"
        )
    check_finite(table, "costs")
    data = None if probs is None else as_predictions(probs, y, weights, Reading(classes, inputs))
    known = (0, 1) if classes is None else class_array(classes)
    if data is not None and data.classes is not None:
        known = data.classes
    table = np.asarray(rows_by_class(costs, known, "costs"), np.float64)
    table = in_order(table, column_names(costs), known, "costs")
    alarm, miss = table[0, 1] - table[0, 0], table[1, 0] - table[1, 1]
    if alarm <= 0 or miss <= 0:
        raise ValueError(
            "costs must be larger for wrong decisions (off the diagonal) than for right ones, got "
            f"{table.tolist()}"
        )
    threshold = float(alarm / (alarm + miss))
    if data is None:
        return Threshold(threshold)
    if data.columns is not None:
        raise ValueError(f"probs must be of two classes, got {data.columns} columns")
    # A power of two keeps sums of counts exact, so that rounding does not choose among equal costs.
    mass = np.ldexp(data.weights, -np.frexp(data.weights.sum())[1])
    order = np.argsort(data.probs)
    p, happened, mass = data.probs[order], data.y[order] == 1, mass[order]
    base = float(mass @ np.where(happened, table[1, 1], table[0, 0]))
    # Thresholds at each probability, and one above all.
    alarms = np.append(np.cumsum((mass * ~happened)[::-1])[::-1], 0.0)
    misses = np.append(0.0, np.cumsum(mass * happened))
    total = (base + alarm * alarms + miss * misses) / mass.sum()
    first = np.append(is_first(p), True)
    total = np.where(first, total, np.inf)
    best = int(total.argmin())
    least = threshold - threshold_slack(np.array(threshold), data.precision)
    cost = float(total[np.searchsorted(p, least)])
    empirical = float(p[best]) if best < len(p) else float(np.nextafter(p[-1], 2))
    return Threshold(threshold, cost, empirical, float(total[best]))


@other_words
@ignoring_underflow
def loss_gap(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    losses: ArrayLike | None = None,
    functions: int = 500,
    decisions: int = 2,
    seed: int = 0,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> float:
    r"""Compute the average loss gap: the distance between expected and actual losses.

    .. math:: \frac1F \sum_f \Big| \frac{\sum_i w_i \sum_j (p_{ij} - y_{ij})\,
        \ell_f(j, \delta_f(p_i))}{\sum_i w_i} \Big|, \qquad
        \delta_f(p) = \arg\min_d \sum_j p_j\, \ell_f(j, d)

    By default losses :math:`\ell_f(j, d)` are independent draws from N(0, 1). Time O(n k F d).

    Parameters
    ----------
    probs : array of shape (n,) or (n, k), or Blocks
        P(y = 1) for two classes, or class probabilities in rows.
    y : array of shape (n,) or (n, k)
        Labels, or the true probabilities of the classes, where they are known.
    losses : array of shape (functions, k, decisions), optional
        Losses of decisions by class. Of decisions that tie up to rounding, the first is taken.
    functions, decisions : int, default 500 and 2
        Number of losses to draw, and of decisions of each, if ``losses`` is not given.
    seed : int, default 0
        Seed of the draws, for ``numpy.random.default_rng``.
    weights : array of shape (n,), optional
        Non-negative row weights; only their ratios matter.
    classes, inputs : optional
        Labels of the columns, and kind of ``probs``, as in :func:`log_loss`.

    Returns
    -------
    float
        In the unit of losses, 0 at best.

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, or if ``losses`` are infinite or do not match the classes.

    References
    ----------
    S. Zhao et al. (2021), Calibrating predictions to decisions. K. Valk (2022), Calibration of
    multi-class probabilistic classifiers, University of Tartu, section 2.6.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet(np.ones(3), size=400)
    >>> y = (probs.cumsum(axis=1) < rng.random((400, 1))).sum(axis=1)
    >>> sharper = probs**2 / (probs**2).sum(axis=1, keepdims=True)
    >>> loss_gap(probs, y), loss_gap(sharper, y)
    (0.0208..., 0.0751...)
    """
    check = _check_with_truth if y is not None and np.ndim(y) == 2 else as_predictions
    checked = check(probs, y, weights, Reading(classes, inputs))
    metric = make_loss_gap(
        checked.columns, losses=losses, functions=functions, decisions=decisions, seed=seed
    )
    return compute(metric, checked)


@in_right_order
def _check_with_truth(
    probs: ArrayLike, y: ArrayLike, weights: ArrayLike | None, reading: Reading
) -> Predictions:
    """Check probabilities, and true probabilities instead of labels."""
    checked = as_predictions(probs, reading.any_labels(probs), weights, reading)
    rows = as_rows(checked.probs)
    truth = read_truth(y, rows, weights, checked.classes, given=probs)
    return checked._replace(probs=rows, y=truth, first=None)


@other_words
def make_loss_gap(
    columns: int | None,
    *,
    losses: ArrayLike | None = None,
    functions: int = 500,
    decisions: int = 2,
    seed: int = 0,
) -> LossGap:
    """Check options, and make the metric for probabilities with this many columns."""
    k = columns or 2
    if losses is None:
        shape = check_count(functions, "functions"), k, check_count(decisions, "decisions")
        return LossGap(np.random.default_rng(seed).normal(size=shape))
    array = as_numpy(losses, "losses").astype(np.float64)
    if array.ndim != 3 or array.shape[1] != k or array.size == 0:
        raise ValueError(f"losses must have shape (functions, {k}, decisions), got {array.shape}")
    check_finite(array, "losses")
    return LossGap(array, given=True)


@dataclass(frozen=True, eq=False)
class LossGap(SumMetric):
    """The average loss gap, from the sum of gaps of each loss (functions, k, decisions)."""

    losses: np.ndarray
    #: Whether the user gave the losses, so that decisions may tie.
    given: bool = False
    rows = 2

    @property
    def range(self) -> tuple[float, float]:
        spread = self.losses.max(axis=1) - self.losses.min(axis=1)
        return 0.0, float(spread.max(axis=1).mean())

    @property
    def cells(self) -> int:
        return len(self.losses)

    def width(self, columns: int) -> int:
        return self.losses.shape[0] * self.losses.shape[2]

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        functions, k, decisions = self.losses.shape
        probs = data.probs if data.probs.ndim == 2 else as_rows(data.probs, xp)
        by_class = xp.asarray(np.moveaxis(self.losses, 1, 0).reshape(k, -1), dtype=probs.dtype)
        shape = len(probs), functions, decisions
        expected = (probs @ by_class).reshape(shape)
        actual = (data.y @ by_class if data.y.ndim == 2 else by_class[data.y]).reshape(shape)
        if self.given:
            sizes = (probs @ xp.abs(by_class)).reshape(shape)
            chosen = _cheapest(expected, sizes, data.precision, xp)
        else:
            chosen = expected.argmin(axis=2)
        gap = xp.take_along_axis(expected - actual, chosen[:, :, None], axis=2)[:, :, 0]
        return Piece(..., gap), Piece(None, None)

    def value(self, sums: Array, xp: ModuleType) -> Array:
        return xp.abs(sums[0]).mean() / sums[1, 0]

    def calibrated(self, sums: np.ndarray) -> np.ndarray:
        return sums * np.array([[0.0], [1.0]])
