"""Coverage of intervals with estimated class proportions, by simulation and exactly."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import expit, logit

import bayescal as bc

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow, pytest.mark.computes]

CENTERS, WIDTH, POINT, LEVEL = np.array([-1.0, 1.0]), 0.5, 0.3, 0.8
PRIOR = bc.GaussianPrior(dist.Normal(-1, WIDTH), dist.Normal(1, WIDTH), 1.0)
#: Numbers of data sets, of posterior draws, and of exact draws that evaluate each interval.
SETS, DRAWS, JUDGES = 400, 4096, 2000


def log_odds(mu: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Compute log odds of class 1 at the point, for means (..., 2) and proportions of class 1."""
    return logit(share) + ((POINT - mu[..., 0]) ** 2 - (POINT - mu[..., 1]) ** 2) / 2


def posterior_masses(
    x: np.ndarray, y: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Compute the fraction of exact posterior draws inside each interval.

    Given the labels, the means are normal and the proportion of class 1 has a beta distribution.
    """
    rng = np.random.default_rng(1)
    one_hot = y[..., None] == np.arange(2)
    precision = WIDTH**-2 + one_hot.sum(axis=1)
    mean = (CENTERS * WIDTH**-2 + (x[..., None] * one_hot).sum(axis=1)) / precision
    mu = rng.normal(mean, precision**-0.5, (JUDGES, *mean.shape))
    ones = y.sum(axis=1)
    share = rng.beta(1 + ones, 1 + y.shape[1] - ones, (JUDGES, len(y)))
    actual = expit(log_odds(mu, share))
    return ((actual >= lower) & (actual <= upper)).mean(axis=0)


@pytest.mark.parametrize(
    ("integrator", "n"),
    [("importance", 1), ("importance", 2), ("importance", 20), ("quadrature", 20)],
)
def test_intervals_hold_the_truth(integrator: str, n: int) -> None:
    rng = np.random.default_rng(n)
    mu, share = rng.normal(CENTERS, WIDTH, (SETS, 2)), rng.uniform(size=SETS)
    y = (rng.uniform(size=(SETS, n)) < share[:, None]).astype(int)
    x = rng.normal(np.take_along_axis(mu, y, 1))
    options = {"integrator": integrator, "num_samples": DRAWS, "key": n}
    result = bc.posterior_predict(PRIOR, (x, y), [POINT], **options)
    lower, upper = (np.asarray(end)[:, 0] for end in result.interval(LEVEL))
    truth = expit(log_odds(mu, share))
    covered = np.mean((truth >= lower) & (truth <= upper))
    # All data sets share random numbers, so the error of the draws does not average out.
    effective = DRAWS if integrator == "quadrature" else np.min(result.ess)
    common = (LEVEL * (1 - LEVEL) / (0.8 * effective)) ** 0.5
    assert abs(covered - LEVEL) < 4 * (LEVEL * (1 - LEVEL) / SETS + common**2) ** 0.5
    # The posterior probability of the interval avoids the noise of sampled truths.
    mass = posterior_masses(x, y, lower, upper)
    assert abs(mass.mean() - LEVEL) < 4 * common
    judged = (LEVEL * (1 - LEVEL) / JUDGES) ** 0.5
    assert np.abs(mass - LEVEL).max() < 5 * (common + judged)
