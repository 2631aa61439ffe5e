"""Sequential Monte Carlo for posteriors under Cauchy priors, which moves particles by gradients.

Particles have coordinates z in which every prior is standard normal, so that separable labels leave
no heavy tails, whatever the number of coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import ArrayT
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Bool, Float
from bayescal.regression.binary.objective import CoefficientPrior, Distribution
from bayescal.regression.draws import density_type, effective_sizes, resample

#: Arrays by their axes.
PerPoint: TypeAlias = 'Float[jax.Array, " *points"]'
Theta: TypeAlias = 'Float[np.ndarray, " parameters"]'
Particles: TypeAlias = 'Float[np.ndarray, "particles parameters"]'
ThetaDraws: TypeAlias = 'Float[np.ndarray, "*draws parameters"]'
DeviceDraws: TypeAlias = 'Float[jax.Array, "*draws parameters"]'
#: Quantiles of a prior at the normal distribution function of coordinates, and the derivative.
Quantiles: TypeAlias = Callable[[ThetaDraws], tuple[ThetaDraws, ThetaDraws]]

#: Largest absolute coordinate, so that no square overflows; the prior's mass beyond is 1e-137.
_MAX_COORDINATE = 25.0
#: Largest absolute coordinate of NumPyro distributions, whose quantiles are inaccurate near one.
_MAX_OF_DISTRIBUTION = 7.0
#: Nodes of tabulated quantiles; steps of the search for them, and its largest argument of sinh.
_TABLE_NODES, _BISECTIONS, _MAX_ASINH = 513, 36, 100.0
#: Number of stages, and the fraction of particles that must be effective at the end.
_STAGES, _ENOUGH = 60, 0.2
#: Trajectories of a stage, their steps, and the fraction that should be accepted.
_TRAJECTORIES, _LEAPS, _ACCEPTED = 4, 8, 0.7
#: Numbers in memory at once.
_BLOCK = 1 << 18


@jax.custom_jvp
def _softplus(line: PerPoint) -> PerPoint:
    return jnp.maximum(line, 0) + jnp.log1p(jnp.exp(-jnp.abs(line)))


@_softplus.defjvp
def _softplus_jvp(primals: tuple[PerPoint], tangents: tuple[PerPoint]) -> tuple[PerPoint, PerPoint]:
    # Written by hand, so that value and derivative share one exponential.
    (line,) = primals
    small = jnp.exp(-jnp.abs(line))
    larger = 1 / (1 + small)
    probability = jnp.where(line >= 0, larger, small * larger)
    return jnp.maximum(line, 0) + jnp.log1p(small), probability * tangents[0]


class LogisticLikelihood(NamedTuple, Generic[ArrayT]):
    """The log likelihood theta . linear - sum(weights * softplus(theta @ columns)).

    On the host softplus(x) = (x + |x|) / 2 + log(1 + exp(-|x|)): the last term, and gradients, need
    only single precision, unless the weights are large. What rounding may have added to huge log
    odds is subtracted.
    """

    columns: Float[ArrayT, "parameters points"]
    weights: Float[ArrayT, " points"]
    linear: Float[ArrayT, " parameters"]

    def loss(
        self: LogisticLikelihood[jax.Array], theta: Float[jax.Array, " parameters"]
    ) -> Float[jax.Array, ""]:
        """Compute the negative log likelihood of theta."""
        return jnp.sum(self.weights * _softplus(theta @ self.columns)) - theta @ self.linear

    def values(
        self: LogisticLikelihood[np.ndarray], thetas: Float[np.ndarray, "draws parameters"]
    ) -> Float[np.ndarray, " draws"]:
        """Compute values, with errors below 1e-7 of the weights, or of 1e5 if that is less."""
        size = np.abs(thetas @ self.columns)
        small = np.exp(-size.astype(density_type(self.weights.sum())))
        total = size @ self.weights
        value = thetas @ (self.linear - self.columns @ self.weights / 2)
        value = value - total / 2 - 1e-12 * total
        return value - np.log1p(small, out=small) @ self.weights

    def evaluate(
        self: LogisticLikelihood[np.ndarray], theta: Float[np.ndarray, "draws parameters"]
    ) -> tuple[Float[np.ndarray, " draws"], Float[np.ndarray, "draws parameters"]]:
        """Compute values and their gradients, in blocks of draws."""
        value, gradient = np.empty(len(theta)), np.empty_like(theta)
        narrow = density_type(self.weights.sum())
        columns, weights = self.columns.astype(narrow), self.weights.astype(narrow)
        linear = self.linear - self.columns @ self.weights / 2
        block = max(1, _BLOCK // len(weights))
        for start in range(0, len(theta), block):
            part = slice(start, start + block)
            line = theta[part] @ self.columns
            size = np.abs(line)
            small = np.exp(-size.astype(narrow))
            total = (0.5 + 1e-12) * (size @ self.weights)
            value[part] = theta[part] @ linear - total - np.log1p(small) @ weights
            half = np.copysign((0.5 - 0.5 * small) / (1 + small), line.astype(narrow))
            gradient[part] = linear - (half * weights) @ columns.T
        return value, gradient


class Coordinates(NamedTuple):
    """The map from z to coefficients u, of which ``positive`` ones are logarithms.

    The prior of the ``distributed`` coefficients has these ``quantiles``.
    """

    prior: CoefficientPrior
    positive: Bool[np.ndarray, " parameters"]
    quantiles: Quantiles | None = None
    distributed: Bool[np.ndarray, " parameters"] | None = None

    def coefficients(self, z: ThetaDraws) -> tuple[ThetaDraws, ThetaDraws]:
        """Compute u, and its derivative."""
        from scipy.special import ndtr

        z = np.clip(z, -_MAX_COORDINATE, _MAX_COORDINATE)
        heavy = np.asarray(self.prior.cauchy) > 0
        angle = np.pi * ndtr(-np.abs(z))
        quantile = np.copysign(1 / np.tan(angle), z)
        slope = np.sqrt(np.pi / 2) * np.exp(-0.5 * z**2) * (1 + quantile**2)
        center, scale = np.asarray(self.prior.center), np.asarray(self.prior.scale)
        u = center + scale * np.where(heavy, quantile, z)
        slope = scale * np.where(heavy, slope, 1.0)
        if self.quantiles is not None:
            part = np.clip(z[..., self.distributed], -_MAX_OF_DISTRIBUTION, _MAX_OF_DISTRIBUTION)
            u[..., self.distributed], slope[..., self.distributed] = self.quantiles(part)
        return u, slope


def quantile_function(law: Distribution) -> Quantiles | None:
    """Return the function that computes the quantiles of a distribution, or None if none can.

    Quantiles of a distribution without ``icdf`` are found in its ``cdf`` and tabulated
    for cubic interpolation, with errors of about 1e-6 of the scale.
    """
    if _has_function(law, "icdf"):
        return partial(_quantiles_of_law, law)
    if not _has_function(law, "cdf"):
        return None
    from scipy.interpolate import CubicHermiteSpline
    from scipy.special import ndtr

    z = np.linspace(-_MAX_OF_DISTRIBUTION, _MAX_OF_DISTRIBUTION, _TABLE_NODES)
    with float64(), jax.numpy_dtype_promotion("standard"):
        shape = law.log_prob(jnp.zeros(())).shape
        level = ndtr(z).reshape(-1, *(1 for _ in shape))
        low = np.full((_TABLE_NODES, *shape), -_MAX_ASINH)
        high = -low
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            below = np.asarray(law.cdf(jnp.asarray(np.sinh(middle)))) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        u = np.sinh((low + high) / 2)
        density = np.asarray(law.log_prob(jnp.asarray(u)))
    slope = np.exp(-0.5 * z**2).reshape(level.shape) / np.sqrt(2 * np.pi) / np.exp(density)
    tables = [
        CubicHermiteSpline(z, *columns)
        for columns in zip(u.reshape(len(z), -1).T, slope.reshape(len(z), -1).T, strict=True)
    ]
    return partial(_look_up, tables, [table.derivative() for table in tables])


def _has_function(law: Distribution, name: str) -> bool:
    """Return whether a distribution can compute its ``icdf`` or ``cdf``."""
    try:
        with jax.numpy_dtype_promotion("standard"):
            return getattr(law, name)(jnp.full((), 0.5)) is not None
    except (NotImplementedError, ImportError):
        return False  # Some distributions have none, and some need another library.


def _look_up(
    tables: Sequence[Callable[[ThetaDraws], ThetaDraws]],
    slopes: Sequence[Callable[[ThetaDraws], ThetaDraws]],
    z: ThetaDraws,
) -> tuple[ThetaDraws, ThetaDraws]:
    if len(tables) == 1:
        return tables[0](z), slopes[0](z)
    u, slope = (
        np.stack([curve(z[..., i]) for i, curve in enumerate(curves)], axis=-1)
        for curves in (tables, slopes)
    )
    return u, slope


def _quantiles_of_law(law: Distribution, z: ThetaDraws) -> tuple[ThetaDraws, ThetaDraws]:
    with float64():
        u, slope = map(np.asarray, _quantiles(law, jnp.asarray(z)))
    return u, slope


@jax.jit
def _quantiles(law: Distribution, z: DeviceDraws) -> tuple[DeviceDraws, DeviceDraws]:
    """Compute the quantiles of a distribution at the normal distribution function of z.

    Also returns the derivative, which is the ratio of the densities.
    """
    with jax.numpy_dtype_promotion("standard"):
        u = law.icdf(jax.scipy.stats.norm.cdf(z))
        return u, jnp.exp(jax.scipy.stats.norm.logpdf(z) - law.log_prob(u))


class _Particles(NamedTuple):
    """Particles, with their log likelihoods and gradients."""

    z: Particles
    value: Float[np.ndarray, " particles"]
    slope: Particles

    def where(self, taken: Bool[np.ndarray, " particles"], new: _Particles) -> _Particles:
        """Replace the particles that are ``taken``."""
        z, value, slope = (
            np.where(taken if old.ndim == 1 else taken[:, None], other, old)
            for old, other in zip(self, new, strict=True)
        )
        return _Particles(z, value, slope)

    def heated(self, heat: float) -> tuple[Float[np.ndarray, " particles"], Particles]:
        """Return log densities and gradients with a power of the likelihood."""
        return heat * self.value - 0.5 * np.sum(self.z**2, axis=1), heat * self.slope - self.z


def draw_heavy_tailed(
    likelihood: LogisticLikelihood[np.ndarray],
    coordinates: Coordinates,
    n: int,
    rng: np.random.Generator,
) -> tuple[ThetaDraws, Theta]:
    """Draw n coefficients u from the posterior; return them and effective sizes of means of z.

    Particles start from the prior, because a start around the mode would be more concentrated than
    the posterior of few rows. In each of some ten to twenty stages they are resampled by a power of
    the likelihood that leaves half of them effective, and moved by four Hamiltonian trajectories
    with their covariance. No draw counts as effective if sixty stages do not suffice.

    Stages follow Del Moral, Doucet and Jasra (2006), Sequential Monte Carlo samplers; trajectories
    follow Buchholz, Chopin and Jacob (2021), Adaptive tuning of Hamiltonian Monte Carlo within
    sequential Monte Carlo; effective sizes follow Lee and Whiteley (2018), Variance estimation in
    particle filters.
    """

    def at(z: Particles) -> _Particles:
        u, slope = coordinates.coefficients(z)
        theta = np.where(coordinates.positive, np.exp(np.where(coordinates.positive, u, 0.0)), u)
        value, gradient = likelihood.evaluate(theta)
        slope = slope * np.where(coordinates.positive, theta, 1.0)
        return _Particles(z, value, gradient * slope)

    p = len(coordinates.positive)
    point = at(rng.normal(size=(n, p)))
    origin, ess, heat, size = np.arange(n), np.ones(p), 0.0, 0.5
    for _ in range(_STAGES):
        step, chosen = resample(point.value, 1 - heat, False, rng)
        heat += step
        point, origin = _Particles(*(part[chosen] for part in point)), origin[chosen]
        deviation = point.z - point.z.mean(axis=0)
        ess = effective_sizes(deviation, origin)
        if heat == 1 and ess.min() > _ENOUGH * n:
            break
        covariance = deviation.T @ deviation / n
        root = np.linalg.cholesky(covariance + 1e-9 * (1 + np.trace(covariance) / p) * np.eye(p))
        for _ in range(_TRAJECTORIES):
            value, slope = point.heated(heat)
            speed = rng.normal(size=(n, p))
            length = size * rng.uniform(0.3, 1.0, (n, 1))
            before = value - 0.5 * np.sum(speed**2, axis=1)
            new, speed = point, speed + 0.5 * length * (slope @ root)
            for leap in range(_LEAPS):
                new = at(new.z + (length * speed) @ root.T)
                value, slope = new.heated(heat)
                last = 0.5 if leap == _LEAPS - 1 else 1.0
                speed = speed + last * length * (slope @ root)
            gain = value - 0.5 * np.sum(speed**2, axis=1) - before
            chance = np.exp(np.minimum(np.nan_to_num(gain, nan=-np.inf), 0))
            taken = rng.random(n) < chance
            point = point.where(taken, new)
            size = float(np.clip(size * np.exp(_ACCEPTED * (chance.mean() - _ACCEPTED)), 0.01, 1.5))
    # Particles that have not reached the posterior say nothing about it.
    return coordinates.coefficients(point.z)[0], np.maximum(ess, 1) if heat == 1 else np.ones(p)
