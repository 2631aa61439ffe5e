"""Results after conditioning: consistent numbers, text output, ArviZ and warnings.

The tests read draws and log weights, and recompute everything else from them in NumPy.
"""

import functools
import math
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats

import bayescal as bc
from bayescal.inference.engine import condition as _condition

# Estimated class proportions are tested in test_class_prior.py.
condition = functools.partial(bc.posterior, class_prior=0.5)

# 2,500 draws have a tail of exactly 3 * 50 weights, however a library rounds.
DRAWS = 2500
# A single number of resamples, so that programs compile once.
COUNT = 2000
SCORES = np.array([-1.25, -0.5, 0.25, -1.75, 0.5, 1.5, 0.75, 2.25])
LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
DATA = SCORES, LABELS
POINTS = np.linspace(-3, 3, 16)
SOFT = bc.GaussianPrior(
    mu0=dist.Normal(-1, 0.5), mu1=dist.Normal(1, 0.5), sigma=dist.Uniform(0.5, 2.0)
)
CONJUGATE = bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1, alpha=2, beta=2)
TRIANGLE = bc.DirichletPrior([dist.Gamma(16, 4)] * 3)

SLOW = pytest.param("nuts", marks=pytest.mark.slow)
INTEGRATORS = ["montecarlo", "sobol", "importance", "quadrature", "closed_form", SLOW]
WEIGHTED = ["montecarlo", "sobol", "importance"]


@functools.cache
def posterior_of(integrator: str) -> bc.Posterior:
    prior = CONJUGATE if integrator == "closed_form" else SOFT
    return condition(prior, DATA, integrator=integrator, num_samples=DRAWS, key=1)


@functools.cache
def simplex_posterior() -> bc.Posterior:
    x = np.random.default_rng(0).dirichlet([3, 4, 5], size=6)
    return condition(TRIANGLE, (x, [0, 1, 2, 2, 0, 1]), num_samples=DRAWS)


class Recomputed:
    """Draws and weights of a posterior in NumPy, and all quantities computed from them."""

    def __init__(self, post: bc.Posterior, class_prior: float = 0.5) -> None:
        draws = {name: np.asarray(v, np.float64) for name, v in post.draws().items()}
        self.mu = np.stack([draws["mu0"], draws["mu1"]])
        self.sigma = np.broadcast_to(draws["sigma"], self.mu.shape[1:])
        self.log_weights = np.asarray(post.log_weights(), np.float64)
        self.weights = np.exp(self.log_weights)
        self.shift = scipy.special.logit(class_prior)

    def log_likelihood(self) -> np.ndarray:
        norm = scipy.stats.norm
        return sum(norm.logpdf(x, self.mu[y], self.sigma) for x, y in zip(*DATA, strict=True))

    def log_odds_by_draw(self, x: np.ndarray) -> np.ndarray:
        """Compute log odds (draws, points) from the parameters with Theorem 1."""
        slope = (self.mu[1] - self.mu[0]) / self.sigma**2
        intercept = (self.mu[0] ** 2 - self.mu[1] ** 2) / (2 * self.sigma**2)
        return slope[:, None] * x + intercept[:, None] + self.shift

    def densities(self, x: np.ndarray) -> np.ndarray:
        """Compute weighted class densities (2, draws, points)."""
        z = (x - self.mu[..., None]) / self.sigma[:, None]
        log_scale = np.log(self.sigma)[:, None] + 0.5 * np.log(2 * np.pi)
        odds = np.exp([0.0, self.shift])[:, None, None]
        return odds * np.exp(-0.5 * z**2 - log_scale) * self.weights[:, None]

    def predictive(self, x: np.ndarray) -> np.ndarray:
        zero, one = self.densities(x).sum(axis=1)
        return one / (zero + one)

    def preds(self, x: np.ndarray) -> np.ndarray:
        return self.weights @ scipy.special.expit(self.log_odds_by_draw(x))

    def coeffs(self, x: np.ndarray) -> np.ndarray:
        return scipy.special.expit(self.weights @ self.log_odds_by_draw(x))


# --- draws and weights --------------------------------------------------------------------------


def check_predictions(post: bc.Posterior, **options: float) -> None:
    again = Recomputed(post, **options)
    for method in ("predictive", "preds", "coeffs"):
        if (post.integrator, method) == ("closed_form", "predictive"):
            continue  # A formula, not an average over the draws.
        # Allow for sums of a few thousand terms, and features relative to the mean of the data.
        actual = post.predict(POINTS, method=method).probs
        np.testing.assert_allclose(actual, getattr(again, method)(POINTS), rtol=1e-11)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_predictions_follow_from_draws_and_weights(x64: None, integrator: str) -> None:
    post = posterior_of(integrator)
    check_predictions(post)
    log_weights = np.asarray(post.log_weights())
    assert scipy.special.logsumexp(log_weights) == pytest.approx(0, abs=1e-12)
    assert all(np.shape(v)[0] == len(log_weights) for v in post.draws().values() if np.ndim(v))


def test_class_prior_enters_every_method(x64: None) -> None:
    post = condition(SOFT, DATA, num_samples=DRAWS, key=1, class_prior=0.2)
    check_predictions(post, class_prior=0.2)


@pytest.mark.parametrize("integrator", ["montecarlo", "sobol"])
def test_weights_of_prior_draws_are_likelihoods(x64: None, integrator: str) -> None:
    post = posterior_of(integrator)
    again = Recomputed(post)
    log_lik = again.log_likelihood()
    total = scipy.special.logsumexp(log_lik)
    np.testing.assert_allclose(again.log_weights, log_lik - total, rtol=1e-11, atol=1e-11)
    expected = total - np.log(len(log_lik))
    assert post.log_evidence == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("integrator", ["closed_form", SLOW])
def test_draws_from_the_posterior_have_equal_weights(x64: None, integrator: str) -> None:
    log_weights = np.asarray(posterior_of(integrator).log_weights())
    np.testing.assert_allclose(log_weights, -np.log(len(log_weights)), rtol=0, atol=1e-10)


def test_mode_is_the_best_draw(x64: None) -> None:
    post = posterior_of("montecarlo")
    again = Recomputed(post)
    norm = scipy.stats.norm
    log_prior = norm.logpdf(again.mu[0], -1, 0.5) + norm.logpdf(again.mu[1], 1, 0.5)
    best = np.argmax(again.log_likelihood() + log_prior)
    expected = {"mu0": again.mu[0, best], "mu1": again.mu[1, best], "sigma": again.sigma[best]}
    assert {name: float(v) for name, v in post.mode.items()} == pytest.approx(expected)
    log_odds = again.log_odds_by_draw(POINTS)[best]
    np.testing.assert_allclose(post.predict(POINTS, method="map").log_odds, log_odds, atol=1e-11)


