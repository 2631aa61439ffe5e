"""Batches: every data set has its separate results, and one compilation serves many."""

import functools
import math
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import bayescal as bc
from bayescal import posterior as condition

# Few draws suffice to compare a batch with its parts.
pytestmark = pytest.mark.filterwarnings("ignore::bayescal.SamplingWarning")

DRAWS = 1000
METHODS = ("predictive", "preds", "coeffs", "map")
INTEGRATORS = ("montecarlo", "sobol", "importance", "quadrature", "closed_form")
POINTS = np.linspace(-3, 3, 16)


def data_set(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=n)
    return rng.normal(2.0 * labels - 1, 1.0), labels


SETS = [data_set(n, seed) for seed, n in enumerate((20, 33, 60, 41, 25))]


def prior_of(integrator: str, shift: float = 0.0) -> bc.Prior:
    if integrator == "closed_form":
        return bc.NormalInverseGammaPrior(-1 + shift, 1, 1, 1 + shift, alpha=2 + shift, beta=2)
    sigma = 1 + shift if integrator == "quadrature" else dist.Uniform(0.5, 2 + shift)
    return bc.GaussianPrior(
        mu0=dist.Normal(-1 + shift, 1.0), mu1=dist.Normal(1.0, 1 + shift), sigma=sigma
    )


@functools.cache
def separate_posterior(
    integrator: str, index: int, shift: float = 0.0, draws: int = DRAWS
) -> bc.Posterior:
    prior = prior_of(integrator, shift)
    return condition(prior, SETS[index], integrator=integrator, num_samples=draws, key=3)


@functools.cache
def batch_posterior(integrator: str) -> bc.Posterior:
    return condition(prior_of(integrator), SETS, integrator=integrator, num_samples=DRAWS, key=3)


def assert_equal_alone(
    post: bc.Posterior, index: int, single: bc.Posterior, methods: tuple = METHODS
) -> None:
    for name in ("log_evidence", "ess", "pareto_k"):
        actual, expected = getattr(post, name)[index], getattr(single, name)
        assert actual == pytest.approx(expected, rel=1e-12, nan_ok=True), name
    for method in methods:
        actual = post.predict(POINTS, method=method).probs[index]
        expected = single.predict(POINTS, method=method).probs
        # A density is flat at its mode, so rounding moves the mode by the square root of eps.
        searched = method == "map" and post.integrator == "quadrature"
        rtol = 10 * np.sqrt(np.finfo(float).eps) if searched else 1e-12
        np.testing.assert_allclose(actual, expected, rtol=rtol, err_msg=method)


# --- alone or in a batch ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_data_sets_have_the_numbers_that_they_have_alone(x64: None, integrator: str) -> None:
    post = batch_posterior(integrator)
    assert post.batch_size == len(SETS)
    for index in range(len(SETS)):
        assert_equal_alone(post, index, separate_posterior(integrator, index))


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_a_prior_for_each_data_set(x64: None, integrator: str) -> None:
    shifts = [0.0, 0.25, 0.5, 0.0, 0.125]
    priors = [prior_of(integrator, shift) for shift in shifts]
    post = condition(priors, SETS, integrator=integrator, num_samples=DRAWS, key=3)
    assert post.prior == priors
    for index, shift in enumerate(shifts):
        single = separate_posterior(integrator, index, shift)
        assert_equal_alone(post, index, single, ("predictive", "coeffs", "map"))


@pytest.mark.slow
def test_nuts_agrees_within_its_error(x64: None) -> None:
    # Chains are chaotic: rounding separates them, and only their estimates agree.
    prior = prior_of("nuts")
    options = {"integrator": "nuts", "num_samples": 4000, "key": 3}
    post = condition([prior] * 2, SETS[:2], **options)
    single = separate_posterior("nuts", 0, draws=4000)
    for method in ("predictive", "preds", "coeffs"):
        batch, one = (p.predict(POINTS, method=method) for p in (post, single))
        error = np.hypot(batch.mcse[0], one.mcse)
        # A spread between 32 parts has 31 degrees of freedom; a sixth of it is five sigma.
        assert np.all(np.abs(batch.probs[0] - one.probs) < 6 * error)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature"])
def test_draws_and_weights_of_one_data_set(x64: None, integrator: str) -> None:
    post = batch_posterior(integrator)
    for index in (0, 2):
        single = separate_posterior(integrator, index)
        weights = np.asarray(post.log_weights(index)), np.asarray(single.log_weights())
        if integrator == "quadrature":
            continue
        np.testing.assert_allclose(*weights, rtol=1e-11, atol=1e-11)
        for name, values in single.draws().items():
            np.testing.assert_array_equal(post.draws(index)[name], values)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "sobol"])
