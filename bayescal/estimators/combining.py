"""Calibrators made of others: one after the other, averaged, or one for each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bayescal._core.checks import as_numpy, check_weights

__all__ = ["Average", "Composition", "MultiLabel", "compose"]


class _Several(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Calibrators with the same task."""

    calibrators: Any
    classes: Any
    calibrators_: list[Any]

    @property
    def inputs(self) -> str:
        """What the scores are: what the first calibrator says."""
        return self._parts()[0].inputs

    def _parts(self) -> list[Any]:
        parts = self.calibrators
        if isinstance(parts, str) or not isinstance(parts, Sequence) or not len(parts):
            raise TypeError(f"calibrators must be a list of calibrators, got {parts!r}")
        for part in parts:
            if isinstance(part, type) or not hasattr(part, "inputs") or not hasattr(part, "fit"):
                raise TypeError(f"calibrators must be calibrators, as Temperature(), got {part!r}")
        return list(parts)

    def _clone(self, part: Any) -> Any:
        own: Any = clone(part)
        if self.classes is not None and own.classes is None:
            own.set_params(classes=self.classes)
        return own

    def predict(self, scores: Any) -> np.ndarray:
        """Return the most probable class (m,) for each row."""
        probs = self.predict_proba(scores)  # type: ignore[attr-defined]
        return self.classes_[np.argmax(probs, axis=1)]

    def _settle(self) -> None:
        first = self.calibrators_[0]
        self.classes_ = first.classes_
        statuses = [part.status_ for part in self.calibrators_]
        self.status_ = next((s for s in statuses if s != "converged"), "converged")
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")


class Composition(_Several):
    """One calibrator after the other: each is fitted to the probabilities of the one before.

    Parameters
    ----------
    calibrators : list of calibrators
        All but the first take probabilities.
    classes : sequence of k labels, optional
        Given to all.

    Attributes
    ----------
    calibrators_ : list of fitted calibrators
    classes_ : array of shape (k,)
    status_ : str
        "converged", or what the first fit says that is not.

    See Also
    --------
    compose : a shorter way to write it.

    Examples
    --------
    >>> import bayescal as bc
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]] * 4
    >>> y = [0, 1, 2, 0, 2, 2, 1, 1, 0, 0, 1, 2]
    >>> both = bc.Composition([bc.Temperature(), bc.KNN(6)]).fit(p, y)
    >>> both.predict_proba(p).shape
    (12, 3)
    """

    def __init__(self, calibrators: Any, *, classes: Any = None) -> None:
        self.calibrators = calibrators
        self.classes = classes

    def fit(self, scores: Any, y: Any, sample_weight: Any = None) -> Composition:
        """Fit one after the other, to the same rows.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k)
            As the ``inputs`` of the first calibrator says.
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a later calibrator does not take probabilities.
        """
        parts = self._parts()
        for part in parts[1:]:
            if part.inputs != "probs":
                raise ValueError(
                    "calibrators must have inputs='probs' after the first, got "
                    f"{part.inputs!r} of {type(part).__name__}"
                )
        fitted = []
        for part in parts:
            fitted.append(self._clone(part).fit(scores, y, sample_weight))
            scores = fitted[-1].predict_proba(scores)
        self.calibrators_ = fitted
        self._settle()
        return self

    def predict_proba(self, scores: Any) -> np.ndarray:
        """Return the calibrated probabilities (m, k), columns in the order of ``classes_``."""
        check_is_fitted(self)
        for part in self.calibrators_:
            scores = part.predict_proba(scores)
        return scores


def compose(*calibrators: Any) -> Composition:
    """Return calibrators one after the other, as ``compose(Temperature(), KNN())``.

    Parameters
    ----------
    *calibrators : calibrators
        All but the first take probabilities.

    Returns
    -------
    Composition

    Examples
    --------
    >>> import bayescal as bc
    >>> p, y = [0.1, 0.3, 0.4, 0.6, 0.8, 0.9], [0, 1, 0, 1, 0, 1]
    >>> both = bc.compose(bc.Temperature(), bc.Histogram(2)).fit(p, y)
    >>> both.predict_proba([0.2, 0.7])[:, 1].round(2).tolist()
    [0.33, 0.67]
    """
    return Composition(list(calibrators))


