"""Tests of Kolmogorov-Smirnov and Kuiper: whether cumulative differences are due to chance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal, Self

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.keywords import other_words
from bayescal._core.numerics import ignoring_underflow
from bayescal._core.random.keys import generator
from bayescal.data.blocks.predictions import PredictionBlocks, as_predictions
from bayescal.data.blocks.stream import Blocks
from bayescal.data.checks import check_choice, check_count
from bayescal.data.order.cumulative import sums_by_prediction, turns, without_rounding_errors
from bayescal.data.order.equal_rows import is_first
from bayescal.data.predictions import Classes, Inputs, Predictions, Reading
from bayescal.data.rows import Sums
from bayescal.data.weights import are_no_counts
from bayescal.metrics.calibration.cumulative import CUMULATIVE_KINDS, CumulativeKind, make_ecce
from bayescal.metrics.calibration.ece import SINGLE, find_events, resolve_kind
from bayescal.metrics.sums import compute
from bayescal.metrics.uncertainty.calibration_tests import CalibrationTest

#: The largest part of the variance of a row, or of tied rows, with which Brownian motion's law is
#: used.
_LARGEST_PART = 1e-3
#: Steps of sums that are simulated: neighboring ones are pooled if there are more.
_MAX_STEPS = 4096
#: Maximum number of rows in blocks that are read into memory; with more, the width in log odds of
#: cells, and their number on either side of zero.
_MAX_GATHERED_ROWS = 1 << 18
_CELL_WIDTH, _CELLS = 1e-3, 40_000
#: Numbers that are drawn at once: 32 MiB.
_ELEMENTS = 1 << 22
#: Terms of the series of both laws, and the value from which on the series of tails is used.
_TERMS, _TAIL = 40, 1.0


@other_words
@ignoring_underflow
def ecce_test(
    probs: ArrayLike | Blocks,
    y: ArrayLike | None = None,
    *,
    kind: CumulativeKind = "max",
    events: Literal["binary", "confidence"] | None = None,
    method: Literal["auto", "asymptotic", "simulated"] = "auto",
    resamples: int = 1000,
    seed: int = 0,
    weights: ArrayLike | None = None,
    classes: Classes = None,
    inputs: Inputs = "probs",
) -> CalibrationTest:
    r"""Test calibration by the cumulative error, as in the tests of Kolmogorov-Smirnov and Kuiper.

    If outcomes have the predicted probabilities, the cumulative differences C of :func:`ecce` are a
    random walk with known variances. Its end has the standard deviation

    .. math:: \sigma = \frac{\sqrt{\sum_i w_i^2 p_i (1 - p_i)}}{\sum_i w_i} ,

    with :math:`w_i` in place of :math:`w_i^2` for weights that are counts (all integers). The
    statistic is the error over :math:`\sigma`. Its p-value comes from the law of the greatest
    absolute value ("max") or the range ("range") of Brownian motion on [0, 1], or from simulated
    labels.

    Use it if predictions may be too high or too low over a wide range; it needs no bins.
    :func:`spiegelhalter_test` has more power against over-confidence that is equal on both sides of
    one half. :func:`consistency_test` with "ecce" tests class-wise errors, and rows in clusters.

    Parameters
    ----------
    probs, y, classes, inputs
        Probabilities (n,) or (n, k), or Blocks, labels (n,), and how they are read, as for
        :func:`log_loss`.
    kind : {"max", "range"}
        See :func:`ecce`. "range" detects errors in any region; "max" is best for predictions that
        are all too high or all too low.
    events : {"binary", "confidence"}, optional
        P(y = 1), or the largest probability. By default "binary" for two classes and "confidence"
        for more.
    method : {"auto", "asymptotic", "simulated"}
        "auto" simulates unless every set of rows with equal predictions has at most 1/1000 of the
        variance, and a single row with a probability of one half would have at most 1/4000. With
        distinct predictions between 0 and 1, this holds from about 6,000 rows on.
    resamples, seed : int
        Number of sets of labels to simulate, and their seed.
    weights : array of shape (n,), optional
        Non-negative row weights. Integers are counts, equal to repeating rows. A row of any other
        weight has one label, which counts with this weight.

    Returns
    -------
    CalibrationTest
        The standardized error and its p-value, at least 1 / (resamples + 1) if simulated. If all
        predictions are certain, the statistic is zero if all are right, and infinite if not.

    Raises
    ------
    TypeError, ValueError
        If :func:`log_loss` would raise, for unknown options, and for simulations of fractional
        weights in more than 262,144 rows in blocks.

    Notes
    -----
    Simulated p-values are exact for any number of rows, ties and weights, because the data count
    among the draws. With more than 4,096 distinct predictions and weights that are counts,
    neighbors are pooled into steps of about equal variance, in the data and in the draws.

    The asymptotic law is conservative except for rare events; "auto" then simulates. The
    explanation "How far to trust intervals and tests of metrics" has sizes, and the power beside
    that of other tests.

    Blocks of at most 262,144 rows are read into memory. For more rows the statistic is exact, as in
    :func:`ecce`, and simulations use cells of 0.001 in log odds.

    Time O(n log n), plus up to 4,096 numbers for each draw, or n with fractional weights.

    References
    ----------
    I. Arrieta-Ibarra, P. Gujral, J. Tannen, M. Tygert and C. Xu (2022), Metrics of calibration for
    probabilistic predictions. W. Feller (1951), The asymptotic distribution of the range of sums of
    independent random variables.

    Examples
    --------
    >>> import numpy as np
    >>> p, y = np.repeat([0.2, 0.8], 50), np.tile([0, 0, 0, 1, 1], 20)
    >>> result = ecce_test(p, y, kind="range")
    >>> round(result.statistic, 2), round(result.p_value, 3)
    (5.0, 0.001)
    """
    check_choice(kind, "kind", CUMULATIVE_KINDS)
    check_choice(method, "method", ("auto", "asymptotic", "simulated"))
    resamples = check_count(resamples, "resamples")
    data = as_predictions(probs, y, weights, Reading(classes, inputs))
    if events is not None:
        check_choice(events, "events", SINGLE)
    event_kind, _ = resolve_kind(events, None, data.columns, SINGLE)
    cells = None
    if isinstance(data, PredictionBlocks):
        cells = data.total(partial(_sum_cells, event_kind))
    if cells is not None and cells["rows"] > _MAX_GATHERED_ROWS:
        steps = CumulativeSteps.of_cells(cells)
        error = compute(make_ecce(data.columns, kind=kind, events=event_kind), data)
        statistic = steps.standardize(error * float(steps.mass.sum()))
    else:
        rows: Predictions = data.gather() if isinstance(data, PredictionBlocks) else data
        predicted, _, happened, _ = find_events(rows, event_kind, 1, np)
        happened = np.asarray(happened, float)
        steps = CumulativeSteps(predicted, happened, rows.weights, rows.whole)
        statistic = steps.statistic(kind)
    if steps.spread == 0:
        return CalibrationTest(statistic, 0.0 if statistic else 1.0)
    if method == "simulated" or (method == "auto" and not steps.brownian):
        drawn, value = steps.simulate(kind, resamples, seed)
        reached = np.count_nonzero(drawn >= value - 1e-12 * (1 + value))
        return CalibrationTest(statistic, float(reached + 1) / (resamples + 1))
    return CalibrationTest(statistic, tail_of_law(kind, statistic))


def _sum_cells(kind: str, data: Predictions) -> Sums:
    """Sum the steps of rows in narrow cells of log odds: (5 * cells,)."""
    events = find_events(data, kind, 1, np)
    predicted = without_rounding_errors(events.predicted)
    weights = data.weights
    with np.errstate(divide="ignore"):
        position = (np.log(predicted) - np.log1p(-predicted)) / _CELL_WIDTH
    cell = (np.clip(position, -_CELLS, _CELLS) + _CELLS).astype(np.intp)
    spread = weights * predicted * (1 - predicted)
    parts = weights, weights * predicted, weights * events.happened, spread, weights * spread
    sums = [np.bincount(cell, part, 2 * _CELLS + 1) for part in parts]
    return {
        "sums": np.concatenate(sums),
        "rows": np.asarray(len(weights)),
        "fractions": np.asarray(np.count_nonzero(are_no_counts(weights))),
    }


class CumulativeSteps:
    """Cumulative differences of outcomes and predictions, and their law if these are calibrated.

    Steps are sums over tied rows, in the order of the predictions: of weights, of expected and
    actual outcomes, and of variances. ``whole`` weights are counts.
    """

    def __init__(
        self, predicted: np.ndarray, happened: np.ndarray, weights: np.ndarray, whole: bool
    ) -> None:
        predicted = without_rounding_errors(predicted)
        spread = weights * predicted * (1 - predicted)
        addends = [weights, weights * predicted, weights * happened]
        variance = spread if whole else weights * spread
        self.predicted, sums = sums_by_prediction(predicted, np.stack([*addends, variance]))
        largest = 1.0 if whole else float(weights[spread > 0].max(initial=0)) ** 2
        self._rows = None if whole else (predicted, weights)
        self._keep(sums, largest)

    @classmethod
    def of_cells(cls, cells: Sums) -> Self:
        """Make steps from the sums of cells of neighboring predictions."""
        steps = cls.__new__(cls)
        whole = cells["fractions"] == 0
        mass, expected, happened, spread, squares = cells["sums"].reshape(5, -1)
        used = mass > 0
        sums = np.stack([mass, expected, happened, spread if whole else squares])[:, used]
        steps.predicted = expected[used] / mass[used]
        steps._rows = None if whole else (np.empty(0), np.empty(0))
        # The largest weight of a row is not known, but its cell has more variance.
        steps._keep(sums, 1.0 if whole else 0.0)
        return steps

    def _keep(self, sums: np.ndarray, largest: float) -> None:
        """Keep steps (4, m); four times the largest variance of a row is ``largest``."""
        self._steps = sums
        #: Sums of weights, and of weights times (outcome - prediction), of tied rows (m,).
        self.mass, self.differences = sums[0], sums[2] - sums[1]
        total = float(sums[3].sum())
        #: Standard deviation of the last sum.
        self.spread = math.sqrt(total)
        #: Whether steps are so many and small that the law is that of Brownian motion.
        self.brownian = max(largest, float(sums[3].max())) <= _LARGEST_PART * total

    def statistic(self, kind: str) -> float:
        """Compute the greatest cumulative difference over the standard deviation of the last."""
        return self.standardize(float(_size(kind, *turns(self.differences))))

    def standardize(self, error: float) -> float:
        """Divide a cumulative difference by the standard deviation of the last one."""
        if self.spread > 0:
            return error / self.spread
        return 0.0 if error <= 1e-12 * self.mass.sum() else math.inf

    def quantile(self, kind: str, level: float, resamples: int, seed: int) -> float:
        """Compute the value below which the statistic of calibrated predictions lies."""
        if self.spread == 0:
            return 0.0
        if not self.brownian:
            return float(np.quantile(self.simulate(kind, resamples, seed)[0], level))
        from scipy.optimize import root_scalar

        solution = root_scalar(lambda x: tail_of_law(kind, x) - (1 - level), bracket=(0.1, 40.0))
        return float(solution.root)

    def simulate(self, kind: str, resamples: int, seed: int) -> tuple[np.ndarray, float]:
        """Draw the statistic (resamples,) of calibrated predictions; also return that of the data.

        Both are of pooled steps, if there are many.
        """
        if self._rows is not None and len(self._rows[1]) == 0:
            raise ValueError(
                f"weights must be whole numbers to simulate more than {_MAX_GATHERED_ROWS:,} rows "
                "in blocks; pass method='asymptotic' or arrays in memory"
            )
        rng = generator(seed)
        if self._rows is not None:
            steps, walks = self._steps, _walks_of_rows(*self._rows, resamples, rng)
        else:
            steps = _pooled(self._steps)
            walks = _binomial_walks(steps, resamples, rng)
        drawn = np.concatenate([_size(kind, *turns(part)) for part in walks])
        observed = float(_size(kind, *turns(steps[2] - steps[1])))
        return drawn / self.spread, observed / self.spread


def _walks_of_rows(
    predicted: np.ndarray, weights: np.ndarray, resamples: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Draw steps (b, m) of rows with weights that are no counts."""
    order = np.argsort(predicted, kind="stable")
    predicted, weights = predicted[order], weights[order]
    starts = np.flatnonzero(is_first(predicted))
    for size in _parts(resamples, len(weights)):
        happened = rng.random((size, len(weights))) < predicted
        yield np.add.reduceat(weights * (happened - predicted), starts, axis=1)


