"""Calibrators of several classes whose logits are linear in their parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bayescal._core.arrays import device, matmul, namespace, on_host, wide
from bayescal._core.numerics import scaled_softmax, softmax, unit_of
from bayescal._core.optimise import Minimum, Status
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.calibrators.multiclass.members import smooth
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.data.given import EVERYWHERE
from bayescal.data.rows import Rows, Source, Sums
from bayescal.data.scores import FAR, bounded
from bayescal.regression.binary.posterior import Draws
from bayescal.regression.numpyro_models import Model, softmax_model
from bayescal.regression.rows import softmax_fit
from bayescal.regression.softmax.objective import Design
from bayescal.regression.softmax.posterior import sample

#: Numbers of rows whose probabilities are added up at once.
_EXPECTED_NUMBERS = 1 << 20


@dataclass(kw_only=True, eq=False, repr=False)
class LinearCalibrator(ParametricCalibrator):
    """A calibrator softmax(x + W x + b), or softmax(x + v x + b), elementwise in x.

    A method says how parameters are penalized and centered; it inherits the fit (Newton's method
    with conjugate gradients), what happens to classes that the labels lack, and posteriors.
    Penalties are the posterior's prior; where there is none it is N(0, 1) for deviations of
    factors from the identity, and N(0, 10^2) for intercepts.
    """

    coef_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)

    _domain = "logits"
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    #: Whether logits are multiplied by a matrix, or by a factor for each class.
    _by_matrix: ClassVar[bool] = False
    #: Whether penalties keep finite what the labels say nothing of.
    _keeps_missing: ClassVar[bool] = False

    def _design(self, rows: Rows) -> Design:
        """Return what the logits depend on; x itself is the offset."""
        xp = namespace(rows.scores)
        ones = xp.ones((len(rows.y), 1))
        if self._by_matrix:
            return Design(*rows, xp.concat([rows.scores, ones], axis=1))
        return Design(*rows, ones, rows.scores)

    def _describe(self, state: State, theta: Any) -> State:
        k, xp = int(state["present"].sum()), namespace(theta)
        if self._by_matrix:
            matrix = xp.reshape(theta, (*theta.shape[:-1], k, k + 1))
            coef, intercept = matrix[..., :k], matrix[..., k]
            one: Any = xp.eye(k, dtype=theta.dtype, device=device(theta))
        else:
            one, coef, intercept = 1, theta[..., k:], theta[..., :k]
        coef, intercept = self._centered(coef, intercept)
        return {"coef": (one + coef) / state["unit"], "intercept": intercept}

    def _centered(self, coef: Any, intercept: Any) -> tuple[Any, Any]:
        """Return parameters less what may be added to all logits, where no penalty decides it."""
        return coef, intercept

    def _logits(self, named: State, scores: Any) -> Any:
        """Return calibrated logits (..., m, k) at scores (m, k) of the classes that occurred.

        Leading axes are those of the named parameters.
        """
        coef, intercept = named["coef"], named["intercept"][..., None, :]
        if self._by_matrix:
            return matmul(scores, namespace(coef).matrix_transpose(coef)) + intercept
        return scores * coef[..., None, :] + intercept

    def _penalties(self, rows: Source, unit: float) -> tuple[np.ndarray, State]:
        """Return strengths (p,) of theta**2 / 2, and what is learned of their choice."""
        return np.zeros(rows.k * (rows.k + 1) if self._by_matrix else 2 * rows.k), {}

    def _start(self, rows: Rows) -> np.ndarray:
        """Return parameters (p,) to start from: by default those of temperature scaling."""
        k, more = rows.k, min(fit_inverse(rows).x, 10.0) - 1
        if self._by_matrix:
            return (more * np.eye(k, k + 1)).ravel()
        return np.concatenate([np.zeros(k), np.full(k, more)])

    def _used(self, rows: Source) -> tuple[Source, State]:
        """Return the rows that are fitted, and what is learned of how they are changed."""
        return rows, {}

    def _fit(self, rows: Source, seed: int) -> State:
        rows, state = self._used(rows)
        rows = rows.mapped(_bound, min(rows.largest, FAR))
        present = (rows.mass > 0) | self._keeps_missing
        state = {**state, "present": present}
        if not present.all():
            state |= _missing(rows, present)
            rows = rows.mapped(partial(_present, present), rows.largest)
        rows = rows.mapped(_widen, rows.largest)
        # Its square is a number too.
        unit = float(np.clip(unit_of(rows.largest, 1e4), 2.0**-500, 2.0**500))
        state["unit"], rows = np.asarray(unit), rows.divided(unit)
        penalty, learned = self._penalties(rows, unit)
        if rows.k == 1:
            found = _nothing(penalty)
        else:
            found = softmax_fit(rows, self._design, penalty, self._start(rows.sample))
        return self._found({**state, **learned}, found, penalty, rows.weight)

    def _found(self, state: State, found: Minimum, penalty: np.ndarray, total: float) -> State:
        return {
            **state,
            **self._describe(state, found.x),
            "theta": found.x,
            "penalty": penalty,
            "objective": np.asarray(found.value / total),
            "gradient_norm": np.asarray(np.abs(np.asarray(found.gradient)).max(initial=0) / total),
            "n_iter": np.asarray(int(found.iterations)),
            "status": np.asarray(int(found.status)),
        }

    def _sample(self, state: State, rows: Source, seed: int) -> Draws:
        design, penalty = self._target(state, rows.all())
        return sample(design, penalty, state["theta"], self.inference, self.num_samples, seed)

    def _model(self, state: State, rows: Rows) -> Model:
        design, penalty = self._target(state, rows)
        if self.inference == "map":
            penalty = state["penalty"]
        return softmax_model(design, penalty, lambda theta: self._describe(state, theta))

    def _target(self, state: State, rows: Rows) -> tuple[Design, np.ndarray]:
        """Return what logits depend on, and the posterior's prior as strengths (p,)."""
        rows, present = _bound(rows), state["present"]
        if not present.all():
            rows = _present(present, rows)
        design = self._design(_widen(rows).divided(float(state["unit"])))
        penalty = state["penalty"]
        k, m, d, r = design.sizes
        # Intercepts are the coefficients of the last feature, of ones.
        last = np.concatenate([np.tile(np.arange(m) == m - 1, k), np.zeros(d + r, bool)])
        return design, np.where(penalty > 0, penalty, np.where(last, 0.01, 1.0))

    def _curves(self, state: State, theta: Any, scores: Any) -> Any:
        present, named = state["present"], self._describe(state, theta)
        if on_host(scores):
            # Class by class: NumPy takes twice as long for sums over short rows.
            scores = np.asfortranarray(bounded(scores))
        if present.all():
            return softmax(self._logits(named, scores))
        xp = namespace(scores)
        there = xp.asarray(present, device=device(scores))
        own = xp.asarray(np.flatnonzero(present), device=device(scores))
        known = softmax(self._logits(named, xp.take(scores, own, axis=1)))
        lost = scaled_softmax(scores, state["missing_inverse"]) * state["missing_factor"]
        lost = xp.where(there, xp.zeros_like(lost), lost)
        # Each class's place among those that are present; of the others the first's.
        place = xp.asarray(np.maximum(np.cumsum(present) - 1, 0), device=device(scores))
        known = xp.take(known, place, axis=known.ndim - 1)
        return xp.where(there, known * (1 - xp.sum(lost, axis=1, keepdims=True)), lost)


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredCalibrator(LinearCalibrator):
    """Calibrators linear in x = log((1 - e) softmax(s log p) + e / k), where e = 1 / (n + 1).

    The penalties are priors; a posterior is that of the deviations at the best temperature.
    """

    temperature_: float = field(init=False)

    _keeps_missing = True

    def _start(self, rows: Rows) -> np.ndarray:
        return np.zeros(rows.k * (rows.k + 1) if self._by_matrix else 2 * rows.k)

    def _used(self, rows: Source) -> tuple[Source, State]:
        scale = _scale(fit_inverse(rows).x, rows.weight)
        # Logarithms of smoothed probabilities are neither huge nor tiny.
        return rows.mapped(partial(_smooth_rows, scale), 1.0), scale

    def _target(self, state: State, rows: Rows) -> tuple[Design, np.ndarray]:
        return super()._target(state, _smooth_rows(state, rows))

    def _curves(self, state: State, theta: Any, scores: Any) -> Any:
        return super()._curves(state, theta, _smoothed(state, scores))


