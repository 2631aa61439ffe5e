"""Gaussian kernel density estimates, streamed in blocks of observations and of points.

An estimate is described by data (n, d); weights (n,), where zeros mark padding; and a scale: the
standard deviations (d,) of the kernel along the features, or the lower triangular Cholesky factor
(d, d) of its covariance. All functions except :func:`kernel_log_density` are pure JAX, to be mapped
and compiled by the caller. No array of size (n, m) is stored: memory is O(block + n + m).
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Literal, cast

import numpy as np

from bayescal._core.arrays import ArrayT
from bayescal._core.execution.chunks import even_block, sum_sizes
from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import bulk_dtype, float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import effective_size, subtract_maximum
from bayescal._core.shapes import Float, Shaped

Rule = Literal["silverman", "scott", "cv", "number"]
Covariance = Literal["full", "diagonal", "unit"]

#: Number of features up to which distances are one fused expression instead of a loop.
_UNROLLED_FEATURES = 8
#: Multiples of Silverman's factor that cross-validation compares, in steps of a factor 2**(1/4).
_GRID = 2.0 ** np.linspace(-3, 3, 25)


def size_of_shares(weights: Float[jax.Array, " rows"]) -> Float[jax.Array, ""]:
    """Compute Kish's size (sum w)**2 / sum w**2, for weights with any sum; 0 without weight."""
    top = jnp.max(weights)
    relative = weights / jnp.where(top > 0, top, 1)
    return effective_size(jnp.sum(relative), jnp.sum(relative**2), jnp)


def counted_size(weights: Float[jax.Array, " rows"]) -> Float[jax.Array, ""]:
    """Compute the size if weights count repetitions: their sum, or Kish's size if that is larger.

    Kish's size is larger only if weights are below one, for example if they sum to one.
    """
    return jnp.maximum(jnp.sum(weights), size_of_shares(weights))


def silverman_bandwidth(size: Float[jax.Array, ""], dimensions: int) -> Float[jax.Array, ""]:
    """Compute Silverman's factor (N (d + 2) / 4)**(-1 / (d + 4)), where N is at least one."""
    return (jnp.maximum(size, 1) * ((dimensions + 2) / 4)) ** (-1 / (dimensions + 4))


def scott_bandwidth(size: Float[jax.Array, ""], dimensions: int) -> Float[jax.Array, ""]:
    """Compute Scott's factor N**(-1 / (d + 4)), where N is at least one."""
    return jnp.maximum(size, 1) ** (-1 / (dimensions + 4))


def data_scale(
    x: Float[ArrayT, "rows features"],
    weights: Float[ArrayT, " rows"],
    size: Float[ArrayT, ""] | float,
    unit: Float[ArrayT, " features"] | float,
    covariance: Covariance = "full",
    xp: ModuleType = jnp,
) -> Float[ArrayT, " features"] | Float[ArrayT, "features features"]:
    """Compute the scale of data (n, d) with weights (n,), which a bandwidth factor multiplies.

    "full" returns the lower Cholesky factor (d, d) of the covariance if d is more than one.
    Otherwise, and for "diagonal", the scale is standard deviations (d,); for "unit" it is ``unit``
    (d,). ``unit`` is also the scale of a constant feature, such as that of a single observation.
    ``size`` is N in the unbiased variance: the weighted mean square divided by 1 - 1/N. If features
    are linearly dependent or outnumber the observations, a ridge of eps**0.75 on the correlations
    keeps the factor regular. ``xp`` is ``jax.numpy``, or NumPy for standard deviations.
    """
    if covariance == "unit":
        return cast(ArrayT, unit)
    real = weights > 0
    total = xp.sum(weights)
    proportion = weights / xp.where(total > 0, total, 1)
    low, high = _range(x, weights, xp)
    varies = high > low
    # In units of the range no square underflows, and constant features are exactly constant.
    spread = xp.where(varies, high - low, 1)
    inside = xp.where(real[:, None] & varies, (x - low) / spread, 0)
    gap = xp.where(real[:, None], inside - proportion @ inside, 0)
    unbiased = 1 / xp.where(size > 1, 1 - 1 / size, 1)
    variance = xp.where(varies, unbiased * (proportion @ gap**2), 1)
    # If weights differ beyond all digits, no variance would remain.
    deviation = xp.sqrt(xp.maximum(variance, xp.finfo(x.dtype).tiny))
    scale = xp.where(varies, deviation * spread, unit)
    d = x.shape[1]
    if covariance == "diagonal" or d == 1:
        return scale
    standard = gap / deviation
    products = jnp.matmul((standard * proportion[:, None]).T, standard, precision="highest")
    ridge = float(jnp.finfo(x.dtype).eps) ** 0.75
    correlation = jnp.where(jnp.eye(d, dtype=bool), 1, (1 - ridge) * unbiased * products)
    return scale[:, None] * jnp.linalg.cholesky(correlation)


