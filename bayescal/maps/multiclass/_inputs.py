"""What users give as scores of several classes, made into what a map works on."""

from __future__ import annotations

from typing import Literal

import numpy as np

from bayescal._core.checks import check_finite
from bayescal._core.numerics import log_softmax, softmax
from bayescal.maps.multiclass._map import Domain

Inputs = Literal["probs", "logits"]
_SUM_TOLERANCE = 1e-3
#: More than this a probability of zero never stands for.
_MOST = 0.01
#: And not less than this: the smallest normal number.
_LEAST = float(np.finfo(float).tiny)


def convert(
    scores: np.ndarray, inputs: Inputs, domain: Domain, least: np.ndarray | None = None
) -> np.ndarray:
    """Return scores (n, k) in the domain of a map, float32 or float64.

    Parameters
    ----------
    scores : array of shape (n,), (n, 1) or (n, k)
        One column is that of the second of two classes.
    inputs : {"probs", "logits"}
        Probabilities, or log odds (one column) or logits (several).
    domain : str
        See ``bayescal.maps.multiclass._map.Domain``.
    least : array of shape (k,), optional
        What probabilities are raised to before logarithms are taken; by default 2e-308.
    """
    if inputs == "scores":
        raise ValueError(
            "inputs must be 'probs' or 'logits' for several classes, got 'scores'; give "
            "decision values as logits"
        )
    check_finite(scores, "scores")
    both = _two_columns(scores, inputs)
    if inputs == "logits":
        kind = both.dtype if both.dtype in (np.float32, np.float64) else np.dtype(float)
        logits = np.ascontiguousarray(both, kind)
        if domain == "logits":
            return logits
        with np.errstate(over="ignore"):
            halves = np.clip(logits.astype(float), -1e300, 1e300)
        return log_softmax(halves) if domain == "log_probability" else softmax(halves)
    _check_probabilities(both)
    probs = np.ascontiguousarray(both, float)
    if domain == "probability":
        return probs / probs.sum(axis=1, keepdims=True)
    floor = _LEAST if least is None else least
    logs = np.log(np.maximum(probs, floor))
    return log_softmax(logs) if domain == "log_probability" else logs


def least_probabilities(scores: np.ndarray) -> np.ndarray:
    """Return what probabilities of zero stand for (k,), where scores have one.

    Where a class has probabilities of exactly zero, as counts of trees or neighbours do, they stand
    for half its least positive one, at most 0.01. Elsewhere nothing is raised.
    """
    both = _two_columns(scores, "probs").astype(float)
    zero = both <= 0
    positive = np.where(zero, np.inf, both).min(axis=0)
    floor = np.minimum(np.where(np.isfinite(positive), positive / 2, _MOST), _MOST)
    return np.where(zero.any(axis=0), np.maximum(floor, _LEAST), _LEAST)


def _two_columns(scores: np.ndarray, inputs: Inputs) -> np.ndarray:
    if scores.ndim == 2 and scores.shape[1] > 1:
        return scores
    own = scores.reshape(len(scores))
    if inputs == "logits":
        half = own.astype(float) / 2
        return np.stack([-half, half], axis=1)
    return np.stack([1 - own.astype(float), own], axis=1)


def _check_probabilities(scores: np.ndarray) -> None:
    low, high = scores.min(), scores.max()
    if low < 0 or high > 1:
        worst = low if low < 0 else high
        raise ValueError(
            f"scores must lie in [0, 1] for inputs='probs', got {worst:g}; "
            "say inputs='logits' for logits"
        )
    away = np.abs(scores.sum(axis=1, dtype=float) - 1)
    if away.max() > _SUM_TOLERANCE:
        row = int(np.argmax(away))
        shown = np.array2string(scores[row], precision=4, threshold=8)
        raise ValueError(
            f"scores must have rows that sum to one for inputs='probs', got {shown} in row {row}; "
            "say inputs='logits' for logits, or use MultiLabel for labels that do not exclude "
            "each other"
        )
