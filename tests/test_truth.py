"""posterior_predict against SciPy's adaptive quadrature, closed forms and identities."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, stats

import bayescal as bc

# The formulas here compare densities, so classes have equal proportions.
posterior = functools.partial(bc.posterior, class_prior=0.5)

X_NEW = np.array([-3.0, -0.7, 0.0, 0.4, 1.1, 4.0])
METHODS = ("predictive", "preds", "coeffs", "map")


def shifted_beta(a: float, b: float, shift: float) -> Any:
    return dist.TransformedDistribution(
        dist.Beta(a, b), dist.transforms.AffineTransform(shift, 1.0)
    )


# Each prior of the two means: bayescal's prior, SciPy's densities, and their supports.
PRIORS = {
    "uniform": (
        (dist.Uniform(-2.5, 0.0), dist.Uniform(0.0, 2.5)),
        (stats.uniform(-2.5, 2.5), stats.uniform(0, 2.5)),
        ((-2.5, 0.0), (0.0, 2.5)),
    ),
    "beta": (
        (shifted_beta(5.0, 2.0, -2.0), shifted_beta(2.0, 5.0, 1.0)),
        (stats.beta(5, 2, loc=-2), stats.beta(2, 5, loc=1)),
        ((-2.0, -1.0), (1.0, 2.0)),
    ),
    "normal": (
        (dist.Normal(-1.0, 0.7), dist.Normal(0.5, 1.3)),
        (stats.norm(-1, 0.7), stats.norm(0.5, 1.3)),
        ((-9.0, 7.0), (-12.0, 13.0)),
    ),
}


DENSITIES = {
    "uniform": (lambda m: 0.4, lambda m: 0.4),
    "beta": (
        lambda m: 30 * (m + 2) ** 4 * (-1 - m),
        lambda m: 30 * (m - 1) * (2 - m) ** 4,
    ),
    "normal": (
        lambda m: math.exp(-0.5 * ((m + 1) / 0.7) ** 2) / (0.7 * math.sqrt(2 * math.pi)),
        lambda m: math.exp(-0.5 * ((m - 0.5) / 1.3) ** 2) / (1.3 * math.sqrt(2 * math.pi)),
    ),
}


def make_data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.normal(size=n) + np.where(y == 1, 1.3, -1.2), y


def reference(name: str, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Integrate over the means with SciPy for sigma = 1, in the box with all the mass.

    Given sigma the means are independent, so all results but ``preds`` are ratios of single
    integrals; ``preds`` is a double integral computed with ``nquad``.
    """
    _, densities, supports = PRIORS[name]
    boxes, weights, log_total, moments, best = [], [], 0.0, [], []
    for c, (low, high) in enumerate(supports):
        of_class = x[y == c]
        n, center = of_class.size, of_class.mean()
        inside = 0.5 * np.sum((of_class - center) ** 2) + 0.5 * n * np.log(2 * np.pi)
        box = max(low, center - 9 / np.sqrt(n)), min(high, center + 9 / np.sqrt(n))

        def weight(m: float, c: int = c, n: int = n, center: float = center) -> float:
            return math.exp(-0.5 * n * (m - center) ** 2) * DENSITIES[name][c](m)

        def integral(f: Any, weight: Any = weight, box: Any = box) -> float:
            value, error = integrate.quad(
                lambda m: weight(m) * f(m), *box, epsabs=0, epsrel=1e-12, limit=500
            )
            assert error < 1e-11 * abs(value)
            return value

        total = integral(lambda m: 1.0)
        # Moments about a far point have the relative error of the integral.
        moments.append([integral(lambda m, k=k: (10 + m) ** k) / total for k in (1, 2)])
        moments[-1] += [
            integral(lambda m, t=t: math.exp(-0.5 * (t - m) ** 2)) / total for t in X_NEW
        ]
        log_total += math.log(total) - inside
        boxes.append(box)
        weights.append(weight)
        result = optimize.minimize_scalar(
            lambda m, of_class=of_class, c=c: (
                0.5 * np.sum((of_class - m) ** 2) - densities[c].logpdf(m)
            ),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 1e-10},
        )
        best.append(result.x)
    first = [row[0] - 10 for row in moments]
    second = [row[1] - 20 * row[0] + 100 for row in moments]
    a, b = first[1] - first[0], (second[0] - second[1]) / 2
    zero, one = (np.array(row[2:]) for row in moments)

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    def double(f: Any) -> float:
        value, error = integrate.nquad(
            lambda m0, m1: weights[0](m0) * weights[1](m1) * f(m0, m1),
            boxes,
            opts={"epsabs": 0, "epsrel": 1e-11, "limit": 200},
        )
        assert error < 1e-10 * abs(value)
        return value

    mass = double(lambda m0, m1: 1.0)
    preds = [
        double(lambda m0, m1, t=t: 1 / (1 + math.exp(-(m1 - m0) * (t - (m0 + m1) / 2)))) / mass
        for t in X_NEW[[0, 3]]
    ]
    slope, intercept = best[1] - best[0], (best[0] ** 2 - best[1] ** 2) / 2
    return {
        "predictive": one / (one + zero),
        "preds": np.array(preds),
        "coeffs": sigmoid(a * X_NEW + b),
        "map": sigmoid(slope * X_NEW + intercept),
        "log_evidence": log_total,
    }


