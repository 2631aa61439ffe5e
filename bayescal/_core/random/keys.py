"""Random keys, seeds and generators: from integers, JAX keys, and scikit-learn's states."""

from __future__ import annotations

import operator
import os
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from bayescal._core.lazy import jax, jnp

#: What users may pass as a seed: an integer, a JAX key, or a generator of NumPy that advances.
Seed: TypeAlias = "int | jax.Array | np.random.Generator | np.random.RandomState"
# Any large constant: a caller's generator for the same seed, or one spawned from it, has another.
_STREAM = 0xB4E5CA1


def as_key(key: Seed) -> jax.Array:
    """Make a typed JAX key from an integer seed, a key of JAX, or a generator of NumPy."""
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return key
        if key.dtype == jnp.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(key)
    if isinstance(key, np.random.Generator):
        key = int(key.integers(2**32))
    elif isinstance(key, np.random.RandomState):
        key = int(key.randint(2**31 - 1))
    try:
        seed = operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"key must be an integer seed or one JAX key, got {type(key).__name__}"
        ) from None
    if seed < 0:
        raise ValueError(f"key must be non-negative, got {seed}")
    seed %= 2**32
    if jax.config.jax_default_prng_impl != "threefry2x32":  # pyright: ignore[reportAttributeAccessIssue]
        return jax.random.key(seed)
    # jax.random.key compiles two programs for this.
    return jax.random.wrap_key_data(jax.device_put(np.array([0, seed], np.uint32)))


def repeat_key(key: jax.Array, count: int) -> jax.Array:
    """Return an array (count,) of equal keys, which compiles nothing."""
    data = np.asarray(jax.random.key_data(key))
    repeated = jax.device_put(np.tile(data, (count, 1)))
    return jax.random.wrap_key_data(repeated, impl=jax.random.key_impl(key))


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Make a seed. None gives a new one, without using NumPy's global generator."""
    if random_state is None:
        return int.from_bytes(os.urandom(8)) % (2**31 - 1)
    if type(random_state) is int:
        return _seed_of_int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))


def check_seed(random_state: int | np.random.RandomState | None) -> None:
    """Raise unless ``random_state`` is valid; no numbers are drawn from a generator."""
    if type(random_state) is int:
        _seed_of_int(random_state)
        return
    from sklearn.utils import check_random_state

    check_random_state(random_state)


@lru_cache
def _seed_of_int(random_state: int) -> int:
    # To seed NumPy's generator takes a tenth of a fit to few rows.
    return int(np.random.RandomState(random_state).randint(2**31 - 1))


def generator(seed: int) -> np.random.Generator:
    """Make a generator for a seed whose numbers are not those of ``default_rng(seed)``.

    Callers often simulate data with the same small seed. Labels that are drawn again with the
    numbers that made the predictions, or the labels, would depend on these.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
