"""Convert the scores that users pass to the domain of a calibrator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import array_api_compat
import numpy as np

from bayescal._core.arrays import AnyArray, AnyModel, UserData, X, XArray, namespace, on_host, wide
from bayescal._core.binning import SINGLE, is_rounded_zero
from bayescal._core.execution.chunks import slices
from bayescal._core.lazy import jax
from bayescal._core.numerics import FLOOR, clip, log_odds, log_softmax, sigmoid, softmax
from bayescal.data.checks import (
    RANGE_TOLERANCE,
    SUM_TOLERANCE,
    as_numpy,
    check_choice,
    check_finite,
    check_logits,
    check_range,
    check_row_sums,
    check_unmasked,
    precision,
)

Inputs = Literal["probs", "logits", "scores", "top_logits"]
INPUTS = ("probs", "logits", "scores")
#: Domains of calibrators. For two classes, arrays (n,): P(class 1); log odds; log odds or any other
#: real numbers whose size counts; any numbers of which only the order counts. For two or more
#: classes, arrays (n, k): probabilities; their logarithms; logits, or logarithms of probabilities.
#: Rows of truncated logits are packed (see ``top_logits``).
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
#: Number of rows of which several arrays fit in the processor's cache.
_AT_ONCE = 1 << 15
_COLUMN = ("probability", "log_odds", "real", "order")
LOGARITHMIC = ("log_odds", "real", "log_probabilities", "logits")
#: Larger absolute scores are clipped to this.
FAR = 1e50
#: Logits of unavailable options are this far below all others of the row; maps of all logits could
#: not bear larger distances.
_FAR_BELOW = 1000.0
#: Maximum of the value that replaces a probability of zero.
_MOST_OF_ZERO = 0.01


def check_inputs(inputs: str, allowed: tuple[str, ...] = INPUTS) -> None:
    """Raise unless ``inputs`` is allowed."""
    if inputs == "top_logits" not in allowed:
        raise ValueError(
            "inputs must be one of 'probs', 'logits', 'scores' for this calibrator, got "
            "'top_logits', which Temperature and Vector take"
        )
    check_choice(inputs, "inputs", allowed)


def widen(scores: AnyArray, inputs: Inputs) -> AnyArray:
    """Convert tensors, half precision and dates like scikit-learn, or raise.

    Rows of probabilities are divided by their sums, which may differ from one by the precision of
    their type. Other scores are returned unchanged.
    """
    check_unmasked(scores, "scores")
    if inputs != "top_logits" and len(shape := tuple(getattr(scores, "shape", ()))) > 2:
        raise ValueError(
            f"scores must have shape (n,) or (n, k), got {shape}; bayescal.tokens(logits, labels) "
            "converts logits of tokens to rows, and as_function() accepts them unchanged"
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
        check_probabilities(scores, eps=eps)
        scores /= scores.sum(axis=1, keepdims=True)
    return scores


def check_rows(estimator: AnyModel, scores: UserData, inputs: Inputs, reset: bool) -> AnyArray:
    """Check scores as scikit-learn does for an estimator, and return (n, 1) or (n, k) numbers.

    The number and names of features are stored, or compared with those of the fit.
    """
    scores = widen(scores, inputs)
    if not hasattr(scores, "shape"):
        scores = as_numpy(scores, "scores")
    if len(scores.shape) == 1:
        scores = np.asarray(scores).reshape(-1, 1)
    kind = type(scores)
    plain = kind is np.ndarray and scores.dtype in (np.float64, np.float32)
    # scikit-learn would return such an array unchanged, and its check is slow.
    if plain and scores.ndim == 2 and scores.size and "feature_names_in_" not in vars(estimator):
        if reset:
            estimator.n_features_in_ = scores.shape[1]
        if scores.shape[1] == estimator.n_features_in_:
            return scores
    from sklearn.utils.validation import validate_data

    return validate_data(
        estimator,
        scores,
        reset=reset,
        dtype="numeric",
        ensure_min_samples=1,
        force_writeable=False,
        ensure_all_finite=False,  # so that the message names the row
    )


def convert(
    scores: np.ndarray, inputs: Inputs, domain: Domain, least: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert scores to the domain of a calibrator, (n,) or (n, k); also return the floor.

    The scores (n,), (n, 1) or (n, k) are float32 or float64; one column belongs to the second of
    two classes, and its logits are log odds. The floor (k,), to which probabilities are raised
    before logarithms are taken, is that of the scores by default, and None without logarithms.
    """
    if inputs == "scores" and domain not in ("real", "order"):
        raise ValueError(
            "inputs must be 'probs' or 'logits' for this calibrator, got 'scores'; pass the "
            "decision values of several classes as logits, and raw scores of two to Logistic or "
            "Isotonic"
        )
    given = scores[:, 0] if scores.shape[1:] == (1,) else scores
    if on_host(given) and inputs != "probs":
        options = inputs == "logits" and given.ndim == 2
        (check_logits if options else check_finite)(given, "scores")
    columns = scores.shape[1] if scores.ndim == 2 else 1
    if domain in _COLUMN and columns > 2:
        raise ValueError(
            f"scores must have shape (n,), (n, 1) or (n, 2) for two classes, got {scores.shape}"
        )
    if inputs == "scores" and columns == 2:
        raise ValueError(
            "scores must have shape (n,) or (n, 1) for inputs='scores', got two columns; pass "
            "the score of the second class"
        )
    if inputs == "probs":
        if on_host(given):
            accepted = INPUTS if domain in ("real", "order") else ("probs", "logits")
            check_probabilities(given, inputs=accepted)
        if least is None and domain in LOGARITHMIC:
            least = least_probabilities(scores)
    least = least if inputs == "probs" else None
    if on_host(scores) and inputs == "probs" and domain in _COLUMN and len(scores) > _AT_ONCE:
        # Work in parts that fit in the processor's cache.
        values = np.empty(len(scores))
        for part in slices(len(scores), _AT_ONCE):
            values[part] = transform(scores[part], inputs, domain, least)
        return values, least
    return transform(scores, inputs, domain, least), least


