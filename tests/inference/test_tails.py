"""Predictions far from the data: accurate or accompanied by a warning, with a valid error."""

from __future__ import annotations

import functools
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import bayescal as bc

# The formulas here compare densities, so classes have equal proportions.
posterior = functools.partial(bc.posterior, class_prior=0.5)

UNEVEN = np.r_[-1.4, -0.6, np.linspace(-0.5, 2.5, 20)], np.r_[np.zeros(2, int), np.ones(20, int)]
LOPSIDED = np.array([0.2, -0.4, -1.1, -1.6]), np.zeros(4, int)
pytestmark = pytest.mark.usefixtures("x64")

EXACT = np.finfo(np.longdouble).max > 1e400
FAR = [18.0, 20.0, 25.0, 1e3, 1e20, *([1e160] if EXACT else [])]
NORMAL = bc.GaussianPrior(dist.Normal(-1, 1), dist.Normal(1, 1), 1.0)
STUDENT = {"mean0": -1.0, "mean1": 1.0, "kappa0": 1.0, "kappa1": 2.0, "alpha": 2.0, "beta": 1.5}
SLOW = pytest.param("nuts", marks=pytest.mark.slow)
DRAWN = ["montecarlo", "sobol", "importance", "nuts"]


def normal_log_odds(x: np.ndarray, data: tuple) -> np.ndarray:
    """Compute log odds for normal priors N(+-1, 1) of the means and deviation 1."""
    at, log_density = np.asarray(x, np.longdouble), []
    for label, mean in enumerate((-1, 1)):
        of_class = data[0][data[1] == label].astype(np.longdouble)
        v = 1 / np.longdouble(1 + len(of_class))
        log_density.append(
            -((at - v * (mean + of_class.sum())) ** 2) / (1 + v) / 2 - np.log1p(v) / 2
        )
    return log_density[1] - log_density[0]


def student_log_odds(x: np.ndarray, data: tuple) -> np.ndarray:
    """Compute log odds from Student's predictive distribution (Murphy, 2007)."""
    by_class = [data[0][data[1] == label].astype(np.longdouble) for label in (0, 1)]
    alpha, beta, actual = STUDENT["alpha"] + len(data[0]) / 2, np.longdouble(STUDENT["beta"]), []
    for label, mine in enumerate(by_class):
        k, n, m = STUDENT[f"kappa{label}"], len(mine), STUDENT[f"mean{label}"]
        beta += ((mine - mine.mean()) ** 2).sum() / 2 + k * n * (mine.mean() - m) ** 2 / (k + n) / 2
        actual.append((k + n, (k * m + mine.sum()) / (k + n)))
    log_density = []
    for k, m in actual:
        scale = 2 * beta * (k + 1) / k
        log_square = 2 * np.log(np.abs(np.asarray(x, np.longdouble) - m)) - np.log(scale)
        log_density.append(-(alpha + 0.5) * np.logaddexp(0, log_square) - np.log(scale) / 2)
    return log_density[1] - log_density[0]


def probability(log_odds: np.ndarray) -> np.ndarray:
    return scipy.special.expit(np.clip(log_odds, -1e4, 1e4).astype(float))


def predict(post: bc.Posterior, x: object) -> tuple[bc.Prediction, list]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = post.predict(x)
    return result, [w.category for w in warned]


@pytest.mark.slow
@pytest.mark.parametrize("data", [UNEVEN, LOPSIDED])
def test_quadrature_has_the_closed_form_far_away(data: tuple) -> None:
    post = posterior(NORMAL, data, integrator="quadrature")
    x = np.array([-25.0, -6, 0, 6, 10, 14, 18, 20, 25, 100])
    result = post.predict(x)
    truth = normal_log_odds(x, data).astype(float)
    np.testing.assert_allclose(result.log_odds, truth, rtol=1e-9, atol=1e-8)
    miss = np.abs(probability(truth) - np.asarray(result.probs))
    assert (miss <= np.asarray(result.mcse) + 1e-15).all()
    assert (np.asarray(result.mcse) < 1e-7).all() and result.mcse[2] < 1e-9
    if data is UNEVEN:
        np.testing.assert_allclose(result.probs[6:8], [0.0804508, 0.00111268], rtol=1e-5)


