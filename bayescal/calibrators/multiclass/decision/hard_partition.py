"""Linear partitions without soft borders: each row belongs to one part alone.

A row changes sides once while one part's linear function moves along a line. So the violation at
every place of that line takes one sort and cumulative sums, and the best place is exact.
"""

from __future__ import annotations

import numpy as np

#: How often all lines are tried at most, after which rise of a round (as a share) no more, and
#: which rise is none.
_ROUNDS, _ENOUGH, _RISE = 4, 1e-3, 1e-9
#: Crossings closer than this, relatively, are one: rounding could not keep them apart.
_APART = 1e-9


def hard_violation(own: np.ndarray, errors: np.ndarray, parts: int) -> float:
    """Return the sum of the norms of the parts' mean errors; ``own`` (n,) are parts of rows."""
    return float(np.linalg.norm(_sums(own, errors, parts), axis=1).sum())


def improve(
    functions: np.ndarray, rows: np.ndarray, errors: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return linear functions (d, k + 1) with a violation that is not less, and the violation.

    Rows (n, k) belong to the part of the greatest function. Each function moves along its own
    coefficients and as many random lines, to the best place on each, until none helps.
    """
    parts, count = functions.shape
    points = np.column_stack([rows, np.ones(len(rows))])
    best = functions / np.linalg.norm(functions)
    violation = hard_violation((points @ best.T).argmax(axis=1), errors, parts)
    # Of two parts only the difference of their functions counts.
    movable = range(1 if parts == 2 else parts if parts > 1 else 0)
    for _ in range(_ROUNDS):
        before = violation
        for part in movable:
            for line in np.vstack([np.eye(count), rng.normal(size=(count, count))]):
                promised, place = _best_place(points, errors, best, part, line)
                if promised <= violation * (1 + _RISE):
                    continue
                moved = best.copy()
                moved[part] += place * line
                found = hard_violation((points @ moved.T).argmax(axis=1), errors, parts)
                if found > violation * (1 + _RISE):
                    best, violation = moved / np.linalg.norm(moved), found
        if violation <= before * (1 + _ENOUGH):
            break
    return best, violation


def _best_place(
    points: np.ndarray, errors: np.ndarray, functions: np.ndarray, part: int, line: np.ndarray
) -> tuple[float, float]:
    """Return the greatest violation on a line, and how far along it a function is to move."""
    values, parts = points @ functions.T, len(functions)
    own = values[:, part].copy()
    values[:, part] = -np.inf
    other = values.argmax(axis=1)
    lead = values.max(axis=1) - own
    slope = points @ line
    moving = np.abs(slope) > 1e-12 * np.abs(slope).max(initial=1.0)
    if not moving.any():
        return 0.0, 0.0
    places = lead[moving] / slope[moving]
    order = np.argsort(places, kind="stable")
    places = places[order]
    # At first, infinitely far back, a part holds what its function is greatest of there.
    inside = np.where(moving, slope < 0, lead < 0)
    start = _sums(np.where(inside, part, other), errors, parts)
    passed = (np.sign(slope)[:, None] * errors)[moving][order]
    left, total = other[moving][order], np.zeros(len(places) + 1)
    for each in range(parts):
        change = passed if each == part else -passed * (left == each)[:, None]
        sums = np.vstack([start[each], start[each] + np.cumsum(change, axis=0)])
        total += np.sqrt(np.einsum("ij,ij->i", sums, sums))
    # Between two crossings, or beyond all of them.
    wide = np.diff(places) > _APART * (1 + np.abs(places[1:]))
    total[1:-1][~wide] = -np.inf
    first = int(np.argmax(total >= total.max() * (1 - _RISE)))
    low = places[first - 1] if first > 0 else places[0] - 2 * (1 + abs(places[0]))
    high = places[first] if first < len(places) else places[-1] + 2 * (1 + abs(places[-1]))
    return float(total.max()), float((low + high) / 2)


def _sums(own: np.ndarray, errors: np.ndarray, parts: int) -> np.ndarray:
    """Return the sums of errors (d, k) of parts."""
    return (own[:, None] == np.arange(parts)).T.astype(float) @ errors
