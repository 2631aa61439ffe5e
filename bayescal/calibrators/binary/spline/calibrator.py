"""Spline calibration: a natural cubic spline in the log odds, its roughness chosen by CV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np

from bayescal._core.arrays import namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.binary.log_odds import LogOddsCalibrator
from bayescal.calibrators.binary.spline.basis import (
    Penalty,
    choose_knots,
    evaluate,
    make_basis,
    second_derivatives,
)
from bayescal.calibrators.binary.spline.points import (
    choose_strength,
    draw_averaged,
    gather,
    grid_of,
)
from bayescal.data.checks import as_numpy, check_choice, check_count, check_strength
from bayescal.data.given import BLOCKS
from bayescal.data.order.ranking import merged_rows
from bayescal.data.rows import Rows, Source
from bayescal.regression.binary.posterior import Target
from bayescal.regression.draws import Draws, one_chain

__all__ = ["Spline", "compact_logit"]

#: Rows (270,) of the identity, of weight one together: densely in [.01, .99], sparsely outside.
_TAIL = 10 ** np.linspace(-8, -2, 19)[:-1]
_LINE = np.concatenate([_TAIL, np.arange(1, 100) / 100, 1 - _TAIL])
_SHARE = np.repeat([1 / 18, 1.0, 1 / 18], [18, 99, 18]) / 101
_PRIOR = (
    np.tile(_LINE, 2),
    np.repeat([0, 1], len(_LINE)),
    np.concatenate([_SHARE * (1 - _LINE), _SHARE * _LINE]),
)
#: Of the logit, at most; and what 1 - p can be.
_EPSILONS = 1e-16, 1e-4


@dataclass(eq=False, repr=False)
class Spline(LogOddsCalibrator):
    r"""Log odds that are a natural cubic spline in the probability, or in its compact logit.

    Minimizes the negative log likelihood plus a penalty. The published one, "coefficients", is
    :math:`\tfrac\lambda2 \sum_k \theta_k^2` over all coefficients of the natural cubic basis but
    the constant. That basis begins at the left end, so that exchanging the classes changes
    probabilities, by up to 0.3 with 300 rows. The default "symmetric" is the mean of that penalty
    and of the one for the mirrored basis; the log loss is the same within its standard error, and
    exchanging the classes exchanges probabilities exactly. "curvature" is
    :math:`\tfrac\lambda2 \int f''(x)^2 dx`, which leaves the slope free. The fit uses another basis
    of the same space: its functions are orthogonal on the data, and each penalty is a sum of
    squares in it. The 30 smoothest functions are kept. Knots nearer than 1e-6 of the range are
    merged.

    The strength is chosen among 17, with few distinct scores 25, by cross-validated log loss. For
    that scores are gathered in at most 512 points of equal weight. Rows of equal score and label
    share a fold, unless they count for more than one row and the score has both labels, or for more
    than a twentieth of all rows.
    Folds are drawn within each class, by a fixed seed and in the order of the scores, of the second
    class from the lowest and of the first from the highest.

    Parameters
    ----------
    rescale : {None, "compact_logit", "logit"}
        What the spline is a function of: the probability itself, its :func:`compact_logit`, or its
        logit.
    knots : int or sequence of float
        At most this many knots, quantiles of the distinct scores; or the knots themselves, three
        or more probabilities.
    penalty : {"symmetric", "coefficients", "curvature"}
    strength : float or "cv"
        :math:`\lambda`, in nats.
    folds : int
    rule : {"one_se", "best"}
        Of cross-validation: the greatest strength whose log loss exceeds the least by at most one
        standard error of that difference, or the one with the least, as published. The first
        overfits less where rows are few.
    strengths : sequence of float, optional
        The candidates of cross-validation, instead of those above.
    epsilon : float or "auto"
        In (0, 1/2). Of ``rescale``: the compact logit is none outside [epsilon, 1 - epsilon], and
        for the logit probabilities are clipped to this. "auto" is :math:`10^{r-1}` with
        :math:`r = \lfloor \log_{10} \min_{p < 1} (1 - p) \rfloor` for the compact logit, as
        published, which looks at one end only; for the logit half the power of two next to the
        least distance to 0 or 1 of scores between, at most 1e-4.
    unity_prior_weight : float
        The curve is drawn to the identity by so many rows on it: of 135 probabilities, most of
        them in [.01, .99], and of labels 1 as often as they say. Cross-validation holds none out.

    Attributes
    ----------
    strength_ : float
        Of the penalty.
    knots_ : array

    Notes
    -----
    As published: ``Spline(penalty="coefficients", rule="best")`` is algorithm 1, with
    ``rescale="compact_logit"`` it is algorithm 2, in ``OneVsRest`` 3 and in
    ``CalibratedClassifier(cv=5)`` 4. The author's package splinecalib 0.0.13 is near
    ``Spline("logit", 30, "coefficients", rule="best", unity_prior_weight=20)``: with a
    random sample of knots beside .1, .2, ..., .9, the intercept penalized too, a single fold held
    out, and its :math:`\lambda` that times k / (2n) of k knots and n rows.

    With ``inference="laplace"`` and ``strength="cv"`` the posterior is averaged over the candidates
    of the strength: each has as many draws from its normal approximation as the square root of its
    evidence says, on at most 512 points that stand for the rows. So bands, and the posterior means
    that are predicted, do not depend on the strength that cross-validation chose. A given strength,
    and "nuts", take the strength as known. In simulations with 20, 100 and 1,000 rows, intervals of
    level 0.9 held 82 to 98 % of calibrated, straight, bent and constant log odds, on average over
    the scores, and 87, 75 and 71 % of log odds with a wave, which are smoothed
    (``benchmarks/coverage_bands.py``).

    O(n log n + n) time to fit, with 30 columns; O(m) to apply. Rows that come in blocks take two
    passes, which find their distinct scores, 4,194,304 at most; the rest is done with these.

    References
    ----------
    B. Lucena (2018), Spline-based probability calibration, and splinecalib 0.0.13 (logit and unity
    prior).
    P. Green and B. Silverman (1994), Nonparametric regression and generalized linear models.

    Examples
    --------
    >>> import bayescal as bc
    >>> import numpy as np
    >>> p = np.linspace(0.05, 0.95, 60)
    >>> y = np.arange(60) * 7 % 10 < 10 * p**2
    >>> bc.Spline().fit(p, y).predict_proba([0.5, 0.8])[:, 1].round(2).tolist()
    [0.34, 0.57]
    """

    rescale: Literal["compact_logit", "logit"] | None = None
    knots: int | Sequence[float] = 200
    penalty: Penalty = "symmetric"
    strength: float | Literal["cv"] = "cv"
    folds: int = 5
    rule: Literal["one_se", "best"] = "one_se"
    strengths: Sequence[float] | None = None
    epsilon: float | Literal["auto"] = "auto"
    unity_prior_weight: float = 0.0

    strength_: float = field(init=False)
    knots_: np.ndarray = field(init=False)

    _smooth: ClassVar[bool] = False
    _domain = "probability"

    def _check_options(self) -> None:
        check_choice(self.rescale, "rescale", (None, "compact_logit", "logit"))
        check_choice(self.penalty, "penalty", ("symmetric", "coefficients", "curvature"))
        check_choice(self.rule, "rule", ("one_se", "best"))
        check_count(self.folds, "folds", 2)
        check_strength(self.strength)
        if isinstance(self.knots, Integral):
            check_count(self.knots, "knots", 3)
        else:
            knots = np.unique(as_numpy(self.knots, "knots"))
            if len(knots) < 3 or not ((knots >= 0) & (knots <= 1)).all():
                raise ValueError(
                    f"knots must be 3 or more distinct probabilities, got {self.knots}"
                )
        if self.strengths is not None:
            grid = as_numpy(self.strengths, "strengths")
            if grid.ndim != 1 or not grid.size or not ((grid > 0) & (grid < np.inf)).all():
                raise ValueError(f"strengths must be positive numbers, got {self.strengths}")
        if self.epsilon != "auto" and not _between(self.epsilon, 0, 0.5):
            raise ValueError(
                f"epsilon must be 'auto' or lie between 0 and 1/2, got {self.epsilon!r}"
            )
        weight = self.unity_prior_weight
        if weight != 0 and not _between(weight, 0, np.inf):
            raise ValueError(f"unity_prior_weight must not be negative, got {weight!r}")

    @property
    def symmetric(self) -> bool:
        """Not the basis of "coefficients", nor the compact logit, which looks at one end."""
        even = self.rescale != "compact_logit" or self.epsilon != "auto"
        return self.penalty != "coefficients" and even and isinstance(self.knots, Integral)

    @property
    def sources(self) -> frozenset[str]:
        """Where the rows of a fit may be: distinct scores of blocks are held in memory."""
        return BLOCKS

    def _used(self, rows: Source) -> Source:
        # Rows of equal score and label are one to every step of the fit.
        return super()._used(self._with_prior(merged_rows(rows, "Spline")))

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        scores, y, weights = merged_rows(rows, "Spline")
        grid = grid_of(state["roughness"], weights.sum(), self.strengths)
        if self.strength != "cv" or self.inference != "laplace" or not len(grid):
            return super()._sample(state, Rows(scores, y, weights), seed)
        order = np.lexsort((weights, y, scores))
        points = gather(scores[order], y[order], weights[order], 1)
        mass = points.weights[0]

        def target(strength: float) -> tuple[Any, Target]:
            given = {**state, "strength": np.asarray(strength)}
            some = Rows(points.x, points.positives[0] / mass, mass)
            _, basis, design = self._standardize(given, some)
            return basis, Target(design, np.zeros(len(basis.positive)), basis.prior)

        return one_chain(*draw_averaged(map(target, grid), self.num_samples, seed))

    def _with_prior(self, rows: Rows) -> Rows:
        """Return rows, and after them those of the prior."""
        if not self.unity_prior_weight:
            return rows
        prior = *_PRIOR[:2], float(self.unity_prior_weight) * _PRIOR[2]
        return Rows(*(np.concatenate(pair) for pair in zip(rows, prior, strict=True)))

    def _prepare(self, rows: Rows) -> State:
        scores, y, weights = rows
        count = len(y) - (len(_PRIOR[0]) if self.unity_prior_weight else 0)
        scores, beyond = scores[:count], scores[count:]
        state: State = {}
        if self.rescale:
            state["epsilon"] = np.asarray(self._epsilon_of(scores))
        x = self._rescaled(state, scores)
        order = np.lexsort((weights[:count], y[:count], x))
        points = gather(x[order], y[order], weights[order], self.folds)
        if isinstance(self.knots, Integral):
            distinct = np.unique(x)
            few = len(points.x) < min(int(self.knots), len(distinct))
            knots = choose_knots(points.x if few else distinct, int(self.knots))
        else:
            given = np.unique(np.asarray(self.knots, float))
            knots = choose_knots(np.unique(self._rescaled(state, given)), len(given))
        if len(beyond):
            points = points.with_more(self._rescaled(state, beyond), y[count:], weights[count:])
        # Cubes of logits differ by far more than those of probabilities; and candidates of the
        # strength, which follow from roughness, must not differ where classes are exchanged.
        precise = self.rescale == "logit" or self.penalty == "symmetric"
        mass = points.weights.sum(axis=0)
        functions, roughness = make_basis(knots, points.x, mass, self.penalty, precise)
        state |= {"knots": knots, "functions": functions, "roughness": roughness}
        state["bends"] = second_derivatives(knots, functions)
        strength = self.strength
        if strength == "cv":
            columns = evaluate(knots, functions, state["bends"], points.x)
            strength = choose_strength(
                columns, points, roughness, self.rule, self.folds, self.strengths
            )
        state["strength"] = np.asarray(float(strength))
        return state

    def _epsilon_of(self, scores: np.ndarray) -> float:
        if self.epsilon != "auto":
            return float(self.epsilon)
        below = scores[scores < 1]
        if self.rescale == "compact_logit":
            least = 1 - below.max() if below.size else 0.5
            return float(10 ** (np.floor(np.log10(least)) - 1))
        inside = below[below > 0]
        least = np.minimum(inside, 1 - inside).min(initial=0.5)
        return float(np.clip(2.0 ** (np.round(np.log2(least)) - 1), *_EPSILONS))

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
        if not self.rescale:
            return scores
        stretch = compact_logit if self.rescale == "compact_logit" else _clipped_logit
        return stretch(scores, state["epsilon"])


def _between(value: Any, low: float, high: float) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and bool(low < value < high)


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


def _clipped_logit(p: Any, epsilon: Any) -> Any:
    """Return the logit of p, clipped to [epsilon, 1 - epsilon]."""
    xp = namespace(p)
    epsilon = xp.asarray(epsilon, dtype=p.dtype)
    inside = xp.clip(p, epsilon, 1 - epsilon)
    # In single precision 1 - epsilon may be one.
    return xp.log(inside) - xp.log(xp.maximum(1 - inside, epsilon))
