"""Sums of a smooth function over many points, as sums over few nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bayescal._core.arrays import namespace, on_host
from bayescal._core.lazy import jnp
from bayescal._core.shapes import Bool, Float
from bayescal.data.rows import Rows, Source, Sums

_PIECES, _DEGREE = 96, 7
#: Number of nodes.
NODES = _PIECES * (_DEGREE + 1)
#: Rows that are counted at once.
_ROWS_AT_ONCE = 1 << 17


def compress(
    points: Float[np.ndarray, " rows"], weights: Float[np.ndarray, " rows"]
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Return nodes and weights that give the same sum of any smooth function f.

    The range is cut into pieces of equal width in asinh of the standardized points, in which f is
    interpolated at Chebyshev nodes; the result is exact for piecewise polynomials of degree seven.
    """
    center = np.median(points)
    spread = np.median(np.abs(points - center))
    spread = spread if spread > 0 else 1.0
    t = np.arcsinh((points - center) / spread)
    edges = np.linspace(t.min(), t.max(), _PIECES + 1)
    piece = np.clip(np.searchsorted(edges, t, side="right") - 1, 0, _PIECES - 1)
    bounds = center + spread * np.sinh(edges)
    low, high = bounds[:-1], bounds[1:]
    width = np.where(high > low, high - low, 1.0)
    inside = np.clip(2 * (points - low[piece]) / width[piece] - 1, -1, 1)
    order = np.arange(_DEGREE + 1)
    local = np.cos((2 * order + 1) * np.pi / (2 * _DEGREE + 2))
    # The polynomial of a node as a sum of Chebyshev polynomials, by discrete orthogonality.
    terms = np.cos(order[:, None] * np.arccos(local))
    to_nodes = 2 * terms / (_DEGREE + 1)
    to_nodes[0] /= 2
    moments = np.empty((_DEGREE + 1, _PIECES))
    before, now = np.zeros_like(inside), weights
    for k in order:
        moments[k] = np.bincount(piece, now, minlength=_PIECES)
        before, now = now, (inside * now if k == 0 else 2 * inside * now - before)
    nodes = low + (local[:, None] + 1) / 2 * width
    return nodes.ravel(), (to_nodes.T @ moments).ravel()


def gauss_points(
    z: Float[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
    starts: Bool[np.ndarray, " rows"],
) -> Float[np.ndarray, "2 nodes"]:
    """Compute nodes and weights of sorted rows in cells, two nodes for each cell at most.

    ``starts`` marks the first row of each cell. In each cell, sums of cubic functions over the
    nodes equal those over the rows.
    """
    cell = np.cumsum(starts) - 1

    def add(values: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " cells"]:
        return np.bincount(cell, values)

    first = z[starts]
    total = add(weight)
    away = z - first[cell]
    mean = add(weight * away) / total
    deviation = away - mean[cell]
    squares = weight * deviation**2
    spread = np.sqrt(add(squares) / total)
    is_double = spread > 1e-9 * (1 + abs(first))
    unit = np.where(is_double, spread, 1.0)
    skewness = add(squares * deviation) / (total * unit**3)
    root = np.sqrt(1 + skewness**2 / 4)
    center, unit = first + mean, np.where(is_double, spread, 0.0)
    above = np.where(is_double, total * (1 - skewness / (2 * root)) / 2, 0.0)
    low = np.stack([center + unit * (skewness / 2 - root), total - above])
    high = np.stack([center + unit * (skewness / 2 + root), above])
    return np.concatenate([low, high[:, is_double]], axis=1)


def count_in_bins(rows: Source, bins: int, far: float) -> Rows:
    """Replace the rows of a class in each bin by their mean, which has their weight.

    Log odds (n,), clipped to ``far``, are counted in ``bins`` of each class, evenly spaced in
    asinh. Classes follow one another, each in ascending order.
    """
    low, high = np.arcsinh(np.clip(rows.ends, -far, far))
    unit = (bins - 1) / (high - low) if high > low else 0.0
    sums = rows.total(partial(_bin_sums, bins, far, low, unit), numbers=_ROWS_AT_ONCE)
    used = np.flatnonzero(sums["weight"])
    weight = sums["weight"][used]
    return Rows(sums["moment"][used] / weight, (used >= bins).astype(int), weight)


def _bin_sums(bins: int, far: float, low: float, unit: float, rows: Rows) -> Sums:
    """Sum the weights and the weighted log odds in the bins of both classes."""
    z = namespace(rows.scores).clip(rows.scores, -far, far)
    xp: Any = np if on_host(z) else jnp
    index = ((xp.arcsinh(z) - low) * unit).astype(np.int32) + bins * (rows.y > 0)
    mass = xp.asarray(rows.weights)
    terms = {"weight": mass, "moment": mass * z}
    return {key: np.asarray(xp.bincount(index, term, 2 * bins)) for key, term in terms.items()}
