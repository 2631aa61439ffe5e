"""Targets of logistic regression that are smoothed most where their class is most certain."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from bayescal._core.arrays import ArrayLike, ArrayT
from bayescal._core.blocks import block_elements
from bayescal._core.checks import check_choice, check_weights
from bayescal._core.kernels import Covariance, Rule, fitted_log_density, kernel_log_density
from bayescal._core.numerics import two_class_probabilities
from bayescal._core.precision import bulk_dtype
from bayescal.smoothing._constant import smoothing_by_class
from bayescal.smoothing._inputs import check_bandwidth, check_features, check_targets

__all__ = [
    "batched_instance_targets",
    "instance_targets",
    "masked_instance_targets",
    "pooled_scale",
    "soften",
]

Scale = Literal["full", "diagonal", "pooled"]
_COVARIANCE: dict[str, Covariance] = {"full": "full", "diagonal": "diagonal", "pooled": "unit"}


def instance_targets(
    x: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    bandwidth: Literal["silverman", "scott", "cv"] | float = "silverman",
    scale: Scale = "full",
) -> np.ndarray:
    r"""Smooth each binary label in proportion to how certain its class is at that point.

    .. math:: t^+(x) = 1 - \epsilon^+ \frac{f^+(x)}{f^+(x) + f^-(x)}, \qquad
              t^-(x) = \epsilon^- \frac{f^-(x)}{f^+(x) + f^-(x)}

    with the factors :math:`\epsilon^\pm = 1 / (N^\pm + 2)` of :func:`platt_targets`, which are the
    most that a label is moved. The densities are Gaussian kernel estimates of each class. Their
    ratio is computed from log densities, so it is right in tails where both are zero in floating
    point. Where a class has no weight its density is zero: the ratio of the other is one.

    Parameters
    ----------
    x : array of shape (n,) or (n, d)
        Scores or features. Features in float32 are compared in float32.
    y : array of shape (n,)
        Labels in {0, 1}.
    sample_weight : array of shape (n,), optional
        Non-negative weights that count cases: a whole weight is the same as repeating the case.
    bandwidth : {"silverman", "scott", "cv"} or float
        Factor on the scale of each class: (N (d + 2) / 4)**(-1 / (d + 4)), N**(-1 / (d + 4)), the
        best of 25 multiples of Silverman's by leave-one-out likelihood, or a number. "cv" takes
        25 times as long; tied cases are left out together.
    scale : {"full", "diagonal", "pooled"}
        What the factor multiplies: the covariance of the class, as in SciPy; the standard
        deviations of its features; or those of both classes together, which is the published
        algorithm on standardised features. Features that do not vary within a class, as where it
        has one case, have the pooled scale, or one if they do not vary at all.

    Returns
    -------
    array of shape (n,), float64
        Targets in [0, 1], at most :math:`\epsilon^\pm` from the label.

    Raises
    ------
    TypeError
        If an argument is not numeric.
    ValueError
        If ``x`` has another shape or values that are not finite, for unknown bandwidths and scales,
        and as :func:`platt_targets`.

    References
    ----------
    M. Maher (2020), Instance-based label smoothing for better classifier calibration, section 5.
    B. W. Silverman (1986), Density estimation for statistics and data analysis.

    Examples
    --------
    Platt's targets would be 0.8 and 0.2. Cases among those of the other class are moved less:

    >>> instance_targets([-2.0, -1.0, 1.5, -1.5, 1.0, 2.0], [0, 0, 0, 1, 1, 1]).round(2).tolist()
    [0.13, 0.12, 0.08, 0.92, 0.88, 0.87]
    """
    y = check_targets(y, 2)
    weights = check_weights(sample_weight, len(y))
    points = check_features(x, len(y))
    rule = check_bandwidth(bandwidth)
    check_choice(scale, "scale", tuple(_COVARIANCE))
    features = points.astype(np.float64)
    # The ratio of densities has no unit; in this one no range or square overflows, or is zero.
    top = np.abs(features).max(axis=0)
    features /= np.where((top > 1e100) | ((top < 1e-100) & (top > 0)), top, 1)
    unit = pooled_scale(features, weights, np)
    log_density = np.full((2, len(y)), -np.inf)
    for label in (0, 1):
        own = (y == label) & (weights > 0)
        if own.any():
            log_density[label] = kernel_log_density(
                features[own],
                features.astype(bulk_dtype(points)),
                weights[own],
                bandwidth=rule,
                covariance=_COVARIANCE[scale],
                unit=unit,
                counts=True,
            )
    return soften(y, smoothing_by_class(y, weights), log_density[1] - log_density[0])


def soften(y: np.ndarray, eps: np.ndarray, log_odds: np.ndarray) -> np.ndarray:
    """Return targets from the factors of the classes 0 and 1 and log f+ - log f-."""
    small = np.exp(-np.abs(log_odds))
    own_is_denser = (log_odds >= 0) == (y == 1)
    moved = eps[y] * np.where(own_is_denser, 1.0, small) / (1 + small)
    return np.where(y == 1, 1 - moved, moved)


def masked_instance_targets(
    x: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    number: jax.Array,
    rule: Rule = "silverman",
    scale: Scale = "full",
) -> jax.Array:
    """Return the targets of :func:`instance_targets` for one data set with padding, in pure JAX.

    To be mapped and compiled by the caller, who checks the input; rule and scale are static. Masked
    cases have weight zero, any ``x``, NaN too, and the label itself as target. ``number`` is the
    bandwidth factor for the rule "number", otherwise not used.
    """
    x = x if x.ndim == 2 else x[:, None]
    real = weights > 0
    x = jnp.where(real[:, None], x, x[jnp.argmax(real)])
    unit = pooled_scale(x, weights, jnp)
    log_density, eps = [], []
    for label in (0, 1):
        own = jnp.where(y == label, weights, 0)
        eps.append(1 / (jnp.sum(own) + 2))
        log_density.append(
            fitted_log_density(x, own, x, number, unit, rule, _COVARIANCE[scale], counts=True)
        )
    # Without weight there is no density at all: the difference would be NaN.
    log_odds = jnp.where(jnp.any(real), log_density[1] - log_density[0], 0)
    positive, negative = two_class_probabilities(log_odds)
    targets = jnp.where(y == 1, 1 - eps[1] * positive, eps[0] * negative)
    return jnp.where(real, targets, y.astype(targets.dtype))


def batched_instance_targets(
    x: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    number: jax.Array,
    rule: Rule = "silverman",
    scale: Scale = "full",
) -> jax.Array:
    """Return the targets (batch, n) of many data sets, as many at a time as a block holds.

    The arguments are those of :func:`masked_instance_targets`, all but ``number`` with a leading
    axis for the data sets.
    """
    batch, n = y.shape
    together = max(1, min(batch, block_elements() // (n * min(n, 512))))

    def one(item: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return masked_instance_targets(*item, number, rule, scale)

    return jax.lax.map(one, (x, y, weights), batch_size=together)


def pooled_scale(x: ArrayT, weights: ArrayT, xp: ModuleType) -> ArrayT:
    """Return the standard deviations (d,) over both classes, one for features that do not vary.

    ``xp`` is NumPy or JAX's version of it; without weight all are one.
    """
    real = (weights > 0)[:, None]
    low = xp.min(xp.where(real, x, xp.inf), axis=0)
    spread = xp.max(xp.where(real, x, -xp.inf), axis=0) - low
    varies = spread > 0
    spread = xp.where(varies, spread, 1)
    inside = xp.where(real & varies, (x - low) / spread, 0)
    total = xp.sum(weights)
    share = weights / xp.where(total > 0, total, 1)
    variance = share @ xp.where(real, inside - share @ inside, 0) ** 2
    return spread * xp.sqrt(xp.where(varies, variance, 1))