class Average(_Several):
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

    def __init__(self, calibrators: Any, *, classes: Any = None) -> None:
        self.calibrators = calibrators
        self.classes = classes

    def fit(self, scores: Any, y: Any, sample_weight: Any = None) -> Average:
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
        self.calibrators_ = [self._clone(part).fit(scores, y, sample_weight) for part in parts]
        self._settle()
        return self

    def predict_proba(self, scores: Any) -> np.ndarray:
        """Return the mean probabilities (m, k), columns in the order of ``classes_``."""
        check_is_fitted(self)
        return np.mean([part.predict_proba(scores) for part in self.calibrators_], axis=0)


def _has_interval(self: Any) -> bool:
    return hasattr(self.calibrator, "predict_interval")


class MultiLabel(MetaEstimatorMixin, BaseEstimator):
    """A binary calibrator for each of several labels that do not exclude each other.

    Parameters
    ----------
    calibrator : calibrator
        Of binary scores, as ``Histogram(10)``; fitted anew for each label.

    Attributes
    ----------
    calibrators_ : list of fitted calibrators
        One for each label.
    label_names_ : array of shape (labels,), or None
        Column names of ``Y``, if it has some.
    status_ : str
        "converged", or what the first fit says that is not.

    Notes
    -----
    A label that is always absent, or always present, is calibrated as the calibrator treats data of
    one class.

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

    def __init__(self, calibrator: Any) -> None:
        self.calibrator = calibrator

    @property
    def inputs(self) -> str:
        """What the scores are: what the calibrator says."""
        return self.calibrator.inputs

    def fit(self, scores: Any, Y: Any, sample_weight: Any = None) -> MultiLabel:
        """Fit a calibrator for each label.

        Parameters
        ----------
        scores : array-like of shape (n, labels)
            A column for each label, as the ``inputs`` of the calibrator says.
        Y : array-like of shape (n, labels)
            One where the label is present, zero where it is not.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If shapes differ, or ``Y`` holds anything but zeros and ones.
        """
        rows = self._rows(scores)
        names = getattr(Y, "columns", None)
        present = np.asarray(as_numpy(Y, "Y") if hasattr(Y, "detach") else Y)
        if present.shape != rows.shape:
            raise ValueError(
                f"Y must have the shape of the scores, {rows.shape}, got {present.shape}"
            )
        strange = ~np.isin(present, (0, 1))
        if strange.any():
            raise ValueError(f"Y must hold zeros and ones, got {present[strange][0]}")
        weights = check_weights(sample_weight, len(rows))
        self.label_names_ = None if names is None else np.asarray(names, object)
        self.n_features_in_ = rows.shape[1]
        self.calibrators_ = []
        for label in range(rows.shape[1]):
            own: Any = clone(self.calibrator)
            own.set_params(classes=(0, 1))
            self.calibrators_.append(
                own.fit(rows[:, label], present[:, label].astype(int), weights)
            )
        statuses = [part.status_ for part in self.calibrators_]
        self.status_ = next((s for s in statuses if s != "converged"), "converged")
        return self

    def predict_proba(self, scores: Any) -> np.ndarray:
        """Return the calibrated probability (m, labels) that each label is present."""
        rows = self._fitted_rows(scores)
        parts = enumerate(self.calibrators_)
        return np.stack([part.predict_proba(rows[:, j])[:, 1] for j, part in parts], axis=1)

    def predict(self, scores: Any) -> np.ndarray:
        """Return one (m, labels) where a label is more probably present than not."""
        return (self.predict_proba(scores) > 0.5).astype(int)

    @available_if(_has_interval)
    def predict_interval(self, scores: Any, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper ends (m, labels) of credible intervals of the probabilities."""
        rows = self._fitted_rows(scores)
        parts = enumerate(self.calibrators_)
        ends = [part.predict_interval(rows[:, j], level) for j, part in parts]
        lower, upper = (np.stack(end, axis=1) for end in zip(*ends, strict=True))
        return lower, upper

    def _fitted_rows(self, scores: Any) -> np.ndarray:
        check_is_fitted(self)
        rows = self._rows(scores)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"scores must have {self.n_features_in_} columns as at the fit, got {rows.shape[1]}"
            )
        return rows

    @staticmethod
    def _rows(scores: Any) -> np.ndarray:
        rows = as_numpy(scores, "scores") if hasattr(scores, "detach") else np.asarray(scores)
        if rows.ndim != 2:
            raise ValueError(f"scores must have shape (n, labels), got {rows.shape}")
        return rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")
