"""NumPyro models of calibrators: their densities against SciPy, their modes against the fits."""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import log_density
from scipy import stats
from scipy.optimize import minimize
from scipy.special import log_softmax

import bayescal as bc
from bayescal import SamplingWarning
from bayescal._core.execution.precision import float64
from tests.calibrators.cases import DEFAULTS

Array = np.ndarray

rng = np.random.default_rng(5)
X = rng.normal(size=(60, 3)) * [1, 4, 0.2] + [0, 3, 0]
Y = (X[:, 0] > rng.normal(size=60)).astype(int)
W = rng.integers(1, 4, 60).astype(float)


class Evaluated(NamedTuple):
    """The log density of a model at given sites, its gradient, and deterministic sites."""

    density: Any
    slopes: dict[str, Any]
    named: dict[str, Any]


@functools.cache
def compiled(model: Any) -> Any:
    def both(values: dict[str, Any]) -> tuple[jax.Array, dict[str, jax.Array]]:
        density, trace = log_density(model, (), {}, values)
        named = {k: v["value"] for k, v in trace.items() if v["type"] == "deterministic"}
        return density, named

    return jax.jit(jax.value_and_grad(both, has_aux=True))


def evaluate(model: Any, values: dict[str, Any]) -> Evaluated:
    with float64(), jax.numpy_dtype_promotion("standard"):
        given = {name: jnp.asarray(value, float) for name, value in values.items()}
        (density, named), slopes = jax.tree.map(np.asarray, compiled(model)(given))
    return Evaluated(density, slopes, named)


def likelihood(intercept: float, coef: Array, targets: Array) -> float:
    line = intercept + X @ coef
    return W @ (targets * stats.logistic.logcdf(line) + (1 - targets) * stats.logistic.logsf(line))


MEAN = W @ X / W.sum()
SPREAD = 2 * np.sqrt(W @ (X - MEAN) ** 2 / W.sum())
#: Options with the log priors of coefficients and of the intercept at the features' mean.
PRIORS: list[tuple[dict[str, Any], Any, Any]] = [
    ({}, lambda b: 0.0, lambda a: 0.0),
    ({"smoothing": "platt"}, lambda b: 0.0, lambda a: 0.0),
    (
        {"penalty": "l2", "strength": 0.7},
        lambda b: stats.norm.logpdf(b, scale=0.7**-0.5).sum(),
        lambda a: 0.0,
    ),
    (
        {"penalty": "l1", "strength": 0.7},
        lambda b: stats.laplace.logpdf(b, scale=1 / 0.7).sum(),
        lambda a: 0.0,
    ),
    (
        {"penalty": "elasticnet", "strength": 0.7, "l1_ratio": 0.3},
        lambda b: -0.21 * np.abs(b).sum() - 0.245 * (b**2).sum(),
        lambda a: 0.0,
    ),
    (
        {"coef_prior": "cauchy"},
        lambda b: stats.cauchy.logpdf(b, scale=2.5 / SPREAD).sum(),
        lambda a: stats.cauchy.logpdf(a, scale=10),
    ),
    (
        {"coef_prior": dist.StudentT(4.0, 0.0, 1.5)},
        lambda b: stats.t.logpdf(b, 4, scale=1.5).sum(),
        lambda a: stats.cauchy.logpdf(a, scale=10),
    ),
    (
        {"penalty": "l2", "strength": 0.7, "inference": "nuts"},
        lambda b: stats.norm.logpdf(b, scale=0.7**-0.5).sum(),
        lambda a: stats.cauchy.logpdf(a, scale=10),
    ),
]
IDS = ["flat", "platt", "l2", "l1", "elasticnet", "cauchy", "student", "nuts"]


@pytest.mark.parametrize(("options", "coef_prior", "middle_prior"), PRIORS, ids=IDS)
def test_density_and_mode_of_logistic_regression(
    options: dict[str, Any], coef_prior: Any, middle_prior: Any
) -> None:
    estimator = bc.LogisticRegression(**options)
    model = estimator.numpyro_model(X, Y, W)
    centered = "coef_prior" in options or "inference" in options
    targets = Y.astype(float)
    if options.get("smoothing") == "platt":
        positive = W @ Y
        high, low = (positive + 1) / (positive + 2), 1 / (W.sum() - positive + 2)
        targets = np.where(Y == 1, high, low)

    def both(intercept: float, coef: Array) -> tuple[float, float]:
        middle = intercept + coef @ MEAN
        site = {"intercept_at_center": middle} if centered else {"intercept": intercept}
        ours = evaluate(model, {**site, "coef": coef})
        if centered:
            assert ours.named["intercept"] == pytest.approx(intercept)
        expected = likelihood(intercept, coef, targets) + coef_prior(coef) + middle_prior(middle)
        return float(ours.density), expected

    for _ in range(3):
        ours, expected = both(float(rng.normal()), rng.normal(size=3))
        assert ours == pytest.approx(expected, rel=1e-10)
    # The fit is at the mode: no step improves the model by a relative 1e-8.
    if "inference" in options:
        return
    fitted = estimator.fit(X, Y, W)
    best = both(fitted.intercept_[0], fitted.coef_[0])[0]
    begin = np.r_[fitted.intercept_, fitted.coef_[0]]
    result = minimize(lambda v: -both(v[0], v[1:])[1], begin, method="Nelder-Mead", tol=1e-10)
    assert best >= -result.fun - 1e-8 * abs(result.fun)
    constant = -best - fitted.objective_ * W.sum()
    free = {"l1": 3 * np.log(2 / 0.7), "l2": 1.5 * np.log(2 * np.pi / 0.7)}
    expected = free.get(options.get("penalty", ""), 0.0)
    if options.get("coef_prior") != "cauchy":
        assert constant == pytest.approx(expected, abs=1e-8)


