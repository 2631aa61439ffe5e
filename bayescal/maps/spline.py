"""Spline calibration: a natural cubic spline in the log odds, its roughness chosen by CV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bayescal._core.checks import check_choice, check_count, check_strength
from bayescal.maps._map import Domain, State, register
from bayescal.maps._parametric import Parametric
from bayescal.regression.ridge import ridge_path

__all__ = ["Spline", "compact_logit"]

#: Smoothest functions of the spline space that are kept: rougher ones never get weight.
_FUNCTIONS = 30
_POINTS = 512
_APART, _NOTHING = 1e-6, 1e-100
_GRID = 17


@register
@dataclass(frozen=True)
class Spline(Parametric):
    r"""Log odds that are a natural cubic spline in the probability, or in its compact logit.

    Minimises the negative log likelihood plus :math:`\tfrac\lambda2 \sum_k \theta_k^2` over the
    coefficients of the natural cubic basis but the constant, as published, or plus
    :math:`\tfrac\lambda2 \int f''(x)^2 dx`, which leaves the slope free. The basis used inside is
    another one of the same space: its functions are orthogonal on the data, and both penalties are
    sums of squares in it. Of them the 30 smoothest are kept. Knots nearer than 1e-6 of the
    range are merged.

    The strength is chosen among 17 by cross-validated log loss. For that scores are gathered in at
    most 512 points of equal weight; folds are drawn within each class, by a fixed seed and in the
    order of the scores, so that the choice does not depend on the order of the rows.

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

    Notes
    -----
    O(n log n + n) time to fit, with 30 columns; O(m) to apply.

    References
    ----------
    B. Lucena (2018), Spline-based probability calibration.
    P. Green and B. Silverman (1994), Nonparametric regression and generalized linear models.

    Examples
    --------
    >>> import numpy as np
    >>> p = np.linspace(0.05, 0.95, 40)
    >>> y = (np.arange(40) * 7 % 10 < 10 * p**2).astype(int)
    >>> calibration = Spline(rescale="compact_logit")
    >>> state = calibration.fit(p, y, np.ones(40))
    >>> bool(abs(calibration.apply(state, np.array([0.5]))[0] - 0.25) < 0.1)
    True
    """

    rescale: Literal["compact_logit"] | None = None
    knots: int = 200
    penalty: Literal["curvature", "coefficients"] = "coefficients"
    strength: float | Literal["cv"] = "cv"
    folds: int = 5
    rule: Literal["one_se", "best"] = "one_se"

    name: ClassVar[str] = "spline"

    def __post_init__(self) -> None:
        check_choice(self.rescale, "rescale", (None, "compact_logit"))
        check_choice(self.penalty, "penalty", ("curvature", "coefficients"))
        check_choice(self.rule, "rule", ("one_se", "best"))
        if check_count(self.knots, "knots") < 3:
            raise ValueError(f"knots must be at least 3, got {self.knots}")
        if check_count(self.folds, "folds") < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")
        check_strength(self.strength)

    @property
    def domain(self) -> Domain:
        return "probability"

    @property
    def smooth(self) -> bool:
        return False

    def prepare(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
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
        knots = _choose_knots(points.x if few else distinct, self.knots)
        functions, roughness = _basis(knots, points, self.penalty)
        state |= {"knots": knots, "functions": functions, "roughness": roughness}
        strength = self.strength
        if strength == "cv":
            columns = _columns(knots, functions, points.x)
            strength = _choose(columns, points, roughness, self.rule)
        state["strength"] = np.asarray(float(strength))
        return state

    def penalties(self, state: State, p: int) -> np.ndarray:
        return state["strength"] * state["roughness"]

    def columns(self, state: State, scores: np.ndarray) -> np.ndarray:
        return _columns(state["knots"], state["functions"], self._rescaled(state, scores))

    def describe(self, theta: np.ndarray) -> State:
        return {"coef": theta}

    def _rescaled(self, state: State, scores: np.ndarray) -> np.ndarray:
        return compact_logit(scores, float(state["epsilon"])) if self.rescale else scores


def compact_logit(p: np.ndarray, epsilon: float) -> np.ndarray:
    r"""Stretch probabilities near 0 and 1 as the logit does, but onto [0, 1].

    .. math:: G(p) = \frac{1 - 2\epsilon}{2 \log((1 - \epsilon) / \epsilon)}
              \operatorname{logit}(p) + \frac12

    inside :math:`[\epsilon, 1 - \epsilon]`, and p itself outside, where the two meet.

    Parameters
    ----------
    p : array
        Probabilities in [0, 1].
    epsilon : float
        In (0, 1/2).

    Returns
    -------
    array of the same shape

    References
    ----------
    B. Lucena (2018), Spline-based probability calibration, section 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> compact_logit(np.array([0.0, 0.001, 0.01, 0.5, 0.9999]), 1e-3).round(3).tolist()
    [0.0, 0.001, 0.168, 0.5, 1.0]
    """
    inside = (p >= epsilon) & (1 - p >= epsilon)
    safe = np.where(inside, p, 0.5)
    factor = (1 - 2 * epsilon) / (2 * (np.log1p(-epsilon) - np.log(epsilon)))
    return np.where(inside, factor * (np.log(safe) - np.log1p(-safe)) + 0.5, p)


_Functions = Callable[[np.ndarray], np.ndarray]


class _Points:
    """Scores gathered in points (k,), with the weight (folds, k) of cases and of positives."""

    def __init__(self, x: np.ndarray, weights: np.ndarray, positives: np.ndarray) -> None:
        self.x, self.weights, self.positives = x, weights, positives


def _choose_knots(distinct: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of the distinct scores, spread evenly over their ranks."""
    index = np.linspace(0, len(distinct) - 1, min(most, len(distinct)))
    knots = distinct[np.round(index).astype(int)]
    # Nearer to each other than this they only cost digits.
    least = _APART * (knots[-1] - knots[0])
    if knots[-1] - knots[0] < _NOTHING:
        return knots[:1]
    cell = np.floor((knots - knots[0]) / least) if least > 0 else np.zeros(len(knots))
    kept = np.concatenate([[True], np.diff(cell) > 0])
    kept[1:-1] &= (knots[-1] - knots[1:-1]) > least
    kept[-1] |= least > 0
    return knots[kept]


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
    fold = np.empty(len(x), int)
    # Not in turn: folds that are alike in every region would not punish what is only noise.
    random = np.random.default_rng(0)
    for label in (0, 1):
        rows = np.flatnonzero(y == label)
        fold[rows] = random.permutation(len(rows)) % folds
    cell = fold * count + point
    total = np.bincount(cell, weights, minlength=folds * count).reshape(folds, count)
    ones = np.bincount(cell, weights * y, minlength=folds * count).reshape(folds, count)
    return _Points(mean, total, ones)


