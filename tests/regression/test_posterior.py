"""Modes, normal approximations and chains against SciPy, JAX Hessians and quadrature."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy import optimize, stats
from scipy.special import expit

from bayescal._core.minimization.optimize import Status
from bayescal.regression import draws as tempered
from bayescal.regression.binary.compress import NODES, compress
from bayescal.regression.binary.objective import BinaryDesign, CoefficientPrior
from bayescal.regression.binary.posterior import ScoreColumns, Target, _sums, find_mode, sample
from bayescal.regression.model import regression_sites
from tests.differences import curvature

Array = np.ndarray

CAUCHY = (True, 2.5)
NORMAL = (False, 1.5)


def make_rows(n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return scores, labels and weights."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n) * 2
    return z, (rng.random(n) < expit(0.6 * z - 0.4)).astype(float), rng.uniform(0.3, 2, n)


def target(
    columns: Array, y: Array, w: Array, positive: list[int], laws: list[tuple[bool, float]]
) -> Target:
    heavy, scale = np.array(laws, float).T
    design = BinaryDesign(np.asarray(columns, float), y, w)
    return Target(
        design, np.array(positive, float), CoefficientPrior(np.zeros(len(laws)), scale, heavy)
    )


def potential(u: Array, goal: Target, laws: list[tuple[bool, float]]) -> float:
    """Compute the negative log posterior."""
    theta = np.where(goal.positive > 0, np.exp(u), u)
    columns, y, w = goal.design
    line = theta @ columns
    prior = [(stats.cauchy if heavy else stats.norm).logpdf(ui, 0, scale)
             for (heavy, scale), ui in zip(laws, u, strict=True)]  # fmt: skip
    return float(w @ (np.logaddexp(0, line) - y * line) - sum(prior))


Z, Y, W = make_rows(60)
ONES = np.ones(60)
LOGS = np.log(expit(Z)), -np.log(expit(-Z))
TARGETS = {
    "logistic": (np.stack([ONES, Z]), [0, 0], [(True, 10.0), CAUCHY]),
    "temperature": (Z[None], [1], [NORMAL]),
    "beta": (np.stack([ONES, *LOGS]), [0, 1, 1], [(True, 10.0), NORMAL, NORMAL]),
    "two positive": (np.stack(LOGS), [1, 1], [NORMAL, NORMAL]),
    "normal slopes": (np.stack([ONES, Z, Z**2]), [0, 0, 0], [(True, 10.0), NORMAL, NORMAL]),
}
LABELS = {"mixed": Y, "separable": (Z > 0.2) * 1.0, "one class": ONES, "reversed": 1 - Y}


@pytest.mark.parametrize(
    ("name", "labels"),
    [*((name, "mixed") for name in TARGETS), *(("beta", labels) for labels in list(LABELS)[1:])],
)
def test_mode_and_curvature(name: str, labels: str) -> None:
    columns, positive, laws = TARGETS[name]
    goal = target(columns, LABELS[labels], W, positive, laws)
    result, hessian = find_mode(goal)
    assert int(result.status) == Status.CONVERGED

    def value(u: Array) -> float:
        return potential(u, goal, laws)

    starts = np.concatenate([np.zeros((1, len(laws))), np.eye(len(laws)), -np.eye(len(laws))])
    best = min(optimize.minimize(value, s, options={"gtol": 1e-6}).fun for s in starts)
    assert float(result.value) == pytest.approx(value(result.x), rel=1e-12)
    assert float(result.value) <= best + 1e-10 * abs(best)
    unit = 1 / np.sqrt(np.diag(hessian))
    expected = curvature(value, result.x, unit)
    np.testing.assert_allclose(hessian * unit[:, None] * unit, expected, atol=1e-6)
    assert np.linalg.eigvalsh(hessian).min() > 0


def check_normal(u: Array, mode: Array, hessian: Array) -> None:
    """Compare antithetic pairs of draws (n, p) with the normal distribution."""
    np.testing.assert_allclose(u.mean(axis=0), mode, rtol=1e-10, atol=1e-10)
    white = (u - mode) @ np.linalg.cholesky(hessian)
    error = np.sqrt((1 + np.eye(len(mode))) / (len(u) / 2))
    covariance = white.T @ white / len(u)
    assert (np.abs(covariance - np.eye(len(mode))) < 4.5 * error).all()
    assert stats.kstest(white[: len(u) // 2].ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize("name", TARGETS)
def test_draws_of_laplace_are_normal_with_the_inverse_hessian(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check draws with a threshold at which the posterior counts as normal."""
    monkeypatch.setattr(tempered, "_NORMAL", np.inf)
    columns, positive, laws = TARGETS[name]
    goal = target(columns, Y, W, positive, laws)
    draws = sample(goal, "laplace", 20_000, seed=1)
    result, hessian = find_mode(goal)
    assert draws.status == result.status == Status.CONVERGED
    assert draws.coefficients.shape == (1, 20_000, len(laws))
    theta = draws.coefficients[0]
    limited = np.array(positive) > 0
    assert (theta[:, limited] > 0).all()
    check_normal(np.where(limited, np.log(np.abs(theta)), theta), result.x, hessian)
    assert draws.ess.tolist() == [20_000.0] * len(laws) and draws.r_hat.tolist() == [1.0] * len(
        laws
    )
    assert draws.divergences == 0
    np.testing.assert_array_equal(sample(goal, "laplace", 20_000, 1).coefficients[0], theta)
    assert (sample(goal, "laplace", 20_000, 2).coefficients[0] != theta).all()
    assert sample(goal, "laplace", 7, 1).coefficients.shape == (1, 7, len(laws))


