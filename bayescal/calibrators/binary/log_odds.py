"""Base class of binary calibrators whose log odds are linear in the parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from bayescal._core.arrays import AnyArray, ArrayT, XArray, matmul, namespace, on_host
from bayescal._core.execution.chunks import slices
from bayescal._core.minimization.optimize import Minimum, Status
from bayescal._core.numerics import sigmoids
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.draws import ends_of_log_odds, over_draws
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.data.given import EVERYWHERE
from bayescal.data.rows import Rows, Source
from bayescal.data.scores import FAR, bounded
from bayescal.regression.binary.compress import count_in_bins
from bayescal.regression.binary.objective import BinaryDesign, CoefficientPrior
from bayescal.regression.binary.posterior import Draws, ScoreColumns, Target, sample
from bayescal.regression.numpyro_models import Model, log_odds_model
from bayescal.regression.rows import binary_fit

#: Prior scales of Gelman et al. (2008), for features of standard deviation 0.5 and the intercept.
SLOPE_SCALE, INTERCEPT_SCALE = 2.5, 10.0
#: Prior scale of the logarithm of a positive coefficient; most lie between 1/20 and 20.
LOG_SCALE = 1.5
#: Number of scores whose columns are computed at once.
_SCORES_AT_ONCE = 1 << 14
#: More rows in memory than this are counted in bins of each class, if these have at most this width
#: in asinh of the log odds, and if coefficients have at most this size.
_MAX_DIRECT_ROWS, _BINS, _MAX_WIDTH, _MAX_SLOPE = 1 << 18, 1 << 16, 2e-4, 4.0


@dataclass(kw_only=True, eq=False, repr=False)
class LogOddsCalibrator(ParametricCalibrator):
    """A calibrator logit p = theta . columns(scores).

    A subclass defines ``_columns`` and ``_describe``, and which coefficients must be positive. The
    weak prior of posteriors is Cauchy(0, 2.5) for coefficients of columns of standard deviation
    0.5, Cauchy(0, 10) for the intercept, and N(0, 1.5^2) for the logarithm of a positive
    coefficient.
    """

    binary: ClassVar[bool] = True
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    #: Whether the columns are smooth functions of the score.
    _smooth: ClassVar[bool] = True
    #: Whether log odds are nowhere steeper than the largest coefficient, the intercept apart. Very
    #: many rows are then counted in bins, which are narrow enough for moderate coefficients.
    _steep_by_coefficients: ClassVar[bool] = False

    @property
    def _has_intercept(self) -> bool:
        """Whether the first column consists of ones."""
        return True

    @abstractmethod
    def _columns(self, state: State, scores: XArray) -> XArray:
        """Compute the columns (p, m) at scores (m,); the first is ones if there is an intercept."""

    def _positive(self, p: int) -> np.ndarray:
        """Mark the coefficients (p,) that must not be negative."""
        return np.zeros(p, bool)

    def _prepare(self, rows: Rows) -> State:
        """Compute the entries of the state that the columns need."""
        return {}

    def _center_and_scale(self, rows: Rows) -> State:
        """Compute center and scale of raw scores, whose squares lose digits far from zero."""
        if self.inputs != "scores":
            return {}
        scores, _, weights = rows
        xp = namespace(scores)
        proportion = xp.asarray(weights / weights.sum(), dtype=scores.dtype)
        # Relative to the first score, so that differences of equal scores are exactly zero.
        differences = (scores - scores[0]) * proportion
        center = float(scores[0] + xp.sum(differences))
        scale = float(xp.sum(proportion * (scores - center) ** 2)) ** 0.5
        return {"center": np.asarray(center), "scale": np.asarray(scale or 1.0)}

    def _standardized_scores(self, state: State, scores: XArray) -> XArray:
        """Center and scale raw scores; return others unchanged."""
        if "center" not in state:
            return scores
        return (scores - state["center"]) / state["scale"]

    def _penalties(self, state: State, p: int) -> np.ndarray:
        """Compute the strengths (p,) of squared penalties."""
        return np.zeros(p)

    def _rows_to_fit(self, rows: Source) -> Source:
        """Return the rows of the fit, with scores clipped to a safe range."""
        far = rows.largest > FAR
        return rows.mapped(_bound, FAR) if far else rows

    def _with_targets(self, rows: Source) -> Source:
        """Replace labels by the targets of the regression."""
        return rows

    def _condensed(self, state: State, rows: Source) -> Source:
        """Replace very many rows by fewer points with equal sums."""
        return rows

    def _in_narrow_bins(self, rows: Source) -> Rows | None:
        """Count very many log odds in narrow bins; None if they are few, or the bins are wide."""
        if self.inputs == "scores" or not self._steep_by_coefficients:
            return None
        if not isinstance(rows, Rows) or rows.n <= _MAX_DIRECT_ROWS or not on_host(rows.scores):
            return None
        low, high = np.arcsinh(rows.ends)
        return count_in_bins(rows, _BINS, FAR) if high - low <= _MAX_WIDTH * _BINS else None

    def _fit(self, rows: Source, seed: int) -> State:
        rows = self._rows_to_fit(rows)
        bins = self._in_narrow_bins(rows)
        if bins is not None:
            state = self._fit_rows(bins)
            slopes = state["theta"][self._first :]
            if state["status"] == Status.CONVERGED and abs(slopes).max() <= _MAX_SLOPE:
                return state
        return self._fit_rows(rows)

    def _fit_rows(self, rows: Source) -> State:
        state = {**self._center_and_scale(rows.sample), **self._prepare(rows.sample)}
        rows = self._condensed(state, self._with_targets(rows))
        make = partial(_make_design, partial(self._columns, state), self._first)
        sample = make(rows.sample)
        p = len(sample.columns) - (1 - self._first)
        fit = binary_fit(rows, make, sample, self._penalties(state, p)[self._first :])
        minimum = self._minimize(p, fit)
        return {
            **state,
            **self._describe(state, minimum.x),
            "theta": minimum.x,
            "objective": np.asarray(minimum.value / rows.weight),
            "n_iter": np.asarray(int(minimum.iterations)),
            "status": np.asarray(int(minimum.status)),
        }

    @property
    def _first(self) -> int:
        """The index of the first column that is not the intercept."""
        return 1 if self._has_intercept else 0

    def _log_odds(self, state: State, theta: XArray, scores: XArray) -> XArray:
        return matmul(theta, self._columns(state, bounded(scores)))

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        return sigmoids(self._log_odds(state, theta, scores))

    def _ends(self, state: State, scores: XArray, level: float) -> XArray:
        ends = partial(ends_of_log_odds, level=level)
        return over_draws(self, state, scores, ends, self._log_odds)

    def _minimize(self, p: int, fit_free: Callable[[np.ndarray], Minimum]) -> Minimum:
        """Fit p coefficients, some of which must not be negative.

        If the unconstrained optimum violates this, the optimum of the convex problem is the best
        feasible fit with some of these fixed at zero. ``fit_free`` takes ones (1 + d,) for free
        parameters.
        """
        skipped = 1 - self._first

        def fit(fixed: Sequence[int]) -> Minimum:
            free = np.ones(skipped + p)
            free[:skipped] = 0
            free[[skipped + j for j in fixed]] = 0
            minimum = fit_free(free)
            return minimum._replace(x=np.asarray(minimum.x)[skipped:])

        limited = [int(j) for j in np.flatnonzero(self._positive(p))]
        feasible = []
        for size in range(len(limited) + 1):
            for fixed in combinations(limited, size):
                minimum = fit(fixed)
                if (minimum.x[limited] >= 0).all():
                    feasible.append(minimum)
            if size == 0 and feasible:
                break
        return min(feasible, key=lambda minimum: minimum.value)

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        scores, basis, design = self._standardized_design(state, rows)
        target = Target(design, basis.positive.astype(float), basis.prior)
        scored = ScoreColumns(scores, basis.columns) if self._smooth else None
        draws = sample(target, self.inference, self.num_samples, seed, scored)
        return draws._replace(coefficients=basis.destandardize(draws.coefficients))

    def _standardized_design(
        self, state: State, rows: Source
    ) -> tuple[np.ndarray, _Standardized, BinaryDesign]:
        scores, targets, weights = self._with_targets(self._rows_to_fit(rows)).all()
        basis = _Standardized(self, state, scores, weights)
        design = BinaryDesign(basis.columns(scores), targets.astype(float), weights)
        return scores, basis, design

    def _model(self, state: State, rows: Rows) -> Model:
        scores, basis, design = self._standardized_design(state, rows)
        penalty = self._penalties(state, len(basis.positive))
        prior, destandardize = basis.prior, basis.destandardize
        if self.inference == "map":
            design = design._replace(columns=self._columns(state, scores))
            prior, destandardize = None, lambda u: u
        return log_odds_model(
            design,
            prior,
            penalty,
            basis.positive,
            lambda u: self._describe(state, destandardize(u)),
        )


def _bound(rows: Rows) -> Rows:
    return rows._replace(scores=bounded(rows.scores))


def _make_design(
    make_columns: Callable[[AnyArray], AnyArray], first: int, rows: Rows
) -> BinaryDesign[Any]:
    """Compute the columns, the first of ones, and the targets of rows.

    Those of NumPy are computed in parts that fit in the processor's cache.
    """
    scores = rows.scores
    if not on_host(scores) or len(scores) <= _SCORES_AT_ONCE:
        columns = make_columns(scores)
    else:
        columns = np.empty((len(make_columns(scores[:1])), len(scores)))
        for part in slices(len(scores), _SCORES_AT_ONCE):
            columns[:, part] = make_columns(scores[part])
    if not first:
        xp = namespace(columns)
        columns = xp.concat([xp.ones_like(columns[:1, ...]), columns])
    return BinaryDesign(columns, rows.y.astype(float), rows.weights)


class _Standardized:
    """Columns centered and scaled to a standard deviation of 0.5, and their weak prior.

    Columns of positive coefficients are unchanged: exp(u) is 1 at the center of the prior.
    """

    def __init__(
        self, owner: LogOddsCalibrator, state: State, scores: np.ndarray, weights: np.ndarray
    ) -> None:
        raw = owner._columns(state, scores)
        p = len(raw)
        self._owner, self._state = owner, state
        self.positive = owner._positive(p)
        total = weights.sum()
        mean = raw @ weights / total
        spread = np.sqrt(np.maximum((raw - mean[:, None]) ** 2 @ weights / total, 0))
        unscaled = self.positive | (spread <= 1e-12 * np.abs(mean))
        self.scale = np.where(unscaled, 1.0, 2 * spread)
        centered = ~unscaled & owner._has_intercept
        self.mean = np.where(centered, mean, 0.0)
        is_intercept = (np.arange(p) == 0) & owner._has_intercept
        scale = np.where(is_intercept, INTERCEPT_SCALE, SLOPE_SCALE)
        scale = np.where(self.positive, LOG_SCALE, scale)
        is_cauchy = np.where(self.positive, 0.0, 1.0)
        penalty = owner._penalties(state, p)
        if penalty.any():
            penalized = penalty > 0
            penalty_scale = self.scale / np.sqrt(np.where(penalized, penalty, 1))
            scale = np.where(penalized, penalty_scale, scale)
            is_cauchy = np.where(penalized, 0.0, is_cauchy)
        self.prior = CoefficientPrior(np.zeros(p), scale, is_cauchy)

    def columns(self, scores: np.ndarray) -> np.ndarray:
        """Compute the standardized columns (p, m)."""
        raw = self._owner._columns(self._state, scores)
        return (raw - self.mean[:, None]) / self.scale[:, None]

    def destandardize(self, theta: ArrayT) -> ArrayT:
        """Convert coefficients (..., p) to those of the original columns."""
        xp = namespace(theta)
        theta = theta / xp.asarray(self.scale)
        if not self._owner._has_intercept:
            return theta
        first = theta[..., :1] - (theta @ xp.asarray(self.mean))[..., None]
        return xp.concat([first, theta[..., 1:]], axis=-1)
