"""Plots of objects whose modules are in lower layers than ``bayescal.plots``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def plot_function(name: str) -> Callable[..., Any]:
    """Find a function of ``bayescal.plots`` when it is called, since it needs Matplotlib."""
    package = __name__.partition(".")[0]
    return getattr(import_module(f"{package}.plots"), name)
