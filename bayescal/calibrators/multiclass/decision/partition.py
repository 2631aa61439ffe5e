"""Linear partitions of the simplex in which predictions are most wrong on average.

One compiled program climbs from several random starts at once, by soft borders. Rows are padded, so
that data sets of similar size share a compilation. Hard partitions start where these climbs end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import device, matmul, namespace
from bayescal._core.numerics import softmax
from bayescal._core.padding import pad_axis, padded_length
from bayescal._core.precision import float64
from bayescal.calibrators.multiclass.decision.hard_partition import hard_violation, improve

#: Directions and offsets of all starts.
Point: TypeAlias = tuple[jax.Array, jax.Array]

STARTS = 8
_CLIMB = 100
#: Of so many starts the hard partitions are improved.
_IMPROVED = 3
_RATE = 0.3
#: Directions in which predictions hardly vary are not stretched more than this.
_STRETCH = 100.0
_NOTHING = 1e-24


class Partition(NamedTuple):
    """Directions (d, k) and offsets (d,): a row p belongs to parts softmax(directions p + offsets).

    To the greatest alone, if the partition is hard. ``violation`` is the sum of the norms of the
    parts' mean errors.
    """

    directions: np.ndarray
    offsets: np.ndarray
    violation: float


def membership(directions: Any, offsets: Any, rows: Any, hard: bool) -> Any:
    """Return to which share (m, d) each row (m, k) belongs to each part."""
    values = matmul(rows, directions.T) + offsets
    if not hard:
        return softmax(values)
    xp = namespace(values)
    parts = xp.arange(values.shape[1], device=device(values))
    return xp.astype(xp.argmax(values, axis=1)[:, None] == parts, values.dtype)


def violation_of(means: np.ndarray) -> float:
    """Return the sum of the norms of the parts' mean errors (d, k)."""
    return float(np.sqrt(np.sum(means**2, axis=1) + _NOTHING).sum())


@cache
def _program() -> Callable[..., tuple[Point, jax.Array]]:
    import optax

    adam: Any = optax.adam(optax.cosine_decay_schedule(_RATE, _CLIMB))

    def violations(point: Point, rows: jax.Array, errors: jax.Array) -> jax.Array:
        """Return the violation (s,) of each start; axes are rows, parts, starts."""
        directions, offsets = point
        parts, starts = offsets.shape
        logits = (rows @ directions.reshape(-1, parts * starts)).reshape(-1, parts, starts)
        share = jax.nn.softmax(logits + offsets, axis=1).reshape(-1, parts * starts)
        means = share.T @ errors
        norms = jnp.sqrt(jnp.sum(means**2, axis=1) + _NOTHING)
        return jnp.sum(norms.reshape(parts, starts), axis=0)

    def climb(point: Point, rows: jax.Array, errors: jax.Array) -> tuple[Point, jax.Array]:
        def loss(point: Point) -> jax.Array:
            found = violations(point, rows, errors)
            # Each start by its own size, so that all climb alike.
            return -jnp.sum(jnp.log(found))

        def once(_: jax.Array, carry: tuple[Point, Any]) -> tuple[Point, Any]:
            point, memory = carry
            steps, memory = adam.update(jax.grad(loss)(point), memory)
            return (point[0] + steps[0], point[1] + steps[1]), memory

        point, _ = jax.lax.fori_loop(0, _CLIMB, once, (point, adam.init(point)))
        return point, violations(point, rows, errors)

    return jax.jit(climb)


def worst_partition(
    rows: np.ndarray,
    errors: np.ndarray,
    parts: int,
    rng: np.random.Generator,
    hard: bool = False,
) -> Partition:
    """Return the linear partition of predictions (n, k) with the greatest violation found.

    ``errors`` (n, k) are labels minus predictions, times each row's share of all weight.
    """
    n, k = rows.shape
    # Starts depend on weighted moments alone: neither the order of rows nor copies matter.
    shares = np.abs(errors).sum(axis=1)
    total = shares.sum()
    shares = shares / total if total > 0 else np.full(n, 1 / n)
    center = shares @ rows
    spread = np.sqrt(shares @ (rows - center) ** 2)
    spread = np.maximum(spread, spread.max() / _STRETCH)
    spread = np.where(spread > 0, spread, 1.0)
    start = rng.normal(size=(k, parts, STARTS)) * 2 / np.sqrt(k), rng.normal(size=(parts, STARTS))
    size = padded_length(n, 256)
    unit = (rows - center) / spread
    padded = pad_axis(unit, size, 0)
    # Errors of zero: padded rows count for nothing.
    filled = np.concatenate([errors, np.zeros((size - n, k))])
    host = jax.default_device(jax.local_devices(backend="cpu")[0])
    with float64(), host, jax.numpy_dtype_promotion("standard"):
        (directions, offsets), found = jax.device_get(_program()(start, padded, filled))
    if hard:
        ends = [np.column_stack([directions[..., s].T, offsets[:, s]]) for s in range(STARTS)]
        points = np.column_stack([unit, np.ones(n)])
        first = [hard_violation((points @ end.T).argmax(axis=1), errors, parts) for end in ends]
        chosen = np.argsort(first, kind="stable")[::-1][:_IMPROVED]
        moved, found = zip(*(improve(ends[s], unit, errors, rng) for s in chosen), strict=True)
        directions, offsets = (np.stack(moved, axis=-1)[:, part] for part in (slice(k), k))
        directions, found = directions.transpose(1, 0, 2), np.array(found)
    # Of equally good ones the first, whatever rounding says.
    best = int(np.argmax(found >= found.max() * (1 - 1e-9)))
    own = directions[:, :, best].T / spread
    return Partition(own, offsets[:, best] - own @ center, float(found[best]))


def nearest_probabilities(rows: Any, least: Any) -> Any:
    """Return the nearest points (m, k) of the simplex whose entries are at least ``least``."""
    xp, k = namespace(rows), rows.shape[1]
    left = 1 - k * least
    free = rows - least
    descending = -xp.sort(-free, axis=1)
    counts = xp.arange(1, k + 1, dtype=rows.dtype, device=device(rows))
    surplus = (xp.cumulative_sum(descending, axis=1) - left) / counts
    return least + xp.maximum(free - xp.max(surplus, axis=1, keepdims=True), 0.0)
