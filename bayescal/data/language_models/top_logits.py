"""Truncated logits: the top logits of each row, and the log-sum-exp of all others.

They come as a tuple ``(indices (n, m), logits (n, m), rest (n,))`` and are packed into one array,
so that they can be handled like other rows of scores. A packed row holds m logits, the logit of
each other class (unless m = k), and m indices.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bayescal._core.arrays import AnyArray, Array, XArray, device, namespace, on_host
from bayescal._core.numerics import differences, softmax
from bayescal.data.checks import as_numpy, check_finite, precision
from bayescal.data.rows import Rows
from bayescal.data.scores import bounded

_WANTED = "a tuple (indices (n, m), logits (n, m), rest (n,)) for inputs='top_logits'"


class Top(NamedTuple):
    """The content of packed rows, in arrays of any library."""

    #: Logits of the top classes, then the logit of each other class, if there are any.
    x: AnyArray
    #: Indices of the top classes (n, m).
    indices: AnyArray
    #: Number of other classes.
    others: int


class PackedRows(Rows):
    """Rows in memory whose scores are packed."""

    @property
    def largest(self) -> float:
        """The greatest absolute logit."""
        x = self.scores[:, : -(self.scores.shape[1] // 2)]
        return float(max(x.max(), -x.min()))


def pack(scores: AnyArray, k: int) -> np.ndarray:
    """Check truncated logits, and pack them into rows (n, 2 m + 1), or (n, 2 k) if m = k."""
    indices, logits, rest = (
        as_numpy(part, name)
        for part, name in zip(parts_of(scores), ("indices", "logits", "rest"), strict=True)
    )
    if logits.ndim != 2 or not logits.size:
        raise ValueError(f"logits must have shape (n, m), and rows, got {logits.shape}")
    if indices.shape != logits.shape or rest.shape != logits.shape[:1]:
        raise ValueError(
            f"scores must be {_WANTED}, got shapes {indices.shape}, {logits.shape}, {rest.shape}"
        )
    m = logits.shape[1]
    if indices.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, got {indices.dtype}")
    low, high = int(indices.min()), int(indices.max())
    if low < 0 or high >= k or m > k:
        raise ValueError(
            f"indices must be different ones of 0, ..., {k - 1} in each row, got "
            f"{m if m > k else low if low < 0 else high}{' of them' if m > k else ''}; "
            "classes says how many there are"
        )
    check_finite(logits, "logits")
    wide = bounded(logits.astype(float))
    if m == k:
        if not np.isneginf(rest).all():
            raise ValueError(
                f"rest must be -inf if all {k} classes are given, since there are no others, "
                f"got {rest[~np.isneginf(rest)][0]:g}"
            )
        return np.concatenate([wide, indices], axis=1, dtype=float)
    if np.isneginf(rest).any():
        raise ValueError(
            f"rest must be finite unless all {k} classes are given, got -inf; pass the log-sum-exp "
            "of the other logits, computed before any filter removes them"
        )
    check_finite(rest, "rest")
    if (
        (np.abs(rest) < 1e-3).all()
        and (wide <= 0).all()
        and (np.exp(wide).sum(axis=1) > 0.01).any()
    ):
        raise ValueError(
            "rest must be the log-sum-exp of the other logits alone, got 0 in all rows, which is "
            "that of all log probabilities; bayescal.top_logprobs(indices, logprobs) computes it"
        )
    other = bounded(rest.astype(float)) - math.log(k - m)
    most = wide.max(axis=1)
    eps = max(precision(logits.dtype), precision(rest.dtype))
    above = other - most > 1e-3 + 4 * eps * np.maximum(np.abs(most), np.abs(other))
    if above.any():
        row = int(np.argmax(above))
        raise ValueError(
            f"logits must hold the largest of each row, got {most[row]:g} as the largest of row "
            f"{row}, whose {k - m} others are {other[row]:g} on average by rest; rest must be the "
            "log-sum-exp of the other logits only"
        )
    return np.concatenate([wide, other[:, None], indices], axis=1, dtype=float)


def parts_of(scores: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices, logits and rest of truncated logits, or raise."""
    if not isinstance(scores, tuple) or len(scores) != 3:
        size = f" of {len(scores)}" if isinstance(scores, tuple) else ""
        raise TypeError(f"scores must be {_WANTED}, got {type(scores).__name__}{size}")
    return scores


def check_distinct(rows: np.ndarray, k: int) -> None:
    """Raise if an index is repeated in a packed row."""
    indices = np.sort(unpack(rows, k).indices, axis=1)
    same = indices[:, 1:] == indices[:, :-1]
    if same.any():
        row, column = np.argwhere(same)[0]
        raise ValueError(
            f"indices must be different ones in each row, got {indices[row, column]} twice in row "
            f"{row}"
        )


def pack_anywhere(indices: Array, logits: AnyArray, rest: Array, k: int) -> Array:
    """Pack arrays of any library on their device; only shapes are checked."""
    xp = namespace(logits)
    if logits.ndim != 2 or tuple(indices.shape) != tuple(logits.shape) or rest.ndim != 1:
        shapes = ", ".join(str(tuple(part.shape)) for part in (indices, logits, rest))
        raise ValueError(f"scores must be {_WANTED}, got shapes {shapes}")
    parts = [bounded(logits)]
    if logits.shape[1] < k:
        other = bounded(xp.astype(rest, parts[0].dtype)) - math.log(k - logits.shape[1])
        parts.append(other[:, None])
    return xp.concat([*parts, xp.astype(indices, parts[0].dtype)], axis=1)


def unpack(rows: Array, k: int, unit: float = 1.0) -> Top:
    """Unpack rows, with logits divided by a unit."""
    m = rows.shape[1] // 2
    inside, xp = m + rows.shape[1] % 2, namespace(rows)
    x = rows[:, :inside]
    indices = xp.astype(rows[:, inside:], xp.int64 if on_host(rows) else xp.int32)
    return Top(x if unit == 1 else x / unit, indices, k - m)


def offsets(top: Top) -> np.ndarray:
    """Return offsets (c,) of logits: log(k - m) for the last, which stands for other classes."""
    c, m = top.x.shape[1], top.indices.shape[1]
    values = [0.0] * m + [math.log(max(top.others, 1))] * (c - m)
    return namespace(top.x).asarray(values, dtype=top.x.dtype, device=device(top.x))


def top_probabilities(top: Top, inverse: XArray | float) -> XArray:
    """Return softmax(s x + log(k - m) [others]) (n, c), for an s that is not negative."""
    below, xp = differences(top.x), namespace(top.x)
    most = float(xp.finfo(below.dtype).max)
    # Zero times an infinite inverse would be NaN.
    bound = namespace(inverse).minimum if hasattr(inverse, "dtype") else min
    return softmax(below * bound(inverse, most) + offsets(top))


def label_columns(top: Top, y: np.ndarray) -> np.ndarray:
    """Return the column (n,) of each label's logit: the last one if the label is not on top."""
    hit = top.indices == y[:, None]
    return np.where(hit.any(axis=1), hit.argmax(axis=1), top.x.shape[1] - 1)
