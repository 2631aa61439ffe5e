"""Kernel calibration against sums over all rows and SciPy's densities."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from bayescal.calibrators import Kernel
from bayescal.data.rows import Rows
from tests.calibrators.brute import (
    crop_and_normalize,
    example,
    log_loss,
    target_values,
)

Name = Literal["dirichlet", "dirichlet_mixture", "rbf"]
KERNELS: tuple[Name, ...] = ("dirichlet", "dirichlet_mixture", "rbf")


def calibrate_by_loop(
    chosen: Kernel,
    h: float,
    crop: float,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    queries: np.ndarray,
) -> np.ndarray:
    """Calibrate row by row with normalized kernel densities."""
    p, y, weights = data
    value, result = target_values(p, y, chosen.assumption), []
    for query in queries:
        if chosen.kernel == "dirichlet":
            logs = np.array([stats.dirichlet.logpdf(row, query / h + 1) for row in p])
        elif chosen.kernel == "dirichlet_mixture":
            logs = np.array([stats.dirichlet.logpdf(query, row / h + 1) for row in p])
        else:
            logs = -((p - query) ** 2).sum(axis=1) / h
        share = weights * np.exp(logs - logs.max())
        result.append(
            crop_and_normalize(query, share @ value / share.sum(), chosen.assumption, crop)
        )
    return np.array(result)


@pytest.mark.parametrize("assumption", ["errors", "labels"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("h", [0.02, 0.7])
def test_sums_over_all_rows(
    kernel: Name, assumption: Literal["errors", "labels"], h: float
) -> None:
    data = example(80, 4)
    queries = example(37, 4, seed=1)[0]
    chosen = Kernel(kernel, h, assumption, crop=1e-3)
    state = chosen._fit(Rows(*data), seed=0)
    assert state["bandwidth"] == h
    assert state["crop"] == 1e-3
    expected = calibrate_by_loop(chosen, h, 1e-3, data, queries)
    np.testing.assert_allclose(chosen.apply(state, queries), expected, atol=1e-11)


def test_few_rows_have_fewer_folds() -> None:
    p, y, weights = example(4, 3)
    state = Kernel()._fit(Rows(p, y, weights), seed=0)
    left_out = [
        Kernel(bandwidth=1.6)._fit(
            Rows(*(np.delete(a, i, axis=0) for a in (p, y, weights))), seed=0
        )
        for i in range(4)
    ]
    result = np.concatenate([Kernel().apply(s, p[i : i + 1]) for i, s in enumerate(left_out)])
    index = np.flatnonzero(np.isclose(state["candidates"], 1.6))[0]
    assert state["cv_losses"][index] == pytest.approx(log_loss(result, y, weights))


@pytest.mark.parametrize("kernel", KERNELS)
def test_accelerators_cross_validate_in_float32(
    monkeypatch: pytest.MonkeyPatch, kernel: Name
) -> None:
    data = example(300, 5)
    expected = Kernel(kernel)._fit(Rows(*data), seed=0)
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    state = Kernel(kernel)._fit(Rows(*data), seed=0)
    assert state["bandwidth"] == expected["bandwidth"]
    assert (state["cv_losses"] != expected["cv_losses"]).any()
    np.testing.assert_allclose(state["cv_losses"], expected["cv_losses"], atol=1e-5)
    result, probabilities = (Kernel(kernel).apply(s, data[0]) for s in (state, expected))
    np.testing.assert_allclose(result, probabilities, atol=1e-5)


def test_zeros_are_the_limit_of_small_probabilities() -> None:
    p = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    nearly = np.array([[1.0, 1e-38, 1e-38], [0.5, 0.5, 1e-38], [0.2, 0.3, 0.5]])
    y, weights = np.array([1, 0, 2]), np.ones(3)
    # A query on an edge gives weight to rows on that edge and inside.
    queries = np.array([[0.6, 0.4, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    for kernel in KERNELS:
        chosen = Kernel(kernel, 0.3)
        result, expected = (
            chosen.apply(chosen._fit(Rows(rows, y, weights), seed=0), queries)
            for rows in (p, nearly)
        )
        np.testing.assert_allclose(result, expected, atol=1e-12)


def test_nearby_sizes_share_a_compilation(compilations: Any) -> None:
    def run(n: int, m: int) -> None:
        p, y, weights = example(n, 5)
        chosen = Kernel()
        chosen.apply(chosen._fit(Rows(p, y, weights), seed=0), example(m, 5, seed=1)[0])

    run(290, 1000)
    with compilations() as names:
        run(300, 960)
        run(315, 1020)
    assert names == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_fits_and_predicts() -> None:
    """Check a forked process, where JAX has no threads and its programs would wait forever."""
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet([1, 1, 1], 200), rng.integers(0, 3, 200)
    fitted = Kernel().fit(p, y)
    wanted = fitted.predict_proba(p)  # leaves the keys in JAX, which the child cannot use

    def work(result: Any) -> None:
        result.put([fitted.predict_proba(p), Kernel().fit(p, y).predict_proba(p)])

    context = multiprocessing.get_context("fork")
    result = context.SimpleQueue()
    process = context.Process(target=work, args=(result,))
    process.start()
    process.join(60)
    hangs = process.is_alive()
    process.kill()
    assert not hangs
    for probs in result.get():
        np.testing.assert_allclose(probs, wanted, atol=1e-12)
