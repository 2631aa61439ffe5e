"""Near-isotonic regression."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import XArray
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.monotone.pooling import (
    OrderCalibrator,
    distinct_points,
    interpolate,
)
from bayescal.data.order.equal_rows import is_first
from bayescal.data.order.ranking import Groups, distinct_scores
from bayescal.data.rows import Source
from bayescal.data.scores import two_columns

#: Neighboring values that are closer than this are equal up to rounding.
_EQUAL = 1e-12
#: Relative weight below which a solution changes no digit of the average.
_NEGLIGIBLE = 1e-18


@dataclass(eq=False, repr=False)
class NearIsotonic(OrderCalibrator):
    r"""Near-isotonic regression: decreases of the map are penalized, but not forbidden.

    .. math:: \min_f \frac12 \sum_i w_i (y_i - f_i)^2 + \lambda \sum_i \max(f_i - f_{i+1}, 0)
              \qquad (s_1 < \dots < s_n)

    Use it for classifiers whose scores do not rank the rows perfectly. Tied scores share one value.
    With :math:`\lambda = 0` the values are the proportions of class 1; from some :math:`\lambda` on
    they are those of :class:`Isotonic`. In between they are piecewise linear in :math:`\lambda`:
    neighboring values meet at some :math:`\lambda`, and never separate again. All solutions are
    therefore computed exactly, from one meeting to the next.

    With ``strength="bic"`` the probability is the average of the solutions at all meetings,
    weighted by :math:`e^{-\mathrm{BIC} / 2}`,

    .. math:: \mathrm{BIC} = -2 \sum_i w_i \log P(y_i) + m \log \sum_i w_i

    with m the number of different neighboring values (ENIR).

    Parameters
    ----------
    strength : float or "bic", default "bic"
        :math:`\lambda`, not negative, in units of weight: repeated rows have twice the weight.

    Attributes
    ----------
    thresholds_, values_ : arrays
        The map is linear between these points, and constant outside.
    strengths_, model_weights_ : arrays
        Strengths at which neighbors meet, and the weights of these solutions; with "bic" only.

    Notes
    -----
    Probabilities may be 0 and 1, as for :class:`Isotonic`.

    The state is ``thresholds`` (k,), ascending, and ``values`` (k,); with "bic" also ``strengths``
    (m,) and ``model_weights`` (m,). Fitting g distinct scores takes O(g log g) for sorting and O(b)
    for each of several hundred to thousands of meetings of b different values. Predicting takes
    O(log k) per score. Rows in blocks take two passes, and may have at most 4,194,304 distinct
    scores.

    References
    ----------
    R. J. Tibshirani, H. Hoefling and R. Tibshirani (2011), Nearly-isotonic regression.
    M. P. Naeini and G. F. Cooper (2016), Binary classifier calibration using an ensemble of near
    isotonic regression models.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.NearIsotonic(strength=0.25).fit(p, y).predict_proba([0.3, 0.4])[:, 1].tolist()
    [0.75, 0.25]
    """

    strength: Literal["bic"] | float = "bic"

    thresholds_: np.ndarray = field(init=False)
    values_: np.ndarray = field(init=False)
    strengths_: np.ndarray = field(init=False)
    model_weights_: np.ndarray = field(init=False)

    _domain = "order"

    def _check_options(self) -> None:
        strength = self.strength
        number = isinstance(strength, (int, float, np.number)) and not isinstance(strength, bool)
        if strength != "bic" and (not number or not 0 <= strength < np.inf):
            raise ValueError(f"strength must be 'bic' or a number of at least 0, got {strength!r}")

    def _fit(self, rows: Source, seed: int) -> State:
        groups = distinct_scores(rows, "NearIsotonic")
        if self.strength == "bic":
            values, chosen = _average(groups)
        else:
            values, chosen = _at(groups, float(self.strength)), {}
        return _corners(groups.lowest, values) | chosen

    def _apply(self, state: State, scores: XArray) -> XArray:
        return two_columns(interpolate(scores, state["thresholds"], state["values"]))


class _Solution(NamedTuple):
    """A solution with b different neighboring values, at a strength where some have just met.

    Until the next meeting, values change by their slopes per unit of strength.
    """

    strength: float
    #: First group of every block, and sums of weights of all rows and of rows of class 1.
    starts: np.ndarray
    weight: np.ndarray
    positive: np.ndarray
    values: np.ndarray
    slopes: np.ndarray


def _path(groups: Groups) -> Iterator[_Solution]:
    """Yield the solutions at which neighbors meet, starting with strength 0."""
    strength, weight, positive = 0.0, groups.weight, groups.positive
    values = positive / weight
    starts = np.arange(len(values))
    meet = np.diff(values) == 0
    while True:
        new = np.flatnonzero(np.append(True, ~meet))
        starts, values = starts[new], values[new]
        weight, positive = np.add.reduceat(weight, new), np.add.reduceat(positive, new)
        falls = values[:-1] > values[1:]
        slopes = (np.append(0, falls) - np.append(falls, 0)) / weight
        yield _Solution(strength, starts, weight, positive, values, slopes)
        if not falls.any():
            return
        gaps, closing = np.diff(values), slopes[:-1] - slopes[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            after = np.where(gaps * closing > 0, gaps / closing, np.inf)
        step = after.min()
        strength, values = strength + step, values + step * slopes
        meet = (after == step) | (np.abs(np.diff(values)) <= _EQUAL)


def _at(groups: Groups, strength: float) -> np.ndarray:
    """Compute the values (g,) at one strength."""
    reached = takewhile(lambda solution: solution.strength <= strength, _path(groups))
    last = deque(reached, maxlen=1)[0]
    values = last.values + (strength - last.strength) * last.slopes
    return _spread(values, last.starts, len(groups.weight))


def _average(groups: Groups) -> tuple[np.ndarray, State]:
    """Average the values (g,) of all solutions; also return the state of their weights."""
    from scipy.special import xlogy

    size, charge = len(groups.weight), np.log(groups.weight.sum())
    strengths, evidence, kept = [], [], []
    best, limit = -np.inf, np.log(_NEGLIGIBLE)
    for strength, starts, weight, positive, values, _ in _path(groups):
        values = np.clip(values, 0, 1)
        fit = xlogy(positive, values) + xlogy(weight - positive, 1 - values)
        evidence.append(fit.sum() - len(starts) * charge / 2)
        strengths.append(strength)
        best = max(best, evidence[-1])
        kept.append((len(evidence) - 1, starts, values))
        kept = [model for model in kept if evidence[model[0]] >= best + limit]
    shares = np.exp(np.array(evidence) - best)
    shares[shares < _NEGLIGIBLE] = 0
    shares /= shares.sum()
    average = np.zeros(size)
    for model, starts, values in kept:
        average += shares[model] * _spread(values, starts, size)
    return average, {"strengths": np.array(strengths), "model_weights": shares}


def _spread(values: np.ndarray, starts: np.ndarray, size: int) -> np.ndarray:
    return np.repeat(values, np.diff(starts, append=size))


def _corners(scores: np.ndarray, values: np.ndarray) -> State:
    """Return the state of a map that is linear between runs of equal values."""
    new = is_first(values)
    ends = np.append(new[1:], True)
    both = new | ends
    return distinct_points(scores[both], values[both])
