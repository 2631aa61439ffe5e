"""Sums by group of cases: what an interval needs of very many cases, in one pass.

Each case belongs to one of some groups, by a hash of its running number. As cases are independent,
so are groups, and groups drawn with replacement say how far sums vary, as cases drawn would: the
variance is estimated from as many squares as there are groups. Sums by group of blocks of cases
add, and models of the same cases have the same groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import Array, ArrayLike, UserData
from bayescal._core.binning import quantile_borders
from bayescal._core.generators import generator
from bayescal.data.membership import check_clusters
from bayescal.data.predictions import Predictions
from bayescal.data.weights import ones
from bayescal.metrics.calibration.mass import Histogram, OrderedMetric
from bayescal.metrics.sums import (
    Metric,
    Piece,
    SumMetric,
    blocks,
    multiply,
    standard_error,
    sum_matrix,
)

#: Rows from which on groups are drawn, not cases.
MANY = 100_000
#: Groups at most and at least, and numbers that their sums should not exceed: 32 MiB.
_MOST, _LEAST, _NUMBERS = 1024, 64, 1 << 22
#: Rows of sums of a histogram, for which there is room.
_ROWS = 6
#: Counts up to which each case of a row has a group of its own.
_COPIES = 16
#: Sets of residuals whose signs are drawn, at least and at most; numbers of replicates at once.
_SETS, _ELEMENTS = (64, 512), 1 << 22
#: Predictions that borders of cells are found from, and cells for each bin.
_SAMPLE, _FINE = 1 << 16, 32
#: Metrics that correct for chance, or are judged, as if rows were independent.
UNCLUSTERED = ("canonical_ece", "debiased_ece", "skce")
_STEP, _FIRST, _SECOND = (
    np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


#: Rows, the groups of these (None: all alike) and how much of their weight is there.
_Share: TypeAlias = tuple[slice | np.ndarray, np.ndarray | None, np.ndarray]


def grouped(metric: Metric, data: Predictions | None = None) -> SumMetric | None:
    """Return a metric, or what comes near it, as a function of sums; None if there is no such.

    Bins of equal mass are cut from cells whose borders are quantiles of the predictions: 32 for
    each bin, fewer where there are many classes. Without data, as these come in blocks, they are of
    equal width.
    """
    if isinstance(metric, SumMetric):
        return metric
    if not isinstance(metric, OrderedMetric):
        return None
    room = _NUMBERS // (_ROWS * metric.groups * _MOST // 4)
    if data is None:
        return metric.histogram(max(metric.bins, min(Histogram.width_cells, room)))
    cells = max(metric.bins, min(_FINE * metric.bins, room))
    step = -(-data.probs.size // _SAMPLE)
    some = data.part(slice(None, None, step))
    predicted = np.concatenate([each for each, *_ in metric.split(some, np)])
    return metric.histogram(cells, quantile_borders(predicted, cells))


def in_clusters(data: Predictions, groups: UserData, weights: ArrayLike | None) -> Predictions:
    """Return predictions whose rows lie in clusters; ``weights`` are those that the user gave."""
    n = len(data.y) if weights is None else np.shape(weights)[0]
    return data._replace(clusters=check_clusters(groups, n, weights))


def equal_rows_once(data: Predictions) -> Predictions:
    """Return one row for each cluster, if rows of a cluster are equal and clusters weigh alike.

    These rows are independent, as are clusters of one row with weights that are no counts.
    """
    clusters = data.clusters
    if clusters is None:
        return data
    first = np.unique(clusters, return_index=True)[1]
    if len(first) == len(clusters) and not data.whole:
        return data._replace(clusters=None)
    one, masses = first[clusters], np.bincount(clusters, data.weights)
    alike = np.ptp(masses) <= 1e-12 * masses[0]
    if not (alike and (data.probs == data.probs[one]).all() and (data.y == data.y[one]).all()):
        return data
    once = {"probs": data.probs[first], "y": data.y[first], "weights": ones(len(first))}
    return data._replace(**once, clusters=None)


def spread_of_share(metric: SumMetric, data: Predictions, share: float, level: float) -> float:
    """Return the variance of a share, for a variance of one of each row, of rows in clusters.

    It is the squared standard error over p (1 - p), at least that of independent rows, times what a
    quantile of Student's law with the degrees of freedom of the clusters has beyond one with those
    of as many independent rows. A share of zero or one does not tell it: then all rows of a cluster
    are taken as equal.
    """
    from scipy.special import stdtrit

    assert data.clusters is not None
    masses = np.bincount(data.clusters, data.weights)
    if len(masses) == 1 or not 0 < share < 1:
        return float(masses @ masses / masses.sum() ** 2)
    error, _ = standard_error(metric, data)
    rows = float(data.weights @ data.weights) / masses.sum() ** 2
    spread = max(error**2 / (share * (1 - share)), rows)
    clusters, cases = stdtrit(np.maximum([len(masses) - 1, 1 / spread - 1], 1), (1 + level) / 2)
    return float(spread * max(clusters / cases, 1) ** 2)


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
        one, and of more than 16 such that sums by group vary alike. Where rows lie in clusters,
        each group holds whole clusters: one, unless there are more clusters than groups.
        """
        cells, number = metric.cells, _number_of_groups(metric)
        clusters = data.clusters
        count = number + 1 if clusters is None else int(clusters.max()) + 1
        few = count <= number
        number = min(count, number)
        sums = np.zeros((metric.rows, number * cells))
        # One key for each copy of a row.
        keys = np.random.default_rng(seed).integers(0, 1 << 63, _COPIES, np.uint64)
        for part in blocks(metric, data, many=sums.shape[1]):
            block = data.part(part)
            running = np.arange(first + part.start, first + part.start + len(block.y))
            pieces = metric.pieces(block, np)
            spread: Iterable[_Share]
            if few:
                spread = [(slice(None), block.clusters, block.weights)]
            elif block.clusters is not None:
                spread = _spread(block.clusters, block.weights, False, keys, number)
            else:
                spread = _spread(running, block.weights, whole, keys, number)
            for rows, group, amount in spread:
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
        rng, found = generator(self.seed), []
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
        groups = len(self.sums)
        residual = self.sums - self.metric.calibrated(self.sums)
        residual -= residual.mean(axis=0)
        residual *= math.sqrt(groups / max(groups - 1, 1))
        sets = int(np.clip(_ELEMENTS // residual[0].size, *_SETS))
        return float(np.sqrt(np.mean(self._with_signs(residual, sets) ** 2)))

    def p_value(self, draws: int) -> float:
        """Return the share of draws in which the error is as large, if residuals are chance.

        Under calibration the residuals of a group have mean zero: in each draw they are multiplied
        by a random sign. The data themselves are counted among the draws.
        """
        residual = self.sums - self.metric.calibrated(self.sums)
        value = float(self.metric.value(self.total, np))
        slack = 1e-12 * (1 + abs(value))
        reached = np.count_nonzero(self._with_signs(residual, draws) >= value - slack)
        return float(reached + 1) / (draws + 1)

    def _with_signs(self, residual: np.ndarray, draws: int) -> np.ndarray:
        """Return the metric (draws,) of expected sums, and residuals times random signs."""
        expected = self.metric.calibrated(self.sums).sum(axis=0)
        flat = residual.reshape(len(residual), -1)
        rng, found = generator(self.seed), []
        at_once = max(1, _ELEMENTS // max(flat.shape))
        for first in range(0, draws, at_once):
            signs = rng.choice([-1.0, 1.0], (min(at_once, draws - first), len(flat)))
            sums = expected + (signs @ flat).reshape(-1, *expected.shape)
            found.append(self.metric.values(sums))
        return np.concatenate(found)


def _number_of_groups(metric: SumMetric) -> int:
    """Return a power of two that keeps sums small, the same for all models."""
    # Borders that data make may be a few more or less.
    cells = metric.cells
    if isinstance(metric, Histogram):
        cells = metric.metric.groups * metric.width_cells
    room = max(_NUMBERS // (metric.rows * cells), 1)
    return min(max(1 << (room.bit_length() - 1), _LEAST), _MOST)


def _spread(
    number: np.ndarray, weights: np.ndarray, whole: bool, keys: np.ndarray, groups: int
) -> Iterator[_Share]:
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


def _hash(number: np.ndarray, key: Array, groups: int) -> np.ndarray:
    """Return groups of running numbers, for keys: by the finalizer of SplitMix64."""
    z = number.astype(np.uint64) * _STEP
    z ^= key
    z ^= z >> np.uint64(30)
    z *= _FIRST
    z ^= z >> np.uint64(27)
    z *= _SECOND
    return (z >> np.uint64(65 - groups.bit_length())).astype(np.intp)


def _some(piece: Piece, rows: slice | np.ndarray) -> Piece:
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
            amount = amount * value
        sums[:, 0] += np.bincount(group, amount, groups)
    else:
        if cell.ndim == 2:
            group, amount = group[:, None], amount[:, None]
        amount = np.broadcast_to(amount if value is None else amount * value, cell.shape)
        place = (group * cells + cell).ravel()
        sums += np.bincount(place, amount.ravel(), sums.size).reshape(sums.shape)
