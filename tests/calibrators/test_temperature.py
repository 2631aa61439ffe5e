"""Temperatures and their ensembles against SciPy, quadrature and published figures."""

from pathlib import Path

import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy import optimize
from scipy.special import logsumexp, softmax

from bayescal import metrics
from bayescal._core.minimization.optimize import Status
from bayescal.calibrators import EnsembleTemperature, Temperature
from bayescal.calibrators.multiclass import scale
from bayescal.calibrators.multiclass.binwise import best_inverse_temperature, equal_mass_error
from bayescal.calibrators.multiclass.scale import fit_inverse
from bayescal.calibrators.stack import mixture as _mixture
from bayescal.calibrators.stack.mixture import best_mixture
from bayescal.data.rows import Rows
from tests.calibrators.brute import mean_and_ends

Array = np.ndarray
DRAWS = 40_000


def make_logits(n: int = 300, k: int = 5, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, k)) + rng.normal(size=(n, 1))
    y = np.argmax(0.4 * z + rng.gumbel(size=z.shape), axis=1)
    return z, y, rng.uniform(0.5, 2, n)


def loss(s: float, z: Array, y: Array, w: Array) -> float:
    return float(w @ (logsumexp(s * z, axis=1) - s * z[np.arange(len(y)), y]))


@pytest.mark.parametrize(("n", "k"), [(2, 3), (40, 2), (300, 5), (8000, 20)])
def test_the_best_temperature_against_scipy(n: int, k: int) -> None:
    z, y, w = make_logits(n, k)
    result = fit_inverse(Rows(z, y, w))
    best = optimize.minimize_scalar(
        loss, args=(z, y, w), bounds=(0, 5), method="bounded", options={"xatol": 1e-11}
    )
    assert result.status == Status.CONVERGED
    assert loss(result.x, z, y, w) <= best.fun * (1 + 1e-12)
    assert result.x == pytest.approx(best.x, rel=1e-5, abs=1e-8)
    assert result.value == pytest.approx(best.fun, rel=1e-6)
    narrow = fit_inverse(Rows(z.astype(np.float32), y, w))
    assert narrow.x == pytest.approx(result.x, rel=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("u", [-1.0, 0.3])
def test_chains_sample_the_likelihood_times_the_prior(u: float) -> None:
    z, y, w = make_logits(20)
    below = z - z.max(axis=1, keepdims=True)
    density = scale._loss(np.array([u]), below, below[np.arange(20), y], w)
    assert float(density) == pytest.approx(loss(np.exp(u), z, y, w) + (u / 1.5) ** 2 / 2, rel=1e-12)


def test_temperatures_at_the_limits() -> None:
    eye = np.eye(3)
    ones = np.ones(3)
    right = fit_inverse(Rows(2 * eye, np.arange(3), ones))
    assert right.status == Status.UNBOUNDED and np.isfinite(right.x)
    wrong = fit_inverse(Rows(2 * eye, np.array([1, 2, 0]), ones))
    assert wrong.x == 0 and wrong.status == Status.CONVERGED
    same = fit_inverse(Rows(np.zeros((3, 3)), np.arange(3), ones))
    assert same.x == 1 and same.status == Status.CONVERGED
    for size in (1e-30, 1e30):
        some = size * np.array([[1.0, 0, 0]] * 3)
        result = fit_inverse(Rows(some, np.array([0, 1, 0]), ones))
        # Two of three are right: exp(s * size) / 2 is the ratio of shares.
        assert result.x * size == pytest.approx(np.log(4), rel=1e-7)
    state = Temperature()._fit(Rows(2 * eye, np.array([1, 2, 0]), ones), 0)
    np.testing.assert_allclose(Temperature().apply(state, eye), 1 / 3)
    assert np.isinf(state["temperature"])


@pytest.mark.realdata
def test_published_temperature(shared_data: Path) -> None:
    data = np.load(shared_data / "predictions" / "kull_densenet40_c10.npz")
    y, at = data["y_val"].astype(int), data["y_test"].astype(int)
    state = Temperature()._fit(Rows(data["logits_val"], y, np.ones(len(y))), 0)
    assert state["temperature"] == pytest.approx(2.8826, abs=1e-4)
    probs = Temperature().apply(state, data["logits_test"])
    assert -np.log(probs[np.arange(len(at)), at]).mean() == pytest.approx(0.22509, abs=5e-6)
    assert metrics.ece(probs, at, bins=15) == pytest.approx(0.00946, abs=5e-6)
    equal = metrics.ece(probs, at, bins=15, binning="equal_mass")
    assert equal == pytest.approx(0.00924, abs=5e-6)


def test_mixture_against_scipy() -> None:
    rng = np.random.default_rng(0)
    for q in (2, 3, 6):
        parts, w = rng.uniform(0, 1, (200, q)) ** 3, rng.uniform(0.5, 2, 200)
        shares, value = best_mixture(parts, w)
        assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
        expected = optimize.minimize(
            lambda s, parts=parts, w=w: -(w @ np.log(parts @ s)),
            np.full(q, 1 / q),
            method="SLSQP",
            bounds=[(0, 1)] * q,
            constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
            options={"ftol": 1e-13, "maxiter": 500},
        )
        assert value <= expected.fun * (1 + 1e-9)
        np.testing.assert_allclose(shares, expected.x, atol=1e-4)


def test_mixture_of_equal_and_of_impossible_predictions() -> None:
    same, _ = best_mixture(np.full((5, 3), 0.2), np.ones(5))
    assert same.sum() == pytest.approx(1) and (same >= 0).all()
    parts = np.stack([np.zeros(4), np.full(4, 0.5), np.full(4, 0.25)], axis=1)
    best, value = best_mixture(parts, np.ones(4))
    np.testing.assert_allclose(best, [0, 1, 0], atol=1e-8)
    assert value == pytest.approx(4 * np.log(2))


def test_shares_where_iterations_run_out_are_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    parts, w = rng.random((200, 3)) ** np.array([0.8, 1.0, 1.2]), rng.random(200)
    losses = []
    for count in (0, 1, 50):
        monkeypatch.setattr(_mixture, "_ITERATIONS", count)
        shares, value = best_mixture(parts, w)
        assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
        assert value == pytest.approx(-w @ np.log(parts @ shares))
        losses.append(value)
    assert losses[0] > losses[1] > losses[2]


def test_ensemble_is_the_best_mixture_of_its_parts() -> None:
    z, y, w = make_logits(400)
    state = EnsembleTemperature()._fit(Rows(z, y, w), 0)
    s = state["theta"][0]
    rows = np.arange(len(y))
    parts = [softmax(s * z, axis=1), softmax(z, axis=1), np.full(z.shape, 0.2)]
    grid = np.random.default_rng(0).dirichlet(np.ones(3), 2000)
    label_probs = np.stack([p[rows, y] for p in parts], axis=1)
    losses = -(np.log(label_probs @ grid.T).T @ w) / w.sum()
    assert state["objective"] <= losses.min()
    assert state["objective"] == pytest.approx(losses.min(), abs=1e-3)
    mixed = sum(m * p for m, p in zip(state["mixture"], parts, strict=True))
    np.testing.assert_allclose(EnsembleTemperature().apply(state, z), mixed, rtol=1e-10)


def test_the_temperature_of_the_least_error() -> None:
    z, y, w = make_logits(500)
    inverse, error = best_inverse_temperature(z, y, w)
    correct = z.argmax(axis=1) == y

    def at(s: float) -> float:
        return equal_mass_error(softmax(s * z, axis=1).max(axis=1), correct, w)

    assert error == pytest.approx(at(inverse), rel=1e-9)
    assert error <= min(at(s) for s in np.exp(np.linspace(-3, 3, 200))) + 2e-3
    state = Temperature("adaptive_ece")._fit(Rows(z, y, w), 0)
    assert state["theta"][0] == inverse and state["objective"] == error


@pytest.mark.parametrize("k", [2, 3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_least_error_is_what_metrics_report(k: int, weighted: bool) -> None:
    z, y, w = make_logits(500, k)
    weights = w if weighted else None
    model = Temperature("adaptive_ece", inputs="logits").fit(z, y, weights)
    probs = model.predict_proba(z)
    reported = metrics.ece(probs, y, kind="confidence", binning="equal_mass", weights=weights)
    assert model.objective_ == pytest.approx(reported, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "k", "sharpness", "unit"),
    [
        *[(4, 3, 20.0, 1.0), (6, 3, 1e-3, 1.0), (300, 4, 1.0, 1.0)],
        *[(300, 4, 1.0, 1e7), (300, 4, 1.0, 1e-7), (60, 3, -1.0, 1e7)],
    ],
)
def test_laplace_against_quadrature(n: int, k: int, sharpness: float, unit: float) -> None:
    """Compare with quadrature, for the prior N(0, 1.5^2) on the log inverse temperature."""
    rng = np.random.default_rng(n)
    z = 2 * rng.normal(size=(n, k))
    y = np.argmax(sharpness * z + rng.gumbel(size=(n, k)), axis=1)
    y[:k] = np.arange(k)
    z *= unit

    def negative(u: Array) -> float:
        return loss(np.exp(u[0]), z, y, np.ones(n)) + 0.5 * (u[0] / 1.5) ** 2

    grid = np.linspace(-9, 9, 6001) - np.log(unit)
    mass = np.array([-negative(u[None]) for u in grid])
    mass = np.exp(mass - mass.max())
    mass /= mass.sum()
    mean = mass @ grid
    scale = np.sqrt(mass @ (grid - mean) ** 2)
    model = Temperature(inputs="logits", inference="laplace", num_samples=DRAWS, random_state=0)
    drawn = -np.log(model.fit(z, y).posterior_.draws["temperature"]).ravel()
    assert drawn.size == DRAWS
    assert np.mean(drawn) == pytest.approx(mean, abs=5 * scale / np.sqrt(DRAWS))
    assert np.std(drawn) == pytest.approx(scale, rel=5 / np.sqrt(DRAWS))
    for level in (0.001, 0.05, 0.95, 0.999):
        share = mass[grid <= np.quantile(drawn, level)].sum()
        assert abs(share - level) < 5 * np.sqrt(level * (1 - level) / DRAWS)


def test_laplace_of_heavy_rows_against_quadrature() -> None:
    """Check 20,000 logits, which are in single precision unless rows are heavy."""
    z, y, _ = make_logits(200, 100)
    w = np.full(200, 1e6)
    best = Temperature(inputs="logits").fit(z, y, w).temperature_
    center = -np.log(best)
    grid = center + np.linspace(-2e-3, 2e-3, 401)
    log = np.array([-loss(np.exp(u), z, y, w) - 0.5 * (u / 1.5) ** 2 for u in grid])
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    assert mass[[0, -1]].max() < 1e-9
    model = Temperature(inputs="logits", inference="laplace", num_samples=DRAWS, random_state=0)
    drawn = -np.log(model.fit(z, y, w).posterior_.draws["temperature"]).ravel()
    levels = np.interp(np.quantile(drawn, [0.05, 0.5, 0.95]), grid, mass.cumsum() - mass / 2)
    np.testing.assert_allclose(levels, [0.05, 0.5, 0.95], atol=0.01)


@pytest.mark.slow
def test_chains_against_quadrature() -> None:
    z, y, w = make_logits(30, 4)
    u = np.linspace(-6, 3, 3001)
    log = np.array([-loss(np.exp(v), z, y, w) - 0.5 * (v / 1.5) ** 2 for v in u])
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    mean = mass @ u
    deviation = np.sqrt(mass @ (u - mean) ** 2)
    calibrator = Temperature(inference="nuts", num_samples=4000)
    draws = calibrator._sample({"theta": np.ones(1)}, Rows(z, y, w), 0)
    result = np.log(draws.coefficients[..., 0])
    assert draws.divergences == 0 and draws.r_hat[0] < 1.01
    ess = float(effective_sample_size(result[..., None])[0])
    assert abs(result.mean() - mean) < 4.5 * deviation / np.sqrt(ess)
    squares = (result - mean) ** 2
    ess = float(effective_sample_size(squares[..., None])[0])
    assert abs(squares.mean() - deviation**2) < 4.5 * squares.std() / np.sqrt(ess)
    at = np.array([[1.0, 0.0, -1.0, 0.5]])
    state = {"theta_draws": draws.coefficients}
    probs, lower, upper = mean_and_ends(calibrator, state, at, 0.9)
    curves = np.array([softmax(s * at[0]) for s in draws.coefficients.ravel()])
    np.testing.assert_allclose(probs[0], curves.mean(axis=0))
    np.testing.assert_allclose(lower[0], np.quantile(curves, 0.05, axis=0))
    np.testing.assert_allclose(upper[0], np.quantile(curves, 0.95, axis=0))