@pytest.mark.parametrize(
    ("name", "n"),
    [("uniform", 2), ("beta", 6), ("normal", 2), ("normal", 50), ("uniform", 3000)],
)
def test_quadrature_agrees_with_scipy(name: str, n: int, x64: None) -> None:
    x, y = make_data(n)
    truth = reference(name, x, y)
    mu0, mu1 = PRIORS[name][0]
    post = posterior(bc.GaussianPrior(mu0, mu1, 1.0), (x, y), integrator="quadrature")
    assert post.log_evidence == pytest.approx(truth["log_evidence"], rel=1e-10, abs=1e-10)
    for method, points in (("predictive", X_NEW), ("preds", X_NEW[[0, 3]]), ("coeffs", X_NEW)):
        result = post.predict(points, method=method).probs
        np.testing.assert_allclose(result, truth[method], rtol=0, atol=1e-10)
    # A minimizer is known only to the square root of rounding.
    np.testing.assert_allclose(
        post.predict(X_NEW, method="map").probs, truth["map"], rtol=0, atol=1e-6
    )


@functools.cache
def exact(name: str) -> bc.Posterior:
    prior = bc.GaussianPrior(*PRIORS[name][0], 1.0)
    return posterior(prior, make_data(20), integrator="quadrature")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "integrator"),
    [
        ("uniform", "montecarlo"),
        ("uniform", "importance"),
        ("beta", "importance"),
        ("beta", "sobol"),
        ("beta", "nuts"),
    ],
)
def test_sampling_lies_within_its_own_error_of_quadrature(
    name: str, integrator: str, x64: None
) -> None:
    x, y = make_data(20)
    prior = bc.GaussianPrior(*PRIORS[name][0], 1.0)
    truth = exact(name)
    draws = 4_000 if integrator == "nuts" else 40_000
    post = posterior(prior, (x, y), integrator=integrator, num_samples=draws, key=3)
    for method in ("predictive", "preds", "coeffs"):
        result = post.predict(X_NEW, method=method)
        error = np.abs(result.probs - truth.predict(X_NEW, method=method).probs)
        assert (result.mcse > 0).all()
        assert (result.mcse < 0.01).all()
        assert (error <= 4 * result.mcse).all(), method


@pytest.mark.slow
def test_stated_error_is_the_spread_between_seeds(x64: None) -> None:
    x, y = make_data(20)
    prior = bc.GaussianPrior(*PRIORS["uniform"][0], 1.0)
    posts = [posterior(prior, (x, y), num_samples=1_000, key=k) for k in range(60)]
    for method in ("predictive", "preds", "coeffs"):
        result = [post.predict(X_NEW[:2], method=method) for post in posts]
        spread = np.std([f.probs for f in result], axis=0, ddof=1)
        stated = np.mean([f.mcse for f in result[:20]], axis=0)
        # The standard deviation of 60 values has a relative error of 1 / sqrt(120) = 9 %.
        np.testing.assert_allclose(stated / spread, 1, atol=4 * 0.09)


def conjugate_reference(x: np.ndarray, y: np.ndarray, hyper: dict[str, float]) -> dict[str, Any]:
    """Compute the normal-inverse-gamma posterior from textbook formulas."""
    alpha, beta, classes = hyper["alpha"] + len(x) / 2, hyper["beta"], []
    for c in (0, 1):
        of_class, m, k = x[y == c], hyper[f"mean{c}"], hyper[f"kappa{c}"]
        new_k = k + of_class.size
        new_m = (k * m + of_class.sum()) / new_k
        beta += 0.5 * (np.sum(of_class**2) + k * m**2 - new_k * new_m**2)
        classes.append((new_m, new_k))
    density = [
        stats.t(2 * alpha, loc=m, scale=np.sqrt(beta * (k + 1) / (alpha * k))) for m, k in classes
    ]
    one, zero = density[1].pdf(X_NEW), density[0].pdf(X_NEW)
    (m0, k0), (m1, k1) = classes
    slope = (m1 - m0) * alpha / beta
    intercept = 0.5 * ((m0**2 - m1**2) * alpha / beta + 1 / k0 - 1 / k1)
    return {
        "predictive": one / (one + zero),
        "coeffs": 1 / (1 + np.exp(-(slope * X_NEW + intercept))),
        "mode": {"mu0": m0, "mu1": m1, "sigma": np.sqrt(beta / (alpha + 2))},
    }


