"""The no-U-turn sampler on a density with known moments."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from bayescal._core.random.nuts import run_chains

MEAN = np.array([0.5, -1.0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])


def normal_potential(mean: jax.Array, precision: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Return the negative log density of a normal distribution, up to a constant."""
    return lambda z: 0.5 * (z - mean) @ precision @ (z - mean)


def impossible_potential(mean: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Return a negative log density that is infinite everywhere."""
    return lambda z: jnp.inf + jnp.sum(z - mean)


@pytest.mark.slow
@pytest.mark.parametrize("adapt", [False, True])
def test_draws_have_the_moments_of_a_normal_distribution(adapt: bool, x64: None) -> None:
    given = jnp.asarray(MEAN), jnp.asarray(np.linalg.inv(COVARIANCE))
    with jax.numpy_dtype_promotion("standard"):
        z, diverging, positive = run_chains(
            normal_potential,
            given,
            jnp.zeros(2),
            jax.random.key(0),
            chains=4,
            warmup=300,
            draws=1000,
            adapt_mass_matrix=adapt,
        )
    z = np.asarray(z)
    assert z.shape == (4, 1000, 2)
    assert not np.asarray(diverging).any()
    assert np.asarray(positive).all()
    assert (split_gelman_rubin(z) < 1.02).all()
    # Means of the coordinates, and of their products, within five standard errors.
    gaps = z - MEAN
    values = np.stack([*np.moveaxis(gaps, 2, 0), *np.moveaxis(gaps**2, 2, 0), gaps.prod(axis=2)])
    expected = [0, 0, COVARIANCE[0, 0], COVARIANCE[1, 1], COVARIANCE[0, 1]]
    for value, moment in zip(values, expected, strict=True):
        error = value.std() / np.sqrt(effective_sample_size(value))
        assert abs(value.mean() - moment) < 5 * error
        assert error < 0.2


def test_a_density_of_zero_is_reported(x64: None) -> None:
    with jax.numpy_dtype_promotion("standard"):
        *_, positive = run_chains(
            impossible_potential,
            (jnp.zeros(1),),
            jnp.zeros(1),
            jax.random.key(0),
            chains=2,
            warmup=1,
            draws=1,
        )
    assert not np.asarray(positive).any()
