"""Choice of floating-point types, without changing JAX's global configuration.

Likelihoods, weights and quadrature run in float64 inside :func:`float64`, a context of the calling
thread. Bulk evaluation runs in the dtype of the user's test points. Results for JAX arrays and
narrow points are JAX arrays of its default dtype: float32, or float64 if the user has enabled it.
Results for other points in float64 are NumPy arrays in float64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from bayescal._core.lazy import jax, jnp

#: Settings that make transfers errors or log them, unless requested; most transfers here are not.
_GUARDS = tuple(
    f"jax_transfer_guard_{way}" for way in ("host_to_device", "device_to_device", "device_to_host")
)


def float64() -> contextlib.AbstractContextManager[None]:
    """Return a context in which JAX has 64-bit types, and may move arrays to and from devices."""
    if any(getattr(jax.config, name, None) for name in _GUARDS):
        return _unguarded()
    return jax.enable_x64(True)


@contextlib.contextmanager
def _unguarded() -> Iterator[None]:
    with jax.transfer_guard("allow"), jax.enable_x64(True):
        yield


def default_dtype() -> np.dtype:
    """Return the dtype of results: float64 if the user enabled 64-bit types, else float32."""
    return np.dtype(jnp.result_type(float))


def bulk_dtype(x: object) -> np.dtype:
    """Return the dtype in which points ``x`` are evaluated: float32 if narrow, else float64."""
    text = str(getattr(x, "dtype", "float64")).removeprefix("torch.")
    narrow = "float32", "float16", "bfloat16"
    return np.dtype(np.float32 if text in narrow else np.float64)


def result_dtype(x: object) -> np.dtype:
    """Return the dtype of predictions at points ``x``: float64 if ``x`` is, unless it is JAX's."""
    if isinstance(x, jax.Array):
        return default_dtype()
    return np.result_type(default_dtype(), bulk_dtype(x))


def as_result(values: np.ndarray | jax.Array, dtype: np.dtype) -> np.ndarray | jax.Array:
    """Convert to a JAX array, or to a NumPy array if JAX does not have that dtype by default."""
    if dtype == default_dtype():
        return jax.device_put(values.astype(dtype))
    return np.asarray(values, dtype)