# --- attributes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_attributes(integrator: str) -> None:
    post = posterior_of(integrator)
    assert post.prior is (CONJUGATE if integrator == "closed_form" else SOFT)
    assert post.integrator == integrator
    assert post.batch_size is None
    assert post.num_samples >= DRAWS
    if integrator not in ("quadrature", "closed_form"):
        assert len(post.log_weights()) == post.num_samples
        assert post.num_samples % {"sobol": 16, "nuts": 4}.get(integrator, 1) == 0
    if integrator in WEIGHTED:
        weights = np.exp(np.asarray(post.log_weights(), float))
        assert post.ess == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), rel=1e-5)
    if integrator != "nuts":
        mcse = np.asarray(post.predict(POINTS, method="map").mcse)
        assert np.isnan(mcse).all() or integrator == "closed_form"
    for value in (post.log_evidence, post.ess, post.pareto_k):
        assert isinstance(value, float)
    assert np.isnan(post.pareto_k) == (integrator not in WEIGHTED)
    assert np.isnan(post.ess) == (integrator not in [*WEIGHTED, "nuts"])
    assert np.isnan(post.r_hat) == np.isnan(post.divergences) == (integrator != "nuts")
    assert np.isnan(post.log_evidence) == (integrator == "nuts")
    assert set(post.mode) == {"mu0", "mu1", "sigma"}


def test_a_batch_has_one_number_for_each_data_set() -> None:
    post = condition(SOFT, [DATA, DATA, (SCORES[2:], LABELS[2:])], num_samples=DRAWS, key=1)
    assert post.batch_size == 3
    for name in ("log_evidence", "ess", "pareto_k"):
        values = getattr(post, name)
        assert values.shape == (3,)
        assert values[0] == values[1] != values[2]
    assert {v.shape for v in post.mode.values()} == {(3,)}
    np.testing.assert_array_equal(post.log_weights(0), post.log_weights(1))
    assert not np.array_equal(post.log_weights(0), post.log_weights(2))
    for index in (3, -1):
        for function in (post.draws, post.log_weights, lambda i: post.sample(10, index=i)):
            with pytest.raises(IndexError, match=rf"^index must be in \[0, 3\), got {index}$"):
                function(index)


def test_prediction_repeats_what_the_posterior_says() -> None:
    post = posterior_of("montecarlo")
    result = post.predict(POINTS, method="preds")
    assert result.posterior is post
    assert result.method == "preds"
    assert (result.ess, result.pareto_k) == (post.ess, post.pareto_k)
    assert result.log_evidence == post.log_evidence
    np.testing.assert_array_equal(result.x, POINTS)
    np.testing.assert_array_equal(result.log_weights, post.log_weights())
    for name, values in post.draws().items():
        np.testing.assert_array_equal(result.draws[name], values)


def test_probabilities_of_two_classes_agree() -> None:
    result = posterior_of("quadrature").predict(np.array([-30.0, -1.0, 0.0, 2.0, 30.0]))
    log_odds = np.asarray(result.log_odds, np.float64)
    # Rounding of log odds is a relative error of the smaller probability.
    eps = float(np.finfo(np.float32).eps)
    rtol = eps * (1 + np.abs(log_odds).max())
    np.testing.assert_allclose(result.probs, scipy.special.expit(log_odds), rtol=rtol)
    both = np.stack([scipy.special.log_expit(-log_odds), scipy.special.log_expit(log_odds)])
    np.testing.assert_allclose(result.log_probs, both.T, rtol=rtol)
    # The rarer class keeps digits that one minus the other probability would lose.
    assert np.all(np.asarray(result.log_probs)[[0, -1], [1, 0]] < -10)


def test_results_have_jax_default_type() -> None:
    def all_arrays(points: Any = POINTS) -> list[Any]:
        result = posterior_of("montecarlo").predict(points)
        arrays = [result.probs, result.log_odds, result.log_probs, result.mcse]
        arrays += [*result.interval(), result.log_weights, *result.draws.values()]
        return [*arrays, *result.posterior.sample(COUNT).values()]

    for points in (jnp.asarray(POINTS), POINTS.astype(np.float32)):
        assert {a.dtype.name for a in all_arrays(points)} == {"float32"}
    with jax.enable_x64(True):
        assert {a.dtype.name for a in all_arrays()} == {"float64"}
        assert all(isinstance(a, jax.Array) for a in all_arrays())


@pytest.mark.slow
def test_closed_forms_need_no_draws() -> None:
    """Check that ten billion draws need no memory, and that only some results need draws."""
    many = condition(CONJUGATE, DATA, integrator="closed_form", num_samples=10**10)
    few = condition(CONJUGATE, DATA, integrator="closed_form", num_samples=1000)
    assert many.log_evidence == few.log_evidence and many.mode == few.mode
    for method in ("predictive", "map"):
        np.testing.assert_array_equal(
            many.predict(POINTS, method=method).probs, few.predict(POINTS, method=method).probs
        )
    assert many.as_function()(0.0) == few.as_function()(0.0)
    first, again = few.draws(), few.draws()
    for name, values in first.items():
        assert len(values) == 1000
        np.testing.assert_array_equal(values, again[name])
    # Drawing does not change the exact predictions.
    np.testing.assert_array_equal(few.predict(POINTS).probs, many.predict(POINTS).probs)


