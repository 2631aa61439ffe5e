"""Simulate the processes of one computation in turns: each runs twice and sends its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from bayescal._core.execution import hosts

PROCESSES = 3


class Stopped(Exception):
    """Raised where a process would wait for the others."""


def run_together(monkeypatch: pytest.MonkeyPatch, run: Callable[[int], Any]) -> list[Any]:
    """Return results or errors of ``run(process)`` for processes that exchange values once."""
    sent: dict[int, Any] = {}

    def send(value: Any) -> Any:
        sent[jax.process_index()] = value
        raise Stopped

    def outcome(process: int) -> Any:
        monkeypatch.setattr(jax, "process_index", lambda: process)
        try:
            return run(process)
        except (ValueError, RuntimeError) as error:
            return error

    monkeypatch.setattr(jax, "process_count", lambda: PROCESSES)
    monkeypatch.setattr(hosts, "_exchange", send)
    for process in range(PROCESSES):
        with pytest.raises(Stopped):
            outcome(process)
    monkeypatch.setattr(hosts, "_exchange", lambda _: [sent[i] for i in range(PROCESSES)])
    return [outcome(process) for process in range(PROCESSES)]
