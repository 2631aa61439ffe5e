"""Calibration by a spline through the cumulative proportion of class 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayescal._core.arrays import XArray, namespace, search
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.monotone.pooling import OrderCalibrator, interpolate
from bayescal.data.checks import check_count
from bayescal.data.order.ranking import Groups, distinct_scores
from bayescal.data.rows import Source
from bayescal.data.scores import two_columns

#: Proportion of a class between two knots above which knots are added.
_CROWDED = 0.8


@dataclass(eq=False, repr=False)
class CDFSpline(OrderCalibrator):
    r"""CDF-spline calibration: the slope of a spline through the cumulative proportion of class 1.

    With rows in ascending order of scores, t the proportion of the weight up to a row and

    .. math:: h(t) = \frac{\sum_{t_i \le t} w_i y_i}{\sum_i w_i},

    a natural cubic spline is fitted to h, and the probability at rank t is its slope, clipped to
    [e, 1 - e]:

    .. math:: \hat p(s) = \hat h'(t(s)), \qquad e = \frac{1}{2 (n + 1)}.

    Parameters
    ----------
    knots : int
        Number of knots, at least 2, equally spaced over [0, 1]. With d distinct scores at most d +
        1 are used; two give the proportion of class 1 for all scores. More are used if nearly all
        rows of a class are between two knots; see below.

    Notes
    -----
    Details that the paper does not specify: h is linear between distinct scores, so that neither
    the order of tied rows nor the representation of weights by repeated rows matters. The spline
    minimizes :math:`\int_0^1 (\hat h - h)^2 dt` among the splines with the known values of h at 0
    and 1, so that the mean probability is the proportion of class 1, except for clipping. The rank
    of a score is the middle of the ranks of its rows, interpolated linearly, and constant beyond
    the outer scores.

    If one of many classes is calibrated against the rest, nearly all of its rows may be above the
    second-last knot, where one cubic cannot follow the rate. So if more than 0.8 of a class is
    between two knots, the intervals are halved until at most 0.4 is, or until there are five
    distinct scores per interval. The paper clips at zero and one, but a single row with a
    probability of zero makes the log loss infinite. n is the sum of the weights, or, if some are
    below one, their effective number if larger.

    The state is ``floor``; ``scores`` (d,) and ``ranks`` (d,) of the distinct scores; ``knots``
    (k,); and ``coefficients`` (3, k - 1) of the square, linear and constant term of the slope in
    each interval, from its left knot. Fitting n rows takes O(n log n + k), predicting O(log d) per
    score. Rows in blocks take two passes, and may have at most 4,194,304 distinct scores.

    References
    ----------
    K. Gupta, A. Rahimi, T. Ajanthan, T. Mensink, C. Sminchisescu and R. Hartley (2021), Calibration
    of neural networks using splines.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> bc.CDFSpline(knots=3).fit(p, y).predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.35, 0.59]
    """

    knots: int = 6

    _domain = "order"

    def _check_options(self) -> None:
        check_count(self.knots, "knots", 2)

    def _fit(self, rows: Source, seed: int) -> State:
        from scipy.interpolate import CubicSpline

        groups = distinct_scores(rows, "CDFSpline")
        cumulative = np.cumsum(groups.weight)
        # Division by the last sum makes the last proportion exactly one.
        t = np.concatenate([[0.0], cumulative / cumulative[-1]])
        rates = groups.positive / groups.weight
        knots = np.linspace(0, 1, min(self.knots, len(groups.weight) + 1))
        if self.knots > 2 and _most_between(knots, t, groups) > _CROWDED:
            while _most_between(knots, t, groups) > _CROWDED / 2 and 10 * len(knots) < len(t):
                knots = np.linspace(0, 1, 2 * len(knots) - 1)
        values = _least_squares(knots, t, rates)
        slope = CubicSpline(knots, values, bc_type="natural").derivative()
        # The effective number is larger only if some weights are below one.
        count = max(rows.weight, rows.weight * (rows.weight / rows.squares))
        return {
            "floor": np.asarray(0.5 / (count + 1)),
            "scores": groups.lowest,
            "ranks": t[1:] / 2 + t[:-1] / 2,
            "knots": knots,
            "coefficients": slope.c,
        }

    def _apply(self, state: State, scores: XArray) -> XArray:
        xp, knots, floor = namespace(scores), state["knots"], state["floor"]
        ranks = interpolate(scores, state["scores"], state["ranks"])
        piece = xp.clip(search(knots, ranks, "right") - 1, 0, knots.shape[0] - 2)
        along = ranks - xp.take(knots, piece, axis=0)
        square, linear, constant = (
            xp.take(state["coefficients"][i, :], piece, axis=0) for i in range(3)
        )
        return two_columns(xp.clip((square * along + linear) * along + constant, floor, 1 - floor))


def _most_between(knots: np.ndarray, t: np.ndarray, groups: Groups) -> float:
    """Return the largest proportion of a class between two neighboring knots."""
    most = 0.0
    for weights in (groups.positive, groups.weight - groups.positive):
        total = np.concatenate([[0.0], np.cumsum(weights)])
        if total[-1] > 0:
            most = max(most, float(np.diff(np.interp(knots, t, total)).max() / total[-1]))
    return most


def _least_squares(knots: np.ndarray, t: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Compute the values at the knots of the natural spline closest to h.

    Between two knots with values a and b, with u from 0 to 1 and v = 1 - u, a spline is
    a v + b u + c (v**3 - v) + d (u**3 - u). The spline is smooth if all triples of neighboring
    coefficients c, d, e satisfy c + 4 d + e = (second difference of the values). Values,
    coefficients and multipliers of these equations are coupled only to those of neighboring knots,
    so the system is banded.
    """
    from scipy.linalg import hilbert, solve_banded

    size, width = len(knots), knots[1]
    # The functions v, u, v**3 - v and u**3 - u in powers of u, and integrals of their products.
    functions = np.array([[1, -1, 0, 0], [0, 1, 0, 0], [0, -2, 3, -1], [0, -1, 0, 1]])
    product = functions @ hilbert(4) @ functions.T
    integrals = functions @ _moments(knots, t, rates) / width
    right = np.zeros((size, 3))
    right[:-1, :2] += integrals[::2].T
    right[1:, :2] += integrals[1::2].T
    # Row 5 + i - j of the bands holds entry (i, j). There are three unknowns per knot.
    bands = np.zeros((11, 3 * size))

    def put(row: int, column: int, pieces: slice, entry: float) -> None:
        """Add an entry for the intervals between knots, or for the inner knots."""
        at = np.arange(size)[pieces] * 3
        bands[5 + row - column, at + column] += entry

    corner = [0, 3, 1, 4]
    for i, row in enumerate(corner):
        for j, column in enumerate(corner):
            put(row, column, slice(0, -1), product[i, j])
    for column, entry in zip((-3, 0, 3, -2, 1, 4), (-1, 2, -1, 1, 4, 1), strict=True):
        put(2, column, slice(1, -1), entry)
        put(column, 2, slice(1, -1), entry)
    # At both ends the values are known and the second derivative is zero.
    for unknown in (0, 1, 2, 3 * size - 3, 3 * size - 2, 3 * size - 1):
        for column in range(max(0, unknown - 5), min(3 * size, unknown + 6)):
            bands[5 + unknown - column, column] = float(column == unknown)
    right[[0, -1]] = 0.0
    right[-1, 0] = rates @ np.diff(t)
    return solve_banded((5, 5), bands, right.ravel()).reshape(size, 3)[:, 0]


def _moments(knots: np.ndarray, t: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Compute the integrals (4, k - 1) of h times u**p, for p from 0 to 3.

    u goes from 0 to 1 between two knots. h is piecewise linear with slopes ``rates`` between the
    points t.
    """
    h = np.concatenate([[0.0], np.cumsum(rates * np.diff(t))])
    start = np.interp(knots[:-1], t, h)
    slope = rates[np.maximum(np.searchsorted(t, knots[:-1], side="left") - 1, 0)]
    at, change = t[1:-1], np.diff(rates)
    piece = np.minimum(np.searchsorted(knots, at, side="right") - 1, len(knots) - 2)
    width = np.diff(knots)
    along = (at - knots[piece]) / width[piece]
    power = [np.bincount(piece, change * along**p, len(width)) for p in range(6)]
    return np.stack(
        [
            width * start / (p + 1)
            + width**2 * (slope + power[0]) / (p + 2)
            - width**2 * power[1] / (p + 1)
            + width**2 * power[p + 2] / ((p + 1) * (p + 2))
            for p in range(4)
        ]
    )
