"""Error messages of priors, integrators and sweeps for invalid arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy.special import expit

import bayescal as bc
from bayescal.datasets.synthetic import bayes_optimal_log_loss

X, Y = np.linspace(-1.0, 1.0, 6), np.array([0, 1, 0, 1, 0, 1])
NORMAL = dist.Normal(0.0, 1.0)


def make_model(**sites: Any) -> Callable[[], None]:
    """Create a model from sites: distributions, or pairs with an observation."""

    def model() -> None:
        for name, site in sites.items():
            pair = site if isinstance(site, tuple) else (site, None)
            numpyro.sample(name, pair[0], obs=pair[1])

    return model


GAUSSIAN = bc.GaussianPrior(NORMAL, 1.0, 1.0)
FIXED = bc.GaussianPrior(0.0, 1.0, 1.0)
CONJUGATE = dict(mean0=0.0, mean1=1.0, kappa0=1.0, kappa1=1.0, alpha=2.0, beta=2.0)
VECTORS = bc.MultivariateGaussianPrior(
    dist.MultivariateNormal(np.zeros(2), np.eye(2)), np.ones(2), 1.0
)


SCALE = dist.Gamma(2.0, 1.0)
PAIR = np.ones((6, 2)), Y


def cov(matrix: list[list[float]]) -> bc.Prior:
    return bc.MultivariateGaussianPrior(0.0, 1.0, np.array(matrix))


def joint(**sites: Any) -> bc.Prior:
    return bc.GaussianPrior(model=make_model(**sites))


def fit(prior: Any, integrator: Any, data: Any = (X, Y)) -> bc.Posterior:
    return bc.posterior(prior, data, integrator=integrator)


MESSAGES: list[tuple[Callable[[], object], str]] = [
    (lambda: bc.DirichletPrior(), "alpha must be given"),
    (lambda: bc.DirichletPrior(2.0), "alpha must be a sequence"),
    (lambda: bc.DirichletPrior(model=make_model(alpha0=NORMAL)), "classes must be given"),
    (lambda: bc.DirichletPrior([2.0, 1.0], classes=3), "each of 3 classes, got 2"),
    (lambda: bc.MultivariateGaussianPrior(0.0, 1.0, -1.0), "cov must be positive, got -1"),
    (lambda: cov([[1.0, 0.5], [0.4, 1.0]]), "cov must be a symmetric matrix"),
    (lambda: cov([[1e-9, 0], [4e-10, 1e-9]]), "cov must be a symmetric matrix"),
    (lambda: cov([[1.0, 2.0], [2.0, 1.0]]), "cov must be positive definite"),
    (lambda: bc.NormalInverseGammaPrior(**CONJUGATE | {"mean0": np.inf}), "mean0 must be finite"),
    (lambda: bc.NormalInverseGammaPrior(**CONJUGATE | {"beta": 0.0}), "beta must be positive, got"),
    (lambda: bc.GaussianPrior(0, 1, 1, hyperparameters={"a": 1}), "rs must come with model"),
    (lambda: bc.GaussianPrior(0.0, model=make_model(mu0=NORMAL)), "the only prior, got mu0 as"),
    (
        lambda: bc.GaussianPrior(model=make_model(mu0=NORMAL), hyperparameters={"kind": "a"}),
        "hyperparameters must be numbers or arrays, got text: kind",
    ),
    (lambda: bc.GaussianPrior(model=3), "model must be callable, got int"),  # type: ignore[arg-type]
    (lambda: joint(mu0=NORMAL, mu1=NORMAL), "named mu0, mu1, sigma; it lacks sigma"),
    (
        lambda: joint(mu0=NORMAL, mu1=NORMAL, sigma=SCALE, y=(NORMAL, 0.5)),
        "without observations or factors, got site 'y'",
    ),
    (lambda: fit(GAUSSIAN, "closed_form"), "needs a conjugate prior"),
    (lambda: fit(FIXED, "nuts"), "'nuts' needs at least one random"),
    (lambda: fit(FIXED, "importance"), "'importance' needs at least one random"),
    (lambda: fit(joint(mu0=NORMAL, mu1=NORMAL, sigma=SCALE), "sobol"), "needs independent priors"),
    (
        lambda: fit(bc.BetaPrior(*[SCALE] * 4), "quadrature", (expit(X), Y)),
        "takes up to three scalar parameters, got 4 parameters; use 'montecarlo'",
    ),
    (
        lambda: fit(VECTORS, "quadrature", PAIR),
        "takes up to three scalar parameters, got vectors mu0; use 'montecarlo'",
    ),
    (lambda: fit(VECTORS, "sobol", PAIR), "needs scalar parameters, got vectors mu0"),
    (
        lambda: bc.GaussianPrior(NORMAL.mask(False), 1.0, 1.0),
        "mu0 must have the density of its draws: a mask",
    ),
    (
        lambda: joint(mu0=NORMAL, mu1=dist.Delta(0.0).mask(np.array(True)), sigma=SCALE),
        "mu1 must have the density of its draws",
    ),
    (
        lambda: bc.GaussianPrior(
            model=handlers.scale(make_model(mu0=NORMAL, mu1=NORMAL, sigma=SCALE), scale=2.0)
        ),
        "mu0 must have the density of its draws: .*handlers.scale",
    ),
    (
        lambda: bayes_optimal_log_loss(bc.BetaPrior(2.0, 1.0, 1.0, 2.0)),
        "prior must be a GaussianPrior with a shared sigma, got BetaPrior",
    ),
]


@pytest.mark.parametrize(("make", "message"), MESSAGES)
def test_messages_of_priors(make: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_parameters_of_distributions_that_are_arrays_are_left_out_of_texts() -> None:
    assert repr(VECTORS) == (
        "MultivariateGaussianPrior(mu0=MultivariateNormal(), mu1=array(2,), cov=1.0)"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(methods=[]), "methods must not be empty"),
        (dict(methods="map"), "methods must be in a sequence or mapping"),
        (dict(methods=["map", "map"]), "methods must differ, got 'map' twice"),
        (dict(methods=[3]), "mapping from names"),
        (dict(methods={"three": 3}), "a method must be a name"),
        (dict(methods={"a": {"method": "none"}}), "method must be one of"),
        (dict(methods={"a": {"mode": "map"}}), "integrator, num_samples, prior, got 'mode'"),
        (dict(methods={"a": {"prior": 3}}), "prior must be a Prior, got int"),
        (dict(priors={}), "priors must not be empty"),
        (dict(priors=3), "priors must be one prior or several, got int"),
        (dict(priors=[NORMAL]), "priors must be made by GaussianPrior"),
        (dict(priors=VECTORS), "one feature and two classes, '0' is not"),
        (dict(n_train=[10.5]), "n_train must hold whole numbers"),
        (dict(n_train=["ten"]), "n_train must be a number"),
        (dict(n_train=[10, 10]), "n_train must hold different numbers"),
        (dict(n_train=1), "n_train must be at least 2"),
        (dict(executor="x"), "executor must be an executor of .*, got 'x'"),
        (dict(progress=3), "progress must be True, False or a function, got 3"),
        (dict(methods=["plat"]), "methods must be one of .*methods may also be normal"),
        (dict(metrics=["skce"]), "metrics must be among"),
        (dict(class_ratio=1.0), "class_ratio"),
        (dict(n_test=1), "n_test"),
        (
            dict(methods={"bad": lambda x, y, t: 0.0}, num_datasets=2, progress=False),
            "must return log odds",
        ),
    ],
)
def test_messages_of_sweeps(arguments: dict[str, Any], message: str) -> None:
    known = dict(priors=GAUSSIAN, n_train=10, methods=["map"])
    with pytest.raises((TypeError, ValueError), match=message):
        bc.sweep(**{**known, **arguments})


@pytest.mark.slow
def test_discrete_sites_are_for_draws_from_the_prior() -> None:
    """Compare with the quadrature sum over the discrete site, a mixture of two priors."""

    def model(shift: Any) -> None:
        step = numpyro.sample("step", dist.Bernoulli(0.5)) if shift is None else shift
        numpyro.sample("mu0", dist.Normal(-1.0, 0.5))
        numpyro.sample("mu1", dist.Normal(1.0 + step, 0.5))
        numpyro.sample("sigma", dist.LogNormal(0.0, 0.3))

    mixed, *parts = (
        bc.GaussianPrior(model=model, hyperparameters={"shift": shift}) for shift in (None, 0, 1)
    )
    for integrator in ("importance", "quadrature", "nuts"):
        with pytest.raises(ValueError, match="site 'step' is discrete, .*MixtureSameFamily"):
            bc.posterior(mixed, (X, Y), integrator=integrator)
    result = bc.posterior(mixed, (X, Y), integrator="montecarlo")
    evidence = [bc.posterior(p, (X, Y), integrator="quadrature").log_evidence for p in parts]
    assert float(result.log_evidence) == pytest.approx(
        np.logaddexp(*evidence) - np.log(2), abs=0.03
    )


def test_point_masses_are_for_draws_from_the_prior() -> None:
    """Compare with the mean of the evidence at the point and that of the continuous part."""
    half = dist.Categorical(probs=np.array([0.5, 0.5]))
    components = [dist.Delta(0.0), dist.Normal(1.0, 2.0)]
    mixed = dist.MixtureGeneral(half, components, support=dist.constraints.real)
    values = [mixed, dist.TransformedDistribution(mixed, dist.transforms.AffineTransform(0.0, 1.0))]
    for value in values:
        prior = bc.GaussianPrior(value, 1.0, 1.0)
        for integrator in ("importance", "quadrature", "sobol", "nuts"):
            with pytest.raises(ValueError, match="prior of 'mu0' has point masses, which only"):
                bc.posterior(prior, (X, Y), integrator=integrator)
    result = bc.posterior(bc.GaussianPrior(mixed, 1.0, 1.0), (X, Y), integrator="montecarlo")
    alone = bc.posterior(FIXED, (X, Y), integrator="montecarlo").log_evidence
    rest = bc.posterior(
        bc.GaussianPrior(components[1], 1.0, 1.0), (X, Y), integrator="quadrature"
    ).log_evidence
    assert float(result.log_evidence) == pytest.approx(
        float(np.logaddexp(alone, rest) - np.log(2)), abs=0.01
    )
