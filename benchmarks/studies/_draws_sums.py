"""Compute losses for all prefixes of a sequence of draws by running sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.execution.precision import float64
from benchmarks.studies._known_truth import loss_at_nodes

#: Number of draws that are processed together.
_CHUNK = 1 << 12


class Problem(NamedTuple):
    """Data sets, and nodes and weights to compute expected losses.

    Attributes
    ----------
    x : array of shape (b, n)
    y : array of shape (b, n)
    sums : array of shape (b, 2, 2)
        Number of rows and sum of scores, by class.
    nodes : array of shape (m,)
    weights : pair of arrays of shape (b, m)
        Weights of the expectations given each class.
    """

    x: np.ndarray
    y: np.ndarray
    sums: np.ndarray
    nodes: np.ndarray
    weights: tuple[np.ndarray, np.ndarray]


class _Sums(NamedTuple):
    """Running sums over draws, relative to the greatest likelihood so far."""

    top: jax.Array
    total: jax.Array
    preds: jax.Array
    coeffs: jax.Array
    best: jax.Array


def by_size(problem: Problem, means: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Compute mean losses (sizes, methods) for prefixes of a sequence (n, 2) of means.

    Sizes are powers of two. The priors are uniform, so the mode has the greatest likelihood.
    """
    batch = len(problem.x)
    with float64():
        data = jax.device_put((problem.sums.astype(float), problem.nodes, problem.weights))
        empty = _Sums(
            jnp.full(batch, -jnp.inf),
            jnp.zeros(batch),
            jnp.zeros((batch, len(problem.nodes))),
            jnp.zeros((batch, 2)),
            jnp.zeros((batch, 2)),
        )
        state, losses = empty, []
        padded = np.pad(means, ((0, -len(means) % _CHUNK), (0, 0)), mode="edge")
        for size in sizes:
            if size <= _CHUNK:
                state = _add(empty, data, padded[:_CHUNK], size)
            else:
                for first in range(size // 2, size, _CHUNK):
                    state = _add(state, data, padded[first : first + _CHUNK], _CHUNK)
            losses.append(_losses(state, data))
        return np.asarray(jnp.stack(losses))


@jax.jit
def _add(state: _Sums, data: Any, means: Any, count: Any) -> _Sums:
    """Add the first ``count`` of the draws (c, 2) to the sums."""
    sums, nodes, _ = data
    counts, scores = sums[..., 0], sums[..., 1]
    # Terms that are equal for all draws are omitted.
    log_likelihood = scores @ means.T - 0.5 * counts @ (means**2).T
    log_likelihood = jnp.where(jnp.arange(len(means)) < count, log_likelihood, -jnp.inf)
    slope = means[:, 1] - means[:, 0]
    intercept = 0.5 * (means[:, 0] ** 2 - means[:, 1] ** 2)
    best_draw = jnp.argmax(log_likelihood, axis=1)
    highest = jnp.max(log_likelihood, axis=1)
    top = jnp.maximum(state.top, highest)
    rescaling, weight = jnp.exp(state.top - top), jnp.exp(log_likelihood - top[:, None])
    lines = jnp.stack([intercept, slope], axis=1)
    models = jax.nn.sigmoid(lines[:, :1] + lines[:, 1:] * nodes)
    return _Sums(
        top,
        rescaling * state.total + weight.sum(axis=1),
        rescaling[:, None] * state.preds + weight @ models,
        rescaling[:, None] * state.coeffs + weight @ lines,
        jnp.where((highest > state.top)[:, None], lines[best_draw], state.best),
    )


@jax.jit
def _losses(state: _Sums, data: Any) -> jax.Array:
    """Compute the mean losses (methods,) over data sets."""
    _, nodes, weights = data
    total = state.total[:, None]
    preds = state.preds / total
    # Both sums of weights are positive, so only rounding makes a probability 0 or 1.
    tiny = jnp.finfo(preds.dtype).tiny
    odds = jnp.log(jnp.maximum(preds, tiny)) - jnp.log(jnp.maximum(1 - preds, tiny))
    lines = state.coeffs / total, state.best
    log_odds = [odds, *(line[:, :1] + line[:, 1:] * nodes for line in lines)]
    return jnp.stack([jnp.mean(loss_at_nodes(values, weights)) for values in log_odds])
