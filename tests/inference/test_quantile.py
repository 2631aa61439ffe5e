"""Quantile functions computed from densities alone, against SciPy's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from bayescal.inference.integrators.quantiles import quantile

CASES = {
    "normal": (lambda: dist.Normal(0.3, 2.0), stats.norm(0.3, 2), 1e-14),
    "half-normal": (lambda: dist.HalfNormal(2.0), stats.halfnorm(scale=2), 1e-14),
    "uniform": (lambda: dist.Uniform(-2.5, 0.0), stats.uniform(-2.5, 2.5), 1e-14),
    "cauchy": (lambda: dist.Cauchy(0.0, 1.0), stats.cauchy(), 1e-14),
    "log-normal": (lambda: dist.LogNormal(0.0, 3.0), stats.lognorm(3), 1e-14),
    # These densities are infinite at one end, where the rule is less exact.
    "gamma": (lambda: dist.Gamma(0.5, 2.0), stats.gamma(0.5, scale=0.5), 1e-13),
    "beta": (lambda: dist.Beta(0.5, 0.5), stats.beta(0.5, 0.5), 1e-11),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "beta" else n for n in CASES]
)
def test_distribution_function_is_undone(x64: None, name: str) -> None:
    make, expected, tolerance = CASES[name]
    tails = np.array([1e-10, 1e-7, 1e-3, 0.5, 1 - 1e-3, 1 - 1e-7])
    u = np.concatenate([tails, np.random.default_rng(0).random(5_000)])
    result = np.asarray(jax.jit(lambda u: quantile(make(), u))(u))
    inside = slice(len(tails), None)
    np.testing.assert_allclose(expected.cdf(result[inside]), u[inside], rtol=0, atol=tolerance)
    if name in ("normal", "half-normal", "gamma"):
        far = result[: len(tails)]
        np.testing.assert_allclose(expected.cdf(far), tails, rtol=2e-4)
        np.testing.assert_allclose(expected.sf(far), 1 - tails, rtol=1e-6)


@pytest.mark.slow
def test_each_value_ends_alone(x64: None) -> None:
    """Check that no value depends on others that have not converged yet."""
    u = np.random.default_rng(1).random(5_000)
    result = jax.vmap(lambda v: quantile(dist.Normal(0.0, 1.0), v[None])[0])(jnp.asarray(u))
    np.testing.assert_allclose(stats.norm.cdf(np.asarray(result)), u, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_a_quantile_for_each_distribution(x64: None) -> None:
    """Check that distributions of one type with different parameters share a program."""
    scales, u = np.array([0.1, 1.0, 30.0]), np.linspace(0.01, 0.99, 50)

    def one(scale: Any) -> jax.Array:
        return quantile(dist.Normal(0.0, scale), jnp.asarray(u))

    result = np.asarray(jax.vmap(one)(jnp.asarray(scales)))
    np.testing.assert_allclose(result, scales[:, None] * stats.norm.ppf(u), rtol=1e-10, atol=1e-12)
