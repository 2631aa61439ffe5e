"""Calibration of multi-label problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, XArray, namespace
from bayescal._core.keywords import other_words
from bayescal.calibrators.base.dispatch import dispatched
from bayescal.calibrators.combine.base import Combination, State, has_intervals
from bayescal.data.kept_rows import keep_rows
from bayescal.data.labels import read_many, score_rows
from bayescal.data.weights import check_weights


@dataclass(eq=False, repr=False)
class MultiLabel(Combination):
    """A binary calibrator for each label of a multi-label problem.

    Parameters
    ----------
    calibrator : calibrator
        Calibrator of binary scores, such as ``Histogram(10)``; a clone is fitted to each label.

    Attributes
    ----------
    calibrators_ : list of fitted calibrators
        The calibrators of the labels.
    label_names_ : array of shape (labels,), or None
        Column names of ``y``, if it has any, or else of the scores, if they are text.
    status_ : str
        "converged", or the status of the first fit that did not converge.

    Notes
    -----
    A label that is always absent or always present is calibrated like binary data of one class.

    References
    ----------
    C. Guo et al. (2017) and B. Zadrozny, C. Elkan (2001) for histogram binning of one label.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.9, 0.2], [0.8, 0.7], [0.2, 0.6], [0.1, 0.1]]
    >>> labels = [[1, 0], [0, 1], [0, 0], [0, 0]]
    >>> bc.MultiLabel(bc.Histogram(2)).fit(p, labels).predict_proba(p[:1]).tolist()
    [[0.5, 0.0]]
    """

    calibrator: AnyModel

    label_names_: np.ndarray | None = field(init=False)

    @property
    def inputs(self) -> str:
        """Kind of scores, as for the calibrator."""
        return self.calibrator.inputs

    @other_words
    def fit(self, scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a calibrator for each label.

        Parameters
        ----------
        scores : array-like of shape (n, labels)
            A column for each label, of the kind that the ``inputs`` of the calibrator names. If
            scores and labels are data frames with equal column names, columns are matched by name.
            Or a list of arrays (n, 2), as returned by scikit-learn's ``predict_proba`` for several
            labels.
        y : array-like or sparse matrix of shape (n, labels)
            One if the label is present, zero otherwise, of any type.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If shapes differ, or ``y`` contains values other than zero and one.
        """
        rows, present, names = read_many(scores, y, sample_weight)
        weights = check_weights(sample_weight, len(rows))
        self.label_names_ = None if names is None else np.asarray(names, object)
        self.n_features_in_ = rows.shape[1]
        labels = present.T
        parts: list[AnyModel] = [clone(self.calibrator) for _ in labels]
        for part in parts:
            part.set_params(classes=(0, 1))
        columns = zip(parts, rows.T, labels, strict=True)
        self._keep([part.fit(column, label, weights) for part, column, label in columns])
        used = weights > 0
        self._kept_rows = keep_rows(rows[used], labels.T[used], weights[used])
        return self

    def predict_proba(self, scores: ArrayLike) -> np.ndarray:
        """Compute the calibrated probabilities (m, labels) that labels are present."""
        rows = self._fitted_rows(scores)
        parts = enumerate(self.calibrators_)
        return np.stack([part.predict_proba(rows[:, j])[:, 1] for j, part in parts], axis=1)

    def predict(self, scores: ArrayLike) -> np.ndarray:
        """Return one (m, labels) if a label has a probability above one half, otherwise zero."""
        return (self.predict_proba(scores) > 0.5).astype(int)

    @available_if(lambda self: has_intervals(self.calibrator))
    @dispatched
    def predict_interval(
        self, scores: ArrayLike, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute lower and upper ends (m, labels) of credible intervals of the probabilities."""
        rows = self._fitted_rows(scores)
        parts = enumerate(self.calibrators_)
        ends = [part.predict_interval(rows[:, j], level) for j, part in parts]
        lower, upper = (np.stack(end, axis=1) for end in zip(*ends, strict=True))
        return lower, upper

    def _title(self) -> str:
        return f"{type(self).__name__}({self.calibrators_[0]._title()})"

    def _member_weights(self) -> dict[str, float]:
        by_label = [part._member_weights() for part in self.calibrators_]
        return {name: float(np.mean([w[name] for w in by_label])) for name in by_label[0]}

    def _map(self, state: State, scores: XArray) -> AnyArray:
        parts = enumerate(self._with_states(state))
        columns = [part._map(s, _label(scores, j))[:, 1] for j, (part, s) in parts]
        return namespace(scores).stack(columns, axis=1)

    def _has_ends(self, state: State) -> bool:
        return all(part._has_ends(s) for part, s in self._with_states(state))

    def _map_ends(self, state: State, scores: XArray, level: float) -> XArray:
        parts = enumerate(self._with_states(state))
        ends = [part._map_ends(s, _label(scores, j), level) for j, (part, s) in parts]
        return namespace(scores).stack(ends, axis=2)

    def _fitted_rows(self, scores: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        rows = score_rows(scores, self.label_names_)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"scores must have {self.n_features_in_} columns as in the fit, got {rows.shape[1]}"
            )
        return rows


def _label(scores: XArray, number: int) -> XArray:
    """Return the scores (m,) of a label; those of a single label may have no columns."""
    return scores[:, number] if scores.ndim == 2 else scores
