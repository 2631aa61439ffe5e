"""Types of user input, and operations on arrays of any library."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, cast

import array_api_compat
import array_api_compat.numpy
import numpy as np
import numpy.typing as npt

from bayescal._core.lazy import is_traced, jax

if TYPE_CHECKING:
    from typing import TypeGuard

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
#: User input of any kind, before it is read: also blocks, and what Arrow, Dask, Zarr and HDF5 hold.
UserData: TypeAlias = Any
#: A classifier or calibrator of any library, whose methods and attributes are looked up by name.
AnyModel: TypeAlias = Any

#: An array of any library of which more is used than the standard has, such as ``reshape``.
AnyArray: TypeAlias = Any
#: Operands and indices of an array: arrays of its library, and numbers.
Operand: TypeAlias = Any

_NUMPY = (np.ndarray, np.generic)


class XArray(Protocol):
    """An array of any library that follows the array API standard."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> object: ...
    @property
    def T(self) -> AnyArray: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[AnyArray]: ...
    def __getitem__(self, key: Operand, /) -> AnyArray: ...
    def __neg__(self) -> AnyArray: ...
    def __abs__(self) -> AnyArray: ...
    def __add__(self, other: Operand, /) -> AnyArray: ...
    def __sub__(self, other: Operand, /) -> AnyArray: ...
    def __mul__(self, other: Operand, /) -> AnyArray: ...
    def __truediv__(self, other: Operand, /) -> AnyArray: ...
    def __pow__(self, other: Operand, /) -> AnyArray: ...
    def __matmul__(self, other: Operand, /) -> AnyArray: ...
    def __radd__(self, other: Operand, /) -> AnyArray: ...
    def __rsub__(self, other: Operand, /) -> AnyArray: ...
    def __rmul__(self, other: Operand, /) -> AnyArray: ...
    def __rtruediv__(self, other: Operand, /) -> AnyArray: ...
    def __rpow__(self, other: Operand, /) -> AnyArray: ...
    def __rmatmul__(self, other: Operand, /) -> AnyArray: ...
    def __ge__(self, other: Operand, /) -> AnyArray: ...
    def __gt__(self, other: Operand, /) -> AnyArray: ...
    def __le__(self, other: Operand, /) -> AnyArray: ...
    def __lt__(self, other: Operand, /) -> AnyArray: ...


#: The type of an array of any library where the result has the type of the argument.
X = TypeVar("X", bound=XArray)
#: The result of a fit: arrays by name, from which predictions are computed.
State: TypeAlias = Mapping[str, XArray]


class Namespace(Protocol):
    """The functions of a library of arrays, named as in the array API standard."""

    def __getattr__(self, name: str) -> Any: ...


_NUMPY_FUNCTIONS: Namespace = cast("Namespace", array_api_compat.numpy)


def namespace(*arrays: object) -> Namespace:
    """Return the functions of the arrays' library, named as in the array API standard."""
    first = arrays[0]
    # PyTorch's compiler can trace these lines, but not those of array_namespace.
    if type(first).__module__ == "torch":
        return _torch()
    if all(isinstance(array, _NUMPY) for array in arrays):
        return _NUMPY_FUNCTIONS
    return cast("Namespace", array_api_compat.array_namespace(*arrays))


def _torch() -> Namespace:
    import array_api_compat.torch

    return cast("Namespace", array_api_compat.torch)


def torch_of(array: object) -> ModuleType | None:
    """Return PyTorch if the array belongs to it: it has functions that the standard lacks."""
    return sys.modules["torch"] if array_api_compat.is_torch_array(array) else None


def on_host(array: object) -> TypeGuard[np.ndarray]:
    """Return whether an array is NumPy's, which means computation in float64 on the host."""
    return isinstance(array, _NUMPY)


def accelerated(array: object) -> jax.Array | None:
    """Return an array on an accelerator as a JAX array without a copy, and None for others."""
    given: AnyArray = array
    if isinstance(array, jax.Array) and not is_traced(array):
        return array if all(d.platform != "cpu" for d in array.devices()) else None
    if torch_of(given) is None or given.device.type != "cuda":
        return None
    return jax.dlpack.from_dlpack(given.detach().contiguous())


def to_host(array: UserData) -> AnyArray:
    """Copy an array of any library but Dask to NumPy; return anything else unchanged."""
    if on_host(array) or not array_api_compat.is_array_api_obj(array):
        return array
    if array_api_compat.is_dask_array(array):
        return array
    given: AnyArray = array
    if array_api_compat.is_torch_array(given):
        return given.detach().cpu().numpy()
    if array_api_compat.is_jax_array(given):
        return np.asarray(given)
    if array_api_compat.is_cupy_array(given):
        return given.get()
    return np.asarray(given.to_device(namespace(given).__array_namespace_info__().devices()[0]))


def wide(array: X) -> X:
    """Convert NumPy arrays to float64; return others unchanged."""
    return cast("X", array.astype(np.float64, copy=False)) if on_host(array) else array


def matmul(a: X, b: X) -> X:
    """Compute a @ b with all digits of the type; accelerators may use fewer for speed."""
    if isinstance(a, jax.Array):
        return cast("X", jax.numpy.matmul(a, cast("jax.Array", b), precision="highest"))
    return a @ b


def device(array: object) -> object:
    """Return the device for new arrays beside this one, or None, which lets JAX decide."""
    return None if isinstance(array, jax.Array) else array_api_compat.device(array)


def take_in_rows(values: X, index: X) -> X:
    """Take from each row of values (m, k) the entries at index (m, j)."""
    if torch_of(values):
        # PyTorch's take_along_dim cannot be exported for a variable number of rows.
        given: AnyArray = values
        return given.gather(1, index)
    return namespace(values).take_along_axis(values, index, axis=1)


def search(edges: X, values: X, side: Literal["left", "right"] = "left") -> X:
    """Count ascending edges (k,) below the values (m,); with "right", below or equal."""
    # The sum is contiguous, which PyTorch requires.
    contiguous = values if on_host(values) else values + 0.0
    return namespace(values).searchsorted(edges, contiguous, side=side)
