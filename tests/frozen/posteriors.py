"""Frozen predictions of known generative models, with every integrator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import bayescal as bc
from tests.frozen.case import AVERAGES, RTOL, Case, Results
from tests.frozen.data import Array

INTEGRATORS = ("montecarlo", "sobol", "importance", "quadrature", "nuts", "closed_form")
METHODS = ("predictive", "preds", "coeffs", "map")
PRIORS: dict[str, bc.Prior] = {
    "gaussian": bc.GaussianPrior(mu0=dist.Normal(-1, 1), mu1=dist.Normal(1, 1), sigma=1.2),
    "gaussian, deviations": bc.GaussianPrior(
        mu0=-1.0, mu1=1.0, sigma0=dist.Uniform(0.5, 2), sigma1=dist.Uniform(0.5, 2)
    ),
    "beta": bc.BetaPrior(
        alpha0=dist.Gamma(2, 1), beta0=3.0, alpha1=2.5, beta1=dist.Gamma(2.0, 1.0)
    ),
    "dirichlet": bc.DirichletPrior([dist.Gamma(16, 4)] * 3),
    "multivariate": bc.MultivariateGaussianPrior(
        mu0=dist.Normal(-1, 1), mu1=np.array([1.0, 0.5]), cov=np.array([[1.0, 0.3], [0.3, 0.8]])
    ),
    "conjugate": bc.NormalInverseGammaPrior(-1, 1, kappa0=1, kappa1=1.5, alpha=2, beta=2),
}


#: Cases with little compilation.
FAST = (("gaussian", "montecarlo"), ("conjugate", "closed_form"))
#: Families with priors over scalar parameters, as quadrature requires.
SCALARS = ("gaussian", "gaussian, deviations", "beta", "conjugate")


def cases() -> Iterator[Case]:
    """Yield the cases of all families; most of their time is compilation."""
    for family in PRIORS:
        for integrator in INTEGRATORS:
            if _suit(family, integrator):
                name = f"posterior: {family}, {integrator}"
                slow = (family, integrator) not in FAST
                nuts = integrator == "nuts"
                compute = partial(_average_chains if nuts else _predict, family, integrator)
                yield Case(name, compute, slow, AVERAGES if nuts else RTOL)
    for family in SCALARS:
        # A density is flat at its mode, so rounding moves the mode by the square root of eps.
        yield Case(f"mode: {family}", partial(_find_mode, family), slow=True, rtol=1e-6)
    for family in ("gaussian", "conjugate"):
        yield Case(f"posterior of a batch: {family}", partial(_predict_batch, family), slow=True)
    yield Case("posterior of a grid: gaussian", _predict_grid, slow=True)
    for kind, class_prior in (("number", 0.3), ("distribution", dist.Beta(2, 3))):
        compute = partial(_predict_class_prior, class_prior)
        yield Case(f"posterior with a class prior: {kind}", compute, slow=True)
    yield Case("posterior at points in single precision", _predict_single, slow=True)
    # Sweeps predict in single precision.
    yield Case("sweep", _sweep, slow=True, rtol=1e-6)


def _suit(family: str, integrator: str) -> bool:
    """Check whether the prior of a family allows an integrator."""
    if integrator == "closed_form":
        return family == "conjugate"
    if family == "gaussian, deviations" and integrator in ("importance", "nuts"):
        return False  # "gaussian" covers both
    if integrator == "sobol":
        return family in ("gaussian", "gaussian, deviations", "beta")
    return integrator != "quadrature" or family in SCALARS


def _data(family: str, seed: int = 0) -> tuple[Array, Array]:
    """Return 24 points and their labels."""
    rng = np.random.default_rng(100 + seed)
    labels = rng.integers(0, 3 if family == "dirichlet" else 2, 24)
    if family == "beta":
        return rng.beta(1 + 2 * labels, 3 - labels), labels
    if family == "dirichlet":
        return np.stack([rng.dirichlet(1 + 3 * row) for row in np.eye(3)[labels]]), labels
    size = (24, 2) if family == "multivariate" else 24
    noise = rng.normal(size=size)
    return (noise.T + 2 * labels - 1).T, labels


def _points(family: str) -> Array:
    """Return points to predict, some of them far from the data."""
    if family == "beta":
        return np.array([1e-9, 0.1, 0.5, 0.8, 1 - 1e-9])
    if family == "dirichlet":
        return np.array([[0.98, 0.01, 0.01], [0.2, 0.5, 0.3], [1 / 3, 1 / 3, 1 / 3]])
    line = np.array([-30.0, -1.2, 0.0, 0.7, 4.0])
    return np.stack([line, line[::-1] / 3], axis=1) if family == "multivariate" else line


def _summary(posterior: bc.Posterior) -> Results:
    return {
        "log_evidence": posterior.log_evidence,
        "ess": posterior.ess,
        "pareto_k": posterior.pareto_k,
        "class_prior": posterior.class_prior,
    }


def _condition(family: str, integrator: str, num_samples: int = 500) -> bc.Posterior:
    prior, data = PRIORS[family], _data(family)
    return bc.posterior(prior, data, integrator=integrator, num_samples=num_samples, key=1)


def _predict(family: str, integrator: str) -> Results:
    posterior = _condition(family, integrator)
    methods = METHODS if family == "gaussian" else METHODS[:1]
    if integrator == "quadrature":
        methods = methods[:3]  # _find_mode covers the last method
    at = {method: posterior.predict(_points(family), method=method) for method in methods}
    lower, upper = at["predictive"].interval(0.8)
    return {
        **_summary(posterior),
        **{method: result.log_probs[..., 1:] for method, result in at.items()},
        # Smaller errors of quadrature are rounding errors, which differ between processors.
        "mcse": np.maximum(at["predictive"].mcse, 1e-10 if integrator == "quadrature" else 0),
        "lower": lower,
        "upper": upper,
    }


def _average_chains(family: str, integrator: str) -> Results:
    """Average over chains, at points near the data."""
    posterior = _condition(family, integrator, 400)
    return {"probs": posterior.predict(_points(family)[1:-1]).probs}


def _find_mode(family: str) -> Results:
    posterior = _condition(family, "quadrature")
    return {
        "mode": posterior.mode,
        "probs": posterior.predict(_points(family), method="map").probs,
    }


def _predict_batch(family: str) -> Results:
    sets = [_data(family, seed) for seed in range(3)]
    sets[1] = sets[1][0][:10], sets[1][1][:10]
    posterior = bc.posterior(PRIORS[family], sets, num_samples=500, key=2)
    return {**_summary(posterior), "probs": posterior.predict(_points(family)).probs}


def _predict_grid() -> Results:
    priors = {
        str(mean): bc.GaussianPrior(
            mu0=dist.Normal(-mean, 1.0), mu1=dist.Normal(mean, 1.0), sigma=1.0
        )
        for mean in (0.5, 1.5)
    }
    posterior = bc.posterior(priors, _data("gaussian"), integrator="quadrature")
    return {**_summary(posterior), "probs": posterior.predict(_points("gaussian")).probs}


def _predict_class_prior(class_prior: Any) -> Results:
    result = bc.posterior_predict(
        PRIORS["gaussian"],
        _data("gaussian"),
        _points("gaussian"),
        num_samples=500,
        class_prior=class_prior,
        key=3,
    )
    return {"probs": result.probs, "interval": result.interval(0.9)}


def _predict_single() -> Results:
    points = jnp.asarray(_points("gaussian")[1:], jnp.float32)
    result = bc.posterior_predict(
        PRIORS["gaussian"], _data("gaussian"), points, integrator="quadrature"
    )
    return {"probs": result.probs}


def _sweep() -> Results:
    prior = bc.GaussianPrior(mu0=dist.Uniform(-2.5, 0), mu1=dist.Uniform(0.5, 2.5), sigma=1.0)
    result = bc.sweep(prior, n_train=20, class_ratio=0.6, num_datasets=3, n_test=50, progress=False)
    return {"value": result["value"].to_numpy()}