def _smoothed(state: State, scores: Any) -> Any:
    return smooth(scores, state["inverse"], state["smoothing"])


def _scale(inverse: float, total: float) -> State:
    with np.errstate(divide="ignore"):
        temperature = 1 / np.asarray(inverse)
    smoothing = np.asarray(1 / (total + 1))
    return {"inverse": np.asarray(inverse), "smoothing": smoothing, "temperature": temperature}


def _smooth_rows(scale: State, rows: Rows) -> Rows:
    return rows._replace(scores=_smoothed(scale, rows.scores))


def _bound(rows: Rows) -> Rows:
    """Bound scores, but single ones of the host: these are never as far from zero."""
    scores = rows.scores
    if on_host(scores) and scores.dtype == np.float32:
        return rows
    return rows._replace(scores=bounded(scores if on_host(scores) else scores.astype(float)))


def _widen(rows: Rows) -> Rows:
    return rows._replace(scores=wide(rows.scores))


def _present(present: np.ndarray, rows: Rows) -> Rows:
    """Return scores of the classes that occur, and labels among these."""
    return Rows(rows.scores[:, present], (np.cumsum(present) - 1)[rows.y], rows.weights)


def _nothing(penalty: np.ndarray) -> Minimum:
    """Return what there is to fit of one class."""
    nothing = np.zeros_like(penalty)
    return Minimum(nothing, np.asarray(0.0), 0.0, 0, Status.CONVERGED, nothing)


def _expected(inverse: float, scores: Any, y: np.ndarray, weights: np.ndarray) -> Sums:
    weights = namespace(scores).asarray(weights)
    return {"expected": np.asarray(weights @ scaled_softmax(scores, inverse))}


def _missing(rows: Source, present: np.ndarray) -> State:
    """Return what is left of classes without a label.

    They keep their probability after temperature scaling, times the posterior mean of a rate with
    a prior of Gamma(1, 1), of which so many labels as were expected showed none.
    """
    inverse = fit_inverse(rows).x
    expected = rows.total(partial(_expected, inverse), numbers=_EXPECTED_NUMBERS)["expected"]
    return {
        "missing_inverse": np.asarray(inverse),
        "missing_factor": np.where(present, 1.0, 1 / (1 + expected)),
    }