def cross_validated_bandwidth(
    x: Float[jax.Array, "rows features"],
    weights: Float[jax.Array, " rows"],
    scale: Float[jax.Array, " features"] | Float[jax.Array, "features features"],
    grid: Float[jax.Array, " candidates"],
) -> Float[jax.Array, ""]:
    """Choose the factor in ``grid`` with the largest leave-one-out log likelihood, in O(grid n**2).

    All observations equal to the one being predicted are left out, because tied observations would
    support one another at any small bandwidth. Thus an integer weight equals repetition. If all
    observations are equal, the middle of the grid is chosen.
    """
    points = _whitened(x, scale, _center(x, weights), x.dtype)

    def score(factor: jax.Array) -> tuple[jax.Array, jax.Array]:
        log_sums = _log_sums(points, jnp.log(weights), points, left_out_factor=factor)
        counted = (weights > 0) & jnp.isfinite(log_sums)
        log_density = log_sums - x.shape[1] * jnp.log(factor)
        return jnp.sum(jnp.where(counted, weights * log_density, 0)), jnp.any(counted)

    scores, counted = jax.lax.map(score, grid)
    best = jnp.where(counted[0], jnp.argmax(scores), grid.shape[0] // 2)
    return grid[best]


def gaussian_log_density(
    x: Float[jax.Array, "rows features"],
    weights: Float[jax.Array, " rows"],
    scale: Float[jax.Array, " features"] | Float[jax.Array, "features features"],
    x_new: Float[jax.Array, "points features"],
) -> Float[jax.Array, " points"]:
    """Compute the log density (m,) of a weighted mixture of Gaussian kernels at points (m, d).

    It is finite at any distance, and ``-inf`` only if no kernel has weight. The centers ``x``
    (n, d) must be finite even where their weight is zero; weights may have any sum; ``scale`` is
    the bandwidth factor times the scale of the data. Sums over kernels have the dtype of ``x_new``,
    everything else that of ``x``.
    """
    dtype = x_new.dtype
    center = _center(x, weights)
    points = _whitened(x, scale, center, dtype)
    queries = _whitened(x_new.astype(x.dtype), scale, center, dtype)
    diagonal = scale if scale.ndim == 1 else jnp.diagonal(scale)
    total = jnp.sum(weights)
    log_norm = jnp.log(jnp.where(total > 0, total, 1)) + jnp.sum(jnp.log(diagonal))
    log_norm += x.shape[1] / 2 * np.log(2 * np.pi)
    sums = _log_sums(points, jnp.log(weights).astype(dtype), queries)
    return sums - log_norm.astype(dtype)


def fitted_log_density(
    x: Float[jax.Array, "rows features"],
    weights: Float[jax.Array, " rows"],
    x_new: Float[jax.Array, "points features"],
    number: Float[jax.Array, ""],
    unit: Float[jax.Array, " features"],
    rule: Rule,
    covariance: Covariance,
    counts: bool,
) -> Float[jax.Array, " points"]:
    """Compute the log density (m,) of an estimate whose scale and bandwidth depend on the data.

    The arguments are those of :func:`data_scale` and :func:`gaussian_log_density`; ``number`` is
    the factor for the rule "number"; ``counts`` tells whether weights count repetitions.
    """
    size = counted_size(weights) if counts else size_of_shares(weights)
    scale = data_scale(x, weights, size, unit, covariance)
    factor = number
    if rule == "scott":
        factor = scott_bandwidth(size, x.shape[1])
    elif rule != "number":
        factor = silverman_bandwidth(size, x.shape[1])
        if rule == "cv":
            grid = factor * jnp.asarray(_GRID, x.dtype)
            factor = cross_validated_bandwidth(x, weights, scale, grid)
    return gaussian_log_density(x, weights, factor * scale, x_new)


_fitted_log_density = jax.jit(fitted_log_density, static_argnames=("rule", "covariance", "counts"))


def kernel_log_density(
    x: Float[np.ndarray, "rows features"],
    x_new: Float[np.ndarray, "points features"],
    weights: Shaped[np.ndarray, " rows"] | None = None,
    bandwidth: Literal["silverman", "scott", "cv"] | float = "silverman",
    covariance: Covariance = "full",
    unit: Float[np.ndarray, " features"] | None = None,
    counts: bool = False,
) -> Float[np.ndarray, " points"]:
    """Fit a density estimate to observations (n, d); return its log density (m,) at points (m, d).

    The defaults match :class:`scipy.stats.gaussian_kde`. Sums over kernels are in float32 if the
    points are. ``bandwidth`` is a factor on the scale of the data, or the rule that chooses it;
    ``unit`` (d,) is the scale of constant features, by default one; ``counts`` tells whether the
    weights (n,) count repetitions; otherwise only their ratios matter.
    """
    n, d = x.shape
    weights = np.ones(n) if weights is None else weights
    length = padded_length(n)
    rule = bandwidth if isinstance(bandwidth, str) else "number"
    with float64():
        log_density = _fitted_log_density(
            pad_axis(np.asarray(x, np.float64), length, 0),
            np.pad(np.asarray(weights, np.float64), (0, length - n)),
            pad_axis(np.asarray(x_new, bulk_dtype(x_new)), padded_length(len(x_new)), 0),
            np.asarray(1 if isinstance(bandwidth, str) else bandwidth, np.float64),
            np.ones(d) if unit is None else np.asarray(unit, np.float64),
            rule=rule,
            covariance=covariance,
            counts=counts,
        )
        return np.asarray(log_density)[: len(x_new)]


def _range(
    x: Float[ArrayT, "rows features"], weights: Float[ArrayT, " rows"], xp: ModuleType = jnp
) -> tuple[Float[ArrayT, " features"], Float[ArrayT, " features"]]:
    """Return the smallest and largest value of each feature; inf and -inf without weight."""
    real = (weights > 0)[:, None]
    low = xp.min(xp.where(real, x, xp.inf), axis=0)
    return low, xp.max(xp.where(real, x, -xp.inf), axis=0)


def _center(
    x: Float[jax.Array, "rows features"], weights: Float[jax.Array, " rows"]
) -> Float[jax.Array, " features"]:
    """Return the middle of the range of each feature.

    A mean would be rounded differently in different compiled programs, and points far from zero
    would move relative to each other.
    """
    low, high = _range(x, weights)
    return jnp.where(high >= low, low + high, 0) / 2


def _whitened(
    x: Float[jax.Array, "rows features"],
    scale: Float[jax.Array, " features"] | Float[jax.Array, "features features"],
    center: Float[jax.Array, " features"],
    dtype: np.dtype,
) -> Float[jax.Array, "rows features"]:
    """Transform points so that a kernel is exp(-distance**2), relative to the center.

    Points whose squared distance would overflow are moved closer.
    """
    diagonal = scale if scale.ndim == 1 else jnp.diagonal(scale)
    most = float(jnp.finfo(dtype).max) ** 0.4
    gap = jnp.clip(x - center, -most * diagonal, most * diagonal)
    if scale.ndim == 1:
        white = gap / scale
    else:
        white = jax.scipy.linalg.solve_triangular(scale, gap.T, lower=True).T
    return jnp.clip(white * np.sqrt(0.5), -most, most).astype(dtype)


def _log_sums(
    points: Float[jax.Array, "rows features"],
    log_weights: Float[jax.Array, " rows"],
    queries: Float[jax.Array, "points features"],
    left_out_factor: Float[jax.Array, ""] | None = None,
) -> Float[jax.Array, " points"]:
    """Compute log sum_i w_i exp(-|points_i - query|**2) for each query, on a running scale.

    ``left_out_factor`` widens the kernels by that factor and leaves out those at the query.
    """
    # Equal points may have been rounded differently.
    reach = 64 * float(jnp.finfo(points.dtype).eps) * jnp.max(jnp.abs(points))
    at_query = points.shape[1] * reach**2
    m = queries.shape[0]
    most, terms = sum_sizes(stored=points.shape[1] > _UNROLLED_FEATURES)
    width = even_block(m, most)
    block = even_block(points.shape[0], terms // width)
    rows = _in_blocks(points, block, 0), _in_blocks(log_weights, block, -np.inf)
    dtype = points.dtype

    def chunk(queries: jax.Array) -> jax.Array:
        def add(
            carry: tuple[jax.Array, jax.Array], item: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], None]:
            top, total = carry
            distance = _squared_distance(item[0], queries)
            if left_out_factor is not None:
                distance = jnp.where(distance > at_query, distance / left_out_factor**2, jnp.inf)
            terms = item[1][:, None] - distance
            new_top = jnp.maximum(top, jnp.max(terms, axis=0))
            added = jnp.sum(jnp.exp(subtract_maximum(terms, new_top)), axis=0)
            return (new_top, total * jnp.exp(top - new_top) + added), None

        lowest = jnp.full(queries.shape[:1], jnp.finfo(dtype).min, dtype)
        (top, total), _ = jax.lax.scan(add, (lowest, jnp.zeros_like(lowest)), rows)
        return top + jnp.log(total)

    return jax.lax.map(chunk, _in_blocks(queries, width, 0)).reshape(-1)[:m]


def _squared_distance(
    points: Float[jax.Array, "rows features"], queries: Float[jax.Array, "points features"]
) -> Float[jax.Array, "rows points"]:
    """Compute squared distances (n, m) by differences: the expanded square would lose digits."""
    d = points.shape[1]
    if d <= _UNROLLED_FEATURES:
        return functools.reduce(
            jnp.add, [(points[:, j, None] - queries[:, j]) ** 2 for j in range(d)]
        )

    def add(j: int, distance: jax.Array) -> jax.Array:
        return distance + (points[:, j, None] - queries[:, j]) ** 2

    start = jnp.zeros((points.shape[0], queries.shape[0]), points.dtype)
    return jax.lax.fori_loop(0, d, add, start)


def _in_blocks(
    array: Float[jax.Array, " rows *features"], block: int, fill: float
) -> Float[jax.Array, "blocks block *features"]:
    """Split the first axis into (blocks, block), padded with ``fill``."""
    count = -(-array.shape[0] // block)
    widths = [(0, count * block - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    padded = jnp.pad(array, widths, constant_values=fill)
    return padded.reshape(count, block, *array.shape[1:])
