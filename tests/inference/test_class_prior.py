"""Class proportions estimated from the labels, against SciPy's integrals."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from scipy import integrate, optimize
from scipy.special import expit, logit

import bayescal as bc

pytestmark = pytest.mark.usefixtures("x64")

PRIOR = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
FIXED = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=1.0)
POINTS = np.array([-6.0, -1.0, 0.3, 2.0, 7.0])
COUNTS = [(50, 5), (3, 1), (6, 0), (0, 1), (400, 700)]
TRIANGLE = bc.DirichletPrior(list(np.array([[5.0, 2, 1], [1, 4, 2], [2, 2, 3]])))


def make_data(zero: int, one: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat([0, 1], [zero, one])
    return np.random.default_rng(zero + one).normal(2 * y - 1), y


def class_mean_posteriors(data: tuple[np.ndarray, np.ndarray]) -> list[tuple[float, float]]:
    """Compute mean and variance of the normal posterior of each class mean."""
    actual = []
    for label, center in enumerate((-1, 1)):
        of_class = data[0][data[1] == label]
        v = 1 / (1 + len(of_class))
        actual.append((v * (center + of_class.sum()), v))
    return actual


def by_quadrature(prior: bc.Prior, data: Any, **options: Any) -> bc.Posterior:
    return bc.posterior(prior, data, integrator="quadrature", **options)


@pytest.mark.parametrize("counts", COUNTS)
def test_predictive_is_the_ratio_of_two_evidences(counts: tuple[int, int]) -> None:
    """Compare with the evidence ratio of the data plus one row of class 1 or of class 0."""
    data = make_data(*counts)

    def log_joint(y: int) -> np.ndarray:
        n = np.array(counts) + np.array([1 - y, y])
        m, v = class_mean_posteriors(data)[y]
        return scipy.special.betaln(*(n + 1)) + scipy.stats.norm.logpdf(POINTS, m, (1 + v) ** 0.5)

    actual = by_quadrature(PRIOR, data).predict(POINTS)
    np.testing.assert_allclose(actual.log_odds, log_joint(1) - log_joint(0), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("counts", COUNTS)
def test_preds_is_an_integral_over_means_and_share(counts: tuple[int, int]) -> None:
    data = make_data(*counts)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    (m0, v0), (m1, v1) = class_mean_posteriors(data)
    mu0, mu1 = m0 + v0**0.5 * nodes[:, None], m1 + v1**0.5 * nodes
    total = np.outer(weights, weights) / weights.sum() ** 2
    density = scipy.stats.beta(counts[1] + 1, counts[0] + 1).pdf

    def inside(u: float) -> np.ndarray:
        """Average over the means at log odds ``u`` of the proportion."""
        z = (mu1 - mu0) * (POINTS[:, None, None] - (mu0 + mu1) / 2)
        return expit(u) * expit(-u) * density(expit(u)) * (total * expit(z + u)).sum(axis=(1, 2))

    # The trapezoidal rule converges fast for functions that vanish at both ends.
    center = np.log((counts[1] + 1) / (counts[0] + 1))
    reach = 60 / (1 + min(counts)) ** 0.5
    nodes = np.linspace(center - reach, center + reach, 641)
    values = np.array([inside(u) for u in nodes])
    truth = values.sum(axis=0) * (nodes[1] - nodes[0])
    assert np.abs(2 * values[::2].sum(axis=0) * (nodes[1] - nodes[0]) - truth).max() < 1e-13
    actual = by_quadrature(PRIOR, data).predict(POINTS, method="preds")
    # With one label the rule over proportions is coarsest.
    np.testing.assert_allclose(actual.probs, truth, rtol=0, atol=1e-10 if sum(counts) > 1 else 1e-7)
    assert np.abs(actual.probs - truth).max() <= np.max(actual.mcse) + 1e-11


@pytest.mark.parametrize(("concentration", "count"), [(0.01, 10), (0.1, 1), (0.5, 10)])
def test_shares_with_small_concentrations_are_integrated(concentration: float, count: int) -> None:
    """Compare with SciPy's integral for known densities and a class without labels."""
    share_prior = dist.Beta(concentration, concentration)
    post = by_quadrature(FIXED, make_data(0, count), class_prior=share_prior)
    actual = post.predict(POINTS, method="preds")
    a0, a1 = (np.float64(np.float32(concentration)) + n for n in (0, count))

    def inside(u: float, z: float) -> float:
        logs = a1 * scipy.special.log_expit(u) + a0 * scipy.special.log_expit(-u)
        return expit(u + z) * np.exp(logs - scipy.special.betaln(a0, a1))

    edges = [-60, -20, -5, 5, 20, 60, 300, 1500, 6000]
    truth = [
        sum(
            integrate.quad(inside, *ends, args=(2 * x,), epsabs=1e-13)[0]
            for ends in itertools.pairwise(edges)
        )
        for x in POINTS
    ]
    np.testing.assert_allclose(actual.probs, truth, rtol=0, atol=1e-7)
    assert np.max(actual.mcse) < 1e-4