def data_of(binary: bool) -> tuple[Array, Array, Array]:
    """Return logits of two or three classes, labels and weights."""
    generator = np.random.default_rng(3)
    z = generator.normal(size=(80, 3)) * 2
    y = np.argmax(0.5 * z + generator.gumbel(size=z.shape), axis=1)
    w = generator.integers(1, 3, 80).astype(float)
    if not binary:
        return z, y, w
    return (
        z[:, 1] - z[:, 0],
        (generator.random(80) < 1 / (1 + np.exp(z[:, 0] - z[:, 1]))).astype(int),
        w,
    )


PARAMETRIC = [case for case in DEFAULTS if hasattr(case.calibrator, "numpyro_model")]
REFUSED = ("StackedScaling", "GaussianProcess")


@pytest.mark.parametrize("case", PARAMETRIC, ids=lambda case: case.name)
def test_fits_are_at_the_mode(case: Any) -> None:
    """Check that the density at the fit is the minimized objective, and its gradient zero."""
    z, y, w = data_of(case.binary)
    calibrator = case(inputs="logits")
    name = case.calibrator.__name__
    if name in (*REFUSED, "EnsembleTemperature"):
        with pytest.raises(ValueError, match="one step"):
            calibrator.numpyro_model(z, y, w)
        return
    model = calibrator.numpyro_model(z, y, w)
    state = calibrator.fit(z, y, w).state_
    theta, penalty = state["theta"], np.zeros(len(state["theta"]))
    if name == "Temperature":
        sites: dict[str, Any] = {"inverse_temperature": theta[0]}
    elif case.binary:
        sites = {f"theta_{j}": value for j, value in enumerate(theta)}
        penalty = calibrator._penalties(state, len(theta))
    else:
        penalty = state["penalty"]
        parts = {"theta": theta[penalty > 0], "theta_free": theta[penalty == 0]}
        sites = {site: part for site, part in parts.items() if len(part)}
    held = penalty[penalty > 0]
    constant = 0.5 * np.log(2 * np.pi / held).sum()
    value = state["objective"] * w.sum()
    result = evaluate(model, sites)
    assert result.density == pytest.approx(-value - constant, rel=1e-8)
    if (theta != 0).all():  # otherwise a parameter is at its bound
        assert max(np.abs(v).max() for v in result.slopes.values()) < 1e-4 * w.sum()
    for key, value in result.named.items():
        np.testing.assert_allclose(value, state[key], rtol=1e-9, atol=1e-12)


#: One calibrator for each kind of site; tests/regression/test_model.py compares all densities.
SAMPLED = ("Beta", "StructuredMatrix")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in PARAMETRIC if case.calibrator.__name__ in SAMPLED],
    ids=lambda case: case.name,
)
def test_sampling_the_model_agrees_with_our_draws(case: Any) -> None:
    """Compare means and spreads of NUTS on the model with our draws, within standard errors."""
    z, y, w = data_of(case.binary)
    calibrator = case(inputs="logits", inference="nuts", num_samples=4000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        ours = calibrator.fit(z, y, w).posterior_.draws
    model = calibrator.numpyro_model(z, y, w)
    with float64(), jax.numpy_dtype_promotion("standard"):
        # Vectorized chains diverge in all steps with the reduced optimization of these tests.
        options = {"num_warmup": 500, "num_samples": 1000, "num_chains": 4}
        chain = MCMC(
            NUTS(model, dense_mass=True), chain_method="sequential", progress_bar=False, **options
        )
        chain.run(jax.random.key(0))
        theirs = chain.get_samples(group_by_chain=True)
    for name, draws in ours.items():
        if name not in theirs:
            continue
        other = np.asarray(theirs[name])
        for index in np.ndindex(draws.shape[2:]):
            one, two = draws[(..., *index)], other[(..., *index)]
            # The temperature has a heavy tail, so compare medians by ranks, with about 1,000 draws.
            share = (two < np.median(one)).mean()
            assert abs(share - 0.5) < 0.08, (name, index, share)
            wide = np.abs(two - np.median(one)) < np.quantile(np.abs(one - np.median(one)), 0.9)
            assert abs(wide.mean() - 0.9) < 0.04, (name, index, wide.mean())


def test_an_objective_that_is_no_density_is_refused() -> None:
    z, y, w = data_of(binary=False)
    with pytest.raises(ValueError, match="Temperature must be fitted in one step"):
        bc.Temperature(inputs="logits", objective="adaptive_ece").numpyro_model(z, y, w)


def test_missing_classes() -> None:
    z, y, w = data_of(binary=False)
    known = y < 2
    calibrator = bc.Vector(inputs="logits", classes=[0, 1, 2])
    model = calibrator.numpyro_model(z[known], y[known], w[known])
    state = calibrator.fit(z[known], y[known], w[known]).state_
    given = z[known, :2] * state["coef"] + state["intercept"]
    expected = w[known] @ log_softmax(given, axis=1)[np.arange(known.sum()), y[known]]
    assert evaluate(model, {"theta_free": state["theta"]}).density == pytest.approx(
        expected, rel=1e-10
    )
