"""Spline calibration: a natural cubic spline in the log odds, its roughness chosen by CV."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import namespace
from bayescal._core.checks import check_choice, check_count, check_strength
from bayescal.calibrators._base import State
from bayescal.calibrators._log_odds import LogOddsCalibrator
from bayescal.calibrators._natural_spline import (
    FUNCTIONS,
    Penalty,
    choose_knots,
    evaluate,
    make_basis,
    second_derivatives,
)
from bayescal.calibrators._ranking import as_rows, distinct_scores
from bayescal.calibrators._rows import RowBlocks
from bayescal.regression.ridge import ridge_path

__all__ = ["Spline", "compact_logit"]

_POINTS = 512
_GRID, _MORE = 17, 8
#: Rows of equal score and label share a fold if they are not more than this share of all: the
#: first if that score has one label only, the second if both.
_SHARES = 1 / 20, 1 / (1 << 20)


@dataclass(eq=False, repr=False)
class Spline(LogOddsCalibrator):
    r"""Log odds that are a natural cubic spline in the probability, or in its compact logit.

    Minimizes the negative log likelihood plus :math:`\tfrac\lambda2 \sum_k \theta_k^2` over the
    coefficients of the natural cubic basis but the constant, as published, or plus
    :math:`\tfrac\lambda2 \int f''(x)^2 dx`, which leaves the slope free. The basis used inside is
    another one of the same space: its functions are orthogonal on the data, and both penalties are
    sums of squares in it. Of them the 30 smoothest are kept. Knots nearer than 1e-6 of the
    range are merged.

    The strength is chosen among 17, with few distinct scores 25, by cross-validated log loss. For
    that scores are gathered in at most 512 points of equal weight. Rows of equal score and label
    share a fold, unless they count for more than one row and the score has both labels, or for more
    than a twentieth of all rows.
    Folds are drawn within each class, by a fixed seed and in the order of the scores. The published
    basis, the compact logit and the points favor one end: exchanging the classes changes the result
    slightly.

    Parameters
    ----------
    rescale : {None, "compact_logit"}
        What the spline is a function of: the probability itself or its :func:`compact_logit`.
    knots : int
        At most this many knots, quantiles of the distinct scores.
    penalty : {"coefficients", "curvature"}
    strength : float or "cv"
        :math:`\lambda`, in nats.
    folds : int
    rule : {"one_se", "best"}
        Of cross-validation: the greatest strength whose log loss exceeds the least by at most one
        standard error of that difference, or the one with the least, as published. The first
        overfits less where rows are few.

    Attributes
    ----------
    strength_ : float
        Of the penalty.
    knots_ : array

    Notes
    -----
    O(n log n + n) time to fit, with 30 columns; O(m) to apply. Rows that come in blocks take two
    passes, which find their distinct scores, 4,194,304 at most; the rest is done with these.

    References
    ----------
    B. Lucena (2018), Spline-based probability calibration.
    P. Green and B. Silverman (1994), Nonparametric regression and generalized linear models.

    Examples
    --------
    >>> import bayescal as bc
    >>> import numpy as np
    >>> p = np.linspace(0.05, 0.95, 60)
    >>> y = np.arange(60) * 7 % 10 < 10 * p**2
    >>> bc.Spline().fit(p, y).predict_proba([0.5, 0.8])[:, 1].round(2).tolist()
    [0.28, 0.57]
    """

    rescale: Literal["compact_logit"] | None = None
    knots: int = 200
    penalty: Penalty = "coefficients"
    strength: float | Literal["cv"] = "cv"
    folds: int = 5
    rule: Literal["one_se", "best"] = "one_se"

    strength_: float = field(init=False)
    knots_: np.ndarray = field(init=False)

    _smooth: ClassVar[bool] = False
    _domain = "probability"

    def _check_options(self) -> None:
        check_choice(self.rescale, "rescale", (None, "compact_logit"))
        check_choice(self.penalty, "penalty", ("curvature", "coefficients"))
        check_choice(self.rule, "rule", ("one_se", "best"))
        check_count(self.knots, "knots", 3)
        check_count(self.folds, "folds", 2)
        check_strength(self.strength)

    @property
    def symmetric(self) -> bool:
        """Not the basis of "coefficients", which begins at the left, nor a rescaling near one."""
        return self.penalty == "curvature" and self.rescale is None

    @property
    def _fits_blocks(self) -> bool:
        return True

    def _fit_blocks(self, rows: RowBlocks, seed: int) -> State:
        # Rows of equal score and label are one to every step of the fit.
        return self._fit(*as_rows(distinct_scores(rows, "Spline")), seed)

    def _prepare(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        state: State = {}
        if self.rescale:
            below = scores[scores < 1]
            least = 1 - below.max() if below.size else 0.5
            state["epsilon"] = np.asarray(10 ** (np.floor(np.log10(least)) - 1))
        x = self._rescaled(state, scores)
        order = np.lexsort((weights, y, x))
        points = _gather(x[order], y[order], weights[order], self.folds)
        distinct = np.unique(x)
        few = len(points.x) < min(self.knots, len(distinct))
        knots = choose_knots(points.x if few else distinct, self.knots)
        functions, roughness = make_basis(knots, points.x, points.weights.sum(axis=0), self.penalty)
        state |= {"knots": knots, "functions": functions, "roughness": roughness}
        state["bends"] = second_derivatives(knots, functions)
        strength = self.strength
        if strength == "cv":
            columns = evaluate(knots, functions, state["bends"], points.x)
            strength = _choose(columns, points, roughness, self.rule)
        state["strength"] = np.asarray(float(strength))
        return state

    def _penalties(self, state: State, p: int) -> np.ndarray:
        return state["strength"] * state["roughness"]

    def _columns(self, state: State, scores: Any) -> Any:
        knots, functions, bends = (state[name] for name in ("knots", "functions", "bends"))
        return evaluate(knots, functions, bends, self._rescaled(state, scores))

    def _width(self, state: State, scores: Any) -> int:
        return 8 * state["functions"].shape[1]

    def _describe(self, state: State, theta: np.ndarray) -> State:
        return {"coef": theta}

    def _rescaled(self, state: State, scores: Any) -> Any:
        return compact_logit(scores, state["epsilon"]) if self.rescale else scores


def compact_logit(p: Any, epsilon: Any) -> Any:
    r"""Stretch probabilities near 0 and 1 as the logit does, but onto [0, 1].

    .. math:: G(p) = \frac{1 - 2\epsilon}{2 \log((1 - \epsilon) / \epsilon)}
              \operatorname{logit}(p) + \frac12

    inside :math:`[\epsilon, 1 - \epsilon]`, and p itself outside, where the two meet: section 5.1
    of B. Lucena (2018), Spline-based probability calibration.

    Examples
    --------
    >>> import numpy as np
    >>> compact_logit(np.array([0.0, 0.001, 0.01, 0.5, 0.9999]), 1e-3).round(3).tolist()
    [0.0, 0.001, 0.168, 0.5, 1.0]
    """
    xp = namespace(p)
    inside = (p >= epsilon) & (1 - p >= epsilon)
    safe = xp.where(inside, p, 0.5)
    epsilon = xp.asarray(epsilon, dtype=p.dtype)
    factor = (1 - 2 * epsilon) / (2 * (xp.log1p(-epsilon) - xp.log(epsilon)))
    return xp.where(inside, factor * (xp.log(safe) - xp.log1p(-safe)) + 0.5, p)


class _Points(NamedTuple):
    """Scores gathered in points (k,), with the weight (folds, k) of cases and of positives."""

    x: np.ndarray
    weights: np.ndarray
    positives: np.ndarray


def _gather(x: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: int) -> _Points:
    """Gather sorted rows in points of equal weight; equal scores go to one point."""
    start = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    first = np.concatenate([[True], x[1:] > x[:-1]])
    rank = np.maximum.accumulate(np.where(first, start, 0))
    share = np.floor(rank / weights.sum() * _POINTS).astype(int)
    begins = np.concatenate([[False], share[1:] > share[:-1]])
    if first.sum() <= _POINTS:
        begins = np.concatenate([[False], first[1:]])
    point = np.cumsum(begins)
    count = point[-1] + 1
    mean = np.bincount(point, weights * (x - x[0])) / np.bincount(point, weights) + x[0]
    cell, parts, fold = _divide(x, y, weights, folds)
    place = fold * count + point[cell]
    total = np.bincount(place, parts, minlength=folds * count).reshape(folds, count)
    ones = np.bincount(place, parts * y[cell], minlength=folds * count).reshape(folds, count)
    return _Points(mean, total, ones)


def _divide(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return parts of sorted rows: the row that each stands for, its weight and its fold."""
    first = np.concatenate([[True], (np.diff(x) > 0) | (np.diff(y) != 0)])
    rows = np.flatnonzero(first)
    weight = np.add.reduceat(weights, rows)
    # A score with both labels must not lose all of one with a fold.
    same = np.diff(x[rows]) == 0
    both = np.append(False, same) | np.append(same, False)
    most = np.maximum(1.0, np.where(both, _SHARES[1], _SHARES[0]) * weight.sum())
    # Sums of weights carry rounding errors.
    pieces = np.maximum(np.ceil(weight / most - 1e-9), 1).astype(int)
    cell = np.repeat(rows, pieces)
    fold = np.empty(len(cell), int)
    # Not in turn: folds that are alike in every region would not punish what is only noise.
    random = np.random.default_rng(0)
    for label in (0, 1):
        own = np.flatnonzero(y[cell] == label)
        fold[own] = random.permutation(len(own)) % folds
    return cell, np.repeat(weight / pieces, pieces), fold


