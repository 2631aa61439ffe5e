"""Stable elementary functions: every logarithm, clip and normalisation of the package."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def two_class_probabilities(
    log_odds: jax.Array, scale: jax.Array | float = 1.0
) -> tuple[jax.Array, jax.Array]:
    """Return sigmoid(log_odds) and sigmoid(-log_odds) times ``scale``, to full precision.

    One exponential serves both; neither is ever computed as one minus the other.
    """
    small = jnp.exp(-jnp.abs(log_odds))
    larger = scale / (1 + small)
    smaller = small * larger
    positive = log_odds >= 0
    return jnp.where(positive, larger, smaller), jnp.where(positive, smaller, larger)


def sigmoid(log_odds: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-log_odds)) with NumPy, to full precision at both ends."""
    small = np.exp(-np.abs(log_odds))
    return np.where(log_odds >= 0, 1.0, small) / (1 + small)


def log_odds(logits: np.ndarray) -> np.ndarray:
    """Return the finite difference (...,) of two logits (..., 2) of any size, in float64."""
    with np.errstate(over="ignore"):
        difference = np.subtract(logits[..., 1], logits[..., 0], dtype=float)
    most = np.finfo(float).max
    return np.clip(difference, -most, most, out=difference)


def differences(logits: np.ndarray, lowest: float = -np.finfo(float).max) -> np.ndarray:
    """Return logits (..., k) of any size less the greatest of their row: finite, in float64.

    Differences come first, which huge logits would lose, or make infinite.
    """
    with np.errstate(over="ignore"):
        below = np.subtract(logits, logits.max(axis=-1, keepdims=True), dtype=float)
    return np.maximum(below, lowest, out=below)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities (..., k) of logits (..., k) with NumPy, in float64."""
    if logits.shape[-1] == 2:
        # Several times faster than sums over so short an axis.
        difference = log_odds(logits)
        return np.stack([sigmoid(-difference), sigmoid(difference)], axis=-1)
    small = differences(logits)
    np.exp(small, out=small)
    small /= small.sum(axis=-1, keepdims=True)
    return small


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return logarithms (..., k) of the probabilities of logits (..., k) with NumPy, in float64."""
    below = differences(logits)
    below -= np.log(np.exp(below).sum(axis=-1, keepdims=True))
    return below


def subtract_maximum(values: jax.Array, top: jax.Array) -> jax.Array:
    """Return values - top, where no value is larger than ``top``.

    A compiler may compute large values twice, and round them differently: once for their maximum,
    once here. So the plain difference may be large, and its exponential infinite.
    """
    return jnp.minimum(values - top, 0)


def normalise_log_weights(log_weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return log weights that sum to one over the last axis, and the log of their sum.

    Weights that are all zero (all ``-inf``) come back as ``-inf`` with a log sum of ``-inf``.
    """
    top = jnp.max(log_weights, axis=-1, keepdims=True)
    anchor = jnp.where(jnp.isfinite(top), top, 0)
    total = jnp.sum(jnp.exp(log_weights - anchor), axis=-1, keepdims=True)
    log_sum = jnp.log(total) + anchor
    safe = jnp.where(jnp.isfinite(log_sum), log_sum, 0)
    return log_weights - safe, log_sum[..., 0]


def effective_sample_size(normalised_log_weights: jax.Array) -> jax.Array:
    """Return 1 / sum(w**2) over the last axis, w the normalised weights; 0 if all are zero."""
    squares = jnp.sum(jnp.exp(2 * normalised_log_weights), axis=-1)
    return jnp.where(squares > 0, 1 / jnp.where(squares > 0, squares, 1), 0)


def nan_to_minus_inf(log_values: jax.Array) -> jax.Array:
    """Replace NaN, the log density of a parameter outside its domain, by ``-inf``."""
    return jnp.where(jnp.isnan(log_values), -jnp.inf, log_values)