@pytest.mark.slow
def test_points_in_double_precision_have_results_of_numpy_in_it() -> None:
    """Compare with ten digits of the closed form, for a conjugate prior."""
    prior = bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=2, alpha=2, beta=1.5)
    exact = condition(prior, DATA, integrator="closed_form").predict(POINTS)
    known = bc.GaussianPrior(dist.Normal(-1, 1), dist.Normal(1, 1), 1.0)
    result = condition(known, DATA, integrator="quadrature").predict(POINTS)
    for actual in (exact, result):
        arrays = (actual.probs, actual.log_odds, actual.log_probs, actual.mcse, *actual.interval())
        for array in arrays:
            assert isinstance(array, np.ndarray) and array.dtype == np.float64
    log_density = []
    for label, mean in enumerate((-1, 1)):
        of_class = DATA[0][DATA[1] == label]
        v = 1 / (1 + len(of_class))
        law = scipy.stats.norm(v * (mean + of_class.sum()), np.sqrt(1 + v))
        log_density.append(law.logpdf(POINTS) + np.log(1 + len(of_class)))
    np.testing.assert_allclose(result.log_odds, log_density[1] - log_density[0], rtol=1e-10)
    assert (result.mcse < 1e-9).all()
    narrow = condition(known, DATA, integrator="quadrature").predict(POINTS.astype(np.float32))
    truth = condition(known, DATA, integrator="quadrature").predict(
        POINTS.astype(np.float32).astype(float)
    )
    assert (np.abs(narrow.probs - truth.probs) <= np.asarray(narrow.mcse)).all()
    assert (np.asarray(narrow.mcse) < 2e-6).all()


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("integrator", "pattern"),
    [("montecarlo", r", ESS \d+"), ("quadrature", "")],
)
def test_repr(integrator: str, pattern: str) -> None:
    post = posterior_of(integrator)
    start = rf"GaussianPrior, 8 observations, {integrator}, log evidence -\d+\.\d\d"
    assert re.fullmatch(rf"Posterior\({start}{pattern}\)", repr(post))
    assert f"{post.log_evidence:.2f}" in repr(post)
    result = post.predict(POINTS, method="preds")
    low, high = float(np.min(result.probs)), float(np.max(result.probs))
    facts = f"Prediction(preds, 16, {low:.3g} to {high:.3g}; {post!r})"
    assert repr(result) == facts


def test_repr_of_a_batch() -> None:
    post = condition(SOFT, [DATA, DATA, (SCORES[2:], LABELS[2:])], num_samples=DRAWS, key=1)
    low, high = post.log_evidence.min(), post.log_evidence.max()
    text = repr(post)
    assert "GaussianPrior, 3 data sets of 6 to 8 observations, montecarlo" in text
    assert f"log evidence {low:.2f} to {high:.2f}" in text
    assert "preds, 3 x 8, " in repr(post.predict(method="preds"))


def table_of(html: str) -> tuple[str, dict[str, str]]:
    caption = re.search(r"<caption>(.*?)</caption>", html)
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", html)
    assert html.startswith("<table>")
    assert html.endswith("</table>")
    assert caption is not None
    return caption[1], dict(rows)


def test_html() -> None:
    post = posterior_of("montecarlo")
    caption, rows = table_of(post._repr_html_())
    assert caption == "Posterior"
    assert rows == {
        "prior": "GaussianPrior",
        "data": "8 observations",
        "integrator": "montecarlo",
        "log evidence": f"{post.log_evidence:.2f}",
        "ESS": f"{post.ess:.0f}",
        "Pareto k": f"{post.pareto_k:.2f}",
    }
    caption, more = table_of(post.predict(POINTS)._repr_html_())
    assert caption == "Prediction"
    assert more.items() > rows.items()
    assert (more["method"], more["points"]) == ("predictive", "16")


# --- Monte-Carlo errors and intervals -----------------------------------------------------------


def test_standard_errors_follow_from_influences(x64: None) -> None:
    post = posterior_of("montecarlo")
    again = Recomputed(post)
    weights = again.weights[:, None]
    odds = again.log_odds_by_draw(POINTS)

    # The influence of a draw is the derivative with respect to its weight.
    preds, coeffs = again.preds(POINTS), again.coeffs(POINTS)
    zero, one = again.densities(POINTS)
    p = again.predictive(POINTS)
    influence = {
        "preds": weights * (scipy.special.expit(odds) - preds),
        "coeffs": weights * (odds - (weights * odds).sum(axis=0)) * coeffs * (1 - coeffs),
        "predictive": ((1 - p) * one - p * zero) / (one + zero).sum(axis=0),
    }
    for method, values in influence.items():
        expected = np.sqrt((values**2).sum(axis=0))
        actual = post.predict(POINTS, method=method).mcse
        np.testing.assert_allclose(actual, expected, rtol=1e-9, err_msg=method)


@pytest.mark.parametrize("method", ["predictive", "coeffs"])
def test_standard_error_of_sobol_is_the_spread_of_its_parts(x64: None, method: str) -> None:
    post = posterior_of("sobol")
    again = Recomputed(post)
    whole, parts = again.weights, []
    for part in np.arange(len(whole)).reshape(16, -1):
        again.weights = np.zeros_like(whole)
        again.weights[part] = whole[part] / whole[part].sum()
        parts.append(getattr(again, method)(POINTS))
    expected = np.std(parts, axis=0, ddof=1) / 4
    np.testing.assert_allclose(post.predict(POINTS, method=method).mcse, expected, rtol=1e-9)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_pickled_posteriors_are_in_double_precision(integrator: str) -> None:
    post = posterior_of(integrator)
    again = pickle.loads(pickle.dumps(post))
    for method in ("predictive", "map"):
        ours, theirs = (one.predict(POINTS, method=method) for one in (again, post))
        np.testing.assert_array_equal(ours.probs, theirs.probs)
        np.testing.assert_array_equal(ours.mcse, theirs.mcse)
    np.testing.assert_array_equal(ours.interval(), theirs.interval())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(ours)).interval(), theirs.interval())
    assert again.mode == post.mode and repr(again) == repr(post)


@pytest.mark.parametrize(("integrator", "level"), [("importance", 0.9), ("closed_form", 0.5)])
def test_intervals_are_weighted_quantiles(x64: None, integrator: str, level: float) -> None:
    post = posterior_of(integrator)
    again = Recomputed(post)
    values = scipy.special.expit(again.log_odds_by_draw(POINTS))
    for tail, actual in zip(
        ((1 - level) / 2, (1 + level) / 2), post.predict(POINTS).interval(level), strict=True
    ):
        for j in range(len(POINTS)):
            order = np.argsort(values[:, j])
            reached = np.cumsum(again.weights[order])
            # The smallest value at which the mass reaches the tail. Bisection in log odds stops
            # within 2**-45 of their range, and rounding may select a neighbor where masses tie.
            index = np.searchsorted(reached, tail + np.array([-1e-12, 1e-12]))
            low, high = values[order, j][index]
            assert low - 1e-10 <= actual[j] <= high + 1e-10


