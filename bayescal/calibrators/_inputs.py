"""What users give as scores, made into what a calibrator works on."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from bayescal._core.checks import (
    as_numpy,
    check_finite,
    check_row_sums,
    check_unmasked,
    precision,
)
from bayescal._core.numerics import log_odds, log_softmax, sigmoid, softmax

Inputs = Literal["probs", "logits", "scores"]
INPUTS = ("probs", "logits", "scores")
#: What a calibrator works on. Of two classes, arrays (n,): P(class 1); log odds; log odds or any
#: other real numbers whose size counts; any numbers of which only the order counts. Of two and
#: more, arrays (n, k): probabilities; their logarithms; logits as they are, of probabilities their
#: logarithms.
Domain = Literal[
    "probability", "log_odds", "real", "order", "probabilities", "log_probabilities", "logits"
]
_COLUMN = ("probability", "log_odds", "real", "order")
#: No probability counts as less: the least normal number of float32, of logarithm -87.3.
FLOOR = float(np.finfo(np.float32).tiny)
#: And one of zero never as more than this.
_MOST_OF_ZERO = 0.01


def widen(scores: Any, inputs: Inputs) -> Any:
    """Return tensors, and arrays of half precision or dates, as scikit-learn reads them, or raise.

    Sums of probabilities may differ from one by the precision of their type: rows are divided by
    them. Other scores come back as they are.
    """
    check_unmasked(scores, "scores")
    dtype = getattr(scores, "dtype", None)
    narrow = isinstance(dtype, np.dtype) and (dtype == np.float16 or dtype.kind in "VMm")
    if not narrow and not hasattr(scores, "detach"):
        return scores
    scores = as_numpy(scores, "scores")
    eps = precision(scores.dtype)
    if eps < np.finfo(np.float16).eps:
        return scores
    scores = scores.astype(float)
    if inputs == "probs" and scores.ndim == 2 and scores.shape[1] > 1:
        check_finite(scores, "scores")
        check_probabilities(scores, eps)
        scores /= scores.sum(axis=1, keepdims=True)
    return scores


def convert(
    scores: np.ndarray, inputs: Inputs, domain: Domain, least: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores in the domain of a calibrator, (n,) or (n, k), and the least probabilities.

    The scores (n,), (n, 1) or (n, k) are float32 or float64; one column is that of the second of
    two classes, and a logit there its log odds. Least probabilities (k,) there are only where
    logarithms are taken: to these they are raised before, by default what is found for the scores.
    """
    if inputs == "scores" and domain not in ("real", "order"):
        raise ValueError(
            "inputs must be 'probs' or 'logits' for this calibrator, got 'scores'; give the "
            "decision values of several classes as logits, and raw scores of two to Logistic or "
            "Isotonic"
        )
    check_finite(scores[:, 0] if scores.shape[1:] == (1,) else scores, "scores")
    columns = scores.shape[1] if scores.ndim == 2 else 1
    if domain in _COLUMN and columns > 2:
        raise ValueError(
            f"scores must have shape (n,), (n, 1) or (n, 2) for two classes, got {scores.shape}"
        )
    if inputs == "scores":
        if columns == 2:
            raise ValueError(
                "scores must have shape (n,) or (n, 1) for inputs='scores', got two columns; give "
                "the score of the second class"
            )
        return _column(scores), None
    if inputs == "logits":
        return _from_logits(scores, domain), None
    return _from_probabilities(scores, domain, least)


def _from_logits(scores: np.ndarray, domain: Domain) -> np.ndarray:
    if domain in _COLUMN:
        pair = scores.ndim == 2 and scores.shape[1] == 2
        z = log_odds(scores) if pair else _column(scores)
        return sigmoid(z) if domain == "probability" else z
    if scores.ndim == 2 and scores.shape[1] > 1:
        logits = scores
    else:
        half = _column(scores) / 2
        logits = np.stack([-half, half], axis=1)
    dtype = logits.dtype if logits.dtype in (np.float32, np.float64) else np.dtype(float)
    logits = np.ascontiguousarray(logits, dtype)
    if domain == "logits":
        return logits
    with np.errstate(over="ignore"):
        logits = np.clip(logits.astype(float), -1e300, 1e300)
    return log_softmax(logits) if domain == "log_probabilities" else softmax(logits)


def _from_probabilities(
    scores: np.ndarray, domain: Domain, least: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    check_probabilities(scores)
    if domain in _COLUMN:
        pair = scores.ndim == 2 and scores.shape[1] == 2
        one = scores[:, 1].astype(float) if pair else _column(scores)
        if domain in ("probability", "order"):
            return one, None
        zero = scores[:, 0].astype(float) if pair else 1 - one
        if least is None:
            least = least_probabilities([zero, one])
        return np.log(np.maximum(one, least[1])) - np.log(np.maximum(zero, least[0])), least
    if scores.ndim == 1 or scores.shape[1] == 1:
        one = _column(scores)
        scores = np.stack([1 - one, one], axis=1)
    probs = np.ascontiguousarray(scores, float)
    if domain == "probabilities":
        return probs / probs.sum(axis=1, keepdims=True), None
    if least is None:
        least = least_probabilities(list(probs.T))
    logs = np.log(np.maximum(probs, least))
    return (log_softmax(logs) if domain == "log_probabilities" else logs), least


def least_probabilities(columns: list[np.ndarray]) -> np.ndarray:
    """Return what probabilities of zero, and less, stand for (k,); each column (n,) is a class.

    Where a class has probabilities of exactly zero, as counts of trees or neighbors do, they stand
    for half its least positive one, at most 0.01: a forest's 0 is no certainty. Others, and what
    is positive but tiny, for the least normal number of float32. (With 2e-16 instead, temperature
    scaling loses 0.8e-4 of log loss on tables of two classes, and beta calibration nothing.)
    """
    least = np.full(len(columns), FLOOR)
    for label, own in enumerate(columns):
        if own.min() <= 0:
            positive = own[own > 0]
            half = positive.min() / 2 if len(positive) else _MOST_OF_ZERO
            least[label] = max(min(half, _MOST_OF_ZERO), FLOOR)
    return least


def check_probabilities(scores: np.ndarray, eps: float = 2.0**-52) -> None:
    """Raise unless scores lie in [0, 1], and rows of some columns sum to one, up to ``eps``."""
    low, high = scores.min(), scores.max()
    if low < 0 or high > 1:
        worst = low if low < 0 else high
        raise ValueError(
            f"scores must lie in [0, 1] for inputs='probs', got {worst:g}; say inputs='logits' for "
            "logits or log odds, or inputs='scores' for other numbers"
        )
    if scores.ndim < 2 or scores.shape[1] == 1:
        return
    check_row_sums(
        scores,
        "scores",
        eps=eps,
        advice="say inputs='logits' for logits, or use MultiLabel for labels that do not exclude "
        "each other",
    )


def _column(scores: np.ndarray) -> np.ndarray:
    return scores.astype(float).reshape(len(scores))


def bounded(scores: np.ndarray) -> np.ndarray:
    """Return scores in float64, those beyond 1e50 as this: so no square overflows."""
    return np.clip(scores.astype(float, copy=False), -1e50, 1e50)
