"""Cross-validation, compiled and on the host, against separate fits by scikit-learn."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bayescal.regression.binary.choose import CandidateGrid, Choice, choose, choose_on_host
from tests.regression.problems import even_folds

pytestmark = pytest.mark.usefixtures("x64")

FOLDS = 5
STRENGTHS = np.array([1e-3, 0.1, 1.0, 3.0, 6.0])


def make_rows(n: int = 80, d: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(n, d))
    y = (rng.random(n) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    return x, y, rng.uniform(0.5, 2, n)


def cross_validate(
    x: np.ndarray, y: np.ndarray, w: np.ndarray, targets: np.ndarray, l1: np.ndarray, l2: np.ndarray
) -> Choice:
    fold = even_folds(y, FOLDS)
    grid = CandidateGrid(*map(jnp.asarray, (targets, l1, l2)))
    arrays = [jnp.asarray(a, jnp.float64) for a in (x, y, w)]
    return choose(*arrays, jnp.asarray(fold), grid, FOLDS, lasso=bool((l1 > 0).any()))


def run_somewhere(on_host: bool, *arguments: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the best candidate and all losses from the host or the compiled program."""
    if on_host:
        x, y, w, *grid = arguments
        return choose_on_host(x, y, w, even_folds(y, FOLDS), CandidateGrid(*grid), FOLDS)
    result = cross_validate(*arguments)
    return int(result.best), np.asarray(result.losses)


HOW = pytest.mark.parametrize("on_host", [False, True], ids=["compiled", "host"])


@functools.cache
def expected_losses(penalty: str) -> np.ndarray:
    """Compute losses with scikit-learn, one fit for each strength and fold."""
    x, y, w = make_rows()
    fold, expected = even_folds(y, FOLDS), np.zeros((len(STRENGTHS), FOLDS))
    options = {"l1_ratio": 1.0, "solver": "saga"} if penalty == "l1" else {"solver": "newton-cg"}
    for i, strength in enumerate(STRENGTHS):
        for f in range(FOLDS):
            use, out = fold != f, fold == f
            model = LogisticRegression(
                C=1 / strength, tol=1e-11, max_iter=100_000, random_state=0, **options
            )
            probs = model.fit(x[use], y[use], sample_weight=w[use]).predict_proba(x[out])
            # If all coefficients are zero after one pass, saga stops with a wrong intercept.
            assert model.n_iter_[0] > 1
            expected[i, f] = log_loss(y[out], probs, sample_weight=w[out])
    return expected


@HOW
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_losses_are_those_of_single_fits(penalty: str, on_host: bool) -> None:
    x, y, w = make_rows()
    zero = np.zeros_like(STRENGTHS)
    l1, l2 = (STRENGTHS, zero) if penalty == "l1" else (zero, STRENGTHS)
    best, losses = run_somewhere(on_host, x, y, w, y[None].astype(float), l1, l2)
    fold, expected = even_folds(y, FOLDS), expected_losses(penalty)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    held = np.array([w[fold == f].sum() for f in range(FOLDS)])
    assert best == np.argmin(expected @ held)


def test_best_candidate_is_fitted_to_all_rows() -> None:
    x, y, w = make_rows()
    result = cross_validate(x, y, w, y[None].astype(float), np.zeros(5), STRENGTHS)
    strength = STRENGTHS[int(result.best)]
    model = LogisticRegression(C=1 / strength, tol=1e-10, solver="newton-cg", max_iter=1000)
    model.fit(x, y, sample_weight=w)
    np.testing.assert_allclose(result.fit.coef[0], model.coef_[0], rtol=1e-5)
    np.testing.assert_allclose(result.fit.intercept, model.intercept_, rtol=1e-5)


@HOW
@pytest.mark.parametrize("n", [1, 6])
def test_without_a_fold_that_can_judge_the_strongest_is_chosen(n: int, on_host: bool) -> None:
    """Without its only row, a class has probability zero under every candidate."""
    x, y = np.arange(n + 1.0)[:, None], np.append(np.zeros(n, int), 1)
    zero, w, few = np.zeros(5), np.ones(n + 1), np.array([1e-5, 1e-4, 1e-3, 0.01, 0.1])
    smoothed = y + few[:, None] * (1 - 2 * y)
    grids = [(y[None] * 1.0, STRENGTHS, zero), (y[None] * 1.0, zero, STRENGTHS)]
    # Smoothed targets exclude no class, but one row leaves the slope open.
    for grid in [*grids, *[(smoothed, zero, zero)] * (n == 1)]:
        best, losses = run_somewhere(on_host, x, y, w, *grid)
        assert best == 4
        assert np.isinf(losses).any(axis=1).all()


@HOW
def test_smoothing_is_judged_by_the_only_row_of_a_class(on_host: bool) -> None:
    """Without features, every fit has the share of the smoothed targets."""
    n, factors, zero = 40, np.array([1e-4, 1e-3, 0.01, 0.03, 0.3]), np.zeros(5)
    y = np.append(1, np.zeros(n - 1, int))
    targets, fold = y + factors[:, None] * (1 - 2 * y), even_folds(y, FOLDS)
    best, losses = run_somewhere(on_host, np.zeros((n, 1)), y, np.ones(n), targets, zero, zero)
    shares = [targets[:, fold != out].mean(axis=1) for out in range(FOLDS)]
    expected = [
        [log_loss(y[fold == out], np.full(sum(fold == out), p), labels=[0, 1]) for p in share]
        for out, share in enumerate(shares)
    ]
    np.testing.assert_allclose(losses.T, expected, rtol=1e-6)
    assert best == np.sum(expected, axis=0).argmin() == 3


@pytest.mark.slow
@HOW
def test_smoothing_factors_are_candidates_too(on_host: bool) -> None:
    """Check smoothed targets, which are two weighted rows for scikit-learn."""
    x, y, w = make_rows()
    factors = np.array([1e-5, 1e-2, 0.1, 0.4])
    targets = np.where(y == 1, 1 - factors[:, None], factors[:, None])
    _, losses = run_somewhere(on_host, x, y, w, targets, np.zeros(4), np.zeros(4))
    fold = even_folds(y, FOLDS)
    for i in range(len(factors)):
        use, out = fold != 0, fold == 0
        model = LogisticRegression(C=np.inf, tol=1e-10, solver="newton-cg", max_iter=1000)
        t = targets[i][use]
        both = np.concatenate([w[use] * t, w[use] * (1 - t)])
        labels = np.repeat([1, 0], use.sum())
        model.fit(np.concatenate([x[use], x[use]]), labels, sample_weight=both)
        expected = log_loss(y[out], model.predict_proba(x[out]), sample_weight=w[out])
        assert float(losses[i, 0]) == pytest.approx(expected, rel=1e-6)


def test_another_grid_of_the_same_size_compiles_nothing() -> None:
    x, y, w = make_rows()
    cross_validate(x, y, w, y[None].astype(float), np.zeros(5), STRENGTHS)
    before = choose._cache_size()
    cross_validate(x[::-1], y[::-1], w, y[None, ::-1].astype(float), np.zeros(5), 2 * STRENGTHS)
    assert choose._cache_size() == before