def test_points_of_jax_in_single_precision() -> None:
    points = np.array([0.0, 30, -40])
    post = posterior(NORMAL, UNEVEN, integrator="quadrature")
    result = post.predict(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(result.log_odds, normal_log_odds(points, UNEVEN), rtol=1e-5)


@pytest.mark.parametrize(
    "integrator",
    ["quadrature", *(pytest.param(name, marks=pytest.mark.slow) for name in DRAWN)],
)
def test_means_unknown_right_or_warned(integrator: str) -> None:
    post = posterior(NORMAL, UNEVEN, integrator=integrator, num_samples=2000, key=1)
    for x, truth in zip(FAR, normal_log_odds(FAR, UNEVEN), strict=True):
        check(post, x, truth)


@pytest.mark.parametrize(
    "integrator",
    [
        "closed_form",
        "montecarlo",
        pytest.param("quadrature", marks=pytest.mark.slow),
        pytest.param("importance", marks=pytest.mark.slow),
    ],
)
def test_means_and_deviation_unknown_right_or_warned(integrator: str) -> None:
    prior = bc.NormalInverseGammaPrior(**STUDENT)
    post = posterior(prior, UNEVEN, integrator=integrator, num_samples=2000, key=1)
    for x, truth in zip(FAR, student_log_odds(FAR, UNEVEN), strict=True):
        check(post, x, truth)
        if integrator == "closed_form":
            assert float(post.predict([x]).log_odds[0]) == pytest.approx(float(truth), rel=1e-9)


def check(post: bc.Posterior, x: float, truth: np.longdouble) -> None:
    result, warned = predict(post, [x])
    p, miss = result.probs[0], abs(result.probs[0] - probability(truth))
    assert warned or miss < max(1e-9, 4 * result.mcse[0])
    assert miss <= 4 * result.mcse[0] + 1e-12, (x, p, truth)


def test_draws_of_the_least_weight_determine_densities_far_away() -> None:
    """Compare with quadrature; squares of the weights of these draws are zero by underflow."""
    prior = bc.GaussianPrior(dist.Normal(-1, 10), dist.Normal(1, 10), dist.LogNormal(0.0, 0.5))
    y = np.arange(100) % 2
    data = np.random.default_rng(0).normal(2.0 * y - 1, 1.0), y
    x = np.array([-300.0, 300.0])
    exact = posterior(prior, data, integrator="quadrature").predict(x).probs
    for key in (5, 8):
        drawn = posterior(prior, data, integrator="importance", num_samples=20_000, key=key)
        with pytest.warns(bc.SamplingWarning, match="few draws carry the densities at"):
            result = drawn.predict(x)
        assert (np.abs(result.probs - exact) < 2 * np.asarray(result.mcse)).all()


@pytest.mark.slow
def test_deviation_unknown_against_scipy() -> None:
    x = np.array([-30.0, -8, 0.5, 8, 30])
    prior = bc.GaussianPrior(-1.0, 1.0, dist.HalfNormal(1.0))
    actual = posterior(prior, LOPSIDED, integrator="quadrature").predict(x)
    s = np.exp(np.linspace(-4, 5, 20001))
    norm = scipy.stats.norm
    log_joint = np.log(s) + norm.logpdf(s) + norm.logpdf(LOPSIDED[0][:, None], -1, s).sum(axis=0)
    log_mean = []
    for mean in (-1, 1):
        logs = log_joint[:, None] + norm.logpdf(x, mean, s[:, None])
        top = logs.max(axis=0)
        area = scipy.integrate.simpson(np.exp(logs - top), x=np.log(s), axis=0)
        log_mean.append(np.log(area) + top)
    truth = log_mean[1] - log_mean[0]
    np.testing.assert_allclose(actual.log_odds, truth, rtol=1e-8)
    miss = np.abs(probability(truth) - np.asarray(actual.probs))
    assert (miss <= np.asarray(actual.mcse) + 1e-13).all()


@pytest.mark.slow
def test_long_curves_rows_of_a_batch_and_own_priors() -> None:
    x = np.linspace(-14, 14, 57)
    post = posterior(NORMAL, UNEVEN, integrator="quadrature")
    truth = normal_log_odds(x, UNEVEN).astype(float)
    np.testing.assert_allclose(
        post.predict(x, interpolate=True).log_odds, truth, rtol=1e-6, atol=1e-5
    )
    few = np.tile([-1.0, 0.5, 1.2, 2.0], (3, 1)), np.tile([0, 1, 1, 1], (3, 1))
    points = np.array([[0.0, 20.0], [0.0, -1.0], [-25.0, 3.0]])
    for prior in (NORMAL, [NORMAL] * 3):
        result = posterior(prior, few, integrator="quadrature").predict(points)
        truth = normal_log_odds(points, (few[0][0], few[1][0])).astype(float)
        np.testing.assert_allclose(result.log_odds, truth, rtol=1e-9, atol=1e-8)
        assert result.mcse.shape == points.shape


@pytest.mark.slow
def test_near_the_data_nothing_warns_and_errors_are_those_of_samples() -> None:
    post = posterior(NORMAL, UNEVEN, num_samples=2000, key=1)
    x = np.linspace(-3, 4, 9)
    assert predict(post, x)[1] == []
    near, both = post.predict(x), predict(post, np.r_[x, 25.0])[0]
    np.testing.assert_allclose(both.mcse[:-1], near.mcse, rtol=1e-9)
    np.testing.assert_allclose(both.probs[:-1], near.probs, rtol=1e-9)


@pytest.mark.parametrize("method", ["preds", "coeffs", "map"])
def test_other_averages_have_their_limits(method: str) -> None:
    post = posterior(NORMAL, UNEVEN, num_samples=2000, key=1)
    probs = np.asarray(post.predict([-1e300, -1e160, 1e20, 1e160], method=method).probs)
    assert (probs[:2] < 0.01).all() and (probs[2:] > 0.99).all()


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["importance", SLOW])
def test_between_two_tight_classes_right_or_warned(integrator: str) -> None:
    """Check points between two tight classes, where one draw in a thousand matters."""
    x, y = np.array([-1.0001, -0.9999, 1, 1.001]), np.array([0, 0, 1, 1])
    prior = bc.GaussianPrior(dist.Normal(-1, 2), dist.Normal(1, 2), dist.LogNormal(-7, 0.3))
    s = np.exp(np.linspace(-9, 0, 40_001))
    log_joint = np.zeros((2, len(s)))
    for new in (0, 1):
        for label, mean in enumerate((-1, 1)):
            of_class = np.append(x[y == label], 0.0)[: None if new == label else -1]
            n, between = len(of_class), ((of_class - of_class.mean()) ** 2).sum()
            log_joint[new] -= between / 2 / s**2 + (n - 1) * np.log(s)
            log_joint[new] += scipy.stats.norm.logpdf(of_class.mean(), mean, np.sqrt(4 + s**2 / n))
    log_joint += scipy.stats.norm.logpdf(np.log(s), -7, 0.3)
    truth = scipy.special.logsumexp(log_joint, axis=1)
    truth = scipy.special.expit(truth[1] - truth[0])
    assert truth == pytest.approx(0.493, abs=5e-4)
    for key in (1, 2):
        post = posterior(prior, (x, y), integrator=integrator, key=key, num_samples=20_000)
        # The outer points are near the data, and the gap is not.
        result, warned = predict(post, [-1.0, 0.0, 1.0])
        assert warned == [bc.SamplingWarning]
        assert abs(result.probs[1] - truth) <= result.mcse[1]
        miss = np.abs(np.asarray(result.probs) - [0, truth, 1])
        assert (miss <= np.asarray(result.mcse) + 1e-9).all()


