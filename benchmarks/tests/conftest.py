"""Fixtures of the package's tests; tests of benchmarks are slow."""

from pathlib import Path

import pytest

from tests.conftest import (  # noqa: F401
    _bounded_memory,
    _close_figures,
    arena,
    compilations,
    shared_data,
    x64,
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")
