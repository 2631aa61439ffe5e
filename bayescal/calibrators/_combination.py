"""What estimators made of several calibrators share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone

from bayescal.calibrators._base import Calibrator


@dataclass(eq=False, repr=False)
class Combination(ClassifierMixin, MetaEstimatorMixin, BaseEstimator, ABC):
    """Calibrators with the same task."""

    calibrators: Sequence[Any]
    classes: Sequence[Any] | np.ndarray | None = field(default=None, kw_only=True)

    calibrators_: list[Any] = field(init=False)
    classes_: np.ndarray = field(init=False)
    status_: str = field(init=False)

    @abstractmethod
    def predict_proba(self, scores: Any) -> np.ndarray:
        """Return the calibrated probabilities (m, k), columns in the order of ``classes_``."""

    @property
    def inputs(self) -> str:
        """What the scores are: what the first calibrator says."""
        return self._parts()[0].inputs

    def predict(self, scores: Any) -> np.ndarray:
        """Return the most probable class (m,) for each row."""
        return self.classes_[np.argmax(self.predict_proba(scores), axis=1)]

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

    def _keep(self, fitted: list[Any]) -> None:
        """Keep fitted calibrators, and what users ask of all of them."""
        self.calibrators_, self.classes_ = fitted, fitted[0].classes_
        self.status_ = worst_status(fitted)
        copy_features(fitted[0], self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")


def worst_status(fitted: Sequence[Calibrator]) -> str:
    """Return "converged", or what the first fit says that is not."""
    return next((part.status_ for part in fitted if part.status_ != "converged"), "converged")


def copy_features(source: Any, target: Any) -> None:
    """Give an estimator the number and the names of the features of another."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))