def _choose(columns: np.ndarray, points: _Points, roughness: np.ndarray, rule: str) -> float:
    """Return the strength that cross-validation prefers; of equals the greatest."""
    rough = roughness[roughness > 0]
    if not rough.size:
        return 0.0
    total = points.weights.sum()
    # From where the smoothest curve is gone to where the roughest is half free; and wholly free if
    # all functions of the space are kept, as with few distinct scores.
    grid = np.geomspace(250 / rough[0], 0.25 / rough[-1], _GRID) * total
    if len(roughness) < FUNCTIONS:
        grid = np.concatenate([grid, grid[-1] * np.geomspace(1, 1e-3, _MORE + 1)[1:]])
    path = ridge_path(columns, points.weights, points.positives, grid[:, None] * roughness)
    held = points.weights.sum(axis=1)
    share = held / held.sum()
    losses = np.where(np.isnan(path.losses), np.inf, path.losses)
    best = int(np.argmin(losses @ share))
    if rule == "one_se" and np.isfinite(losses[best]).all():
        # Of differences: folds that are hard are so for all strengths.
        worse = np.minimum(losses, 1e100) - losses[best]
        mean = worse @ share
        error = np.sqrt((worse - mean[:, None]) ** 2 @ share / (len(held) - 1))
        best = int(np.argmax((mean <= error) & np.isfinite(losses).all(axis=1)))
    return float(grid[best])
