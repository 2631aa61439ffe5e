"""Calibrators of two classes whose log odds are linear in their parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from bayescal._core.arrays import ArrayT, matmul, namespace
from bayescal._core.numerics import sigmoids
from bayescal._core.optimise import Minimum
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.data.given import EVERYWHERE
from bayescal.data.rows import Rows, Source
from bayescal.data.scores import FAR, bounded
from bayescal.regression.binary.objective import BinaryDesign, Prior
from bayescal.regression.binary.posterior import Draws, ScoreColumns, Target, sample
from bayescal.regression.numpyro_models import Model, log_odds_model
from bayescal.regression.rows import binary_fit

#: Gelman et al. (2008): for features of standard deviation 0.5, and for the intercept.
SLOPE_SCALE, INTERCEPT_SCALE = 2.5, 10.0
#: Of the logarithm of a coefficient that must be positive: most lie between 1/20 and 20.
LOG_SCALE = 1.5


@dataclass(kw_only=True, eq=False, repr=False)
class LogOddsCalibrator(ParametricCalibrator):
    r"""A calibrator logit p = theta . columns(scores).

    A method writes ``_columns`` and ``_describe``, and says which coefficients must be positive. It
    inherits maximum likelihood (Newton's method, O(n p^2) for each of about ten iterations),
    Laplace's approximation, NUTS and bands. The weak prior of posteriors is Cauchy(0, 2.5) for
    columns of standard deviation 0.5, Cauchy(0, 10) for the intercept, and N(0, 1.5^2) for the
    logarithm of a coefficient that must be positive.
    """

    binary: ClassVar[bool] = True
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    #: Whether the columns are smooth functions of the score.
    _smooth: ClassVar[bool] = True

    @property
    def _has_intercept(self) -> bool:
        """Whether the first column is ones."""
        return True

    @abstractmethod
    def _columns(self, state: State, scores: Any) -> Any:
        """Return the columns (p, m) at scores (m,); the first is ones if there is an intercept."""

    def _positive(self, p: int) -> np.ndarray:
        """Return which (p,) coefficients must not be negative."""
        return np.zeros(p, bool)

    def _prepare(self, rows: Rows) -> State:
        """Return what the columns need to know of the data."""
        return {}

    def _place(self, rows: Rows) -> State:
        """Return center and scale of raw scores, whose squares lose their digits far from zero."""
        if self.inputs != "scores":
            return {}
        scores, _, weights = rows
        xp = namespace(scores)
        share = xp.asarray(weights / weights.sum(), dtype=scores.dtype)
        # From a score on: of equal ones all differences are zero.
        inside = (scores - scores[0]) * share
        center = float(scores[0] + xp.sum(inside))
        scale = float(xp.sum(share * (scores - center) ** 2)) ** 0.5
        return {"center": np.asarray(center), "scale": np.asarray(scale or 1.0)}

    def _placed(self, state: State, scores: Any) -> Any:
        """Return scores as they are, or raw ones from their center, in units of their scale."""
        if "center" not in state:
            return scores
        return (scores - state["center"]) / state["scale"]

    def _penalties(self, state: State, p: int) -> np.ndarray:
        """Return the strengths (p,) of squared penalties."""
        return np.zeros(p)

    def _used(self, rows: Source) -> Source:
        """Return the rows that are fitted: those that were given, no score too far from zero."""
        far = rows.largest > FAR
        return rows.mapped(_bound, FAR) if far else rows

    def _softened(self, rows: Source) -> Source:
        """Return rows whose labels are replaced by what probabilities are fitted to."""
        return rows

    def _fit(self, rows: Source, seed: int) -> State:
        rows = self._used(rows)
        state = {**self._place(rows.sample), **self._prepare(rows.sample)}
        rows = self._softened(rows)
        make = partial(_make_design, partial(self._columns, state), self._first)
        sample = make(rows.sample)
        p = len(sample.columns) - (1 - self._first)
        fit = binary_fit(rows, make, sample, self._penalties(state, p)[self._first :])
        return self._found(state, self._minimize(p, fit), rows.weight)

    def _found(self, state: State, found: Minimum, total: float) -> State:
        return {
            **state,
            **self._describe(state, found.x),
            "theta": found.x,
            "objective": np.asarray(found.value / total),
            "n_iter": np.asarray(int(found.iterations)),
            "status": np.asarray(int(found.status)),
        }

    @property
    def _first(self) -> int:
        """The first column that is none of ones."""
        return 1 if self._has_intercept else 0

    def _curves(self, state: State, theta: Any, scores: Any) -> Any:
        line = matmul(theta, self._columns(state, bounded(scores)))
        return sigmoids(line)

    def _minimize(self, p: int, fit_free: Callable[[np.ndarray], Minimum]) -> Minimum:
        """Fit p columns, with no coefficient negative that must not be.

        If one is, the optimum is on the boundary, and as the problem is convex the best of all
        fits with some of these coefficients held at zero is the optimum. What is free is given as
        ones (1 + d,), of the intercept and of the other columns.
        """
        skipped = 1 - self._first

        def fit(held: Sequence[int]) -> Minimum:
            free = np.ones(skipped + p)
            free[:skipped] = 0
            free[[skipped + j for j in held]] = 0
            found = fit_free(free)
            return found._replace(x=np.asarray(found.x)[skipped:])

        limited = [int(j) for j in np.flatnonzero(self._positive(p))]
        feasible = []
        for size in range(len(limited) + 1):
            for held in combinations(limited, size):
                found = fit(held)
                if (found.x[limited] >= 0).all():
                    feasible.append(found)
            if size == 0 and feasible:
                break
        return min(feasible, key=lambda found: found.value)

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        scores, basis, design = self._standardize(state, rows)
        target = Target(design, basis.positive.astype(float), basis.prior)
        scored = ScoreColumns(scores, basis.columns) if self._smooth else None
        draws = sample(target, self.inference, self.num_samples, seed, scored)
        return draws._replace(coefficients=basis.back(draws.coefficients))

    def _standardize(
        self, state: State, rows: Source
    ) -> tuple[np.ndarray, _Standardized, BinaryDesign]:
        scores, targets, weights = self._softened(self._used(rows)).all()
        basis = _Standardized(self, state, scores, weights)
        design = BinaryDesign(basis.columns(scores), targets.astype(float), weights)
        return scores, basis, design

    def _model(self, state: State, rows: Rows) -> Model:
        scores, basis, design = self._standardize(state, rows)
        penalty = self._penalties(state, len(basis.positive))
        if self.inference == "map":
            design = design._replace(columns=self._columns(state, scores))
            return log_odds_model(
                design, None, penalty, basis.positive, lambda u: self._describe(state, u)
            )
        return log_odds_model(
            design,
            basis.prior,
            penalty,
            basis.positive,
            lambda u: self._describe(state, basis.back(u)),
        )


def _bound(rows: Rows) -> Rows:
    return rows._replace(scores=bounded(rows.scores))


def _make_design(columns: Callable[[Any], Any], first: int, rows: Rows) -> BinaryDesign:
    """Return columns, the first of ones, and targets of some rows."""
    found = columns(rows.scores)
    if not first:
        xp = namespace(found)
        found = xp.concat([xp.ones_like(found[:1, ...]), found])
    return BinaryDesign(found, rows.y.astype(float), rows.weights)


class _Standardized:
    """Columns centered and scaled to a standard deviation of 0.5, and the weak prior there.

    Columns of positive coefficients stay as they are: exp(u) is 1 at the center of the prior.
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
        plain = self.positive | (spread <= 1e-12 * np.abs(mean))
        self.scale = np.where(plain, 1.0, 2 * spread)
        centered = ~plain & owner._has_intercept
        self.mean = np.where(centered, mean, 0.0)
        is_intercept = (np.arange(p) == 0) & owner._has_intercept
        scale = np.where(is_intercept, INTERCEPT_SCALE, SLOPE_SCALE)
        scale = np.where(self.positive, LOG_SCALE, scale)
        heavy = np.where(self.positive, 0.0, 1.0)
        penalty = owner._penalties(state, p)
        if penalty.any():
            penalized = penalty > 0
            own = self.scale / np.sqrt(np.where(penalized, penalty, 1))
            scale = np.where(penalized, own, scale)
            heavy = np.where(penalized, 0.0, heavy)
        self.prior = Prior(np.zeros(p), scale, heavy)

    def columns(self, scores: np.ndarray) -> np.ndarray:
        """Return the standardized columns (p, m)."""
        raw = self._owner._columns(self._state, scores)
        return (raw - self.mean[:, None]) / self.scale[:, None]

    def back(self, theta: ArrayT) -> ArrayT:
        """Return coefficients (..., p) of the calibrator's own columns."""
        xp = namespace(theta)
        theta = theta / xp.asarray(self.scale)
        if not self._owner._has_intercept:
            return theta
        first = theta[..., :1] - (theta @ xp.asarray(self.mean))[..., None]
        return xp.concat([first, theta[..., 1:]], axis=-1)
