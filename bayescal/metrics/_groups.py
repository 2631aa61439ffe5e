"""Sums by group of cases: what an interval needs of very many cases, in one pass.

Each case belongs to one of some groups, by a hash of its running number. As cases are independent,
so are groups, and groups drawn with replacement say how far sums vary, as cases drawn would: the
variance is estimated from as many squares as there are groups. Sums by group of blocks of cases
add, and models of the same cases have the same groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayescal._core.binning import quantile_borders
from bayescal.metrics._mass import MassHistogram, MassMetric
from bayescal.metrics.inputs import Predictions
from bayescal.metrics.sums import Metric, Piece, SumMetric, blocks, multiply, sum_matrix

#: Rows from which on groups are drawn, not cases.
MANY = 100_000
#: Groups at most and at least, and numbers that their sums should not exceed: 32 MiB.
_MOST, _LEAST, _NUMBERS = 1024, 64, 1 << 22
#: Counts up to which each case of a row has a group of its own.
_COPIES = 16
#: Sets of residuals whose signs are drawn, at least and at most; numbers of replicates at once.
_SETS, _ELEMENTS = (64, 512), 1 << 22
#: Predictions that borders of cells are found from, and cells for each bin.
_SAMPLE, _FINE = 1 << 16, 32
_STEP, _FIRST, _SECOND = (
    np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def grouped(metric: Metric, data: Predictions | None = None) -> SumMetric | None:
    """Return a metric, or what comes near it, as a function of sums; None if there is no such.

    Bins of equal mass are cut from cells whose borders are quantiles of the predictions: 32 for
    each bin, fewer where there are many classes. Without data, as these come in blocks, they are of
    equal width.
    """
    if isinstance(metric, SumMetric):
        return metric
    if not isinstance(metric, MassMetric):
        return None
    room = _NUMBERS // (MassHistogram.rows * metric.groups * _MOST // 4)
    if data is None:
        return MassHistogram(metric, max(metric.bins, min(MassHistogram.width_cells, room)))
    cells = max(metric.bins, min(_FINE * metric.bins, room))
    step = -(-data.probs.size // _SAMPLE)
    some = data.part(slice(None, None, step))
    predicted = np.concatenate([each for each, *_ in metric.split(some, np)])
    return MassHistogram(metric, cells, quantile_borders(predicted, cells))


@dataclass(frozen=True)
class GroupedSums:
    """Sums (groups, rows, cells) of a metric, which add.

    ``sizes`` are the number of rows, and the sums of their weights and of the squares of these;
    ``whole`` says whether weights are counts.
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
        """Collect cases, of which the first has the running number ``first``.

        If weights are ``whole`` they are counts: the cases of a row are spread over groups one by
        one, and of more than 16 such that sums by group vary alike.
        """
        cells, number = metric.cells, _number_of_groups(metric)
        sums = np.zeros((metric.rows, number * cells))
        # One key for each copy of a row.
        keys = np.random.default_rng(seed).integers(0, 1 << 63, _COPIES, np.uint64)
        for part in blocks(metric, data, many=sums.shape[1]):
            block = data.part(part)
            running = np.arange(first + part.start, first + part.start + len(block.y))
            pieces = metric.pieces(block, np)
            for rows, group, amount in _spread(running, block.weights, whole, keys, number):
                for own, piece in zip(sums, pieces, strict=True):
                    _add(own.reshape(number, cells), _some(piece, rows), group, amount)
        own = data.weights
        sizes = np.array([len(own), own.sum(), (own**2).sum()])
        by_group = np.moveaxis(sums.reshape(metric.rows, number, cells), 1, 0)
        return cls(metric, by_group, sizes, whole, seed)

    def __add__(self, other: GroupedSums) -> GroupedSums:
        sizes = self.sizes + other.sizes
        return replace(self, sums=self.sums + other.sums, sizes=sizes)

    @property
    def total(self) -> np.ndarray:
        """Sums (rows, cells) over all cases."""
        return self.sums.sum(axis=0)

    def replicates(self, number: int) -> np.ndarray:
        """Return the metric (number,) of groups that are drawn with replacement."""
        groups, rows, cells = self.sums.shape
        flat = self.sums.reshape(groups, -1)
        rng, found = np.random.default_rng(self.seed), []
        at_once = max(1, _ELEMENTS // max(rows * cells, groups))
        for first in range(0, number, at_once):
            b = min(at_once, number - first)
            drawn = rng.integers(0, groups, (b, groups)) + groups * np.arange(b)[:, None]
            factors = np.bincount(drawn.ravel(), minlength=b * groups).reshape(b, groups)
            sums = multiply(flat, factors.T.astype(float)).T
            found.append(self.metric.values(sums.reshape(b, rows, cells)))
        return np.concatenate(found)

    def deviations(self) -> np.ndarray:
        """Return what each group adds to the error of a mean: their squares, to its variance."""
        costs, mass = self.sums[:, 0, 0], self.sums[:, 1, 0]
        with np.errstate(invalid="ignore"):
            return (costs - costs.sum() / mass.sum() * mass) / mass.sum()

    def chance(self) -> float:
        """Return how large an error is by chance, with residuals as large as they are.

        The root mean square of errors of what calibrated predictions would have, with what groups
        have beyond that of random sign.
        """
        expected = self.metric.calibrated(self.sums)
        residual = self.sums - expected
        residual -= residual.mean(axis=0)
        sets = int(np.clip(_ELEMENTS // residual[0].size, *_SETS))
        signs = np.random.default_rng(self.seed).choice([-1.0, 1.0], (sets, len(residual)))
        drawn = signs @ residual.reshape(len(residual), -1)
        drawn = expected.sum(axis=0) + drawn.reshape(sets, *residual.shape[1:])
        return float(np.sqrt(np.mean(self.metric.values(drawn) ** 2)))


def _number_of_groups(metric: SumMetric) -> int:
    """Return a power of two that keeps sums small, the same for all models."""
    # Borders that data make may be a few more or less.
    cells = metric.cells
    if isinstance(metric, MassHistogram):
        cells = metric.metric.groups * metric.width_cells
    room = max(_NUMBERS // (metric.rows * cells), 1)
    return min(max(1 << (room.bit_length() - 1), _LEAST), _MOST)


def _spread(
    number: np.ndarray, weights: np.ndarray, whole: bool, keys: np.ndarray, groups: int
) -> Iterator[tuple[Any, np.ndarray | None, np.ndarray]]:
    """Yield rows, the groups of these (None: all alike) and how much of their weight is there."""
    if not whole or weights.max() <= 1:
        yield slice(None), _hash(number, keys[0], groups), weights
        return
    few = weights <= _COPIES
    copies = np.where(few, weights, 0).astype(np.intp)
    rows = np.repeat(np.arange(len(weights)), copies)
    copy = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
    yield rows, _hash(number[rows], keys[copy], groups), np.ones(len(rows))
    if not few.all():
        # Evenly, but for a part whose squares add up to the count.
        rows = np.flatnonzero(~few)
        part = np.sqrt(weights[rows] / 2)
        yield rows, None, weights[rows]
        yield rows, _hash(number[rows], keys[0], groups), part
        yield rows, _hash(number[rows], keys[1], groups), -part


def _hash(number: np.ndarray, key: Any, groups: int) -> np.ndarray:
    """Return groups of running numbers, for keys: by the finalizer of SplitMix64."""
    z = number.astype(np.uint64) * _STEP
    z ^= key
    z ^= z >> np.uint64(30)
    z *= _FIRST
    z ^= z >> np.uint64(27)
    z *= _SECOND
    return (z >> np.uint64(65 - groups.bit_length())).astype(np.intp)


def _some(piece: Piece, rows: Any) -> Piece:
    """Return what some rows add."""
    cell = piece.cell if piece.cell is None or piece.cell is ... else piece.cell[rows]
    return Piece(cell, None if piece.value is None else piece.value[rows])


def _add(sums: np.ndarray, piece: Piece, group: np.ndarray | None, amount: np.ndarray) -> None:
    """Add a piece, times what is there of weights, to sums (groups, cells), in place."""
    if group is None:
        total = np.zeros((1, sums.shape[1]))
        _add(total, piece, np.zeros(len(amount), np.intp), amount)
        sums += total / len(sums)
        return
    (cell, value), (groups, cells) = piece, sums.shape
    if cell is ...:
        sums += sum_matrix(group, amount, groups) @ value
    elif cell is None:
        if value is not None:
            amount = amount * (value if value.ndim == 1 else value.sum(axis=1))
        sums[:, 0] += np.bincount(group, amount, groups)
    else:
        if cell.ndim == 2:
            group, amount = group[:, None], amount[:, None]
            value = value[:, None] if value is not None and value.ndim == 1 else value
        amount = np.broadcast_to(amount if value is None else amount * value, cell.shape)
        place = (group * cells + cell).ravel()
        sums += np.bincount(place, amount.ravel(), sums.size).reshape(sums.shape)