def test_a_distribution_takes_the_place_of_a_written_prior() -> None:
    columns, positive, laws = TARGETS["logistic"]
    goal = target(columns, Y, W, positive, laws)
    wrong = goal._replace(
        prior=CoefficientPrior(np.zeros(2), np.array([10.0, 0.01]), np.array([1.0, 0.0]))
    )
    given = wrong._replace(distribution=dist.Cauchy(0.0, 2.5), distributed=np.array([0.0, 1.0]))
    (ours, hessian), (theirs, other) = find_mode(goal), find_mode(given)
    np.testing.assert_allclose(theirs.x, ours.x, rtol=1e-9)
    np.testing.assert_allclose(other, hessian, rtol=1e-9)
    assert float(theirs.value) == pytest.approx(float(ours.value), rel=1e-12)


def check_expectation(values: Array, expected: float) -> None:
    """Compare the mean of draws (chains, n) with a number, up to its standard error."""
    ess = float(effective_sample_size(values[..., None])[0])
    assert ess > 200
    assert abs(values.mean() - expected) < 4.5 * values.std() / np.sqrt(ess)


def target_with_strong_prior() -> tuple[Target, Array, Array, Array]:
    """Return a target with few rows and a strong, non-normal prior, and its mass on a grid."""
    z, y, w = make_rows(12, seed=5)
    goal = target(np.stack([np.ones(12), z]), y, w, [0, 0], [(True, 10.0), CAUCHY])
    law = dist.StudentT(3.0, 1.5, 0.4)
    goal = goal._replace(
        distribution=law,
        distributed=np.array([0.0, 1.0]),
        sites=partial(regression_sites, dist.Cauchy(0.0, 10.0), law, 1),
    )
    a, b = np.meshgrid(np.linspace(-12, 12, 401), np.linspace(-6, 14, 801), indexing="ij")
    log = stats.cauchy(0, 10).logpdf(a) + stats.t(3, 1.5, 0.4).logpdf(b)
    for zi, yi, wi in zip(z, y, w, strict=True):
        log -= wi * (np.logaddexp(0, a + b * zi) - yi * (a + b * zi))
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    # The mass at the edges of the grid is negligible.
    assert max(mass[[0, -1]].sum(), mass[:, [0, -1]].sum()) < 1e-4
    return goal, a, b, mass


@pytest.mark.slow
def test_chains_against_quadrature_with_a_prior_of_ones_own() -> None:
    goal, a, b, mass = target_with_strong_prior()
    draws = sample(goal, "nuts", 4000, seed=0)
    theta = draws.coefficients
    assert theta.shape == (4, 1000, 2) and draws.divergences == 0
    assert (draws.r_hat < 1.01).all() and (draws.ess > 400).all()
    for j, grid in enumerate((a, b)):
        mean = float((mass * grid).sum())
        check_expectation(theta[..., j], mean)
        check_expectation((theta[..., j] - mean) ** 2, float((mass * (grid - mean) ** 2).sum()))
        middle = float(theta[..., j].mean())
        check_expectation((theta[..., j] <= middle) * 1.0, float(mass[grid <= middle].sum()))


def test_tails_by_laplace_against_quadrature_with_a_prior_of_ones_own() -> None:
    goal, a, b, mass = target_with_strong_prior()
    draws = sample(goal, "laplace", 20_000, seed=0)
    assert draws.coefficients.shape == (1, 20_000, 2) and (draws.ess > 4000).all()
    for theta, ess, grid in zip(draws.coefficients[0].T, draws.ess, (a, b), strict=True):
        mean, variance = (mass * grid).sum(), (mass * (grid - (mass * grid).sum()) ** 2).sum()
        assert abs(theta.mean() - mean) < 4.5 * np.sqrt(variance / ess)
        # Half a grid cell moves the levels by less than 0.003.
        for level in (0.01, 0.05, 0.5, 0.95, 0.99):
            share = mass[grid <= np.quantile(theta, level)].sum()
            assert abs(share - level) < 4.5 * np.sqrt(level * (1 - level) / ess) + 0.003


