"""Sequential Monte Carlo from Laplace's approximation, against known distributions."""

from __future__ import annotations

import numpy as np
from scipy import optimize, special, stats

from bayescal.regression.draws import MAX_TEMPERED, antithetic, tempered_draws

SHAPES = np.array([0.4, 1.0, 5.0])


def log_gammas(u: np.ndarray) -> np.ndarray:
    """Compute the log density (s,) of logarithms of gamma variables, with long left tails."""
    return (SHAPES * u - np.exp(u)).sum(axis=1)


def test_tails_are_those_of_a_skewed_distribution() -> None:
    turn = stats.special_ortho_group.rvs(3, random_state=0)
    shares = []
    levels = np.array([0.005, 0.05, 0.5, 0.95, 0.995])[:, None]
    ends = stats.gamma.ppf(levels, SHAPES)
    factor = turn / np.sqrt(SHAPES)
    for seed in range(12):
        draws = tempered_draws(
            lambda u: log_gammas(u @ turn), 3, turn @ np.log(SHAPES), factor, 2000, seed
        )
        assert draws.coefficients.shape == (1, 2000, 3) and draws.r_hat.tolist() == [1.0] * 3
        assert ((draws.ess > 400) & (draws.ess <= 2000)).all()
        values = np.exp(draws.coefficients[0] @ turn)
        shares.append((values[:, None] < ends).mean(axis=0))
    # Use the spread between runs rather than effective sizes.
    error = np.std(shares, axis=0, ddof=1) / np.sqrt(12)
    assert (np.abs(np.mean(shares, axis=0) - levels) < 4.5 * error).all()


def test_heavy_tails_of_separable_labels() -> None:
    """Compare with quadrature under Cauchy priors, where the slope is Cauchy in its tail."""
    x, sign = np.array([-1.5, -0.7, -0.3, 0.1, 0.9, 1.5]), np.repeat([1.0, -1.0], 3)

    def log_density(u: np.ndarray) -> np.ndarray:
        lines = sign * (u[:, :1] + u[:, 1:] * x)
        prior = np.log1p((u / [10.0, 2.5]) ** 2).sum(axis=1)
        return -prior - np.logaddexp(0, lines).sum(axis=1)

    best = optimize.minimize(lambda u: -log_density(u[None])[0], [0.0, 1.0])
    factor = np.linalg.cholesky(best.hess_inv)
    shares = [
        special.expit(
            tempered_draws(log_density, 2, best.x, factor, 2000, seed).coefficients[0] @ [1, -0.3]
        ).mean()
        for seed in range(12)
    ]
    # Nodes are even in the angle, where a Cauchy density is even.
    angle = np.linspace(-np.pi / 2, np.pi / 2, 1202)[1:-1]
    a, b = np.meshgrid(8 * np.tan(angle), 8 * np.tan(angle))
    nodes = np.stack([a.ravel(), b.ravel()], axis=1)
    mass = np.exp(log_density(nodes)) * (1 + (nodes / 8) ** 2).prod(axis=1)
    expected = mass @ special.expit(nodes @ [1, -0.3]) / mass.sum()
    error = np.std(shares, ddof=1) / np.sqrt(12)
    assert error < 0.005
    assert abs(np.mean(shares) - expected) < 4.5 * error


def test_effective_sizes_are_those_of_means() -> None:
    """Check that the variance of means over seeds equals the variance over the effective size."""
    ends = [
        tempered_draws(log_gammas, 3, np.log(SHAPES), np.diag(SHAPES**-0.5), 300, seed)
        for seed in range(60)
    ]
    means = np.stack([end.coefficients[0].mean(axis=0) for end in ends])
    expected = np.array([stats.loggamma(a).var() for a in SHAPES])
    exact = np.array([stats.loggamma(a).mean() for a in SHAPES])
    ratio = np.mean((means - exact) ** 2 / expected * np.stack([e.ess for e in ends]), axis=0)
    assert ((ratio > 0.4) & (ratio < 2.5)).all()


def test_a_normal_posterior_keeps_pairs() -> None:
    mode, factor = np.array([1.0, -2.0]), np.array([[2.0, 0.0], [1.0, 0.5]])
    inverse = np.linalg.inv(factor @ factor.T)

    def log_density(u: np.ndarray) -> np.ndarray:
        return -0.5 * np.einsum("si,ij,sj->s", u - mode, inverse, u - mode)

    draws = tempered_draws(log_density, 2, mode, factor, 501, seed=3)
    np.testing.assert_array_equal(draws.coefficients[0], antithetic(mode, factor, 501, 3))
    assert draws.ess.tolist() == [501.0, 501.0]


def test_a_support_with_an_end_and_few_draws() -> None:
    """Check that densities that are NaN count as zero."""

    def log_density(u: np.ndarray) -> np.ndarray:
        return np.where(u[:, 0] > -0.5, -0.5 * u[:, 0] ** 2, np.nan)

    draws = tempered_draws(log_density, 1, np.zeros(1), np.eye(1), 4000, seed=0)
    u = draws.coefficients[0, :, 0]
    assert u.min() > -0.5
    law = stats.truncnorm(-0.5, np.inf)
    assert np.abs((u < law.ppf(0.05)).mean() - 0.05) < 4.5 * np.sqrt(0.0475 / draws.ess[0])
    few = tempered_draws(log_density, 1, np.zeros(1), np.eye(1), 3, seed=0)
    assert few.coefficients.shape == (1, 3, 1) and (few.ess <= 3).all()
    again = tempered_draws(log_density, 1, np.zeros(1), np.eye(1), 4000, seed=0)
    np.testing.assert_array_equal(draws.coefficients, again.coefficients)


def test_a_density_with_almost_no_width_stays_finite() -> None:
    draws = tempered_draws(
        lambda u: -1e300 * np.abs(u).sum(axis=1), 2, np.zeros(2), np.eye(2), 100, seed=0
    )
    assert np.isfinite(draws.coefficients).all() and (draws.ess >= 1).all()


def test_many_parameters_keep_the_normal_approximation() -> None:
    p = MAX_TEMPERED + 1
    draws = tempered_draws(lambda u: -np.abs(u).sum(axis=1), p, np.zeros(p), np.eye(p), 10, seed=0)
    np.testing.assert_array_equal(draws.coefficients[0], antithetic(np.zeros(p), np.eye(p), 10, 0))


def test_a_posterior_without_an_end_is_not_taken_for_one() -> None:
    """Check a density that increases without bound: no draw counts as effective."""
    for seed in range(10):
        draws = tempered_draws(
            lambda u: np.where(u[:, 0] > -1, u[:, 0], -np.inf), 1, np.zeros(1), np.eye(1), 500, seed
        )
        assert draws.ess.tolist() == [1.0] and np.isfinite(draws.coefficients).all()


def test_densities_of_any_size_are_weighed() -> None:
    """Check that a constant added to the log density, even a huge one, changes nothing."""
    given = 3, np.log(SHAPES), np.diag(1 / np.sqrt(SHAPES)), 500, 0
    plain = tempered_draws(log_gammas, *given)
    raised = tempered_draws(lambda u: log_gammas(u) + 2.0**20, *given)
    np.testing.assert_allclose(raised.coefficients, plain.coefficients, atol=1e-6)
