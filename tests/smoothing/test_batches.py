"""Instance-based targets of batches of data sets, and their number of compilations."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from bayescal.smoothing import instance, instance_targets
from bayescal.smoothing._kernels import data_scale
from tests.smoothing.data import data_set

# --- batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairs", [1, 300, 10**6])
def test_batches_are_mapped_a_few_at_a_time(
    x64: None, monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    monkeypatch.setattr(instance, "block_elements", lambda: pairs)
    sets = [data_set(10, 1, seed) for seed in range(5)]
    x, y = (jnp.asarray(np.stack(arrays)) for arrays in zip(*sets, strict=True))
    result = instance.batched_instance_targets(x, y, jnp.ones((5, 10)), jnp.asarray(1.0))
    for row, (features, labels) in enumerate(sets):
        expected = instance_targets(features, labels)
        np.testing.assert_allclose(result[row], expected, rtol=1e-10)


def test_pooled_scale_without_weight_is_one(x64: None) -> None:
    result = data_scale(jnp.ones((3, 2)), jnp.zeros(3), jnp.inf, 1.0, "diagonal")
    np.testing.assert_array_equal(result, [1, 1])


@pytest.mark.parametrize(
    ("rule", "scale"),
    [("silverman", "pooled"), ("cv", "full"), ("cv", "diagonal"), (0.4, "diagonal")],
)
def test_many_are_as_each_alone(rule: Any, scale: Any) -> None:
    """Check several lengths, weights, units out of range, and padding that must not be read."""
    sets = [data_set(n, 2, seed) for seed, n in enumerate((20, 13, 4))]
    x, y = np.full((3, 20, 2), np.nan), np.full((3, 20), -7)
    mask, w = np.zeros((3, 20), bool), np.full((3, 20), np.nan)
    for row, (features, labels) in enumerate(sets):
        n = len(labels)
        x[row, -n:], y[row, -n:], mask[row, -n:] = features * 10.0 ** (150 * row), labels, True
        w[row, -n:] = np.random.default_rng(row).uniform(0.5, 2, n)
        w[row, -2] = 0  # the row has no weight but still has a target
    before = x.copy(), y.copy(), w.copy()
    result = instance_targets(x, y, w, rule, scale, mask)
    for row, present in enumerate(mask):
        expected = instance_targets(x[row, present], y[row, present], w[row, present], rule, scale)
        np.testing.assert_allclose(result[row, present], expected, rtol=1e-9)
        np.testing.assert_array_equal(result[row, ~present], 0)
    for one, other in zip(before, (x, y, w), strict=True):
        np.testing.assert_array_equal(one, other)
    alone = instance_targets(x[1], y[1], w[1], rule, scale, mask[1])
    np.testing.assert_allclose(alone, result[1], rtol=1e-9)


def test_many_bandwidths_are_one_call(compilations: Any) -> None:
    sets = [data_set(18, 1, seed) for seed in range(4)]
    x, y = (np.stack(arrays) for arrays in zip(*sets, strict=True))
    grid = [0.2, 0.5, 1.0]
    result = instance_targets(x, y, bandwidth=grid)
    assert result.shape == (3, 4, 18)
    for index, number in enumerate(grid):
        for row in range(4):
            expected = instance_targets(x[row], y[row], bandwidth=number)
            np.testing.assert_allclose(result[index, row], expected, rtol=1e-9)
    assert instance_targets(x[0], y[0], bandwidth=grid).shape == (3, 18)
    narrow = instance_targets(x.astype(np.float32), y, bandwidth=grid)
    np.testing.assert_allclose(narrow, result, atol=2e-6)
    with compilations() as compiled:
        instance_targets(x[:, :17] + 1, y[:, :17], bandwidth=grid)
    assert compiled == []


def test_many_say_what_is_wrong() -> None:
    x, y = np.zeros((2, 3, 1)), np.array([[0, 1, 1], [0, 0, 1]])
    with pytest.raises(ValueError, match=r"y must have shape \(n,\) or \(B, n\)"):
        instance_targets(x, y[None], mask=np.ones((1, 2, 3), bool))
    with pytest.raises(ValueError, match=r"x must have shape \(2, 3\) or \(2, 3, 'd'\)"):
        instance_targets(x[:, :2], y)
    with pytest.raises(ValueError, match="mask must be of bool"):
        instance_targets(x, y, mask=np.ones((2, 3)))
    with pytest.raises(ValueError, match="sample_weight must have shape"):
        instance_targets(x, y, np.ones(3))
    with pytest.raises(ValueError, match=r"\{0, 1\}, got 2"):
        instance_targets(x, 2 * y)
    with pytest.raises(ValueError, match="bandwidth must be"):
        instance_targets(x, y, bandwidth=[0.5, -1])
    with pytest.raises(ValueError, match="not finite|finite"):
        instance_targets(x + np.nan, y)


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