SETS = {
    "normal": np.random.default_rng(0).normal(size=20_000) * 3 + 1,
    "heavy tails": np.random.default_rng(1).standard_cauchy(20_000),
    "ties": np.random.default_rng(2).integers(0, 5, 20_000) / 5,
    "clipped logits": np.clip(np.random.default_rng(3).normal(size=20_000) * 15, -36, 36),
    "two heaps": np.concatenate([np.linspace(0, 1e-6, 5000), 1e3 + np.linspace(0, 1e-6, 5000)]),
    "mostly tied": np.concatenate([np.zeros(9000), np.linspace(-3, 5, 1000)]),
    "two points": np.array([1.0, 2.0]),
    "huge": np.array([-1e300, 0.0, 1.0, 1e300]),
    "constant": np.full(5000, 0.3),
}


def median_and_mad(points: Array) -> tuple[float, float]:
    center = float(np.median(points))
    return center, float(np.median(np.abs(points - center))) or 1.0


@pytest.mark.parametrize("name", SETS)
def test_compressed_sums_are_exact_for_polynomials_of_degree_seven(name: str) -> None:
    points = SETS[name]
    weights = np.random.default_rng(4).uniform(0.1, 2, len(points))
    nodes, at_nodes = compress(points, weights)
    assert len(nodes) == len(at_nodes) == NODES
    low, width = points.min(), np.ptp(points) or 1.0
    for degree in range(8):
        chebyshev = np.polynomial.Chebyshev.basis(degree, [low, low + width])
        exact = weights @ chebyshev(points)
        size = weights @ np.abs(chebyshev(points))
        assert abs(at_nodes @ chebyshev(nodes) - exact) < 1e-13 * max(size, weights.sum())


@pytest.mark.parametrize("name", ["normal", "heavy tails", "clipped logits"])
def test_compressed_sums_are_exact_piece_by_piece(name: str) -> None:
    points = SETS[name]
    weights = np.random.default_rng(4).uniform(0.1, 2, len(points))
    nodes, at_nodes = compress(points, weights)
    center, scale = median_and_mad(points)
    t = np.arcsinh((points - center) / scale)
    for piece in (1, 20, 48, 49, 90):
        edge = center + scale * np.sinh(t.min() + (t.max() - t.min()) * piece / 96)

        def bent(x: Array, edge: float = edge) -> Array:
            return (np.abs(x - edge) / scale) ** 7

        exact = weights @ bent(points)
        assert at_nodes @ bent(nodes) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize("name", sorted(SETS.keys() - {"constant"}))
def test_compressed_sums_of_softplus(name: str) -> None:
    points = SETS[name]
    weights = np.random.default_rng(5).uniform(0.1, 2, len(points))
    nodes, at_nodes = compress(points, weights)
    center, scale = median_and_mad(points)
    for slope in (-4.0, -0.3, 0.02, 1.0, 8.0):
        for intercept in (-3.0, 0.0, 5.0):

            def softplus(x: Array, a: float = slope, b: float = intercept) -> Array:
                return np.logaddexp(0, a * ((x - center) / scale) + b)

            exact = weights @ softplus(points)
            assert at_nodes @ softplus(nodes) == pytest.approx(exact, rel=1e-9)


def beta_columns(z: Array) -> Array:
    return np.stack([np.ones_like(z), -np.logaddexp(0, -z), np.logaddexp(0, z)])


@pytest.mark.parametrize("kind", ["spread", "rough"])
def test_the_posterior_over_nodes_is_that_over_rows(kind: str) -> None:
    """Check that rows are kept where columns are not smooth or sums are not accurate enough."""
    n = 100_000
    z, y, w = make_rows(n, seed=7)
    laws = [(True, 10.0), NORMAL, NORMAL]

    def rough(x: Array) -> Array:
        return beta_columns(np.round(x, 1))

    columns = beta_columns if kind == "spread" else rough
    goal = target(columns(z), y, w, [0, 1, 1], laws)
    result, hessian = find_mode(goal)
    factor = np.linalg.inv(np.linalg.cholesky(hessian)).T
    few = _sums(goal, result.x, factor, ScoreColumns(z, columns))
    assert (len(few.weights) == NODES) == (kind == "spread")
    assert len(few.weights) == NODES or len(few.weights) >= n
    for noise in np.random.default_rng(0).normal(size=(20, 3)):
        u = result.x + factor @ noise
        theta = np.where([False, True, True], np.exp(u), u)
        line = theta @ goal.design.columns
        exact = w @ np.logaddexp(0, line) - w @ (y * line)
        sums = few.weights @ np.logaddexp(0, theta @ few.columns) - theta @ few.linear
        # In units of the log posterior.
        assert abs(sums - exact) < 2e-6
