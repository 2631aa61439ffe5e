"""Calibrators that are fitted to sums over neighboring scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bayescal.calibrators.base.calibrator import Calibrator
from bayescal.data.given import BLOCKS

__all__ = ["OrderCalibrator"]


@dataclass(kw_only=True, eq=False, repr=False)
class OrderCalibrator(Calibrator):
    """A calibrator of two classes whose fit asks a ``Ranking`` of the rows for sums."""

    binary: ClassVar[bool] = True
    _sources: ClassVar[frozenset[str]] = BLOCKS
