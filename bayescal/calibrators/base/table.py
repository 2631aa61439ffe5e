"""Tables of smooth curves with kinks: polynomials on pieces, with buckets for look-up.

The variable of a table is t = asinh(z), in which curves of log odds have similar detail everywhere.
Pieces end at the kinks of the curve, and are halved until the polynomial on each of them is as
accurate as required between its nodes. Buckets of equal width lead to the piece of a score.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import array_api_compat
import numpy as np

from bayescal._core.arrays import XArray, namespace
from bayescal._core.numerics import clip
from bayescal.calibrators.base.calibrator import State

#: Degree of the polynomials. A table begins with this many pieces, besides those between kinks.
_DEGREE, _PIECES = 7, 32
#: Largest error of a probability where it is checked, relative to p (1 - p) of at least this.
_TOLERANCE, _LEAST_VARIANCE = 1e-10, 1e-2
#: Kinks at this distance are one. Pieces are neither divided below this width, nor more often, nor
#: if there are more of them, so that noise does not divide all pieces again and again.
_EQUAL, _NARROW, _MAX_HALVINGS, _MAX_PIECES = 1e-10, 1e-8, 30, 1 << 14
#: Fewest and most buckets, and the number of further pieces in a bucket that is low enough.
_FEWEST_BUCKETS, _MOST_BUCKETS, _FEW_PIECES = 1 << 10, 1 << 13, 3
#: Chebyshev's nodes in [-1, 1], and the points where errors are largest: ends and between nodes.
_NODES = np.cos((2 * np.arange(_DEGREE + 1) + 1) * np.pi / (2 * _DEGREE + 2))
_CHECKS = np.cos(np.array([0, 2, 4, 6, 8]) * np.pi / (_DEGREE + 1))
_TO_COEFFICIENTS = np.linalg.inv(np.vander(_NODES, increasing=True))
_TO_CHECKS = np.vander(_CHECKS, _DEGREE + 1, increasing=True)


def tabulate(
    log_odds: Callable[[np.ndarray], np.ndarray], kinks: np.ndarray, far: float
) -> tuple[State, bool]:
    """Tabulate a curve of log odds over scores (m,) in [-far, far], with kinks at some scores.

    Probabilities have errors below 1e-10 midway between nodes; those of less than 1 % have a
    relative error below 1e-8. Also returns whether the first bound holds: a very steep curve would
    need narrower pieces than the smallest allowed.
    """
    end = np.arcsinh(far)
    edges = np.concatenate([np.linspace(-end, end, _PIECES + 1), np.arcsinh(kinks)])
    edges = np.unique(edges[abs(edges) <= end])
    edges = edges[np.append(np.diff(edges) > _EQUAL, True)]
    edges[0] = -end
    low, high, done, accurate = edges[:-1], edges[1:], [], True
    at = np.concatenate([_NODES, _CHECKS])[:, None]
    for halvings in count():
        t = (low + high) / 2 + (high - low) / 2 * at
        values = log_odds(np.sinh(t.ravel())).reshape(t.shape)
        coef, exact = _TO_COEFFICIENTS @ values[: _DEGREE + 1], values[_DEGREE + 1 :]
        small = np.exp(-abs(exact))
        variance, error = small / (1 + small) ** 2, abs(_TO_CHECKS @ coef - exact)
        of_probs = (error * variance).max(axis=0)
        error = (error * np.maximum(variance, _LEAST_VARIANCE)).max(axis=0)
        divided = (high - low > _NARROW) & (halvings < _MAX_HALVINGS) & (len(low) < _MAX_PIECES)
        accurate &= bool(((of_probs <= _TOLERANCE) | divided).all())
        rough = (error > _TOLERANCE) & divided
        done.append(np.vstack([low, high, coef])[:, ~rough])
        if not rough.any():
            break
        low, middle, high = low[rough], ((low + high) / 2)[rough], high[rough]
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    pieces = np.concatenate(done, axis=1)
    low, high, *coef = pieces[:, np.argsort(pieces[0])]
    first, steps = _buckets(low, end)
    table = {
        "table_first": first,
        "table_steps": np.asarray(steps),
        "table_end": np.asarray(end),
        "table_far": np.asarray(far),
        # Padded, so that a search may look beyond the last piece.
        "table_low": np.append(low, np.full(2**steps, np.inf)),
        "table_unit": np.stack([2 / (high - low), -(low + high) / (high - low)]),
        "table_coef": np.stack(coef),
    }
    return table, accurate


def _buckets(low: np.ndarray, end: float) -> tuple[np.ndarray, int]:
    """Return the first piece of each bucket, and the steps of a search among its pieces."""
    count = _FEWEST_BUCKETS
    while True:
        border = np.linspace(-end, end, count + 1)
        piece = np.maximum(np.searchsorted(low, border, "right") - 1, 0)
        further = int(np.diff(piece).max())
        if further <= _FEW_PIECES or count == _MOST_BUCKETS:
            return piece[:-1].astype(np.int32), further.bit_length()
        count *= 2


def look_up(table: State, z: XArray) -> XArray:
    """Return the log odds (m,) at scores (m,) of any library."""
    xp: Any = namespace(z)
    first, end, far = table["table_first"], table["table_end"], table["table_far"]
    # Not every library has asinh in double precision.
    z = clip(z, -far, far)
    size = abs(z)
    t = clip(xp.sign(z) * xp.log(size + xp.sqrt(size * size + 1)), -end, end)
    count = first.shape[0]
    # Without double precision JAX has only 32-bit integers; other libraries need 64 bits.
    index = xp.int32 if array_api_compat.is_jax_namespace(xp) else xp.int64
    bucket = xp.astype((t + end) * (count / (2 * end)), index)
    piece = xp.astype(xp.take(first, clip(bucket, 0, count - 1), axis=0), index)
    for step in reversed(range(int(table["table_steps"]))):
        beyond = t >= xp.take(table["table_low"], piece + 2**step, axis=0)
        piece = piece + 2**step * xp.astype(beyond, piece.dtype)
    unit, coef = (xp.take(table[name], piece, axis=1) for name in ("table_unit", "table_coef"))
    u, line = t * unit[0, ...] + unit[1, ...], coef[_DEGREE, ...]
    for power in reversed(range(_DEGREE)):
        line = line * u + coef[power, ...]
    return line
