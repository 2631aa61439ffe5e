"""Base class of multi-class calibrators whose logits are linear in the parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, device, matmul, namespace, on_host, wide
from bayescal._core.minimization.optimize import Minimum, Status
from bayescal._core.numerics import scaled_softmax, softmax, unit_of
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.online import OnlineCalibrator
from bayescal.calibrators.base.parametric import ParametricCalibrator
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.data.given import EVERYWHERE
from bayescal.data.rows import Rows, Source, Sums
from bayescal.data.scores import FAR, bounded
from bayescal.regression.binary.posterior import Draws
from bayescal.regression.numpyro_models import Model, softmax_model
from bayescal.regression.rows import softmax_fit
from bayescal.regression.softmax.objective import Design
from bayescal.regression.softmax.posterior import sample

#: Numbers in the rows whose probabilities are summed at once.
_EXPECTED_NUMBERS = 1 << 20


@dataclass(kw_only=True, eq=False, repr=False)
class LinearCalibrator(OnlineCalibrator, ParametricCalibrator):
    """A calibrator softmax(x + W x + b), or softmax(x + v x + b), elementwise in x.

    A subclass defines how parameters are penalized and centered. Penalties are the prior of the
    posterior; without one it is N(0, 1) for deviations of factors from the identity, and N(0, 10^2)
    for intercepts.
    """

    coef_: np.ndarray = field(init=False)
    intercept_: np.ndarray = field(init=False)

    _domain = "logits"
    _sources: ClassVar[frozenset[str]] = EVERYWHERE
    #: Whether logits are multiplied by a matrix instead of a factor for each class.
    _by_matrix: ClassVar[bool] = False
    #: Whether penalties keep the parameters of classes without labels finite.
    _keeps_missing: ClassVar[bool] = False

    def _design(self, rows: Rows) -> Design:
        """Make the design of the regression; x is its offset."""
        xp = namespace(rows.scores)
        ones = xp.ones((len(rows.y), 1))
        if self._by_matrix:
            return Design(*rows, xp.concat([rows.scores, ones], axis=1))
        return Design(*rows, ones, rows.scores)

    def _describe(self, state: State, theta: AnyArray) -> State:
        k, xp = int(state["present"].sum()), namespace(theta)
        if self._by_matrix:
            matrix = xp.reshape(theta, (*theta.shape[:-1], k, k + 1))
            coef, intercept = matrix[..., :k], matrix[..., k]
            identity = xp.eye(k, dtype=theta.dtype, device=device(theta))
        else:
            identity, coef, intercept = 1, theta[..., k:], theta[..., :k]
        coef, intercept = self._centered(coef, intercept)
        return {"coef": (identity + coef) / state["unit"], "intercept": intercept}

    def _centered(self, coef: XArray, intercept: np.ndarray) -> tuple[AnyArray, AnyArray]:
        """Center parameters over classes if no penalty determines their mean."""
        return coef, intercept

    def _logits(self, named: State, scores: XArray) -> XArray:
        """Compute calibrated logits (..., m, k) of the classes with labels."""
        coef, intercept = named["coef"], named["intercept"][..., None, :]
        if self._by_matrix:
            return matmul(scores, namespace(coef).matrix_transpose(coef)) + intercept
        return scores * coef[..., None, :] + intercept

    def _penalties(self, rows: Source, unit: float) -> tuple[np.ndarray, State]:
        """Compute strengths (p,) of theta**2 / 2, and entries of the state about their choice."""
        return np.zeros(rows.k * (rows.k + 1) if self._by_matrix else 2 * rows.k), {}

    def _start(self, rows: Source) -> np.ndarray:
        """Compute initial parameters (p,), by default those of temperature scaling."""
        sample = rows.sample
        minimum = fit_inverse(sample)
        if sample is not rows and minimum.value < np.log(2) * sample.weights.min():
            # The labels of the sample are separable; those of all rows may not be.
            minimum = fit_inverse(rows)
        k, more = rows.k, min(minimum.x, 10.0) - 1
        if self._by_matrix:
            return (more * np.eye(k, k + 1)).ravel()
        return np.concatenate([np.zeros(k), np.full(k, more)])

    def _rows_to_fit(self, rows: Source) -> tuple[Source, State]:
        """Return the rows of the fit, and entries of the state about their transformation."""
        return rows, {}

    def _fit(self, rows: Source, seed: int) -> State:
        rows, state = self._rows_to_fit(rows)
        rows = rows.mapped(_bound, min(rows.largest, FAR))
        present = (rows.mass > 0) | self._keeps_missing
        state = {**state, "present": present}
        if not present.all():
            state |= _missing(rows, present)
            rows = rows.mapped(partial(_select_present, present), rows.largest)
        rows = rows.mapped(_widen, rows.largest)
        # Keep the square of the unit finite.
        unit = float(np.clip(unit_of(rows.largest, 1e4), 2.0**-500, 2.0**500))
        state["unit"], rows = np.asarray(unit), rows.divided(unit)
        penalty, choice = self._penalties(rows, unit)
        if rows.k == 1:
            none = np.zeros_like(penalty)
            minimum = Minimum(none, np.asarray(0.0), 0.0, 0, Status.CONVERGED, none)
        else:
            minimum = softmax_fit(rows, self._design, penalty, self._start(rows))
        total = rows.weight
        return {
            **state,
            **choice,
            **self._describe(state, minimum.x),
            "theta": minimum.x,
            "penalty": penalty,
            "objective": np.asarray(minimum.value / total),
            "gradient_norm": np.asarray(
                np.abs(np.asarray(minimum.gradient)).max(initial=0) / total
            ),
            "n_iter": np.asarray(int(minimum.iterations)),
            "status": np.asarray(int(minimum.status)),
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
        """Make the design, and the strengths (p,) of the normal prior of the posterior."""
        rows, present = _bound(rows), state["present"]
        if not present.all():
            rows = _select_present(present, rows)
        design = self._design(_widen(rows).divided(float(state["unit"])))
        penalty = state["penalty"]
        k, m, d, r = design.sizes
        # Intercepts are the coefficients of the last feature, which is one.
        last = np.concatenate([np.tile(np.arange(m) == m - 1, k), np.zeros(d + r, bool)])
        return design, np.where(penalty > 0, penalty, np.where(last, 0.01, 1.0))

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        present, named = state["present"], self._describe(state, theta)
        if on_host(scores):
            # Columns are contiguous, because NumPy is half as fast in sums over short rows.
            scores = np.asfortranarray(bounded(scores))
        if present.all():
            return softmax(self._logits(named, scores))
        xp = namespace(scores)
        mask = xp.asarray(present, device=device(scores))
        columns = xp.asarray(np.flatnonzero(present), device=device(scores))
        known = softmax(self._logits(named, xp.take(scores, columns, axis=1)))
        missing = scaled_softmax(scores, state["missing_inverse"]) * state["missing_factor"]
        missing = xp.where(mask, xp.zeros_like(missing), missing)
        # Index of each class among the present ones; 0 for missing classes, which are masked.
        index = xp.asarray(np.maximum(np.cumsum(present) - 1, 0), device=device(scores))
        known = xp.take(known, index, axis=known.ndim - 1)
        return xp.where(mask, known * (1 - xp.sum(missing, axis=1, keepdims=True)), missing)


def _bound(rows: Rows) -> Rows:
    """Clip scores, except those in single precision on the host, which are in range."""
    scores = rows.scores
    if on_host(scores) and scores.dtype == np.float32:
        return rows
    return rows._replace(scores=bounded(scores if on_host(scores) else scores.astype(float)))


def _widen(rows: Rows) -> Rows:
    return rows._replace(scores=wide(rows.scores))


def _select_present(present: np.ndarray, rows: Rows) -> Rows:
    """Select the columns of classes with labels, and renumber the labels."""
    return Rows(rows.scores[:, present], (np.cumsum(present) - 1)[rows.y], rows.weights)


def _expected(inverse: float, rows: Rows) -> Sums:
    weights = namespace(rows.scores).asarray(rows.weights)
    return {"expected": np.asarray(weights @ scaled_softmax(rows.scores, inverse))}


def _missing(rows: Source, present: np.ndarray) -> State:
    """Compute the entries of the state for classes without labels.

    Such a class keeps its probability after temperature scaling, multiplied by the posterior mean
    of a rate with prior Gamma(1, 1), given that none of the expected number of labels occurred.
    """
    inverse = fit_inverse(rows).x
    expected = rows.total(partial(_expected, inverse), numbers=_EXPECTED_NUMBERS)["expected"]
    return {
        "missing_inverse": np.asarray(inverse),
        "missing_factor": np.where(present, 1.0, 1 / (1 + expected)),
    }
