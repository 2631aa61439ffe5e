"""Laplace's approximation for scalings of logits: modes by SciPy, numerical curvatures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate, optimize
from scipy.special import log_softmax

import bayescal as bc
from bayescal.regression import draws as tempered

Array = np.ndarray
DRAWS = 40_000


def data_set(n: int, k: int, sharpness: float, seed: int) -> tuple[Array, Array]:
    """Draw logits with true temperature 1 / sharpness, and labels that include every class."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, k))
    y = np.argmax(sharpness * z + rng.gumbel(size=(n, k)), axis=1)
    y[:k] = np.arange(k)
    return z, y


def loss(logits: Array, y: Array) -> float:
    return -float(log_softmax(logits, axis=1)[np.arange(len(y)), y].sum())


def hessian(function: Callable[[Array], float], at: Array, h: float = 1e-3) -> Array:
    """Compute second derivatives with fourth-order differences."""
    p = len(at)
    result = np.empty((p, p))
    nodes, factors = np.array([-2, -1, 1, 2]), np.array([1, -8, 8, -1]) / (12 * h)
    for i, j in np.ndindex(p, p):
        result[i, j] = sum(
            a * b * function(at + h * (s * np.eye(p)[i] + t * np.eye(p)[j]))
            for s, a in zip(nodes, factors, strict=True)
            for t, b in zip(nodes, factors, strict=True)
        )
    return result


def test_temperature_of_many_rows_against_quadrature() -> None:
    """Check that with many rows Laplace's mean and deviation are near the exact posterior's."""
    z, y = data_set(2000, 3, 0.6, seed=1)
    center = optimize.minimize_scalar(lambda u: loss(np.exp(u) * z, y)).x
    least = loss(np.exp(center) * z, y)

    def density(u: float) -> float:
        return np.exp(least - loss(np.exp(u) * z, y) - 0.5 * (u / 1.5) ** 2)

    moments = [
        integrate.quad(lambda u, j=j: (u - center) ** j * density(u), center - 0.5, center + 0.5)[0]
        for j in range(3)
    ]
    mean = moments[1] / moments[0]
    deviation = np.sqrt(moments[2] / moments[0] - mean**2)
    model = bc.Temperature(inputs="logits", inference="laplace", num_samples=DRAWS, random_state=0)
    drawn = -np.log(model.fit(z, y).posterior_.draws["temperature"]).ravel()
    # Laplace's error is of the order 1 / n, or its square root relative to the deviation.
    assert np.mean(drawn) == pytest.approx(center + mean, abs=deviation / np.sqrt(2000) * 5)
    assert np.std(drawn) == pytest.approx(deviation, rel=5 / np.sqrt(DRAWS) + 5 / 2000)


@pytest.mark.parametrize(("n", "k"), [(9, 3), (60, 4)])
def test_vector_by_laplace(n: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the priors N(0, 1) on factors minus one and N(0, 10^2) on intercepts."""
    monkeypatch.setattr(tempered, "_NORMAL", np.inf)
    z, y = data_set(n, k, 0.7, seed=2)

    def negative(theta: Array) -> float:
        b, v = theta[:k], theta[k:]
        return loss(z * (1 + v) + b, y) + 0.5 * (b @ b) / 100 + 0.5 * (v @ v)

    mode = optimize.minimize(negative, np.zeros(2 * k), method="BFGS", options={"gtol": 1e-7}).x
    # Only differences of intercepts matter, so they are reported centered.
    transform = np.eye(2 * k)
    transform[:k, :k] -= 1 / k
    mean = transform @ mode
    covariance = transform @ np.linalg.inv(hessian(negative, mode)) @ transform.T
    model = bc.Vector(inputs="logits", inference="laplace", num_samples=DRAWS, random_state=0)
    drawn = model.fit(z, y).posterior_.draws
    theta = np.concatenate([drawn["intercept"][0], drawn["coef"][0] - 1], axis=1)
    assert theta.shape == (DRAWS, 2 * k)
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_array_less(np.abs(theta.mean(axis=0) - mean), 5 * deviation / DRAWS**0.5)
    # Each entry is within five standard errors for half the number of draws, as above.
    error = np.sqrt((np.outer(deviation, deviation) ** 2 + covariance**2) / (DRAWS / 2))
    np.testing.assert_array_less(np.abs(np.cov(theta.T) - covariance), 5 * error)