def transform(scores: XArray, inputs: Inputs, domain: Domain, least: AnyArray) -> AnyArray:
    """Convert scores (n,), (n, 1) or (n, k) of any library to the domain of a calibrator.

    Nothing is checked. NumPy arrays are converted to float64, except logits.
    """
    if inputs == "top_logits":
        return scores
    xp = namespace(scores)
    columns = scores.shape[1] if scores.ndim == 2 else 1
    if inputs == "probs":
        scores = _within(scores)
    elif inputs == "logits" and columns > 1:
        scores = _finite(scores)
    if domain in _COLUMN:
        pair = columns == 2
        if inputs == "logits":
            z = log_odds(scores) if pair else _column(scores)
            return sigmoid(z) if domain == "probability" else z
        second = wide(scores[:, 1]) if pair else _column(scores)
        if inputs == "scores" or domain in ("probability", "order"):
            return second
        first = wide(scores[:, 0]) if pair else 1 - second
        return xp.log(xp.maximum(second, least[1])) - xp.log(xp.maximum(first, least[0]))
    if columns == 1:
        second = _column(scores)
        both = [-second / 2, second / 2] if inputs == "logits" else [1 - second, second]
        scores = xp.stack(both, axis=1)
    if inputs == "logits":
        if domain == "logits":
            if not on_host(scores):
                return scores
            dtype = scores.dtype if scores.dtype in (np.float32, np.float64) else float
            return np.ascontiguousarray(scores, dtype)
        scores = bounded(scores, 1e300, 1e30)
        return log_softmax(scores) if domain == "log_probabilities" else softmax(scores)
    single = on_host(scores) and scores.dtype == np.float32
    probs = _exact_decimals(np.asarray(scores)) if single else wide(scores)
    if domain == "probabilities":
        return probs / xp.sum(probs, axis=1, keepdims=True)
    logs = xp.log(xp.maximum(probs, least))
    return log_softmax(logs) if domain == "log_probabilities" else logs


