"""Base classes of calibrators that are made of other calibrators."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted

from bayescal._core.arrays import AnyArray, AnyModel, ArrayLike, UserData, XArray
from bayescal._core.numerics import ignoring_underflow
from bayescal.calibrators.base.estimator import Estimator
from bayescal.calibrators.base.function import PredictFunction, Tree
from bayescal.data.label_names import Classes

#: States of calibrators by position.
State: TypeAlias = Tree


@dataclass(kw_only=True, eq=False, repr=False)
class Combination(Estimator, MetaEstimatorMixin, BaseEstimator, ABC):
    """A calibrator made of other calibrators, which receive its data and options.

    Attributes
    ----------
    calibrators_ : list of fitted calibrators
    status_ : str
        "converged", or the status of the first fit that did not converge.
    """

    calibrators_: list[AnyModel] = field(init=False)
    status_: str = field(init=False)

    def _keep(self, fitted: list[AnyModel]) -> None:
        """Keep fitted calibrators, their status and the rows for a report."""
        self._forget_report()
        self.calibrators_ = fitted
        vars(self).pop("_kept_rows", None)
        if "_kept_rows" in vars(fitted[0]):
            # The input of the first calibrator is the input of the combination.
            self._kept_rows = fitted[0]._kept_rows
        statuses = [part.status_ for part in fitted]
        self.status_ = next((s for s in statuses if s != "converged"), "converged")

    def _title(self) -> str:
        inner = ", ".join(part._title() for part in self.calibrators_)
        return f"{type(self).__name__}({inner})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")

    @ignoring_underflow
    def as_function(self) -> PredictFunction:
        """Return the fitted map as a pure function of arrays of JAX, PyTorch, NumPy and others.

        Returns
        -------
        PredictFunction
            ``f(scores)`` equals ``predict_proba(scores)``, on the device of the scores.
        """
        check_is_fitted(self)
        return PredictFunction(*self._as_parts(), vars(self)["n_features_in_"])

    def _as_parts(self) -> tuple[AnyModel, State]:
        """Return the combination of unfitted calibrators, and their states by position."""
        parts = [part._as_parts() for part in self.calibrators_]
        unfitted: AnyModel = object.__new__(type(self))
        unfitted.calibrators_ = [calibrator for calibrator, _ in parts]
        return unfitted, {str(i): state for i, (_, state) in enumerate(parts)}

    def _with_states(self, state: State) -> list[tuple[AnyModel, State]]:
        """Return pairs of calibrators and their states."""
        return [(part, state[str(i)]) for i, part in enumerate(self.calibrators_)]

    @abstractmethod
    def _map(self, state: State, scores: XArray) -> AnyArray:
        """Compute probabilities at scores of any library in the user's units."""

    def _has_ends(self, state: State) -> bool:
        return False


@dataclass(eq=False, repr=False)
class Several(ClassifierMixin, Combination):
    """A list of calibrators with the same task."""

    calibrators: Sequence[AnyModel]
    classes: Classes = field(default=None, kw_only=True)

    classes_: np.ndarray = field(init=False)

    @property
    def inputs(self) -> str:
        """Kind of scores, as for the first calibrator."""
        return self._parts()[0].inputs

    @property
    def binary(self) -> bool:
        """Whether one of the calibrators is restricted to binary problems."""
        return any(getattr(part, "binary", False) for part in self._parts())

    def _parts(self) -> list[AnyModel]:
        parts = self.calibrators
        if isinstance(parts, str) or not isinstance(parts, Sequence) or not len(parts):
            raise TypeError(f"calibrators must be a list of calibrators, got {parts!r}")
        for part in parts:
            if isinstance(part, type) or not hasattr(part, "inputs") or not hasattr(part, "fit"):
                raise TypeError(f"calibrators must be calibrators, as Temperature(), got {part!r}")
            if part.inputs == "top_logits":
                raise ValueError(f"calibrators must take whole rows to be combined, got {part!r}")
        return list(parts)

    def _clone(self, part: object) -> AnyModel:
        copy: AnyModel = clone(part)
        options = (getattr(owner, "classes", None) for owner in (self, *self._parts()))
        classes = next((option for option in options if option is not None), None)
        if classes is not None and copy.classes is None:
            copy.set_params(classes=classes)
        return copy

    def _keep(self, fitted: list[AnyModel]) -> None:
        first, *others = (part.classes_.tolist() for part in fitted)
        for classes in others:
            if classes != first:
                raise ValueError(
                    f"calibrators must have the same classes in one order, got {first} and "
                    f"{classes}; pass classes= to {type(self).__name__} only"
                )
        super()._keep(fitted)
        keep_features(self, fitted[0])
        self.classes_ = fitted[0].classes_

    def fit(
        self, scores: UserData, y: UserData = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit all calibrators.

        Parameters
        ----------
        scores : array-like of shape (n,), (n, 1) or (n, k), or Blocks
            Scores of the kind that the ``inputs`` of the first calibrator names. Blocks contain
            their labels; all calibrators must accept them.
        y : array-like of shape (n,)
            Labels.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a calibrator does not accept its input.
        """
        self._keep(self._fit_parts(self._parts(), scores, y, sample_weight))
        return self

    @abstractmethod
    def _fit_parts(
        self, parts: list[AnyModel], scores: UserData, y: UserData, weights: ArrayLike | None
    ) -> list[AnyModel]:
        """Fit clones of the calibrators."""

    @abstractmethod
    def predict_proba(self, scores: ArrayLike) -> np.ndarray:
        """Compute calibrated probabilities (m, k), with columns in the order of ``classes_``."""

    def predict(self, scores: ArrayLike) -> np.ndarray:
        """Return the most probable class (m,) for each row."""
        return self.classes_[np.argmax(self.predict_proba(scores), axis=1)]


def has_intervals(calibrator: object) -> bool:
    """Return whether a calibrator has credible intervals of any level."""
    method = getattr(calibrator, "predict_interval", None)
    return method is not None and "level" in inspect.signature(method).parameters


def keep_features(owner: object, first: object) -> None:
    """Copy scikit-learn's attributes of the columns from the first calibrator."""
    for name in ("n_features_in_", "feature_names_in_"):
        vars(owner).pop(name, None)  # from an earlier fit
        if hasattr(first, name):
            setattr(owner, name, getattr(first, name))
