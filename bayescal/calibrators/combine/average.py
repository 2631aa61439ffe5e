"""The mean of several calibrators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, XArray
from bayescal.calibrators.combine.base import Several, State


@dataclass(eq=False, repr=False)
class Average(Several):
    """The mean of the probabilities of several calibrators that are fitted to the same rows.

    Parameters
    ----------
    calibrators : list of calibrators
        Calibrators with equal ``inputs``.
    classes : sequence of k labels, optional
        Option of all calibrators.

    Attributes
    ----------
    calibrators_ : list of fitted calibrators
    classes_ : array of shape (k,)
    status_ : str
        "converged", or the status of the first fit that did not converge.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> mean = bc.Average([bc.Temperature(), bc.StructuredMatrix()]).fit(p, y)
    >>> mean.predict_proba(p[:1]).round(2).tolist()
    [[0.7, 0.2, 0.11]]
    """

    def _fit_parts(
        self, parts: list[AnyModel], scores: ArrayLike, y: ArrayLike, weights: ArrayLike | None
    ) -> list[AnyModel]:
        kinds = sorted({part.inputs for part in parts})
        if len(kinds) > 1:
            raise ValueError(f"calibrators must have the same inputs, got {', '.join(kinds)}")
        return [self._clone(part).fit(scores, y, weights) for part in parts]

    def predict_proba(self, scores: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        return np.mean([part.predict_proba(scores) for part in self.calibrators_], axis=0)

    def _map(self, state: State, scores: XArray) -> AnyArray:
        parts = [part._map(its_state, scores) for part, its_state in self._with_states(state)]
        return sum(parts) / len(parts)
