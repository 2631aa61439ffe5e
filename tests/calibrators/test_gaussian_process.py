"""The Gaussian process against SciPy, a dense process of all logits, and importance sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln, log_softmax, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

import bayescal as bc
from bayescal.calibrators.multiclass.gaussian_process import likelihood as _latent
from bayescal.calibrators.multiclass.gaussian_process.likelihood import (
    AMPLITUDES,
    LENGTHS,
    NODES,
    Likelihood,
    best_inverse,
    factorize,
    fit_cells,
    locate,
    place_nodes,
)
from bayescal.data.rows import Rows

Array = np.ndarray
SCALES = [(a, length) for a in AMPLITUDES for length in LENGTHS]


def draw_labels(rng: np.random.Generator, probs: Array) -> Array:
    return (rng.random((len(probs), 1)) > np.cumsum(probs, axis=1)[:, :-1]).sum(axis=1)


def make_logits(n: int, k: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return logits, labels and weights."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 2, (n, k))
    return z, draw_labels(rng, softmax(0.6 * z, axis=1)), rng.uniform(0.3, 2, n)


def covariance(x: Array, scales: tuple[float, float]) -> Array:
    """Compute the covariance of h at points (m,) by formula; equal points share their noise."""
    a, length = scales
    difference = x[:, None] - x
    kernel = np.exp(-(difference**2) / (2 * length**2)) + 1e-6 * (abs(difference) < 1e-9)
    return a**2 * kernel + np.outer(x, x)


def interpolation_matrix(nodes: Array, x: Array) -> Array:
    """Return the matrix (m, 25) of linear interpolation at points (m,)."""
    return np.stack([np.interp(x, nodes, row) for row in np.eye(NODES)], axis=1)


def curve_of(model: Any, z: Array, h: Array) -> Array:
    """Compute probabilities (..., m, k) from deviations (..., 25) with the formula."""
    n = 0.1 / float(model.state_["smoothing"]) - 1
    e, k = 0.1 / (n + 1), z.shape[1]
    x = np.log((1 - e) * softmax(z / model.temperature_, axis=1) + e / k)
    moved = (interpolation_matrix(model.nodes_, x.ravel()) @ h[..., None])[..., 0]
    return softmax(x + moved.reshape(*h.shape[:-1], *x.shape), axis=-1)


# --- the fit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 5])
def test_modes_are_scipys(k: int) -> None:
    z, y, w = make_logits(60, k)
    nodes = place_nodes(0.01, k)
    x = np.maximum(log_softmax(z, axis=1), nodes[0])
    cells = fit_cells(Likelihood(nodes, Rows(x, y, w)))
    assert cells.scales.tolist() == [list(pair) for pair in SCALES] and cells.status == 0
    at = interpolation_matrix(nodes, x.ravel()).reshape(*x.shape, NODES)
    at_labels = at[np.arange(60), y]
    for scales, result in zip(SCALES, cells.modes, strict=True):
        factor = np.linalg.cholesky(covariance(nodes, scales))

        def loss(v: Array, factor: Array = factor) -> tuple[float, Array]:
            h = factor @ v
            f = x + at @ h
            value = w @ (logsumexp(f, axis=1) - f[np.arange(60), y]) + v @ v / 2
            slope = np.einsum("ijl,ij->il", at, softmax(f, axis=1)) - at_labels
            return value, factor.T @ (w @ slope) + v

        best: Any = minimize(loss, np.zeros(NODES), jac=True, method="BFGS", options={"gtol": 1e-9})
        assert loss(np.linalg.solve(factor, result))[0] <= best.fun * (1 + 1e-10)
        np.testing.assert_allclose(result, factor @ best.x, atol=1e-6)


def dense_laplace(x: Array, y: Array, w: Array, cov: Array) -> tuple[Array, float]:
    """Compute the mode (n, k) and log evidence of a process with all n k latent values.

    See Rasmussen and Williams (2006), section 3.5; the values u have the covariance (n k, n k).
    """
    n, k = x.shape
    hit, weight = np.eye(k)[y].ravel(), np.repeat(w, k)
    u = alpha = np.zeros(n * k)
    curved = np.zeros((n * k, n * k))
    for _ in range(60):
        p: Any = softmax(x + u.reshape(n, k), axis=1)
        curved = np.zeros((n, k, n, k))
        for i in range(n):
            curved[i, :, i] = w[i] * (np.diag(p[i]) - np.outer(p[i], p[i]))
        curved = curved.reshape(n * k, n * k)
        right = curved @ u + weight * (hit - p.ravel())
        alpha = np.linalg.solve(np.eye(n * k) + curved @ cov, right)
        u = cov @ alpha
    f = x + u.reshape(n, k)
    total: Any = logsumexp(f, axis=1)
    fit = w @ (f[np.arange(n), y] - total)
    size = np.linalg.slogdet(np.eye(n * k) + curved @ cov)[1]
    return u.reshape(n, k), float(fit - u @ alpha / 2 - size / 2)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("where", ["nodes", "between"])
def test_evidence_is_that_of_a_dense_process(k: int, where: str) -> None:
    """Check logits at nodes against the process itself, and others against linear interpolation."""
    rng = np.random.default_rng(k)
    n, nodes = 24, place_nodes(0.02, k)
    x = nodes[rng.integers(0, NODES, (n, k))]
    if where == "between":
        x = rng.uniform(nodes[0], 0, (n, k))
    y, w = draw_labels(rng, softmax(0.5 * x, axis=1)), rng.uniform(0.3, 2, n)
    cells = fit_cells(Likelihood(nodes, Rows(x, y, w)))
    at, expected = interpolation_matrix(nodes, x.ravel()), []
    for number, scales in enumerate(SCALES):
        cov = covariance(x.ravel(), scales)
        if where == "between":
            cov = at @ covariance(nodes, scales) @ at.T
        mode, evidence = dense_laplace(x, y, w, cov)
        expected.append(evidence)
        np.testing.assert_allclose(at @ cells.modes[number], mode.ravel(), atol=1e-6)
    total: Any = logsumexp(expected)
    np.testing.assert_allclose(cells.weights, np.exp(expected - total), rtol=1e-6)
    assert cells.log_evidence == pytest.approx(total - np.log(9), rel=1e-8)


@pytest.mark.parametrize("scale", [1.0, 40.0, 0.01])
@pytest.mark.parametrize("kind", ["good", "noise", "separable"])
def test_the_temperature_is_the_most_probable(scale: float, kind: str) -> None:
    z, y, w = make_logits(50, 3)
    y = {"good": y, "noise": np.random.default_rng(1).integers(0, 3, 50)}.get(kind, z.argmax(1))
    z = z * scale

    def loss(u: float) -> float:
        f = np.exp(u) * z
        return w @ (logsumexp(f, axis=1) - f[np.arange(50), y]) + u**2 / (2 * 1.5**2)

    grid = np.linspace(-9, 9, 181)
    start = grid[np.argmin([loss(u) for u in grid])]
    around = (start - 0.1, start + 0.1)
    best: Any = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-9})
    result = np.log(best_inverse(z, y, w))
    assert result == pytest.approx(best.x, abs=1e-6)
    # For huge logits only the power of two matters.
    assert best_inverse(z * 2.0**60 / scale, y, w) * 2.0**60 < 100


def test_blocks_of_rows_are_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y, w = make_logits(80, 4)
    nodes, h = place_nodes(0.01, 4), np.random.default_rng(0).normal(size=NODES)
    rows = Rows(np.maximum(log_softmax(z, axis=1), nodes[0]), y, w)
    whole = Likelihood(nodes, rows)(h)
    monkeypatch.setattr(_latent, "_BLOCK", 7 * NODES)
    for one, other in zip(whole, Likelihood(nodes, rows)(h), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def test_the_density_that_is_sampled_has_the_likelihood(x64: None) -> None:
    z, y, w = make_logits(40, 3)
    nodes, v = place_nodes(0.01, 3), np.random.default_rng(0).normal(size=(2, NODES))
    x = np.maximum(log_softmax(z, axis=1), nodes[0])
    factors = np.stack([factorize(nodes, *scales) for scales in SCALES[:3]])
    result = _latent._losses_of_all(v, x, *locate(nodes, x), y, w, factors)
    likelihood = Likelihood(nodes, Rows(x, y, w))
    expected = [[likelihood(a @ one)[0] for a in factors] for one in v]
    np.testing.assert_allclose(result, expected, rtol=1e-10)


# --- predictions --------------------------------------------------------------------------------


def test_predictions_are_means_and_quantiles_over_draws() -> None:
    z, y, w = make_logits(70, 3)
    new = make_logits(30, 3, seed=1)[0]
    model = bc.GaussianProcess(inputs="logits").fit(z, y, w)
    draws = model.posterior_.draws["deviation"]
    assert draws.shape == (1, 256, NODES)
    probs = curve_of(model, new, draws[0])
    np.testing.assert_allclose(model.predict_proba(new), probs.mean(axis=0), atol=1e-12)
    lower, upper = model.predict_interval(new, 0.8)
    np.testing.assert_allclose(lower, np.quantile(probs, 0.1, axis=0), atol=1e-12)
    np.testing.assert_allclose(upper, np.quantile(probs, 0.9, axis=0), atol=1e-12)
    plain = bc.GaussianProcess(inputs="logits", inference="map").fit(z, y, w)
    expected = curve_of(plain, new, plain.deviation_)
    np.testing.assert_allclose(plain.predict_proba(new), expected, atol=1e-12)
    assert np.abs(expected - probs.mean(axis=0)).max() > 1e-3


def test_draws_are_of_the_mixture() -> None:
    z, y, w = make_logits(40, 3)
    model = bc.GaussianProcess(inputs="logits", num_samples=20_000)
    state = model._fit(Rows(z, y, w), 0)
    draws = model._sample(state, Rows(z, y, w), 0).coefficients[0]
    share, modes, factors = state["weights"], state["modes"], state["factors"]
    mean = share @ modes
    np.testing.assert_allclose(mean, model.fit(z, y, w).deviation_, atol=1e-12)
    away = modes - mean
    cov = np.einsum("c,cij,ckj->ik", share, factors, factors)
    cov += np.einsum("c,ci,cj->ij", share, away, away)
    error = np.sqrt(np.diag(cov) / 20_000)
    assert (np.abs(draws.mean(axis=0) - mean) < 4 * error).all()
    result = np.cov(draws.T, bias=True)
    variance = np.diag(cov)
    assert (np.abs(result - cov) < 6 * np.sqrt(np.outer(variance, variance) * 2 / 10_000)).all()


def importance_sample(
    x: Array, y: Array, w: Array, nodes: Array, cells: Any, count: int
) -> tuple[Array, Array, Array]:
    """Draw deviations from Student's t around each mode, with weights and log evidences."""
    rng, freedom, wide = np.random.default_rng(5), 6, 1.1
    at = interpolation_matrix(nodes, x.ravel())
    draws, weights = [], []
    for scales, mode, factor in zip(SCALES, cells.modes, cells.factors, strict=True):
        scale = wide * factor
        t = rng.normal(size=(count, NODES))
        t /= np.sqrt(rng.chisquare(freedom, (count, 1)) / freedom)
        h = mode + t @ scale.T
        total = np.sum(t**2, axis=1)
        log_q = gammaln((freedom + NODES) / 2) - gammaln(freedom / 2)
        log_q -= NODES / 2 * np.log(freedom * np.pi) + np.linalg.slogdet(scale)[1]
        log_q = log_q - (freedom + NODES) / 2 * np.log1p(total / freedom)
        v = np.linalg.solve(np.linalg.cholesky(cov := covariance(nodes, scales)), h.T)
        log_p = -np.sum(v**2, axis=0) / 2 - NODES / 2 * np.log(2 * np.pi)
        log_p -= np.linalg.slogdet(cov)[1] / 2
        f = x + (h @ at.T).reshape(count, *x.shape)
        fit = (f[:, np.arange(len(y)), y] - logsumexp(f, axis=2)) @ w
        draws.append(h)
        weights.append(fit + log_p - log_q)
    log_weights = np.stack(weights)
    evidence: Any = logsumexp(log_weights - np.log(count), axis=1)
    return np.concatenate(draws), log_weights.ravel(), evidence


