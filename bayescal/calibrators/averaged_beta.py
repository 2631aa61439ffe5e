"""A Bayesian average of regressions of two classes' scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from bayescal._core.blas import single_threaded_blas
from bayescal._core.checks import check_level
from bayescal._core.numerics import sigmoid
from bayescal._core.optimise import Status
from bayescal.calibrators._averaging import (
    COLUMNS,
    FAR,
    LINEAR,
    TAILS,
    Basis,
    Points,
    fit,
    make_columns,
)
from bayescal.calibrators._base import Calibrator, State, two_columns
from bayescal.calibrators._inputs import Domain
from bayescal.calibrators._posterior import row_blocks

__all__ = ["AveragedBeta"]

#: So many scores are used as they are; more are gathered in cells, of at most this share of the
#: rows and this width in asinh of the log odds.
_MOST, _FINE = 256, (1 / 96, 0.08)
#: With more points than this a fit begins with cells of such a share and width.
_FEW, _ROUGH = 100, (1 / 25, 0.3)
#: Regressions of less weight change no digit of the average.
_NEGLIGIBLE = 1e-14
#: And those of less than this no digit of an interval that anyone reads.
_SLIGHT = 1e-6
_BISECTIONS = 40
#: With more scores than this, only as many knots are computed.
_VERY_MANY, _KNOTS = 1 << 15, 1 << 14


@dataclass(eq=False, repr=False)
class AveragedBeta(Calibrator):
    r"""Regressions on scaled scores, averaged by their evidence.

    A good choice for two classes and any number of rows; nothing is to be tuned.

    Let z be log odds, and for an inverse temperature :math:`e^u`, :math:`u \sim N(0, 2^2)`,

    .. math:: a = \ln\bigl((1 - e)\, \sigma(e^u z) + \tfrac e2\bigr), \qquad
              b = \ln\bigl((1 - e)\, \sigma(-e^u z) + \tfrac e2\bigr), \qquad e = \frac{1}{n + 1}.

    A regression says that the log odds of class 1 are

    .. math:: f = (a - b) + w_1 a - w_0 b + c + g(a - b)

    with :math:`w_1, w_0 \sim N(0, V)`, V one of 0.05 and 0.5, :math:`c \sim N(0, B)`, B one of 0.1
    and 0.5, and g either zero or a Gaussian process with Matérn's covariance (3/2), standard
    deviation 0.3 or 1, and length 0.5 or 1.5 standard deviations of a - b. There are seven values
    of u, evenly spaced within three standard deviations of its posterior, and 20 regressions at
    each, zero processes with a prior weight of 3 and others of 1/4. Each is fitted by maximum
    posterior; the probability is the average of theirs, weighted by Laplace's approximation of the
    evidence.

    Parameters
    ----------
    power : float
        Of the evidence: one is Bayes' rule, less hedges against models that are all a little wrong.

    Attributes
    ----------
    inverse_, length_ : arrays of shape (d,)
        Inverse temperatures, and lengths of the Gaussian processes, that have weight.
    cell_weights_ : array of shape (d, 10)
        Posterior weights of the regressions at each.
    linear_weight_ : float
        Posterior weight of all regressions without a Gaussian process.

    Notes
    -----
    So few rows get little more than a shrunk temperature, many rows beta calibration and curves
    beyond it, and how strong each is follows from the data.

    The process has 14 inducing inputs, evenly spaced between the 0.5 % and 99.5 % quantiles of
    a - b; beyond them it goes on at its last value. More than 256 distinct scores are gathered in
    cells, and each cell in two points with the same sums of cubic functions, which changes
    probabilities by less than 1e-3 and a twentieth of their posterior deviation, mostly far less.
    Log odds beyond 87.3 count as that.

    O(n log n) time to fit, for sorting; O(m) to apply, with 48 exponentials for each score and
    scale that has weight. Between 16,384 knots more than 32,768 scores are interpolated, which
    changes probabilities by less than 1e-6, and ends of intervals by less than 1e-5.

    The state keeps the scales and lengths (d,) of weight, ``coef`` (d, 10, 17) of the regressions,
    their covariances as ``factor`` (d, 10, 17, 17) times its transpose, and ``cell_weights``
    (d, 10).

    References
    ----------
    M. Kull, T. Silva Filho and P. Flach (2017), Beyond sigmoids, for beta calibration;
    C. Rasmussen and C. Williams (2006), Gaussian processes for machine learning, for processes and
    evidence.

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> calibrator = bc.AveragedBeta().fit(p, y)
    >>> calibrator.predict_proba([0.2, 0.9])[:, 1].round(2).tolist()
    [0.33, 0.71]
    >>> lower, upper = calibrator.predict_interval([0.9])
    >>> bool(lower[0] < 0.71 < upper[0])
    True
    """

    power: float = 1.0

    inverse_: np.ndarray = field(init=False)
    length_: np.ndarray = field(init=False)
    cell_weights_: np.ndarray = field(init=False)
    linear_weight_: float = field(init=False)

    binary: ClassVar[bool] = True

    def _check_options(self) -> None:
        if not 0 < self.power < np.inf:
            raise ValueError(f"power must be positive and finite, got {self.power}")

    @property
    def domain(self) -> Domain:
        return "log_odds"

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        """Fit 140 regressions, and keep those of weight."""
        points = _gather(np.clip(scores, -FAR, FAR), y, weights)
        rough = _condense(points, *_ROUGH) if len(points.z) > _FEW else None
        with np.errstate(under="ignore"), single_threaded_blas():
            fitted = fit(points, rough=rough)
            evidence = fitted.log_evidence - fitted.log_evidence.max()
            share = np.exp(self.power * evidence)
        share /= share.sum()
        kept = share.sum(axis=-1) > _NEGLIGIBLE
        scale, length = np.nonzero(kept)
        basis = fitted.basis
        status = Status.CONVERGED if np.isfinite(fitted.decrement) else Status.LIMIT
        return {
            "inverse": basis.inverse[scale],
            "smoothing": np.asarray(basis.smoothing),
            "inducing": basis.inducing[scale],
            "length": basis.length[scale, length],
            "coef": fitted.coef[kept],
            "factor": fitted.factor[kept],
            "cell_weights": share[kept] / share[kept].sum(),
            "linear_weight": share[..., LINEAR:].sum(),
            "status": np.asarray(int(status)),
        }

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        # Of very many scores at knots, between which it interpolates.
        return two_columns(_between_knots(lambda z: self._average(state, z)[None], scores)[0])

    def _average(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Average the regressions, in blocks of scores."""
        probs = np.empty(len(scores))
        share = state["cell_weights"]
        for part in row_blocks(len(scores), share.size):
            line, _ = self._lines(state, scores[part])
            probs[part] = np.einsum("dc,dcm->m", share, sigmoid(line))
        return probs

    def predict_interval(self, scores: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return central credible intervals of the calibrated probability of the second class.

        Quantiles of the mixture, over regressions, of normal distributions of the log odds.

        Parameters
        ----------
        scores : array-like of shape (m,), (m, 1) or (m, 2)
        level : float
            Posterior probability of each interval, in (0, 1).

        Returns
        -------
        lower, upper : arrays of shape (m,)
        """
        level, values = check_level(level), self._values(scores)
        lower, upper = _between_knots(lambda z: self._ends(self.state_, z, level), values)
        return lower, upper

    def _ends(self, state: State, scores: np.ndarray, level: float) -> np.ndarray:
        """Return lower and upper ends (2, m), in blocks of scores."""
        ends = np.empty((2, len(scores)))
        share = state["cell_weights"]
        slight = share < _SLIGHT
        for part in row_blocks(len(scores), COLUMNS * share.size):
            line, columns = self._lines(state, scores[part])
            spread = np.sqrt(((np.swapaxes(state["factor"], -1, -2) @ columns) ** 2).sum(axis=2))
            mean, spread = line[~slight], spread[~slight]
            for end, tail in zip(ends, ((1 - level) / 2, (1 + level) / 2), strict=True):
                end[part] = sigmoid(_mixture_quantile(share[~slight], mean, spread, tail))
        return ends

    def _lines(self, state: State, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log odds (d, 10, m) of the regressions, and the columns (d, 1, 17, m)."""
        basis = Basis(
            state["inverse"], state["smoothing"], state["inducing"], state["length"][:, None]
        )
        offset, columns = make_columns(basis, np.clip(scores, -FAR, FAR))
        return state["coef"] @ columns[:, 0] + offset[:, None], columns


def _gather(z: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Points:
    """Return rows as not many points.

    Scores themselves are the points where they are few. Of more, two stand for all that are close
    together.
    """
    order = np.lexsort((weights, y, z))
    z, weights = z[order], weights[order]
    positives = weights * y[order]
    first = np.concatenate([[True], z[1:] > z[:-1]])
    starts = np.flatnonzero(first)
    distinct = z[starts]
    weight, positive = np.add.reduceat(weights, starts), np.add.reduceat(positives, starts)
    tails = _tails(distinct, weight)
    if len(distinct) <= _MOST:
        return Points(distinct, weight, positive, *tails)
    return _condense(Points(distinct, weight, positive, *tails), *_FINE)


def _condense(points: Points, share: float, width: float) -> Points:
    """Return two points for each cell, and their weights: Gauss's rule for the rows in it.

    Their weights have the same sums of cubic functions as those of the rows. Weights of class 1 at
    the same points, which the fit uses linearly and which may thus be negative, have the same sums
    of linear functions.
    """
    z, weight, positive = points[:3]
    mass = np.cumsum(weight)
    within = np.floor((mass - weight / 2) / mass[-1] / share)
    place = np.floor(np.arcsinh(z) / width)
    starts = np.concatenate([[True], (np.diff(within) > 0) | (np.diff(place) > 0)])
    cell = np.cumsum(starts) - 1

    def add(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, values)

    first = z[starts]
    total = add(weight)
    mean = add(weight * (z - first[cell])) / total
    apart = z - first[cell] - mean[cell]
    spread = np.sqrt(add(weight * apart**2) / total)
    single = spread <= 1e-9 * (1 + abs(first))
    unit = np.where(single, 1.0, spread)
    skewness = add(weight * (apart / unit[cell]) ** 3) / total
    root = np.sqrt(1 + skewness**2 / 4)
    center = first + mean
    low = np.where(single, center, center + unit * (skewness / 2 - root))
    high = np.where(single, center + 1e-9, center + unit * (skewness / 2 + root))
    above = np.where(single, 0.0, (1 - skewness / (2 * root)) / 2)
    part = (z - low[cell]) / (high - low)[cell]
    part[single[cell]] = 0
    upper = add(positive * part)
    both = total * above
    every = np.concatenate([low, high])
    order = np.argsort(every, kind="stable")
    order = order[np.concatenate([np.ones(len(low), bool), ~single])[order]]
    weights = np.concatenate([total - both, both])
    positives = np.concatenate([add(positive) - upper, upper])
    return Points(every[order], weights[order], positives[order], *points[3:])


def _tails(distinct: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores (2, 2) next to the outer quantiles, and where (2,) between them these lie.

    Each is found from its own end, so that exchanging the classes exchanges them.
    """
    low, part = _low_tail(distinct, weight)
    high, rest = _low_tail(-distinct[::-1], weight[::-1])
    return np.stack([low, -high[::-1]]), np.array([part, 1 - rest])


def _low_tail(distinct: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Return two scores (2,) and the part of the way between them where the lower quantile lies.

    The quantile of NumPy, by ranks, if a whole weight repeats its row.
    """
    mass = np.cumsum(weight)
    rank = max(mass[-1] - 1, 0) * TAILS[0]
    below = np.floor(rank)
    # Sums of weights carry rounding errors.
    ranks = np.array([below, below + 1]) + 1e-9 * mass[-1]
    place = np.minimum(np.searchsorted(mass, ranks, side="right"), len(mass) - 1)
    return distinct[place], rank - below


def _between_knots(function: Callable[[np.ndarray], np.ndarray], z: np.ndarray) -> np.ndarray:
    """Return probabilities (r, m), by linear interpolation of log odds if there are very many z."""
    if len(z) <= _VERY_MANY:
        return function(z)
    z = np.clip(z, -FAR, FAR)
    first, last = np.arcsinh(z.min()), np.arcsinh(z.max())
    knots = np.unique(np.sinh(np.linspace(first, last, _KNOTS)))
    with np.errstate(divide="ignore"):
        probs = function(knots)
        lines = np.clip(np.log(probs) - np.log1p(-probs), -FAR, FAR)
    return np.stack([sigmoid(np.interp(z, knots, line)) for line in lines])


def _mixture_quantile(
    share: np.ndarray, mean: np.ndarray, spread: np.ndarray, level: float
) -> np.ndarray:
    """Return quantiles (m,) of mixtures of normal distributions (c, m), by bisection."""
    from scipy.special import ndtr, ndtri

    each = mean + ndtri(level) * spread
    low, high = each.min(axis=0), each.max(axis=0)
    share = share / share.sum()
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = share @ ndtr((middle - mean) / spread) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
