"""Multinomial logistic regression: optima against SciPy, Hessians against differences."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import optimize
from scipy.special import log_softmax, logsumexp, softmax

import bayescal as bc
from bayescal._core.minimization.optimize import Status
from bayescal.regression.softmax import fit as softmax_fit
from bayescal.regression.softmax import precondition
from bayescal.regression.softmax.fit import (
    _side_by_side,
    fit_many,
    fit_on_host,
    out_of_fold_losses,
)
from bayescal.regression.softmax.objective import (
    Design,
    HostEvaluator,
    evaluate,
    full_hessian,
    mean_logit_jacobian,
    multiply,
)
from tests.regression.problems import KINDS, make_design, size

Array = np.ndarray


def value(theta: Array, design: Design, penalty: Array) -> float:
    """Compute the objective from its definition."""
    k, m, d, r = design.sizes
    matrix, v, t = theta[: k * m].reshape(k, m), theta[k * m : k * m + d], theta[k * m + d :]
    logits = design.offset + design.features @ matrix.T
    if d:
        logits = logits + design.x * v
    if r:
        logits = logits + design.x * (design.shared * t).sum(axis=1)[:, None]
    label_log_probs = log_softmax(logits, axis=1)[np.arange(len(design.y)), design.y]
    return float(-design.weights @ label_log_probs + 0.5 * penalty @ theta**2)


def gradient(theta: Array, design: Design, penalty: Array) -> Array:
    """Compute the gradient from the derivatives of logits with respect to each parameter."""
    k, m, d, r = design.sizes
    logits = design.offset + design.features @ theta[: k * m].reshape(k, m).T
    if d:
        logits = logits + design.x * theta[k * m : k * m + d]
    if r:
        logits = logits + design.x * (design.shared @ theta[k * m + d :])[:, None]
    residual = softmax(logits, axis=1)
    residual[np.arange(len(design.y)), design.y] -= 1
    residual *= design.weights[:, None]
    parts = [(residual.T @ design.features).ravel()]
    if d:
        parts.append(np.einsum("nk,nk->k", residual, design.x))
    if r:
        parts.append(np.einsum("nk,nk,nr->r", residual, design.x, design.shared))
    return np.concatenate(parts) + penalty * theta


def scipy_optimum(design: Design, penalty: Array) -> Any:
    result = optimize.minimize(
        value,
        np.zeros(size(design)),
        (design, penalty),
        jac=gradient,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30},
    )
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 4])
def test_derivatives_against_differences(kind: str, k: int) -> None:
    design = make_design(60, k, 1, kind)
    rng = np.random.default_rng(0)
    theta, penalty = 0.1 * rng.normal(size=size(design)), rng.uniform(0, 2, size(design))
    with HostEvaluator(design, penalty) as host:
        point = host.evaluate(theta)
        assert point.value == pytest.approx(value(theta, design, penalty), rel=1e-13)
        np.testing.assert_allclose(point.gradient, gradient(theta, design, penalty), atol=1e-11)
        hessian = full_hessian(design, point.state, np) + np.diag(penalty)
        step = 1e-5
        numeric = np.stack(
            [
                gradient(theta + step * e, design, penalty)
                - gradient(theta - step * e, design, penalty)
                for e in np.eye(len(theta))
            ]
        ) / (2 * step)
        np.testing.assert_allclose(hessian, numeric, atol=1e-6 * np.abs(numeric).max())
        vector = rng.normal(size=len(theta))
        np.testing.assert_allclose(host.multiply(point.state, vector), hessian @ vector, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_jax_computes_the_same(kind: str, x64: None) -> None:
    design = make_design(40, 5, 2, kind)
    rng = np.random.default_rng(0)
    theta, penalty = 0.1 * rng.normal(size=size(design)), rng.uniform(0, 2, size(design))
    compiled = jax.jit(evaluate)(design, penalty, theta)
    vector = rng.normal(size=len(theta))
    with HostEvaluator(design, penalty) as host:
        point = host.evaluate(theta)
        np.testing.assert_allclose(compiled.value, point.value, rtol=1e-13)
        np.testing.assert_allclose(compiled.gradient, point.gradient, atol=1e-11)
        product = jax.jit(multiply)(design, penalty, compiled.state, vector)
        np.testing.assert_allclose(product, host.multiply(point.state, vector), rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k", "strength"), [(400, 3, 0.0), (400, 3, 10.0), (900, 10, 1e-3)])
def test_optimum_against_scipy(kind: str, n: int, k: int, strength: float) -> None:
    design = make_design(n, k, 3, kind)
    penalty = np.full(size(design), strength)
    result, _ = fit_on_host(design, penalty)
    expected = scipy_optimum(design, penalty)
    assert result.status == Status.CONVERGED
    # At most 1e-6 from SciPy's value, and not above it except for rounding.
    assert result.value == pytest.approx(expected.fun, rel=1e-6)
    assert result.value <= expected.fun * (1 + 1e-9)
    slope = np.abs(gradient(result.x, design, penalty)).max() / design.weights.sum()
    assert slope < 1e-6


@pytest.mark.parametrize(
    ("strength", "ways"),
    [
        pytest.param(100.0, ["KRONECKER", "BOTH"], marks=pytest.mark.slow),
        pytest.param(1e4, ["BOTH"], marks=pytest.mark.slow),
        (1e6, ["DIAGONAL"]),
    ],
)
def test_optimum_of_many_parameters_against_scipy(strength: float, ways: list[str]) -> None:
    """Check single-precision directions, threads, and the preconditioners for many classes."""
    design = make_design(5500, 50, 4)
    penalty = np.full(size(design), strength)
    assert precondition.choices(design, penalty) == [getattr(precondition, w) for w in ways]
    result, prepared = fit_on_host(design, penalty)
    expected = scipy_optimum(design, penalty)
    assert result.status == Status.CONVERGED
    assert result.value == pytest.approx(expected.fun, rel=1e-7)
    assert result.value <= expected.fun * (1 + 1e-9)
    # Starting from a neighboring fit takes fewer steps than starting from zero.
    near, _ = fit_on_host(design, 1.1 * penalty, result.x, prepared)
    afresh, _ = fit_on_host(design, 1.1 * penalty)
    assert near.iterations < afresh.iterations
    np.testing.assert_allclose(near.value, afresh.value, rtol=1e-9)


@pytest.mark.parametrize("sharpness", [1.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_optimum_of_few_features_and_many_rows(sharpness: float) -> None:
    """Check the products for few features, also where most rows are nearly certain."""
    design = make_design(5500, 50, 4, "vector")
    x = log_softmax(sharpness * design.x, axis=1)
    design = design._replace(offset=x, x=x)
    penalty = np.full(size(design), 1e-3)
    result, _ = fit_on_host(design, penalty)
    expected = scipy_optimum(design, penalty)
    assert result.status == Status.CONVERGED
    assert result.value == pytest.approx(expected.fun, rel=1e-7)
    assert result.value <= expected.fun * (1 + 1e-9)


@pytest.mark.parametrize("way", ["WHOLE", "DIAGONAL", "BLOCKS", "KRONECKER", "BOTH"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_preconditioner_leads_to_the_optimum(
    way: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    design = make_design(500, 6, 5, kind)
    penalty = np.random.default_rng(0).uniform(0.1, 3, size(design))
    exact, _ = fit_on_host(design, penalty)
    monkeypatch.setattr(softmax_fit, "choices", lambda *_: [getattr(precondition, way)])
    result, _ = fit_on_host(design, penalty)
    assert result.status == Status.CONVERGED
    np.testing.assert_allclose(result.value, exact.value, rtol=1e-10)
    np.testing.assert_allclose(result.x, exact.x, atol=1e-4)


@pytest.mark.parametrize("way", ["WHOLE", "DIAGONAL", "BLOCKS", "KRONECKER", "BOTH"])
def test_directions_without_curvature_have_a_finite_inverse(way: str) -> None:
    """Check a feature that is always zero, without a penalty."""
    design = make_design(300, 4, 6, "everything")
    design = design._replace(features=design.features * (np.arange(5) != 2))
    method, vector = getattr(precondition, way), np.ones(size(design))
    data = method.measure(design, softmax(design.offset, axis=1))
    inverse = method.invert(data, np.zeros(size(design)), design.sizes)
    assert np.isfinite(method.apply(inverse, vector, design.sizes)).all()


def test_inverses_are_what_they_say() -> None:
    design = make_design(300, 4, 6, "everything")
    penalty = np.random.default_rng(0).uniform(0.1, 3, size(design))
    sizes = design.sizes
    probs = softmax(design.offset, axis=1)
    hessian = full_hessian(design, probs, np) + np.diag(penalty)
    vector = np.random.default_rng(1).normal(size=len(penalty))
    whole = precondition.WHOLE
    inverse = whole.invert(whole.measure(design, probs), penalty, sizes)
    np.testing.assert_allclose(hessian @ whole.apply(inverse, vector, sizes), vector, rtol=1e-6)
    blocks = precondition.BLOCKS
    inverse = blocks.invert(blocks.measure(design, probs), penalty, sizes)
    solved = blocks.apply(inverse, vector, sizes)
    k, m, _, r = sizes
    for j in range(k):
        index = [*range(j * m, (j + 1) * m), k * m + j]
        block = hessian[np.ix_(index, index)]
        # Single precision suffices for a direction.
        np.testing.assert_allclose(block @ solved[index], vector[index], rtol=1e-3)
    diagonal = precondition.DIAGONAL
    inverse = diagonal.invert(diagonal.measure(design, probs), penalty, sizes)
    only = diagonal.apply(inverse, vector, sizes)
    np.testing.assert_allclose(np.diag(hessian)[:-r] * only[:-r], vector[:-r], rtol=1e-6)
    np.testing.assert_allclose(only[-r:], solved[-r:], rtol=1e-6)
    shared = hessian[-r:, -r:]
    np.testing.assert_allclose(shared @ solved[-r:], vector[-r:], rtol=1e-6)


def test_separable_labels_have_no_finite_optimum() -> None:
    x = np.log(np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]] * 3))
    design = Design(x, np.array([0, 1, 2] * 3), np.ones(9), np.ones((9, 1)), x)
    result, _ = fit_on_host(design, np.zeros(6))
    assert result.status == Status.UNBOUNDED and np.isfinite(result.x).all()


def test_labels_that_are_separable_in_part_end_soon() -> None:
    """Check more parameters than rows, where the loss decreases slowly without reaching zero."""
    design = make_design(250, 20, 3)
    doubled = np.concatenate([np.arange(250), np.arange(30)])
    y = np.concatenate([design.y, (design.y[:30] + 1) % 20])
    design = design.rows(doubled)._replace(y=y)
    result, _ = fit_on_host(design, np.zeros(size(design)))
    assert result.status == Status.UNBOUNDED and result.iterations < 50
    assert result.value > 30 * np.log(2)


@pytest.mark.parametrize("kind", ["matrix", pytest.param("everything", marks=pytest.mark.slow)])
def test_many_fits_in_one_program(kind: str, x64: None) -> None:
    design = make_design(120, 4, 7, kind)
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, (5, 120)) * design.weights
    penalty = 10.0 ** rng.uniform(-3, 1, (5, size(design)))
    result = fit_many(design, weights, penalty, np.zeros((5, size(design))))
    for i in range(5):
        single, _ = fit_on_host(design._replace(weights=weights[i]), penalty[i])
        assert result.status[i] == single.status == Status.CONVERGED
        np.testing.assert_allclose(result.value[i], single.value, rtol=1e-9)
        np.testing.assert_allclose(result.x[i], single.x, atol=1e-4)


def test_what_was_prepared_by_another_method_is_not_used() -> None:
    design = make_design(80, 3, 0)
    penalty = np.full(size(design), 0.5)
    (method,) = precondition.choices(design, penalty)
    other = next(m for m in (precondition.BLOCKS, precondition.DIAGONAL) if m is not method)
    expected, prepared = fit_on_host(design, penalty)
    assert prepared.method is method
    stale = softmax_fit.Prepared(other, None, None)
    result, again = fit_on_host(design, penalty, prepared=stale)
    np.testing.assert_array_equal(result.x, expected.x)
    assert again.method is method


def test_jacobians_of_means_without_shared_slopes() -> None:
    design = make_design(50, 3, 0, "matrix")._replace(x=None)
    design = design._replace(features=design.features[:, :1])
    assert design.sizes == (3, 1, 0, 0)
    probs = softmax(np.random.default_rng(0).normal(size=(50, 3)), axis=1)
    result = mean_logit_jacobian(design, probs, np)
    np.testing.assert_array_equal(result, probs * design.features)


def test_cross_validation_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    design = make_design(60, 3, 1)
    folds, start = np.arange(60) % 3, np.zeros(size(design))
    penalties = np.stack([np.full(len(start), s) for s in (10.0, 1.0)])
    expected = out_of_fold_losses(design, penalties, folds, start)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    result = out_of_fold_losses(design, penalties, folds, start)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_cross_validation_against_separate_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    design = make_design(150, 4, 8)
    # Nine fits in blocks of four, the last of which is padded.
    monkeypatch.setattr(softmax_fit, "_NUMBERS_AT_ONCE", 4 * 8 * design.offset.size)
    penalties = np.stack([np.full(size(design), s) for s in (30.0, 3.0, 0.3)])
    folds = np.random.default_rng(0).integers(0, 3, 150)
    start = np.zeros(size(design))
    losses = out_of_fold_losses(design, penalties, folds, start)
    beside = _side_by_side(design, penalties, folds, np.arange(3), start)
    assert losses.shape == beside.shape == (3, 3)
    for f in range(3):
        kept, other = design.rows(folds != f), design.rows(folds == f)
        for g in range(3):
            theta = scipy_optimum(kept, penalties[g]).x
            expected = value(theta, other, np.zeros_like(theta)) / other.weights.sum()
            assert losses[g, f] == pytest.approx(expected, rel=1e-5)
            assert beside[g, f] == pytest.approx(expected, rel=1e-5)


def _newton(z: Array, y: Array, theta: Array) -> float:
    """Minimize the mean loss of vector scaling further with eigenvalues of the full Hessian."""
    n, k = z.shape
    eye = np.eye(k)

    def loss(theta: Array) -> tuple[float, Array, Array]:
        logits = z * theta[k:] + theta[:k]
        probs, ones = softmax(logits, axis=1), np.arange(n)
        jacobian = np.concatenate([np.broadcast_to(eye, (n, k, k)), z[:, :, None] * eye], axis=2)
        value = float((logsumexp(logits, axis=1) - logits[ones, y]).mean())
        return value, np.einsum("nij,ni->j", jacobian, probs - eye[y]) / n, _gram(jacobian, probs)

    value, gradient, hessian = loss(theta)
    for _ in range(300):
        scale = 1 / np.sqrt(np.maximum(np.diag(hessian), 1e-300))
        values, turn = np.linalg.eigh(hessian * scale * scale[:, None])
        values = np.maximum(values, 1e-14 * values.max())
        step = -(turn @ ((turn.T @ (gradient * scale)) / values)) * scale
        sizes = 0.5 ** np.arange(20)
        size = next((s for s in sizes if loss(theta + s * step)[0] < value), 0.0)
        if size == 0:
            break
        theta, before = theta + size * step, value
        value, gradient, hessian = loss(theta)
        if before - value < 1e-13 * before:
            break
    return value


def _gram(jacobian: Array, probs: Array) -> Array:
    spread = np.einsum("ni,ij->nij", probs, np.eye(probs.shape[1]))
    spread = spread - np.einsum("ni,nj->nij", probs, probs)
    return np.einsum("nia,nij,njb->ab", jacobian, spread, jacobian) / len(probs)


def _few_rows(seed: int) -> tuple[Array, Array]:
    """Draw rows with scores of very different scales that separate some classes."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.choice([15, 25, 40, 80])), int(rng.choice([3, 4, 6, 8]))
    z = rng.normal(0, rng.choice([1, 3, 10]), (n, k))
    z = z * np.exp(rng.normal(0, rng.choice([0, 1, 2]), k))
    y = np.array([rng.choice(k, p=softmax(row * rng.choice([0.3, 1, 2]))) for row in z])
    return z, y


#: In the first three, steps once ended because the preconditioner was not positive; in the rest,
#: because it hid a part of the gradient, or after twelve slow steps.
HARD = [3432, 3296, 1627, 3603, 2423, 2474, 2788]


@pytest.mark.parametrize("seed", [*HARD, *range(6)])
@pytest.mark.filterwarnings("ignore:.*:sklearn.exceptions.ConvergenceWarning")
def test_fits_of_few_partly_separable_rows_end_at_the_least_loss(seed: int) -> None:
    """Check the loss up to one millionth, also where the optimum is only reached at infinity."""
    z, y = _few_rows(seed)
    if len(np.unique(y)) < z.shape[1]:
        return
    fitted = bc.Vector(inputs="logits").fit(z, y)
    least = _newton(z, y, np.concatenate([fitted.intercept_, fitted.coef_]))
    assert fitted.objective_ <= least * (1 + 1e-6) + 1e-8