@pytest.mark.slow
def test_nuts_and_evidence_by_importance_sampling() -> None:
    z, y, w = make_logits(40, 3, seed=2)
    new = make_logits(25, 3, seed=3)[0]
    model = bc.GaussianProcess(inputs="logits", inference="nuts", num_samples=8000).fit(z, y, w)
    posterior = model.posterior_
    assert posterior.divergences == 0 and posterior.r_hat.max() < 1.01
    bare = bc.GaussianProcess(inputs="logits")
    state: dict[str, Any] = bare._fit(Rows(z, y, w), 0)
    cells = _latent.FittedProcesses(*(state[name] for name in _latent.FittedProcesses._fields))
    e = float(state["smoothing"])
    x = np.log((1 - e) * softmax(z * float(state["inverse"]), axis=1) + e / 3)
    draws, log_weights, evidence = importance_sample(x, y, w, state["nodes"], cells, 20_000)
    # Laplace's log evidence is within 0.1.
    assert cells.log_evidence == pytest.approx(logsumexp(evidence) - np.log(9), abs=0.1)
    np.testing.assert_allclose(cells.weights, softmax(evidence), atol=0.02)
    share = softmax(log_weights)
    size = 1 / np.sum(share**2)
    assert size > 10_000
    probs = curve_of(model, new, draws)
    mean = np.tensordot(share, probs, 1)
    spread = np.sqrt(np.tensordot(share, probs**2, 1) - mean**2)
    unit = np.sqrt(1 / size + 1 / posterior.ess.min())
    error = spread * unit
    assert (np.abs(model.predict_proba(new) - mean) < 4.5 * error).all()
    # The expected fraction of draws lies below each end.
    for end, level in zip(model.predict_interval(new, 0.8), (0.1, 0.9), strict=True):
        below = np.tensordot(share, (probs < end).astype(float), 1)
        assert (np.abs(below - level) < 4.5 * 0.3 * unit).all()
    # Laplace's means are near, since the labels are noisy.
    near = bare.fit(z, y, w).predict_proba(new)
    assert np.abs(near - mean).max() < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 20, 200])
