"""A limit on the threads of NumPy's linear algebra."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_limiting = threading.Lock()


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
