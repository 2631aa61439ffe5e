"""Calibration by a spline through the cumulative share of class 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayescal._core.arrays import namespace, search
from bayescal._core.checks import check_count
from bayescal.calibrators._base import State
from bayescal.calibrators._inputs import two_columns
from bayescal.calibrators._isotonic import interpolate
from bayescal.calibrators._ordered import OrderCalibrator
from bayescal.calibrators._ranking import Groups, SomeRows, distinct_scores

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

__all__ = ["CDFSpline"]

#: Of a class, what a spline may have between two knots.
_CROWDED = 0.8


@dataclass(eq=False, repr=False)
class CDFSpline(OrderCalibrator):
    r"""Slope of a spline through the cumulative share of class 1, over the rank of the score.

    With rows in ascending order of score, t the share of the weight up to a row and

    .. math:: h(t) = \frac{\sum_{t_i \le t} w_i y_i}{\sum_i w_i},

    a natural cubic spline is fitted to h, and the probability at rank t is its slope, clipped to
    [e, 1 - e]:

    .. math:: \hat p(s) = \hat h'(t(s)), \qquad e = \frac{1}{2 (n + 1)}.

    Parameters
    ----------
    knots : int
        Number of knots, at least 2, equally spaced over [0, 1]. With d distinct scores at most
        d + 1 are used; two give the share of class 1 for all scores. More are used where nearly all
        of a class lies between two, as where most scores are next to zero; see below.

    Notes
    -----
    What the paper leaves open: h is a straight line between one distinct score and the next, so
    that neither the order of tied rows nor writing a weight as repeated rows matters. The spline
    minimizes :math:`\int_0^1 (\hat h - h)^2 dt`, the limit of least squares over many rows, among
    the splines with the values of h at 0 and 1, which are known: so the mean probability is the
    share of class 1, but for clipping. The rank of a score is the middle of the ranks of the rows
    that have it, linear in between, and that of the first or last score outside.

    Of one class among many nearly all rows are beyond the last knot but one, where the rate rises
    from none to all, which one cubic cannot follow. So where more than 0.8 of a class lies between
    two knots the intervals are halved until no more than 0.4 does, or there are five distinct
    scores for each. The paper clips at zero and one, and a single row of a class that was given a
    probability of zero ruins a log loss. n is the sum of the weights, or, where some are below one,
    their effective number, if larger: the squared sum over the sum of squares.

    The state is ``floor``, ``scores`` (d,) and ``ranks`` (d,) of the distinct ones, ``knots`` (k,),
    ``coefficients`` (3, k - 1), those of the square, the linear and the constant term of the slope
    in each interval, from its left knot. Fitting n rows takes O(n log n + n k), predicting O(log d)
    for each score. Rows that come in blocks take two passes, which find their distinct scores,
    4,194,304 at most.

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

    def _fit_rows(self, rows: SomeRows, seed: int) -> State:
        from scipy.interpolate import CubicSpline

        groups = distinct_scores(rows, "CDFSpline")
        share = np.cumsum(groups.weight)
        # Divided by itself, the last share is one exactly, so are shares of equal sums.
        t = np.concatenate([[0.0], share / share[-1]])
        rates = groups.positive / groups.weight
        knots = np.linspace(0, 1, min(self.knots, len(groups.weight) + 1))
        if self.knots > 2 and _most_between(knots, t, groups) > _CROWDED:
            while _most_between(knots, t, groups) > _CROWDED / 2 and 10 * len(knots) < len(t):
                knots = np.linspace(0, 1, 2 * len(knots) - 1)
        # One spline for each knot, with the value one there and zero at the others.
        basis = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")
        gram = _products(basis, knots)
        total = float(rates @ np.diff(t))
        # From the straight line between the ends, which are known, to the best values inside.
        values = total * knots
        rest = _against_steps(basis, knots, t, rates, total) - gram @ values
        values[1:-1] += np.linalg.solve(gram[1:-1, 1:-1], rest[1:-1])
        slope = CubicSpline(knots, values, bc_type="natural").derivative()
        # The latter is greater only if some weights are below one.
        count = max(rows.weight, rows.weight * (rows.weight / rows.squares))
        return {
            "floor": np.asarray(0.5 / (count + 1)),
            "scores": groups.lowest,
            "ranks": t[1:] / 2 + t[:-1] / 2,
            "knots": knots,
            "coefficients": slope.c,
        }

    def _apply(self, state: State, scores: Any) -> Any:
        xp, knots, floor = namespace(scores), state["knots"], state["floor"]
        ranks = interpolate(scores, state["scores"], state["ranks"])
        piece = xp.clip(search(knots, ranks, "right") - 1, 0, knots.shape[0] - 2)
        along = ranks - xp.take(knots, piece, axis=0)
        square, linear, constant = (
            xp.take(state["coefficients"][i, :], piece, axis=0) for i in range(3)
        )
        return two_columns(xp.clip((square * along + linear) * along + constant, floor, 1 - floor))


def _most_between(knots: np.ndarray, t: np.ndarray, groups: Groups) -> float:
    """Return the greatest share of a class that lies between two knots."""
    most = 0.0
    for own in (groups.positive, groups.weight - groups.positive):
        total = np.concatenate([[0.0], np.cumsum(own)])
        if total[-1] > 0:
            most = max(most, float(np.diff(np.interp(knots, t, total)).max() / total[-1]))
    return most


def _products(basis: CubicSpline, knots: np.ndarray) -> np.ndarray:
    """Return the integrals of the products of all pairs of splines, by Gauss's rule: exact."""
    nodes, node_weights = np.polynomial.legendre.leggauss(4)
    half = np.diff(knots)[:, None] / 2
    values = basis((knots[:-1, None] + half * (1 + nodes)).ravel())
    return values.T @ ((half * node_weights).ravel()[:, None] * values)


def _against_steps(
    basis: CubicSpline, knots: np.ndarray, t: np.ndarray, rates: np.ndarray, total: float
) -> np.ndarray:
    """Return the integrals of the splines times h, which rises at ``rates`` between the t.

    By parts, twice: what is left is a sum over the changes of the rates, of polynomials of degree
    five that are the same for all t between two knots, so that only their moments are needed.
    """
    once, twice = basis.antiderivative(1), basis.antiderivative(2)
    at, change = t[1:-1], np.diff(rates)
    piece = np.minimum(np.searchsorted(knots, at, side="right") - 1, len(knots) - 2)
    along = at - knots[piece]
    moments = [np.bincount(piece, change, len(knots) - 1)]
    for _ in range(5):
        change = change * along
        moments.append(np.bincount(piece, change, len(knots) - 1))
    inner = np.einsum("pi,pik->k", np.stack(moments[::-1]), twice.c)
    return total * once(1.0) - rates[-1] * twice(1.0) + inner