@pytest.mark.parametrize("k", [2, 4])
def test_intervals_cover_truths_of_the_prior(n: int, k: int) -> None:
    """Check coverage with true curves drawn from the prior.

    With two rows the temperature is undetermined and intervals are too short, as documented.
    """
    least = {2: 0.79, 4: 0.86}[k] if n == 2 else 0.88
    shares = []
    for seed in range(80):
        rng = np.random.default_rng(100 * seed + n + k)
        e, s = 0.1 / (n + 1), np.exp(1.5 * rng.normal())
        nodes = place_nodes(e, k)
        a, length = SCALES[rng.integers(9)]
        smooth = covariance(nodes, (a, length)) - np.outer(nodes, nodes)
        h = np.linalg.cholesky(smooth) @ rng.normal(size=NODES)
        z = 2 * rng.normal(size=(n + 100, k)) / s
        x = np.log((1 - e) * softmax(s * z, axis=1) + e / k)
        probs = softmax(x + np.interp(x, nodes, h), axis=1)
        y = draw_labels(rng, probs)
        model = bc.GaussianProcess(inputs="logits", classes=range(k)).fit(z[:n], y[:n])
        lower, upper = model.predict_interval(z[n:])
        truth = probs[n:] if k > 2 else probs[n:, 1]
        shares.append(np.mean((lower <= truth) & (truth <= upper)))
    error = np.std(shares) / np.sqrt(len(shares))
    assert least - 2 * error < np.mean(shares) < 0.92 + 2 * error


