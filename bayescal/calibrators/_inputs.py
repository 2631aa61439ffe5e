"""What users give as scores, made into what a calibrator works on."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from bayescal._core.arrays import namespace, on_host, wide
from bayescal._core.checks import (
    SUM_TOLERANCE,
    as_numpy,
    check_choice,
    check_finite,
    check_row_sums,
    check_unmasked,
    precision,
)
from bayescal._core.numerics import FLOOR, log_odds, log_softmax, sigmoid, softmax

Inputs = Literal["probs", "logits", "scores", "top_logits"]
INPUTS = ("probs", "logits", "scores")
#: What a calibrator works on. Of two classes, arrays (n,): P(class 1); log odds; log odds or any
#: other real numbers whose size counts; any numbers of which only the order counts. Of two and
#: more, arrays (n, k): probabilities; their logarithms; logits as they are, of probabilities their
#: logarithms.
#: Rows of truncated logits are packed (``_top_rows``).
Domain = Literal[
    "probability",
    "log_odds",
    "real",
    "order",
    "probabilities",
    "log_probabilities",
    "logits",
    "top_logits",
]
_COLUMN = ("probability", "log_odds", "real", "order")
LOGARITHMIC = ("log_odds", "real", "log_probabilities", "logits")
#: No other score as further from zero.
FAR = 1e50
#: And a probability of zero never as more than this.
_MOST_OF_ZERO = 0.01


def check_inputs(inputs: str) -> None:
    """Raise unless scores may be so, for calibrators of whole rows."""
    if inputs == "top_logits":
        raise ValueError(
            "inputs must be one of 'probs', 'logits', 'scores' for this calibrator, got "
            "'top_logits', which Temperature and Vector take"
        )
    check_choice(inputs, "inputs", INPUTS)


def widen(scores: Any, inputs: Inputs) -> Any:
    """Return tensors, and arrays of half precision or dates, as scikit-learn reads them, or raise.

    Sums of probabilities may differ from one by the precision of their type: rows are divided by
    them. Other scores come back as they are.
    """
    check_unmasked(scores, "scores")
    if inputs != "top_logits" and len(shape := tuple(getattr(scores, "shape", ()))) > 2:
        raise ValueError(
            f"scores must have shape (n,) or (n, k), got {shape}; bayescal.tokens(logits, labels) "
            "makes rows of those of tokens, and as_function() takes them as they are"
        )
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
    if on_host(scores):
        check_finite(scores[:, 0] if scores.shape[1:] == (1,) else scores, "scores")
    columns = scores.shape[1] if scores.ndim == 2 else 1
    if domain in _COLUMN and columns > 2:
        raise ValueError(
            f"scores must have shape (n,), (n, 1) or (n, 2) for two classes, got {scores.shape}"
        )
    if inputs == "scores" and columns == 2:
        raise ValueError(
            "scores must have shape (n,) or (n, 1) for inputs='scores', got two columns; give "
            "the score of the second class"
        )
    if inputs == "probs":
        if on_host(scores):
            check_probabilities(scores)
        if least is None and domain in LOGARITHMIC:
            one = _column(scores) if columns == 1 else None
            given = list(scores.T) if one is None else [1 - one, one]
            least = least_probabilities(given)
    return transform(scores, inputs, domain, least), least if inputs == "probs" else None


def transform(scores: Any, inputs: Inputs, domain: Domain, least: Any) -> Any:
    """Return scores (n,), (n, 1) or (n, k) of any library in the domain of a calibrator.

    Nothing is checked. NumPy's come back in float64, but for logits.
    """
    if inputs == "top_logits":
        return scores
    xp = namespace(scores)
    columns = scores.shape[1] if scores.ndim == 2 else 1
    if domain in _COLUMN:
        pair = columns == 2
        if inputs == "logits":
            z = log_odds(scores) if pair else _column(scores)
            return sigmoid(z) if domain == "probability" else z
        one = wide(scores[:, 1]) if pair else _column(scores)
        if inputs == "scores" or domain in ("probability", "order"):
            return one
        zero = wide(scores[:, 0]) if pair else 1 - one
        return xp.log(xp.maximum(one, least[1])) - xp.log(xp.maximum(zero, least[0]))
    if columns == 1:
        one = _column(scores)
        both = [-one / 2, one / 2] if inputs == "logits" else [1 - one, one]
        scores = xp.stack(both, axis=1)
    if inputs == "logits":
        if domain == "logits":
            return _contiguous(scores)
        scores = bounded(scores, 1e300, 1e30)
        return log_softmax(scores) if domain == "log_probabilities" else softmax(scores)
    probs = wide(scores)
    if domain == "probabilities":
        return probs / xp.sum(probs, axis=1, keepdims=True)
    logs = xp.log(xp.maximum(probs, least))
    return log_softmax(logs) if domain == "log_probabilities" else logs


def _contiguous(logits: Any) -> Any:
    if not on_host(logits):
        return logits
    dtype = logits.dtype if logits.dtype in (np.float32, np.float64) else np.dtype(float)
    return np.ascontiguousarray(logits, dtype)


def least_probabilities(columns: list[np.ndarray]) -> np.ndarray:
    """Return what probabilities of zero, and less, stand for (k,); each column (n,) is a class.

    Where a class has probabilities of exactly zero, as counts of trees or neighbors do, they stand
    for half its least positive one, at most 0.01: a forest's 0 is no certainty. Others, and what
    is positive but tiny, for the least normal number of float32. (With 2e-16 instead, temperature
    scaling loses 0.8e-4 of log loss on tables of two classes, and beta calibration nothing.)
    """
    lowest = np.array([own.min() for own in columns])
    positive = np.full(len(columns), np.inf)
    for label in np.flatnonzero(lowest <= 0):
        own = columns[label]
        positive[label] = own[own > 0].astype(float).min(initial=np.inf)
    return floors(lowest, positive)


def floors(lowest: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Return the same from the least probability (k,) of each class, and the least positive one."""
    half = np.where(np.isfinite(positive), positive / 2, _MOST_OF_ZERO)
    return np.where(lowest <= 0, np.clip(half, FLOOR, _MOST_OF_ZERO), FLOOR)


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


def plausible(scores: Any, inputs: Inputs) -> bool:
    """Return whether nothing is wrong with rows (n, k) of any library, without moving them."""
    xp = namespace(scores)
    if scores.ndim != 2 or not scores.shape[0] or not xp.isdtype(scores.dtype, "real floating"):
        return False
    good = xp.all(xp.isfinite(scores))
    if inputs == "probs":
        good = good & xp.all((scores >= 0) & (scores <= 1))
        if scores.shape[1] > 1:
            most = max(SUM_TOLERANCE, scores.shape[1] * float(xp.finfo(scores.dtype).eps))
            good = good & xp.all(xp.abs(xp.sum(scores, axis=1) - 1) <= most)
    return bool(good)


def _column(scores: Any) -> Any:
    if on_host(scores):
        return scores.astype(float).reshape(len(scores))
    return scores[:, 0] if scores.ndim == 2 else scores


def bounded(scores: Any, far: float = FAR, far_single: float = 1e15) -> Any:
    """Return scores, NumPy's in float64; beyond ``far`` they count as this: no square overflows.

    In single precision that is ``far_single``.
    """
    xp = namespace(scores)
    scores = wide(scores)
    most = far if float(xp.finfo(scores.dtype).max) > 1e100 else far_single
    return xp.clip(scores, -most, most)
