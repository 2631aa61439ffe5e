"""Families of densities against SciPy, and priors over their parameters."""

import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import softmax

import bayescal as bc
from bayescal.datasets import synthetic
from bayescal.inference.engine.condition import find_modes
from bayescal.models import Family, Prior
from bayescal.models.prior import draw, log_density, walk

pytestmark = pytest.mark.usefixtures("x64")

COV = np.array([[1.3, 0.4], [0.4, 0.7]])
ALPHA = np.array([[2.0, 0.7, 1.1], [0.9, 3.0, 1.5], [1.2, 0.6, 2.5]])


class Case(NamedTuple):
    """A family with fixed parameters, SciPy's class densities, and points to evaluate."""

    prior: Prior
    densities: list[Any]
    points: np.ndarray


def in_simplex(rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Evaluate SciPy's Dirichlet density point by point, with sums of exactly one."""
    return lambda x: np.array([stats.dirichlet(rows).logpdf(p / p.sum()) for p in x])


CASES = {
    "shared": Case(
        bc.GaussianPrior(mu0=-0.7, mu1=1.1, sigma=1.6),
        [stats.norm(-0.7, 1.6).logpdf, stats.norm(1.1, 1.6).logpdf],
        np.linspace(-6, 7, 9),
    ),
    "unequal": Case(
        bc.GaussianPrior(mu0=-0.7, mu1=1.1, sigma0=0.5, sigma1=2.0),
        [stats.norm(-0.7, 0.5).logpdf, stats.norm(1.1, 2.0).logpdf],
        np.linspace(-6, 7, 9),
    ),
    "beta": Case(
        bc.BetaPrior(alpha0=0.6, beta0=3.0, alpha1=4.0, beta1=1.2),
        [stats.beta(0.6, 3.0).logpdf, stats.beta(4.0, 1.2).logpdf],
        np.array([1e-12, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9]),
    ),
    "beta, with shapes above eight": Case(
        bc.BetaPrior(alpha0=9.0, beta0=2.0, alpha1=3.0, beta1=40.0),
        [stats.beta(9.0, 2.0).logpdf, stats.beta(3.0, 40.0).logpdf],
        np.array([1e-4, 0.01, 0.3, 0.5, 0.9]),
    ),
    "multivariate": Case(
        bc.MultivariateGaussianPrior(mu0=[-1.0, 0.5], mu1=[1.0, 0.2], cov=COV),
        [
            stats.multivariate_normal([-1.0, 0.5], COV).logpdf,
            stats.multivariate_normal([1.0, 0.2], COV).logpdf,
        ],
        np.random.default_rng(0).normal(size=(7, 2)) * 3,
    ),
    "multivariate, isotropic": Case(
        bc.MultivariateGaussianPrior(mu0=-1.0, mu1=1.0, cov=0.8),
        [stats.multivariate_normal([m] * 3, 0.8 * np.eye(3)).logpdf for m in (-1.0, 1.0)],
        np.random.default_rng(1).normal(size=(7, 3)) * 2,
    ),
    "dirichlet": Case(
        bc.DirichletPrior(list(ALPHA)),
        [in_simplex(row) for row in ALPHA],
        np.random.default_rng(2).dirichlet([1.0, 1.0, 1.0], 7),
    ),
}


def fixed_parameters(case: Case) -> tuple[Family, dict[str, jax.Array], jax.Array]:
    """Return the family, its parameters in their shapes, and a nonzero origin."""
    family, dim = case.prior.family, case.points.shape[-1] if case.points.ndim == 2 else 1
    params = {}
    for name, shapes in family.event_shapes(dim).items():
        value = np.asarray(case.prior.values[name], float)
        full = value.shape not in shapes
        params[name] = jnp.asarray(np.full(shapes[0], value) if full else value)
    origin = family.origin(case.points[None], np.ones((1, len(case.points)), bool))
    return family, params, jnp.asarray(origin)


@pytest.mark.parametrize("name", CASES)
def test_linear_form_is_the_log_density(name: str) -> None:
    case = CASES[name]
    family, params, origin = fixed_parameters(case)
    natural = np.asarray(family.natural(params, origin))
    assert len(natural) == family.classes == len(case.densities)
    for xp in (np, jnp):
        phi = np.asarray(family.features(xp.asarray(case.points), xp.asarray(origin), xp))
        assert (phi[..., 0] == 1).all()
        expected = np.stack([density(case.points) for density in case.densities])
        np.testing.assert_allclose(natural @ phi.T, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_point_mass_prior_gives_the_optimal_model(name: str) -> None:
    """Check that with fixed parameters every method gives the ratio of known densities."""
    case = CASES[name]
    classes = case.prior.family.classes
    labels = np.arange(len(case.points)) % classes
    odds = np.array([0.3, 0.7]) if classes == 2 else np.array([0.2, 0.5, 0.3])
    joint = np.stack([d(case.points) for d in case.densities], axis=1) + np.log(odds)
    expected = joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)
    data = case.points, labels
    post = bc.posterior(case.prior, data, integrator="quadrature", class_prior=odds)
    for method in ("predictive", "preds", "coeffs", "map")[:: 1 if name == "unequal" else 3]:
        actual = post.predict(method=method)
        np.testing.assert_allclose(actual.log_probs, expected, rtol=1e-10, atol=1e-11)
    evidence = sum(case.densities[k](case.points[labels == k]).sum() for k in range(classes))
    assert post.log_evidence == pytest.approx(evidence, rel=1e-12)


def test_rounded_rows_of_probabilities_are_those_with_a_sum_of_one() -> None:
    alpha = np.array([[200.0, 7.0, 11.0], [9.0, 30.0, 15.0], [1.2, 0.6, 2.5]])
    points = np.array([[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.1, 0.5, 0.4]]) * 1.0009
    densities = np.stack([in_simplex(row)(points) for row in alpha], axis=1)
    prior = bc.DirichletPrior(list(alpha))
    fitted = bc.posterior(prior, (points, [0, 1, 2]), class_prior=np.full(3, 1 / 3))
    expected = softmax(densities, axis=1)
    np.testing.assert_allclose(fitted.predict(points).probs, expected, atol=1e-9)
    unknown = bc.DirichletPrior([dist.Gamma(2.0, 1.0)] * 3)
    first, second = (
        bc.posterior_predict(
            unknown, (x, [0, 1, 2]), x, integrator="importance", num_samples=256
        ).probs
        for x in (points, points / 1.0009)
    )
    np.testing.assert_allclose(first, second, atol=1e-9)


# --- invalid parameters -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("shared", {"sigma": 0.0}),
        ("shared", {"sigma": -1.0}),
        ("unequal", {"sigma1": -1.0}),
        ("beta", {"alpha0": 0.0}),
        ("beta", {"beta1": -2.0}),
        ("multivariate", {"cov": np.array([[1.0, 2.0], [2.0, 1.0]])}),
        ("multivariate, isotropic", {"cov": -1.0}),
        ("dirichlet", {"alpha1": np.array([1.0, -1.0, 1.0])}),
    ],
)
def test_invalid_parameters_give_nan(name: str, wrong: dict[str, Any]) -> None:
    family, params, origin = fixed_parameters(CASES[name])
    params |= {key: jnp.asarray(value) for key, value in wrong.items()}
    assert np.isnan(np.asarray(family.natural(params, origin))).any()


