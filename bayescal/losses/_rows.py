"""Shared parts of all losses: checks at trace time, masked rows, and the reduction."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from bayescal._core.arrays import Array, ArrayLike
from bayescal._core.lazy import is_traced, jax, jnp
from bayescal.data.checks import check_choice, check_real

Reduction = Literal["mean", "sum", "none"]
_REAL = ("integral", "real floating")
_BOUNDS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "smoothing": ("lie in [0, 1)", lambda number: 0 <= number < 1),
    "share": ("lie in [0, 1]", lambda number: 0 <= number <= 1),
    "offset": ("be finite and not negative", lambda number: 0 <= number < math.inf),
    "gamma": ("be finite and not negative", lambda number: 0 <= number < math.inf),
    "strength": ("be finite and not negative", lambda number: 0 <= number < math.inf),
    "temperature": ("be finite and positive", lambda number: 0 < number < math.inf),
    "bandwidth": ("be finite and positive", lambda number: 0 < number < math.inf),
}


class LossRows(NamedTuple):
    """Logits (..., k), targets (..., k), weights (...), and a mask (...) of the rows that count.

    Masked rows have logits and weights of zero. ``targets`` is differentiable with respect to soft
    targets; labels outside {0, ..., k - 1} make it NaN.
    """

    logits: jax.Array
    targets: jax.Array
    weights: jax.Array
    kept: jax.Array


def read_rows(
    logits: ArrayLike,
    targets: ArrayLike,
    weights: ArrayLike | None,
    mask: ArrayLike | None,
    *,
    soft: bool,
) -> LossRows:
    """Check the arguments of a loss; ``soft`` tells whether targets may be probabilities."""
    name = "targets" if soft else "labels"
    logits = read_logits(logits, "logits")
    shape = logits.shape[:-1]
    targets = _as_jax(targets)
    is_soft = soft and targets.ndim == logits.ndim
    if targets.shape != (logits.shape if is_soft else shape):
        wanted = f"{shape}" + (f" for labels or {logits.shape} for soft targets" if soft else "")
        raise ValueError(
            f"{name} must have shape {wanted} to match logits of shape {logits.shape}, "
            f"got {targets.shape}"
        )
    kept = jnp.ones(shape, bool)
    if mask is not None:
        kept = _read_mask(mask)
        _check_shape(kept, "mask", shape)
    factor = jnp.ones(shape, logits.dtype)
    if weights is not None:
        if isinstance(weights, np.ndarray):
            _check_size(weights, logits.dtype)
            if weights.dtype.kind in "iu":
                weights = weights.astype(logits.dtype)  # Long integers would wrap around.
        factor = jnp.asarray(weights)
        if not jnp.isdtype(factor.dtype, _REAL):
            raise TypeError(f"weights must be real numbers, got dtype {factor.dtype}")
        _check_shape(factor, "weights", shape)
        kept = kept & (factor != 0)
        factor = factor.astype(logits.dtype)
    factor = jnp.where(kept, factor, 0)
    logits = jnp.where(kept[..., None], logits, 0)
    if is_soft:
        if not jnp.issubdtype(targets.dtype, jnp.floating):
            raise TypeError(
                f"soft targets must be floating-point, got dtype {targets.dtype}; integer labels "
                f"have one axis less than the logits {logits.shape}, whose last axis is that of "
                "the classes"
            )
        targets = jnp.where(kept[..., None], targets, 0).astype(logits.dtype)
    else:
        _check_integer(targets, name)
        hot = one_hot(jnp.where(kept, targets, 0), logits.shape[-1])
        targets = hot.astype(logits.dtype)
        targets = jnp.where(hot.any(axis=-1, keepdims=True), targets, jnp.nan)
    return LossRows(logits, targets, factor, kept)


def _as_jax(labels: ArrayLike) -> jax.Array:
    """Convert labels to a JAX array; NumPy's long integers would wrap around to other classes."""
    if isinstance(labels, list | np.ndarray) and (kind := np.asarray(labels).dtype.kind) in "OSU":
        raise TypeError(
            f"labels must be integers, got {'objects' if kind == 'O' else 'text'}; pass their "
            "positions among the classes, such as np.unique(labels, return_inverse=True)[1]"
        )
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu" and labels.dtype.itemsize == 8:
        labels = np.clip(labels, max(-1, np.iinfo(labels.dtype).min), 2**31 - 1)
    return jnp.asarray(labels)


def _read_mask(mask: ArrayLike) -> jax.Array:
    """Convert a mask of booleans, or of integers 0 and 1 from a tokenizer, to booleans."""
    given = jnp.asarray(mask)
    if given.dtype == bool:
        return given
    if not jnp.issubdtype(given.dtype, jnp.integer):
        raise TypeError(f"mask must be boolean, or integers 0 and 1, got dtype {given.dtype}")
    if not is_traced(given) and not ((given == 0) | (given == 1)).all():
        raise ValueError("mask must be 1 where a row counts and 0 elsewhere, got other numbers")
    return given != 0


