"""Piecewise polynomial interpolation of a smooth function on nodes, with a check of its error.

Nodes are equally spaced in t = asinh((z - center) / scale): nearly uniform where most points lie,
and ever wider towards outliers, which do not move center and scale. Between nodes it evaluates the
polynomial of degree five through the six nearest values, so that halving the spacing divides the
error by about 64.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float, Shaped

#: Arrays by their axes.
Nodes: TypeAlias = 'Float[jax.Array, " nodes"]'
Points: TypeAlias = 'Float[jax.Array, " points"]'

_POINTS = 6
_SAMPLE = 4096
# Row r of the inverse Vandermonde matrix turns six values at 0..5 into the coefficient of u**r.
_TO_COEFFICIENTS = np.linalg.inv(np.vander(np.arange(_POINTS, dtype=float), increasing=True))


class Grid(NamedTuple):
    """Nodes equally spaced between ``first`` and ``first + step * intervals`` in t."""

    center: Float[jax.Array, ""]
    scale: Float[jax.Array, ""]
    first: Float[jax.Array, ""]
    step: Float[jax.Array, ""]


def center_and_scale(z: Shaped[np.ndarray, " *points"]) -> Float[np.ndarray, " 2"]:
    """Return the median and the scale of the points ``z``, from at most about 4,096 of them.

    The scale is the median distance from the median, without ties, times 1.4826, so that it is the
    standard deviation of a normal sample.
    """
    sample = z.ravel()[:: -(-z.size // _SAMPLE)].astype(np.float64)
    center = np.median(sample)
    away = np.abs(sample - center)
    away = away[away > 0]
    return np.array([center, 1.4826 * np.median(away) if away.size else 1.0])


def make_grid(
    z: Float[jax.Array, " *points"], bulk: Float[jax.Array, " 2"], intervals: int
) -> tuple[Grid, Nodes]:
    """Make a grid that covers the points ``z``; return it and its ``intervals + 1`` nodes.

    ``bulk`` is what ``center_and_scale`` returns.
    """
    center, scale = bulk[0], bulk[1]
    low = jnp.arcsinh((jnp.min(z) - center) / scale)
    high = jnp.arcsinh((jnp.max(z) - center) / scale)
    step = jnp.maximum(high - low, 1e-6) / intervals
    nodes = center + scale * jnp.sinh(low + step * jnp.arange(intervals + 1, dtype=z.dtype))
    return Grid(center, scale, low, step), nodes


def interpolate(grid: Grid, values: Nodes, z: Points) -> Points:
    """Evaluate the piecewise polynomial through ``values`` (nodes,) at points ``z`` (m,).

    O(m) time and memory; the table of coefficients has six entries for each node.
    """
    return _evaluate(values, (jnp.arcsinh((z - grid.center) / grid.scale) - grid.first) / grid.step)


def _evaluate(values: Nodes, position: Points) -> Points:
    """Evaluate the polynomials at positions (m,) between the nodes 0, 1, ..."""
    count = values.shape[0] - _POINTS + 1
    windows = jnp.stack([values[c : c + count] for c in range(_POINTS)])
    rows = jnp.matmul(jnp.asarray(_TO_COEFFICIENTS, values.dtype), windows, precision="highest")
    left = jnp.clip(jnp.floor(position).astype(jnp.int32) - (_POINTS // 2 - 1), 0, count - 1)
    u = position - left.astype(position.dtype)
    result = rows[-1][left]
    for power in range(_POINTS - 2, -1, -1):
        result = result * u + rows[power][left]
    return result


def interpolation_error(values: Nodes) -> tuple[Float[jax.Array, ""], Float[jax.Array, ""]]:
    """Estimate the interpolant's largest errors, in probability and in log odds, from its nodes.

    ``values`` are log odds (nodes,) on a grid whose number of intervals is a multiple of four. The
    errors are those with half of the nodes, times the factor by which they fell when the spacing
    was last halved, at least a quarter: for a smooth curve the next halving divides them by 64.
    """
    pairs = zip(left_out_error(values), left_out_error(values[::2]), strict=True)
    miss, log_miss = (
        fine * jnp.clip(fine / jnp.where(coarse > 0, coarse, 1), 1 / 4, 1) for fine, coarse in pairs
    )
    return miss, log_miss


def left_out_error(values: Nodes) -> tuple[Float[jax.Array, ""], Float[jax.Array, ""]]:
    """Interpolate log odds (nodes,) from every other node; return the largest errors in between.

    The first error is in probability, the second in log odds; the number of intervals is even.
    """
    truth = values[1::2]
    guess = _evaluate(values[::2], jnp.arange(truth.shape[0], dtype=values.dtype) + 0.5)
    miss = jnp.max(jnp.abs(jax.nn.sigmoid(guess) - jax.nn.sigmoid(truth)))
    return miss, jnp.max(jnp.abs(guess - truth))