HYPER = {"mean0": -1.0, "mean1": 1.0, "kappa0": 1.0, "kappa1": 2.0, "alpha": 2.0, "beta": 1.5}


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 8, 400])
def test_conjugate_prior_against_textbook_formulas(n: int, x64: None) -> None:
    x, y = make_data(n, seed=1)
    truth = conjugate_reference(x, y, HYPER)
    prior = bc.NormalInverseGammaPrior(**HYPER)
    exact = posterior(prior, (x, y), integrator="closed_form")
    np.testing.assert_allclose(exact.predict(X_NEW).probs, truth["predictive"], atol=1e-13)
    for name, value in truth["mode"].items():
        assert exact.mode[name] == pytest.approx(value, rel=1e-12)
    rule = posterior(prior, (x, y), integrator="quadrature")
    assert rule.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)
    np.testing.assert_allclose(rule.predict(X_NEW).probs, truth["predictive"], atol=1e-10)
    np.testing.assert_allclose(
        rule.predict(X_NEW, method="coeffs").probs, truth["coeffs"], atol=1e-10
    )
    drawn = exact.predict(X_NEW, method="coeffs")
    assert (np.abs(drawn.probs - truth["coeffs"]) <= 4 * drawn.mcse).all()


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "importance", "nuts"])
def test_samplers_against_the_conjugate_closed_form(integrator: str, x64: None) -> None:
    x, y = make_data(12, seed=2)
    truth = conjugate_reference(x, y, HYPER)
    prior = bc.NormalInverseGammaPrior(**HYPER)
    draws = 4_000 if integrator == "nuts" else 40_000
    post = posterior(prior, (x, y), integrator=integrator, num_samples=draws)
    for method in ("predictive", "coeffs"):
        result = post.predict(X_NEW, method=method)
        assert (np.abs(result.probs - truth[method]) <= 4 * result.mcse).all(), method


@pytest.mark.slow
def test_importance_sampling_where_plain_sampling_degenerates(x64: None) -> None:
    x, y = make_data(20_000)
    prior = bc.GaussianPrior(dist.Normal(0.0, 30.0), dist.Normal(0.0, 30.0), dist.HalfNormal(30.0))
    with pytest.warns(bc.SamplingWarning, match="use integrator='importance'"):
        plain = posterior(prior, (x, y), num_samples=20_000)
    assert plain.ess < 100
    truth = posterior(prior, (x, y), integrator="quadrature")
    post = posterior(prior, (x, y), integrator="importance", num_samples=20_000)
    assert post.ess > 1_000
    result = post.predict(X_NEW)
    assert (np.abs(result.probs - truth.predict(X_NEW).probs) <= 4 * result.mcse).all()


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["montecarlo", "quadrature", "importance"])
def test_float32_agrees_with_float64(integrator: str) -> None:
    x, y = make_data(50)
    points = np.linspace(-6, 6, 700)
    prior = bc.GaussianPrior(*PRIORS["uniform"][0], 1.0)
    with jax.enable_x64(True):
        wide = posterior(prior, (x, y), integrator=integrator, num_samples=20_000)
        truth = {m: np.asarray(wide.predict(points, method=m).probs) for m in METHODS}
        assert truth["preds"].dtype == np.float64
    narrow = posterior(prior, (x.astype(np.float32), y), integrator=integrator, num_samples=20_000)
    for interpolate in (True, False):
        for method in METHODS:
            result = narrow.predict(
                points.astype(np.float32), method=method, interpolate=interpolate
            ).probs
            assert result.dtype == np.float32
            np.testing.assert_allclose(result, truth[method], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_symmetry_permutation_shift_and_scale(x64: None) -> None:
    x, y = make_data(15)
    rng = np.random.default_rng(0)

    def predict(prior: bc.Prior, x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
        post = posterior(prior, (x, y), integrator="quadrature")
        return np.asarray(post.predict(new).log_odds)

    prior = bc.GaussianPrior(
        dist.Normal(-1.0, 1.0), dist.Normal(1.0, 1.0), dist.LogNormal(0.0, 0.5)
    )
    base = predict(prior, x, y, X_NEW)
    order = rng.permutation(x.size)
    np.testing.assert_allclose(predict(prior, x[order], y[order], X_NEW), base, rtol=1e-9)
    # Negated scores with exchanged classes have the negated log odds.
    np.testing.assert_allclose(predict(prior, -x, 1 - y, -X_NEW), -base, rtol=1e-8, atol=1e-9)
    far, scale = 1e6, 3.0
    moved = bc.GaussianPrior(
        dist.Normal(far - scale, scale), dist.Normal(far + scale, scale),
        dist.LogNormal(np.log(scale), 0.5),
    )  # fmt: skip
    np.testing.assert_allclose(
        predict(moved, far + scale * x, y, far + scale * X_NEW), base, rtol=1e-6, atol=1e-6
    )


@pytest.mark.slow
def test_far_points_are_finite_and_monotone() -> None:
    x, y = make_data(30)
    prior = bc.GaussianPrior(*PRIORS["uniform"][0], 1.0)
    far = np.linspace(-60, 60, 2001)
    for integrator in ("montecarlo", "quadrature"):
        log_odds = posterior(prior, (x, y), integrator=integrator).predict(far).log_odds
        assert np.isfinite(log_odds).all()
        assert (np.diff(log_odds) > 0).all()
