"""Posteriors under Cauchy priors of many coefficients, against quadrature and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import expit

import bayescal as bc
from bayescal.regression.binary.heavy_tails import (
    Coordinates,
    LogisticLikelihood,
    quantile_function,
)
from bayescal.regression.binary.objective import BinaryDesign, CoefficientPrior
from bayescal.regression.binary.posterior import Target, sample

Array = np.ndarray

#: A Cauchy and a normal coefficient, and a coefficient whose logarithm is normal.
PRIOR = CoefficientPrior(
    np.array([0.5, -1.0, 0.2]), np.array([10.0, 0.3, 0.5]), np.array([1.0, 0.0, 0.0])
)
POSITIVE = np.array([False, False, True])


def test_coordinates_are_normal_scores_of_the_prior() -> None:
    z = np.array([[-9.0, -9.0, -9.0], [-1.3, 0.4, 0.0], [0.0, 0.0, 0.7], [12.0, 3.0, 2.0]])
    coordinates = Coordinates(PRIOR, POSITIVE)
    u, slope = coordinates.coefficients(z)
    tail = stats.norm.logcdf(-np.abs(z[:, 0]))
    quantile = 0.5 + 10 * np.sign(z[:, 0]) / np.tan(np.pi * np.exp(tail))
    np.testing.assert_allclose(u[:, 0], quantile, rtol=1e-12)
    np.testing.assert_allclose(u[:, 1:], PRIOR.center[1:] + PRIOR.scale[1:] * z[:, 1:])
    law = stats.cauchy(0.5, 10)
    np.testing.assert_allclose(slope[:, 0], np.exp(stats.norm.logpdf(z[:, 0])) / law.pdf(u[:, 0]))
    np.testing.assert_allclose(slope[:, 1:], np.tile(PRIOR.scale[1:], (4, 1)))
    assert np.isfinite(coordinates.coefficients(np.full((1, 3), 1e9))[0]).all()


@pytest.mark.slow
def test_quantiles_of_a_distribution_without_them() -> None:
    """Compare quantiles of mixtures of normal distributions with the distribution function."""
    scales = np.array([[0.01, 0.02], [0.3, 5.0]])
    law = dist.MixtureSameFamily(
        dist.Categorical(probs=np.full((2, 2), 0.5)), dist.Normal(0, scales)
    )
    quantiles = quantile_function(law)
    assert quantiles is not None
    z = np.linspace(-6.5, 6.5, 202).reshape(-1, 2)
    u, slope = quantiles(z)
    ratio = -np.abs(u)[..., None] / scales
    np.testing.assert_allclose(
        stats.norm.cdf(ratio).mean(axis=-1), stats.norm.cdf(-np.abs(z)), 1e-4
    )
    density = (stats.norm.pdf(ratio) / scales).mean(axis=-1)
    np.testing.assert_allclose(slope, stats.norm.pdf(z) / density, 1e-3)


@pytest.mark.slow
def test_a_poor_approximation_under_a_distribution_without_quantiles_warns() -> None:
    class Unknown(dist.Normal):
        def cdf(self, value: Any) -> Any:
            raise NotImplementedError

        def icdf(self, q: Any) -> Any:
            raise NotImplementedError

    model = bc.LogisticRegression(coef_prior=Unknown(), inference="laplace", random_state=0)
    with pytest.warns(bc.SamplingWarning, match="effective sample size 1\\); .* inference='nuts'"):
        model.fit(*separable(5, 15, 0))


def test_likelihoods_and_gradients() -> None:
    rng = np.random.default_rng(0)
    columns, weights = rng.normal(size=(3, 20)), rng.uniform(0.1, 3, 20)
    labels = rng.random(20) < 0.5
    theta = rng.normal(size=(5, 3)) * [[0.1], [1], [10], [100], [1000]]
    given = LogisticLikelihood(columns, weights, columns @ (weights * labels))
    value, gradient = given.evaluate(theta)
    sign = np.where(labels, 1, -1)
    expected = [-weights @ np.logaddexp(0, -sign * (t @ columns)) for t in theta]
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-5)
    slopes = [columns @ (weights * (labels - expit(t @ columns))) for t in theta]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-5)


def blocks_of_features(count: int, size: int) -> tuple[Target, Array]:
    """Return a target whose rows have separate features, and the scales of their log odds.

    A sum of Cauchy variables is Cauchy, so that log odds of rows are independent in the posterior.
    """
    rng = np.random.default_rng(1)
    rows = rng.uniform(0.2, 1.5, (count, size)) * rng.choice([-1, 1], (count, size))
    columns = (rows[:, :, None] * np.eye(count)[:, None]).reshape(count * size, count)
    p = count * size
    prior = CoefficientPrior(np.zeros(p), np.full(p, 2.5), np.ones(p))
    labels, weights = np.arange(count) % 2 * 1.0, 1.0 + np.arange(count) % 5
    target = Target(BinaryDesign(columns, labels, weights), np.zeros(p), prior)
    return target, 2.5 * np.abs(rows).sum(axis=1)


def moments(scale: float, weight: float) -> tuple[float, float]:
    """Integrate the probability of the label of a row of this weight; return mean and variance."""

    def mass(power: float) -> float:
        # An angle that is uniform a priori.
        return integrate.quad(
            lambda a: expit(scale * np.tan(a)) ** power, -np.pi / 2, np.pi / 2, epsabs=1e-12
        )[0]

    mean = mass(weight + 1) / mass(weight)
    return mean, mass(weight + 2) / mass(weight) - mean**2


@pytest.mark.parametrize(("count", "size"), [(10, 4), (6, 2), (24, 1)])
def test_posterior_of_many_coefficients_against_quadrature(count: int, size: int) -> None:
    """Check means, variances and effective sizes, with more and with fewer than 30 coefficients."""
    target, scales = blocks_of_features(count, size)
    columns, labels, weights = target.design
    sign = 2 * labels - 1
    exact = np.array([moments(s, w) for s, w in zip(scales, weights, strict=True)])
    squares = []
    for seed in range(3):
        draws = sample(target, "laplace", 1000, seed)
        assert draws.coefficients.shape == (1, 1000, count * size)
        assert (draws.ess > 150).all() and (draws.ess <= 1000).all()
        probs = expit(sign * (draws.coefficients[0] @ columns))
        error = (probs.mean(axis=0) - exact[:, 0]) / np.sqrt(exact[:, 1] / draws.ess.min())
        squares.append(np.mean(error**2))
        assert (np.abs(error) < 4.5).all()
        assert np.abs(probs.var(axis=0) / exact[:, 1] - 1).max() < 0.6
    # Effective sizes are neither much too large nor much too small.
    assert 0.1 < np.mean(squares) < 2.5


@pytest.mark.slow
def test_intervals_cover_log_odds_under_the_prior() -> None:
    """Draw coefficients from the prior; intervals of 90 % held 84 % without gradients."""
    rng = np.random.default_rng(0)
    p, n, inside = 11, 20, []
    prior = CoefficientPrior(np.zeros(p), np.r_[10.0, np.full(p - 1, 2.5)], np.ones(p))
    for seed in range(100):
        theta = prior.scale * rng.standard_cauchy(p)
        columns, new = rng.normal(size=(2, p, n)) / 2
        columns[0] = new[0] = 1
        labels = (rng.random(n) < expit(theta @ columns)) * 1.0
        target = Target(BinaryDesign(columns, labels, np.ones(n)), np.zeros(p), prior)
        draws = sample(target, "laplace", 1000, seed).coefficients[0]
        low, high = np.quantile(draws @ new, [0.05, 0.95], axis=0)
        inside.append(np.mean((low <= theta @ new) & (theta @ new <= high)))
    assert abs(np.mean(inside) - 0.9) < 3 * np.std(inside) / np.sqrt(100) + 0.01


def separable(d: int, n: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, (x @ rng.normal(size=d) > np.median(x @ rng.normal(size=d))) * 1


@pytest.mark.parametrize("d", [5, 40])
def test_separable_labels_leave_enough_effective_draws(d: int) -> None:
    model = bc.LogisticRegression(coef_prior="cauchy", inference="laplace", random_state=0)
    for seed in range(2):
        assert model.fit(*separable(d, 15, seed)).posterior_.ess.min() > 200


def test_a_poor_approximation_of_more_than_a_hundred_coefficients_warns() -> None:
    model = bc.LogisticRegression(coef_prior="cauchy", inference="laplace", random_state=0)
    with pytest.warns(bc.SamplingWarning, match="effective sample size 1\\); .* inference='nuts'"):
        model.fit(*separable(120, 30, 0))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40_000, 120))
    model.fit(x, rng.random(40_000) < expit(x[:, 0]))  # normal: no warning
    assert model.posterior_.ess.min() == 1000


@pytest.mark.parametrize("weight", [1e9, 1e11, 1e15])
def test_a_poor_approximation_of_large_weights_warns(weight: float) -> None:
    """Fit separable labels, and labels whose posterior is normal but for rounding."""
    model = bc.LogisticRegression(coef_prior="cauchy", inference="laplace", random_state=0)
    x, weights = np.linspace(-2, 2, 16)[:, None], np.full(16, weight)
    with pytest.warns(bc.SamplingWarning, match="effective sample size 1\\); .* inference='nuts'"):
        model.fit(x, x[:, 0] > 0, weights)
    assert model.fit(x, np.arange(16) % 3 > 0, weights).posterior_.ess.min() == 1000


@pytest.mark.parametrize("repeats", [1, 10_000, 1_000_000])
def test_separable_labels_of_many_rows_leave_heavy_tails(repeats: int) -> None:
    x = np.r_[np.linspace(-2, -0.5, 8), np.linspace(0.5, 2, 8)]
    model = bc.LogisticRegression(
        coef_prior="cauchy", inference="laplace", num_samples=4000, random_state=0
    ).fit(x[:, None], x > 0, np.full(16, float(repeats)))
    # Integrate over the logarithm of the slope, and over the point at which the log odds are zero.
    z = x / (2 * x.std())
    grid = np.linspace(-17, 17, 401)[:, None]
    slope, zero = np.exp(np.linspace(0, 16, 800)), 1e-7 * np.sinh(grid)
    log_density = np.log(np.cosh(grid)) + 2 * np.log(slope) - np.log1p((slope / 2.5) ** 2)
    log_density = log_density - np.log1p((slope * zero / 10) ** 2)
    for row in z:
        log_density = log_density - repeats * np.logaddexp(0, -np.sign(row) * slope * (row - zero))
    below = np.cumsum(np.exp(log_density - log_density.max()).sum(axis=0))
    draws = model.state_["theta_draws"].reshape(-1, 2)[:, 1] * 2 * x.std()
    for level in (0.25, 0.5, 0.75):
        quantile = np.interp(level, below / below[-1], slope)
        # Four standard errors at the effective size.
        error = 4 * np.sqrt(level * (1 - level) / model.posterior_.ess.min())
        assert abs(np.mean(draws < quantile) - level) < error


def test_separable_labels_of_too_many_different_rows_warn() -> None:
    x = np.sort(np.random.default_rng(0).normal(size=120_000))
    model = bc.LogisticRegression(coef_prior="cauchy", inference="laplace", random_state=0)
    with pytest.warns(bc.SamplingWarning, match="effective sample size 1\\)"):
        model.fit(x[:, None], x > 0.5)
