"""Expected log losses for two Gaussian classes with known means, without noise from a test set."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: Standard deviations from a mean beyond which densities are neglected, and number of nodes between
#: these ends. The trapezoidal rule converges exponentially for integrands that are smooth and
#: vanish at the ends.
_REACH, _NODES = 9.0, 145


def common_nodes(means: np.ndarray) -> np.ndarray:
    """Compute equally spaced nodes (m,) that cover the densities of all means (sigma = 1).

    With a spacing of one sixth, the error is below 1e-8 for log odds with slopes up to 6.
    """
    low, high = float(np.min(means)) - _REACH, float(np.max(means)) + _REACH
    return np.linspace(low, high, math.ceil(6 * (high - low)) + 1)


def weights_of(nodes: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Compute weights (b, m) of the expectation under N(mean, 1), for equally spaced nodes."""
    step = nodes[1] - nodes[0]
    z = nodes - means[:, None]
    return step * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def loss_at_nodes(log_odds: Any, weights: tuple[Any, Any]) -> Any:
    """Compute expected log losses (b,) of log odds (b, m), with equally frequent classes."""
    zero = jnp.sum(weights[0] * jax.nn.softplus(log_odds), axis=-1)
    one = jnp.sum(weights[1] * jax.nn.softplus(-log_odds), axis=-1)
    return 0.5 * (zero + one)


def loss_of_lines(lines: jax.Array, means: tuple[Any, Any]) -> jax.Array:
    """Compute expected log losses (b,) of log odds intercept + slope x, given as (b, 2)."""
    z = jnp.linspace(-_REACH, _REACH, _NODES, dtype=float)
    weight = (z[1] - z[0]) * jnp.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    intercept, slope = lines[..., :1], lines[..., 1:]
    zero, one = (intercept + slope * (jnp.asarray(mean)[..., None] + z) for mean in means)
    return 0.5 * (jax.nn.softplus(zero) + jax.nn.softplus(-one)) @ weight
