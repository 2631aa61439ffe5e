"""Stable elementary functions: every logarithm, clip and normalization of the package."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

import array_api_compat
import numpy as np

from bayescal._core.arrays import AnyArray, Operand, X, XArray, namespace, on_host, torch_of, wide
from bayescal._core.lazy import jax, jnp, special

#: Smallest probability in logarithms: the least normal number of float32, with logarithm -87.3.
FLOOR = float(np.finfo(np.float32).tiny)
Given = ParamSpec("Given")
Out = TypeVar("Out")
_MAX_FLOAT = float(np.finfo(float).max)


def ignoring_underflow(function: Callable[Given, Out]) -> Callable[Given, Out]:
    """Let a public function round tiny numbers to zero, whatever ``np.errstate`` is set."""

    @wraps(function)
    def ignored(*given: Given.args, **options: Given.kwargs) -> Out:
        with np.errstate(under="ignore"):
            return function(*given, **options)

    return ignored


def two_class_probabilities(
    log_odds: jax.Array, scale: jax.Array | float = 1.0
) -> tuple[jax.Array, jax.Array]:
    """Compute sigmoid(log_odds) and sigmoid(-log_odds) times ``scale``, to full precision.

    Both share one exponential; neither is computed as one minus the other.
    """
    small = jnp.exp(-jnp.abs(log_odds))
    larger = scale / (1 + small)
    smaller = small * larger
    positive = log_odds >= 0
    return jnp.where(positive, larger, smaller), jnp.where(positive, smaller, larger)


def sigmoid(log_odds: X) -> X:
    """Compute 1 / (1 + exp(-log_odds)) for arrays of any library, precisely at both ends."""
    if on_host(log_odds):
        # A second exponential is faster than a choice by the sign, which no processor foresees.
        return cast("X", np.exp(np.minimum(log_odds, 0)) / (1 + np.exp(-np.abs(log_odds))))
    if torch := torch_of(log_odds):
        return torch.sigmoid(log_odds)
    xp = namespace(log_odds)
    # Use one expression, since the derivative of two would be wrong where they meet.
    largest = math.log(float(xp.finfo(log_odds.dtype).max))
    return 1 / (1 + xp.exp(-clip(log_odds, -largest, largest)))


def clip(values: X, low: Operand, high: Operand) -> X:
    """Limit values of any library to [low, high]; NaN stays NaN, and rows become contiguous."""
    # The standard's function takes ten times as long for a few numbers of NumPy.
    if on_host(values):
        return cast("X", values.clip(low, high, order="C"))
    return cast("X", namespace(values).clip(values, low, high))


def sigmoids(log_odds: X) -> X:
    """Compute the probabilities (..., 2) of both classes; neither is one minus the other."""
    if on_host(log_odds):
        larger = 1 / (1 + np.exp(-np.abs(log_odds)))
        both = np.empty((*log_odds.shape, 2), larger.dtype)
        np.multiply(np.exp(-np.maximum(log_odds, 0)), larger, out=both[..., 0])
        np.multiply(np.exp(np.minimum(log_odds, 0)), larger, out=both[..., 1])
        return cast("X", both)
    return namespace(log_odds).stack([sigmoid(-log_odds), sigmoid(log_odds)], axis=-1)


def log_sigmoids(log_odds: X) -> tuple[X, X]:
    """Compute the logarithms of the probabilities of both classes."""
    if on_host(log_odds):
        # Use few arrays, since more would not fit in the processor's cache.
        small = np.asarray(np.abs(log_odds))
        np.log1p(np.exp(np.negative(small, out=small), out=small), out=small)
        zero = np.maximum(log_odds, 0) + small
        one = np.subtract(np.minimum(log_odds, 0), small, out=small)
        return cast("X", -zero), cast("X", one)
    if torch := torch_of(log_odds):
        log_sigmoid = torch.nn.functional.logsigmoid
        return log_sigmoid(-log_odds), log_sigmoid(log_odds)
    return -softplus(log_odds), -softplus(-log_odds)


def softplus(values: X) -> X:
    """Compute log(1 + exp(x)) of numbers of any size."""
    xp = namespace(values)
    if isinstance(values, jax.Array) or torch_of(values):
        return xp.logaddexp(xp.zeros_like(values), values)
    # logaddexp overflows in ONNX.
    return xp.maximum(values, 0.0) + xp.log1p(xp.exp(-abs(values)))


def log_odds(logits: X) -> X:
    """Compute the finite difference (...,) of two logits (..., 2) of any size."""
    xp = namespace(logits)
    with np.errstate(over="ignore") if on_host(logits) else nullcontext():
        difference = wide(logits[..., 1]) - wide(logits[..., 0])
    largest = float(xp.finfo(difference.dtype).max)
    return cast("X", clip(difference, -largest, largest))


def unit_of(largest: float, mild: float) -> float:
    """Return a power of two near ``largest`` by which to divide numbers, or 1 if it is moderate."""
    if 1 / mild < largest < mild or largest == 0:
        return 1.0
    return float(2.0 ** min(np.round(np.log2(largest)), 1023.0))


def differences(logits: X, lowest: float | None = None) -> X:
    """Subtract the greatest logit of each row from logits (..., k) of any size.

    Subtracting first keeps differences of huge logits, and keeps them finite. NumPy arrays become
    finite float64.
    """
    if on_host(logits):
        with np.errstate(over="ignore"):
            below = np.subtract(logits, logits.max(axis=-1, keepdims=True), dtype=float)
        lowest = -_MAX_FLOAT if lowest is None else lowest
        return cast("X", np.maximum(below, lowest, out=below))
    xp = namespace(logits)
    top = xp.max(logits, axis=-1, keepdims=True)
    if isinstance(logits, jax.Array):
        # Functions of the differences do not depend on the maximum, and compiled programs may round
        # its two derivatives differently, one of them to infinity.
        top = jax.lax.stop_gradient(top)
    below = logits - top
    return below if lowest is None else xp.maximum(below, lowest)


def softmax(logits: X) -> X:
    """Compute probabilities (..., k) of logits (..., k) of any library; NumPy's in float64."""
    if logits.shape[-1] == 2:
        # This is several times faster than sums over such a short axis.
        return sigmoids(log_odds(logits))
    if torch := torch_of(logits):
        return torch.softmax(logits, -1)
    return _shares(differences(logits))