SPREAD = (np.array([-0.9, -0.2, 0.3, 1.4]), np.array([0, 0, 1, 1]))


@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature"])
def test_draws_with_invalid_parameters_weigh_nothing(integrator: str) -> None:
    """Check the warning for a joint prior that allows negative deviations."""

    def reaching() -> None:
        numpyro.deterministic("mu0", -1.0)
        numpyro.deterministic("mu1", 1.0)
        numpyro.sample("sigma", dist.Uniform(-1.0, 2.0))

    x = np.array([-1.0, 0.2, 2.0])
    with pytest.warns(UserWarning, match="sigma must be positive, but 3.* from the model are not"):
        prior = bc.GaussianPrior(model=reaching)
    cut = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=dist.Uniform(0.0, 2.0))
    post = bc.posterior(prior, SPREAD, integrator=integrator, num_samples=20_000)
    truth = bc.posterior(cut, SPREAD, integrator="quadrature")
    actual, expected = post.predict(x), truth.predict(x).probs
    if integrator == "quadrature":
        np.testing.assert_allclose(actual.probs, expected, rtol=1e-9)
        assert post.log_evidence == pytest.approx(truth.log_evidence + np.log(2 / 3), abs=1e-9)
    else:
        assert (np.abs(actual.probs - expected) < 4 * np.asarray(actual.mcse)).all()
        sigma, weights = np.asarray(post.draws()["sigma"]), np.asarray(post.log_weights())
        assert (np.isneginf(weights) == (sigma <= 0)).all()


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (dist.Cauchy(0.0, 1.0), dist.HalfCauchy(1.0)),
        (dist.Uniform(-1.0, 2.0), dist.Uniform(0.0, 2.0)),
    ],
)
def test_priors_of_positive_parameters_are_cut_off_with_a_warning(given: Any, right: Any) -> None:
    actual = {}
    for name, sigma in (("given", given), ("right", right)):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            prior = bc.GaussianPrior(mu0=-1.0, mu1=1.0, sigma=sigma)
        messages = [str(w.message) for w in warned]
        assert len(messages) == (name == "given")
        for warning in warned:
            assert re.match("sigma must be positive, but .* such as HalfNormal", messages[0])
            assert warning.filename == __file__
        actual[name] = bc.posterior(prior, SPREAD, integrator="quadrature")
    assert actual["given"].log_evidence == pytest.approx(actual["right"].log_evidence, abs=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bc.BetaPrior(dist.Normal(1, 1), 1, 1, 1),
        lambda: bc.DirichletPrior([dist.Normal(1, 1), 1.0]),
        lambda: bc.MultivariateGaussianPrior(0.0, 1.0, dist.Normal(1, 1)),
        lambda: bc.GaussianPrior(0, 1, sigma0=1, sigma1=dist.StudentT(3, 0.0, 1.0)),
    ],
)
def test_positive_parameters_of_all_families(make: Any) -> None:
    with pytest.warns(UserWarning, match="^(alpha0|cov|sigma1) must be positive"):
        make()


