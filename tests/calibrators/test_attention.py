"""Streamed attention against plain NumPy, for any division into blocks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayescal._core.execution.precision import float64
from bayescal.calibrators.neighborhood import attention
from bayescal.calibrators.neighborhood.attention import Keys, attend, attend_and_sum, prepare_keys


def attention_in_memory(
    data: tuple[np.ndarray, ...], bandwidth: float, same: np.ndarray | None = None
) -> np.ndarray:
    """Compute attention with all scores in memory, without pairs marked as same group."""
    queries, keys, bias, values, weights = data
    scores = queries @ keys.T / bandwidth + bias + np.log(weights)
    if same is not None:
        scores = np.where(same, -np.inf, scores)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)) @ values


def example(m: int, n: int, d: int = 4, v: int = 3, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(m, d)),
        rng.normal(size=(n, d)),
        rng.normal(size=n),
        rng.normal(size=(n, v)),
        rng.uniform(0.1, 5, n),
    )


def prepared(
    example: tuple[np.ndarray, ...], levels: int = 1, kind: Any = np.float64, groups: Any = None
) -> Keys:
    _, keys, bias, values, weights = example
    bias = np.tile(bias + np.log(weights), (levels, 1))
    return prepare_keys(keys, bias, values, kind, groups)


@pytest.mark.parametrize("elements", [1, 700, 4096, 10**9])
def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    data = example(45, 203)
    monkeypatch.setattr(attention, "points_per_chunk", lambda: 7)
    monkeypatch.setattr(attention, "_BLOCKS_PER_CALL", 2)
    monkeypatch.setattr(attention, "block_elements", lambda: elements)
    result = attend(data[0], prepared(data), np.array([0.3]))
    np.testing.assert_allclose(result[0], attention_in_memory(data, 0.3), atol=1e-12)


@pytest.mark.parametrize("m", [11, 45])
def test_sums_inside_programs_pad_the_last_block(monkeypatch: pytest.MonkeyPatch, m: int) -> None:
    data = example(m, 203)
    further = np.arange(1.0, m + 1)
    monkeypatch.setattr(attention, "points_per_chunk", lambda: 7)
    with float64():
        result = attend_and_sum(
            (jnp.asarray(data[0]), None, jnp.asarray(further)),
            prepared(data),
            np.array([0.3]),
            lambda averages, numbers: averages**2 @ np.ones(3) @ numbers,
        )
    expected = (attention_in_memory(data, 0.3) ** 2).sum(axis=1) @ further
    np.testing.assert_allclose(result, [expected], rtol=1e-12)


def test_without_keys_to_see_the_average_is_zero() -> None:
    data = example(3, 5)
    result = attend(data[0], prepared(data, groups=np.ones(5)), np.ones(1), np.ones(3, int))
    assert (result == 0).all()


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_extreme_bandwidths_are_the_best_key_and_the_mean(kind: Any) -> None:
    data = example(20, 50)
    queries, keys, _, values, weights = data
    result = attend(queries, prepared(data, 2, kind), np.array([1e-12, 1e-300]))
    best = values[np.argmax(queries @ keys.T, axis=1)]
    np.testing.assert_allclose(result, [best, best], rtol=1e-6)
    flat = (queries, keys, np.zeros(50), values, weights)
    result = attend(queries, prepared(flat, 2, kind), np.array([1e12, 1e300]))
    mean = np.average(values, axis=0, weights=weights)
    np.testing.assert_allclose(result, np.broadcast_to(mean, result.shape), rtol=1e-5)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_weights_of_any_size(kind: Any) -> None:
    queries, keys, bias, values, _ = example(5, 30)
    expected = attention_in_memory((queries, keys, bias, values, np.ones(30)), 1.0)
    weights = np.full(30, 1e-320)
    result = attend(queries, prepared((queries, keys, bias, values, weights), 1, kind), np.ones(1))
    np.testing.assert_allclose(result[0], expected, atol=2e-6)
    weights[7] = 1e300
    result = attend(queries, prepared((queries, keys, bias, values, weights), 1, kind), np.ones(1))
    np.testing.assert_allclose(result[0], np.tile(values[7], (5, 1)), rtol=1e-6)


def test_nearby_sizes_share_a_compilation(compilations: Any) -> None:
    def run(m: int, n: int) -> None:
        data = example(m, n, d=6)
        attend(data[0], prepared(data), np.ones(1))

    run(1000, 600)
    with compilations() as names:
        run(960, 590)
        run(1020, 630)
        run(900, 577)
    assert names == []


@pytest.mark.parametrize("with_groups", [False, True])
def test_numpy_gives_the_same_in_forked_children(
    monkeypatch: pytest.MonkeyPatch, with_groups: bool
) -> None:
    queries, keys, _, values, _ = example(30, 700)
    bandwidths = np.array([0.3, 2.0])
    bias = np.stack([-np.arange(700) / 300, np.arange(700) / 500])
    groups = (np.arange(700) % 3, np.arange(30) % 4) if with_groups else (None, None)

    def find() -> np.ndarray:
        ready = prepare_keys(keys, bias, values, np.float64, groups[0])
        return attend(queries, ready, bandwidths, groups[1])

    wanted = find()
    monkeypatch.setattr(attention, "_PROCESS", -1)
    np.testing.assert_allclose(find(), wanted, rtol=1e-12)