def read_logits(value: ArrayLike, name: str) -> jax.Array:
    """Check logits (..., k) with k at least two, and convert them to float32 or wider."""
    if getattr(value, "requires_grad", False):
        raise TypeError(
            f"{name} must not be a PyTorch tensor that requires gradients, which only flow through "
            "JAX here; detach it to compute a value"
        )
    logits = jnp.asarray(value)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating-point, got dtype {logits.dtype}")
    if logits.ndim == 0 or logits.shape[-1] < 2:
        raise ValueError(f"{name} must have shape (..., k) with k at least 2, got {logits.shape}")
    return logits.astype(jnp.float32) if logits.dtype.itemsize < 4 else logits


def read_labels(value: ArrayLike, logits: jax.Array) -> jax.Array:
    """Check that integer labels (...) match logits (..., k)."""
    labels = _as_jax(value)
    _check_integer(labels, "labels")
    _check_shape(labels, "labels", logits.shape[:-1])
    return labels


def read_teacher(value: ArrayLike, rows: LossRows) -> jax.Array:
    """Read a teacher's logits as constants that match ``rows``, with zeros in masked rows."""
    logits = read_logits(value, "teacher_logits")
    _check_shape(logits, "teacher_logits", rows.logits.shape)
    logits = jax.lax.stop_gradient(logits).astype(rows.logits.dtype)
    return jnp.where(rows.kept[..., None], logits, 0)


def check_number(value: float | Array, name: str) -> None:
    """Raise if ``value`` is neither a number in its bounds nor a scalar array."""
    wanted, inside = _BOUNDS[name]
    if isinstance(value, (jax.Array, np.ndarray)):
        if not jnp.isdtype(value.dtype, _REAL):
            raise TypeError(f"{name} must be a number, got dtype {value.dtype}")
        if value.shape != ():
            raise ValueError(f"{name} must be a scalar, got shape {value.shape}")
        return
    check_real(value, name)
    if not inside(float(value)):
        raise ValueError(f"{name} must {wanted}, got {value:g}")


def scalar(value: float | Array, name: str, like: jax.Array) -> jax.Array:
    """Check a number, which may be traced, and convert it to the dtype of ``like``."""
    check_number(value, name)
    return jnp.asarray(value).astype(like.dtype)


def one_hot(labels: jax.Array, classes: int) -> jax.Array:
    """Return booleans (..., classes), True at the label and all False if it is no class."""
    labels = labels.astype(jnp.int32) if labels.dtype.itemsize < 4 else labels
    return labels[..., None] == jnp.arange(classes, dtype=labels.dtype)


def weighted_log(weights: jax.Array, log_probs: jax.Array) -> jax.Array:
    """Compute the sums (...) of weight times log probability, with 0 log 0 = 0."""
    nothing = (weights == 0) & (log_probs == -jnp.inf)
    return (weights * jnp.where(nothing, 0, log_probs)).sum(axis=-1)


def reduce(losses: jax.Array, rows: LossRows, reduction: Reduction) -> jax.Array:
    """Compute weight times loss of every row, their sum, or their weighted mean."""
    check_choice(reduction, "reduction", ("mean", "sum", "none"))
    weights = scaled(rows.weights) if reduction == "mean" else rows.weights
    losses = losses * weights
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else ratio(total, weights.sum())


def scaled(weights: jax.Array) -> jax.Array:
    """Multiply weights by a power of two if their sums or products might overflow or vanish."""
    heaviest = jax.lax.stop_gradient(weights.max(initial=0))
    factor = jnp.where(heaviest > 2.0**64, 2.0**-64, jnp.where(heaviest < 2.0**-64, 2.0**64, 1.0))
    return weights * factor.astype(weights.dtype)


def ratio(part: jax.Array, total: jax.Array) -> jax.Array:
    """Compute part / total, or zero with zero gradient if the total is zero."""
    return jnp.where(total != 0, part / jnp.where(total != 0, total, 1), 0)


def root(value: jax.Array, order: float) -> jax.Array:
    """Compute value ** (1 / order), or zero with zero gradient if the value is not positive."""
    nothing = value <= 0
    return jnp.where(nothing, 0, jnp.where(nothing, 1, value) ** (1 / order))


def _check_integer(labels: jax.Array, name: str) -> None:
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers, got dtype {labels.dtype}")


def _check_size(weights: np.ndarray, dtype: np.dtype) -> None:
    """Raise if all weights would vanish in the type of the logits, or one would be infinite."""
    limits = jnp.finfo(dtype)
    heaviest = weights.max(initial=0) if weights.dtype.kind in "iuf" else 0
    if 0 < heaviest < limits.tiny or limits.max < heaviest < np.inf:
        raise ValueError(
            f"weights must have a maximum from {limits.tiny:.1e} to {limits.max:.1e} with logits "
            f"in {dtype}, got {heaviest:g}; multiply them by one number"
        )


def _check_shape(array: jax.Array, name: str, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} to match the logits, got {array.shape}")