def test_a_prior_that_hardly_reaches_zero_stays_as_it_is() -> None:
    sigma = dist.Normal(5.0, 0.1)
    assert bc.GaussianPrior(0.0, 1.0, sigma).values["sigma"] is sigma


# --- sampling -----------------------------------------------------------------------------------


def moments_agree(actual: np.ndarray, mean: Any, cov: Any) -> None:
    """Compare mean and covariance of rows with the truth, within 4 standard errors."""
    n = len(actual)
    actual = actual.reshape(n, -1)
    mean, cov = np.atleast_1d(mean), np.atleast_2d(cov)
    assert (np.abs(actual.mean(axis=0) - mean) < 4 * np.sqrt(np.diag(cov) / n)).all()
    centered = actual - mean
    products = centered[:, :, None] * centered[:, None, :]
    error = products.std(axis=0, ddof=1) / np.sqrt(n)
    assert (np.abs(products.mean(axis=0) - cov) <= 4 * error + 1e-12).all()


def moments_of(name: str, y: int, params: dict[str, Any]) -> tuple[Any, Any]:
    """Compute the mean and covariance of class ``y`` with SciPy."""
    if name == "shared":
        return params[f"mu{y}"], params["sigma"] ** 2
    if name == "unequal":
        return params[f"mu{y}"], params[f"sigma{y}"] ** 2
    if name.startswith("beta"):
        law = stats.beta(params[f"alpha{y}"], params[f"beta{y}"])
        return law.mean(), law.var()
    if name == "dirichlet":
        return stats.dirichlet.mean(params[f"alpha{y}"]), stats.dirichlet.cov(params[f"alpha{y}"])
    mean, cov = params[f"mu{y}"], params["cov"]
    return mean, cov if np.ndim(cov) else cov * np.eye(len(mean))