# --- data ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [300.0, 1e6, 1e200, 0.0])
def test_logits_of_any_size(scale: float) -> None:
    z, y, _ = make_logits(50, 3)
    model = bc.GaussianProcess(inputs="logits").fit(z * scale, y)
    probs = model.predict_proba(z * scale)
    assert model.status_ == "converged" and np.isfinite(probs).all()
    assert bc.metrics.log_loss(probs, y) < np.log(3) + 0.02
    if scale >= 1e6 and scale < 1e100:
        # The scale of huge logits does not matter.
        same = bc.GaussianProcess(inputs="logits").fit(z * scale * 2.0**40, y)
        np.testing.assert_allclose(same.predict_proba(z * scale * 2.0**40), probs, atol=1e-6)


@pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")
def test_two_rows_ties_and_one_class() -> None:
    for z, y in (
        ([[1.0, 0, 0], [0, 1, 0]], [0, 1]),
        ([[1.0, 0, 0]] * 30, [0, 1, 2] * 10),
        ([[300.0, 0, -300]] * 4, [0, 0, 0, 2]),
        ([[0.0, 0, 0]], [2]),
    ):
        model = bc.GaussianProcess(inputs="logits", classes=3).fit(z, y)
        probs = model.predict_proba(z)
        lower, upper = model.predict_interval(z)
        assert model.status_ == "converged" and probs.min() > 0
        assert ((lower <= probs + 1e-12) & (probs <= upper + 1e-12)).all()
    # Classes with equal logits have equal probabilities, so the curve is constant.
    np.testing.assert_allclose(probs, 1 / 3, atol=1e-12)


