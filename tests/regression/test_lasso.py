"""L1 penalties on the host: steps against all sign patterns, and fits by optimality."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from bayescal._core.minimization.optimize import Status, newton_on_host
from bayescal.regression.binary import choose as cross_validation
from bayescal.regression.binary import host
from bayescal.regression.binary.choose import CandidateGrid, choose_on_host
from bayescal.regression.binary.fit import fit_many, fit_single
from bayescal.regression.binary.lasso import _best_fraction, lasso_step_on_host
from bayescal.regression.binary.objective import Regression
from tests.regression.problems import even_folds, slope

Array = np.ndarray

KINDS = ("plain", "twice", "nearly", "shifted", "few", "scales", "constant")


def make_rows(kind: str, seed: int = 0, n: int = 60) -> tuple[Array, Array, Array]:
    """Draw features (dependent, badly scaled or more than rows), labels and weights."""
    rng = np.random.default_rng(seed)
    d = 40 if kind == "few" else 12
    n = 25 if kind == "few" else n
    x = rng.normal(size=(n, d))
    t = (rng.random(n) < expit(1.5 * x[:, 0] - x[:, 1])).astype(float)
    if kind == "twice":
        x[:, 5] = x[:, 0]
    elif kind == "nearly":
        x = x[:, :3] @ rng.normal(size=(3, d)) + 1e-3 * x
    elif kind == "shifted":
        x += 100
    elif kind == "scales":
        x *= 10.0 ** rng.uniform(-5, 5, d)
    elif kind == "constant":
        x[:, 4] = 3.0
    return x, t, rng.uniform(0.2, 2, n)


def violation(beta: Array, x: Array, t: Array, w: Array, l1: float, l2: float) -> float:
    """Compute the violation of the optimality conditions, relative to the size of a slope."""
    g, b = slope(beta, x, t, w, l2), beta[1:]
    excess = np.where(b == 0, np.maximum(np.abs(g[1:]) - l1, 0), np.abs(g[1:] + l1 * np.sign(b)))
    return float(max(abs(g[0]) / w.sum(), np.max(excess / (w @ np.abs(x)))))


def model(z: Array, x: Array, hessian: Array, gradient: Array, strength: Array) -> float:
    step = z - x
    return float(gradient @ step + step @ hessian @ step / 2 + strength @ np.abs(z))


@settings(max_examples=200)
@given(st.integers(0, 2**31), st.integers(1, 5), st.sampled_from([0, 4, 7]))
def test_the_step_is_the_best_of_all_patterns_of_signs(seed: int, p: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, p)) * np.geomspace(1, 10.0 ** (-digits / 2), p)
    turn = np.linalg.qr(rng.normal(size=(p, p)))[0]
    hessian = turn @ root.T @ root @ turn.T + 10.0**-digits * np.eye(p)
    hessian = (hessian + hessian.T) / 2
    gradient, strength = rng.normal(size=p), rng.uniform(0, 1, p) * (rng.random(p) < 0.8)
    x = rng.normal(size=p) * (rng.random(p) < 0.5)
    best = np.inf
    for signs in product((-1, 0, 1), repeat=p):
        sign = np.array(signs)
        on = (sign != 0) | (strength == 0)
        z = np.zeros(p)
        # The stationary point for these signs; any point bounds the minimum from above.
        rest = gradient - hessian @ x + strength * sign
        z[on] = np.linalg.solve(hessian[np.ix_(on, on)], -rest[on])
        best = min(best, model(z, x, hessian, gradient, strength))
    step, gain = lasso_step_on_host(strength)(hessian, gradient, x)
    value = model(x - step, x, hessian, gradient, strength)
    size = np.abs(gradient) @ np.abs(step) + np.abs(best) + 1
    # Rounding error of a solution of linear equations.
    size *= 64 * np.finfo(float).eps * np.linalg.cond(hessian)
    assert value <= best + size
    expected = gradient @ step + strength @ (np.abs(x) - np.abs(x - step))
    assert float(gain) == pytest.approx(expected, abs=size)
    assert float(gain) >= 0


@pytest.mark.parametrize(("l1", "l2"), [(1e-4, 0.0), (0.1, 0.0), (2.0, 0.0), (0.5, 0.5), (1e4, 0)])
@pytest.mark.parametrize("kind", KINDS)
def test_single_fits_meet_the_conditions_of_optimality(kind: str, l1: float, l2: float) -> None:
    x, t, w = make_rows(kind)
    actual = fit_single(Regression(x, t, w, l1, l2), lasso=True)
    assert int(actual.status) == Status.CONVERGED
    assert violation(actual.x, x, t, w, l1, l2) < 1e-8
    line = actual.x[0] + x @ actual.x[1:]
    loss = w @ (np.logaddexp(0, line) - t * line)
    penalty = l1 * np.abs(actual.x[1:]).sum() + l2 / 2 * (actual.x[1:] ** 2).sum()
    assert float(actual.value) == pytest.approx(loss + penalty, rel=1e-11)


@pytest.mark.parametrize("kind", ["plain", "twice", "few"])
def test_host_and_compiled_fits_agree(kind: str) -> None:
    x, t, w = make_rows(kind, n=30)
    actual = fit_single(Regression(x, 0.9 * t + 0.03, w, 0.7, 0.1), lasso=True)
    with jax.enable_x64(True):
        rows = [jnp.asarray(a, jnp.float64)[None] for a in (x, 0.9 * t + 0.03, w, 0.7, 0.1)]
        result = fit_many(Regression(*rows), lasso=True)
    assert int(actual.status) == int(result.status[0]) == Status.CONVERGED
    assert float(actual.value) == pytest.approx(float(result.value[0]), rel=1e-10)
    np.testing.assert_allclose(actual.x[1:], result.coef[0], atol=1e-6)


def test_compiled_fits_do_not_depend_on_the_unit_of_weights() -> None:
    x, t, w = make_rows("plain", n=30)
    with jax.enable_x64(True):
        actual = [
            fit_many(
                Regression(
                    *(jnp.asarray(a, jnp.float64)[None] for a in (x[:, :1], t, c * w, c * 0.7, 0))
                ),
                lasso=True,
            )
            for c in (1.0, 1e-4)
        ]
    np.testing.assert_allclose(actual[1].coef, actual[0].coef, rtol=1e-7)
    assert float(actual[0].coef[0, 0]) != 0


def test_statuses_of_fits_without_optimum_and_of_few_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.array([[-2.0], [-1.0], [0.5], [3.0]])
    t, w = np.array([0.0, 0, 1, 1]), np.ones(4)
    assert int(fit_single(Regression(x, t, w, 0.0, 0.0), lasso=True).status) == Status.UNBOUNDED
    # With one class the intercept diverges for any penalty.
    one = fit_single(Regression(x, w, w, 1.0, 0.0), lasso=True)
    assert int(one.status) == Status.UNBOUNDED and one.x[1] == 0 and np.isfinite(one.x).all()
    assert int(fit_single(Regression(x, t, w, 0.1, 0.0), lasso=True).status) == Status.CONVERGED
    monkeypatch.setattr(host, "newton_on_host", partial(newton_on_host, max_iterations=2))
    early = fit_single(Regression(x, t, w, 1e-4, 0.0), lasso=True)
    assert int(early.status) == Status.LIMIT


def test_fixed_coefficients_stay_zero() -> None:
    x, t, w = make_rows("plain")
    free = np.ones(13)
    free[[1, 4]] = 0
    actual = fit_single(Regression(x, t, w, 0.5, 0.0, free), lasso=True)
    some = np.delete(np.arange(12), [0, 3])
    expected = fit_single(Regression(x[:, some], t, w, 0.5, 0.0), lasso=True)
    assert actual.x[1] == actual.x[4] == 0
    np.testing.assert_allclose(actual.x[1 + some], expected.x[1:], atol=1e-9)


GRIDS = {
    "l1": (1.0, np.geomspace(1e-5, 1e3, 9)),
    "elastic net": (0.5, np.geomspace(1e-5, 1e3, 9)),
    "l2": (0.0, np.geomspace(1e-5, 1e3, 9)),
}


def grid_of(name: str, t: Array) -> CandidateGrid:
    share, strengths = GRIDS[name]
    return CandidateGrid(t[None], share * strengths, (1 - share) * strengths)


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((kind, "l1") for kind in KINDS), *(("nearly", name) for name in ("elastic net", "l2"))],
)
def test_every_fit_of_a_path_is_optimal(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[Array] = []
    path = cross_validation._path

    def spy(*arguments: Any) -> Array:
        paths.append(path(*arguments) / arguments[1])
        return path(*arguments)

    monkeypatch.setattr(cross_validation, "_path", spy)
    x, t, w = make_rows(kind)
    fold = even_folds(t.astype(int), 4)
    grid = grid_of(name, t)
    choose_on_host(x, t, w, fold, grid, 4)
    assert len(paths) == 5
    # The spy sees coefficients of centered features.
    x = x - np.average(x, axis=0, weights=w)
    for out, betas in enumerate(paths[1:]):
        use = fold != out
        for beta, l1, l2 in zip(betas, grid.l1, grid.l2, strict=True):
            assert violation(beta, x[use], t[use], w[use], l1, l2) < 1e-7


def test_losses_do_not_depend_on_the_order_of_rows_or_on_rows_without_weight() -> None:
    x, t, w = make_rows("nearly")
    fold, grid = even_folds(t.astype(int), 4), grid_of("l1", t)
    best, losses = choose_on_host(x, t, w, fold, grid, 4)
    order = np.random.default_rng(1).permutation(len(t))
    mixed = CandidateGrid(t[None, order], grid.l1, grid.l2)
    again = choose_on_host(x[order], t[order], w[order], fold[order], mixed, 4)
    assert again[0] == best
    np.testing.assert_allclose(again[1], losses, rtol=1e-5)
    more = CandidateGrid(np.append(t, [0.0, 1.0])[None], grid.l1, grid.l2)
    far = np.vstack([x, np.full((2, 12), 1e200)])
    padded = choose_on_host(
        far, more.targets[0], np.append(w, [0, 0]), np.append(fold, [0, 1]), more, 4
    )
    assert padded[0] == best
    np.testing.assert_allclose(padded[1], losses, rtol=1e-9)


def test_of_equal_candidates_the_last_is_best() -> None:
    x, t, w = make_rows("plain")
    strengths = np.geomspace(1e4, 1e9, 6)
    fold = even_folds(t.astype(int), 4)
    best, losses = choose_on_host(
        x, t, w, fold, CandidateGrid(t[None], strengths, 0 * strengths), 4
    )
    # All coefficients are zero, so the share in the other folds remains.
    for out in range(4):
        use = fold != out
        share = w[use] @ t[use] / w[use].sum()
        row_losses = np.where(t[~use] == 1, -np.log(share), -np.log1p(-share))
        np.testing.assert_allclose(losses[:, out], w[~use] @ row_losses / w[~use].sum(), rtol=1e-9)
    assert best == 5


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("kind", ["one class", "one row of a class", "two rows", "one fold"])
def test_folds_with_labels_that_no_other_fold_has(kind: str, name: str) -> None:
    x = np.linspace(-1, 1, 12)[:, None] ** np.arange(1, 4)
    t = np.zeros(12)
    fold = np.arange(12) % 3
    if kind == "one class":
        t[fold == 0] = 1
    elif kind == "one row of a class":
        t[5] = 1
    elif kind == "two rows":
        x, t, fold = x[:2], np.array([0.0, 1.0]), np.array([0, 1])
    else:
        t[6:], fold = 1, np.zeros(12, int)
    best, losses = choose_on_host(x, t, np.ones(len(t)), fold, grid_of(name, t), 3)
    unseen = [bool({*t[fold == out]} - {*t[fold != out]}) for out in range(3)]
    np.testing.assert_array_equal(np.isinf(losses), np.tile(unseen, (9, 1)))
    # All candidates are equal, so the last, strongest one is chosen.
    assert (losses >= 0).all() and any(unseen) and best == 8


@pytest.mark.slow
def test_more_columns_than_the_host_takes() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 401))
    t = (x[:, 0] > 0).astype(float)
    actual = fit_single(Regression(x, t, np.ones(30), 3.0, 0.0), lasso=True)
    assert int(actual.status) == Status.CONVERGED
    assert violation(actual.x, x, t, np.ones(30), 3.0, 0.0) < 1e-6


def test_a_hessian_that_has_no_inverse_gives_no_step() -> None:
    step = lasso_step_on_host(np.full(2, 0.1))
    move, gain = step(np.ones((2, 2)), np.array([1.0, -1.0]), np.array([0.5, 0.5]))
    assert np.isnan(move).all() and np.isnan(gain)


@pytest.mark.parametrize("seed", range(20))
def test_moves_stop_where_a_sign_changes_if_that_is_best(seed: int) -> None:
    """Compare with the model along a move, at its end and at each change of sign."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 4))
    block, here, move = root @ root.T, rng.normal(size=4), 2 * rng.normal(size=4)
    strength, slope = np.array([0.0, 0.5, 1.0, 3.0]), rng.normal(size=4)
    drift = slope + strength * np.sign(here)

    def model(fraction: float) -> float:
        z = here + fraction * move
        penalty = strength @ (np.abs(z) - np.abs(here))
        return fraction * (slope @ move) + fraction**2 * (move @ block @ move) / 2 + penalty

    changes = {-h / m: j for j, (h, m) in enumerate(zip(here, move, strict=True)) if strength[j]}
    options = [1.0, *(fraction for fraction in changes if 0 < fraction < 1)]
    best = min(options, key=model)
    fraction, crosses = _best_fraction(block, drift, move, here, strength)
    assert fraction == best
    assert np.flatnonzero(crosses).tolist() == ([] if best == 1 else [changes[best]])