def test_errors_and_intervals_in_a_batch(x64: None, integrator: str) -> None:
    result = batch_posterior(integrator).predict(POINTS, method="preds")
    lower, upper = result.interval(0.8)
    assert result.mcse.shape == lower.shape == upper.shape == (len(SETS), len(POINTS))
    for index in (0, 4):
        single = separate_posterior(integrator, index).predict(POINTS, method="preds")
        np.testing.assert_allclose(result.mcse[index], single.mcse, rtol=1e-9)
        for actual, expected in zip((lower, upper), single.interval(0.8), strict=True):
            np.testing.assert_allclose(actual[index], expected, rtol=1e-9)


def test_order_does_not_matter(x64: None) -> None:
    post = batch_posterior("montecarlo")
    options = {"num_samples": DRAWS, "key": 3}
    back = condition(prior_of("montecarlo"), SETS[::-1], **options)
    np.testing.assert_allclose(back.log_evidence, post.log_evidence[::-1], rtol=1e-12)
    actual, expected = (np.asarray(p.predict(POINTS).probs) for p in (back, post))
    np.testing.assert_allclose(actual, expected[::-1], rtol=1e-12)


def test_a_batch_of_one_is_a_batch(x64: None) -> None:
    post = condition(prior_of("montecarlo"), SETS[:1], num_samples=DRAWS, key=3)
    assert post.batch_size == 1
    assert post.log_evidence.shape == (1,)
    assert post.predict(POINTS).probs.shape == (1, len(POINTS))
    assert_equal_alone(post, 0, separate_posterior("montecarlo", 0))


@pytest.mark.slow
def test_multivariate_data_sets(x64: None) -> None:
    prior = bc.MultivariateGaussianPrior(
        mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), cov=dist.Uniform(0.5, 2)
    )
    rng = np.random.default_rng(0)
    sets = []
    for n in (12, 16, 14):
        labels = rng.integers(0, 2, size=n)
        sets.append((rng.normal(size=(n, 2)) + 2.0 * labels[:, None] - 1, labels))
    post = condition(prior, sets, num_samples=DRAWS)
    at_data = post.predict()
    assert at_data.probs.shape == (3, 16)
    for index, one in enumerate(sets):
        single = condition(prior, one, num_samples=DRAWS).predict()
        np.testing.assert_allclose(at_data.probs[index][: len(one[1])], single.probs, rtol=1e-12)


# --- ways to write a batch ----------------------------------------------------------------------


def pad_sets(fill: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    longest = max(len(y) for _, y in SETS)
    x = np.full((len(SETS), longest), fill)
    y, mask = np.full(x.shape, -1), np.zeros(x.shape, bool)
    for row, (scores, labels) in enumerate(SETS):
        x[row, : len(labels)], y[row, : len(labels)] = scores, labels
        mask[row, : len(labels)] = True
    return x, y, mask


@pytest.mark.parametrize("fill", [np.nan, 1e300])
def test_a_padded_batch_is_a_list(x64: None, fill: float) -> None:
    post = condition(prior_of("montecarlo"), pad_sets(fill), num_samples=DRAWS, key=3)
    expected = batch_posterior("montecarlo")
    np.testing.assert_array_equal(post.log_evidence, expected.log_evidence)
    np.testing.assert_array_equal(post.ess, expected.ess)
    np.testing.assert_array_equal(post.predict(POINTS).probs, expected.predict(POINTS).probs)


def test_masked_observations_anywhere(x64: None) -> None:
    x, y, mask = pad_sets(np.nan)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(x.shape[1]), (5, 1)), axis=1)
    shuffled = tuple(np.take_along_axis(a, order, axis=1) for a in (x, y, mask))
    post = condition(prior_of("montecarlo"), shuffled, num_samples=DRAWS, key=3)
    expected = batch_posterior("montecarlo")
    np.testing.assert_allclose(post.log_evidence, expected.log_evidence, rtol=1e-12)
    actual = np.asarray(post.predict().probs)
    np.testing.assert_array_equal(np.isnan(actual), ~shuffled[2])
    back = np.take_along_axis(np.asarray(expected.predict().probs), order, axis=1)
    np.testing.assert_allclose(actual, back, rtol=1e-12)


# --- points -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS[:2])
def test_shared_points_and_own_points(x64: None, method: str) -> None:
    post = batch_posterior("montecarlo")
    shared = np.asarray(post.predict(POINTS, method=method).probs)
    assert shared.shape == (len(SETS), len(POINTS))
    tiled = post.predict(np.tile(POINTS, (len(SETS), 1)), method=method)
    np.testing.assert_allclose(tiled.probs, shared, rtol=1e-12)
    assert tiled.x.shape == shared.shape
    points = POINTS + np.arange(len(SETS))[:, None] / 8
    actual = np.asarray(post.predict(points, method=method).probs)
    for index in (1, 4):
        expected = (
            separate_posterior("montecarlo", index).predict(points[index], method=method).probs
        )
        np.testing.assert_allclose(actual[index], expected, rtol=1e-12)


