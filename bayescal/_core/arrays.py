"""Types of arrays, and operations on arrays of any library."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias, TypeVar

import array_api_compat
import array_api_compat.numpy
import jax
import numpy as np
import numpy.typing as npt
from jax.core import Tracer

#: For functions that run on the host with NumPy and in compiled programs.
Array: TypeAlias = np.ndarray | jax.Array
#: The type of an array where the result has the type of the argument.
ArrayT = TypeVar("ArrayT", np.ndarray, jax.Array)
#: State of compiled loops.
Arrays: TypeAlias = tuple[jax.Array, ...]
#: Parameters by name.
Params: TypeAlias = dict[str, jax.Array]
#: User input: whatever ``numpy.asarray`` reads, such as lists, data frames and foreign arrays.
ArrayLike: TypeAlias = npt.ArrayLike

_NUMPY = (np.ndarray, np.generic)


def namespace(*arrays: Any) -> Any:
    """Return the functions of the arrays' library, named as in the array API standard."""
    first = arrays[0]
    # PyTorch's compiler can trace these lines, but not those of array_namespace.
    if type(first).__module__ == "torch":
        return _torch()
    if all(isinstance(array, _NUMPY) for array in arrays):
        return array_api_compat.numpy
    return array_api_compat.array_namespace(*arrays)


def _torch() -> Any:
    import array_api_compat.torch

    return array_api_compat.torch


def torch_of(array: Any) -> Any:
    """Return PyTorch if the array belongs to it: it has functions that the standard lacks."""
    return sys.modules["torch"] if array_api_compat.is_torch_array(array) else None


def on_host(array: Any) -> bool:
    """Return whether an array is NumPy's, which means computation in float64 on the host."""
    return isinstance(array, _NUMPY)


def accelerated(array: Any) -> Any:
    """Return an array on an accelerator as a JAX array without a copy, and None for others."""
    given: Any = array
    if isinstance(array, jax.Array) and not isinstance(array, Tracer):
        return array if all(d.platform != "cpu" for d in array.devices()) else None
    if torch_of(given) is None or given.device.type != "cuda":
        return None
    return jax.dlpack.from_dlpack(given.detach().contiguous())


def wide(array: Any) -> Any:
    """Convert NumPy arrays to float64; return others unchanged."""
    return array.astype(np.float64, copy=False) if on_host(array) else array


def matmul(a: Any, b: Any) -> Any:
    """Compute a @ b with all digits of the type; accelerators may use fewer for speed."""
    if isinstance(a, jax.Array):
        return jax.numpy.matmul(a, b, precision="highest")
    return a @ b


def device(array: Any) -> Any:
    """Return the device for new arrays beside this one, or None, which lets JAX decide."""
    return None if isinstance(array, jax.Array) else array_api_compat.device(array)


def take_in_rows(values: Any, index: Any) -> Any:
    """Take from each row of values (m, k) the entries at index (m, j)."""
    if torch_of(values):
        # PyTorch's take_along_dim cannot be exported for a variable number of rows.
        return values.gather(1, index)
    return namespace(values).take_along_axis(values, index, axis=1)


def search(edges: Any, values: Any, side: Literal["left", "right"] = "left") -> Any:
    """Count ascending edges (k,) below the values (m,); with "right", below or equal."""
    # The sum is contiguous, which PyTorch requires.
    contiguous = values if on_host(values) else values + 0.0
    return namespace(values).searchsorted(edges, contiguous, side=side)
