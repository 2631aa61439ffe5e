"""Matrix scaling of logits, with off-diagonal and intercept penalties."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from bayescal._core.arrays import AnyArray, XArray, namespace
from bayescal.calibrators.base.calibrator import State
from bayescal.calibrators.multiclass.linear import LinearCalibrator
from bayescal.data.checks import check_strength
from bayescal.data.folds.deal import fold_scores
from bayescal.data.given import MEMORY
from bayescal.data.rows import Rows, Source
from bayescal.regression.softmax.fit import out_of_fold_losses

#: Candidate strengths of cross-validation, in descending order.
OFF_DIAGONALS = 10.0 ** np.arange(5, -2, -1)
INTERCEPTS = 10.0 ** np.arange(3, -4, -1)
_FOLDS = 5

#: Largest strength for which squares of gradients are finite.
_STRONGEST = 1e200


@dataclass(eq=False, repr=False)
class Matrix(LinearCalibrator):
    r"""Matrix scaling: multiply logits by a matrix and add intercepts, with penalties.

    .. math:: \hat p = \operatorname{softmax}(W z + b), \qquad
        \min \overline{CE} + \frac{\lambda}{k (k - 1)} \sum_{i \ne j} w_{ij}^2
        + \frac{\mu}{k} \sum_j b_j^2

    The mean cross-entropy is weighted. The fit is Newton's method with conjugate gradients: up to
    about 100 products with the Hessian, each of O(n k^2) time; memory is O(n k + k^2).

    Parameters
    ----------
    off_diagonal : float or "cv"
        Lambda. "cv" chooses the power of ten from 10**-1 to 10**5 with the smallest out-of-fold log
        loss, in 5 folds that are stratified by labels and made from the content of rows.
    intercept : float or "cv"
        Mu; "cv" chooses from 10**-3 to 10**3. If both are "cv", all pairs are tried.

    Attributes
    ----------
    coef_ : array of shape (k, k)
        W.
    intercept_ : array of shape (k,)
        b.
    gradient_norm_ : float
        Largest entry of the gradient of the mean loss.
    off_diagonal_, intercept_penalty_ : float
        Chosen strengths; only with "cv".
    cv_penalties_, cv_losses_ : arrays of shape (g, 2) and (g, folds)
        Pairs of strengths that were tried, and their out-of-fold log losses.

    References
    ----------
    C. Guo et al. (2017), On calibration of modern neural networks. M. Kull et al. (2019), Beyond
    temperature scaling (the penalties, ODIR).

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 0, 2, 1, 1, 1, 2, 0, 0]
    >>> calibrator = bc.Matrix(off_diagonal=1.0, intercept=1.0).fit(p, y)
    >>> calibrator.predict_proba(p[:1]).round(2).tolist()
    [[0.57, 0.27, 0.16]]
    """

    off_diagonal: float | Literal["cv"] = 0.0
    intercept: float | Literal["cv"] = 0.0

    gradient_norm_: float = field(init=False)
    off_diagonal_: float = field(init=False)
    intercept_penalty_: float = field(init=False)
    cv_penalties_: np.ndarray = field(init=False)
    cv_losses_: np.ndarray = field(init=False)

    _by_matrix = True

    def _check_options(self) -> None:
        for argument in ("off_diagonal", "intercept"):
            check_strength(getattr(self, argument), argument)

    def _check_learns_on(self) -> None:
        for argument in ("off_diagonal", "intercept"):
            if getattr(self, argument) == "cv":
                raise ValueError(
                    f"{argument} must be a number for partial_fit, got 'cv', which needs all rows "
                    "at once"
                )

    @property
    def sources(self) -> frozenset[str]:
        """Kinds of sources that ``fit`` accepts; cross-validation needs rows in memory."""
        return MEMORY if "cv" in (self.off_diagonal, self.intercept) else super().sources

    def _penalties(self, rows: Source, unit: float) -> tuple[np.ndarray, State]:
        total, k = rows.weight, rows.k
        if not isinstance(self.off_diagonal, str) and not isinstance(self.intercept, str):
            return _strengths(self.off_diagonal, self.intercept, k, total, unit), {}
        off_diagonals = OFF_DIAGONALS if self.off_diagonal == "cv" else [self.off_diagonal]
        intercepts = INTERCEPTS if self.intercept == "cv" else [self.intercept]
        # Alternate the direction, so that neighboring pairs differ in one strength only.
        pairs = [
            (float(a), float(b))
            for i, a in enumerate(off_diagonals)
            for b in (intercepts if i % 2 else intercepts[::-1])
        ]
        rows = rows.all()
        folds = fold_scores(*rows, _FOLDS)
        if folds.count == 1 or k == 1:
            losses = np.zeros((len(pairs), 1))
        else:
            design = self._design(Rows(*folds.take(rows.scores, rows.y)))
            part = total * (1 - 1 / folds.count)
            strengths = np.stack([_strengths(*pair, k, part, unit) for pair in pairs])
            losses = out_of_fold_losses(design, strengths, folds.fold, self._start(rows))
        mean = losses.mean(axis=1)
        best = pairs[int(np.argmin(mean))]
        order = sorted(range(len(pairs)), key=lambda i: pairs[i])
        chosen = {
            "off_diagonal": np.asarray(best[0]),
            "intercept_penalty": np.asarray(best[1]),
            "cv_penalties": np.array(pairs)[order],
            "cv_losses": losses[order],
        }
        return _strengths(*best, k, total, unit), chosen

    def _centered(self, coef: XArray, intercept: np.ndarray) -> tuple[AnyArray, AnyArray]:
        xp = namespace(coef)
        if self.off_diagonal == 0:
            coef = coef - xp.mean(coef, axis=-2, keepdims=True)
        if self.intercept == 0:
            intercept = intercept - xp.mean(intercept, axis=-1, keepdims=True)
        return coef, intercept


def _strengths(
    off_diagonal: float, intercept: float, k: int, total: float, unit: float
) -> np.ndarray:
    """Compute strengths (k * (k + 1),) of theta**2 / 2 for scores divided by ``unit``."""
    strength = 2 * float(total) * off_diagonal / max(1, k * (k - 1)) / float(unit) / float(unit)
    matrix = np.full((k, k + 1), min(strength, _STRONGEST))
    np.fill_diagonal(matrix, 0.0)
    matrix[:, k] = 2 * total * intercept / k
    return matrix.ravel()
