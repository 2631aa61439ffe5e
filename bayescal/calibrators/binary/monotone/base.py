"""Base class of calibrators that are fitted to sums over neighboring scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bayescal.calibrators.base.calibrator import Calibrator
from bayescal.data.given import BLOCKS


@dataclass(kw_only=True, eq=False, repr=False)
class OrderCalibrator(Calibrator):
    """A binary calibrator whose fit uses sums over a ``Ranking`` of the rows."""

    binary: ClassVar[bool] = True
    _sources: ClassVar[frozenset[str]] = BLOCKS