@pytest.mark.parametrize("name", CASES)
def test_sample_has_the_moments_of_each_class(name: str) -> None:
    family, params, _ = fixed_parameters(CASES[name])
    labels = jnp.arange(60_000) % family.classes
    x = np.asarray(family.sample(params, labels, jax.random.key(3)))
    assert x.shape[0] == len(labels) and (x.ndim == 1) == family.univariate
    family.check_support(x, "x")
    for y in range(family.classes):
        known = {key: np.asarray(value) for key, value in params.items()}
        moments_agree(x[np.asarray(labels) == y], *moments_of(name, y, known))


@pytest.mark.parametrize("concentration", [0.005])
def test_draws_of_small_concentrations_are_inside_the_support(concentration: float) -> None:
    a = concentration
    for prior in (bc.BetaPrior(a, a, a, a), bc.DirichletPrior([np.full(3, a)] * 3)):
        family = prior.family
        shares = 0.5 if family.univariate else np.full(3, 1 / 3)
        x = synthetic.sample(prior, 100, 200, class_ratio=shares).x
        family.check_support(x, "x")
        first = x if family.univariate else x[..., 0]
        near_zero = stats.beta(a, a if family.univariate else 2 * a).cdf(1e-3)
        deviation = np.sqrt(near_zero * (1 - near_zero) / first.size)
        assert abs(np.mean(first < 1e-3) - near_zero) < 5 * deviation


@pytest.mark.parametrize("points", [600])
def test_tiny_scores_are_evaluated_where_they_are(points: int) -> None:
    x = 10 ** np.linspace(-300, -20, points)
    post = bc.posterior(bc.BetaPrior(1.0, 1.0, 1.01, 1.0), ([0.3, 0.6], [0, 1]), class_prior=0.5)
    right = np.log(1.01) + 0.01 * np.log(x)
    for method in ("predictive", "coeffs", "map"):
        result = post.predict(x, method=method)
        np.testing.assert_allclose(result.log_odds, right, atol=1e-6)
    for end in result.interval():
        np.testing.assert_allclose(end, 1 / (1 + np.exp(-right)), rtol=1e-6)


@pytest.mark.parametrize("method", ["predictive", "coeffs", "map"])
def test_scores_below_the_smallest_normal_number(method: str) -> None:
    tiny, alpha = 1e-310, np.array([[2.0, 1.0, 3.0], [1.0, 2.0, 2.0], [3.0, 2.0, 1.0]])
    # JAX takes such numbers for zero; bayescal, for the smallest normal one.
    bound = alpha.max() * np.log(np.finfo(float).tiny / tiny)
    beta = bc.posterior(bc.BetaPrior(1.5, 2.0, 3.0, 1.2), ([0.3, 0.6], [0, 1]), class_prior=0.5)
    right = stats.beta(3.0, 1.2).logpdf(tiny) - stats.beta(1.5, 2.0).logpdf(tiny)
    assert abs(beta.predict([tiny], method=method).log_odds[0] - right) < bound
    row = np.array([tiny, 0.5, 0.5])
    three = bc.posterior(bc.DirichletPrior(alpha), ([row], [0]), class_prior=np.ones(3) / 3)
    logs = [stats.dirichlet(a).logpdf(row / row.sum()) for a in alpha]
    right = logs - np.logaddexp.reduce(logs)
    assert np.max(np.abs(three.predict([row], method=method).log_probs[0] - right)) < bound


# --- priors -------------------------------------------------------------------------------------