def test_intervals_of_log_odds_without_bounds() -> None:
    """Check draws of next to no weight from a long tail, whose log odds are beyond 1e13."""
    prior = bc.BetaPrior(dist.Gamma(0.7, 0.5), 0.64, 2.58, dist.InverseGamma(0.923, 1.809))
    data = [0.2, 0.4, 0.5, 0.3, 0.6, 0.1], [0] * 6
    ends = [
        bc.posterior_predict(
            prior, data, [0.1, 0.5], integrator=integrator, class_prior=0.85
        ).interval(0.8)
        for integrator in ("quadrature", "montecarlo")
    ]
    np.testing.assert_allclose(*ends, atol=0.03)


@pytest.mark.slow
def test_intervals_are_nested_around_the_median(x64: None) -> None:
    result = posterior_of("quadrature").predict(POINTS)
    wide, narrow = result.interval(0.9), result.interval(0.5)
    assert np.all(np.asarray(wide[0]) < np.asarray(narrow[0]))
    assert np.all(np.asarray(narrow[0]) < np.asarray(narrow[1]))
    assert np.all(np.asarray(narrow[1]) < np.asarray(wide[1]))
    for level in (0, 1, 90, -0.5):
        with pytest.raises(ValueError, match=r"^level must lie strictly between 0 and 1, got "):
            result.interval(level)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["quadrature", "montecarlo"])
def test_intervals_against_exact_quantiles(x64: None, integrator: str) -> None:
    # With one unknown mean the posterior is normal, and far right the log odds increase in it.
    prior = bc.GaussianPrior(mu0=-1.0, mu1=dist.Normal(1, 1), sigma=1.0)
    positives = SCORES[LABELS == 1]
    variance = 1 / (1 + len(positives))
    belief = scipy.stats.norm(variance * (1 + positives.sum()), np.sqrt(variance))
    x = np.array([6.0, 8.0])
    post = condition(prior, DATA, integrator=integrator, num_samples=40_000)
    actual = np.stack(post.predict(x).interval(0.8))
    # The probability below a quantile has this standard error.
    n = 40_000 if integrator == "quadrature" else post.ess
    slip = 5 * np.sqrt(0.1 * 0.9 / n)
    for tail, ends in zip((0.1, 0.9), actual, strict=True):
        mu = belief.ppf(np.array([tail - slip, tail + slip]))[:, None]
        low, high = scipy.special.expit((mu + 1) * x + (1 - mu**2) / 2)
        assert np.all((low <= ends) & (ends <= high))


# --- many points --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("integrator", "method"), [("montecarlo", "preds"), ("closed_form", "predictive")]
)
def test_many_points_are_interpolated(integrator: str, method: str) -> None:
    x = np.random.default_rng(0).normal(0, 2, size=2000)
    post = posterior_of(integrator)
    result = post.predict(x, method=method)
    exact = post.predict(x, method=method, interpolate=False)
    assert exact.interpolation_error is None
    assert result.interpolation_error is not None
    assert result.interpolation_error <= 1e-6
    # Two roundings to single precision add to the error.
    np.testing.assert_allclose(result.probs, exact.probs, rtol=0, atol=1e-6 + 2.0**-23)