def _binomial_walks(
    steps: np.ndarray, resamples: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Draw steps (b, m) of weights that are counts."""
    mass, expected = steps[:2]
    chance = np.clip(expected / mass, 0, 1)
    counts = np.rint(mass).astype(np.int64)
    for size in _parts(resamples, len(chance)):
        shape = size, len(chance)
        if counts.max() == 1:
            yield (rng.random(shape) < chance) - expected
        else:
            yield rng.binomial(counts, chance, shape) - expected


def _parts(resamples: int, numbers: int) -> list[int]:
    """Divide draws of this many numbers into parts that fit into memory."""
    largest = max(1, _ELEMENTS // numbers)
    return [min(largest, resamples - first) for first in range(0, resamples, largest)]


def _pooled(steps: np.ndarray) -> np.ndarray:
    """Pool neighboring steps, of about equal variance, if there are many."""
    if steps.shape[1] <= _MAX_STEPS:
        return steps
    sums = np.cumsum(steps[3])
    pool = np.minimum(sums / sums[-1] * _MAX_STEPS, _MAX_STEPS - 1).astype(np.intp)
    return np.add.reduceat(steps, np.flatnonzero(is_first(pool)), axis=1)


def _size(kind: str, high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return np.maximum(high, -low) if kind == "max" else high - low


def tail_of_law(kind: str, x: float) -> float:
    """Compute the probability that a functional of Brownian motion on [0, 1] is at least x.

    It is the greatest absolute value ("max") or the range ("range").
    """
    from scipy.special import ndtr

    if x <= 0.1:
        return 1.0
    j = np.arange(_TERMS)
    odd = (j + 0.5) * np.pi
    if kind == "max":
        if x >= _TAIL:
            return float(4 * np.sum((-1.0) ** j * ndtr(-(2 * j + 1) * x)))
        return float(1 - 2 * np.sum((-1.0) ** j / odd * np.exp(-((odd / x) ** 2) / 2)))
    if x >= _TAIL:
        return float(8 * np.sum((-1.0) ** j * (j + 1) * ndtr(-(j + 1) * x)))
    return float(1 - np.sum((8 / x**2 + 2 / odd**2) * np.exp(-2 * (odd / x) ** 2)))
