"""Hard linear partitions, in which every row belongs to one part.

If the linear function of one part moves along a line, every row changes sides at most once. One
sort and cumulative sums therefore give the violation at all positions on the line, and the exact
optimum.
"""

from __future__ import annotations

import numpy as np

from bayescal._core.shapes import Float, Int

#: Maximal number of rounds over all lines, relative increase of a round below which the search
#: stops, and relative increase that counts as rounding error.
_MAX_ROUNDS, _MIN_GAIN, _ROUNDING = 4, 1e-3, 1e-9
#: Relative distance below which crossings are equal up to rounding.
_SAME_CROSSING = 1e-9


def hard_violation(
    part_of_row: Int[np.ndarray, " rows"], errors: Float[np.ndarray, "rows classes"], parts: int
) -> float:
    """Compute the sum of the norms of the mean errors of parts, from the part (n,) of rows."""
    return float(np.linalg.norm(_sums(part_of_row, errors, parts), axis=1).sum())


def improve(
    functions: Float[np.ndarray, "parts 1+classes"],
    rows: Float[np.ndarray, "rows classes"],
    errors: Float[np.ndarray, "rows classes"],
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
    part_of_row: Int[np.ndarray, " rows"], errors: Float[np.ndarray, "rows classes"], parts: int
) -> Float[np.ndarray, "parts classes"]:
    """Sum the errors (d, k) of the rows of each part."""
    return (part_of_row[:, None] == np.arange(parts)).T.astype(float) @ errors