def _basis(knots: np.ndarray, points: _Points, penalty: str) -> tuple[np.ndarray, np.ndarray]:
    """Return functions as values at the knots (k, p), and the roughness (p,) of each.

    On the data they are orthogonal and of mean square one; first come those without penalty, then
    the others, smoothest first: the basis of Demmler and Reinsch.
    """
    from scipy.linalg import eigh

    weights = points.weights.sum(axis=0)
    root = np.sqrt(weights / weights.sum())
    free, unit = _unit_functions(knots, penalty)
    at_points = np.concatenate([free(points.x), unit(points.x)], axis=1)
    at_knots = np.concatenate([free(knots), unit(knots)], axis=1)
    p = free(knots[:1]).shape[1]
    # Orthogonal functions without penalty, and the part of all others that they do not hold.
    factor = np.linalg.qr(root[:, None] * at_points[:, :p])[1]
    if p > 1 and abs(factor[1, 1]) < 1e-10:
        # All weight is at one score: there is no line through it.
        return np.ones((len(knots), 1)), np.zeros(1)
    factor *= np.sign(np.diagonal(factor))[:, None]
    plain = np.linalg.solve(factor.T, at_knots[:, :p].T).T
    held = root[:, None] * np.linalg.solve(factor.T, at_points[:, :p].T).T
    shares = held.T @ (root[:, None] * at_points[:, p:])
    rest = root[:, None] * at_points[:, p:] - held @ shares
    size = rest.shape[1]
    if not size:
        return plain, np.zeros(p)
    kept = min(size, _FUNCTIONS - p)
    squares, vectors = eigh(rest.T @ rest, subset_by_index=(size - kept, size - 1))
    squares, vectors = squares[::-1], vectors[:, ::-1]
    seen = squares > 1e-13 * max(squares[0], 1e-300)
    vectors = vectors[:, seen] / np.sqrt(squares[seen])
    others = (at_knots[:, p:] - plain @ shares) @ vectors
    roughness = np.concatenate([np.zeros(p), 1 / squares[seen]])
    return np.concatenate([plain, others], axis=1), roughness


