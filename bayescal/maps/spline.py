"""Spline calibration: a natural cubic spline in the log odds, its roughness chosen by CV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.checks import check_choice, check_count
from bayescal.logistic._ridge import ridge_path
from bayescal.maps._map import Domain, State, register
from bayescal.maps._parametric import Parametric

__all__ = ["Spline", "compact_logit"]

#: Smoothest functions of the spline space that are kept: rougher ones never get weight.
_FUNCTIONS = 30
_POINTS = 512
_APART = 1e-6
_GRID = 17


@register
@dataclass(frozen=True)
class Spline(Parametric):
    r"""Log odds that are a natural cubic spline in the probability, or in its compact logit.

    Minimises the negative log likelihood plus :math:`\tfrac\lambda2 \int f''(x)^2 dx`, or plus
    :math:`\tfrac\lambda2 \sum_k \theta_k^2` over the coefficients of the natural cubic basis but
    the constant, as published. The basis used inside is another one of the same space: its
    functions are orthogonal on the data, and both penalties are sums of squares in it. Of them the
    30 smoothest are kept. Knots nearer than 1e-6 of the range are merged.

    The strength is chosen among 17 by cross-validated log loss. For that scores are gathered in at
    most 512 points of equal weight; folds are every k-th row of a class in the order of the scores,
    so that the choice does not depend on the order of the rows.

    Parameters
    ----------
    rescale : {None, "compact_logit"}
        What the spline is a function of: the probability itself or its :func:`compact_logit`.
    knots : int
        At most this many knots, quantiles of the distinct scores.
    penalty : {"curvature", "coefficients"}
    strength : float or "cv"
        :math:`\lambda`, in nats.
    folds : int
    rule : {"one_se", "best"}
        Of cross-validation: the greatest strength whose log loss is within one standard error of
        the least, or the least itself, as published. The first overfits less where rows are few.

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
    penalty: Literal["curvature", "coefficients"] = "curvature"
    strength: float | Literal["cv"] = "cv"
    folds: int = 10
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
        if self.strength != "cv" and not 0 <= float(self.strength) < np.inf:
            raise ValueError(f"strength must be 'cv' or not negative, got {self.strength!r}")

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
        knots = _choose_knots(x, self.knots)
        order = np.lexsort((weights, y, x))
        points = _gather(x[order], y[order], weights[order], self.folds)
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
    inside = (p >= epsilon) & (p <= 1 - epsilon)
    safe = np.where(inside, p, 0.5)
    factor = (1 - 2 * epsilon) / (2 * (np.log1p(-epsilon) - np.log(epsilon)))
    return np.where(inside, factor * (np.log(safe) - np.log1p(-safe)) + 0.5, p)


class _Points:
    """Scores gathered in points (k,), with the weight (folds, k) of cases and of positives."""

    def __init__(self, x: np.ndarray, weights: np.ndarray, positives: np.ndarray) -> None:
        self.x, self.weights, self.positives = x, weights, positives


