"""Vector, matrix, Dirichlet and structured scaling: their objectives against SciPy."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize
from scipy.special import log_softmax, softmax

from bayescal._core.minimization.optimize import Status
from bayescal.calibrators import Dirichlet, Matrix, StructuredMatrix, StructuredVector, Vector
from bayescal.calibrators.multiclass.linear import LinearCalibrator
from bayescal.calibrators.multiclass.matrix import OFF_DIAGONALS
from bayescal.data.folds.deal import fold_scores
from bayescal.data.rows import Rows

Array = np.ndarray


def make_logits(n: int = 300, k: int = 4, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    z = 3 * rng.normal(size=(n, k)) + rng.normal(size=(n, 1))
    y = np.argmax(0.4 * z + 0.3 * np.arange(k) + rng.gumbel(size=z.shape), axis=1)
    return z, y, rng.uniform(0.5, 2, n)


def mean_loss(logits: Array, y: Array, weights: Array) -> float:
    label_log_probs = log_softmax(logits, axis=1)[np.arange(len(y)), y]
    return float(-(weights @ label_log_probs) / weights.sum())


def minimize_loss(loss: Any, size: int) -> Any:
    options = {"maxiter": 5000, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-8}
    return optimize.minimize(loss, np.zeros(size), method="L-BFGS-B", options=options)


def test_vector_against_scipy() -> None:
    z, y, w = make_logits()
    state = Vector()._fit(Rows(z, y, w), 0)
    expected = minimize_loss(lambda t: mean_loss(z * (1 + t[:4]) + t[4:], y, w), 8)
    assert state["objective"] == pytest.approx(expected.fun, rel=1e-8)
    assert state["status"] == Status.CONVERGED and state["gradient_norm"] < 1e-6
    np.testing.assert_allclose(state["coef"], 1 + expected.x[:4], atol=1e-3)
    centered = expected.x[4:] - expected.x[4:].mean()
    np.testing.assert_allclose(state["intercept"], centered, atol=1e-3)
    probs = softmax(z * state["coef"] + state["intercept"], axis=1)
    np.testing.assert_allclose(Vector().apply(state, z), probs, rtol=1e-12)


@pytest.mark.parametrize(("off", "intercept"), [(0.0, 0.0), (0.1, 0.02), (5.0, 30.0), (0.0, 1.0)])
@pytest.mark.parametrize("kind", [Matrix, Dirichlet])
def test_matrix_against_scipy(kind: type[Matrix], off: float, intercept: float) -> None:
    z, y, w = make_logits()
    x = z if kind is Matrix else log_softmax(z, axis=1)

    def loss(theta: Array) -> float:
        m, b = np.eye(4) + theta[:16].reshape(4, 4), theta[16:]
        squares = (m**2).sum() - (np.diag(m) ** 2).sum()
        return mean_loss(x @ m.T + b, y, w) + off / 12 * squares + intercept / 4 * (b**2).sum()

    state = kind(off, intercept)._fit(Rows(x, y, w), 0)
    expected = minimize_loss(loss, 20)
    assert state["objective"] == pytest.approx(expected.fun, rel=1e-7)
    assert state["gradient_norm"] < 1e-6
    probs = softmax(x @ state["coef"].T + state["intercept"], axis=1)
    np.testing.assert_allclose(kind(off, intercept).apply(state, x), probs, rtol=1e-12)
    m, b = np.eye(4) + expected.x[:16].reshape(4, 4), expected.x[16:]
    np.testing.assert_allclose(probs, softmax(x @ m.T + b, axis=1), atol=1e-4)


@pytest.mark.parametrize("kind", [StructuredVector, StructuredMatrix])
def test_structured_scaling_against_scipy(kind: type[LinearCalibrator]) -> None:
    z, y, w = make_logits()
    x = log_softmax(z, axis=1)
    state = kind()._fit(Rows(x, y, w), 0)
    n, k = w.sum(), 4
    best = optimize.minimize_scalar(
        lambda s: mean_loss(s * x, y, w), bounds=(0, 5), options={"xatol": 1e-11}
    )
    assert state["inverse"] == pytest.approx(best.x, rel=1e-5)
    e = 1 / (n + 1)
    smooth = np.log((1 - e) * softmax(best.x * x, axis=1) + e / k)

    def loss(theta: Array) -> float:
        b = theta[:k]
        if kind is StructuredVector:
            v = theta[k:]
            return mean_loss(smooth * (1 + v) + b, y, w) + k / n * (b @ b + v @ v)
        m = theta[k:].reshape(k, k)
        diagonal = np.diag(m) @ np.diag(m)
        shrunk = k / n * (b @ b + diagonal) + k * (k - 1) / n * ((m**2).sum() - diagonal)
        return mean_loss(smooth + smooth @ m.T + b, y, w) + shrunk

    expected = minimize_loss(loss, 2 * k if kind is StructuredVector else k + k * k)
    assert state["objective"] == pytest.approx(expected.fun, rel=1e-7)
    b, rest = expected.x[:k], expected.x[k:]
    logits = (
        smooth * (1 + rest) + b
        if kind is StructuredVector
        else smooth + smooth @ rest.reshape(k, k).T + b
    )
    np.testing.assert_allclose(kind().apply(state, x), softmax(logits, axis=1), atol=1e-5)


def test_cross_validation_chooses_the_least_loss_of_separate_fits() -> None:
    z, y, w = make_logits(120, 3)
    state = Matrix("cv", "cv")._fit(Rows(z, y, w), 3)
    assert state["cv_penalties"].shape == (49, 2) and state["cv_losses"].shape == (49, 5)
    folds = fold_scores(z, y, w, 5).fold
    rng = np.random.default_rng(0)
    for i in rng.choice(49, 6, replace=False):
        off, intercept = state["cv_penalties"][i]
        for f in range(5):
            left = folds == f
            # The penalty is scaled by the mean share of rows in a training fold.
            share = w[~left].sum() / (w.sum() * 0.8)
            single = Matrix(off / share, intercept / share)._fit(
                Rows(z[~left], y[~left], w[~left]), 0
            )
            probs = Matrix().apply(single, z[left])[np.arange(left.sum()), y[left]]
            expected = -(w[left] @ np.log(probs)) / w[left].sum()
            assert state["cv_losses"][i, f] == pytest.approx(expected, rel=2e-4)
    best = state["cv_penalties"][np.argmin(state["cv_losses"].mean(axis=1))]
    assert (state["off_diagonal"], state["intercept_penalty"]) == tuple(best)
    chosen = Matrix(*best.tolist())._fit(Rows(z, y, w), 0)
    np.testing.assert_allclose(state["coef"], chosen["coef"], atol=1e-6)
    one = Matrix("cv", 0.5)._fit(Rows(z, y, w), 3)
    assert set(one["cv_penalties"][:, 1]) == {0.5} and len(one["cv_penalties"]) == 7
    assert set(one["cv_penalties"][:, 0]) == set(OFF_DIAGONALS)


def test_a_class_without_labels_keeps_a_share() -> None:
    z, y, w = make_logits(200, 4)
    some = y != 1
    x, label, weights = z[some], y[some], w[some]
    state = Vector()._fit(Rows(x, label, weights), 0)
    probs = Vector().apply(state, z)
    inverse = optimize.minimize_scalar(
        lambda s: mean_loss(s * x, label, weights), bounds=(0, 5), options={"xatol": 1e-11}
    ).x
    factor = 1 / (1 + weights @ softmax(inverse * x, axis=1)[:, 1])
    np.testing.assert_allclose(probs[:, 1], factor * softmax(inverse * z, axis=1)[:, 1], rtol=1e-4)
    # The other classes are fitted as if it did not exist.
    rest = [0, 2, 3]
    alone = Vector()._fit(Rows(x[:, rest], np.searchsorted(rest, label), weights), 0)
    expected = Vector().apply(alone, z[:, rest])
    np.testing.assert_allclose(probs[:, rest] / (1 - probs[:, [1]]), expected, rtol=1e-9)


def test_separable_labels_are_told() -> None:
    z = np.log(np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]] * 3))
    for calibration in (Vector(), Matrix(), Dirichlet()):
        state = calibration._fit(Rows(z, np.array([0, 1, 2] * 3), np.ones(9)), 0)
        assert state["status"] == Status.UNBOUNDED
        assert np.isfinite(calibration.apply(state, z)).all()
    for calibration in (StructuredVector(), StructuredMatrix()):
        state = calibration._fit(Rows(z, np.array([0, 1, 2] * 3), np.ones(9)), 0)
        assert state["status"] == Status.CONVERGED


@pytest.mark.parametrize("kind", [Matrix, Dirichlet])
def test_what_no_penalty_decides_is_centered(kind: type[Matrix]) -> None:
    """Check centering: a number added to a column or to all intercepts changes no probability."""
    z, y, _ = make_logits(200, 4)
    scores = softmax(z, axis=1)
    free, only_columns = kind(0.0, 0.0).fit(scores, y), kind(0.0, 0.1).fit(scores, y)
    for fitted in (free, only_columns):
        np.testing.assert_allclose(fitted.coef_.mean(axis=0), np.eye(4).mean(axis=0), atol=1e-12)
    assert abs(free.intercept_.mean()) < 1e-12
