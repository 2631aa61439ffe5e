"""Adapters to other libraries, which are imported when an adapter is first used.

``ProbmetricsCalibrator`` makes any calibrator one of probmetrics, and ``TorchMetric`` makes any
metric one of torchmetrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bayescal.adapters import _probmetrics, _torchmetrics

if TYPE_CHECKING:
    ProbmetricsCalibrator: type
    TorchMetric: type

# Empty, because no adapter is available in every installation.
__all__: list[str] = []

#: The function that makes a class, and the packages to install for it.
_CLASSES: dict[str, tuple[Callable[[], type], str]] = {
    "ProbmetricsCalibrator": (_probmetrics.make, "probmetrics numba"),
    "TorchMetric": (_torchmetrics.make, "torch torchmetrics"),
}


def __dir__() -> list[str]:
    return [*_CLASSES]


def __getattr__(name: str) -> type:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    make, packages = _CLASSES[name]
    try:
        return make()
    except ImportError as error:
        raise ImportError(
            f"{__name__}.{name} needs other libraries: pip install {packages} ({error})"
        ) from error
