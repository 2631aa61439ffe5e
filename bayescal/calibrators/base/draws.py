"""Functions of rows in blocks, and averages of predictions over posterior draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from statistics import NormalDist

import numpy as np

from bayescal._core.arrays import (
    AnyArray,
    AnyModel,
    Namespace,
    State,
    XArray,
    matmul,
    namespace,
    on_host,
    wide,
)
from bayescal._core.execution.chunks import even_block, slices
from bayescal._core.lazy import jax
from bayescal._core.numerics import normal_cdf, sigmoid

#: Numbers per block: in fits; in predictions on CPUs, near the size of a cache; on accelerators.
_FIT_BLOCK, _BLOCK, _LARGE_BLOCK = 1 << 20, 1 << 18, 1 << 26
#: Steps of bisection for a quantile.
_BISECTIONS = 40


def row_blocks(m: int, width: int) -> list[slice]:
    """Split m rows of ``width`` numbers into slices of about a million numbers."""
    return slices(m, max(1, _FIT_BLOCK // width))


def map_rows(function: Callable[[AnyArray], AnyArray], rows: AnyArray, width: int) -> AnyArray:
    """Apply a function to rows (m, ...) in blocks; it holds ``width`` numbers per row.

    Results have rows on their first axis. The function receives NumPy rows in float64. In JAX the
    blocks are a loop of the compiled program.
    """
    m = rows.shape[0]
    size = max(1, _block_size(rows) // max(1, width))
    # Compiled programs need no blocks if they hold little more than the rows. The number of rows
    # is symbolic in programs that are exported for any number of rows.
    little = not on_host(rows) and width <= 2 * math.prod(rows.shape[1:])
    if little or not isinstance(m, int) or m <= size:
        return function(wide(rows))
    if isinstance(rows, jax.Array):
        xp = namespace(rows)
        size = even_block(m, size)
        count = -(-m // size)
        filled = xp.concat([rows, xp.broadcast_to(rows[-1:], (count * size - m, *rows.shape[1:]))])
        results = jax.lax.map(function, filled.reshape(count, size, *rows.shape[1:]))
        return results.reshape(count * size, *results.shape[2:])[:m]
    parts = (function(wide(rows[part, ...])) for part in slices(m, size))
    if not on_host(rows):
        return namespace(rows).concat([*parts])
    # Fill one array in place, so that the results are held only once.
    first = next(parts)
    results = np.empty((m, *first.shape[1:]), first.dtype)
    for part, block in zip(slices(m, size), chain([first], parts), strict=True):
        results[part] = block
    return results


def _block_size(rows: AnyArray) -> int:
    if on_host(rows):
        return _BLOCK
    if isinstance(rows, jax.Array):
        return _BLOCK if jax.default_backend() == "cpu" else _LARGE_BLOCK
    return _BLOCK if "cpu" in str(getattr(rows, "device", "cpu")).lower() else _LARGE_BLOCK


def over_draws(
    estimator: AnyModel,
    state: State,
    scores: XArray,
    reduce: Callable[[AnyArray], AnyArray],
    curves: Callable[..., AnyArray] | None = None,
) -> XArray:
    """Reduce the probabilities (draws, m, k) of all parameter draws, in blocks of rows.

    ``curves(state, theta, rows)`` computes other values (draws, m, ...) than probabilities.
    """
    draws = state["theta_draws"]
    theta = namespace(draws).reshape(draws, (-1, draws.shape[-1]))
    width = math.prod(draws.shape[:-1]) * estimator._width(state, scores)
    compute = curves or estimator._curves
    return map_rows(lambda rows: reduce(compute(state, theta, rows)), scores, width)


def mean_of_draws(curves: XArray) -> XArray:
    """Average probabilities (draws, m, k) over draws."""
    return namespace(curves).mean(curves, axis=0)


def ends_of_draws(curves: AnyArray, level: float) -> AnyArray:
    """Compute the ends (m, 2, k) of central intervals of probabilities (draws, m, k)."""
    xp = namespace(curves)
    tails = (1 - level) / 2, (1 + level) / 2
    if on_host(curves):
        return np.moveaxis(np.quantile(curves, tails, axis=0), 0, 1)
    ordered = xp.sort(curves, axis=0)
    return _interpolate(xp, lambda i: ordered[i, ...], _positions(level, curves.shape[0]))


def ends_of_log_odds(log_odds: AnyArray, level: float) -> AnyArray:
    """Compute the ends (m, 2, 2) of central intervals from log odds (draws, m) of two classes.

    Probabilities increase with the log odds, so only the draws next to an end are converted.
    """
    xp, last = namespace(log_odds), log_odds.shape[0] - 1
    positions = _positions(level, last + 1)
    if on_host(log_odds):
        # The probability of class 0 has the opposite order.
        needed = {i for low, high, _ in positions for i in (low, high, last - low, last - high)}
        ordered: AnyArray = np.partition(log_odds, sorted(needed), axis=0)
    else:
        ordered = xp.sort(log_odds, axis=0)

    def at(i: int) -> AnyArray:
        return xp.stack([sigmoid(-ordered[last - i, ...]), sigmoid(ordered[i, ...])], axis=-1)

    return _interpolate(xp, at, positions)


def _interpolate(
    xp: Namespace, at: Callable[[int], AnyArray], positions: list[tuple[int, int, float]]
) -> AnyArray:
    """Compute the ends (m, 2, k) of an interval from the ordered draws ``at(rank)`` (m, k)."""
    ends = []
    for low, high, part in positions:
        first, second = at(low), at(high)
        # Rounding must not lift the lower end of equal draws above the upper one.
        ends.append(xp.minimum(first + part * (second - first), second))
    return xp.stack(ends, axis=1)


def _positions(level: float, count: int) -> list[tuple[int, int, float]]:
    """Return, for both ends of an interval, the ranks of two draws and the second one's weight."""
    positions = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        low = min(int(tail * (count - 1)), max(count - 2, 0))
        positions.append((low, min(low + 1, count - 1), tail * (count - 1) - low))
    return positions


def mixture_quantile(weights: XArray, mean: XArray, spread: XArray, level: float) -> XArray:
    """Compute quantiles (m,) of mixtures of normal distributions (c, m) by bisection."""
    xp = namespace(mean)
    quantiles = mean + NormalDist().inv_cdf(level) * spread
    low, high = xp.min(quantiles, axis=0), xp.max(quantiles, axis=0)
    weights = weights / xp.sum(weights)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = matmul(weights, normal_cdf((middle - mean) / spread)) < level
        low, high = xp.where(below, middle, low), xp.where(below, high, middle)
    return (low + high) / 2
