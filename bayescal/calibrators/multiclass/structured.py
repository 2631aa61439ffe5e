"""Structured vector and matrix scaling: temperature first, then shrunk deviations from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bayescal._core.arrays import AnyArray, XArray
from bayescal._core.numerics import scaled_softmax
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.base.matching import Stages
from bayescal.calibrators.multiclass.linear import LinearCalibrator
from bayescal.calibrators.multiclass.members import smooth
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.data.rows import Rows, Source
from bayescal.regression.softmax.objective import Design


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredCalibrator(LinearCalibrator):
    """Calibrators linear in x = log((1 - e) softmax(s log p) + e / k), where e = 1 / (n + 1).

    The penalties are priors. Posteriors are those of the deviations, given the best temperature.
    """

    temperature_: float = field(init=False)

    _keeps_missing = True

    def _start(self, rows: Source) -> np.ndarray:
        return np.zeros(rows.k * (rows.k + 1) if self._by_matrix else 2 * rows.k)

    def _rows_to_fit(self, rows: Source) -> tuple[Source, State]:
        scale = _scale(fit_inverse(rows).x, rows.weight)
        # Logarithms of smoothed probabilities need no further scaling.
        return rows.mapped(partial(_smooth_rows, scale), 1.0), scale

    def _target(self, state: State, rows: Rows) -> tuple[Design, np.ndarray]:
        return super()._target(state, _smooth_rows(state, rows))

    def _curves(self, state: State, theta: XArray, scores: XArray) -> XArray:
        return super()._curves(state, theta, _smoothed(state, scores))

    def _stages(self, state: State, scores: np.ndarray) -> Stages:
        first = scaled_softmax(scores, state["inverse"])
        return Stages(self.apply(state, scores), _smoothed(state, scores), first)


@dataclass(eq=False, repr=False)
class StructuredVector(StructuredCalibrator):
    r"""Structured vector scaling (SVS): factors and intercepts shrunk toward a temperature.

    .. math:: \hat p = \operatorname{softmax}(x + v \circ x + b), \qquad
        \min \overline{CE} + \frac{k}{n} (\|b\|^2 + \|v\|^2)

    where x are the logarithms of temperature-scaled probabilities, mixed with the uniform
    distribution with weight 1 / (n + 1), and n is the total weight. O(n k) time for each of about
    twenty products with the Hessian.

    Attributes
    ----------
    coef_, intercept_ : arrays of shape (k,)
        Factors 1 + v and intercepts b.
    temperature_ : float

    References
    ----------
    probmetrics, the library where the method was published as ``SVSCalibrator``.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> bc.StructuredVector().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.56, 0.27, 0.17]]
    """

    def _penalties(self, rows: Source, unit: float) -> tuple[np.ndarray, State]:
        k = rows.k
        return np.concatenate([np.full(k, 2.0 * k), np.full(k, 2.0 * k / unit**2)]), {}


@dataclass(eq=False, repr=False)
class StructuredMatrix(StructuredCalibrator):
    r"""Structured matrix scaling (SMS): a matrix and intercepts shrunk toward a temperature.

    .. math:: \hat p = \operatorname{softmax}(x + W x + b), \qquad
        \min \overline{CE} + \frac{k}{n} \Bigl(\|b\|^2 + \sum_i w_{ii}^2\Bigr)
        + \frac{k (k - 1)}{n} \sum_{i \ne j} w_{ij}^2

    with x as in :class:`StructuredVector`; off-diagonal entries are shrunk more. O(n k^2) time for
    each of a few dozen products with the Hessian.

    Attributes
    ----------
    coef_ : array of shape (k, k)
        The identity plus W.
    intercept_ : array of shape (k,)
    temperature_ : float

    References
    ----------
    probmetrics, the library where the method was published as ``SMSCalibrator``.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> bc.StructuredMatrix().fit(p, y).predict_proba(p[:1]).round(2).tolist()
    [[0.57, 0.26, 0.17]]
    """

    _by_matrix = True

    def _penalties(self, rows: Source, unit: float) -> tuple[np.ndarray, State]:
        k = rows.k
        matrix = np.full((k, k + 1), 2.0 * k * (k - 1) / unit**2)
        np.fill_diagonal(matrix, 2.0 * k / unit**2)
        matrix[:, k] = 2.0 * k
        return matrix.ravel(), {}


def _smoothed(state: State, scores: AnyArray) -> AnyArray:
    return smooth(scores, state["inverse"], state["smoothing"])


def _scale(inverse: float, total: float) -> State:
    with np.errstate(divide="ignore"):
        temperature = 1 / np.asarray(inverse)
    smoothing = np.asarray(1 / (total + 1))
    return {"inverse": np.asarray(inverse), "smoothing": smoothing, "temperature": temperature}


def _smooth_rows(scale: State, rows: Rows) -> Rows:
    return rows._replace(scores=_smoothed(scale, rows.scores))
