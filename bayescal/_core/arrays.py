"""Types of arrays, and the functions of the library that an array belongs to."""

from __future__ import annotations

import sys
from typing import Any, Literal, TypeAlias, TypeVar

import array_api_compat
import array_api_compat.numpy
import jax
import numpy as np
import numpy.typing as npt
from jax.core import Tracer

#: For functions that run on the host with NumPy and in compiled programs alike.
Array: TypeAlias = np.ndarray | jax.Array
#: The same, where what comes out is of the kind that went in.
ArrayT = TypeVar("ArrayT", np.ndarray, jax.Array)
#: What compiled loops carry.
Arrays: TypeAlias = tuple[jax.Array, ...]
#: Parameters by name.
Params: TypeAlias = dict[str, jax.Array]
#: From users: whatever ``numpy.asarray`` reads, such as lists, data frames and arrays elsewhere.
ArrayLike: TypeAlias = npt.ArrayLike

_NUMPY = (np.ndarray, np.generic)


def namespace(*arrays: Any) -> Any:
    """Return the functions of the library of some arrays, named as in the array API standard."""
    first = arrays[0]
    # PyTorch's compiler follows these lines, but not those of array_namespace.
    if type(first).__module__ == "torch":
        return _torch()
    if all(isinstance(array, _NUMPY) for array in arrays):
        return array_api_compat.numpy
    return array_api_compat.array_namespace(*arrays)


def _torch() -> Any:
    import array_api_compat.torch

    return array_api_compat.torch


def torch_of(array: Any) -> Any:
    """Return PyTorch, if the array is its: it has some functions that the standard lacks."""
    return sys.modules["torch"] if array_api_compat.is_torch_array(array) else None


def on_host(array: Any) -> bool:
    """Return whether an array is NumPy's, whose calculations are all in float64."""
    return isinstance(array, _NUMPY)


def accelerated(array: Any) -> Any:
    """Return an array that is on an accelerator as JAX's, without a copy; of others ``None``."""
    given: Any = array
    if isinstance(array, jax.Array) and not isinstance(array, Tracer):
        return array if all(own.platform != "cpu" for own in array.devices()) else None
    if torch_of(given) is None or given.device.type != "cuda":
        return None
    return jax.dlpack.from_dlpack(given.detach().contiguous())


def to_host(array: Any) -> Any:
    """Copy an array of any library to NumPy; anything else comes back as it is."""
    if on_host(array) or not array_api_compat.is_array_api_obj(array):
        return array
    given: Any = array
    if array_api_compat.is_torch_array(given):
        return given.detach().cpu().numpy()
    if array_api_compat.is_jax_array(given):
        return np.asarray(given)
    if array_api_compat.is_cupy_array(given):
        return given.get()
    return np.asarray(given.to_device(namespace(given).__array_namespace_info__().devices()[0]))


def wide(array: Any) -> Any:
    """Return NumPy's arrays in float64, others as they are."""
    return array.astype(np.float64, copy=False) if on_host(array) else array


def matmul(a: Any, b: Any) -> Any:
    """Return a @ b, with the digits that the type has: accelerators may use fewer for speed."""
    if isinstance(a, jax.Array):
        return jax.numpy.matmul(a, b, precision="highest")
    return a @ b


def device(array: Any) -> Any:
    """Return where new arrays are to be made beside this one: JAX decides itself."""
    return None if isinstance(array, jax.Array) else array_api_compat.device(array)


def take_in_rows(values: Any, places: Any) -> Any:
    """Return, of each row of values (m, k), those at places (m, j)."""
    if torch_of(values):
        # Its take_along_dim cannot be exported for any number of rows.
        return values.gather(1, places)
    return namespace(values).take_along_axis(values, places, axis=1)


def search(edges: Any, values: Any, side: Literal["left", "right"] = "left") -> Any:
    """Return how many edges (k,), which ascend, are below the values (m,); right: or equal."""
    # The sum is contiguous, which PyTorch asks for.
    contiguous = values if on_host(values) else values + 0.0
    return namespace(values).searchsorted(edges, contiguous, side=side)
