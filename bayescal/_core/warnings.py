"""Warning categories of the package, and suppression of warnings in threads."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class SamplingWarning(UserWarning):
    """Issued if draws describe the posterior poorly; the message suggests a remedy."""


class AccuracyWarning(UserWarning):
    """Issued if a quadrature rule misses its intended accuracy, or an assumption does not hold."""


_lock = threading.Lock()
_inside = 0
_outermost: warnings.catch_warnings[None] | None = None


@contextmanager
def ignored(category: type[Warning] = Warning) -> Iterator[None]:
    """Ignore a category of warnings, even if several threads overlap.

    All threads share one list of filters, so overlapping ``warnings.catch_warnings`` may restore
    the filters of one another. Here the first thread to enter saves the filters and the last to
    leave restores them; until then a warning is ignored in every thread. If threads have separate
    filters, only those of the current thread are changed.
    """
    if getattr(sys.flags, "context_aware_warnings", False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category)
            yield
        return
    global _inside, _outermost
    with _lock:
        if not _inside:
            _outermost = warnings.catch_warnings()
            _outermost.__enter__()
        _inside += 1
        warnings.simplefilter("ignore", category)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _outermost is not None:
                _outermost.__exit__(None, None, None)
                _outermost = None


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that names the first line outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("bayescal"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
