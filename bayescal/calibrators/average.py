"""The mean of several calibrators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import ArrayLike
from bayescal.calibrators._combination import Several

__all__ = ["Average"]


@dataclass(eq=False, repr=False)
class Average(Several):
    """The mean of the probabilities of several calibrators, fitted to the same rows.

    Parameters
    ----------
    calibrators : list of calibrators
        With the same ``inputs``.
    classes : sequence of k labels, optional
        Given to all.

    Attributes
    ----------
    calibrators_ : list of fitted calibrators
    classes_ : array of shape (k,)
    status_ : str
        "converged", or what the first fit says that is not.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> mean = bc.Average([bc.Temperature(), bc.StructuredMatrix()]).fit(p, y)
    >>> mean.predict_proba(p).shape
    (12, 3)
    """

    def fit(self, scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit all to the same rows.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the calibrators differ in their ``inputs``.
        """
        parts = self._parts()
        kinds = sorted({part.inputs for part in parts})
        if len(kinds) > 1:
            raise ValueError(f"calibrators must have the same inputs, got {', '.join(kinds)}")
        self._keep([self._clone(part).fit(scores, y, sample_weight) for part in parts])
        return self

    def predict_proba(self, scores: ArrayLike) -> np.ndarray:
        """Return the mean probabilities (m, k), columns in the order of ``classes_``."""
        check_is_fitted(self)
        return np.mean([part.predict_proba(scores) for part in self.calibrators_], axis=0)
