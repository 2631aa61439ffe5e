"""Soft targets for logistic regression, smoothed most where the class is most certain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Literal, cast

import numpy as np

from bayescal._core.arrays import ArrayLike
from bayescal._core.execution.chunks import block_elements
from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.execution.precision import bulk_dtype, float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import two_class_probabilities
from bayescal._core.shapes import Bool, Float, Int, Shaped
from bayescal.data.checks import as_numpy, check_choice
from bayescal.data.weights import check_weights
from bayescal.smoothing._constant import smoothing_by_class
from bayescal.smoothing._inputs import Named, check_bandwidth, check_features, check_targets
from bayescal.smoothing._kernels import (
    Covariance,
    Rule,
    data_scale,
    fitted_log_density,
    kernel_log_density,
)

Scale = Literal["full", "diagonal", "pooled"]
_COVARIANCE: dict[str, Covariance] = {"full": "full", "diagonal": "diagonal", "pooled": "unit"}


def instance_targets(
    x: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    bandwidth: Named | float | Sequence[float] = "silverman",
    scale: Scale = "full",
    mask: ArrayLike | None = None,
) -> np.ndarray:
    r"""Smooth binary labels in proportion to how certain their class is at each point.

    .. math:: t^+(x) = 1 - \epsilon^+ \frac{f^+(x)}{f^+(x) + f^-(x)}, \qquad
              t^-(x) = \epsilon^- \frac{f^-(x)}{f^+(x) + f^-(x)}

    Use these targets to fit a logistic map to few labels. A label moves by at most the factor
    :math:`\epsilon^\pm = 1 / (N^\pm + 2)` of :func:`platt_targets`. The densities are Gaussian
    kernel estimates for each class. Their ratio is computed from log densities, so it is accurate
    in the tails, where both underflow. A class without weight has density zero, so that the ratio
    for the other class is one.

    Parameters
    ----------
    x : array of shape (n,) or (n, d); (B, n) or (B, n, d) for several data sets
        Scores or features. Features in float32 are compared in float32.
    y : array of shape (n,) or (B, n)
        Labels in {0, 1}.
    sample_weight : array of shape (n,) or (B, n), optional
        Non-negative weights that count rows: an integer weight equals repeating the row.
    bandwidth : {"silverman", "scott", "cv"}, float or sequence of G floats
        Factor on the scale of each class: (N (d + 2) / 4)**(-1 / (d + 4)), N**(-1 / (d + 4)), the
        best of 25 multiples of Silverman's factor by leave-one-out likelihood, or a number. "cv"
        takes 25 times as long; tied rows are left out together.
    scale : {"full", "diagonal", "pooled"}
        What the factor multiplies: the covariance of the class, as in SciPy; the standard
        deviations of its features; or those of both classes together, which is the published
        algorithm on standardized features. A feature that is constant within a class, for example
        because the class has one row, gets the pooled scale, or one if it is constant overall.
    mask : array of bool of shape (n,) or (B, n), optional
        True for the rows that exist, if data sets have fewer than n. Other rows are ignored and get
        the target 0.

    Returns
    -------
    array of shape (n,) or (B, n), float64
        Targets in [0, 1], within :math:`\epsilon^\pm` of the label. For a sequence of bandwidths
        the shape is (G, n) or (G, B, n).

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If ``x`` has another shape or values that are not finite, for an unknown bandwidth or scale,
        and if :func:`platt_targets` would raise.

    See Also
    --------
    platt_targets : Targets that depend only on the class sizes.
    network_instance_targets : Targets from a network's logits, for several classes.
    bayescal.losses.instance_targets : Those targets in JAX, for training.

    Notes
    -----
    O(n^2 d) work for each data set and bandwidth. Several data sets or bandwidths are one compiled
    call, in blocks, on JAX's default device.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 5.
    B. W. Silverman (1986), Density estimation for statistics and data analysis.

    Examples
    --------
    Platt's targets would be 0.8 and 0.2. Rows among those of the other class move less:

    >>> instance_targets([-2.0, -1.0, 1.5, -1.5, 1.0, 2.0], [0, 0, 0, 1, 1, 1]).round(2).tolist()
    [0.13, 0.12, 0.08, 0.92, 0.88, 0.87]

    Two data sets, the second with two rows:

    >>> x, y = [[-1.0, 1.0, 0.5], [0.0, 1.0, 0.0]], [[0, 1, 1], [0, 1, 0]]
    >>> instance_targets(x, y, mask=[[True] * 3, [True, True, False]]).round(2).tolist()
    [[0.33, 0.76, 0.78], [0.29, 0.71, 0.0]]
    """
    check_choice(scale, "scale", tuple(_COVARIANCE))
    if mask is not None or np.ndim(bandwidth) or len(np.shape(y)) == 2:
        return _many(x, y, sample_weight, bandwidth, scale, mask)
    y = check_targets(y, 2)
    weights = check_weights(sample_weight, len(y))
    points = check_features(x, len(y))
    rule = check_bandwidth(cast(Named | float, bandwidth))
    features = _in_range(points)
    unit = data_scale(features, weights, np.inf, 1.0, "diagonal", np)
    log_density = np.full((2, len(y)), -np.inf)
    for label in (0, 1):
        rows = (y == label) & (weights > 0)
        if rows.any():
            log_density[label] = kernel_log_density(
                features[rows],
                features.astype(bulk_dtype(points)),
                weights[rows],
                bandwidth=rule,
                covariance=_COVARIANCE[scale],
                unit=unit,
                counts=True,
            )
    return soften(y, smoothing_by_class(y, weights), log_density[1] - log_density[0])


def _in_range(
    x: Shaped[np.ndarray, "*sets rows features"],
) -> Float[np.ndarray, "*sets rows features"]:
    """Convert features (..., n, d) to float64, in units in which squares do not over- or underflow.

    The ratio of densities does not depend on the units.
    """
    features = x.astype(np.float64)
    top = np.abs(features).max(axis=-2, keepdims=True)
    return features / np.where((top > 1e100) | ((top < 1e-100) & (top > 0)), top, 1)


def _many(
    x: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    bandwidth: Named | float | Sequence[float],
    scale: Scale,
    mask: ArrayLike | None,
) -> np.ndarray:
    """Compute the targets of several data sets, or for several bandwidths."""
    points, labels = as_numpy(x, "x"), as_numpy(y, "y")
    shape = labels.shape
    if labels.ndim not in (1, 2) or not labels.size:
        raise ValueError(f"y must have shape (n,) or (B, n), got {shape}")
    if points.shape[: len(shape)] != shape or points.ndim > len(shape) + 1:
        raise ValueError(f"x must have shape {shape} or {(*shape, 'd')}, got {points.shape}")
    real = np.ones(shape, bool) if mask is None else as_numpy(mask, "mask")
    if real.shape != shape or real.dtype != bool:
        raise ValueError(f"mask must be of bool and shape {shape}, got {real.dtype} {real.shape}")
    given = np.ones(shape) if sample_weight is None else as_numpy(sample_weight, "sample_weight")
    if given.shape != shape:
        raise ValueError(f"sample_weight must have shape {shape} to match y, got {given.shape}")
    batch, n = (1, *shape)[-2:]
    real, given, labels = (values.reshape(batch, n) for values in (real, given, labels))
    features = np.zeros((batch, n, points.size // labels.size), bulk_dtype(points))
    weights, targets = np.zeros((batch, n)), np.zeros((batch, n), np.int64)
    for row in np.flatnonzero(real.any(axis=1)):
        rows = real[row]
        targets[row, rows] = check_targets(labels[row, rows], 2)
        weights[row, rows] = check_weights(given[row, rows], int(rows.sum()))
        features[row, rows] = _in_range(
            check_features(points.reshape(batch, n, -1)[row, rows], rows.sum())
        )
    rule: Rule = "number"
    numbers = np.ones(1)
    if isinstance(bandwidth, str):
        rule = cast(Rule, check_bandwidth(cast(Named, bandwidth)))
    else:
        numbers = np.array([check_bandwidth(value) for value in np.ravel(bandwidth).tolist()])
    length = padded_length(n)
    padded = [pad_axis(values, length, 1) for values in (features, targets)]
    padded += [np.pad(values, ((0, 0), (0, length - n))) for values in (weights, real)]
    with float64() if features.dtype == np.float64 else nullcontext():
        result = np.asarray(_compiled(*padded, numbers, rule, scale))[:, :, :n]
    return result.reshape(*np.shape(bandwidth), *shape).astype(np.float64, copy=False)


@partial(jax.jit, static_argnames=("rule", "scale"))
def _compiled(
    x: Float[jax.Array, "sets rows features"],
    y: Int[jax.Array, "sets rows"],
    weights: Float[jax.Array, "sets rows"],
    real: Bool[jax.Array, "sets rows"],
    numbers: Float[jax.Array, " candidates"],
    rule: Rule,
    scale: Scale,
) -> Float[jax.Array, "candidates sets rows"]:
    rows = x, y, weights.astype(x.dtype)
    return jax.lax.map(
        lambda number: batched_instance_targets(*rows, number.astype(x.dtype), rule, scale, real),
        numbers,
    )


def soften(
    y: Int[np.ndarray, " rows"], eps: Float[np.ndarray, " 2"], log_odds: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
    """Compute targets from the smoothing factors of the classes 0 and 1 and log f+ - log f-."""
    small = np.exp(-np.abs(log_odds))
    label_is_denser = (log_odds >= 0) == (y == 1)
    moved = eps[y] * np.where(label_is_denser, 1.0, small) / (1 + small)
    return np.where(y == 1, 1 - moved, moved)


def masked_instance_targets(
    x: Float[jax.Array, "rows features"] | Float[jax.Array, " rows"],
    y: Shaped[jax.Array, " rows"],
    weights: Float[jax.Array, " rows"],
    number: Float[jax.Array, ""],
    rule: Rule = "silverman",
    scale: Scale = "full",
    real: Bool[jax.Array, " rows"] | None = None,
) -> Float[jax.Array, " rows"]:
    """Compute the targets of :func:`instance_targets` for one padded data set, in pure JAX.

    The caller checks the input, and maps and compiles the function; rule and scale are static.
    Masked rows have weight zero, any ``x`` (even NaN), and get their label as target. They are the
    rows that are not ``real``, by default all rows of weight zero. ``number`` is the bandwidth
    factor for the rule "number", and unused otherwise.
    """
    x = x if x.ndim == 2 else x[:, None]
    real = weights > 0 if real is None else real
    x = jnp.where(real[:, None], x, x[jnp.argmax(real)])
    unit = data_scale(x, weights, jnp.inf, 1.0, "diagonal")
    log_density, eps = [], []
    for label in (0, 1):
        class_weights = jnp.where(y == label, weights, 0)
        eps.append(1 / (jnp.sum(class_weights) + 2))
        log_density.append(
            fitted_log_density(
                x, class_weights, x, number, unit, rule, _COVARIANCE[scale], counts=True
            )
        )
    # Without any weight there is no density, and the difference would be NaN.
    log_odds = jnp.where(jnp.any(weights > 0), log_density[1] - log_density[0], 0)
    positive, negative = two_class_probabilities(log_odds)
    targets = jnp.where(y == 1, 1 - eps[1] * positive, eps[0] * negative)
    return jnp.where(real, targets, y.astype(targets.dtype))


def batched_instance_targets(
    x: Float[jax.Array, "sets rows features"] | Float[jax.Array, "sets rows"],
    y: Shaped[jax.Array, "sets rows"],
    weights: Float[jax.Array, "sets rows"],
    number: Float[jax.Array, ""],
    rule: Rule = "silverman",
    scale: Scale = "full",
    real: Bool[jax.Array, "sets rows"] | None = None,
) -> Float[jax.Array, "sets rows"]:
    """Compute the targets (batch, n) of many data sets, as many at a time as fit in a block.

    The arguments are those of :func:`masked_instance_targets`; all except ``number`` have a leading
    axis of data sets.
    """
    batch, n = y.shape
    together = max(1, min(batch, block_elements() // (n * min(n, 512))))

    def targets(item: tuple[jax.Array, jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return masked_instance_targets(*item[:3], number, rule, scale, item[3])

    rows = x, y, weights, weights > 0 if real is None else real
    return jax.lax.map(targets, rows, batch_size=together)