def _unit_functions(knots: np.ndarray, penalty: str) -> tuple[_Functions, _Functions]:
    """Return the functions without penalty, and those whose squared coefficients are the penalty.

    Both are functions of points (m,) that return columns (m, p). Together they span the natural
    cubic splines.
    """
    low, k = knots[0], len(knots)
    reach = max(knots[-1] - low, 1e-300)
    if penalty == "coefficients":
        # The slope is penalised too: these are all of the published basis but the constant.
        return _powers(low, reach, 0, min(k, 1)), lambda x: _natural(knots, x)
    line = _powers(low, reach, 0, min(k, 2))
    if k < 3:
        return line, lambda x: np.empty((len(x), 0))
    h = np.diff(knots)
    gram = np.diag((h[:-1] + h[1:]) / 3) + np.diag(h[1:-1] / 6, 1) + np.diag(h[1:-1] / 6, -1)
    # Second derivatives are straight between knots: hats, of which this is the product.
    mix = np.linalg.inv(np.linalg.cholesky(gram)).T
    from scipy.interpolate import BSpline

    ends = np.concatenate([knots[:1], knots, knots[-1:]])
    integral = BSpline(ends, np.eye(k)[:, 1:-1] @ mix, 1).antiderivative(2)
    return line, lambda x: _straight_outside(integral, knots, x)


def _powers(low: float, reach: float, first: int, last: int) -> _Functions:
    def columns(x: np.ndarray) -> np.ndarray:
        return ((x - low) / reach)[:, None] ** np.arange(first, last)

    return columns


def _natural(knots: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the natural cubic basis (m, k - 1) without its constant."""
    if len(knots) == 1:
        return np.empty((len(x), 0))
    last = knots[-1]
    cubes = np.maximum(x[:, None] - knots, 0) ** 3
    d = (cubes[:, :-1] - cubes[:, -1:]) / (last - knots[:-1])
    return np.concatenate([x[:, None], d[:, :-1] - d[:, -1:]], axis=1)


def _straight_outside(spline: Any, knots: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Evaluate a spline at x (m,): (m, p); it goes on straight outside the knots."""
    inside = np.clip(x, knots[0], knots[-1])
    result = spline(inside)
    outside = np.flatnonzero(x != inside)
    if outside.size:
        result[outside] += (x - inside)[outside, None] * spline(inside[outside], 1)
    return result


def _columns(knots: np.ndarray, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Evaluate natural cubic splines with values (k, p) at the knots at x (m,): (p, m)."""
    from scipy.interpolate import CubicSpline

    if len(knots) == 1:
        return np.repeat(values.T, len(x), axis=1)
    spline = CubicSpline(knots, values, bc_type="natural")
    return np.ascontiguousarray(_straight_outside(spline, knots, x).T)


def _choose(columns: np.ndarray, points: _Points, roughness: np.ndarray, rule: str) -> float:
    """Return the strength that cross-validation prefers; of equals the greatest."""
    rough = roughness[roughness > 0]
    if not rough.size:
        return 0.0
    total = points.weights.sum()
    # From where the smoothest bend is gone to where the roughest is free.
    grid = np.geomspace(250 / rough[0], 0.25 / rough[-1], _GRID) * total
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
