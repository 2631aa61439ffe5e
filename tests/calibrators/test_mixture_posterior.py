"""The posterior of ensemble temperature scaling against sums over a grid."""

import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy.special import log_softmax, softmax

from bayescal.calibrators import EnsembleTemperature
from bayescal.calibrators.base.parametric import Inference
from bayescal.data.rows import Rows
from bayescal.regression import draws as tempered
from tests.calibrators.brute import mean_and_ends

Array = np.ndarray


def make_logits(n: int, k: int = 4) -> tuple[Array, Array, Array]:
    """Draw over-confident logits, with labels that are partly noise."""
    rng = np.random.default_rng(0)
    z = 4 * rng.normal(size=(n, k))
    y = np.argmax(0.5 * z + rng.gumbel(size=z.shape), axis=1)
    noise = rng.random(n) < 0.2
    y[noise] = rng.integers(0, k, noise.sum())
    return z, y, rng.uniform(0.5, 2, n)


def log_density(u: Array, z: Array, y: Array, w: Array) -> float:
    """Compute the log posterior at log s and two log ratios of mixture weights."""
    s, shares = np.exp(u[0]), softmax([u[1], u[2], 0.0])
    probs = shares[0] * softmax(s * z, axis=1) + shares[1] * softmax(z, axis=1)
    label_probs = (probs + shares[2] / z.shape[1])[np.arange(len(y)), y]
    # The uniform prior on weights has their product as its density in log ratios.
    return float(w @ np.log(label_probs) + np.log(shares).sum() - 0.5 * (u[0] / 1.5) ** 2)


def moments(z: Array, y: Array, w: Array, at: Array) -> tuple[Array, Array]:
    """Compute posterior means and deviations of log s, the weights and the probabilities ``at``."""
    s = np.linspace(-4, 3.5, 90)
    r = np.linspace(-9, 9, 60)
    scaled = np.stack([log_softmax(np.exp(u) * z, axis=1)[np.arange(len(y)), y] for u in s])
    same = log_softmax(z, axis=1)[np.arange(len(y)), y]
    shares = softmax(np.stack([*np.meshgrid(r, r, indexing="ij"), np.zeros((60, 60))], -1), -1)
    flat = shares.reshape(-1, 3)
    total, first, second = 0.0, 0.0, 0.0
    best = -np.inf
    for u, label_logs in zip(s, scaled, strict=True):
        parts = np.stack([np.exp(label_logs), np.exp(same), np.full(len(y), 1 / z.shape[1])])
        log = np.log(flat @ parts) @ w + np.log(flat).sum(axis=1) - 0.5 * (u / 1.5) ** 2
        values = np.column_stack(
            [
                np.full(len(flat), u),
                flat,
                flat
                @ np.stack(
                    [softmax(np.exp(u) * at), softmax(at), np.full(at.shape, 1 / z.shape[1])]
                ),
            ]
        )
        if log.max() > best:
            shift = np.exp(best - log.max())
            total, first, second, best = total * shift, first * shift, second * shift, log.max()
        weight = np.exp(log - best)
        total += weight.sum()
        first += weight @ values
        second += weight @ values**2
    mean = first / total
    return mean, np.sqrt(second / total - mean**2)


@pytest.mark.slow
def test_nuts_against_a_grid() -> None:
    z, y, w = make_logits(150)
    at = np.array([3.0, 1.0, 0.0, -2.0])
    calibration = EnsembleTemperature(inference="nuts", num_samples=4000)
    state = calibration._fit(Rows(z, y, w), 0)
    draws = calibration._sample(state, Rows(z, y, w), 0)
    theta = draws.coefficients
    assert draws.r_hat.max() < 1.03
    mean, deviation = moments(z, y, w, at)
    probs = calibration._curves(state, theta.reshape(-1, 4), at[None])[:, 0]
    probs = probs.reshape(*theta.shape[:2], 4)
    result = np.concatenate([np.log(theta[..., :1]), theta[..., 1:], probs], axis=-1)
    for j in range(result.shape[-1]):
        samples = result[..., j]
        error = deviation[j] / np.sqrt(float(effective_sample_size(samples[..., None])[0]))
        assert abs(samples.mean() - mean[j]) < 5 * error
        squares = (samples - mean[j]) ** 2
        error = squares.std() / np.sqrt(float(effective_sample_size(squares[..., None])[0]))
        assert abs(squares.mean() - deviation[j] ** 2) < 5 * error


def test_laplace_is_normal_at_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempered, "_NORMAL", np.inf)
    z, y, w = make_logits(2000)
    calibration = EnsembleTemperature(inference="laplace", num_samples=20_000)
    state = calibration._fit(Rows(z, y, w), 0)
    theta = calibration._sample(state, Rows(z, y, w), 0).coefficients[0]
    u = np.column_stack([np.log(theta[:, 0]), np.log(theta[:, 1:3] / theta[:, 3:])])
    mode = u.mean(axis=0)
    step = 1e-3

    def rise(i: int, j: int) -> float:
        a, b = step * np.eye(3)[i], step * np.eye(3)[j]
        ends = [log_density(mode + p * a + q * b, z, y, w) for p in (1, -1) for q in (1, -1)]
        return (ends[0] - ends[1] - ends[2] + ends[3]) / (4 * step**2)

    slope = [
        log_density(mode + d, z, y, w) - log_density(mode - d, z, y, w) for d in step * np.eye(3)
    ]
    hessian = -np.array([[rise(i, j) for j in range(3)] for i in range(3)])
    covariance = np.linalg.inv(hessian)
    away = covariance @ np.array(slope) / (2 * step)
    assert np.abs(away / np.sqrt(np.diag(covariance))).max() < 1e-3
    np.testing.assert_allclose(np.cov(u.T), covariance, atol=0.05 * np.abs(covariance).max())


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["laplace", "nuts"])
def test_hard_data(inference: Inference) -> None:
    """Check that perfect, hopeless, constant and single rows have a proper posterior."""
    calibration = EnsembleTemperature(inference=inference, num_samples=40)
    eye = 50.0 * np.eye(3)
    for z, y in (
        (eye, np.arange(3)),
        (eye, np.array([1, 2, 0])),
        (np.zeros((3, 3)), np.arange(3)),
        (eye[:1], np.array([0])),
    ):
        w = np.ones(len(y))
        state = calibration._fit(Rows(z, y, w), 0)
        theta = calibration._sample(state, Rows(z, y, w), 0).coefficients
        assert np.isfinite(theta).all() and (theta > 0).all()
        drawn = {**state, "theta_draws": theta}
        mean, lower, upper = mean_and_ends(calibration, drawn, z, 0.9)
        np.testing.assert_allclose(mean.sum(axis=1), 1, rtol=1e-9)
        assert (lower <= upper).all()