@pytest.mark.parametrize("outlier", [-1e8, 1e300])
def test_outliers_do_not_spoil_interpolation(x64: None, outlier: float) -> None:
    # The data are symmetric, so log odds are flat far away, where nodes carry no information.
    post = condition(CONJUGATE, ([-1.0, 1.0], [0, 1]), integrator="closed_form", num_samples=DRAWS)
    x = np.random.default_rng(0).normal(0, 2, size=2000)
    x[17] = outlier
    result = post.predict(x)
    exact = post.predict(x, interpolate=False)
    np.testing.assert_allclose(result.probs, exact.probs, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_curve_too_steep_for_nodes_is_computed_at_all_points(x64: None) -> None:
    """Check a tiny common deviation, where interpolation must not change the log odds."""
    prior = bc.GaussianPrior(mu0=0.0, mu1=dist.Normal(1.0, 1.0), sigma=1e-5)
    y = np.arange(6) % 2
    data = y + 1e-5 * np.random.default_rng(0).normal(size=6), y
    post = condition(prior, data, integrator="quadrature")
    points = np.linspace(-1, 2, 700)
    actual, exact = (post.predict(points, interpolate=how) for how in (True, False))
    assert actual.interpolation_error is None
    np.testing.assert_array_equal(actual.log_odds, exact.log_odds)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_data_sets_far_apart_with_common_draws(
    x64: None, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Check two data sets for which few draws matter, so sums must be repeated for each set."""
    if not kept:
        monkeypatch.setattr(_condition, "_KEPT_WEIGHTS", 0)
    prior = bc.GaussianPrior(mu0=dist.Uniform(-30, 30), mu1=dist.Uniform(-30, 30), sigma=1.0)
    y = np.arange(6) % 2
    noise = np.random.default_rng(0).normal(size=(2, 6))
    sets = [
        (25.0 * side + y + deviations, y) for side, deviations in zip((-1, 1), noise, strict=True)
    ]
    how: dict[str, Any] = {"integrator": "sobol", "num_samples": 4096}
    points = np.linspace(-30, 30, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = condition(prior, sets, **how).predict(points).log_odds
        alone = [condition(prior, data, **how).predict(points).log_odds for data in sets]
    assert np.isfinite(actual).all()
    np.testing.assert_allclose(actual, alone, atol=1e-9)


def test_many_equal_points_are_one() -> None:
    post = posterior_of("montecarlo")
    many, one = post.predict(np.full(600, 0.5)), post.predict([0.5])
    for actual, expected in zip(many.interval(0.8), one.interval(0.8), strict=True):
        np.testing.assert_allclose(actual, np.repeat(expected, 600), rtol=1e-6)


def test_errors_and_intervals_of_many_points(x64: None) -> None:
    post = posterior_of("montecarlo")
    many = np.linspace(-3, 3, 600)
    few = many[::40]
    result, exact = post.predict(many), post.predict(few)
    # Linear interpolation between more than 128 nodes has the error bound spacing**2 / 8 times the
    # curvature. Probabilities with slopes below 4 have at most 16 * (6 / 127)**2 / 8.
    atol = 16 * (6 / 127) ** 2 / 8
    for actual, expected in zip(result.interval(), exact.interval(), strict=True):
        np.testing.assert_allclose(actual[::40], expected, rtol=0, atol=atol)
    np.testing.assert_allclose(result.mcse[::40], exact.mcse, rtol=0, atol=atol)


@pytest.mark.parametrize("deviation", [0.1, 0.03])
def test_errors_and_intervals_of_many_points_of_a_steep_curve(deviation: float) -> None:
    """Check log odds that change by 12 and by 140 from one node to the next."""
    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=deviation)
    y = np.repeat([0, 1], 10)
    x = deviation * np.random.default_rng(0).normal(size=20) + 2 * y - 1
    post = condition(prior, (x, y), integrator="importance", num_samples=4000)
    many = np.linspace(-8, 8, 640)
    middle = slice(310, 330)
    result, exact = post.predict(many), post.predict(many[middle])
    np.testing.assert_allclose(result.mcse[middle], exact.mcse, rtol=1e-6, atol=1e-9)
    for actual, expected in zip(result.interval(), exact.interval(), strict=True):
        np.testing.assert_allclose(actual[middle], expected, rtol=0, atol=0.02)


# --- diagnostics --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:few draws carry the weight")
@pytest.mark.parametrize("integrator", ["montecarlo", "importance"])
def test_one_draw_is_a_prediction_of_its_parameters(x64: None, integrator: str) -> None:
    post = condition(SOFT, DATA, integrator=integrator, num_samples=1, key=1)
    draw = {name: float(np.asarray(value).item()) for name, value in post.draws().items()}
    slope = (draw["mu1"] - draw["mu0"]) / draw["sigma"] ** 2
    log_odds = slope * (POINTS - (draw["mu0"] + draw["mu1"]) / 2)
    np.testing.assert_allclose(post.predict(POINTS).log_odds, log_odds, atol=1e-9)
    assert post.ess == 1 and np.isnan(post.pareto_k)


def arviz_pareto_k(log_weights: np.ndarray) -> float:
    arviz = pytest.importorskip("arviz", reason="ArviZ is not installed")
    if hasattr(arviz, "psislw"):
        return float(arviz.psislw(log_weights.copy())[1])
    stats = pytest.importorskip("arviz_stats.base", reason="arviz-stats is not installed")
    # The function expects log likelihoods to leave out, which are negative log weights.
    return float(stats.array_stats.psislw(-log_weights)[1])


# A narrow class mean under increasingly wide priors gives heavier tails of the weights.
@pytest.mark.parametrize("width", [0.5, 2.0, 30.0])
def test_pareto_k_against_arviz(x64: None, width: float) -> None:
    prior = bc.GaussianPrior(
        mu0=dist.Normal(-1, width), mu1=dist.Normal(1, width), sigma=dist.Uniform(0.5, 2.0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bc.SamplingWarning)
        post = condition(prior, DATA, num_samples=DRAWS, key=3)
    expected = arviz_pareto_k(np.asarray(post.log_weights()))
    # Both use the same fit, weak prior (ten observations of one half) and, with this number of
    # draws, tail of 150. The tail is held in single precision, where small exceedances over the
    # border lose digits, and k is a mean of their logarithms.
    assert post.pareto_k == pytest.approx(expected, abs=1e-3)
    assert (post.pareto_k > 0.7) == (width == 30.0)


def test_few_weights_have_no_tail() -> None:
    from bayescal.inference.engine.diagnostics import pareto_k

    weights = -np.sort(np.random.default_rng(0).exponential(size=(3, 6)))
    assert np.isnan(pareto_k(weights[:, :5])).all()
    assert np.isfinite(pareto_k(weights)).all()


@pytest.mark.parametrize("span", [0.5, 20.0, 250.0])
def test_tails_of_any_span_have_the_shape_of_the_definition(span: float) -> None:
    """Check spans for which products of four likelihood terms would overflow."""
    from bayescal.inference.engine.diagnostics import pareto_k

    log_weights = -np.sort(span * np.random.default_rng(0).exponential(size=(5, 31)))
    log_weights -= log_weights[:, :1]
    for row, actual in zip(log_weights, pareto_k(log_weights), strict=True):
        x = np.sort(np.exp(row[:-1]) - np.exp(row[-1]))
        n, grid = len(x), 30 + int(np.sqrt(len(x)))
        quartile = x[int(n / 4 + 0.5) - 1]
        places = np.arange(1, grid + 1) - 0.5
        theta = 1 / x[-1] + (1 - np.sqrt(grid / places)) / (3 * quartile)
        shape = np.array([np.mean([math.log1p(-t * value) for value in x]) for t in theta])
        profile = n * (np.log(-theta / shape) - shape - 1)
        weights = np.exp(profile - profile.max())
        mean = theta @ weights / weights.sum()
        expected = np.mean([math.log1p(-mean * value) for value in x])
        assert actual == pytest.approx((n * expected + 5) / (n + 10), rel=1e-9)


# --- warnings -----------------------------------------------------------------------------------

WIDE = bc.GaussianPrior(
    mu0=dist.Normal(-1, 30.0), mu1=dist.Normal(1, 30.0), sigma=dist.Uniform(0.5, 2.0)
)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "sobol"])
def test_few_effective_draws_warn(integrator: str) -> None:
    with pytest.warns(bc.SamplingWarning) as caught:
        post = condition(WIDE, DATA, integrator=integrator, num_samples=DRAWS)
    assert len(caught) == 1
    assert post.ess < 100
    assert str(caught[0].message) == (
        f"few draws carry the weight: effective sample size {post.ess:.0f} of {post.num_samples} "
        f"and Pareto k {post.pareto_k:.2f} (want at least 100 and at most 0.7); use "
        "integrator='importance', 'quadrature' or 'nuts', or more samples"
    )
    # The warning points at the user's line.
    assert caught[0].filename == __file__


@pytest.mark.slow
def test_advice_where_importance_sampling_fails() -> None:
    with pytest.warns(bc.SamplingWarning, match="; use integrator='nuts', or more samples$"):
        condition(SOFT, DATA, integrator="importance", num_samples=50)


def test_large_k_alone_warns() -> None:
    # One score at the mean has the likelihood 1 / sigma; with this prior its tail has k = 1 / 1.2.
    prior = bc.GaussianPrior(mu0=0.0, mu1=1.0, sigma=dist.Beta(1.2, 1.0))
    with pytest.warns(bc.SamplingWarning, match="^few draws carry the weight: "):
        post = condition(prior, ([0.0], [0]), num_samples=10_000)
    assert post.ess > 100
    # The estimate from the 300 largest weights has a standard error of about (1 + k) / sqrt(300).
    assert post.pareto_k == pytest.approx(1 / 1.2, abs=3 * 1.83 / np.sqrt(300))
    assert post.pareto_k > 0.7


def test_a_batch_warns_once_with_its_worst_data_set() -> None:
    far = SCORES + np.where(LABELS == 1, 2.5, -2.5), LABELS
    with pytest.warns(bc.SamplingWarning) as caught:
        post = condition(SOFT, [DATA, far, DATA], num_samples=DRAWS, key=1)
    assert len(caught) == 1
    assert post.ess.argmin() == 1
    message = str(caught[0].message)
    assert "for 1 of 3 data sets" in message
    assert f"effective sample size {post.ess[1]:.0f} of {DRAWS}" in message


UNIFORM = bc.GaussianPrior(dist.Uniform(-2.5, 0), dist.Uniform(0, 2.5), 1.0)
SIX = np.array([-1.3, -0.2, -0.9, 0.4, 1.6, 0.8]), np.array([0, 0, 0, 1, 1, 1])


@pytest.mark.slow
def test_bounded_weights_do_not_warn_by_their_tail() -> None:
    """Check weights with 90 % effective draws, although k is noisy and often above 0.7."""
    truth = condition(UNIFORM, SIX, integrator="quadrature").predict([-1.0, 0.0, 1.0]).probs
    k, z = [], []
    for key in range(12):
        post = condition(UNIFORM, SIX, integrator="importance", key=key)
        actual = post.predict([-1.0, 0.0, 1.0])
        k.append(post.pareto_k)
        z.append((actual.probs - truth) / actual.mcse)
    assert max(k) > 0.7
    assert 0.5 < np.sqrt(np.mean(np.square(z))) < 1.6


# --- chains -------------------------------------------------------------------------------------


def two_mode_prior(share: float) -> dist.Distribution:
    parts = dist.Normal(np.array([-6.0, 6.0]), 0.5)
    return dist.MixtureSameFamily(dist.Categorical(np.array([share, 1 - share])), parts)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "first"), [(0.05, True), (0.3, False)])
def test_chains_that_miss_a_mode_warn(share: float, first: bool) -> None:
    means = [two_mode_prior(share), dist.Normal(0, 1)]
    label = 1 if first else 0
    prior = bc.GaussianPrior(*(means if first else means[::-1]), sigma=1.0)
    for key in range(3):
        with pytest.warns(bc.SamplingWarning, match="^the chains do not describe the posterior: "):
            post = condition(
                prior, ([0.1, 0.2, 0.3], [label] * 3), integrator="nuts", num_samples=4000, key=key
            )
        assert post.ess < 100 or post.r_hat > 1.05


@pytest.mark.slow
def test_chains_of_an_improper_posterior_warn() -> None:
    tied = [-1.0] * 8 + [1.0] * 8, [0] * 8 + [1] * 8
    prior = bc.GaussianPrior(dist.Normal(-1, 1), dist.Normal(1, 1), dist.HalfNormal(1.0))
    with pytest.warns(bc.SamplingWarning, match="^the chains do not describe the posterior: "):
        condition(prior, tied, integrator="nuts", num_samples=1000)


@pytest.mark.slow
def test_chains_say_how_they_mixed(x64: None) -> None:
    import numpyro.diagnostics

    post = posterior_of("nuts")
    assert 100 < post.ess <= 3 * post.num_samples and 0.99 < post.r_hat < 1.05
    assert post.divergences < 0.01 * post.num_samples
    sigma = np.log(np.asarray(post.draws()["mu1"]) + 10).reshape(4, -1)
    assert numpyro.diagnostics.split_gelman_rubin(sigma) < post.r_hat + 0.02
    with pytest.warns(bc.SamplingWarning, match="^few draws carry the densities"):
        far = post.predict([-1e3, 0.0, 1e3])
    assert np.isfinite(far.mcse).all()


def test_draws_at_the_end_of_a_support_are_named() -> None:
    from bayescal.inference.engine.space import names_at_ends

    prior = bc.GaussianPrior(dist.Normal(0, 1), dist.Normal(0, 1), dist.HalfNormal(1.0))
    assert names_at_ends(prior, np.array([[1e3, 1e3, 99.0], [0.0, 0.0, 0.0]])) == []
    assert names_at_ends(prior, np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 120.0]])) == ["sigma"]


@pytest.mark.slow
def test_draws_at_the_end_of_a_support_warn() -> None:
    """Check equal scores of one class, for which the density is unbounded at zero deviation."""
    prior = bc.GaussianPrior(
        mu0=1.0, mu1=dist.Normal(2.0, 1.0), sigma0=dist.HalfNormal(1.0), sigma1=1.0
    )
    data = np.array([1.0] * 6 + [2.0, 3.0]), np.array([0] * 6 + [1] * 2)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        condition(prior, data, integrator="importance", num_samples=2000)
    texts = [str(warning.message) for warning in warned]
    assert any(text.startswith("the posterior of sigma0 lies at an end") for text in texts)


def test_chains_are_judged_by_ranks() -> None:
    from bayescal.inference.engine.diagnostics import judge_chains

    rng = np.random.default_rng(0)
    chains, other = rng.standard_cauchy((4, 1000, 2)), rng.standard_cauchy((4096, 2))
    even = np.full(4096, -np.log(4096))
    ess, r_hat = judge_chains(chains, other, even)
    assert 2000 < ess < 8000 and abs(r_hat - 1) < 0.01
    # Half of the draws are moved, so mean ranks differ by about a standard deviation.
    other[::2] += 1e3
    assert judge_chains(chains, other, even)[0] < 20
    # Too few effective draws give no evidence.
    few = np.where(np.arange(4096) < 50, -np.log(50), -np.inf)
    assert judge_chains(chains, other, few)[0] == ess
    chains[0] += 3
    assert judge_chains(chains, other, few)[1] > 1.05
    assert np.isnan(judge_chains(np.zeros((4, 100, 1)), other[:, :1], even)[1])


# --- samples and ArviZ --------------------------------------------------------------------------


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_samples_have_the_weighted_moments(x64: None, integrator: str) -> None:
    post = posterior_of(integrator)
    again = Recomputed(post)
    sample = post.sample(COUNT, key=5)
    assert {v.shape for v in sample.values()} == {(COUNT,)}
    exact = again.weights / again.weights.sum()
    weights_ess = 1 / (exact**2).sum() if integrator != "quadrature" else np.inf
    for name, values in zip(("mu0", "mu1", "sigma"), (*again.mu, again.sigma), strict=True):
        mean = exact @ values
        deviation = np.sqrt(exact @ (values - mean) ** 2)
        # Resampling adds to the error of the draws. Quadrature draws DRAWS new values, with weights
        # of at most 1 / 0.9 relative to equal ones.
        error = deviation * np.sqrt(1 / COUNT + 1 / min(weights_ess, 0.9 * DRAWS))
        assert np.mean(sample[name]) == pytest.approx(mean, abs=5 * error)
        assert np.std(sample[name]) == pytest.approx(deviation, abs=5 * error)


def test_samples_depend_on_their_key_alone() -> None:
    post = posterior_of("montecarlo")
    first, again, other = (np.asarray(post.sample(COUNT, key=k)["mu0"]) for k in (2, 2, 3))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    draws = np.asarray(post.draws()["mu0"])
    assert np.abs(first[:, None] - draws).min(axis=1).max() < 1e-6
    for wrong, error in ((0, ValueError), (10.5, TypeError)):
        with pytest.raises(error, match=r"^num_draws must be "):
            post.sample(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature", "closed_form"])
def test_arviz_summary(integrator: str) -> None:
    arviz = pytest.importorskip("arviz", reason="ArviZ is not installed")
    post = posterior_of(integrator)
    tree = post.to_arviz(num_draws=COUNT, chains=4, key=1)
    group = tree["posterior"]
    assert {name: v.shape for name, v in group.data_vars.items()} == {
        name: (4, COUNT // 4) for name in ("mu0", "mu1", "sigma")
    }
    assert group.attrs["integrator"] == integrator
    assert group.attrs["inference_library"] == "bayescal"
    assert group.attrs["log_evidence"] == pytest.approx(post.log_evidence)
    if integrator == "montecarlo":
        assert group.attrs["ess"] == pytest.approx(post.ess)
        assert group.attrs["pareto_k"] == pytest.approx(post.pareto_k)
    table = arviz.summary(tree, round_to="none")
    sample = {name: np.asarray(v) for name, v in post.sample(COUNT, key=9).items()}
    assert sorted(table.index) == ["mu0", "mu1", "sigma"]
    for name, values in sample.items():
        # Two samples of 2,000 are resampled from at least 400 effective draws.
        error = np.std(values) * np.sqrt(2 / 400)
        assert float(table.loc[name, "mean"]) == pytest.approx(np.mean(values), abs=5 * error)


def test_arviz_has_the_prior_too() -> None:
    tree = posterior_of("montecarlo").to_arviz(num_draws=COUNT, chains=2)
    prior = tree["prior"]
    assert prior["mu0"].shape == (2, COUNT // 2)
    error = 0.5 / np.sqrt(COUNT)
    assert float(prior["mu0"].mean()) == pytest.approx(-1, abs=5 * error)
    assert float(prior["mu1"].mean()) == pytest.approx(1, abs=5 * error)
    assert 0.5 <= float(prior["sigma"].min()) <= float(prior["sigma"].max()) <= 2


# ArviZ 0.x uses a deprecated feature of Matplotlib.
@pytest.mark.filterwarnings("ignore:Passing a dict or None as alias_mapping")
def test_arviz_plots() -> None:
    arviz = pytest.importorskip("arviz", reason="ArviZ is not installed")
    tree = posterior_of("montecarlo").to_arviz(num_draws=COUNT)
    if hasattr(arviz, "plot_dist") and int(arviz.__version__.split(".")[0]) >= 1:
        plots = arviz.plot_dist(tree, backend="matplotlib")
        figure = plots.viz["figure"].item()
    else:
        figure = arviz.plot_posterior(tree).ravel()[0].figure
    titles = {axes.get_title() for axes in figure.axes}
    assert {"mu0", "mu1", "sigma"} <= {title.split("\n")[0] for title in titles}


@pytest.mark.slow
def test_arviz_of_vectors_and_of_one_data_set_of_a_batch() -> None:
    tree = simplex_posterior().to_arviz(num_draws=90, chains=3)
    assert {v.shape for v in tree["posterior"].data_vars.values()} == {(3, 30, 3)}
    far = SCORES + np.where(LABELS == 1, 0.5, -0.5), LABELS
    post = condition(SOFT, [DATA, far], num_samples=DRAWS, key=1)
    means = [
        float(post.to_arviz(num_draws=COUNT, index=i)["posterior"]["mu1"].mean()) for i in (0, 1)
    ]
    expected = [
        np.exp(np.asarray(post.log_weights(i), float)) @ np.asarray(post.draws(i)["mu1"], float)
        for i in (0, 1)
    ]
    assert means == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(100))
    assert means[1] > means[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_draws": 0}, ValueError, "num_draws must be at least 1, got 0"),
        ({"num_draws": 1.5}, TypeError, "num_draws must be an integer, got 1.5"),
        ({"chains": 0}, ValueError, "chains must be at least 1, got 0"),
        ({"chains": 2.5}, TypeError, "chains must be an integer, got 2.5"),
        ({"index": 1}, IndexError, r"index must be in \[0, 1\), got 1"),
    ],
)
def test_wrong_options_of_to_arviz(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        posterior_of("montecarlo").to_arviz(**options)


# --- more than two classes ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:few draws carry the densities")
def test_three_classes(x64: None) -> None:
    post = simplex_posterior()
    x = np.random.default_rng(1).dirichlet([1, 1, 1], size=16)
    with pytest.warns(bc.SamplingWarning, match="densities at 2 of 3 farthest points"):
        post.predict(x)
    draws, weights = post.draws(), np.exp(np.asarray(post.log_weights()))
    alpha = np.stack([np.asarray(draws[f"alpha{y}"]) for y in range(3)])
    log_density = (
        (alpha - 1) @ np.log(x).T
        + scipy.special.gammaln(alpha.sum(axis=-1))[..., None]
        - scipy.special.gammaln(alpha).sum(axis=-1)[..., None]
    )
    mixed = np.einsum("n,knm->mk", weights, np.exp(log_density))
    expected = {
        "predictive": mixed / mixed.sum(axis=1, keepdims=True),
        "preds": np.einsum("n,knm->mk", weights, scipy.special.softmax(log_density, axis=0)),
        "coeffs": scipy.special.softmax(np.einsum("n,knm->mk", weights, log_density), axis=1),
    }
    for method, probs in expected.items():
        result = post.predict(x, method=method)
        np.testing.assert_allclose(result.probs, probs, rtol=1e-10, err_msg=method)
        np.testing.assert_allclose(result.log_probs, np.log(probs), rtol=1e-9, atol=1e-10)
        assert result.mcse.shape == (16, 3)
        lower, upper = result.interval(0.8)
        assert lower.shape == upper.shape == (16, 3)
        assert np.all(np.asarray(lower) < np.asarray(upper))
        with pytest.raises(AttributeError, match=r"^log_odds are for two classes; use log_probs$"):
            result.log_odds  # noqa: B018
    assert {name: np.shape(v) for name, v in post.mode.items()} == {
        f"alpha{y}": (3,) for y in range(3)
    }
    values = scipy.special.softmax(log_density, axis=0)
    lower, upper = (np.asarray(v) for v in post.predict(x).interval(0.8))
    inside = (values >= lower.T[:, None]) & (values <= upper.T[:, None])
    np.testing.assert_allclose(np.einsum("n,knm->mk", weights, inside), 0.8, atol=2 * weights.max())


@pytest.mark.slow
def test_three_classes_in_a_batch() -> None:
    rng = np.random.default_rng(2)
    x = rng.dirichlet([3, 4, 5], size=(2, 6))
    y = rng.integers(0, 3, size=(2, 6))
    post = condition(TRIANGLE, (x, y), num_samples=DRAWS)
    result = post.predict()
    assert result.probs.shape == result.log_probs.shape == result.mcse.shape == (2, 6, 3)
    assert result.interval()[0].shape == (2, 6, 3)
    np.testing.assert_allclose(result.probs.sum(axis=-1), 1, atol=1e-6)
    assert "2 x 6 x 3" in repr(result)
    assert "2 data sets of 6 to 6 observations" in repr(post)


@pytest.mark.slow
def test_chains_of_a_batch_are_independent() -> None:
    """Check that equal data sets have different draws, so that errors average out."""
    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=1.0, sigma=1.0)
    data = [([-1.2, 0.3, 1.1], [0, 0, 1])] * 2
    post = bc.posterior(prior, data, integrator="nuts", num_samples=1000)
    first, second = (np.asarray(post.draws(index)["mu0"]) for index in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "sobol", "importance", "quadrature", "nuts"])
def test_arviz_sees_the_effective_sample_size(integrator: str) -> None:
    """Check that few weighted draws look unconverged in ArviZ, and many look independent."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    scores = rng.normal(2 * y - 1, 0.7)
    prior = bc.GaussianPrior(
        mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=dist.HalfNormal(1.0)
    )
    options = {} if integrator == "quadrature" else {"num_samples": 8192}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        post = bc.posterior(prior, (scores, y), integrator=integrator, **options)
        table = arviz.summary(post.to_arviz(num_draws=4000), kind="diagnostics")
    ess, r_hat = table["ess_bulk"].astype(float), table["r_hat"].astype(float)
    if integrator in ("montecarlo", "sobol"):
        assert post.ess < 20
        assert ess.max() < 100 and r_hat.max() > 1.05
        assert post.pareto_k > 0.7
    else:
        assert ess.min() > 1500 and r_hat.max() < 1.03


def test_draws_that_coincide() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 100_000)
    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.0)
    with pytest.warns(UserWarning, match="effective sample size 1 of 200"):
        post = bc.posterior(prior, (rng.normal(2 * y - 1, 1), y), num_samples=200)
    assert post.pareto_k == np.inf
    assert sorted(post.to_arviz()["posterior"].data_vars) == ["mu0", "mu1"]


