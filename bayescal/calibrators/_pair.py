"""Fitted classifiers with the calibrators of their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples

from bayescal._core.checks import check_unmasked
from bayescal._core.numerics import FLOOR
from bayescal.calibrators._dispatch import place_of, to_host

__all__ = ["CalibratedPair", "find_response", "score"]


@dataclass(frozen=True, eq=False)
class CalibratedPair:
    """A fitted classifier and the fitted calibrator of its scores: one of an ensemble.

    Attributes
    ----------
    estimator : fitted classifier
    calibrator : fitted calibrator
    classes : array of shape (k,)
    """

    estimator: Any
    calibrator: Any
    classes: np.ndarray

    @property
    def calibrators(self) -> list[Any]:
        """The calibrator in a list, where scikit-learn has one for each class."""
        return [self.calibrator]

    def predict_proba(self, X: Any) -> Any:
        """Return calibrated probabilities (m, k)."""
        return self.calibrator.predict_proba(self.score(X))

    def score(self, X: Any) -> Any:
        """Return the classifier's scores (m, 1) or (m, k) as the calibrator takes them."""
        return score(self.estimator, self.calibrator, self.classes, X)


def find_response(calibrator: Any, estimator: Any) -> str:
    """Return the method of a classifier that gives what a calibrator takes."""
    inputs = getattr(calibrator, "inputs", None)
    if inputs is None:
        has_decision = hasattr(estimator, "decision_function")
        return "decision_function" if has_decision else "predict_proba"
    response = "predict_proba" if inputs == "probs" else "decision_function"
    if not hasattr(estimator, response):
        other = "inputs='scores' or 'logits'" if inputs == "probs" else "inputs='probs'"
        raise ValueError(
            f"estimator must have {response} for a calibrator with inputs={inputs!r}, got "
            f"{type(estimator).__name__}; say {other} in the calibrator"
        )
    return response


def score(estimator: Any, calibrator: Any, classes: np.ndarray, X: Any) -> Any:
    """Return the scores (m, 1) or (m, k) of a classifier that a calibrator takes.

    A class that the classifier has not seen gets no probability.
    """
    check_unmasked(X, "X")
    response = find_response(calibrator, estimator)
    scores = getattr(estimator, response)(X)
    scores = scores if place_of(scores) else np.asarray(scores)
    known = to_host(getattr(estimator, "classes_", classes))
    _check_shape(tuple(scores.shape), response, _num_samples(X), len(known))
    if len(known) < len(classes):
        scores = _widened(np.asarray(scores), known, classes, response)
    if scores.ndim == 1:
        return scores[:, None]
    both = scores.shape[1] > 2 or getattr(calibrator, "inputs", "probs") == "probs"
    return scores if both else scores[:, 1:]


def _check_shape(shape: tuple[int, ...], response: str, n: int, k: int) -> None:
    """Raise unless a classifier has given scores (n, k), or (n,) for its decisions."""
    wanted = f"({n}, {k})"
    if response == "predict_proba":
        right = shape == (n, k)
    else:
        wanted, right = f"({n},) or {wanted}", len(shape) in (1, 2) and shape[0] == n
    if not right:
        raise ValueError(
            f"estimator must return an array of shape {wanted} from {response}, got {shape}"
        )


def _widened(
    scores: np.ndarray, known: np.ndarray, classes: np.ndarray, response: str
) -> np.ndarray:
    """Return scores (m, k) of all classes, from those of some."""
    if scores.ndim == 1:
        scores = np.stack([-scores / 2, scores / 2], axis=1)
    places = np.flatnonzero(np.isin(classes, known))
    found = np.zeros((len(scores), len(classes)))
    if response == "decision_function":
        found += scores.min(axis=1, keepdims=True) + np.log(FLOOR)
    found[:, places] = scores
    return found
