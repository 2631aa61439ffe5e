"""Find rows that are equal, on the host and on an accelerator."""

from __future__ import annotations

import numpy as np

from bayescal._core.arrays import AnyArray, on_host
from bayescal._core.lazy import jax, jnp


def distinct_rows(rows: AnyArray) -> tuple[np.ndarray, np.ndarray]:
    """Find one row (m,) of each set of equal rows (n, k), and the set (n,) of each row.

    Sets are ordered by a hash of the bits of their rows. This takes O(n k + n log n), ten times
    less than sorting by all columns, and it leaves neighbors far apart, so that any range of sets
    is a random sample. Only the hashes of JAX arrays are copied to the host.
    """
    if on_host(rows):
        bits = np.ascontiguousarray(rows + rows.dtype.type(0))  # turns -0 into 0
        hashes = _hash(bits.view(f"u{rows.dtype.itemsize}").astype(np.uint64))
    else:
        hashes = np.asarray(_hash_on_device(rows))
    _, first, index = np.unique(hashes, return_index=True, return_inverse=True)
    if not on_host(rows):
        # If two different rows had the same hash, every row would be a separate set.
        if not _equal_on_device(rows, first[index]):
            first = index = np.arange(len(rows))
    elif not (rows == rows[first[index]]).all():
        _, first, index = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, index.reshape(-1)


def is_first(values: np.ndarray) -> np.ndarray:
    """Mark values (n,) that differ from the one before, and the first one."""
    return np.append(True, values[1:] != values[:-1])


def _hash(bits: AnyArray) -> AnyArray:
    """Hash unsigned integers (n, k) into (n,)."""
    odd = np.random.default_rng(0).integers(0, 1 << 63, (2, bits.shape[1]), np.uint64) * 2 + 1
    # The last digits of short fractions are zero, so digits are mixed before each product.
    for factor in odd:
        bits ^= bits >> np.uint64(29)
        bits *= factor
    bits ^= bits >> np.uint64(32)
    return bits.sum(axis=1)


@jax.jit
def _hash_on_device(rows: jax.Array) -> jax.Array:
    # As pairs of single precision, which is how some accelerators store doubles.
    high = rows.astype(np.float32)
    low = (rows - high.astype(rows.dtype)).astype(np.float32)
    bits = jax.lax.bitcast_convert_type(jnp.concatenate([high, low], axis=1) + 0, np.uint32)
    return _hash(bits.astype(np.uint64))


@jax.jit
def _equal_on_device(rows: jax.Array, index: jax.Array) -> jax.Array:
    return jnp.all(rows == rows[index])