def test_predictions_at_the_data(x64: None) -> None:
    result = batch_posterior("montecarlo").predict()
    actual = np.asarray(result.probs)
    assert actual.shape == (len(SETS), max(len(y) for _, y in SETS))
    for index, (_, labels) in enumerate(SETS):
        expected = separate_posterior("montecarlo", index).predict().probs
        np.testing.assert_allclose(actual[index, : len(labels)], expected, rtol=1e-12)
        assert np.isnan(actual[index, len(labels) :]).all()
    assert np.isnan(result.log_odds).sum() == np.isnan(actual).sum()


@pytest.mark.slow
@pytest.mark.parametrize("separate", [False, True], ids=["shared", "own"])
def test_many_points_of_a_batch_are_interpolated(x64: None, separate: bool) -> None:
    post = batch_posterior("montecarlo")
    x = np.random.default_rng(0).normal(size=(len(SETS), 600))
    x += np.arange(len(SETS))[:, None]
    x = x if separate else x[0]
    result = post.predict(x, method="preds")
    assert result.interpolation_error is not None
    exact = post.predict(x, method="preds", interpolate=False)
    np.testing.assert_allclose(result.probs, exact.probs, rtol=0, atol=1e-6)
    row = x[2] if separate else x
    expected = (
        separate_posterior("montecarlo", 2).predict(row, method="preds", interpolate=False).probs
    )
    np.testing.assert_allclose(exact.probs[2], expected, rtol=1e-12)


# --- one compilation ----------------------------------------------------------------------------


def job(integrator: str, batch: int, n: int, m: int, shift: float = 0.0, **options: float) -> None:
    """Condition and predict."""
    sets = [data_set(n + seed % 3, seed) for seed in range(batch)]
    options = {"num_samples": 1234} | options
    post = condition(prior_of(integrator, shift), sets, integrator=integrator, **options)
    x = np.linspace(-3, 3, m) + shift
    for method in METHODS:
        np.asarray(post.predict(x, method=method).probs)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_nearby_sizes_share_one_compilation(compilations: Any, integrator: str) -> None:
    with compilations() as first:
        job(integrator, batch=8, n=20, m=128)
    assert first, "the log must show compilations, or this test sees nothing"
    with compilations() as more:
        for batch, n, m in ((5, 60, 113), (6, 41, 120), (7, 33, 127)):
            job(integrator, batch, n, m)
    assert not more, more


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_other_numbers_compile_nothing(compilations: Any, integrator: str) -> None:
    job(integrator, batch=8, n=20, m=128)
    job(integrator, batch=8, n=20, m=128, class_prior=0.5)
    with compilations() as more:
        job(integrator, batch=8, n=20, m=128, shift=0.25)
        job(integrator, batch=8, n=20, m=128, class_prior=0.2, key=7)
    assert not more, more


@pytest.mark.slow
def test_errors_and_intervals_compile_once(compilations: Any) -> None:
    def job(shift: float, batch: int, index: int) -> None:
        sets = [data_set(30, seed) for seed in range(batch)]
        post = condition(prior_of("montecarlo", shift), sets, num_samples=1234)
        result = post.predict(POINTS + shift, method="preds")
        result.mcse, result.interval(0.5 + shift)
        post.draws(index), post.log_weights(index), post.sample(200, index=index)
        post.to_arviz(num_draws=200, index=index)

    with compilations() as first:
        job(0.0, 8, 5)
    assert first
    with compilations() as more:
        job(0.25, 7, 3)
    assert not more, more


@pytest.mark.parametrize("kind", ["int", "float", "numpy", "jax"])
def test_kinds_of_numbers_in_a_prior_share_a_compilation(compilations: Any, kind: str) -> None:
    make = {"int": int, "float": float, "numpy": np.float32, "jax": jax.numpy.float32}[kind]

    def job(mean: float) -> None:
        prior = bc.GaussianPrior(mu0=dist.Normal(make(-1), make(1)), mu1=make(mean), sigma=make(2))
        condition(prior, SETS[0], num_samples=1234).predict(POINTS)

    job(1.0)
    with compilations() as more:
        job(2.0)
    assert not more, more


def test_lists_of_priors_share_a_compilation(compilations: Any) -> None:
    def job(batch: int, shift: float) -> None:
        priors = [prior_of("montecarlo", shift + seed / 64) for seed in range(batch)]
        sets = [data_set(20 + seed, seed) for seed in range(batch)]
        condition(priors, sets, num_samples=1234).predict(POINTS)

    with compilations() as first:
        job(8, 0.0)
    assert first
    with compilations() as more:
        job(5, 0.25)
        job(7, 0.5)
    assert not more, more