def _shares(below: AnyArray) -> AnyArray:
    """Compute probabilities of logits whose greatest is zero; NumPy arrays are overwritten."""
    xp, host = namespace(below), on_host(below)
    small = np.exp(below, out=below) if host else xp.exp(below)
    total = xp.sum(small, axis=-1, keepdims=True)
    return np.divide(small, total, out=small) if host else small / total


def log_softmax(logits: X) -> X:
    """Compute log probabilities (..., k) of logits (..., k) of any library; NumPy's in float64."""
    if torch := torch_of(logits):
        return torch.log_softmax(logits, -1)
    below = differences(logits)
    xp = namespace(logits)
    total = xp.log(xp.sum(xp.exp(below), axis=-1, keepdims=True))
    if on_host(below):
        below -= total
        return below
    return below - total


def scaled_softmax(logits: X, inverse: XArray | float) -> X:
    """Compute softmax(inverse * logits) of logits (m, k), for an inverse >= 0 or (s, 1, 1)."""
    xp, two, torch = namespace(logits), logits.shape[-1] == 2, torch_of(logits)
    below = log_odds(logits)[:, None] if two else logits if torch else differences(logits)
    largest = float(xp.finfo(below.dtype).max)
    # For subnormal logits the inverse may be infinite, and zero times that is not a number.
    bounded = namespace(inverse).minimum if hasattr(inverse, "dtype") else min
    with np.errstate(over="ignore") if on_host(below) else nullcontext():
        scaled: Any = below * bounded(inverse, largest)
    if two:
        return sigmoids(scaled[..., 0])
    return torch.softmax(scaled, -1) if torch else _shares(scaled)


def find_root(
    function: Callable[[float], float], low: float, high: float, xtol: float, maxiter: int = 100
) -> float:
    """Find where a function changes its sign between two numbers, by Brent's method."""
    from scipy.optimize import brentq

    root: Any = brentq(function, low, high, xtol=xtol, maxiter=maxiter)
    return float(root)


def normal_cdf(x: X) -> X:
    """Compute the standard normal distribution function, which the array API standard lacks."""
    if isinstance(x, jax.Array):
        return special.ndtr(x)
    if torch := torch_of(x):
        return torch.special.ndtr(x)
    if array_api_compat.is_cupy_array(x):
        return import_module("cupyx.scipy.special").ndtr(x)
    from scipy.special import ndtr

    return namespace(x).asarray(ndtr(np.asarray(x)))


def skewed_tail(z: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Compute P(Z > z), z >= 0, for a sum Z of mean 0 and variance 1 with this skewness.

    With positive skewness the tail is that of a shifted gamma variable, as for counts of rare
    events. With negative skewness it is the normal tail, an upper bound.
    """
    from scipy.special import gammaincc, ndtr

    # With less skewness, the gamma distribution is normal up to rounding.
    skewed = skewness > 1e-5
    shape = 4 / np.where(skewed, skewness, 1) ** 2
    return np.where(skewed, gammaincc(shape, shape + np.sqrt(shape) * z), ndtr(-z))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Apply Holm's correction to p-values (m,)."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted


def subtract_maximum(values: jax.Array, top: jax.Array) -> jax.Array:
    """Compute values - top, where no value is larger than ``top``.

    A compiler may compute large values twice and round them differently, once for their maximum and
    once here. The plain difference might then be large and its exponential infinite.
    """
    return jnp.minimum(values - top, 0)


def normalize_log_weights(log_weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Normalize log weights to sum to one over the last axis; return also the log of their sum.

    Weights that are all zero (all ``-inf``) stay ``-inf``, with a log sum of ``-inf``.
    """
    top = jnp.max(log_weights, axis=-1, keepdims=True)
    anchor = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(jnp.exp(log_weights - anchor), axis=-1, keepdims=True)
    log_sum = jnp.log(total) + anchor
    finite = jnp.where(jnp.isfinite(log_sum), log_sum, 0)
    return log_weights - finite, log_sum[..., 0]


def effective_size(total: AnyArray, squares: AnyArray, xp: ModuleType = np) -> AnyArray:
    """Compute Kish's effective sample size from the sums of weights and of their squares."""
    return total**2 / xp.where(squares > 0, squares, 1)


def effective_sample_size(normalized_log_weights: jax.Array) -> jax.Array:
    """Compute 1 / sum(w**2) over the last axis, w the normalized weights; 0 if all are zero."""
    squares = jnp.sum(jnp.exp(2 * normalized_log_weights), axis=-1)
    return jnp.where(squares > 0, 1 / jnp.where(squares > 0, squares, 1), 0)


def nan_to_minus_inf(log_values: jax.Array) -> jax.Array:
    """Replace NaN, the log density of a parameter outside its domain, by ``-inf``."""
    return jnp.where(jnp.isnan(log_values), -jnp.inf, log_values)
