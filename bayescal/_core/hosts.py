"""Processes of one computation (``jax.distributed``): each does a share, and all have the whole."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Out = TypeVar("Out")

_ALONE: ContextVar[bool] = ContextVar("alone", default=False)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Return a context in which this process shares nothing, as others may do other things."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def are_shared() -> bool:
    """Return whether batches are shared with other processes: not where a user chose a device."""
    chosen = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    return jax.process_count() > 1 and chosen is None and not _ALONE.get()


def rows_of(count: int) -> np.ndarray | None:
    """Return which of ``count`` rows are this process's; None where it does all by itself.

    Each has as many, so that all run the same programs: the last repeat the last row.
    """
    if count == 1 or not are_shared():
        return None
    size = -(-count // jax.process_count())
    return np.minimum(jax.process_index() * size + np.arange(size), count - 1)


def gather_rows(
    function: Callable[[], Out], rows: np.ndarray | None, length: int, arguments: object
) -> Out:
    """Return what ``function`` gives of all rows, where in each process it gives its own.

    Leaves have a leading axis, of which all after ``rows`` is padding; the result's is of
    ``length``, its last row repeated. Of single numbers the largest is taken. Errors are those of
    :func:`gather`. Where ``rows`` is None the function gives all, and that is returned as it is.
    """
    if rows is None:
        return function()

    def own(leaf: Any) -> Any:
        if _is_key(leaf):
            return leaf[: len(rows)]
        return np.asarray(leaf)[: len(rows)] if leaf.ndim else np.asarray(leaf)

    def join(*parts: Any) -> Any:
        if not parts[0].ndim:
            return np.max(parts)
        xp: Any = np if isinstance(parts[0], np.ndarray) else jnp
        whole = xp.concatenate(parts)
        return whole[np.minimum(np.arange(length), len(whole) - 1)]

    return jax.tree.map(join, *gather(lambda: jax.tree.map(own, function()), arguments))


def gather(function: Callable[[], Out], arguments: object) -> list[Out]:
    """Return what ``function`` gives in each process; all must come here, in the same order.

    An error in one is raised there, and a RuntimeError in the others: none waits for what will not
    come. A ValueError says that ``arguments``, a pytree of arrays, numbers and text, differ.
    """
    error, own, said = None, None, None
    try:
        said = _digest(arguments)
        own = function()
    except Exception as e:  # Raised once the others know.
        error = e
    told = None if error is None else f"{type(error).__name__}: {error}"
    found = _exchange((said, told, own))
    if error is not None:
        raise error
    for number, (others, told, _) in enumerate(found):
        if told is not None:
            raise RuntimeError(f"process {number} of {len(found)} failed: {told}")
        if others != said:
            raise ValueError(
                "all processes must be given the same arguments, got others in process "
                f"{number} than in process {jax.process_index()}; one works on data of its own "
                "within jax.default_device(jax.local_devices()[0])"
            )
    return [own for *_, own in found]


def _digest(arguments: object) -> bytes:
    found = []
    for leaf in jax.tree.leaves(arguments):
        value = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        text = f"{value.dtype} {value.shape} ".encode() + value.tobytes()
        found.append(hashlib.sha256(text).digest())
    # Sorted: the leaves of a distribution are in the order of a set, another in each process.
    return hashlib.sha256(b"".join(sorted(found))).digest()


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _exchange(own: object) -> list[Any]:
    """Return the objects of all processes, in their order."""
    from jax.experimental.multihost_utils import process_allgather

    # Whole words: JAX would narrow float64, and a few times as many can be counted.
    text = pickle.dumps(own)
    words = np.frombuffer(text + bytes(-len(text) % 4), np.uint32)
    most = int(np.max(np.asarray(process_allgather(np.uint32(len(words))))))
    every = process_allgather(np.pad(words, (0, (1 << (most - 1).bit_length()) - len(words))))
    return [pickle.loads(each.tobytes()) for each in np.asarray(every)]
