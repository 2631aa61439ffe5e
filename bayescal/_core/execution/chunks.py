"""Sizes of the blocks in which large sums are streamed, and maps over a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from bayescal._core.lazy import jax

#: Elements of a block, and points of a chunk: as many as a CPU's cache holds; accelerators need
#: longer steps.
_ELEMENTS, _ELEMENTS_ACCELERATOR = 1 << 19, 1 << 24
_POINTS, _POINTS_ACCELERATOR = 512, 2048

Item = TypeVar("Item")
Common = TypeVar("Common")
Out = TypeVar("Out")


def _on_cpu() -> bool:
    """Whether JAX computes on CPUs by default."""
    return jax.default_backend() == "cpu"


def block_elements() -> int:
    """Return the number of elements processed at once on JAX's default backend."""
    return _ELEMENTS if _on_cpu() else _ELEMENTS_ACCELERATOR


def points_per_chunk() -> int:
    """Return the number of points processed at once on JAX's default backend."""
    return _POINTS if _on_cpu() else _POINTS_ACCELERATOR


def sum_sizes(stored: bool) -> tuple[int, int]:
    """Return the largest numbers of points and of terms in one step of streamed sums at points.

    Terms that are not stored need no memory, so accelerators take longer steps with more sums.
    """
    if stored or _on_cpu():
        return points_per_chunk(), block_elements()
    return 8 * _POINTS_ACCELERATOR, 4 * _ELEMENTS_ACCELERATOR


def parts_of(batch: int) -> int:
    """Return the number of this process's devices over which a batch is split: all, or one.

    It is one if the batch does not divide evenly, or if the user has chosen a device.
    """
    devices = jax.local_device_count()
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return devices if batch % devices == 0 and chosen is None else 1


def split(function: Callable[[Item, Common], Out], rows: Item, common: Common, parts: int) -> Out:
    """Compute ``function(rows, common)`` in a program in which each device does a part of the rows.

    Leaves of ``rows``, and of the result, have a leading axis of the batch, of which a device gets
    a part; ``common`` goes to every device. Devices do not communicate.
    """
    if parts == 1:
        return function(rows, common)
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:parts]), ("batch",))
    batch = jax.sharding.PartitionSpec("batch")
    specs = batch, jax.sharding.PartitionSpec()
    both = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=batch, check_vma=False)
    return both(rows, common)


def even_block(n: int, largest: int) -> int:
    """Return the size of equal blocks of at most ``largest``, so that padding costs little."""
    count = -(-n // max(1, largest))
    return -(-n // count)


def slices(n: int, size: int) -> list[slice]:
    """Cut 0, ..., n - 1 into slices of at most ``size``."""
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


def map_batch(function: Callable[[Item], Out], items: Item, size: int, rows: int) -> Out:
    """Map over the leading axis (size,) of all leaves, at most ``rows`` at a time.

    Blocks are equal if possible, since a remainder is compiled a second time.
    """
    if size > 1:
        rows = min(rows, size)
        even = max(block for block in range(1, rows + 1) if size % block == 0)
        rows = even if 2 * even >= rows else rows
        # Map single rows without batches of one, which compile to more and run no faster.
        return jax.lax.map(function, items, batch_size=rows if rows > 1 else None)
    result = function(jax.tree.map(lambda leaf: leaf[0], items))
    return jax.tree.map(lambda leaf: leaf[None], result)
