"""Fitted classifiers with fitted calibrators of their scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from bayescal._core.arrays import AnyArray, AnyModel, UserData, XArray, to_host
from bayescal._core.numerics import FLOOR
from bayescal.calibrators.base.dispatch import location_of
from bayescal.data.checks import as_numpy, check_unmasked

_PAIRS = "of pairs of classes; pass decision_function_shape='ovr' to the classifier"
#: Number of rows whose predictions are compared with their scores.
_CHECKED_ROWS = 256


@dataclass(frozen=True, eq=False)
class CalibratedPair:
    """A fitted classifier and the fitted calibrator of its scores, a member of an ensemble.

    Attributes
    ----------
    estimator : fitted classifier
    calibrator : fitted calibrator
    classes : array of shape (k,), or a list of arrays for multi-label problems
    """

    estimator: AnyModel
    calibrator: AnyModel
    classes: np.ndarray | list[np.ndarray]

    @property
    def calibrators(self) -> list[object]:
        """The calibrator in a list; scikit-learn has a list with one for each class."""
        return [self.calibrator]

    def predict_proba(self, X: UserData) -> AnyArray:
        """Compute calibrated probabilities (m, k)."""
        return self.calibrator.predict_proba(self.score(X))

    def score(self, X: UserData) -> AnyArray:
        """Compute the classifier's scores (m, 1) or (m, k) for the calibrator."""
        return score(self.estimator, self.calibrator, self.classes, X)


def find_response(calibrator: object, estimator: object) -> str:
    """Return the name of the method whose scores a calibrator takes."""
    inputs = getattr(calibrator, "inputs", None)
    if inputs is None:
        has_decision = hasattr(estimator, "decision_function")
        return "decision_function" if has_decision else "predict_proba"
    response = "predict_proba" if inputs == "probs" else "decision_function"
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
        raise ValueError(
            "estimator must have predict_proba or decision_function, got "
            f"{type(estimator).__name__}, which predicts classes only; use a classifier with "
            "scores, such as VotingClassifier(..., voting='soft') or SVC(probability=True)"
        )
    if not hasattr(estimator, response):
        other = "inputs='scores' or 'logits'" if inputs == "probs" else "inputs='probs'"
        raise ValueError(
            f"estimator must have {response} for a calibrator with inputs={inputs!r}, got "
            f"{type(estimator).__name__}; pass {other} to the calibrator"
        )
    return response


def score(
    estimator: object, calibrator: object, classes: np.ndarray | list[np.ndarray], X: object
) -> XArray:
    """Compute the scores (m, 1) or (m, k) of a classifier for a calibrator.

    Classes that the classifier does not know get no probability. For multi-label problems, whose
    ``classes`` are a list, scores are (m, labels).
    """
    check_unmasked(X, "X")
    response = find_response(calibrator, estimator)
    scores = getattr(estimator, response)(X)
    if isinstance(classes, list):
        return _of_labels(scores, estimator, len(classes), response)
    scores = scores if location_of(scores) else as_numpy(scores, response)
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


def _of_labels(scores: UserData, estimator: object, count: int, response: str) -> np.ndarray:
    """Return scores (m, labels), also from a list of probabilities (m, 2) or (m, 1)."""
    if isinstance(scores, list):
        known = getattr(estimator, "classes_", [[1]] * len(scores))
        parts = [as_numpy(part, response) for part in scores]
        scores = np.stack(
            [
                part[:, 1] if part.shape[1] == 2 else np.full(len(part), float(labels[0] == 1))
                for part, labels in zip(parts, known, strict=True)
            ],
            axis=1,
        )
    scores = as_numpy(scores, response)
    if scores.ndim != 2 or scores.shape[1] != count:
        raise ValueError(
            f"estimator must give a score for each of {count} labels, got shape {scores.shape} of "
            f"{response}; scikit-learn's MultiOutputClassifier(classifier) fits one to each label"
        )
    return scores


def check_meaning(
    estimator: AnyModel,
    calibrator: object,
    classes: np.ndarray | list[np.ndarray],
    scores: XArray,
    X: object,
) -> None:
    """Raise if three decision values (m, 3) belong to pairs of classes.

    Only three classes have as many pairs as classes. Decisions of pairs agree with the predictions
    if they are counted as votes.
    """
    if isinstance(classes, list) or scores.shape[1:] != (3,):
        return
    if find_response(calibrator, estimator) == "predict_proba":
        return
    rows = np.arange(min(_CHECKED_ROWS, len(scores)))
    predicted = to_host(estimator.predict(_safe_indexing(X, rows)))
    labels = np.searchsorted(to_host(classes), predicted)
    checked = to_host(scores)[rows]
    votes = [_votes(sign * checked) for sign in (1, -1)]
    direct = (checked.argmax(axis=1) == labels).mean()
    if max((vote[rows, labels] == 2).mean() for vote in votes) > max(direct, 0.5):
        raise ValueError(
            f"estimator must give a score for each of 3 classes, got 3 columns {_PAIRS}"
        )


def _votes(scores: np.ndarray) -> np.ndarray:
    """Count the votes (m, 3) for classes in the decisions of three pairs."""
    first = scores > 0
    pairs = [first[:, 0], first[:, 1]], [~first[:, 0], first[:, 2]], [~first[:, 1], ~first[:, 2]]
    return np.stack([np.sum(pair, axis=0) for pair in pairs], axis=1)


def _counts_pairs(estimator: AnyModel) -> bool:
    """Return whether the decision function of a classifier is declared to be of pairs."""
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
    """Raise unless the scores of a classifier are (n, k), or (n,) for decision values."""
    expected = f"({n}, {k})"
    if response == "predict_proba":
        valid = shape == (n, k)
    else:
        expected, valid = f"({n},) or {expected}", len(shape) in (1, 2) and shape[0] == n
    if not valid:
        raise ValueError(
            f"estimator must return an array of shape {expected} from {response}, got {shape}"
        )


def _widened(
    scores: np.ndarray, known: np.ndarray, classes: np.ndarray, response: str
) -> np.ndarray:
    """Expand the scores of known classes to scores (m, k) of all classes."""
    if scores.ndim == 1:
        scores = np.stack([-scores / 2, scores / 2], axis=1)
    columns = np.flatnonzero(np.isin(classes, known))
    expanded = np.zeros((len(scores), len(classes)))
    if response == "decision_function":
        expanded += scores.min(axis=1, keepdims=True) + np.log(FLOOR)
    expanded[:, columns] = scores
    return expanded
