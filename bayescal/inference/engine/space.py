"""Coordinates of the parameter space, read off the priors' supports.

``constrain`` maps an unconstrained vector to parameters, for samplers that move freely.
``line_value`` maps a scalar coordinate to one parameter, for rules on intervals: by a cubic for
bounded supports, the exponential of a hyperbolic sine for half lines, and a hyperbolic sine for the
whole line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import Params
from bayescal._core.execution.chunks import Out
from bayescal._core.execution.structure import cached_by_structure
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import nan_to_minus_inf
from bayescal._core.shapes import Float
from bayescal.models import Prior
from bayescal.models.prior import Site, has_point_masses, log_density, sample_sites, walk

if TYPE_CHECKING:
    from numpyro.distributions import Distribution
    from numpyro.distributions.transforms import Transform

#: Arrays by their axes.
Vector: TypeAlias = 'Float[jax.Array, " parameters"]'
Points: TypeAlias = 'Float[jax.Array, " *points"]'
Scalar: TypeAlias = 'Float[jax.Array, ""]'

#: The range of the coordinate of a bounded support; its ends map to the ends of the support.
UNIT_RANGE = 0.0, 1.0
#: Half lines are covered from exp(-100) to exp(100) times the distance of their center.
_HALF_LINE = math.asinh(100.0)
#: Absolute unconstrained coordinate beyond which a value counts as the end of its support.
_END = 100.0


class SiteInfo(NamedTuple):
    """A random site: its name, shape, and number of unconstrained coordinates."""

    name: str
    shape: tuple[int, ...]
    size: int
    #: Whether the support has ends, which correspond to infinite unconstrained coordinates.
    ends: bool


def _unscaled(distribution: Distribution) -> tuple[Distribution, list[Transform]]:
    """Return the distribution beneath shifts and scales, and these in their order of application.

    NumPyro reports the whole line as the support of any shifted or scaled distribution.
    """
    from numpyro.distributions import TransformedDistribution, transforms

    steps: list[Transform] = []
    while isinstance(distribution, TransformedDistribution) and all(
        type(step) is transforms.AffineTransform for step in distribution.transforms
    ):
        steps = [*distribution.transforms, *steps]
        distribution = distribution.base_dist
    return distribution, steps


def _bijection(distribution: Distribution) -> Transform:
    """Return the bijection from unconstrained vectors to the support."""
    from numpyro.distributions import biject_to, transforms

    base, steps = _unscaled(distribution)
    inner = biject_to(base.support)
    return transforms.ComposeTransform([inner, *steps]) if steps else inner


def _bounds(support: object) -> tuple[jax.Array | float, jax.Array | float] | None:
    """Return the ends of a bounded interval, or None for any other support."""
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    return None if low is None or high is None else (low, high)


def visit(prior: Prior, see: Callable[[str, Distribution], Out]) -> list[Out]:
    """Call ``see`` with the name and distribution of each random site, without computing values."""
    seen: list[Out] = []

    def run(key: jax.Array) -> int:
        seen.extend(see(site.name, site.distribution) for site in sample_sites(prior, key)[1])
        return 0

    jax.eval_shape(run, jax.random.key(0))
    return seen


@cached_by_structure
def random_sites(prior: Prior) -> list[SiteInfo]:
    """List the random sites, in the order of the walk, without computing values."""

    def describe(name: str, d: Distribution) -> SiteInfo:
        if getattr(d.support, "is_discrete", False):
            raise ValueError(
                f"the model's site {name!r} is discrete, which only integrator='montecarlo' takes; "
                "or sample a mixture, such as numpyro.distributions.MixtureSameFamily"
            )
        if has_point_masses(d):
            raise ValueError(
                f"the prior of {name!r} has point masses, which only integrator='montecarlo' takes"
            )
        shape = tuple(d.shape())
        ends = "real" not in type(_unscaled(d)[0].support).__name__.lower()
        return SiteInfo(name, shape, math.prod(_bijection(d).inverse_shape(shape)), ends)

    return visit(prior, describe)


def names_at_ends(prior: Prior, sizes: Float[np.ndarray, "sets parameters"]) -> list[str]:
    """Return the sites at the ends of their supports, given absolute coordinates (batch, d).

    A posterior that reaches the last e**-100 of a support has no density there: it is improper.
    """
    names, start = [], 0
    for site in random_sites(prior):
        inside = sizes[:, start : start + site.size]
        start += site.size
        if site.ends and not (inside <= _END).all():
            names.append(site.name)
    return names


def constrain(prior: Prior, vector: Vector) -> tuple[Params, Scalar, Scalar]:
    """Map an unconstrained vector to parameters, with their log prior density.

    Also returns the log density of the vector: that of the prior times the Jacobian, which is
    normalized over vectors.
    """
    start = 0
    log_jacobian = jnp.zeros((), vector.dtype)

    def choose(name: str, d: Distribution) -> jax.Array:
        nonlocal start, log_jacobian
        bijection = _bijection(d)
        inner = bijection.inverse_shape(tuple(d.shape()))
        size = math.prod(inner)
        piece = vector[start : start + size].reshape(inner)
        start += size
        value = jnp.asarray(bijection(piece))
        log_jacobian = log_jacobian + jnp.sum(bijection.log_abs_det_jacobian(piece, value))
        return value

    params, sites = walk(prior, choose)
    log_prior = log_density(sites)
    return params, log_prior, nan_to_minus_inf(log_prior + log_jacobian)


def unconstrain(sites: Sequence[Site]) -> Vector:
    """Return the unconstrained vector (d,) of the values chosen on a walk."""
    with jax.numpy_dtype_promotion("standard"):
        pieces = [_bijection(s.distribution).inv(s.value) for s in sites]
    return jnp.concatenate([jnp.ravel(p) for p in pieces])


def line_range(distribution: Distribution) -> tuple[float, float]:
    """Return the range of the coordinate of a scalar site, which depends only on its support."""
    support = _unscaled(distribution)[0].support
    if _bounds(support) is not None:
        return UNIT_RANGE
    kind = type(support).__name__.lower()
    if "real" in kind and tuple(distribution.shape()) == ():
        return -40.0, 40.0
    ends = (getattr(support, name, None) for name in ("lower_bound", "upper_bound"))
    if "positive" in kind or any(end is not None for end in ends):
        return -_HALF_LINE, _HALF_LINE
    raise ValueError(f"quadrature needs scalar parameters on intervals, got support {support}")


def line_value(distribution: Distribution, t: Points) -> tuple[Points, Points]:
    """Map the coordinate ``t`` to a value of a scalar site; return also log |dvalue / dt|."""
    base, steps = _unscaled(distribution)
    value, log_slope = _base_value(base, t)
    for step in steps:
        log_slope = log_slope + step.log_abs_det_jacobian(value, None)
        value = jnp.asarray(step(value))
    return value, log_slope


def _base_value(distribution: Distribution, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``line_value`` for a distribution that is not shifted or scaled."""
    support = distribution.support
    bounds = _bounds(support)
    if bounds is not None:
        low, high = bounds
        # The cubic turns square roots at the ends, as of Beta(1.5, 0.5), into polynomials.
        width = jnp.asarray(high - low, t.dtype)
        value = low + width * t * t * (3 - 2 * t)
        return value, jnp.log(6 * width * t * (1 - t))
    if "real" in type(support).__name__.lower():
        center, scale = _center_and_scale(distribution, t.dtype)
        sinh, log_cosh = hyperbolic(t)
        return center + scale * sinh, jnp.log(scale) + log_cosh
    # A density that is positive at the end of a half line would fall off no faster than exp(t) in
    # the logarithm; in this coordinate every tail is short.
    upper = getattr(support, "upper_bound", None)
    end, sign = (getattr(support, "lower_bound", 0.0), 1) if upper is None else (upper, -1)
    reach = sign * (_center_and_scale(distribution, t.dtype)[0] - end)
    sinh, log_cosh = hyperbolic(t)
    log_distance = jnp.log(jnp.where(reach > 0, reach, 1)) + sinh
    return end + sign * jnp.exp(log_distance), log_distance + log_cosh


def hyperbolic(t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return sinh t and log cosh t to rounding of the larger term, in few instructions."""
    grown = jnp.exp(t)
    shrunk = 1 / grown
    return 0.5 * (grown - shrunk), jnp.log(0.5 * (grown + shrunk))


def _center_and_scale(distribution: Distribution, dtype: np.dtype) -> tuple[Scalar, Scalar]:
    """Return mean and standard deviation if finite, else location and scale, or 0 and 1."""

    def replaced(default: jax.Array, name: str) -> jax.Array:
        try:
            value = getattr(distribution, name)
        except (AttributeError, NotImplementedError, ZeroDivisionError):
            return default
        value = jnp.asarray(jnp.sqrt(value) if name == "variance" else value, dtype)
        return jnp.where(jnp.isfinite(value), value, default)

    center = replaced(replaced(jnp.zeros((), dtype), "loc"), "mean")
    scale = replaced(replaced(jnp.ones((), dtype), "scale"), "variance")
    return center, jnp.where(scale > 0, scale, 1)
