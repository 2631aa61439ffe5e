"""Sizes of the blocks in which large sums are streamed, and maps over a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

#: Elements of a block: on a processor what its cache holds; accelerators want longer steps.
_ELEMENTS = {"cpu": 1 << 19}
_ELEMENTS_ACCELERATOR = 1 << 26
POINTS_PER_CHUNK = 512

Item = TypeVar("Item")
Out = TypeVar("Out")


def block_elements() -> int:
    """Return the number of elements held at once on JAX's default backend."""
    return _ELEMENTS.get(jax.default_backend(), _ELEMENTS_ACCELERATOR)


def parts_of(batch: int) -> int:
    """Return over how many of this process's devices a batch is split: all, or one.

    One is taken where the batch cannot be cut evenly, or where a user has chosen a device.
    """
    devices = jax.local_device_count()
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return devices if batch % devices == 0 and chosen is None else 1


def split(function: Callable[[Any, Any], Any], each: Any, common: Any, parts: int) -> Any:
    """Return ``function(each, common)`` in a program, where each device does a part of the batch.

    Leaves of ``each``, and of what the function returns, have a leading axis of the batch, of which
    it sees a part; what is common to all goes to every device. Nothing passes between them.
    """
    if parts == 1:
        return function(each, common)
    mesh = Mesh(np.array(jax.local_devices()[:parts]), ("batch",))
    own = PartitionSpec("batch")
    specs = own, PartitionSpec()
    both = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=own, check_vma=False)
    return both(each, common)


def even_block(n: int, most: int) -> int:
    """Return the size of equal blocks of at most ``most``, so that padding costs little."""
    count = -(-n // max(1, most))
    return -(-n // count)


def slices(n: int, size: int) -> list[slice]:
    """Cut 0, ..., n - 1 into slices of at most ``size``."""
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


def map_batch(function: Callable[[Item], Out], items: Item, size: int, rows: int) -> Out:
    """Map over the leading axis (size,) of all leaves, at most ``rows`` at a time.

    In equal blocks where they can be, for what remains is compiled a second time.
    """
    if size > 1:
        rows = min(rows, size)
        even = max(each for each in range(1, rows + 1) if size % each == 0)
        rows = even if 2 * even >= rows else rows
        # Rows one by one are no batches of one: those compile to more, and run no faster.
        return jax.lax.map(function, items, batch_size=rows if rows > 1 else None)
    result = function(jax.tree.map(lambda leaf: leaf[0], items))
    return jax.tree.map(lambda leaf: leaf[None], result)