def test_quadrature_draws_with_the_key_given() -> None:
    prior = bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=1.0, sigma=1.0)
    post = bc.posterior(prior, ([-1.2, 0.3, 1.1], [0, 0, 1]), integrator="quadrature")
    first, again, other = (set(np.asarray(post.sample(50, key=k)["mu0"])) for k in (1, 1, 2))
    assert first == again and not first & other


@pytest.mark.slow
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_another_key_or_data_set_compiles_nothing(
    integrator: str, compilations: Callable[[], Any]
) -> None:
    def run(key: int) -> None:
        data = SCORES + 0.1 * key, LABELS
        prior = CONJUGATE if integrator == "closed_form" else SOFT
        post = condition(prior, data, integrator=integrator, num_samples=400, key=key)
        actual = post.predict(POINTS)
        post.sample(10, key=key)
        assert actual.interval()[0].shape == actual.mcse.shape == POINTS.shape

    run(0)
    with compilations() as names:
        run(1)
    assert names == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uniform", "gamma"])
def test_a_rough_rule_states_no_smaller_error_than_it_has(name: str) -> None:
    """Compare with SciPy's integral over sigma, given which the means are normal."""
    density = {"uniform": dist.Uniform(0.1, 3.0), "gamma": dist.Gamma(1.2, 1.0)}[name]
    prior = bc.GaussianPrior(dist.Normal(-1.0, 1.0), dist.Normal(1.0, 1.0), density)
    x, at = np.full(3, 0.3), np.array([-1.0, 0.0, 0.3, 0.5, 1.0, 3.0])
    with pytest.warns(bc.AccuracyWarning, match="quadrature may be off"):
        post = bc.posterior(prior, (x, [0, 1, 1]), integrator="quadrature", class_prior=0.5)
    actual = post.predict(at, method="coeffs")
    low, high = (np.log([0.1, 3.0])) if name == "uniform" else (-60.0, 8.0)
    logs = np.linspace(low, high, 400_001)
    sigma = np.exp(logs)
    log_density = 0.0 if name == "uniform" else 0.2 * logs - sigma
    log_weights, squares = log_density + logs, []
    for n, mean in ((1, -1.0), (2, 1.0)):
        spread = np.sqrt(1 + sigma**2 / n)
        log_weights = log_weights + (1 - n) * logs + scipy.stats.norm.logpdf(0.3, mean, spread)
        variance = 1 / (1 + n / sigma**2)
        center = variance * (mean + n * 0.3 / sigma**2)
        squares.append((at[:, None] - center) ** 2 + variance)
    weights = scipy.special.softmax(log_weights)
    log_odds = ((squares[0] - squares[1]) / (2 * sigma**2)) @ weights
    error = np.abs(np.asarray(actual.probs) - scipy.special.expit(log_odds))
    assert error.max() > 0.05
    assert (np.asarray(actual.mcse) >= error).all()
