"""Quadrature over three parameters, and closed forms, against integrals by SciPy.

The deviation is integrated with SciPy's adaptive rule, whose reported relative error is below
1e-10, as ``integral`` asserts. Inside it, the means are integrated with Gauss rules on panels a
tenth as wide as the narrowest likelihood, which ``test_panels_are_fine_enough`` compares with
SciPy's ``tplquad``. Probabilities must agree to 1e-10. Both sides find the mode from function
values alone, so it is compared up to the square root of rounding.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit

import bayescal as bc

pytestmark = pytest.mark.usefixtures("x64")

POINTS = np.array([-1.4, 0.3, 2.5])
CLASS_PRIOR = 0.35
Vector = np.ndarray


class Law(NamedTuple):
    """A density, and the range where it matters."""

    density: Callable[[Any], Any]
    low: float
    high: float


class Setting(NamedTuple):
    """A bayescal prior with the densities of its parameters."""

    prior: bc.Prior
    mu0: Law
    mu1: Law
    sigma: Law


def shifted_beta(a: float, b: float, shift: float) -> Any:
    move = dist.transforms.AffineTransform(shift, 1.0)
    return dist.TransformedDistribution(dist.Beta(a, b), move)


def cut_normal(center: float, scale: float, low: float, high: float) -> Law:
    a, b = (low - center) / scale, (high - center) / scale
    top = stats.truncnorm(a, b, loc=center, scale=scale).pdf(center)
    return Law(lambda m: top * np.exp(-0.5 * ((m - center) / scale) ** 2), low, high)


SETTINGS = {
    "truncated, log-normal": Setting(
        bc.GaussianPrior(
            dist.TruncatedNormal(-1.0, 1.0, low=-2.0, high=0.5),
            dist.TruncatedNormal(1.0, 1.5, low=0.0),
            dist.LogNormal(0.1, 0.4),
        ),
        cut_normal(-1.0, 1.0, -2.0, 0.5),
        cut_normal(1.0, 1.5, 0.0, 14.0),
        Law(
            lambda s: (
                math.exp(-0.5 * ((math.log(s) - 0.1) / 0.4) ** 2)
                / (0.4 * s * math.sqrt(2 * math.pi))
            ),
            0.05,
            26.0,
        ),
    ),
    "uniform, beta, gamma": Setting(
        bc.GaussianPrior(
            dist.Uniform(-2.5, 0.0), shifted_beta(2.0, 5.0, 1.0), dist.Gamma(6.0, 5.0)
        ),
        Law(lambda m: 0.4 + 0 * m, -2.5, 0.0),
        Law(lambda m: 30 * (m - 1) * (2 - m) ** 4, 1.0, 2.0),
        Law(lambda s: 5**6 / 120 * s**5 * math.exp(-5 * s), 0.01, 12.0),
    ),
}


def make_data(n: int) -> tuple[Vector, Vector]:
    rng = np.random.default_rng(n)
    y = np.arange(n) % 2
    return rng.normal(size=n) + np.where(y == 1, 1.3, -1.2), y


class Class(NamedTuple):
    """Statistics of one class that the likelihood needs, and bounds of its mean."""

    n: int
    mean: float
    square: float
    prior: Callable[[Any], Any]
    low: float
    high: float


def integral(f: Callable[[float], Vector], low: float, high: float) -> Vector:
    value, error = integrate.quad_vec(f, low, high, epsabs=0, epsrel=1e-12, norm="max", limit=400)
    assert error < 1e-10 * np.abs(value).max()
    return value


#: Nodes and weights on [-1, 1].
GAUSS = np.polynomial.legendre.leggauss(20)


def panels(low: float, high: float, count: int) -> tuple[Vector, Vector]:
    """Return nodes and weights of 20-point Gauss rules on equal panels."""
    unit, weights = GAUSS
    edges = np.linspace(low, high, count + 1)
    half = (high - low) / (2 * count)
    nodes = (edges[:-1] + half)[:, None] + half * unit
    return nodes.ravel(), np.tile(half * weights, count)


class Reference:
    """Posterior of (mu0, mu1, sigma) by nested integrals over a box that contains it."""

    def __init__(self, setting: Setting, x: Vector, y: Vector) -> None:
        self.setting, self.count = setting, len(x)
        n, law = len(x), setting.sigma
        spread = 1.0
        self.sigma = law.low, law.high
        if n > 6:
            # 12 standard deviations contain all but 1e-30 of the posterior.
            spread = np.sqrt(np.mean([x[y == c].var() for c in (0, 1)]))
            width = min(12 / math.sqrt(2 * n), 3.0)
            self.sigma = max(law.low, spread * math.exp(-width)), spread * math.exp(width)
        self.classes = []
        for c, law in enumerate((setting.mu0, setting.mu1)):
            scores, low, high = x[y == c], law.low, law.high
            mean = scores.mean() if scores.size else 0.0
            if scores.size > 3:
                reach = 12 * min(self.sigma[1], 2.0) / math.sqrt(scores.size)
                low, high = max(low, mean - reach), min(high, mean + reach)
            square = ((scores - mean) ** 2).sum()
            self.classes.append(Class(scores.size, mean, square, law.density, low, high))
        # Likelihoods are computed relative to this one to avoid underflow.
        means = [min(max(c.mean, c.low), c.high) for c in self.classes]
        self.scale = self.log_likelihood(means, spread)

    def log_likelihood(self, means: list[float], sigma: float) -> float:
        total = -self.count * (math.log(sigma) + 0.5 * math.log(2 * math.pi))
        for c, m in zip(self.classes, means, strict=True):
            total -= (c.square + c.n * (c.mean - m) ** 2) / (2 * sigma**2)
        return total

    def weights(self, c: Class, sigma: float, count: int = 60) -> tuple[Vector, Vector]:
        """Return nodes for one mean, with weights from prior and likelihood."""
        m, weights = panels(c.low, c.high, count)
        return m, weights * c.prior(m) * np.exp(-c.n * (c.mean - m) ** 2 / (2 * sigma**2))

    def inner(self, c: Class, sigma: float) -> Vector:
        """Integrate 1, m, m**2 and the densities at the points over one mean."""
        m, weights = self.weights(c, sigma)
        densities = np.exp(-((POINTS[:, None] - m) ** 2) / (2 * sigma**2)) / sigma
        return np.array([np.ones_like(m), m, m**2, *densities]) @ weights

    def base(self, sigma: float) -> float:
        """Compute the prior of sigma times the part of the likelihood without means."""
        rest = sum(c.square for c in self.classes) / (2 * sigma**2)
        log = -self.count * (math.log(sigma) + 0.5 * math.log(2 * math.pi)) - rest - self.scale
        return self.setting.sigma.density(sigma) * math.exp(log)

    @functools.cached_property
    def moments(self) -> Vector:
        """Integrals of 1, the slope, the intercept, and the densities of each class."""

        def f(sigma: float) -> Vector:
            i0, i1 = (self.inner(c, sigma) for c in self.classes)
            slope = (i1[1] * i0[0] - i0[1] * i1[0]) / sigma**2
            intercept = (i0[2] * i1[0] - i1[2] * i0[0]) / (2 * sigma**2)
            rest = [i0[0] * i1[0], slope, intercept, *(i0[3:] * i1[0]), *(i0[0] * i1[3:])]
            return self.base(sigma) * np.array(rest)

        return integral(f, *self.sigma)

    @property
    def log_evidence(self) -> float:
        return math.log(self.moments[0]) + self.scale

    def log_odds(self, method: str) -> Vector:
        prior = math.log(CLASS_PRIOR / (1 - CLASS_PRIOR))
        if method == "predictive":
            zero, one = np.split(self.moments[3:], 2)
            return prior + np.log(one / zero)
        if method == "coeffs":
            slope, intercept = self.moments[1:3] / self.moments[0]
            return prior + slope * POINTS + intercept
        m0, m1, sigma = self.mode
        return prior + ((m1 - m0) * POINTS + (m0**2 - m1**2) / 2) / sigma**2

    @property
    def preds(self) -> Vector:
        """Average of the optimal predictions, a triple integral."""
        first, second = self.classes
        shift = math.log(CLASS_PRIOR / (1 - CLASS_PRIOR))

        def f(sigma: float) -> Vector:
            (m0, w0), (m1, w1) = (self.weights(c, sigma, 6) for c in (first, second))
            slope = (m1 - m0[:, None]) / sigma**2
            center = (m1 + m0[:, None]) / 2
            inside = [w0 @ expit(slope * (x - center) + shift) @ w1 for x in POINTS]
            return self.base(sigma) * np.array(inside)

        return integral(f, *self.sigma) / self.moments[0]

    @functools.cached_property
    def mode(self) -> Vector:
        first, second = self.classes

        def loss(theta: Vector) -> float:
            m0, m1, sigma = theta
            prior = first.prior(m0) * second.prior(m1) * self.setting.sigma.density(sigma)
            return -math.log(max(prior, 1e-300)) - self.log_likelihood([m0, m1], sigma)

        ends = [(c.low, c.high) for c in self.classes]
        start = [min(max(c.mean, c.low), c.high) for c in self.classes]
        result = optimize.minimize(
            loss,
            [*start, math.sqrt(self.sigma[0] * self.sigma[1])],
            method="Nelder-Mead",
            bounds=[*ends, self.sigma],
            options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 4000, "maxfev": 4000},
        )
        return result.x


#: With n = 1 one class is missing and only its prior matters.
CASES = [(name, n) for name in SETTINGS for n in (1, 6, 50, 2000, 100_000)]
#: This prior allows deviations near zero, which make a ridge finer than any grid.
ROUGH = ("uniform, beta, gamma", 1)


@pytest.mark.slow
def test_a_rough_posterior_has_the_error_that_it_states() -> None:
    name, n = ROUGH
    x, y = make_data(n)
    truth = Reference(SETTINGS[name], x, y)
    with pytest.warns(bc.AccuracyWarning, match="quadrature may be off by a relative"):
        post = bc.posterior(
            SETTINGS[name].prior, (x, y), integrator="quadrature", class_prior=CLASS_PRIOR
        )
    assert 1e-6 < post.quadrature_error < 1e-5
    assert abs(math.expm1(post.log_evidence - truth.log_evidence)) <= post.quadrature_error
    expected = 1 / (1 + np.exp(-truth.log_odds("predictive")))
    assert (np.abs(post.predict(POINTS).probs - expected) <= post.quadrature_error).all()


def log_marginal(own: Vector, density: Callable[[Any], Any], location: float) -> float:
    """Integrate the mean of scores ``own`` with deviation 1, whose prior may have a kink."""
    mean, spread = own.mean(), 1 / math.sqrt(len(own))
    points = [location, *(mean + spread * np.array([-12.0, -4.0, 0.0, 4.0, 12.0]))]
    ends = [-np.inf, *sorted(points), np.inf]

    def integrand(m: float) -> float:
        return density(m) * math.exp(-0.5 * ((own - m) ** 2).sum())

    parts = [integrate.quad(integrand, a, b, epsabs=0)[0] for a, b in itertools.pairwise(ends)]
    return math.log(sum(parts)) - 0.5 * len(own) * math.log(2 * math.pi)


@pytest.mark.slow
def test_data_sets_that_need_more_nodes_have_the_errors_that_they_state() -> None:
    """The next finer rule has the last word, and no rule is compared with itself."""
    rng, y = np.random.default_rng(0), np.array([0, 0, 1, 1])
    drawn = [(rng.normal(y).round(1), *rng.normal(size=2).round(1)) for _ in range(8)]
    priors = [bc.GaussianPrior(dist.Cauchy(a, 1), dist.Laplace(b, 1), 1.0) for _, a, b in drawn]
    with pytest.warns(bc.AccuracyWarning, match="quadrature may be off by a relative"):
        post = bc.posterior(priors, [(x, y) for x, *_ in drawn], integrator="quadrature")
    for i, (x, a, b) in enumerate(drawn):
        exact = log_marginal(x[:2], stats.cauchy(a).pdf, a)
        exact += log_marginal(x[2:], stats.laplace(b).pdf, b)
        assert post.log_evidence[i] == pytest.approx(exact, abs=10 * post.quadrature_error[i])
        assert post.log_evidence[i] == pytest.approx(exact, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n"), [case for case in CASES if case != ROUGH])
def test_three_parameters_against_scipy(name: str, n: int) -> None:
    setting = SETTINGS[name]
    x, y = make_data(n)
    truth = Reference(setting, x, y)
    post = bc.posterior(setting.prior, (x, y), integrator="quadrature", class_prior=CLASS_PRIOR)
    assert post.quadrature_error < 1e-10
    # The log likelihood is a sum of size n, known up to rounding.
    assert post.log_evidence == pytest.approx(truth.log_evidence, rel=1e-12, abs=1e-10)
    for method in ("predictive", "coeffs"):
        expected = 1 / (1 + np.exp(-truth.log_odds(method)))
        result = post.predict(POINTS, method=method)
        np.testing.assert_allclose(result.probs, expected, rtol=0, atol=1e-10)
        miss, stated = np.abs(np.asarray(result.probs) - expected), np.asarray(result.mcse)
        # The reference has errors of about 1e-12.
        assert (miss <= stated + 1e-11).all() and (stated < 1e-9).all()
    if n > 1:
        expected = 1 / (1 + np.exp(-truth.log_odds("map")))
        np.testing.assert_allclose(
            post.predict(POINTS, method="map").probs, expected, rtol=0, atol=1e-6
        )
    if n > 1:
        result = post.predict(POINTS, method="preds").probs
        np.testing.assert_allclose(result, truth.preds, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_panels_are_fine_enough() -> None:
    """Compare the reference with SciPy's triple integral, up to its reported error."""
    x, y = make_data(6)
    setting = SETTINGS["uniform, beta, gamma"]
    truth = Reference(setting, x, y)

    def f(m1: float, m0: float, sigma: float) -> float:
        z = (x - np.where(y == 1, m1, m0)) / sigma
        prior = 0.4 * setting.mu1.density(m1) * setting.sigma.density(sigma)
        return prior * math.exp(-0.5 * float(z @ z)) / (sigma * math.sqrt(2 * math.pi)) ** 6

    value, error = integrate.tplquad(f, 0.15, 6.0, -2.5, 0.0, 1.0, 2.0, epsabs=0, epsrel=1e-6)
    assert abs(math.exp(truth.log_evidence) - value) < error < 1e-5 * value