@pytest.mark.parametrize("label", [0, 2])
def test_tiny_shares_of_three_classes_keep_their_size(label: int) -> None:
    """Compare with draws of the logarithms of shares, some of which are below 1e-100."""
    prior = bc.DirichletPrior(list(1 + 9 * np.eye(3)))
    x = np.full((10, 3), 1 / 3)
    concentration = 0.01 + 10.0 * (np.arange(3) == label)
    rng = np.random.default_rng(0)
    gammas = np.log(rng.gamma(concentration + 1, size=(100_000, 3)))
    shares = scipy.special.log_softmax(
        gammas + np.log(rng.random(gammas.shape)) / concentration, axis=1
    )
    post = by_quadrature(
        prior, (x, np.full(10, label)), class_prior=dist.Dirichlet(np.full(3, 0.01))
    )
    points = np.where(np.eye(3), 0.992, 0.004)
    actual = post.predict(points, method="preds")
    truth = scipy.special.softmax(9 * np.log(points)[:, None] + shares, axis=2).mean(axis=1)
    np.testing.assert_allclose(actual.probs, truth, rtol=0, atol=0.01)


@pytest.mark.parametrize("counts", COUNTS)
def test_coeffs_averages_the_log_odds_of_the_share(counts: tuple[int, int]) -> None:
    data = make_data(*counts)
    share = scipy.stats.beta(counts[1] + 1, counts[0] + 1)
    mean = integrate.quad(
        lambda u: u * share.pdf(expit(u)) * expit(u) * expit(-u),
        *(-60, 60),
        epsabs=1e-12,
        limit=400,
        points=[np.log((counts[1] + 1) / (counts[0] + 1))],
    )[0]
    learned, even = (
        by_quadrature(PRIOR, data, **options).predict(POINTS, method="coeffs").log_odds
        for options in ({}, {"class_prior": 0.5})
    )
    np.testing.assert_allclose(np.asarray(learned) - np.asarray(even), mean, rtol=0, atol=1e-8)


def test_map_takes_the_mode_of_the_log_odds() -> None:
    data = make_data(6, 2)
    share = scipy.stats.beta(3, 7)
    mode = optimize.minimize_scalar(
        lambda u: -(share.logpdf(expit(u)) + np.log(expit(u) * expit(-u))),
        bracket=(-3, 0),
        options={"xtol": 1e-10},
    ).x
    learned, even = (
        by_quadrature(PRIOR, data, **options).predict(POINTS, method="map").log_odds
        for options in ({}, {"class_prior": 0.5})
    )
    np.testing.assert_allclose(np.asarray(learned) - np.asarray(even), mode, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "sobol", "importance"])
def test_draws_of_shares_are_within_their_error(integrator: str) -> None:
    data = make_data(12, 3)
    post = bc.posterior(PRIOR, data, integrator=integrator, num_samples=20_000)
    truth = by_quadrature(PRIOR, data)
    for method in ("predictive", "preds", "coeffs"):
        actual = post.predict(POINTS, method=method)
        miss = np.abs(actual.probs - truth.predict(POINTS, method=method).probs)
        assert (miss <= 4 * actual.mcse).all(), method


def test_stated_error_is_the_spread_between_seeds() -> None:
    """Check known densities, where only the class proportion is random."""
    posts = [bc.posterior(FIXED, make_data(6, 2), num_samples=500, key=k) for k in range(100)]
    actual = [post.predict(POINTS[1:4], method="preds") for post in posts]
    spread = np.std([f.probs for f in actual], axis=0, ddof=1)
    stated = np.mean([f.mcse for f in actual[:20]], axis=0)
    # The standard deviation of 100 values has a relative error of 1 / sqrt(200) = 7 %.
    np.testing.assert_allclose(stated / spread, 1, atol=4 * 0.07)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature"])
def test_intervals_contain_the_uncertainty_of_the_share(integrator: str) -> None:
    """Compare with shifted quantiles of a beta distribution, for known densities."""
    n, level = 10_000, 0.8
    # Besides the means, quadrature needs a parameter to integrate over.
    prior = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=dist.Uniform(1 - 1e-9, 1 + 1e-9))
    post = bc.posterior(prior, make_data(6, 2), integrator=integrator, num_samples=n)
    bounds = post.predict(POINTS[1:4]).interval(level)
    share = scipy.stats.beta(3, 7)
    for actual, q in zip(bounds, (0.1, 0.9), strict=True):
        u = logit(expit(logit(actual) - 2 * POINTS[1:4]))
        # The number of draws below a bound is binomial.
        below = share.cdf(expit(u))
        assert (np.abs(below - q) < 5 * np.sqrt(q * (1 - q) / n)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("integrator", "form"),
    [("montecarlo", "grid"), ("sobol", "batch"), ("quadrature", "alone")],
)
def test_intervals_where_the_share_alone_is_unknown(integrator: str, form: str) -> None:
    """Compare with the logit of a Beta(2, 4) variable shifted by 2 x."""
    data = np.array([0.0, 1, -1, 0.2]), np.array([0, 1, 0, 0])
    expected = expit(0.6 + logit(scipy.stats.beta(2, 4).ppf([0.05, 0.95])))
    prior = {"a": FIXED, "b": FIXED} if form == "grid" else FIXED
    rows = [data, data] if form == "batch" else data
    actual = bc.posterior_predict(prior, rows, [0.3], integrator=integrator).interval(0.9)
    for end, q in zip(actual, expected, strict=True):
        np.testing.assert_allclose(end, np.full(np.shape(end), q), atol=0.006)