def _choose_knots(x: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of the distinct scores, spread evenly over their ranks."""
    distinct = np.unique(x)
    index = np.linspace(0, len(distinct) - 1, min(most, len(distinct)))
    knots = distinct[np.round(index).astype(int)]
    # Nearer to each other than this they only cost digits.
    least = _APART * (knots[-1] - knots[0])
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
    point = np.cumsum(np.concatenate([[False], share[1:] > share[:-1]]))
    count = point[-1] + 1
    mean = np.bincount(point, weights * (x - x[0])) / np.bincount(point, weights) + x[0]
    fold = np.empty(len(x), int)
    for label in (0, 1):
        rows = np.flatnonzero(y == label)
        fold[rows] = np.arange(len(rows)) % folds
    cell = fold * count + point
    total = np.bincount(cell, weights, minlength=folds * count).reshape(folds, count)
    ones = np.bincount(cell, weights * y, minlength=folds * count).reshape(folds, count)
    return _Points(mean, total, ones)


def _basis(knots: np.ndarray, points: _Points, penalty: str) -> tuple[np.ndarray, np.ndarray]:
    """Return functions as coefficients (k + 2, p) of B-splines, and the roughness (p,) of each.

    On the data they are orthogonal and of mean square one, smoothest first, the constant before
    all: the basis of Demmler and Reinsch. One knot has the constant alone, two a line.
    """
    k = len(knots)
    weights = points.weights.sum(axis=0)
    share = weights / weights.sum()
    if k == 1:
        return np.ones((1, 1)), np.zeros(1)
    mean = share @ points.x
    spread = np.sqrt(share @ (points.x - mean) ** 2)
    line = (_averages(knots) - mean) / (spread if spread > 0 else 1.0)
    plain = np.stack([np.ones(k + 2), line], axis=1)
    if k == 2:
        root = _penalty_root(knots, penalty)
        return plain, np.sum((plain.T @ root) ** 2, axis=1) * [0, 1]
    natural = _natural(knots)
    at_points = _columns(knots, natural, points.x) * np.sqrt(share)
    gram = at_points @ at_points.T
    # Functions that hardly any point sees come out as very rough, whatever they are.
    gram += 1e-10 * np.trace(gram) / k * np.eye(k)
    lower = np.linalg.cholesky(gram)
    # What is not penalised is written out; the rest is orthogonal to it, in units of the data.
    free = 2 if penalty == "curvature" else 1
    known = lower.T @ (natural.T @ plain[:, :free])
    others = np.linalg.qr(known, mode="complete")[0][:, free:]
    half = np.linalg.solve(lower, natural.T @ _penalty_root(knots, penalty))
    vectors, sizes, _ = np.linalg.svd(others.T @ half)
    squares = np.zeros(k - free)
    squares[: len(sizes)] = sizes[: k - free] ** 2
    order = np.argsort(squares)[: _FUNCTIONS - free]
    rest = natural @ np.linalg.solve(lower.T, others @ vectors[:, order])
    functions = np.concatenate([plain[:, :free], rest], axis=1)
    return functions, np.concatenate([np.zeros(free), squares[order]])


def _ends(knots: np.ndarray) -> np.ndarray:
    """Return the knots with the first and the last four times, as cubic B-splines want them."""
    return np.concatenate([knots[:1].repeat(3), knots, knots[-1:].repeat(3)])


def _averages(knots: np.ndarray) -> np.ndarray:
    """Return the coefficients (k + 2,) of the function x: Greville's abscissae."""
    t = _ends(knots)
    return (t[1:-3] + t[2:-2] + t[3:-1]) / 3


def _derivatives(knots: np.ndarray, order: int, x: np.ndarray) -> np.ndarray:
    """Return derivatives of all B-splines at points: (m, k + 2)."""
    from scipy.interpolate import BSpline

    return BSpline(_ends(knots), np.eye(len(knots) + 2), 3)(x, order)


def _natural(knots: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis (k + 2, k) of coefficients without curvature at both ends."""
    bends = _derivatives(knots, 2, knots[[0, -1]])
    bends /= np.abs(bends).max(axis=1, keepdims=True)
    return np.linalg.qr(bends.T, mode="complete")[0][:, 2:]


def _penalty_root(knots: np.ndarray, penalty: str) -> np.ndarray:
    """Return a matrix C (k + 2, r) with penalty c' C C' c for B-spline coefficients c."""
    h = np.diff(knots)
    bends = _derivatives(knots, 2, knots)
    if penalty == "curvature":
        # The second derivative is straight between knots, and zero at the ends.
        gram = np.diag((h[:-1] + h[1:]) / 3)
        gram += np.diag(h[1:-1] / 6, 1) + np.diag(h[1:-1] / 6, -1)
        return bends[1:-1].T @ np.linalg.cholesky(gram)
    # A coefficient of the natural basis is a jump of the third derivative, times a length.
    third = np.diff(bends, axis=0) / h[:, None]
    before = np.concatenate([np.zeros((1, third.shape[1])), third])
    jumps = np.diff(before, axis=0)[: len(knots) - 2]
    length = (knots[-1] - knots[: len(knots) - 2])[:, None]
    return np.concatenate([_derivatives(knots, 1, knots[:1]), jumps * length / 6]).T


def _columns(knots: np.ndarray, coefficients: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Evaluate splines (k + 2, p) at x (m,): (p, m); they go on straight outside the knots."""
    from scipy.interpolate import BSpline

    if len(knots) == 1:
        return np.ones((1, len(x)))
    spline = BSpline(_ends(knots), coefficients, 3)
    inside = np.clip(x, knots[0], knots[-1])
    result = spline(inside)
    outside = np.flatnonzero(x != inside)
    if outside.size:
        result[outside] += (x - inside)[outside, None] * spline(inside[outside], 1)
    return np.ascontiguousarray(result.T)


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
    mean = losses @ share
    best = int(np.argmin(mean))
    if rule == "one_se" and np.isfinite(losses[best]).all():
        error = np.sqrt(share @ (losses[best] - mean[best]) ** 2 / (len(held) - 1))
        best = int(np.argmax(mean <= mean[best] + error))
    return float(grid[best])