@pytest.mark.parametrize("inference", ["map", "laplace"])
def test_huge_weights(inference: Any) -> None:
    """Check that huge weights reach at least the likelihood of a temperature."""
    for seed, k in ((0, 5), (1, 2), (2, 3)):
        rng = np.random.default_rng(seed)
        z = 2 * rng.normal(size=(80, k))
        y = (0.6 * z + rng.gumbel(size=z.shape)).argmax(axis=1)
        y[:k] = np.arange(k)
        temperature = bc.Temperature(inputs="logits").fit(z, y)
        for scale in (1e15, 1e30):
            calibrator = bc.GaussianProcess(inputs="logits", inference=inference)
            fitted = calibrator.fit(z, y, np.full(80, scale))
            loss = -np.log(fitted.predict_proba(z)[np.arange(80), y]).sum()
            assert loss <= 80 * temperature.objective_ * (1 + 1e-9)
            assert fitted.log_evidence_ == pytest.approx(-loss * scale, rel=1e-9)


def test_many_classes_cost_no_more_parameters() -> None:
    z, y, _ = make_logits(300, 200)
    model = bc.GaussianProcess(inputs="logits", classes=200).fit(z, y)
    assert model.deviation_.shape == model.nodes_.shape == (NODES,)
    order = np.random.default_rng(0).permutation(200)
    turned = bc.GaussianProcess(inputs="logits", classes=200).fit(z[:, order], np.argsort(order)[y])
    expected = model.predict_proba(z[:20])[:, order]
    np.testing.assert_allclose(turned.predict_proba(z[:20, order]), expected, atol=1e-8)


def test_a_constant_added_to_logits_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 3))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    offset = 1e8 * rng.normal(size=(60, 1))
    near = bc.GaussianProcess(inputs="logits").fit(logits, y).predict_proba(logits)
    far = bc.GaussianProcess(inputs="logits").fit(logits + offset, y)
    np.testing.assert_allclose(far.predict_proba(logits + offset), near, atol=1e-6)
