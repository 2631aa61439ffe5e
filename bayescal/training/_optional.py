"""The packages that training needs beyond those of the rest, imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str) -> Any:
    """Return a module of the extra ``training``, or raise with how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"training networks needs {module.partition('.')[0]}, which is not installed: "
            'pip install "bayescal[training]"'
        ) from error
