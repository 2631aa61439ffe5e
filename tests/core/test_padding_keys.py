"""Padding to powers of two, and keys made from seeds."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayescal._core.execution.padding import pad_axis, padded_length
from bayescal._core.random.keys import as_key, repeat_key, seed_of

# --- padding ------------------------------------------------------------------------------------


@given(st.integers(0, 10**9), st.sampled_from([1, 2, 16, 128]))
def test_padded_length_wastes_at_most_a_quarter(n: int, smallest: int) -> None:
    length = padded_length(n, smallest)
    assert max(n, smallest) <= length <= max(1.25 * n, smallest)
    assert padded_length(length, smallest) == length
    assert padded_length(n + 1, smallest) >= length


def test_padded_length_by_hand() -> None:
    sizes = (0, 1, 15, 16, 17, 21, 25, 29, 32, 33, 100, 113, 128, 129)
    expected = [16, 16, 16, 16, 20, 24, 28, 32, 32, 40, 112, 128, 128, 160]
    assert [padded_length(n) for n in sizes] == expected


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_pad_axis_repeats_the_last_entry(axis: int) -> None:
    array = np.random.default_rng(0).normal(size=(3, 4, 2))
    before = array.copy()
    padded = pad_axis(array, 7, axis)
    index = np.minimum(np.arange(7), array.shape[axis] - 1)
    np.testing.assert_array_equal(padded, np.take(array, index, axis))
    assert padded.dtype == array.dtype
    np.testing.assert_array_equal(array, before)
    assert pad_axis(array, array.shape[axis], axis) is array


# --- keys ---------------------------------------------------------------------------------------


def key_numbers(key: jax.Array) -> list[int]:
    return [int(v) for v in np.asarray(jax.random.key_data(key))]


@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**31, 2**32 - 1])
def test_seed_gives_the_same_key_with_and_without_64_bits(seed: int) -> None:
    narrow = key_numbers(as_key(seed))
    with jax.enable_x64(True):
        wide = key_numbers(as_key(seed))
    assert narrow == wide == [0, seed]


def test_all_kinds_of_integers_are_seeds() -> None:
    expected = key_numbers(jax.random.key(5))
    for seed in (5, np.int64(5), np.uint8(5), np.array(5), jnp.asarray(5)):
        assert key_numbers(as_key(seed)) == expected


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_seeds_give_the_keys_of_jax(kind: str) -> None:
    with jax.default_prng_impl(kind):
        key, expected = as_key(2**32 + 11), jax.random.key(11)
        assert key.dtype == expected.dtype
        assert key_numbers(key) == key_numbers(expected)
        for repeated in repeat_key(key, 3):
            assert repeated.dtype == key.dtype
            assert key_numbers(repeated) == key_numbers(key)


def test_seeds_compile_nothing(compilations: Callable[[], Any]) -> None:
    jax.clear_caches()
    for wide in (False, True):
        with jax.enable_x64(wide), compilations() as programs:
            repeat_key(as_key(5), 3)
        assert programs == []


def test_keys_pass_through() -> None:
    typed = jax.random.key(11)
    assert as_key(typed) is typed
    raw = as_key(jax.random.PRNGKey(11))
    assert jnp.issubdtype(raw.dtype, jax.dtypes.prng_key)
    assert key_numbers(raw) == key_numbers(typed)


def test_generators_of_numpy_are_keys_and_advance() -> None:
    new, old = np.random.default_rng(3), np.random.RandomState(3)
    again = np.random.default_rng(3), np.random.RandomState(3)
    for _ in range(2):
        assert key_numbers(as_key(new)) == [0, int(again[0].integers(2**32))]
        assert key_numbers(as_key(old)) == [0, int(again[1].randint(2**31 - 1))]


def test_random_states_of_scikit_learn_are_seeds() -> None:
    state, again = np.random.RandomState(3), np.random.RandomState(3)
    first = int(again.randint(2**31 - 1))
    assert seed_of(3) == seed_of(np.int64(3)) == seed_of(state) == first  # type: ignore[arg-type]
    assert seed_of(state) == int(again.randint(2**31 - 1)) != first
    assert seed_of(None) != seed_of(None)


@pytest.mark.parametrize("key", ["0", 1.0, None, [0], np.array([0, 1]), jnp.array([1.5, 2.0])])
def test_other_types_are_no_key(key: object) -> None:
    with pytest.raises(TypeError, match="key must be an integer seed or one JAX key, got "):
        as_key(key)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key must be an integer seed or one JAX key"):
        as_key(jax.random.split(jax.random.key(0), 3))
    with pytest.raises(ValueError, match="key must be non-negative, got -1"):
        as_key(-1)