# --- three classes ------------------------------------------------------------------------------


def simplex_data(counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat([0, 1, 2], counts)
    return np.random.default_rng(0).dirichlet([2, 2, 2], len(y)), y


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature"])
def test_three_classes(integrator: str) -> None:
    data = simplex_data([7, 2, 0])
    post = bc.posterior(TRIANGLE, data, integrator=integrator, num_samples=20_000)
    np.testing.assert_allclose(post.class_prior, [8 / 12, 3 / 12, 1 / 12])
    points = data[0][:4]
    alpha = np.array(list(TRIANGLE.values and TRIANGLE.values.values()))
    density = np.exp([scipy.stats.dirichlet(row).logpdf(points.T) for row in alpha]).T
    joint = density * [8, 3, 1]
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(post.predict(points).probs, expected, rtol=1e-9)
    logs = np.log(density) + scipy.special.digamma([8, 3, 1])
    np.testing.assert_allclose(
        post.predict(points, method="coeffs").probs, scipy.special.softmax(logs, axis=1), rtol=1e-9
    )
    # Proportions as independent sticks, integrated with Gauss rules.
    t, w = np.polynomial.legendre.leggauss(80)
    t, w = (t + 1) / 2, w / 2
    first, second = t[:, None], (1 - t[:, None]) * t
    shares = np.stack([first + 0 * t, second, 1 - first - second], axis=-1)
    weight = np.outer(w * scipy.stats.beta(8, 4).pdf(t), w * scipy.stats.beta(3, 1).pdf(t))
    ratio = shares[:, :, None] * density
    truth = (weight[..., None, None] * ratio / ratio.sum(axis=-1, keepdims=True)).sum(axis=(0, 1))
    actual = post.predict(points, method="preds")
    assert (np.abs(actual.probs - truth) <= 4 * np.asarray(actual.mcse)).all()
    assert (np.asarray(actual.mcse) < 0.01).all()


# --- batches, and what may be said --------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature", "closed_form"])
def test_each_data_set_of_a_batch_has_its_own_share(integrator: str) -> None:
    prior = PRIOR
    if integrator == "closed_form":
        prior = bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=2)
    sets = [make_data(9, 9), make_data(14, 6), make_data(8, 13)]
    x, y, mask = np.full((3, 21), np.nan), np.full((3, 21), -1), np.zeros((3, 21), bool)
    for row, (scores, labels) in enumerate(sets):
        n = len(scores)
        x[row, :n], y[row, :n], mask[row, :n] = scores, labels, True
    options = {"integrator": integrator, "num_samples": 1000}
    post = bc.posterior(prior, (x, y, mask), **options)
    np.testing.assert_allclose(post.class_prior, [10 / 20, 7 / 22, 14 / 23])
    for method in ("predictive", "preds", "coeffs", "map"):
        result = post.predict(POINTS, method=method)
        for row, one in enumerate(sets):
            alone = bc.posterior(prior, one, **options).predict(POINTS, method=method)
            # A density is flat at its mode, so rounding moves the mode by the square root of eps.
            rtol = 1e-6 if method == "map" else 1e-10
            np.testing.assert_allclose(result.probs[row], alone.probs, rtol=rtol, err_msg=method)
            if method == "preds":
                np.testing.assert_allclose(result.interval()[0][row], alone.interval()[0])


def test_a_prior_of_the_share_of_the_users_own() -> None:
    data = make_data(6, 2)
    beta = by_quadrature(PRIOR, data, class_prior=dist.Beta(2.0, 5.0))
    assert beta.class_prior == pytest.approx(4 / 15)
    same = by_quadrature(PRIOR, data, class_prior=dist.Dirichlet(jax.numpy.array([5.0, 2.0])))
    for method in ("predictive", "preds"):
        actual, expected = (p.predict(POINTS, method=method).probs for p in (beta, same))
        np.testing.assert_array_equal(actual, expected)
    uniform = by_quadrature(PRIOR, data, class_prior=dist.Beta(1.0, 1.0))
    np.testing.assert_array_equal(
        uniform.predict(POINTS).probs, by_quadrature(PRIOR, data).predict(POINTS).probs
    )
    assert by_quadrature(PRIOR, data, class_prior=0.25).class_prior == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (dist.Uniform(0, 1), TypeError, "class_prior must be a Beta or Dirichlet distribution"),
        (dist.Dirichlet(np.ones(3)), ValueError, "over 2 classes without batch dimensions"),
        (dist.Beta(np.ones(2), 1.0), ValueError, "over 2 classes without batch dimensions"),
    ],
)
def test_other_distributions_are_refused(value: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        bc.posterior(PRIOR, make_data(3, 3), class_prior=value)
