"""Threads: maps for work of NumPy, which runs on several cores at once, and a lock for NumPyro."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np

Result = TypeVar("Result")

#: NumPyro keeps the handlers of a model in one list of the process, so that only one thread at a
#: time may run a model.
RUNNING_MODEL = threading.RLock()


def core_count() -> int:
    """Count the processor's cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class MapFunction(Protocol):
    """The signature of ``map``."""

    def __call__(
        self, function: Callable[..., Result], /, *items: Iterable[object]
    ) -> Iterator[Result]: ...


def in_turn(function: Callable[..., Result], /, *items: Iterable[object]) -> Iterator[Result]:
    """Apply a function to items in this thread, as ``map`` does."""
    return map(function, *items)


@contextmanager
def threads(worthwhile: bool = True) -> Iterator[MapFunction]:
    """Give a ``map`` whose calls run in threads, if they are worthwhile and there are cores.

    Results keep their order, so that sums of them do not depend on the number of cores. NumPy
    handles floating-point errors in the threads as it does here.
    """
    cores = core_count()
    if cores == 1 or not worthwhile:
        yield in_turn
        return
    handling = np.geterr()

    def in_threads(
        function: Callable[..., Result], /, *items: Iterable[object]
    ) -> Iterator[Result]:
        def call(*arguments: object) -> Result:
            with np.errstate(**handling):
                return function(*arguments)

        return pool.map(call, *items)

    with ThreadPoolExecutor(cores) as pool:
        yield in_threads
