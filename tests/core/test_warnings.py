"""Silencing warnings in overlapping threads."""

from __future__ import annotations

import sys
import threading
import warnings
from types import SimpleNamespace

import pytest

from bayescal._core import warnings as module
from bayescal._core.warnings import AccuracyWarning, SamplingWarning, ignored


def test_nothing_is_left_behind() -> None:
    before = list(warnings.filters)
    with ignored(AccuracyWarning), ignored(SamplingWarning):
        warnings.warn("a", AccuracyWarning, stacklevel=1)
        warnings.warn("b", SamplingWarning, stacklevel=1)
        with pytest.raises(DeprecationWarning):
            warnings.warn("c", DeprecationWarning, stacklevel=1)
        with ignored():
            warnings.warn("d", DeprecationWarning, stacklevel=1)
    assert warnings.filters == before
    with pytest.raises(ZeroDivisionError), ignored():
        _ = 1 / 0
    assert warnings.filters == before


@pytest.mark.skipif(
    getattr(sys.flags, "context_aware_warnings", False), reason="threads have their own filters"
)
def test_the_last_of_overlapping_threads_restores() -> None:
    """Check the order of exits in which two ``catch_warnings`` would leave a filter behind."""
    before = list(warnings.filters)
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with ignored():
            entered.set()
            assert leave.wait(10)

    thread = threading.Thread(target=other)
    with ignored():
        thread.start()
        assert entered.wait(10)
    warnings.warn("the other thread is inside", UserWarning, stacklevel=1)
    leave.set()
    thread.join()
    assert warnings.filters == before
    with pytest.raises(UserWarning):
        warnings.warn("nobody is", UserWarning, stacklevel=1)


def test_threads_with_filters_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = SimpleNamespace(context_aware_warnings=True)
    monkeypatch.setattr(module, "sys", SimpleNamespace(flags=flags))
    before = list(warnings.filters)
    with ignored(AccuracyWarning):
        warnings.warn("a", AccuracyWarning, stacklevel=1)
        with pytest.raises(SamplingWarning):
            warnings.warn("b", SamplingWarning, stacklevel=1)
        # No state remains after overlapping threads end.
        assert module._outermost is None
    assert warnings.filters == before