@pytest.mark.parametrize(
    ("integrator", "n"),
    [("montecarlo", 2), ("importance", 20), ("quadrature", 4)],
)
def test_gaps_that_draws_describe_do_not_warn(integrator: str, n: int) -> None:
    y = np.arange(n) % 2
    data = np.random.default_rng(0).normal(3.0 * (2 * y - 1)), y
    prior = bc.GaussianPrior(dist.Normal(-3, 1), dist.Normal(3, 1), dist.Uniform(0.5, 2))
    post = posterior(prior, data, integrator=integrator, num_samples=20_000)
    assert predict(post, np.linspace(-4, 4, 9))[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("wide0", [False, True])
def test_priors_far_wider_than_the_posterior(wide0: bool) -> None:
    """Compare with SciPy's rule over the deviation; given it, the means have closed forms."""
    x, y = np.array([0.13, -0.13, 0.64, 1.1, 0.46, 1.36]), np.array([0, 0, 0, 1, 1, 1])
    mean0 = dist.Normal(-1.0, 100.0) if wide0 else 0.2
    prior = bc.GaussianPrior(mean0, dist.Normal(1.0, 100.0), dist.Gamma(2.0, 2.0))
    points = np.array([-3.0, 0.0, 3.0, 40.0])
    u = np.linspace(-8, 8, 20_001)
    s, norm = np.exp(u), scipy.stats.norm

    def log_marginal(of_class: np.ndarray, mean: float, width: float) -> np.ndarray:
        n, center = len(of_class), of_class.mean()
        within = norm.logpdf(of_class[:, None], center, s).sum(0) - norm.logpdf(0, 0, s / n**0.5)
        return within + norm.logpdf(center, mean, np.sqrt(width**2 + s**2 / n))

    laws = (-1.0, 100.0) if wide0 else (0.2, 0.0), (1.0, 100.0)
    parts = [x[y == label] for label in (0, 1)]
    log_prior = scipy.stats.gamma.logpdf(s, 2, scale=0.5) + u

    def log_evidence(*parts: np.ndarray) -> float:
        logs = log_prior + sum(log_marginal(p, *law) for p, law in zip(parts, laws, strict=True))
        return scipy.special.logsumexp(logs) + np.log(u[1] - u[0])

    truth = np.array(
        [
            log_evidence(parts[0], np.append(parts[1], point))
            - log_evidence(np.append(parts[0], point), parts[1])
            for point in points
        ]
    )
    post = posterior(prior, (x, y), integrator="quadrature")
    assert post.log_evidence == pytest.approx(log_evidence(*parts), abs=1e-8)
    result = post.predict(points)
    np.testing.assert_allclose(result.log_odds, truth, rtol=1e-6, atol=1e-7)
    assert (np.asarray(result.mcse) < 1e-5).all()


def test_beta_densities_are_far_from_the_data_by_log_odds_of_scores() -> None:
    prior, x = bc.BetaPrior(dist.Gamma(2.0, 1.0), 1.0, 0.03, 1.0), 1e-200
    post = posterior(prior, ([0.3], [1]), num_samples=4096)
    with pytest.warns(bc.SamplingWarning, match="few draws carry the densities"):
        result = post.predict([x])
    # Without rows of class 0, its density is the integral of a x**(a - 1) over Gamma(2, 1).
    odds = 0.03 * x**0.03 * (1 - np.log(x)) ** 3 / 2
    assert abs(result.probs[0] - odds / (1 + odds)) < result.mcse[0]
