"""Cells of neighboring scores, in which rows are counted before they are sorted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

__all__ = [
    "Cells",
    "EvenCells",
    "QuantileCells",
    "RelativeCells",
    "even_cells",
    "quantile_cells",
    "relative_cells",
]

#: Quantiles between which cells are of equal width, at most, and scores of a sample from one to
#: the next.
_SEGMENTS, _APART = 1 << 12, 64
#: Probabilities nearer to 0 or 1 than two to the power of minus this share a cell.
_OCTAVES = 128


class Cells(Protocol):
    """Cells in ascending order, one after the other."""

    @property
    def count(self) -> int: ...

    def place(self, scores: np.ndarray) -> np.ndarray:
        """Return the cell of each score, never less for a greater score."""
        ...

    def divided(self, names: np.ndarray, most: int) -> tuple[Cells, np.ndarray] | None:
        """Return cells of which some (m,) are divided into up to so many, and of each its parent.

        None where they are not.
        """
        ...


@dataclass
class EvenCells:
    """Cells of equal width, of rows in memory."""

    low: float
    scale: float
    count: int = 0
    #: Rows that are asked for again and again, and where they are.
    _known: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    def place(self, scores: np.ndarray) -> np.ndarray:
        if self._known is not None and scores is self._known[0]:
            return self._known[1]
        return ((scores - self.low) * self.scale).astype(np.intp)

    def divided(self, names: np.ndarray, most: int) -> None:
        return None


def even_cells(scores: np.ndarray, count: float) -> EvenCells | None:
    """Return about so many cells, or None for a range that cannot be divided."""
    low = scores.min()
    with np.errstate(over="ignore", divide="ignore"):
        scale = count / (scores.max() - low)
    if not 0 < scale < np.inf:
        return None
    cells = EvenCells(low, scale)
    cells._known = scores, cells.place(scores)
    cells.count = int(cells._known[1].max()) + 1
    return cells


@dataclass
class RelativeCells:
    """Cells of probabilities in memory, as fine beside 0 and 1 as between.

    Each power of two, of the distance from 0 or 1, is divided into ``2**digits`` cells.
    """

    digits: int
    #: Rows that are looked up several times, and their cells.
    _known: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        return 2 * (_OCTAVES << self.digits) + 1

    def place(self, scores: np.ndarray) -> np.ndarray:
        if self._known is not None and scores is self._known[0]:
            return self._known[1]
        # From one half on by the distance from 1, which is exact.
        near = np.maximum(np.minimum(scores, 1 - scores), 2.0**-_OCTAVES)
        cell = near.view(np.int64) >> (52 - self.digits)
        cell -= (1023 - _OCTAVES) << self.digits
        return np.where(scores < 0.5, cell, self.count - 1 - cell)

    def divided(self, names: np.ndarray, most: int) -> None:
        return None


def relative_cells(scores: np.ndarray, count: float) -> RelativeCells:
    """Divide [0, 1] into about twice this many cells, most of them close to 0 and 1."""
    cells = RelativeCells(int(np.clip(np.log2(count / _OCTAVES), 0, 8)))
    cells._known = scores, cells.place(scores)
    return cells


@dataclass(frozen=True)
class QuantileCells:
    """Cells of equal width between one of the ``knots`` (j + 1,) and the next, ``per`` of each.

    Each is divided into so many ``parts`` (j * per,), powers of two.
    """

    knots: np.ndarray
    per: int
    parts: np.ndarray

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum(self.parts) - self.parts

    @cached_property
    def _scale(self) -> np.ndarray:
        # Halves: no difference overflows. What cannot be divided stays in one cell.
        with np.errstate(divide="ignore", over="ignore"):
            scale = self.per / np.diff(self.knots / 2)
        return np.where(np.isfinite(scale), scale, 0.0)

    @property
    def count(self) -> int:
        return int(self._starts[-1] + self.parts[-1])

    def place(self, scores: np.ndarray) -> np.ndarray:
        """Return the cell of each score; every step is monotone, as it is rounded, too."""
        left = np.clip(np.searchsorted(self.knots, scores, "right") - 1, 0, len(self.knots) - 2)
        along = (scores / 2 - self.knots[left] / 2) * self._scale[left]
        along = np.clip(along, 0, np.nextafter(self.per, 0))
        within = along.astype(np.intp)
        cell = left * self.per + within
        if self.count == len(self.parts):
            return cell
        return self._starts[cell] + ((along - within) * self.parts[cell]).astype(np.intp)

    def divided(self, names: np.ndarray, most: int) -> tuple[QuantileCells, np.ndarray] | None:
        # What they were part of is divided alike.
        owner = np.repeat(np.arange(len(self.parts)), self.parts)
        which = np.zeros(len(self.parts), bool)
        which[owner[names]] = True
        factor = 2 ** int(np.log2(max(1.0, most / self.parts[which].sum())))
        if factor == 1:
            return None
        factors = np.where(which, factor, 1)
        parent = np.repeat(np.arange(self.count), factors[owner])
        return QuantileCells(self.knots, self.per, self.parts * factors), parent


def quantile_cells(sample: np.ndarray, low: float, high: float, count: int) -> QuantileCells | None:
    """Return at most so many cells between two scores, finer where the sample is dense.

    None if all scores are equal.
    """
    if not low < high:
        return None
    segments = int(np.clip(len(sample) // _APART, 1, min(_SEGMENTS, max(count, 1))))
    at = np.linspace(0, len(sample) - 1, segments + 1).round().astype(np.intp)
    knots = np.unique(np.concatenate([[low], np.sort(sample)[at], [high]]))
    per = max(1, count // (len(knots) - 1))
    return QuantileCells(knots, per, np.ones((len(knots) - 1) * per, np.intp))
