"""Calibrators that are fitted to sums over neighboring scores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bayescal.calibrators.base.calibrator import Calibrator, State
from bayescal.data.blocks.reader import RowBlocks
from bayescal.data.order.ranking import InMemory, SomeRows

__all__ = ["OrderCalibrator"]


@dataclass(kw_only=True, eq=False, repr=False)
class OrderCalibrator(Calibrator):
    """A calibrator of two classes that takes rows in memory and in blocks alike."""

    binary: ClassVar[bool] = True

    @abstractmethod
    def _fit_rows(self, rows: SomeRows, seed: int) -> State:
        """Return what is learned from rows with scores (n,) in the domain."""

    @property
    def _fits_blocks(self) -> bool:
        return True

    def _fit(self, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, seed: int) -> State:
        return self._fit_rows(InMemory(scores, y, weights), seed)

    def _fit_blocks(self, rows: RowBlocks, seed: int) -> State:
        return self._fit_rows(rows, seed)
