"""The objective of compiled programs equals the potential of the public model."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import expit

import bayescal as bc
from bayescal._core.execution.precision import float64
from bayescal._core.minimization.optimize import Status
from bayescal._core.random import nuts
from bayescal.regression.binary import posterior
from bayescal.regression.binary.fit import fit_many, fit_single
from bayescal.regression.binary.heavy_tails import LogisticLikelihood
from bayescal.regression.binary.objective import CoefficientPrior, Regression
from bayescal.regression.model import as_distribution, potential, regression_sites, softmax_sites
from bayescal.regression.softmax import posterior as softmax_posterior
from tests.regression.problems import make_rows

pytestmark = pytest.mark.usefixtures("x64")

Array = np.ndarray


PRIORS = {
    "cauchy": (CoefficientPrior(0.0, 2.5, 1.0), CoefficientPrior(0.0, 10.0, 1.0)),
    "normal": (CoefficientPrior(-0.5, 0.7, 0.0), CoefficientPrior(1.0, 3.0, 0.0)),
    "flat intercept": (CoefficientPrior(0.0, 2.5, 1.0), None),
}


@pytest.mark.parametrize(
    ("d", "name", "labels"),
    [
        (1, "cauchy", "separable"),
        (3, "cauchy", "mixed"),
        (6, "normal", "mixed"),
        (6, "flat intercept", "separable"),
    ],
)
def test_compiled_fits_through_numpyro_are_those_of_the_host(
    d: int, name: str, labels: str
) -> None:
    x, y, w = make_rows(60, d)
    y = y if labels == "mixed" else (x[:, 0] > x[:, 0].mean()) * 1.0
    prior, intercept_prior = PRIORS[name]
    host = fit_single(Regression(x, y, w, 0.0, 0.0, None, prior, intercept_prior))
    laws = [None if law is None else as_distribution(law) for law in (prior, intercept_prior)]
    rows = [jnp.asarray(part)[None] for part in (x, y, w, 0.0, 0.0)]
    fits = fit_many(Regression(*rows, None, *laws))
    assert int(host.status) == int(fits.status[0]) == Status.CONVERGED
    assert float(fits.value[0]) == pytest.approx(float(host.value), rel=1e-10)
    beta = np.append(fits.intercept, fits.coef[0])
    np.testing.assert_allclose(beta, host.x, rtol=1e-10, atol=1e-10)


def test_a_prior_beside_a_penalty_and_fixed_coefficients() -> None:
    """Check that the penalty adds to the prior, which includes the coefficient fixed at zero."""
    x, y, w = make_rows(60, 3)
    prior, free = CoefficientPrior(0.3, 2.5, 1.0), np.array([1.0, 1.0, 0.0, 1.0])
    host = fit_single(Regression(x, y, w, 0.0, 0.8, free, prior, prior))
    law = as_distribution(prior)
    rows = [jnp.asarray(part)[None] for part in (x, y, w, 0.0, 0.8, free)]
    fits = fit_many(Regression(*rows, law, law))
    np.testing.assert_allclose(np.append(fits.intercept, fits.coef[0]), host.x, rtol=1e-10)
    assert host.x[2] == fits.coef[0, 1] == 0
    assert float(fits.value[0]) == pytest.approx(float(host.value), rel=1e-12)


X, Y, W = make_rows(50, 3, seed=1)
Z = (X[:, 0] - X[:, 0].mean()) * 1.3
LOGITS = np.random.default_rng(2).normal(size=(50, 3)) * 2
CLASSES = np.argmax(LOGITS / 2 + np.random.default_rng(3).gumbel(size=(50, 3)), axis=1)
BINARY = {"inference": "nuts", "num_samples": 4, "random_state": 0}
SAMPLED: dict[str, tuple[Any, Any, Any]] = {
    "cauchy": (bc.LogisticRegression(coef_prior="cauchy", **BINARY), X, Y),
    "student": (bc.LogisticRegression(coef_prior=dist.StudentT(4.0, 0.5, 1.3), **BINARY), X, Y),
    "l2": (bc.LogisticRegression(penalty="l2", strength=0.7, **BINARY), X, Y),
    "Logistic": (bc.Logistic(inputs="logits", **BINARY), Z, Y),
    "Beta": (bc.Beta(inputs="logits", **BINARY), Z, Y),
    "Quadratic": (bc.Quadratic(inputs="logits", **BINARY), Z, Y),
    "Spline": (bc.Spline(strength=0.1, knots=5, **BINARY), expit(Z), Y),
    "Vector": (bc.Vector(inputs="logits", **BINARY), LOGITS, CLASSES),
    "Matrix": (bc.Matrix(inputs="logits", **BINARY), LOGITS, CLASSES),
    "Dirichlet": (bc.Dirichlet(inputs="logits", **BINARY), LOGITS, CLASSES),
    "StructuredVector": (bc.StructuredVector(inputs="logits", **BINARY), LOGITS, CLASSES),
    "StructuredMatrix": (bc.StructuredMatrix(inputs="logits", **BINARY), LOGITS, CLASSES),
}


class Sampled(Exception):
    """Interrupts a fit before its chains, and keeps the density and the mode."""

    def __init__(self, loss: Any, given: tuple[Any, ...], mode: Array, factor: Array) -> None:
        self.loss, self.given, self.mode, self.factor = loss, given, mode, factor


def stop_before_chains(loss: Any, given: Any, mode: Array, factor: Array, *_: Any) -> None:
    raise Sampled(loss, given, mode, factor)


@pytest.mark.parametrize("name", SAMPLED)
def test_potentials_of_chains_are_those_of_the_public_model(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that they differ by constants and the Jacobian of logarithms of positive parameters."""
    # No public function returns the density of the chains.
    monkeypatch.setattr(posterior, "sample_whitened", stop_before_chains)
    monkeypatch.setattr(softmax_posterior, "sample_whitened", stop_before_chains)
    calibrator, scores, y = SAMPLED[name]
    with pytest.raises(Sampled) as ended:
        calibrator.fit(scores, y, W)
    chains = ended.value
    model = calibrator.numpyro_model(scores, y, W)
    (sites,) = (part for part in chains.given if hasattr(part, "laws"))
    scale = np.ones(3)
    if name == "cauchy":
        mean = W @ X / W.sum()
        scale = 2 * np.sqrt(W @ (X - mean) ** 2 / W.sum())

    @jax.jit
    def both(u: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        values, jacobian = dict(sites.values(u)), 0.0
        for site, law in sites.laws.items():
            if isinstance(law, dist.LogNormal):
                jacobian += values[site].sum()
                values[site] = jnp.exp(values[site])
        if "coef" in values:
            values["coef"] = values["coef"] / scale
        return (
            jax.value_and_grad(chains.loss)(u, *chains.given),
            -log_density(model, (), {}, values)[0] - jacobian,
        )

    rng, mode = np.random.default_rng(4), np.asarray(chains.mode)
    with jax.numpy_dtype_promotion("standard"):
        (first, slope), expected = both(jnp.asarray(mode))
        for width in (0.3, 1.0, 3.0):
            u = mode + width * chains.factor @ rng.normal(size=len(mode))
            (ours, _), theirs = both(jnp.asarray(u))
            change = float(theirs - expected)
            assert float(ours - first) == pytest.approx(change, rel=1e-9, abs=1e-9)
    # The host's fit is the mode: the slope vanishes, in units of standard deviations.
    assert np.abs(chains.factor.T @ slope).max() < 1e-5


def test_order_of_sites_with_and_without_a_penalty() -> None:
    penalty = np.array([0.0, 2.0, 0.0, 0.5, 3.0])
    u = jnp.arange(5.0)
    sites = softmax_sites(penalty)

    @jax.jit
    def compute(u: jax.Array) -> Any:
        values = sites.values(u)
        value = potential(sites, lambda theta: jnp.sum(theta**3), u)
        return values, sites.theta(values), value

    values, theta, value = compute(u)
    assert {name: np.asarray(v).tolist() for name, v in values.items()} == {
        "theta": [1.0, 3.0, 4.0],
        "theta_free": [0.0, 2.0],
    }
    np.testing.assert_array_equal(theta, u)
    laws = dist.Normal(0.0, penalty[penalty > 0] ** -0.5).log_prob(u[penalty > 0])
    assert float(value) == pytest.approx(float(jnp.sum(u**3) - laws.sum()), rel=1e-12)


def test_programs_are_lowered_for_accelerators() -> None:
    platforms = "cpu", "cuda", "tpu"
    x, y, w = (jnp.asarray(part)[None] for part in make_rows(20, 2))
    zero, law = jnp.zeros(1), dist.Cauchy(0.0, 2.5)
    problem = Regression(x, y, w, zero, zero, None, law, law)
    program = jax.export.export(fit_many, platforms=platforms)(problem)
    assert program.platforms == platforms
    sums = LogisticLikelihood(jnp.ones((3, 20)), jnp.ones(20), jnp.ones(3))
    given = sums, regression_sites(law, law, 2), jnp.zeros(3), jnp.eye(3)
    chains = partial(
        nuts.run_chains, posterior._whitened(posterior._loss), chains=2, warmup=2, draws=2
    )
    with jax.numpy_dtype_promotion("standard"):
        program = jax.export.export(jax.jit(chains), platforms=platforms)(
            given, jnp.zeros(3), jax.random.key(0)
        )
    assert program.platforms == platforms


@pytest.mark.parametrize("law", [dist.HalfNormal(1.0), dist.Uniform(-1.0, 1.0)])
def test_priors_of_a_part_of_the_numbers_are_refused(law: Any) -> None:
    with pytest.raises(ValueError, match="coef_prior must be a distribution over all real"):
        bc.LogisticRegression(coef_prior=law).fit(X, Y)


def test_threads_run_models_one_after_the_other() -> None:
    """Check that threads do not interfere, since NumPyro shares one handler stack."""
    sites = regression_sites(CoefficientPrior(0.0, 1.0, 0.0), CoefficientPrior(0.0, 2.0, 0.0), 2)
    together = threading.Barrier(2)

    def loss(theta: jax.Array) -> jax.Array:
        with suppress(threading.BrokenBarrierError):
            together.wait(timeout=0.2)  # passes only if two threads are inside a model
        return jnp.sum(theta**2)

    def one(at: Array) -> float:
        with float64():
            return float(potential(sites, loss, jnp.asarray(at)))

    u = np.array([[0.1, -0.5, 2.0], [1.0, 0.0, -1.0]])
    with ThreadPoolExecutor(2) as pool:
        values = [*pool.map(one, u)]
    law = stats.norm(0, [1.0, 2.0, 2.0])
    for value, at in zip(values, u, strict=True):
        assert value == pytest.approx(np.sum(at**2) - law.logpdf(at).sum())
    assert together.broken


def test_threads_condition_priors_with_models_one_after_the_other() -> None:
    together = threading.Barrier(2)

    def model() -> None:
        numpyro.sample("mu0", dist.Normal(-1.0, 1.0))
        with suppress(threading.BrokenBarrierError):
            together.wait(timeout=0.2)
        numpyro.sample("mu1", dist.Normal(1.0, 1.0))
        numpyro.deterministic("sigma", 1.0)

    def sample(seed: int) -> Array:
        return np.asarray(bc.GaussianPrior(model=model).sample(100, key=seed)["mu1"])

    with ThreadPoolExecutor(2) as pool:
        alone = pool.submit(sample, 0).result()
        together.reset()
        for result in pool.map(sample, [0, 0]):
            np.testing.assert_array_equal(result, alone)
