"""Gamma variables, compared with SciPy's distribution functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayescal._core.random.gamma import log_gamma

N = 20_000


@pytest.mark.parametrize("concentration", [0.01, 0.3, 1.0, 1.5, 40.0, 1e6, 1e18])
def test_distribution_is_that_of_scipy(concentration: float) -> None:
    with jax.enable_x64(True):
        logs = np.asarray(log_gamma(jax.random.key(1), jnp.float64(concentration), (N,)))
    if concentration < 1:  # Small variables would be rounded to zero.
        mean, deviation = stats.loggamma(concentration).stats("mv")
        assert abs(logs.mean() - mean) < 4 * np.sqrt(deviation / N)
        test = stats.kstest(logs, lambda z: stats.loggamma(concentration).cdf(z))
    else:
        test = stats.kstest(np.exp(logs), stats.gamma(concentration).cdf)
    assert test.pvalue > 1e-3


def test_each_row_has_its_concentration_and_its_key() -> None:
    concentration = jnp.array([[0.5, 20.0], [3.0, 1.0]], jnp.float32)
    keys = jax.random.split(jax.random.key(0), 2)
    together = jax.vmap(lambda key, c: log_gamma(key, c, (N, 2)))(keys, concentration)
    assert together.dtype == jnp.float32
    expected = stats.gamma(np.asarray(concentration))
    means = np.exp(np.asarray(together, float)).mean(axis=1)
    np.testing.assert_allclose(means, expected.mean(), atol=4 * expected.std().max() / N**0.5)
    for key, row, logs in zip(keys, concentration, together, strict=True):
        np.testing.assert_allclose(logs, log_gamma(key, row, (N, 2)), atol=1e-5)


def test_concentrations_without_a_distribution_end() -> None:
    with jax.enable_x64(True):
        logs = log_gamma(jax.random.key(0), jnp.array([0.0, jnp.inf, jnp.nan]), (4, 3))
    np.testing.assert_array_equal(logs, [[-np.inf, np.inf, np.nan]] * 4)
