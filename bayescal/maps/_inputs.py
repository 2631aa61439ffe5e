"""What users give as scores, made into what a map works on."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from bayescal._core.checks import check_finite
from bayescal._core.numerics import sigmoid
from bayescal.maps._map import Domain

Inputs = Literal["probs", "logits", "scores"]
INPUTS = ("probs", "logits", "scores")
_SUM_TOLERANCE = 1e-3
#: More than this a probability of zero never stands for.
_MOST = 0.01


def convert(
    scores: Any, inputs: Inputs, domain: Domain, least: np.ndarray | None = None
) -> np.ndarray:
    """Return (n,) float64 scores of class 1 in the domain of a map.

    Parameters
    ----------
    scores : array of shape (n,), (n, 1) or (n, 2)
        Two columns are those of the classes 0 and 1.
    inputs : {"probs", "logits", "scores"}
        Probabilities; log odds, or two logits whose difference they are; or any real numbers.
    domain : str
        See ``bayescal.maps._map.Domain``.
    least : array of shape (2,), optional
        What probabilities of the classes 0 and 1 are raised to before logarithms are taken, from
        :func:`least_probabilities`; by default the precision of their type.

    Notes
    -----
    Of two columns each gives its own logarithm.
    """
    if inputs == "scores" and domain in ("probability", "log_odds"):
        kind = "probabilities" if domain == "probability" else "probabilities or log odds"
        raise ValueError(
            f"inputs must be 'probs' or 'logits' for a map of {kind}, got 'scores'; "
            "use Logistic or Isotonic for raw scores"
        )
    check_finite(scores, "scores")
    pair = scores.ndim == 2 and scores.shape[1] == 2
    if scores.ndim == 2 and not pair and scores.shape[1] != 1:
        raise ValueError(
            f"scores must have shape (n,), (n, 1) or (n, 2) for two classes, got {scores.shape}"
        )
    if inputs == "scores":
        if pair:
            raise ValueError(
                "scores must have shape (n,) or (n, 1) for inputs='scores', got two "
                "columns; give the score of the second class"
            )
        return _column(scores)
    if inputs == "logits":
        z = _difference(scores) if pair else _column(scores)
        return sigmoid(z) if domain == "probability" else z
    _check_probabilities(scores, pair)
    if domain in ("probability", "any"):
        return scores[:, 1].astype(float) if pair else _column(scores)
    if least is None:
        least = np.full(2, _precision(scores))
    if pair:
        both = np.log(np.clip(scores.astype(float), least, 1 - least[::-1]))
        return both[:, 1] - both[:, 0]
    p = np.clip(_column(scores), least[1], 1 - least[0])
    # One minus the least may be one.
    return np.log(p) - np.log(np.maximum(1 - p, least[0]))


def least_probabilities(scores: Any) -> np.ndarray:
    """Return what probabilities (n,), (n, 1) or (n, 2) of 0 and 1 stand for, at least: (2,).

    Log odds of 0 and 1 are infinite. Where a class has probabilities of exactly zero, as counts of
    trees or neighbours do, they stand for half the least positive one, at most 0.01. Elsewhere the
    least is the precision of their type: 2e-16 in float64, 1e-7 in float32.
    """
    eps = _precision(scores)
    pair = scores.ndim == 2 and scores.shape[1] == 2
    one = scores[:, 1].astype(float) if pair else _column(scores)
    zero = scores[:, 0].astype(float) if pair else 1 - one
    least = np.full(2, eps)
    for label, p in enumerate((zero, one)):
        positive = p[p > 0]
        if len(positive) < len(p):
            half = positive.min() / 2 if len(positive) else _MOST
            least[label] = min(max(half, eps), _MOST)
    return least


def _precision(scores: Any) -> float:
    return float(np.finfo(scores.dtype if scores.dtype.kind == "f" else float).eps)


def _difference(logits: np.ndarray) -> np.ndarray:
    halves = logits.astype(float) / 2
    most = np.finfo(float).max / 2
    return 2 * np.clip(halves[:, 1] - halves[:, 0], -most, most)


def _column(scores: np.ndarray) -> np.ndarray:
    return scores.astype(float).reshape(len(scores))


def _check_probabilities(scores: np.ndarray, pair: bool) -> None:
    low, high = scores.min(), scores.max()
    if low < 0 or high > 1:
        worst = low if low < 0 else high
        raise ValueError(
            f"scores must lie in [0, 1] for inputs='probs', got {worst:g}; "
            "say inputs='logits' for log odds or inputs='scores' for other numbers"
        )
    if pair:
        away = np.abs(scores.astype(float).sum(axis=1) - 1)
        if away.max() > _SUM_TOLERANCE:
            row = int(np.argmax(away))
            raise ValueError(
                f"scores must have rows that sum to one for inputs='probs', got "
                f"{scores[row].tolist()} in row {row}"
            )