def test_repr_names_what_was_given() -> None:
    shift = dist.transforms.AffineTransform(1.0, 1.0)
    prior = bc.GaussianPrior(
        mu0=dist.Normal(-1.0, 0.5), mu1=dist.TransformedDistribution(dist.Beta(5.0, 2.0), shift),
        sigma=0.25,
    )  # fmt: skip
    assert repr(prior) == (
        "GaussianPrior(mu0=Normal(loc=-1, scale=0.5), "
        "mu1=AffineTransform(Beta(concentration1=5, concentration0=2)), sigma=0.25)"
    )
    assert repr(CASES["multivariate"].prior) == (
        "MultivariateGaussianPrior(mu0=array(2,), mu1=array(2,), cov=array(2, 2))"
    )
    vector = bc.DirichletPrior([dist.Gamma(2.0, 1.0).expand([3]).to_event(1)] * 3)
    assert repr(vector).startswith("DirichletPrior(alpha0=Gamma(concentration=2, rate=1)^(3,), ")
    assert repr(bc.NormalInverseGammaPrior(-1, 1, 1, 2, 2.5, 2)) == (
        "NormalInverseGammaPrior(mean0=-1.0, mean1=1.0, "
        "kappa0=1.0, kappa1=2.0, alpha=2.5, beta=2.0)"
    )
    cut = bc.GaussianPrior(-1.0, 1.0, dist.TruncatedNormal(1.0, 0.5, low=0.1, high=3.0))
    assert repr(cut).endswith("(Normal(loc=1, scale=0.5), low=0.1, high=3))")
    joint = bc.GaussianPrior(model=hierarchical_means, hyperparameters={"spread": 2.0})
    assert repr(joint) == "GaussianPrior(model=hierarchical_means, spread=2.0)"


def hierarchical_means(spread: float) -> None:
    """A joint prior with means around a common center."""
    center = numpyro.sample("center", dist.Normal(0.0, spread))
    numpyro.sample("mu0", dist.Normal(center - 1, 1.0))
    numpyro.sample("mu1", dist.Normal(center + 1, 1.0))
    numpyro.deterministic("sigma", 1.0)


def independent() -> None:
    numpyro.sample("mu0", dist.Uniform(-2.5, 0.0))
    numpyro.sample("mu1", dist.Uniform(0.0, 2.5))
    numpyro.sample("sigma", dist.LogNormal(0.0, 0.3))


def independent_shapes() -> None:
    numpyro.sample("alpha0", dist.Gamma(2.0, 1.0))
    numpyro.deterministic("beta0", 3.0)
    numpyro.deterministic("alpha1", 2.5)
    numpyro.sample("beta1", dist.Gamma(2.0, 1.0))


def joint_and_independent(name: str) -> tuple[Any, Any]:
    """Return a joint prior and the equivalent independent priors."""
    if name.startswith("beta"):
        return bc.BetaPrior(model=independent_shapes), bc.BetaPrior(
            alpha0=dist.Gamma(2.0, 1.0), beta0=3.0, alpha1=2.5, beta1=dist.Gamma(2.0, 1.0)
        )
    return bc.GaussianPrior(model=independent), bc.GaussianPrior(
        mu0=dist.Uniform(-2.5, 0.0), mu1=dist.Uniform(0.0, 2.5), sigma=dist.LogNormal(0.0, 0.3)
    )


@pytest.mark.parametrize("name", ["gaussian", "beta"])
def test_joint_prior_equals_the_same_independent_priors(name: str) -> None:
    joint, separate = joint_and_independent(name)
    draws, log_prior = jax.jit(draw, static_argnums=2)(separate, jax.random.key(0), 3)
    for i in range(3):
        params, sites = walk(joint, lambda site, _, i=i: draws[site][i])
        assert float(log_density(sites)) == pytest.approx(float(log_prior[i]), abs=1e-12)
        assert {k: float(v) for k, v in params.items()} == {k: float(draws[k][i]) for k in draws}


@pytest.mark.parametrize("integrator", ["importance", "quadrature"])
def test_sites_with_a_single_value_are_not_integrated(integrator: str) -> None:
    """Compare the evidence with the density of normal scores around normal means."""
    x, y = np.array([-1.2, -0.5, 0.7, 1.9]), np.array([0, 0, 1, 1])

    def model() -> None:
        center = numpyro.sample("center", dist.Delta(np.array([-1.0, 1.0])).to_event(1))
        numpyro.sample("sigma", dist.Delta(1.0))
        numpyro.sample("mu0", dist.Normal(center[0], 1.0))
        numpyro.sample("mu1", dist.Normal(center[1], 1.0))

    law = stats.multivariate_normal(2.0 * y - 1, (y[:, None] == y) + np.eye(4))
    post = bc.posterior(bc.GaussianPrior(model=model), (x, y), integrator=integrator)
    error = 1e-9 if integrator == "quadrature" else 5 / np.sqrt(post.ess)
    assert post.log_evidence == pytest.approx(law.logpdf(x), abs=error)


