"""Linear partitions of the simplex with the largest mean errors of predictions.

One compiled program optimizes soft partitions from several random starts at once. Rows are padded,
so that data sets of similar sizes share a compilation. Hard partitions, in which every row belongs
to one part, start from the results. If the linear function of one part moves along a line, every
row changes sides at most once, so that one sort gives the violation at all positions on the line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, Array, XArray, device, matmul, namespace
from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import softmax
from bayescal._core.shapes import Float, Int

if TYPE_CHECKING:
    from optax import OptState

#: Arrays by their axes.
RowsByClass: TypeAlias = 'Float[np.ndarray, "rows classes"]'
Probs: TypeAlias = 'Float[jax.Array, "rows classes"]'

#: Directions and offsets of all starts.
Point: TypeAlias = tuple[jax.Array, jax.Array]

STARTS = 8
_STEPS = 100
#: Number of the best starts from which hard partitions are improved.
_IMPROVED_STARTS = 3
_RATE = 0.3
#: Largest factor by which directions with little variation are scaled.
_MAX_SCALING = 100.0
_TINY = 1e-24
#: Maximal number of rounds over all lines, relative increase of a round below which the search
#: stops, and relative increase that counts as rounding error.
_MAX_ROUNDS, _MIN_GAIN, _ROUNDING = 4, 1e-3, 1e-9
#: Relative distance below which crossings are equal up to rounding.
_SAME_CROSSING = 1e-9


class Partition(NamedTuple):
    """Directions (d, k) and offsets (d,) of a linear partition, and its violation.

    A row p belongs to the parts with weights softmax(directions p + offsets), or only to the
    largest if the partition is hard. The violation is the sum of the norms of the mean errors of
    the parts.
    """

    directions: Float[np.ndarray, "parts classes"]
    offsets: Float[np.ndarray, " parts"]
    violation: float


def membership(directions: XArray, offsets: XArray, rows: XArray, hard: bool) -> XArray:
    """Compute the weights (m, d) with which rows (m, k) belong to the parts."""
    values = matmul(rows, directions.T) + offsets
    if not hard:
        return softmax(values)
    xp = namespace(values)
    parts = xp.arange(values.shape[1], device=device(values))
    return xp.astype(xp.argmax(values, axis=1)[:, None] == parts, values.dtype)


def violation_of(means: Float[np.ndarray, "parts classes"]) -> float:
    """Compute the sum of the norms of the mean errors (d, k) of the parts."""
    return float(np.sqrt(np.sum(means**2, axis=1) + _TINY).sum())


@cache
def _program() -> Callable[..., tuple[Point, jax.Array]]:
    import optax

    adam: Any = optax.adam(optax.cosine_decay_schedule(_RATE, _STEPS))

    def violations(point: Point, rows: Probs, errors: Probs) -> Float[jax.Array, " starts"]:
        """Compute the violations (s,) of all starts; axes are rows, parts, starts."""
        directions, offsets = point
        parts, starts = offsets.shape
        logits = (rows @ directions.reshape(-1, parts * starts)).reshape(-1, parts, starts)
        weights = jax.nn.softmax(logits + offsets, axis=1).reshape(-1, parts * starts)
        means = weights.T @ errors
        norms = jnp.sqrt(jnp.sum(means**2, axis=1) + _TINY)
        return jnp.sum(norms.reshape(parts, starts), axis=0)

    def climb(point: Point, rows: Probs, errors: Probs) -> tuple[Point, jax.Array]:
        def loss(point: Point) -> jax.Array:
            by_start = violations(point, rows, errors)
            # Logarithms make the gradients of all starts comparable.
            return -jnp.sum(jnp.log(by_start))

        def step(_: jax.Array, carry: tuple[Point, OptState]) -> tuple[Point, OptState]:
            point, memory = carry
            steps, memory = adam.update(jax.grad(loss)(point), memory)
            return (point[0] + steps[0], point[1] + steps[1]), memory

        point, _ = jax.lax.fori_loop(0, _STEPS, step, (point, adam.init(point)))
        return point, violations(point, rows, errors)

    return jax.jit(climb)


def worst_partition(
    rows: RowsByClass, errors: RowsByClass, parts: int, rng: np.random.Generator, hard: bool = False
) -> Partition:
    """Search for the linear partition of predictions (n, k) with the largest violation.

    ``errors`` (n, k) are labels minus predictions, multiplied by normalized weights of rows.
    """
    n, k = rows.shape
    # Starts depend only on weighted moments, not on the order or repetition of rows.
    weights = np.abs(errors).sum(axis=1)
    total = weights.sum()
    weights = weights / total if total > 0 else np.full(n, 1 / n)
    center = weights @ rows
    spread = np.sqrt(weights @ (rows - center) ** 2)
    spread = np.maximum(spread, spread.max() / _MAX_SCALING)
    spread = np.where(spread > 0, spread, 1.0)
    start = rng.normal(size=(k, parts, STARTS)) * 2 / np.sqrt(k), rng.normal(size=(parts, STARTS))
    size = padded_length(n, 256)
    unit = (rows - center) / spread
    padded = pad_axis(unit, size, 0)
    # Padded rows have no errors, so they do not count.
    filled = np.concatenate([errors, np.zeros((size - n, k))])
    host = jax.default_device(jax.local_devices(backend="cpu")[0])
    with float64(), host, jax.numpy_dtype_promotion("standard"):
        (directions, offsets), violations = jax.device_get(_program()(start, padded, filled))
    if hard:
        ends = [np.column_stack([directions[..., s].T, offsets[:, s]]) for s in range(STARTS)]
        points = np.column_stack([unit, np.ones(n)])
        first = [hard_violation((points @ end.T).argmax(axis=1), errors, parts) for end in ends]
        chosen = _largest(np.array(first), _IMPROVED_STARTS)
        improved, violations = zip(
            *(improve(ends[s], unit, errors, rng) for s in chosen), strict=True
        )
        directions, offsets = (np.stack(improved, axis=-1)[:, part] for part in (slice(k), k))
        directions, violations = directions.transpose(1, 0, 2), np.array(violations)
    # The first of those that are equal up to rounding.
    best = int(np.argmax(violations >= violations.max() * (1 - 1e-9)))
    scaled = directions[:, :, best].T / spread
    return Partition(scaled, offsets[:, best] - scaled @ center, float(violations[best]))


def _largest(violations: Float[np.ndarray, " starts"], count: int) -> list[int]:
    """Return the positions of the largest values, in order; of equals, the last first.

    Each improvement takes the next random numbers, so rounding must not decide on the order.
    """
    rest, chosen = violations.copy(), list[int]()
    for _ in range(count):
        chosen.append(int(np.flatnonzero(rest >= rest.max() * (1 - 1e-9))[-1]))
        rest[chosen[-1]] = -1.0
    return chosen


def nearest_probabilities(rows: Array, least: AnyArray) -> AnyArray:
    """Project rows (m, k) onto the points of the simplex with entries of at least ``least``."""
    xp, k = namespace(rows), rows.shape[1]
    mass = 1 - k * least
    free = rows - least
    descending = -xp.sort(-free, axis=1)
    counts = xp.arange(1, k + 1, dtype=rows.dtype, device=device(rows))
    surplus = (xp.cumulative_sum(descending, axis=1) - mass) / counts
    return least + xp.maximum(free - xp.max(surplus, axis=1, keepdims=True), 0.0)


def hard_violation(part_of_row: Int[np.ndarray, " rows"], errors: RowsByClass, parts: int) -> float:
    """Compute the sum of the norms of the mean errors of parts, from the part (n,) of rows."""
    return float(np.linalg.norm(_sums(part_of_row, errors, parts), axis=1).sum())


def improve(
    functions: Float[np.ndarray, "parts 1+classes"],
    rows: RowsByClass,
    errors: RowsByClass,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "parts 1+classes"], float]:
    """Improve linear functions (d, k + 1); return them and their violation, which never decreases.

    They are moved along the axes and as many random lines, to the best position on each line.
    """
    parts, count = functions.shape
    points = np.column_stack([rows, np.ones(len(rows))])
    best = functions / np.linalg.norm(functions)
    violation = hard_violation((points @ best.T).argmax(axis=1), errors, parts)
    # Two parts depend only on the difference of their functions.
    movable = range(1 if parts == 2 else parts if parts > 1 else 0)
    for _ in range(_MAX_ROUNDS):
        before = violation
        for part in movable:
            for line in np.vstack([np.eye(count), rng.normal(size=(count, count))]):
                predicted, position = _best_position(points, errors, best, part, line)
                if predicted <= violation * (1 + _ROUNDING):
                    continue
                moved = best.copy()
                moved[part] += position * line
                new_violation = hard_violation((points @ moved.T).argmax(axis=1), errors, parts)
                if new_violation > violation * (1 + _ROUNDING):
                    best, violation = moved / np.linalg.norm(moved), new_violation
        if violation <= before * (1 + _MIN_GAIN):
            break
    return best, violation


def _best_position(
    points: np.ndarray, errors: np.ndarray, functions: np.ndarray, part: int, line: np.ndarray
) -> tuple[float, float]:
    """Find the largest violation on a line, and the position of the function that gives it."""
    values, parts = points @ functions.T, len(functions)
    value = values[:, part].copy()
    values[:, part] = -np.inf
    other = values.argmax(axis=1)
    lead = values.max(axis=1) - value
    slope = points @ line
    moving = np.abs(slope) > 1e-12 * np.abs(slope).max(initial=1.0)
    if not moving.any():
        return 0.0, 0.0
    positions = lead[moving] / slope[moving]
    order = np.argsort(positions, kind="stable")
    positions = positions[order]
    # Start from minus infinity, where the slope decides which rows belong to the part.
    inside = np.where(moving, slope < 0, lead < 0)
    start = _sums(np.where(inside, part, other), errors, parts)
    passed = (np.sign(slope)[:, None] * errors)[moving][order]
    left_part, total = other[moving][order], np.zeros(len(positions) + 1)
    for i in range(parts):
        change = passed if i == part else -passed * (left_part == i)[:, None]
        sums = np.vstack([start[i], start[i] + np.cumsum(change, axis=0)])
        total += np.sqrt(np.einsum("ij,ij->i", sums, sums))
    # Positions are between two crossings, or beyond all of them.
    wide = np.diff(positions) > _SAME_CROSSING * (1 + np.abs(positions[1:]))
    total[1:-1][~wide] = -np.inf
    first = int(np.argmax(total >= total.max() * (1 - _ROUNDING)))
    low = positions[first - 1] if first > 0 else positions[0] - 2 * (1 + abs(positions[0]))
    high = (
        positions[first] if first < len(positions) else positions[-1] + 2 * (1 + abs(positions[-1]))
    )
    return float(total.max()), float((low + high) / 2)


def _sums(
    part_of_row: Int[np.ndarray, " rows"], errors: RowsByClass, parts: int
) -> Float[np.ndarray, "parts classes"]:
    """Sum the errors (d, k) of the rows of each part."""
    return (part_of_row[:, None] == np.arange(parts)).T.astype(float) @ errors