def log_evidence_of_conjugate_prior(scores: np.ndarray, labels: np.ndarray) -> float:
    """Compute the log evidence of `FAR_PRIOR` from centered sums of squares."""
    beta, log_density = 0.7, -0.5 * len(scores) * math.log(2 * math.pi)
    for y in (0, 1):
        own = scores[labels == y]
        n, mean = len(own), own.mean()
        beta += 0.5 * (((own - mean) ** 2).sum() + 1e-9 * n / (1e-9 + n) * mean**2)
        log_density += 0.5 * math.log(1e-9 / (1e-9 + n))
    alpha = 1.5 + len(scores) / 2
    log_density += 1.5 * math.log(0.7) - alpha * math.log(beta)
    return log_density + math.lgamma(alpha) - math.lgamma(1.5)


FAR_PRIOR = bc.NormalInverseGammaPrior(0, 0, 1e-9, 1e-9, 1.5, 0.7)
CENTERS = (0.0, 1e4, -1e7, 3e7)


@pytest.mark.parametrize("integrator", ["closed_form", "montecarlo"])
def test_data_sets_far_from_each_other_keep_their_digits(integrator: str) -> None:
    rng = np.random.default_rng(0)
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    scores = rng.normal(labels, 1.0)
    sets = [(scores[n:] + center, labels[n:]) for n, center in enumerate(CENTERS)]
    wide = bc.GaussianPrior(dist.Normal(0, 3e7), dist.Normal(0, 3e7), dist.Uniform(1e3, 1e7))
    prior = FAR_PRIOR if integrator == "closed_form" else wide
    options: dict = {"integrator": integrator, "num_samples": 100}
    post = condition(prior, sets, **options)
    x = np.add.outer(CENTERS, [-1.0, 0.3, 2.0])
    own, shared = post.predict(x), post.predict(x.ravel())
    for i, data in enumerate(sets):
        alone = condition(prior, data, **options)
        assert post.log_evidence[i] == pytest.approx(alone.log_evidence, rel=1e-14)
        expected = alone.predict(x.ravel()).log_odds
        np.testing.assert_allclose(shared.log_odds[i], expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(own.log_odds[i], expected.reshape(x.shape)[i], 1e-10, 1e-10)
        if integrator == "closed_form":
            exact = log_evidence_of_conjugate_prior(*data)
            assert post.log_evidence[i] == pytest.approx(exact, abs=1e-10)


@pytest.mark.slow
def test_quadrature_of_data_sets_far_from_each_other() -> None:
    rng, width = np.random.default_rng(1), 1e6
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    scores = np.add.outer((0.0, 1e6, -2e6), rng.normal(labels, 1.0))
    prior = bc.GaussianPrior(dist.Normal(0, width), dist.Normal(0, width), 1.0)
    data = scores, np.broadcast_to(labels, scores.shape)
    x = np.add.outer((0.0, 1e6, -2e6), [-1.0, 0.3, 2.0])
    result = bc.posterior_predict(prior, data, x, integrator="quadrature", class_prior=0.5)
    for i, row in enumerate(scores):
        log_evidence, log_predictive = -0.5 * len(row) * math.log(2 * math.pi), []
        for y in (0, 1):
            own = row[labels == y]
            n, mean = len(own), own.mean()
            spread = 1 / n + width**2
            log_evidence += 0.5 * math.log(2 * math.pi / n) - 0.5 * ((own - mean) ** 2).sum()
            log_evidence += scipy.stats.norm.logpdf(mean, 0, math.sqrt(spread))
            new = mean * width**2 / spread
            new_scale = math.sqrt(1 + width**2 / n / spread)
            log_predictive.append(scipy.stats.norm.logpdf(x[i], new, new_scale))
        assert result.log_evidence[i] == pytest.approx(log_evidence, abs=1e-7)
        log_odds = log_predictive[1] - log_predictive[0]
        np.testing.assert_allclose(result.log_odds[i], log_odds, rtol=0, atol=1e-7)


def test_errors_do_not_depend_on_other_data_sets() -> None:
    """Far points have a bound of the error, also if another data set reaches them."""
    prior = bc.GaussianPrior(dist.Normal(0, 10), dist.Normal(0, 10), dist.LogNormal(0.0, 1.0))
    near = np.array([-0.5, 0.6]), np.array([0, 1])
    wide = np.array([-40.0, -20.0, 20.0, 40.0]), np.array([0, 0, 1, 1])
    x = [-30.0, 0.5, 30.0]
    both = condition(prior, [near, wide], num_samples=500).predict(x).mcse
    for i, data in enumerate((near, wide)):
        alone = condition(prior, data, num_samples=500).predict(x).mcse
        np.testing.assert_allclose(both[i], alone, rtol=1e-9)
