"""Parameter coordinates: shifted, scaled and reflected priors, and every kind of support."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate

import bayescal as bc
from bayescal.inference.engine.space import line_range, line_value

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([-1.9, -0.2, -1.4, 0.3, 1.6, 0.4, 2.2])
Y = np.array([0, 0, 0, 0, 1, 1, 1])
POINTS = np.array([-2.0, 0.1, 1.5])


def affine(distribution: Any, shift: float, scale: float) -> Any:
    step = dist.transforms.AffineTransform(shift, scale)
    return dist.TransformedDistribution(distribution, step)


LAWS = {
    "interval": dist.Uniform(-1.0, 3.0),
    "roots at the ends": dist.Beta(1.5, 0.5),
    "half line": dist.HalfNormal(2.0),
    "half line without mean": dist.HalfCauchy(0.1),
    "half line away from zero": dist.Pareto(2.0, 1.5),
    "cut from above": dist.TruncatedNormal(0.0, 1.0, high=-2.0),
    "line": dist.StudentT(3.0, 1.0, 2.0),
    "moved interval": affine(dist.Beta(2.0, 3.0), -4.0, 3.0),
    "reflected half line": affine(dist.Gamma(2.0, 1.0), 5.0, -0.1),
    "moved twice": affine(affine(dist.Exponential(1.0), 1.0, -2.0), 0.0, -3.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_coordinate_runs_over_the_whole_distribution(name: str) -> None:
    """Check that the density in the coordinate integrates to one: value, slope and range agree."""
    law = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), LAWS[name])

    @jax.jit
    def density(t: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            value, log_slope = line_value(law, t)
            return jnp.nan_to_num(jnp.exp(law.log_prob(value) + log_slope))

    low, high = line_range(law)
    total, error = integrate.quad(
        lambda t: float(density(t)), low, high, epsabs=1e-12, epsrel=1e-12, limit=400,
        points=np.linspace(low, high, 41)[1:-1],
    )  # fmt: skip
    assert error < 1e-9
    assert total == pytest.approx(1, abs=1e-9)


@functools.cache
def mirrored_posterior() -> bc.Posterior:
    mirror = bc.GaussianPrior(dist.Normal(-1.0, 1.0), affine(dist.HalfNormal(1.5), -0.5, 1.0), 1.0)
    return bc.posterior(mirror, (-X, 1 - Y), integrator="quadrature")


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["quadrature", "importance", "sobol", "montecarlo"])
def test_reflected_half_line_against_its_mirror_image(integrator: str) -> None:
    prior = bc.GaussianPrior(affine(dist.HalfNormal(1.5), 0.5, -1.0), dist.Normal(1.0, 1.0), 1.0)
    post = bc.posterior(prior, (X, Y), integrator=integrator, num_samples=20_000)
    truth = mirrored_posterior()
    for method in ("predictive", "coeffs"):
        result, expected = (
            post.predict(POINTS, method=method),
            truth.predict(-POINTS, method=method),
        )
        if integrator == "quadrature":
            np.testing.assert_allclose(result.log_odds, -expected.log_odds, rtol=1e-9, atol=1e-9)
        else:
            assert (np.abs(result.probs - (1 - expected.probs)) <= 4 * result.mcse).all()
    if integrator == "quadrature":
        assert post.log_evidence == pytest.approx(truth.log_evidence, rel=1e-10)
        assert post.mode["mu0"] == pytest.approx(-truth.mode["mu1"], abs=1e-6)


def test_supports_that_are_no_interval_have_no_coordinate() -> None:
    with pytest.raises(ValueError, match="scalar parameters on intervals, got support Simplex"):
        line_range(dist.Dirichlet(np.ones(2)))
