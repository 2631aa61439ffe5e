"""Sums by group of rows, from which intervals for very many rows are computed in one pass.

A hash of its number assigns each row to a group. As rows are independent, so are groups, and
resampled groups show the variation of sums as resampled rows would: the variance is estimated from
as many squares as there are groups. Sums by group add over blocks of rows, and models of the same
rows have the same groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import Array, ArrayLike, UserData
from bayescal._core.binning import quantile_borders
from bayescal._core.random.keys import generator
from bayescal.data.blocks.predictions import PredictionBlocks
from bayescal.data.membership import check_clusters
from bayescal.data.predictions import Predictions
from bayescal.data.weights import ones
from bayescal.metrics.calibration.mass import CellHistogram, OrderedMetric
from bayescal.metrics.sums import (
    Metric,
    Piece,
    SumMetric,
    blocks,
    multiply,
    standard_error,
    sum_matrix,
)

#: Number of rows from which groups are resampled instead of rows.
MANY = 100_000
#: Maximum and minimum number of groups, and of numbers that their sums may have: 32 MiB.
_MAX_GROUPS, _MIN_GROUPS, _NUMBERS = 1024, 64, 1 << 22
#: Maximum rows of sums of a histogram.
_ROWS = 6
#: Counts up to which each repetition of a row is assigned to a separate group.
_COPIES = 16
#: Minimum and maximum number of sets of random signs; numbers of replicates computed at once.
_SETS, _ELEMENTS = (64, 512), 1 << 22
#: Predictions from whose quantiles borders of cells are computed, and cells for each bin.
_SAMPLE, _CELLS_PER_BIN = 1 << 16, 32
#: Metrics whose correction for chance, or uncertainty, assumes independent rows.
UNCLUSTERED = ("canonical_ece", "debiased_ece", "skce")
_MIX_STEP, _MIX_FIRST, _MIX_SECOND = (
    np.uint64(value) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


#: Rows, their groups (None: equally to all), and the part of their weight in these groups.
_Share: TypeAlias = tuple[slice | np.ndarray, np.ndarray | None, np.ndarray]


def grouped(metric: Metric, data: Predictions | None = None) -> SumMetric | None:
    """Return a metric, or an approximation, as a function of sums; None if there is none.

    Bins of equal mass are cut from cells whose borders are quantiles of the predictions: 32 for
    each bin, fewer with many classes. Without data (rows in blocks), cells are of equal width.
    """
    if isinstance(metric, SumMetric):
        return metric
    if not isinstance(metric, OrderedMetric):
        return None
    room = _NUMBERS // (_ROWS * metric.groups * _MAX_GROUPS // 4)
    if data is None:
        return metric.histogram(max(metric.bins, min(CellHistogram.width_cells, room)))
    cells = max(metric.bins, min(_CELLS_PER_BIN * metric.bins, room))
    step = -(-data.probs.size // _SAMPLE)
    sample = data.part(slice(None, None, step))
    predicted = np.concatenate([p for p, *_ in metric.split(sample, np)])
    return metric.histogram(cells, quantile_borders(predicted, cells))


def group_sums(metric: Metric, data: Predictions, seed: int) -> GroupedSums | None:
    """Sum a metric's rows by group; None if it cannot be computed from sums."""
    sums = grouped(metric, data)
    return None if sums is None else GroupedSums.of(sums, data, seed, whole=data.whole)


def in_clusters(
    data: Predictions | PredictionBlocks, groups: UserData, weights: ArrayLike | None
) -> Predictions:
    """Add clusters of rows to predictions in memory; ``weights`` are those of the user."""
    if isinstance(data, PredictionBlocks):
        raise ValueError(
            "groups must be left out for Blocks, which do not hold them; pass arrays instead"
        )
    n = len(data.y) if weights is None else np.shape(weights)[0]
    return data._replace(clusters=check_clusters(groups, n, weights))


def equal_rows_once(data: Predictions) -> Predictions:
    """Keep one row of each cluster, if its rows are equal and all clusters have equal weight.

    These rows are independent, as are clusters of one row whose weights are not counts.
    """
    clusters = data.clusters
    if clusters is None:
        return data
    first = np.unique(clusters, return_index=True)[1]
    if len(first) == len(clusters) and not data.whole:
        return data._replace(clusters=None)
    first_row, masses = first[clusters], np.bincount(clusters, data.weights)
    alike = np.ptp(masses) <= 1e-12 * masses[0]
    columns = (column for column in (data.probs, data.y, data.first) if column is not None)
    if not (alike and all((column == column[first_row]).all() for column in columns)):
        return data
    return data.part(first)._replace(weights=ones(len(first)), classes=data.classes, clusters=None)


