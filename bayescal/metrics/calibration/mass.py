"""Metrics over bins of equal mass, from sorted rows or from a fine histogram."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import ClassVar

import numpy as np

from bayescal._core.arrays import AnyArray, Array
from bayescal._core.binning import cut_cells, equal_mass_sums, shift_bound
from bayescal._core.lazy import jax, jnp
from bayescal._core.shapes import Float, Shaped
from bayescal.data.blocks.predictions import PredictionBlocks
from bayescal.data.order.equal_mass import mass_sums, mass_sums_of_blocks
from bayescal.data.predictions import Predictions
from bayescal.data.weights import are_counts
from bayescal.metrics.calibration.mass_many import mass_sums_many
from bayescal.metrics.sums import (
    BinMetric,
    DirectMetric,
    Group,
    ManySums,
    PerDraw,
    Piece,
    SumMetric,
    as_predicted,
    size_pieces,
)

#: Sums over bins of equal mass (3, bins) in one program, which all groups share.
_device_mass_sums = jax.jit(partial(equal_mass_sums, xp=jnp), static_argnums=3)


class OrderedMetric(BinMetric, DirectMetric):
    """A metric of rows sorted by prediction, which sums over fine cells can approximate."""

    @abstractmethod
    def histogram(self, cells: int = 4096, borders: np.ndarray | None = None) -> CellHistogram:
        """Make the approximation from sums over cells of equal width, or with these borders."""

    def filled(self, data: Predictions, xp: ModuleType = np) -> Iterator[Group]:
        """Yield the rows of each group that has rows."""
        return (group for group in self.split(data, xp) if len(group[0]))

    def numbered(self, data: Predictions) -> Iterator[Group]:
        """Yield the rows of each group that has rows, with their numbers instead of weights."""
        return self.filled(data._replace(weights=np.arange(len(data.y))))


class MassMetric(OrderedMetric):
    """A function of sums over bins of equal mass."""

    #: Least number of rows in a bin. If set, equal predictions stay in one bin; otherwise they are
    #: divided between the bins beside a border.
    least_cases: ClassVar[int | None] = None

    def least(self, ratio: AnyArray) -> AnyArray:
        """Compute the least mass of bins from the number of rows per unit of weight."""
        return None if self.least_cases is None else self.least_cases / ratio

    def sums(
        self, data: Predictions, xp: ModuleType
    ) -> tuple[Float[AnyArray, "3 cells"], Shaped[AnyArray, ""]]:
        """Compute sums over bins, and the number of rows per unit of weight."""
        weights = data.weights
        whole = are_counts(weights, xp)
        # Effective sizes of bins, if weights vary within bins as among all rows.
        ratio = xp.where(whole, 1, weights.sum() / (weights**2).sum())
        least = self.least(ratio)
        sums_of = mass_sums if xp is np else _device_mass_sums
        groups = self.filled(data, xp)
        sums = [sums_of(*group, self.bins, whole, least=least) for group in groups]
        return xp.concatenate(sums, axis=1), ratio

    def histogram(self, cells: int = 4096, borders: np.ndarray | None = None) -> CellHistogram:
        return MassHistogram(self, cells, borders)

    def compute(self, data: Predictions, xp: ModuleType) -> Float[Array, ""]:
        return self.finish(*self.sums(data, xp), xp)

    def compute_in_blocks(self, data: PredictionBlocks) -> float:
        sums = mass_sums_of_blocks(self.split, self.groups, self.bins, data, self.least)
        return float(self.finish(*sums, np))

    def compute_many(self, data: Predictions, factors: Shaped[np.ndarray, "rows draws"]) -> PerDraw:
        weights = factors if data.whole else factors * data.weights[:, None]
        ratios = np.ones(factors.shape[1])
        if not data.whole:
            ratios = weights.sum(axis=0) / (data.weights**2 @ factors)
        least = self.least(ratios)
        options = weights, self.bins, data.whole, least
        parts = [mass_sums_many(*group, *options) for group in self.numbered(data)]
        return np.asarray(self.finish(np.concatenate(parts, axis=2), ratios[:, None], np))


@dataclass(frozen=True)
class CellHistogram(SumMetric, ABC):
    """An approximation of a metric from sums over many cells, of equal width or with borders."""

    metric: OrderedMetric
    width_cells: int = 4096
    borders: np.ndarray | None = field(default=None, compare=False)

    @property
    def range(self) -> tuple[float, float]:
        return self.metric.range

    @property
    def cells_per_group(self) -> int:
        """Number of cells of each group."""
        return self.width_cells if self.borders is None else len(self.borders) + 1

    @property
    def cells(self) -> int:
        return self.metric.groups * self.cells_per_group

    def width(self, columns: int) -> int:
        return 2 * columns

    def by_cell(self, data: Predictions, xp: ModuleType) -> tuple[Piece, Piece, Piece]:
        """Compute weights, predictions and outcomes by cell."""
        cells = self.width_cells if self.borders is None else self.borders
        return self.metric.by_cell(data, cells, xp)

    def calibrated(self, sums: ManySums) -> ManySums:
        return as_predicted(sums)


@dataclass(frozen=True)
class MassHistogram(CellHistogram):
    """Bins of equal mass from sums over many more cells than bins.

    Cells that hold a border are divided between two bins in proportion.
    """

    metric: MassMetric
    rows = 6

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        sizes = size_pieces(None, data.weights)
        return *self.by_cell(data, xp), *sizes, Piece(None, None)

    def value(self, sums: Float[Array, "6 cells"], xp: ModuleType) -> Float[Array, ""]:
        groups, bins = self.metric.groups, self.metric.bins
        by_group = sums[:3].reshape(3, groups, self.cells_per_group)
        whole = sums[4, 0] == 0
        ratio = xp.where(whole, 1, sums[5, 0] / sums[3, 0])
        least = self.metric.least(ratio)
        parts = [cut_cells(by_group[:, g], bins, whole, xp, least) for g in range(groups)]
        return self.metric.finish(xp.concatenate(parts, axis=1), ratio, xp)

    def bound(self, sums: Float[np.ndarray, "6 cells"]) -> float:
        """Bound the error of a mean gap by the proportion of rows in cells with borders."""
        groups, bins = self.metric.groups, self.metric.bins
        by_group = sums[0].reshape(groups, self.cells_per_group)
        whole = bool(sums[4, 0] == 0)
        return sum(shift_bound(mass, bins, whole) for mass in by_group) / float(sums[0].sum())
