"""Nearest-neighbor calibration against scikit-learn, SciPy and full sorting."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import rel_entr, softmax
from sklearn.neighbors import NearestNeighbors

from bayescal.calibrators import KNN
from bayescal.calibrators.neighborhood import search as _search
from bayescal.data.rows import Rows
from tests.calibrators.brute import (
    crop_and_normalize,
    example,
    target_values,
)

Distance = Literal["kl", "euclidean"]


def calibrate_by_loop(
    chosen: KNN,
    k: float,
    crop: float,
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
    queries: np.ndarray,
) -> np.ndarray:
    """Calibrate row by row, adding the nearest rows until their weight reaches k."""
    p, y, weights = data
    value, result = target_values(p, y, chosen.assumption), []
    for query in queries:
        if chosen.distance == "kl":
            distances = rel_entr(query, p).sum(axis=1)
        else:
            distances = np.sqrt(((p - query) ** 2).sum(axis=1))
        shares, left = np.zeros(len(p)), float(k)
        for distance in np.unique(distances.round(10)):
            tied = distances.round(10) == distance
            part = min(1.0, left / weights[tied].sum())
            shares[tied] = part * weights[tied]
            left -= shares[tied].sum()
            if left <= 1e-12:
                break
        result.append(
            crop_and_normalize(query, shares @ value / shares.sum(), chosen.assumption, crop)
        )
    return np.array(result)


@pytest.mark.parametrize("k", [1, 7, 60])
def test_scikit_learn_finds_the_same_neighbors(k: int) -> None:
    p, y, _ = example(200, 5)
    queries = example(50, 5, seed=1)[0]
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(p)
    neighbors = search.kneighbors(queries, return_distance=False)
    mean = target_values(p, y, "errors")[neighbors].mean(axis=1)
    expected = [
        crop_and_normalize(q, m, "errors", 4e-4) for q, m in zip(queries, mean, strict=True)
    ]
    chosen = KNN(k, "euclidean")
    state = chosen._fit(Rows(p, y, np.ones(200)), seed=0)
    assert state["k"] == k
    np.testing.assert_allclose(chosen.apply(state, queries), expected, atol=1e-12)


@pytest.mark.parametrize("distance", ["kl", "euclidean"])
@pytest.mark.parametrize("assumption", ["errors", "labels"])
@pytest.mark.parametrize("digits", [None, 4])
@pytest.mark.parametrize("k", [1, 13, 90, 100_000])
def test_weighted_and_tied_neighbors(
    distance: Distance, assumption: Literal["errors", "labels"], digits: int | None, k: int
) -> None:
    data = example(150, 3, digits=digits)
    queries = np.concatenate([example(30, 3, seed=1, digits=digits)[0], data[0][:20]])
    chosen = KNN(k, distance, assumption, crop=1e-3)
    state = chosen._fit(Rows(*data), seed=0)
    expected = calibrate_by_loop(chosen, k, 1e-3, data, queries)
    np.testing.assert_allclose(chosen.apply(state, queries), expected, atol=1e-10)


def test_ties_by_symmetry_are_shared() -> None:
    # All permutations of a row have the same distance to the center, despite rounding.
    rng = np.random.default_rng(0)
    row = rng.dirichlet(np.ones(7))
    p = np.array([rng.permutation(row) for _ in range(40)])
    y = np.arange(40) % 7
    for distance in ("kl", "euclidean"):
        chosen = KNN(5, distance)
        result = chosen.apply(chosen._fit(Rows(p, y, np.ones(40)), seed=0), np.full((1, 7), 1 / 7))
        expected = crop_and_normalize(
            np.full(7, 1 / 7), target_values(p, y, "errors").mean(axis=0), "errors", 1e-4
        )
        np.testing.assert_allclose(result[0], expected, atol=1e-12)


@pytest.mark.parametrize("k", [1, 20, 500])
def test_a_threshold_from_a_sample_changes_nothing(monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    data = example(3000, 4)
    queries = example(40, 4, seed=1)[0]
    chosen = KNN(k)
    state = chosen._fit(Rows(*data), seed=0)
    expected = chosen.apply(state, queries)
    monkeypatch.setattr(_search, "_SAMPLE", 300)
    monkeypatch.setattr(_search, "_ELEMENTS", 20_000)
    np.testing.assert_allclose(chosen.apply(state, queries), expected, atol=1e-13)


def test_a_sample_that_misleads_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search, "_SAMPLE", 50)
    closeness = np.tile(np.arange(1000.0)[::-1], (3, 1))  # the sample holds the largest
    result = _search._thresholds(closeness, 100)
    assert ((closeness >= result).sum(axis=1) >= 100).all()


@pytest.mark.parametrize("distance", ["kl", "euclidean"])
@pytest.mark.parametrize("k", [2, 3])
def test_functions_in_single_precision_find_the_neighbors_of_confident_rows(
    k: int, distance: Distance
) -> None:
    rng = np.random.default_rng(k)
    z = 12 * rng.normal(size=(400, k))
    p = softmax(z, axis=1)
    assert np.count_nonzero(p.max(axis=1) > 1 - 1e-6) > 20
    y = np.append(np.arange(k), (z + 40 * rng.gumbel(size=z.shape)).argmax(axis=1)[k:])
    fitted = KNN(32, distance).fit(p, y)
    result = np.asarray(fitted.as_function()(jnp.asarray(p, jnp.float32)))
    errors = np.abs(result - fitted.predict_proba(p)).max(axis=1)
    # Few rows have neighbors that tie up to rounding in one precision only.
    assert np.quantile(errors, 0.98) < 1e-6


@pytest.mark.parametrize(("k", "spread"), [(3, 0.003), (10, 0.3)])
def test_functions_in_single_precision_find_the_neighbors_of_uniform_rows(
    k: int, spread: float
) -> None:
    rng = np.random.default_rng(0)
    p = softmax(spread * rng.normal(size=(800, k)), axis=1)
    fitted = KNN(20).fit(p[:500], rng.integers(0, k, 500))
    result = np.asarray(fitted.as_function()(jnp.asarray(p[500:], jnp.float32)))
    away = np.abs(result - fitted.predict_proba(p[500:])).max(axis=1)
    # Few rows have two points at their border whose distances differ by rounding of the scores.
    assert (away > 1e-5).mean() <= 0.01
