"""Structured matrix scaling: temperature first, then shrunk deviations from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.multiclass.linear import StructuredCalibrator
from bayescal.data.rows import Source


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
