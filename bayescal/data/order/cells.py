"""Cells of neighboring scores, in which rows are counted before they are sorted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from bayescal._core.binning import relative_cell

#: Maximal number of quantiles between which cells have equal width, and number of sampled scores
#: between neighboring quantiles.
_MAX_SEGMENTS, _SCORES_PER_SEGMENT = 1 << 12, 64
#: Probabilities within 2**-_OCTAVES of 0 or 1 share a cell.
_OCTAVES = 128


class MemoryCells:
    """Contiguous cells in ascending order of rows in memory, whose cells are computed once."""

    def __init__(self, find: Callable[[np.ndarray], np.ndarray], scores: np.ndarray) -> None:
        self._find, self._scores, self._cell = find, scores, find(scores)
        self.count = int(self._cell.max()) + 1

    def assign(self, scores: np.ndarray) -> np.ndarray:
        return self._cell if scores is self._scores else self._find(scores)

    def divided(self, names: np.ndarray, most: int) -> None:
        return None


def even_cells(scores: np.ndarray, count: float) -> MemoryCells | None:
    """Make about ``count`` cells of equal width; None if the range cannot be divided."""
    low = scores.min()
    with np.errstate(over="ignore", divide="ignore"):
        scale = count / (scores.max() - low)
    if not 0 < scale < np.inf:
        return None
    return MemoryCells(lambda scores: ((scores - low) * scale).astype(np.intp), scores)


def relative_cells(scores: np.ndarray, count: float) -> MemoryCells:
    """Divide [0, 1] into about twice this many cells, most of them close to 0 and 1.

    Each power of two, of the distance from 0 or 1, is divided into a power of two of cells.
    """
    digits = int(np.clip(np.log2(count / _OCTAVES), 0, 8))
    first, last = (1023 - _OCTAVES) << digits, (2 * _OCTAVES - 2) << digits

    def find(scores: np.ndarray) -> np.ndarray:
        cell = relative_cell(scores, 52 - digits)
        cell -= first
        return np.clip(cell, 0, last, out=cell)

    return MemoryCells(find, scores)


@dataclass(frozen=True)
class QuantileCells:
    """Ascending cells between ``knots`` (j + 1,): ``per`` of equal width between two knots.

    A cell is divided into ``parts`` (j * per,), which are powers of two.
    """

    knots: np.ndarray
    per: int
    parts: np.ndarray

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum(self.parts) - self.parts

    @cached_property
    def _scale(self) -> np.ndarray:
        # Halve the knots, so that differences do not overflow. Ranges that are too small to divide
        # are one cell.
        with np.errstate(divide="ignore", over="ignore"):
            scale = self.per / np.diff(self.knots / 2)
        return np.where(np.isfinite(scale), scale, 0.0)

    @property
    def count(self) -> int:
        return int(self._starts[-1] + self.parts[-1])

    def assign(self, scores: np.ndarray) -> np.ndarray:
        """Find the cell of each score; every step is monotone in spite of rounding."""
        left = np.clip(np.searchsorted(self.knots, scores, "right") - 1, 0, len(self.knots) - 2)
        along = (scores / 2 - self.knots[left] / 2) * self._scale[left]
        along = np.clip(along, 0, np.nextafter(self.per, 0))
        within = along.astype(np.intp)
        cell = left * self.per + within
        if self.count == len(self.parts):
            return cell
        return self._starts[cell] + ((along - within) * self.parts[cell]).astype(np.intp)

    def divided(self, names: np.ndarray, most: int) -> tuple[QuantileCells, np.ndarray] | None:
        """Divide the cells ``names`` (m,) into up to ``most``, if possible; also return parents."""
        # All parts of an original cell are divided equally.
        owner = np.repeat(np.arange(len(self.parts)), self.parts)
        selected = np.zeros(len(self.parts), bool)
        selected[owner[names]] = True
        factor = 2 ** int(np.log2(max(1.0, most / self.parts[selected].sum())))
        if factor == 1:
            return None
        factors = np.where(selected, factor, 1)
        parent = np.repeat(np.arange(self.count), factors[owner])
        return QuantileCells(self.knots, self.per, self.parts * factors), parent


Cells: TypeAlias = MemoryCells | QuantileCells


def quantile_cells(sample: np.ndarray, low: float, high: float, count: int) -> QuantileCells | None:
    """Make at most ``count`` cells between two different scores, finer where a sample is dense."""
    if not low < high:
        return None
    segments = int(
        np.clip(len(sample) // _SCORES_PER_SEGMENT, 1, min(_MAX_SEGMENTS, max(count, 1)))
    )
    at = np.linspace(0, len(sample) - 1, segments + 1).round().astype(np.intp)
    knots = np.unique(np.concatenate([[low], np.sort(sample)[at], [high]]))
    per = max(1, count // (len(knots) - 1))
    return QuantileCells(knots, per, np.ones((len(knots) - 1) * per, np.intp))


def covered(first: np.ndarray, last: np.ndarray, count: int) -> np.ndarray:
    """Mark which of ``count`` positions lie in any of the ranges [first, last) (m,)."""
    steps = np.zeros(count + 1, np.intp)
    np.add.at(steps, first, 1)
    np.add.at(steps, last, -1)
    return np.cumsum(steps[:-1]) > 0
