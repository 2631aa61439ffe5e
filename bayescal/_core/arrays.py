"""Types of arrays."""

from __future__ import annotations

from typing import TypeAlias

import jax
import numpy as np
import numpy.typing as npt

__all__ = ["Array", "ArrayLike"]

#: For functions that run on the host with NumPy and in compiled programs alike.
Array: TypeAlias = np.ndarray | jax.Array
#: From users: whatever ``numpy.asarray`` reads, such as lists, data frames and arrays elsewhere.
ArrayLike: TypeAlias = npt.ArrayLike
