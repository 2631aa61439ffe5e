"""Division of work among the processes of one computation (``jax.distributed``)."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from bayescal._core.arrays import Array, XArray
from bayescal._core.lazy import jax, jnp

Out = TypeVar("Out")

_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Make this process work alone in the context, because others may do something else."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def are_shared() -> bool:
    """Return whether work is divided among processes: not if the user chose a device."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return jax.process_count() > 1 and chosen is None and not _ALONE.get()


def rows_of(count: int) -> np.ndarray | None:
    """Return the indices of this process's rows among ``count``, or None if it computes all.

    All processes have equally many rows, so that they run equal programs; the last row is repeated.
    """
    if count == 1 or not are_shared():
        return None
    size = -(-count // jax.process_count())
    return np.minimum(jax.process_index() * size + np.arange(size), count - 1)


def gather_rows(
    function: Callable[[], Out], rows: np.ndarray | None, length: int, arguments: object
) -> Out:
    """Compute all rows by calling ``function`` for the local rows in each process.

    Leaves have a leading axis, of which everything after ``rows`` is padding; in the result it has
    ``length`` entries, with the last row repeated. For scalars, the largest is returned. Errors are
    raised as by :func:`gather`. If ``rows`` is None, the function's result is returned unchanged.
    """
    if rows is None:
        return function()

    def cut(leaf: XArray) -> XArray:
        if _is_key(leaf):
            return leaf[: len(rows)]
        return np.asarray(leaf)[: len(rows)] if leaf.ndim else np.asarray(leaf)

    def join(*parts: Array) -> Array | np.generic:
        if not parts[0].ndim:
            return np.max(parts)
        xp: ModuleType = np if isinstance(parts[0], np.ndarray) else jnp
        whole = xp.concatenate(parts)
        return whole[np.minimum(np.arange(length), len(whole) - 1)]

    return jax.tree.map(join, *gather(lambda: jax.tree.map(cut, function()), arguments))


def gather(function: Callable[[], Out], arguments: object) -> list[Out]:
    """Call ``function`` in each process and return all results; all processes must call this.

    They must call it in the same order. An error in one process is raised in that process, and as a
    RuntimeError in all others, so that no process waits in vain. If ``arguments``, a pytree of
    arrays, numbers and text, differ, a ValueError is raised.
    """
    error, local, digest = None, None, None
    try:
        digest = _digest(arguments)
        local = function()
    except Exception as e:  # Raised after the others have been informed.
        error = e
    error_text = None if error is None else f"{type(error).__name__}: {error}"
    results = _exchange((digest, error_text, local))
    if error is not None:
        raise error
    for number, (other_digest, error_text, _) in enumerate(results):
        if error_text is not None:
            raise RuntimeError(f"process {number} of {len(results)} failed: {error_text}")
        if other_digest != digest:
            raise ValueError(
                "all processes must be given the same arguments, got others in process "
                f"{number} than in process {jax.process_index()}; one works on data of its own "
                "within jax.default_device(jax.local_devices()[0])"
            )
    return [result for *_, result in results]


def _digest(arguments: object) -> bytes:
    digests = []
    for leaf in jax.tree.leaves(arguments):
        value = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        text = f"{value.dtype} {value.shape} ".encode() + value.tobytes()
        digests.append(hashlib.sha256(text).digest())
    # Sort, because the leaves of a distribution are in the order of a set, which is random.
    return hashlib.sha256(b"".join(sorted(digests))).digest()


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _exchange(value: object) -> list[Any]:
    """Return the values of all processes, in their order."""
    from jax.experimental.multihost_utils import process_allgather

    # Send 32-bit words: JAX would narrow float64, and words allow four times the length.
    text = pickle.dumps(value)
    words = np.frombuffer(text + bytes(-len(text) % 4), np.uint32)
    longest = int(np.max(np.asarray(process_allgather(np.uint32(len(words))))))
    every = process_allgather(np.pad(words, (0, (1 << (longest - 1).bit_length()) - len(words))))
    # The processes of one run trust one another: each executes the code of the same program.
    return [pickle.loads(row.tobytes()) for row in np.asarray(every)]  # nosec B301
