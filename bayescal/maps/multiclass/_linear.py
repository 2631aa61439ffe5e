"""Maps whose logits are linear in their parameters: fits, penalties chosen by cross-validation.

A map says what the logits depend on and how parameters are penalised; it inherits the fit, what
happens to classes that the labels lack, and posteriors.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from bayescal._core.numerics import softmax
from bayescal._core.optimise import Minimum, Status
from bayescal.maps._map import State
from bayescal.maps.multiclass._draws import blocks, summarise
from bayescal.maps.multiclass._map import ParametricMulticlassMap
from bayescal.regression.posterior import Draws
from bayescal.regression.softmax_fit import fit_on_host
from bayescal.regression.softmax_objective import Design
from bayescal.regression.softmax_posterior import sample
from bayescal.regression.temperature import fit_inverse_temperature

#: Scores beyond this count as this, so that nothing overflows.
FAR = 1e50


class Rows(NamedTuple):
    """Scores (n, k) of the classes that occur, in units of about one, labels and weights."""

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray


class LinearMap(ParametricMulticlassMap):
    """A map softmax(x + W f(x) + v x + b), elementwise in x."""

    @abstractmethod
    def design(self, rows: Rows) -> Design:
        """Return what the logits depend on; x itself is the offset."""

    @abstractmethod
    def logits(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return calibrated logits (..., m, k) at scores (m, k) of the classes that occurred.

        Leading axes are those of the parameters in the state.
        """

    def penalties(self, rows: Rows, unit: float, seed: int) -> tuple[np.ndarray, State]:
        """Return strengths (p,) of theta**2 / 2, and what to tell of their choice; none here."""
        k, m, d, r = self.design(rows).sizes
        return np.zeros(k * m + d + r), {}

    def start(self, rows: Rows) -> np.ndarray:
        """Return parameters (p,) to start from: nothing is changed by default."""
        k, m, d, r = self.design(rows).sizes
        return np.zeros(k * m + d + r)

    @property
    def keeps_missing(self) -> bool:
        """Whether penalties keep finite what the labels say nothing of."""
        return False

    def fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        """Minimise the (penalised) cross-entropy."""
        scores = np.clip(scores.astype(float, copy=False), -FAR, FAR)
        k = scores.shape[1]
        present = np.bincount(y, minlength=k) > 0
        if self.keeps_missing:
            present[:] = True
        state: State = {"present": present}
        if not present.all():
            state |= _missing(scores, y, weights, present)
            scores, y = scores[:, present], (np.cumsum(present) - 1)[y]
        unit = _unit(scores)
        rows = Rows(scores if unit == 1 else scores / unit, y, weights)
        penalty, told = self.penalties(rows, unit, seed)
        found = self._minimise(rows, penalty)
        total = weights.sum()
        return {
            **state,
            **told,
            **self.describe(found.x, scores.shape[1], unit),
            "theta": found.x,
            "penalty": penalty,
            "unit": np.asarray(unit),
            "objective": np.asarray(found.value / total),
            "gradient_norm": np.asarray(np.abs(found.gradient).max(initial=0) / total),
            "n_iter": np.asarray(int(found.iterations)),
            "status": np.asarray(int(found.status)),
        }

    def sample(
        self,
        state: State,
        scores: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        inference: str,
        num_samples: int,
        seed: int,
    ) -> Draws:
        """Return draws (chains, draws, p) of theta from the posterior.

        The penalty is the log prior. What has none gets a weak one: deviations of factors from the
        identity N(0, 1), intercepts N(0, 10**2).
        """
        scores = np.clip(scores.astype(float, copy=False), -FAR, FAR)
        present = state["present"]
        if not present.all():
            scores, y = scores[:, present], (np.cumsum(present) - 1)[y]
        rows = Rows(scores / float(state["unit"]), y, weights)
        design = self.design(rows)
        penalty = state["penalty"]
        weak = np.where(self.intercepts(rows), 0.01, 1.0)
        penalty = np.where(penalty > 0, penalty, weak)
        return sample(design, penalty, state["theta"], inference, num_samples, seed)

    def intercepts(self, rows: Rows) -> np.ndarray:
        """Return which (p,) parameters are intercepts: those of the last feature, of ones."""
        k, m, d, r = self.design(rows).sizes
        last = np.tile(np.arange(m) == m - 1, k)
        return np.concatenate([last, np.zeros(d + r, bool)])

    def predict_draws(
        self, state: State, theta: np.ndarray, scores: np.ndarray, level: float | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Do as the base class says, in blocks of rows: O(s m k^2) time."""
        present = int(state["present"].sum())
        drawn = {**state, **self.describe(theta, present, float(state["unit"]))}

        def curves(block: np.ndarray) -> np.ndarray:
            return self._complete(drawn, np.clip(block.astype(float, copy=False), -FAR, FAR))

        return summarise(curves, scores, len(theta), level)

    def _minimise(self, rows: Rows, penalty: np.ndarray) -> Minimum:
        if rows.x.shape[1] == 1:
            nothing = np.zeros_like(penalty)
            return Minimum(nothing, np.asarray(0.0), 0.0, 0, Status.CONVERGED, nothing)
        return fit_on_host(self.design(rows), penalty, self.start(rows))[0]

    def apply(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return probabilities (m, k), in blocks of rows."""
        probs = np.empty(scores.shape)
        for part in blocks(*scores.shape):
            block = np.clip(scores[part].astype(float, copy=False), -FAR, FAR)
            probs[part] = self._complete(state, block)
        return probs

    def _complete(self, state: State, scores: np.ndarray) -> np.ndarray:
        """Return probabilities (m, k), also of classes that did not occur."""
        present = state["present"]
        known = softmax(self.logits(state, scores[:, present]))
        if present.all():
            return known
        lost = softmax(scores * state["missing_inverse"]) * state["missing_factor"]
        probs = np.empty((*known.shape[:-1], scores.shape[1]))
        probs[..., ~present] = lost[:, ~present]
        probs[..., present] = known * (1 - lost[:, ~present].sum(axis=1, keepdims=True))
        return probs


def _unit(scores: np.ndarray) -> float:
    """Return a power of two near the largest score where this is far from one, or 1."""
    largest = float(np.abs(scores).max(initial=0))
    if 1e-4 < largest < 1e4 or largest == 0:
        return 1.0
    return float(2.0 ** np.round(np.log2(largest)))


def _missing(scores: np.ndarray, y: np.ndarray, weights: np.ndarray, present: np.ndarray) -> State:
    """Return what is left of classes without a label.

    They keep their probability after temperature scaling, times the posterior mean of a rate with
    a prior of Gamma(1, 1), of which so many labels as were expected showed none.
    """
    inverse = fit_inverse_temperature(scores, y, weights).inverse
    expected = weights @ softmax(scores * inverse)
    return {
        "missing_inverse": np.asarray(inverse),
        "missing_factor": np.where(present, 1.0, 1 / (1 + expected)),
    }


def apply_inverse(scores: np.ndarray, inverse: float) -> np.ndarray:
    """Return softmax(inverse * scores) (m, k), in blocks of rows."""
    probs = np.empty(scores.shape)
    for part in blocks(*scores.shape):
        block = scores[part]
        # Differences first: those of huge logits would be lost, or infinite.
        with np.errstate(over="ignore"):
            below = np.subtract(block, block.max(axis=1, keepdims=True), dtype=float)
        probs[part] = softmax(np.maximum(below, -np.finfo(float).max) * inverse)
    return probs
