"""Fitted classifiers with the calibrators of their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from bayescal._core.arrays import to_host
from bayescal._core.numerics import FLOOR
from bayescal.calibrators.base.dispatch import location_of
from bayescal.data.checks import check_unmasked

__all__ = ["CalibratedPair", "check_meaning", "find_response", "score"]

_PAIRS = "of pairs of classes; pass decision_function_shape='ovr' to the classifier"
#: Rows whose predictions are compared with their scores.
_LOOKED_AT = 256


@dataclass(frozen=True, eq=False)
class CalibratedPair:
    """A fitted classifier and the fitted calibrator of its scores: one of an ensemble.

    Attributes
    ----------
    estimator : fitted classifier
    calibrator : fitted calibrator
    classes : array of shape (k,), or a list of these of several labels
    """

    estimator: Any
    calibrator: Any
    classes: Any

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
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        raise ValueError(
            "estimator must have predict_proba or decision_function, got "
            f"{type(estimator).__name__}, which gives classes alone; take a classifier with "
            "scores, as VotingClassifier(..., voting='soft') or SVC(probability=True)"
        )
    if not hasattr(estimator, response):
        other = "inputs='scores' or 'logits'" if inputs == "probs" else "inputs='probs'"
        raise ValueError(
            f"estimator must have {response} for a calibrator with inputs={inputs!r}, got "
            f"{type(estimator).__name__}; say {other} in the calibrator"
        )
    return response


def score(estimator: Any, calibrator: Any, classes: Any, X: Any) -> Any:
    """Return the scores (m, 1) or (m, k) of a classifier that a calibrator takes.

    A class that the classifier has not seen gets no probability. Of several labels, whose classes
    are in a list, the scores are those of each label (m, labels).
    """
    check_unmasked(X, "X")
    response = find_response(calibrator, estimator)
    scores = getattr(estimator, response)(X)
    if isinstance(classes, list):
        return _of_labels(scores, estimator, len(classes), response)
    scores = scores if location_of(scores) else np.asarray(scores)
    known = to_host(getattr(estimator, "classes_", classes))
    columns = scores.shape[1] if scores.ndim == 2 else 2
    pairs = response == "decision_function" and len(known) > 2 and _counts_pairs(estimator)
    if pairs or (columns != len(known) and columns == len(known) * (len(known) - 1) // 2 > 1):
        raise ValueError(
            f"estimator must give a score for each of {len(known)} classes, got {columns} columns "
            + _PAIRS
        )
    _check_shape(tuple(scores.shape), response, _num_samples(X), len(known))
    if len(known) < len(classes):
        scores = _widened(np.asarray(scores), known, classes, response)
    if scores.ndim == 1:
        return scores[:, None]
    both = scores.shape[1] > 2 or getattr(calibrator, "inputs", "probs") == "probs"
    return scores if both else scores[:, 1:]


def _of_labels(scores: Any, estimator: Any, count: int, response: str) -> np.ndarray:
    """Return scores (m, labels), also of a list of probabilities (m, 2); (m, 1) of one class."""
    if isinstance(scores, list):
        known = getattr(estimator, "classes_", [[1]] * len(scores))
        parts = [to_host(own) for own in scores]
        scores = np.stack(
            [
                own[:, 1] if own.shape[1] == 2 else np.full(len(own), float(seen[0] == 1))
                for own, seen in zip(parts, known, strict=True)
            ],
            axis=1,
        )
    scores = np.asarray(to_host(scores))
    if scores.ndim != 2 or scores.shape[1] != count:
        raise ValueError(
            f"estimator must give a score for each of {count} labels, got shape {scores.shape} of "
            f"{response}; scikit-learn's MultiOutputClassifier(classifier) fits one to each label"
        )
    return scores


def check_meaning(estimator: Any, calibrator: Any, classes: Any, scores: Any, X: Any) -> None:
    """Raise if three decision values (m, 3) are those of pairs of classes.

    Only three classes have as many pairs. Those of pairs agree with what is predicted as votes.
    """
    if isinstance(classes, list) or scores.shape[1:] != (3,):
        return
    if find_response(calibrator, estimator) == "predict_proba":
        return
    rows = np.arange(min(_LOOKED_AT, len(scores)))
    predicted = to_host(estimator.predict(_safe_indexing(X, rows)))
    places = np.searchsorted(to_host(estimator.classes_), predicted)
    own = to_host(scores)[rows]
    votes = [_votes(sign * own) for sign in (1, -1)]
    direct = (own.argmax(axis=1) == places).mean()
    if max((vote[rows, places] == 2).mean() for vote in votes) > max(direct, 0.5):
        raise ValueError(
            f"estimator must give a score for each of 3 classes, got 3 columns {_PAIRS}"
        )


def _votes(scores: np.ndarray) -> np.ndarray:
    """Return the votes (m, 3) for classes of the decisions of three pairs."""
    first = scores > 0
    pairs = [first[:, 0], first[:, 1]], [~first[:, 0], first[:, 2]], [~first[:, 1], ~first[:, 2]]
    return np.stack([np.sum(pair, axis=0) for pair in pairs], axis=1)


def _counts_pairs(estimator: Any) -> bool:
    """Return whether a classifier says that its decision function is of pairs."""
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return getattr(estimator, "decision_function_shape", None) == "ovo"


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
