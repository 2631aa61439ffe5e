"""User-defined families and joint priors work like the library's own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import bayescal as bc
from bayescal.models import Family

pytestmark = pytest.mark.usefixtures("x64")


class Waiting(Family):
    """x | y ~ Exponential(rate_y), written as in docs/priors.md."""

    name = "WaitingPrior"
    parameters = ("rate0", "rate1")

    def features(self, x: Any, origin: Any, xp: Any) -> Any:
        return xp.stack([xp.ones_like(x), x], axis=-1)

    def natural(self, params: Any, origin: Any) -> jax.Array:
        rates = jnp.stack([params["rate0"], params["rate1"]])
        rates = jnp.where(rates > 0, rates, jnp.nan)
        return jnp.stack([jnp.log(rates), -rates], axis=-1)

    def sample(self, params: Any, labels: jax.Array, key: jax.Array) -> jax.Array:
        return jax.random.exponential(key, labels.shape) / self.of_label(params, "rate", labels)


SHAPES, RATES, NEW = (2.0, 4.0), (1.0, 1.0), np.array([0.1, 0.5, 2.0])
PRIOR = bc.Prior(
    Waiting(), {"rate0": dist.Gamma(SHAPES[0], RATES[0]), "rate1": dist.Gamma(SHAPES[1], RATES[1])}
)
Y = np.arange(12) % 2
X = np.random.default_rng(0).exponential(1 / np.where(Y == 1, 4.0, 1.5))


def exact_probability(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute P(y = 1) with Lomax predictive densities and equal class proportions."""
    dense = []
    for label in (0, 1):
        of_class = x[y == label]
        scale = RATES[label] + of_class.sum()
        dense.append(stats.lomax.pdf(NEW, SHAPES[label] + len(of_class), scale=scale))
    return dense[1] / (dense[0] + dense[1])


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["quadrature", "montecarlo"])
def test_a_family_against_its_conjugate_form(integrator: str) -> None:
    options: dict[str, Any] = {"integrator": integrator, "class_prior": 0.5}
    result = bc.posterior_predict(PRIOR, ([X, X + 1], [Y, Y]), NEW, **options)
    truth = np.stack([exact_probability(X, Y), exact_probability(X + 1, Y)])
    assert (np.abs(result.probs - truth) <= 4 * np.asarray(result.mcse) + 1e-9).all()
    assert np.max(result.mcse) < 0.01
    if integrator == "montecarlo":
        lower, upper = result.interval(0.8)
        assert (lower < truth).all() and (truth < upper).all()


def test_a_joint_prior_against_scipy() -> None:
    """Check a NumPyro model with an extra site that determines both rates."""

    def model(factor: float) -> None:
        common = numpyro.sample("common", dist.LogNormal(0.0, 0.5))
        numpyro.deterministic("rate0", common)
        numpyro.deterministic("rate1", common * factor)

    prior = bc.Prior(Waiting(), {"factor": 3.0}, model)
    result = bc.posterior_predict(prior, (X, Y), NEW, integrator="quadrature", class_prior=0.5)

    def integral(x: np.ndarray, y: np.ndarray) -> float:
        def inside(common: float) -> float:
            rates = common * np.where(y == 1, 3.0, 1.0)
            density = stats.lognorm.pdf(common, 0.5)
            return float(np.prod(rates * np.exp(-rates * x)) * density)

        return integrate.quad(inside, 0, 50, points=[1.0, 3.0], epsabs=0, epsrel=1e-11, limit=500)[
            0
        ]

    for x, p in zip(NEW, result.probs, strict=True):
        zero, one = (integral(np.append(X, x), np.append(Y, label)) for label in (0, 1))
        assert p == pytest.approx(one / (zero + one), rel=1e-8)
    assert result.log_evidence == pytest.approx(np.log(integral(X, Y)), rel=1e-8)


@pytest.mark.slow
def test_a_family_in_a_sweep() -> None:
    result = bc.sweep(
        {"waiting": PRIOR},
        n_train=[20],
        methods=["platt", "predictive", "optimal"],
        num_datasets=500,
        n_test=1000,
        progress=False,
    )
    loss = result.value.sel(metric="log_loss").squeeze()
    gap = loss.sel({"calibrator": "predictive"}) - loss.sel({"calibrator": "optimal"})
    error = float(gap.std(ddof=1)) / 500**0.5
    assert float(gap.mean()) > 4 * error
    gap = loss.sel({"calibrator": "platt"}) - loss.sel({"calibrator": "predictive"})
    assert float(gap.mean()) > 4 * float(gap.std(ddof=1)) / 500**0.5
