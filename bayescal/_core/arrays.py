"""Types of arrays."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import jax
import numpy as np
import numpy.typing as npt

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