def spread_of_mean(
    metric: SumMetric, data: Predictions, mean: float, level: float, count: float
) -> float:
    """Compute the variance of a proportion of rows in clusters, if each row has variance one.

    It is the squared standard error over p (1 - p), at least that of independent rows, times the
    squared ratio of two quantiles of Student's law: with the degrees of freedom of ``count``
    clusters, and with those of as many independent rows. A proportion of zero or one has no
    standard error; then all rows of a cluster are assumed to be equal.
    """
    from scipy.special import stdtrit

    assert data.clusters is not None
    masses = np.bincount(data.clusters, data.weights)
    if len(masses) == 1 or not 0 < mean < 1:
        return float(masses @ masses / masses.sum() ** 2)
    error, _ = standard_error(metric, data)
    rows = float(data.weights @ data.weights) / masses.sum() ** 2
    spread = max(error**2 / (mean * (1 - mean)), rows)
    clusters, cases = stdtrit(np.maximum([count - 1, 1 / spread - 1], 1), (1 + level) / 2)
    return float(spread * max(clusters / cases, 1) ** 2)


@dataclass(frozen=True)
class GroupedSums:
    """Sums (groups, rows, cells) of a metric, which add over blocks.

    ``sizes`` are the number of rows, the sum of their weights, and the sum of squared weights;
    ``whole`` weights are counts.
    """

    metric: SumMetric
    sums: np.ndarray
    sizes: np.ndarray
    whole: bool
    seed: int

    @classmethod
    def of(
        cls, metric: SumMetric, data: Predictions, seed: int, *, first: int = 0, whole: bool
    ) -> GroupedSums:
        """Sum rows, numbered from ``first``, by group.

        If weights are ``whole``, they are counts: up to 16 repetitions of a row are assigned to
        groups one by one, and more are divided such that sums by group have the right variance. In
        clusters, each group holds whole clusters: one, unless there are more clusters than groups.
        """
        cells, number = metric.cells, _number_of_groups(metric)
        clusters = data.clusters
        count = number + 1 if clusters is None else int(clusters.max()) + 1
        one_each = count <= number
        number = min(count, number)
        sums = np.zeros((metric.rows, number * cells))
        # One key for each copy of a row.
        keys = np.random.default_rng(seed).integers(0, 1 << 63, _COPIES, np.uint64)
        for part in blocks(metric, data, columns=sums.shape[1]):
            block = data.part(part)
            pieces = metric.pieces(block, np)
            shares: Iterable[_Share]
            if one_each:
                shares = [(slice(None), block.clusters, block.weights)]
            elif block.clusters is not None:
                shares = _assign_groups(block.clusters, block.weights, False, keys, number)
            else:
                row_numbers = np.arange(len(block.y)) + first + part.start
                shares = _assign_groups(row_numbers, block.weights, whole, keys, number)
            for share in shares:
                for row, piece in zip(sums, pieces, strict=True):
                    _add(row.reshape(number, cells), piece, *share)
        weights = data.weights
        sizes = np.array([len(weights), weights.sum(), (weights**2).sum()])
        by_group = np.moveaxis(sums.reshape(metric.rows, number, cells), 1, 0)
        return cls(metric, by_group, sizes, whole, seed)

    def __add__(self, other: GroupedSums) -> GroupedSums:
        sizes = self.sizes + other.sizes
        return replace(self, sums=self.sums + other.sums, sizes=sizes)

    @property
    def total(self) -> np.ndarray:
        """Sums (rows, cells) over all groups."""
        return self.sums.sum(axis=0)

    def replicates(self, number: int) -> np.ndarray:
        """Compute the metric (number,) of groups drawn with replacement."""
        groups, rows, cells = self.sums.shape
        flat = self.sums.reshape(groups, -1)
        rng, values = generator(self.seed), []
        at_once = max(1, _ELEMENTS // max(rows * cells, groups))
        for first in range(0, number, at_once):
            b = min(at_once, number - first)
            drawn = rng.integers(0, groups, (b, groups)) + groups * np.arange(b)[:, None]
            factors = np.bincount(drawn.ravel(), minlength=b * groups).reshape(b, groups)
            sums = multiply(flat, factors.T.astype(float)).T
            values.append(self.metric.values(sums.reshape(b, rows, cells)))
        return np.concatenate(values)

    def deviations(self) -> np.ndarray:
        """Compute the contributions of groups to the error of a mean, whose squares add up."""
        costs, mass = self.sums[:, 0, 0], self.sums[:, 1, 0]
        with np.errstate(invalid="ignore"):
            return (costs - costs.sum() / mass.sum() * mass) / mass.sum()

    def chance(self) -> float:
        """Compute the size of an error by chance alone, given the size of the residuals.

        It is the root mean square of errors if predictions are calibrated and the residuals of
        each group have a random sign.
        """
        groups = len(self.sums)
        residual = self.sums - self.metric.calibrated(self.sums)
        residual -= residual.mean(axis=0)
        residual *= math.sqrt(groups / max(groups - 1, 1))
        sets = int(np.clip(_ELEMENTS // residual[0].size, *_SETS))
        return float(np.sqrt(np.mean(self._with_signs(residual, sets) ** 2)))

    def p_value(self, draws: int) -> float:
        """Compute the p-value: the proportion of draws of random signs with as large an error.

        Under calibration, the residuals of a group have mean zero: each draw multiplies them by a
        random sign. The data themselves are counted among the draws.
        """
        residual = self.sums - self.metric.calibrated(self.sums)
        value = float(self.metric.value(self.total, np))
        slack = 1e-12 * (1 + abs(value))
        reached = np.count_nonzero(self._with_signs(residual, draws) >= value - slack)
        return float(reached + 1) / (draws + 1)

    def _with_signs(self, residual: np.ndarray, draws: int) -> np.ndarray:
        """Compute the metric (draws,) of expected sums plus residuals times random signs."""
        expected = self.metric.calibrated(self.sums).sum(axis=0)
        flat = residual.reshape(len(residual), -1)
        rng, values = generator(self.seed), []
        at_once = max(1, _ELEMENTS // max(flat.shape))
        for first in range(0, draws, at_once):
            signs = rng.choice([-1.0, 1.0], (min(at_once, draws - first), len(flat)))
            sums = expected + (signs @ flat).reshape(-1, *expected.shape)
            values.append(self.metric.values(sums))
        return np.concatenate(values)


def _number_of_groups(metric: SumMetric) -> int:
    """Choose a power of two that keeps sums small and is equal for all models."""
    # The number of borders from data may differ slightly between models.
    cells = metric.cells
    if isinstance(metric, CellHistogram):
        cells = metric.metric.groups * metric.width_cells
    room = max(_NUMBERS // (metric.rows * cells), 1)
    return min(max(1 << (room.bit_length() - 1), _MIN_GROUPS), _MAX_GROUPS)


def _assign_groups(
    number: np.ndarray, weights: np.ndarray, whole: bool, keys: np.ndarray, groups: int
) -> Iterator[_Share]:
    """Yield rows, their groups (None: equally to all), and the part of their weight in these."""
    if not whole or weights.max() <= 1:
        yield slice(None), _hash(number, keys[0], groups), weights
        return
    small = weights <= _COPIES
    copies = np.where(small, weights, 0).astype(np.intp)
    rows = np.repeat(np.arange(len(weights)), copies)
    copy = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
    yield rows, _hash(number[rows], keys[copy], groups), np.ones(len(rows))
    if not small.all():
        # Divide the count equally, and add a part whose squares add up to the count.
        rows = np.flatnonzero(~small)
        part = np.sqrt(weights[rows] / 2)
        yield rows, None, weights[rows]
        yield rows, _hash(number[rows], keys[0], groups), part
        yield rows, _hash(number[rows], keys[1], groups), -part


def _hash(number: np.ndarray, key: Array, groups: int) -> np.ndarray:
    """Hash numbers of rows to groups by a key, with the finalizer of SplitMix64."""
    z = number.astype(np.uint64) * _MIX_STEP
    z ^= key
    z ^= z >> np.uint64(30)
    z *= _MIX_FIRST
    z ^= z >> np.uint64(27)
    z *= _MIX_SECOND
    return (z >> np.uint64(65 - groups.bit_length())).astype(np.intp)


def _add(
    sums: np.ndarray,
    piece: Piece,
    rows: slice | np.ndarray,
    group: np.ndarray | None,
    amount: np.ndarray,
) -> None:
    """Add some rows of a piece, times their weights, to sums (groups, cells), in place."""
    if group is None:
        total = np.zeros((1, sums.shape[1]))
        _add(total, piece, rows, np.zeros(len(amount), np.intp), amount)
        sums += total / len(sums)
        return
    cell, value = (part if part is None or part is ... else part[rows] for part in piece)
    groups, cells = sums.shape
    if cell is ...:
        sums += sum_matrix(group, amount, groups) @ value
    elif cell is None:
        if value is not None:
            amount = amount * value
        sums[:, 0] += np.bincount(group, amount, groups)
    else:
        if cell.ndim == 2:
            group, amount = group[:, None], amount[:, None]
        amount = np.broadcast_to(amount if value is None else amount * value, cell.shape)
        index = (group * cells + cell).ravel()
        sums += np.bincount(index, amount.ravel(), sums.size).reshape(sums.shape)
