"""Instance-based targets of many data sets at once, and how often they are compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayescal._core.kernels import data_scale
from bayescal.smoothing import instance, instance_targets
from bayescal.smoothing.instance import (
    batched_instance_targets,
    masked_instance_targets,
)


def data_set(n: int, d: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping classes, two cases of each at least."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.r_[0, 0, 1, 1, rng.integers(0, 2, size=n - 4)])
    x = rng.normal(size=(n, d)) + y[:, None]
    return (x[:, 0] if d == 1 else x), y


# --- batches ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "scale", "rule"),
    [
        (1, "full", "silverman"),
        (1, "pooled", 0.4),
        (2, "full", "cv"),
        (2, "diagonal", "scott"),
    ],
)
def test_batches_have_the_targets_of_each_data_set(
    x64: None, d: int, scale: Any, rule: Any
) -> None:
    sets = [data_set(n, d, seed) for seed, n in enumerate((20, 13, 4))]
    sets.append((sets[0][0][:5], np.ones(5, int)))
    x = np.full((4, 20) if d == 1 else (4, 20, d), np.nan)
    y, weights = np.zeros((4, 20), int), np.zeros((4, 20))
    for row, (features, labels) in enumerate(sets):
        n = len(labels)
        x[row, 20 - n :], y[row, 20 - n :], weights[row, 20 - n :] = features, labels, 1
    kind = "number" if isinstance(rule, float) else rule
    number = jnp.asarray(rule if isinstance(rule, float) else 1.0)
    arrays = [jnp.asarray(a) for a in (x, y, weights)]
    mapped = jax.jit(batched_instance_targets, static_argnums=(4, 5))(*arrays, number, kind, scale)
    vectorised = jax.vmap(lambda *one: masked_instance_targets(*one, number, kind, scale))
    found = jax.jit(vectorised)(*arrays)
    np.testing.assert_allclose(mapped, found, rtol=1e-8, atol=1e-12)
    for row, (features, labels) in enumerate(sets):
        n = len(labels)
        expected = instance_targets(features, labels, bandwidth=rule, scale=scale)
        np.testing.assert_allclose(found[row, 20 - n :], expected, rtol=1e-8, atol=1e-12)
        np.testing.assert_array_equal(found[row, : 20 - n], 0)


@pytest.mark.parametrize("pairs", [1, pytest.param(300, marks=pytest.mark.slow), 10**6])
def test_batches_are_mapped_a_few_at_a_time(
    x64: None, monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    monkeypatch.setattr(instance, "block_elements", lambda: pairs)
    sets = [data_set(10, 1, seed) for seed in range(5)]
    x, y = (jnp.asarray(np.stack(arrays)) for arrays in zip(*sets, strict=True))
    found = instance.batched_instance_targets(x, y, jnp.ones((5, 10)), jnp.asarray(1.0))
    for row, (features, labels) in enumerate(sets):
        expected = instance_targets(features, labels)
        np.testing.assert_allclose(found[row], expected, rtol=1e-10)


@pytest.mark.slow
def test_data_set_without_any_weight_is_no_nan(x64: None) -> None:
    x, y = data_set(8, 2)
    weights = jnp.zeros(8)
    found = masked_instance_targets(jnp.asarray(x), jnp.asarray(y), weights, jnp.asarray(1.0))
    np.testing.assert_array_equal(found, y)


def test_pooled_scale_without_weight_is_one(x64: None) -> None:
    found = data_scale(jnp.ones((3, 2)), jnp.zeros(3), jnp.inf, 1.0, "diagonal")
    np.testing.assert_array_equal(found, [1, 1])


# --- one compilation ------------------------------------------------------------------------------


def test_nearby_sizes_share_a_compilation(compilations: Any) -> None:
    def job(n: int, seed: int) -> None:
        x, _ = data_set(n, 6, seed)
        instance_targets(x, np.arange(n) % 2)

    with compilations() as first:
        job(200, 0)
    assert len(first) == 1, first
    with compilations() as more:
        job(194, 1)
        job(220, 2)
    assert not more, more