def test_joint_prior_with_a_latent_center() -> None:
    """Compare the evidence with the normal density of means around a common center."""
    x, y = np.array([-1.2, -0.5, 0.7, 1.9]), np.array([0, 0, 1, 1])
    spread = 2.0
    prior = bc.GaussianPrior(model=hierarchical_means, hyperparameters={"spread": spread})
    same = (y[:, None] == y).astype(float)
    cov = spread**2 + same + np.eye(4)
    law = stats.multivariate_normal(np.where(y == 1, 1.0, -1.0), cov)
    post = bc.posterior(prior, (x, y), integrator="quadrature")
    assert post.log_evidence == pytest.approx(law.logpdf(x), abs=1e-9)


def test_hyperparameters_change_without_compiling_again() -> None:
    data = (np.array([-1.2, -0.5, 0.7, 1.9]), np.array([0, 0, 1, 1]))
    compiled = []
    for spread in (0.5, 1.0, 4.0):
        prior = bc.GaussianPrior(model=hierarchical_means, hyperparameters={"spread": spread})
        post = bc.posterior(prior, data, num_samples=3000)
        post.predict([0.1], method="map")
        compiled.append(find_modes._cache_size())
    assert compiled[0] == compiled[1] == compiled[2]


def test_normal_inverse_gamma_draws_have_its_moments() -> None:
    prior = bc.NormalInverseGammaPrior(-1.0, 2.0, kappa0=2.0, kappa1=0.5, alpha=6.0, beta=4.0)
    n = 40_000
    with jax.enable_x64(True):
        params, log_prior = jax.jit(draw, static_argnums=2)(prior, jax.random.key(0), n)
    variance, mu0, mu1 = (np.asarray(params[k]) for k in ("sigma", "mu0", "mu1"))
    variance = variance**2
    law = stats.invgamma(6.0, scale=4.0)
    assert stats.kstest(variance, law.cdf).pvalue > 1e-4
    for mu, mean, kappa in ((mu0, -1.0, 2.0), (mu1, 2.0, 0.5)):
        t = stats.t(12.0, mean, np.sqrt(4.0 / (6.0 * kappa)))
        assert stats.kstest(mu, t.cdf).pvalue > 1e-4
    expected = law.logpdf(variance)
    for mu, mean, kappa in ((mu0, -1.0, 2.0), (mu1, 2.0, 0.5)):
        expected = expected + stats.norm.logpdf(mu, mean, np.sqrt(variance / kappa))
    np.testing.assert_allclose(log_prior, expected, rtol=1e-9)


@pytest.mark.slow
def test_vector_priors_are_repeated_over_entries() -> None:
    """Check that a scalar distribution for a vector means independent entries."""
    x = np.random.default_rng(0).normal(size=(6, 2))
    y = np.array([0, 1, 0, 1, 0, 1])
    short = bc.MultivariateGaussianPrior(dist.Normal(-1.0, 1.0), dist.Normal(1.0, 1.0), 1.0)
    vectors = [dist.Normal(m * jnp.ones(2), 1.0).to_event(1) for m in (-1.0, 1.0)]
    full = bc.MultivariateGaussianPrior(*vectors, np.eye(2))
    one, other = (bc.posterior(p, (x, y), num_samples=20_000, key=4) for p in (short, full))
    np.testing.assert_allclose(one.predict().log_odds, other.predict().log_odds, rtol=1e-9)
    expected = sum(
        stats.multivariate_normal(
            np.full(6, 0.0) + np.where(y == 1, 1.0, -1.0), np.eye(6) + (y[:, None] == y)
        ).logpdf(x[:, j])
        for j in range(2)
    )
    error = np.sqrt(1 / one.ess - 1 / 20_000)
    assert abs(one.log_evidence - expected) < 4 * error
