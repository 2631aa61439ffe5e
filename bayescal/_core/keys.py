"""Random keys: an integer seed or a JAX key, made into a typed JAX key."""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp


def as_key(key: int | jax.Array) -> jax.Array:
    """Return a typed JAX key from an integer seed, a typed key or a raw ``uint32`` key."""
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return key
        if key.dtype == jnp.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(key)
    try:
        seed = operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"key must be an integer seed or one JAX key, got {type(key).__name__}"
        ) from None
    if seed < 0:
        raise ValueError(f"key must be non-negative, got {seed}")
    return jax.random.key(seed % 2**32)
