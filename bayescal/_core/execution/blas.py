"""A limit on the threads of NumPy's linear algebra."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_limiting = threading.Lock()
#: Sums over at least this many rows of at most this many columns gain nothing from threads.
_MANY_ROWS, _FEW_COLUMNS = 1 << 13, 8


@cache
def _controller() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Use no threads in small matrix products, because they would wait for one another.

    If other work runs at the same time, such waits make a fit many times slower. The limit applies
    to the process: if several threads request it at once, the first one sets and lifts it.
    """
    if not _limiting.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limiting.release()


def threads_of_blas(rows: int, columns: int) -> AbstractContextManager[None]:
    """Return a context with one thread for many rows of few columns, else with all threads."""
    narrow = rows >= _MANY_ROWS and columns <= _FEW_COLUMNS
    return single_threaded_blas() if narrow else nullcontext()