def _exact_decimals(probs: np.ndarray) -> np.ndarray:
    """Convert probabilities (n, k) in single precision to float64, up to six decimals exactly.

    A tenth in single precision becomes a tenth in double precision, so that rows which tie, or lie
    on a border, do so in both.
    """
    exact = probs.astype(float)
    for part in slices(len(probs), max(1, _AT_ONCE // probs.shape[1])):
        decimals = np.rint(exact[part] * 1e6) / 1e6
        np.copyto(exact[part], decimals, where=decimals.astype(np.float32) == probs[part])
    return exact


def _within(probs: X) -> X:
    """Clip probabilities that rounding put outside [0, 1]."""
    if on_host(probs) and probs.min(initial=0) >= 0 and probs.max(initial=1) <= 1:
        return probs
    return clip(probs, 0.0, 1.0)


def _finite(logits: XArray) -> XArray:
    """Replace minus infinity in logits (n, k) by a number far below all others of the row."""
    xp = namespace(logits)

    def lift(logits: XArray) -> XArray:
        absent = logits == -xp.inf
        top = xp.max(logits, axis=1, keepdims=True)
        low = xp.min(xp.where(absent, top, logits), axis=1, keepdims=True)
        # Half the spread, bounded so that its multiples are finite.
        half = clip(top / 2 - low / 2, 0.0, float(xp.finfo(logits.dtype).max) / 1e6)
        return xp.where(absent, top - (_FAR_BELOW + 200 * half), logits)

    return _if_absent(lift, logits, logits)


def without_absent(probs: XArray, scores: XArray, inputs: str) -> AnyArray:
    """Return probabilities (n, k) that are zero where the logit is minus infinity."""
    if inputs != "logits" or scores.ndim < 2 or scores.shape[1] < 2:
        return probs
    xp = namespace(scores)

    def remove(probs: XArray) -> XArray:
        absent = scores == -xp.inf
        left = xp.where(absent, xp.zeros_like(probs), probs)
        incomplete = xp.any(absent, axis=1, keepdims=True)
        return xp.where(incomplete, left / xp.sum(left, axis=1, keepdims=True), probs)

    return _if_absent(remove, probs, scores)


def _if_absent(change: Callable[[XArray], XArray], values: XArray, logits: XArray) -> XArray:
    """Return ``change(values)`` if logits may be minus infinity, and ``values`` if none is.

    ``change`` leaves rows without such logits as they are, but takes twice the time of a softmax on
    a CPU. There, NumPy and JAX's programs look at the logits first. Accelerators always make the
    change, because a branch would split one kernel.
    """
    if on_host(logits):
        return change(values) if logits.size and logits.min() == -np.inf else values
    if not array_api_compat.is_jax_array(logits):
        return change(values)

    def branch(values: XArray) -> XArray:
        return jax.lax.cond((logits == -np.inf).any(), change, lambda values: values, values)

    return jax.lax.platform_dependent(values, cpu=branch, default=change)


def public_ends(ends: AnyArray, scores: UserData, inputs: str) -> AnyArray:
    """Return ends (n, 2, k) of intervals, or for two classes those (n, 2) of the second.

    They are zero where the logit is minus infinity.
    """
    if inputs == "logits" and scores.ndim == 2 and ends.shape[2] == scores.shape[1]:
        xp = namespace(scores)
        ends = xp.where((scores == -xp.inf)[:, None, :], xp.zeros_like(ends), ends)
    return ends if ends.shape[2] > 2 else ends[:, :, 1]


def check_options(scores: XArray, y: np.ndarray, weights: np.ndarray, inputs: str) -> None:
    """Raise if a label (n,) is that of an option whose logit (n, k) is minus infinity."""
    if inputs != "logits" or not on_host(scores) or scores.shape[1] < 2:
        return
    wrong = np.isneginf(scores[np.arange(len(y)), y]) & (weights > 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"y must be an option that exists, got class {y[row]} in row {row}, whose logit is "
            f"-infinity ({int(wrong.sum())} in all)"
        )


def least_probabilities(probs: np.ndarray) -> np.ndarray:
    """Compute the values (k,) that replace smaller probabilities (n,), (n, 1) or (n, k).

    If probabilities are zero up to rounding, like counts of trees or neighbors, all classes share
    one replacement: half the least positive probability of any class, at most 0.01. A forest's 0 is
    not a certainty, and a separate replacement for each class would be tiny for a class that is
    either certain or absent. Without zeros, tiny positive probabilities are raised to the least
    normal number of float32. (With 2e-16 instead, temperature scaling loses 0.8e-4 of log loss on
    tables of two classes, and beta calibration nothing.)
    """
    return floors(*least_of_classes(probs))


def least_of_classes(probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the least probability (k,) of each class, and the least positive one, or infinity.

    Rounding errors of 0, and of 1 for the other class, count as zero: sums of shares may end just
    below 1.
    """
    if probs.ndim == 1 or probs.shape[1] == 1:
        pairs = [_least_of_other(probs), _least(probs)]
    else:
        pairs = [_least(column) for column in probs.T]
    lowest, positive = np.array(pairs).T
    return lowest, positive


def _least(column: np.ndarray) -> tuple[float, float]:
    lowest = float(column.min())
    if lowest > SINGLE:
        return lowest, lowest
    small = column[column <= SINGLE].astype(float)
    zero = (small <= 0) | is_rounded_zero(small)
    if not zero.any():
        return lowest, lowest
    others = column[column > SINGLE].astype(float) if zero.all() else small[~zero]
    return 0.0, float(others.min(initial=np.inf))


def _least_of_other(column: np.ndarray) -> tuple[float, float]:
    """Find those of one minus the probabilities, without an array of them."""
    least = 1 - float(column.max())
    if least > SINGLE:
        return least, least
    beyond = float(column[column < 1 - SINGLE].astype(float).max(initial=-np.inf))
    return _least(1 - np.append(column[column >= 1 - SINGLE].astype(float), beyond))


def floors(lowest: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Compute the least probabilities (k,) from each class's least and least positive one."""
    if (lowest > 0).all():
        return np.full(len(lowest), FLOOR)
    return np.full(len(lowest), np.clip(positive.min() / 2, FLOOR, _MOST_OF_ZERO))


def check_probabilities(
    probs: np.ndarray,
    name: str = "scores",
    eps: float | None = None,
    inputs: Sequence[str] = ("probs", "logits"),
) -> np.ndarray:
    """Check that probabilities lie in [0, 1] and that rows of several columns sum to one.

    ``eps`` is the precision of the type of the user's scores, by default that of ``scores``.
    ``inputs`` are the kinds of scores that the caller accepts, which errors suggest. Probabilities
    are returned without rounding errors beyond 0 and 1.
    """
    range_advice, sum_advice = "pass probabilities, not logits or scores", ""
    if "logits" in inputs:
        sum_advice = "pass inputs='logits' for logits"
        range_advice = f"{sum_advice} or log odds"
    if name == "scores" and "logits" in inputs:
        sum_advice += ", or use MultiLabel for multi-label data"
        if probs.ndim == 1 or probs.shape[1] == 1:
            other = "inputs='scores'" if "scores" in inputs else "use Auto(inputs='scores')"
            range_advice += f", or {other} for other numbers"
    when = " for inputs='probs'" if name == "scores" and len(inputs) > 1 else ""
    clipped = check_range(probs, name, range_advice, when)
    if probs.ndim == 2 and probs.shape[1] > 1:
        eps = precision(probs.dtype) if eps is None else eps
        check_row_sums(probs, name, eps=eps, advice=sum_advice)
    return clipped


def plausible(scores: XArray, inputs: Inputs) -> bool:
    """Return whether scores (n,) or (n, k) of any library are valid, without a copy on the host.

    If they are not, the checks on the host name the row.
    """
    xp = namespace(scores)
    if scores.ndim not in (1, 2) or not scores.shape[0]:
        return False
    if not xp.isdtype(scores.dtype, "real floating"):
        return False
    several = scores.ndim == 2 and scores.shape[1] > 1
    finite = xp.isfinite(scores)
    valid = xp.all(finite)
    if inputs == "logits" and several:
        valid = xp.all(finite | (scores == -xp.inf)) & xp.all(xp.any(finite, axis=1))
    if inputs == "probs":
        within = (scores >= -RANGE_TOLERANCE) & (scores <= 1 + RANGE_TOLERANCE)
        valid = valid & xp.all(within)
        if several:
            most = max(SUM_TOLERANCE, scores.shape[1] * float(xp.finfo(scores.dtype).eps))
            valid = valid & xp.all(xp.abs(xp.sum(scores, axis=1) - 1) <= most)
    return bool(valid)


def _column(scores: XArray) -> XArray:
    if on_host(scores):
        return scores.astype(float).reshape(len(scores))
    return scores[:, 0] if scores.ndim == 2 else scores


def bounded(scores: X, far: float = FAR, far_single: float = 1e15) -> X:
    """Clip scores to [-far, far], so that no square overflows; NumPy's become float64.

    In single precision the bound is ``far_single``.
    """
    xp, scores = namespace(scores), wide(scores)
    most = far if float(xp.finfo(scores.dtype).max) > 1e100 else far_single
    return clip(scores, -most, most)


def two_columns(positive: XArray) -> XArray:
    """Return the probabilities (m, 2) of both classes, from those (m,) of the second."""
    positive = clip(positive, 0.0, 1.0)
    return namespace(positive).stack([1 - positive, positive], axis=1)
