"""Maps whose log odds are linear in their parameters: fits, posteriors and predictions for all.

A map writes ``columns``, a function of the scores, and says which coefficients must be positive.
It inherits maximum likelihood, Laplace's approximation and NUTS.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.numerics import sigmoid
from bayescal._core.optimise import Status
from bayescal.maps._map import Map, State
from bayescal.regression.fit import fit_single
from bayescal.regression.objective import Design, Prior, Problem
from bayescal.regression.posterior import Draws, Points, Target, laplace, nuts

Inference = Literal["map", "laplace", "nuts"]
#: Gelman et al. (2008): for features of standard deviation 0.5, and for the intercept.
SLOPE_SCALE, INTERCEPT_SCALE = 2.5, 10.0
#: Of the logarithm of a coefficient that must be positive: most lie between 1/20 and 20.
LOG_SCALE = 1.5
#: Scores beyond this count as this, so that no square overflows.
FAR = 1e50


class Estimate(NamedTuple):
    """Coefficients of the columns, and how the fit ended."""

    theta: np.ndarray
    value: float
    iterations: int
    status: Status


class Parametric(Map):
    """A map log odds = theta . columns(scores)."""

    @property
    def has_intercept(self) -> bool:
        """Whether the first column is ones; it is by default."""
        return True

    @abstractmethod
    def columns(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return the columns (p, m) at scores (m,); the first is ones if there is an intercept."""

    @abstractmethod
    def describe(self, theta: np.ndarray) -> State:
        """Return coefficients (..., p) under the names that users know."""

    def positive(self, p: int) -> np.ndarray:
        """Return which (p,) coefficients must not be negative; none by default."""
        return np.zeros(p, bool)

    def prepare(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        """Return what the columns need to know of the data: nothing by default."""
        return {}

    def penalties(self, state: State, p: int) -> np.ndarray:
        """Return the strengths (p,) of squared penalties: none by default."""
        return np.zeros(p)

    def targets(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return what probabilities are fitted to (n,): the labels by default."""
        return y.astype(float)

    @property
    def smooth(self) -> bool:
        """Whether the columns are smooth functions of the score."""
        return True

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> State:
        """Maximise the (penalised) likelihood."""
        scores = np.clip(scores, -FAR, FAR)
        state = self.prepare(scores, y, weights)
        columns = self.columns(state, scores)
        targets = self.targets(scores, y, weights)
        found = self._maximise(columns, targets, weights, self.penalties(state, len(columns)))
        return {
            **state,
            **self.describe(found.theta),
            "theta": found.theta,
            "objective": np.asarray(found.value),
            "n_iter": np.asarray(found.iterations),
            "status": np.asarray(int(found.status)),
        }

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        return sigmoid(self.line(state, scores))

    def line(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return the calibrated log odds (m,)."""
        with np.errstate(over="ignore"):
            return state["theta"] @ self.columns(state, np.clip(scores, -FAR, FAR))

    def _maximise(
        self, columns: np.ndarray, y: np.ndarray, weights: np.ndarray, penalty: np.ndarray
    ) -> Estimate:
        """Fit, with no coefficient negative that must not be.

        If one is, the optimum is on the boundary, and as the problem is convex the best of all
        fits with some of these coefficients held at zero is the optimum.
        """
        limited = [int(j) for j in np.flatnonzero(self.positive(len(columns)))]
        feasible = []
        for size in range(len(limited) + 1):
            for held in combinations(limited, size):
                found = self._fit_free(columns, y, weights, penalty, held)
                if (found.theta[limited] >= 0).all():
                    feasible.append(found)
            if size == 0 and feasible:
                break
        return min(feasible, key=lambda found: found.value)

    def _fit_free(
        self,
        columns: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        penalty: np.ndarray,
        held: Sequence[int],
    ) -> Estimate:
        p = len(columns)
        free = np.ones(p)
        free[list(held)] = 0
        first = 1 if self.has_intercept else 0
        if not first:
            free = np.concatenate([[0.0], free])
        x = columns[first:].T
        found = fit_single(Problem(x, y, weights, 0.0, penalty[first:], free))
        theta = np.asarray(found.x)[1 - first :]
        return Estimate(theta, float(found.value), int(found.iterations), Status(int(found.status)))

    def sample(
        self,
        state: State,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        inference: Inference,
        num_samples: int,
        seed: int,
    ) -> Draws:
        """Return draws (chains, draws, p) of theta from the posterior under the weak prior.

        Parameters
        ----------
        state : State
            From ``fit`` to the same data.
        inference : {"laplace", "nuts"}
        """
        scores = np.clip(scores, -FAR, FAR)
        basis = Standardised(self, state, scores, weights)
        design = Design(basis.columns(scores), self.targets(scores, y, weights), weights)
        target = Target(design, basis.positive.astype(float), basis.prior)
        if inference == "laplace":
            draws = laplace(target, num_samples, seed)
        else:
            points = Points(scores, basis.columns) if self.smooth else None
            draws = nuts(target, num_samples, seed, points)
        return draws._replace(coefficients=basis.back(draws.coefficients))


class Standardised:
    """A map's columns centred and scaled to a standard deviation of 0.5, and the weak prior there.

    Columns of positive coefficients stay as they are: exp(u) is 1 at the centre of the prior.
    """

    def __init__(
        self, owner: Parametric, state: State, scores: np.ndarray, weights: np.ndarray
    ) -> None:
        raw = owner.columns(state, scores)
        p = len(raw)
        self._owner, self._state = owner, state
        self.positive = owner.positive(p)
        total = weights.sum()
        mean = raw @ weights / total
        spread = np.sqrt(np.maximum((raw - mean[:, None]) ** 2 @ weights / total, 0))
        plain = self.positive | (spread <= 1e-12 * np.abs(mean))
        self.scale = np.where(plain, 1.0, 2 * spread)
        centred = ~plain & owner.has_intercept
        self.mean = np.where(centred, mean, 0.0)
        is_intercept = (np.arange(p) == 0) & owner.has_intercept
        scale = np.where(is_intercept, INTERCEPT_SCALE, SLOPE_SCALE)
        scale = np.where(self.positive, LOG_SCALE, scale)
        heavy = np.where(self.positive, 0.0, 1.0)
        penalty = owner.penalties(state, p)
        if penalty.any():
            penalised = penalty > 0
            scale = np.where(
                penalised, self.scale / np.sqrt(np.where(penalised, penalty, 1)), scale
            )
            heavy = np.where(penalised, 0.0, heavy)
        self.prior = Prior(np.zeros(p), scale, heavy)

    def columns(self, scores: np.ndarray) -> np.ndarray:
        """Return the standardised columns (p, m)."""
        raw = self._owner.columns(self._state, scores)
        return (raw - self.mean[:, None]) / self.scale[:, None]

    def back(self, theta: np.ndarray) -> np.ndarray:
        """Return coefficients (..., p) of the map's own columns."""
        theta = theta / self.scale
        if self._owner.has_intercept:
            theta[..., 0] -= theta @ self.mean
        return theta
