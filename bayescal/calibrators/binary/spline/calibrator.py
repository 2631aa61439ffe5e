"""Spline calibration: a natural cubic spline in the log odds, its roughness chosen by CV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import ClassVar, Literal

import numpy as np

from bayescal._core.arrays import AnyArray, Array, UserData, XArray, namespace
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.numerics import sigmoid
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
    Destandardize,
    choose_strength,
    draw_averaged,
    grid_of,
    sort_rows,
    summarize,
)
from bayescal.data.checks import as_numpy, check_choice, check_count, check_strength
from bayescal.data.given import BLOCKS
from bayescal.data.order.equal_rows import is_first
from bayescal.data.order.ranking import merged_rows
from bayescal.data.rows import Rows, Source
from bayescal.data.scores import least_of_classes
from bayescal.regression.binary.compress import gauss_points
from bayescal.regression.binary.posterior import Target
from bayescal.regression.draws import Draws, one_chain

#: Rows (270,) on the identity, of total weight one: dense in [0.01, 0.99], sparse outside.
_TAIL = 10 ** np.linspace(-8, -2, 19)[:-1]
_LINE = np.concatenate([_TAIL, np.arange(1, 100) / 100, 1 - _TAIL])
_LINE_WEIGHTS = np.repeat([1 / 18, 1.0, 1 / 18], [18, 99, 18]) / 101
_PRIOR = (
    np.tile(_LINE, 2),
    np.repeat([0, 1], len(_LINE)),
    np.concatenate([_LINE_WEIGHTS * (1 - _LINE), _LINE_WEIGHTS * _LINE]),
)
#: More rows than this are summarized by cells, this many between knots, for the final fit.
_MAX_ROWS, _CELLS_BETWEEN_KNOTS = 1 << 12, 8
#: Maximal width of a cell of log odds, and log odds above which each score is a cell.
_MAX_WIDTH, _FAR = 0.1, 23.0
#: Limits of the automatic epsilon of the logit.
_EPSILONS = 1e-16, 1e-4


@dataclass(eq=False, repr=False)
class Spline(LogOddsCalibrator):
    r"""Spline calibration: log odds that are a natural cubic spline in those of the score.

    The fit minimizes the negative log likelihood plus a penalty. The published "coefficients" is
    :math:`\tfrac\lambda2 \sum_k \theta_k^2` over all coefficients of the natural cubic basis but
    the constant. That basis begins at the left end, so exchanging the classes changes
    probabilities, by up to 0.3 with 300 rows. The default "symmetric" is the mean of that penalty
    and of the penalty for the mirrored basis: its log loss is equal within standard errors, and
    exchanging the classes exchanges probabilities exactly. "curvature" is :math:`\tfrac\lambda2
    \int f''(x)^2 dx`, which does not penalize the slope. Only the 30 smoothest of functions that
    are orthogonal on the data are used. Knots closer than 1e-6 of the range are merged.

    Cross-validated log loss chooses the strength from 17 candidates, or 25 for few distinct scores.
    Scores are first summarized by at most 512 points of equal weight. Rows of equal score and label
    share a fold, unless they count for more than one row and the score has both labels, or for more
    than one twentieth of all rows. Folds are drawn within each class, by a fixed seed.

    Parameters
    ----------
    rescale : {"logit", "compact_logit", None}
        Argument of the spline: the logit of the probability, its :func:`compact_logit`, or the
        probability itself, as published, which is too stiff where probabilities are near 0 or 1.
    knots : int or sequence of float
        The maximal number of knots, which are quantiles of the distinct scores; or the knots, three
        or more probabilities.
    penalty : {"symmetric", "coefficients", "curvature"}
        The penalty of the coefficients, as described above.
    strength : float or "cv"
        :math:`\lambda`, in nats.
    folds : int
        Number of folds of cross-validation.
    rule : {"one_se", "best"}
        Rule of cross-validation: the largest strength whose log loss exceeds the minimum by at most
        one standard error of the difference, which overfits less if there are few rows; or the
        strength with the minimum, as published.
    strengths : sequence of float, optional
        Candidates of cross-validation, instead of the default grid.
    epsilon : float or "auto"
        In (0, 1/2). The compact logit is the identity outside [epsilon, 1 - epsilon]; the logit
        clips probabilities to this interval. For the compact logit, "auto" is the published
        :math:`10^{r-1}` with :math:`r = \lfloor \log_{10} \min_{p < 1} (1 - p) \rfloor`. For the
        logit, it is half the power of two closest to the smallest distance of a score from 0 or 1,
        and at most 1e-4.
    unity_prior_weight : float
        Weight in rows of a prior that draws the curve toward the identity: 135 probabilities, most
        of them in [0.01, 0.99], with the labels that they imply. Cross-validation never holds them
        out.

    Attributes
    ----------
    strength_ : float
        Strength of the penalty.
    knots_ : array
        Knots of the spline.

    Notes
    -----
    Published algorithms: ``Spline(None, penalty="coefficients", rule="best")`` is algorithm 1. With
    ``rescale="compact_logit"`` it is algorithm 2, inside ``OneVsRest`` algorithm 3, and inside
    ``CalibratedClassifier(cv=5)`` algorithm 4. The author's package splinecalib 0.0.13 is similar
    to ``Spline("logit", 30, "coefficients", rule="best", unity_prior_weight=20)``; it differs by
    random knots, a penalized intercept, a single held-out fold, and a :math:`\lambda` that is
    larger by the factor k / (2n) for k knots and n rows.

    With ``inference="laplace"`` and ``strength="cv"`` the posterior is averaged over the candidate
    strengths: the number of draws of each normal approximation is proportional to the square root
    of its evidence. Intervals and posterior means therefore do not depend on the strength that
    cross-validation chose. A fixed strength and "nuts" treat the strength as known. In simulations
    intervals of level 0.9 covered 85 to 98 % of log odds without a wave, and 77 to 91 % with one
    (``benchmarks/coverage_bands.py``).

    O(n log n) time to fit, with 30 columns; O(m) to apply. Rows in blocks take two passes, which
    collect at most 4,194,304 distinct scores.

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
    [0.32, 0.63]
    """

    rescale: Literal["compact_logit", "logit"] | None = "logit"
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
        """Whether exchanging the classes exchanges probabilities.

        False for the penalty "coefficients" and for the automatic epsilon of the compact logit,
        which depend on one end.
        """
        even = self.rescale != "compact_logit" or self.epsilon != "auto"
        return self.penalty != "coefficients" and even and isinstance(self.knots, Integral)

    @property
    def sources(self) -> frozenset[str]:
        """Kinds of sources that ``fit`` accepts; distinct scores of blocks are held in memory."""
        return BLOCKS

    def _rows_to_fit(self, rows: Source) -> Source:
        # All steps of the fit treat rows of equal score and label as one row.
        merged = sort_rows(*merged_rows(rows, "Spline"))
        if self.unity_prior_weight:
            prior = *_PRIOR[:2], float(self.unity_prior_weight) * _PRIOR[2]
            merged = Rows(*(np.concatenate(pair) for pair in zip(merged, prior, strict=True)))
        return super()._rows_to_fit(merged)

    def _condensed(self, state: State, rows: Source) -> Source:
        """Replace very many rows by points with equal sums of the basis functions.

        Between knots the functions are cubic. Cells are so narrow that the loss is cubic as well.
        """
        if rows.n <= _MAX_ROWS or self.rescale == "compact_logit" or self.unity_prior_weight:
            return rows
        scores, y, weights = rows.all()
        scores = self._rescaled(state, scores)
        knots, parts = state["knots"], np.arange(_CELLS_BETWEEN_KNOTS) / _CELLS_BETWEEN_KNOTS
        borders = np.append(knots[:-1, None] + np.diff(knots)[:, None] * parts, knots[-1])
        if self.rescale:
            borders = np.union1d(borders, np.arange(knots[0], knots[-1], _MAX_WIDTH))
        points = []
        for label in (0, 1):
            # Positions are several times faster than a mask, which no processor foresees.
            used = np.flatnonzero((y == label) & (weights > 0))
            of_label = scores[used]
            starts = np.zeros(len(of_label) + 1, bool)
            starts[np.searchsorted(of_label, borders)] = starts[:1] = True
            if self.rescale:
                # Probabilities this close to one have few digits, and none between two of them.
                starts[:-1] |= (of_label > _FAR) & is_first(of_label)
            points.append(gauss_points(of_label, weights[used], starts[:-1]))
        nodes, mass = np.concatenate(points, axis=1)
        if self.rescale:
            small = sigmoid(-abs(nodes))
            nodes = np.where(nodes < 0, small, 1 - small)
        return Rows(nodes, np.repeat([0, 1], [part.shape[1] for part in points]), mass)

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        scores, y, weights = merged_rows(rows, "Spline")
        grid = grid_of(state["roughness"], weights.sum(), self.strengths)
        if self.strength != "cv" or self.inference != "laplace" or not len(grid):
            return super()._sample(state, Rows(scores, y, weights), seed)
        points = summarize(*sort_rows(scores, y, weights), 1)
        mass = points.weights[0]

        def target(strength: float) -> tuple[Destandardize, Target]:
            candidate = {**state, "strength": np.asarray(strength)}
            summary = Rows(points.x, points.positives[0] / mass, mass)
            _, basis, design = self._standardized_design(candidate, summary)
            target = Target(design, np.zeros(len(basis.positive)), basis.prior)
            return basis.destandardize, target

        return one_chain(*draw_averaged(map(target, grid), self.num_samples, seed))

    @single_threaded_blas()
    def _prepare(self, rows: Rows) -> State:
        """Choose knots, basis and strength."""
        scores, y, weights = rows
        count = len(y) - (len(_PRIOR[0]) if self.unity_prior_weight else 0)
        scores, prior_scores = scores[:count], scores[count:]
        state: State = {}
        if self.rescale:
            state["epsilon"] = np.asarray(self._epsilon_of(scores))
        sorted_rows = Rows(self._rescaled(state, scores), y[:count], weights[:count])
        if self.rescale:  # which may make scores equal
            sorted_rows = sort_rows(*sorted_rows)
        points, x = summarize(*sorted_rows, self.folds), sorted_rows.scores
        if isinstance(self.knots, Integral):
            distinct = x[is_first(x)]
            use_points = len(points.x) < min(int(self.knots), len(distinct))
            knots = choose_knots(points.x if use_points else distinct, int(self.knots))
        else:
            knots_given = np.unique(np.asarray(self.knots, float))
            knots = choose_knots(np.unique(self._rescaled(state, knots_given)), len(knots_given))
        if len(prior_scores):
            points = points.with_more(
                self._rescaled(state, prior_scores), y[count:], weights[count:]
            )
        # Cubes of logits vary far more than cubes of probabilities, and one-sided cubes are nearly
        # dependent. Candidate strengths follow from the roughness, and must not change if the
        # classes are exchanged.
        precise = self.rescale == "logit" or self.penalty != "curvature"
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
        if self.rescale == "compact_logit":
            below = scores[scores < 1]
            least = 1 - below.max() if below.size else 0.5
            return float(10 ** (np.floor(np.log10(least)) - 1))
        least = least_of_classes(scores)[1].min(initial=0.5)
        return float(np.clip(2.0 ** (np.round(np.log2(least)) - 1), *_EPSILONS))

    def _penalties(self, state: State, p: int) -> np.ndarray:
        return state["strength"] * state["roughness"]

    def _columns(self, state: State, scores: XArray) -> XArray:
        knots, functions, bends = (state[name] for name in ("knots", "functions", "bends"))
        return evaluate(knots, functions, bends, self._rescaled(state, scores))

    def _width(self, state: State, scores: XArray) -> int:
        return 8 * state["functions"].shape[1]

    def _describe(self, state: State, theta: np.ndarray) -> State:
        return {"coef": theta}

    def _rescaled(self, state: State, scores: XArray) -> AnyArray:
        if not self.rescale:
            return scores
        stretch = compact_logit if self.rescale == "compact_logit" else _clipped_logit
        return stretch(scores, state["epsilon"])


def _between(value: UserData, low: float, high: float) -> bool:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return number and bool(low < value < high)


def compact_logit(p: XArray, epsilon: Array | float) -> XArray:
    r"""Stretch probabilities near 0 and 1 as the logit does, but onto [0, 1].

    .. math:: G(p) = \frac{1 - 2\epsilon}{2 \log((1 - \epsilon) / \epsilon)}
              \operatorname{logit}(p) + \frac12

    inside :math:`[\epsilon, 1 - \epsilon]`, and p outside; the function is continuous. See section
    5.1 of B. Lucena (2018), Spline-based probability calibration.

    Examples
    --------
    >>> import numpy as np
    >>> compact_logit(np.array([0.0, 0.001, 0.01, 0.5, 0.9999]), 1e-3).round(3).tolist()
    [0.0, 0.001, 0.168, 0.5, 1.0]
    """
    xp = namespace(p)
    inside = (p >= epsilon) & (1 - p >= epsilon)
    clipped = xp.where(inside, p, 0.5)
    epsilon = xp.asarray(epsilon, dtype=p.dtype)
    factor = (1 - 2 * epsilon) / (2 * (xp.log1p(-epsilon) - xp.log(epsilon)))
    return xp.where(inside, factor * (xp.log(clipped) - xp.log1p(-clipped)) + 0.5, p)


def _clipped_logit(p: XArray, epsilon: Array | float) -> XArray:
    """Compute the logit of p, clipped to [epsilon, 1 - epsilon]."""
    xp = namespace(p)
    epsilon = xp.asarray(epsilon, dtype=p.dtype)
    inside = xp.clip(p, epsilon, 1 - epsilon)
    # In single precision 1 - epsilon may be one.
    return xp.log(inside) - xp.log(xp.maximum(1 - inside, epsilon))
