"""Consistency tests for very many predictions P(y = 1), which are counted in fine cells.

The number of ones among n labels with nearly equal probabilities p, within p / 128, is taken to be
binomial: by Ehm's theorem its law is off by less than 2e-5 in total variation. Sums over cells add
over blocks of rows.

References
----------
W. Ehm (1991), Binomial approximation to the Poisson binomial distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from bayescal._core.arrays import Array
from bayescal._core.binning import MIDDLE, SINGLE, equal_width_cell, relative_cell
from bayescal._core.random.keys import generator
from bayescal.data.predictions import EPS, Predictions
from bayescal.metrics.sums import Metric, Piece, SumMetric
from bayescal.metrics.uncertainty.replicates import of_factors

#: Cells on either side of one half, down to 2^-64, and maximum bins of a metric that divide them.
_SIDE, _BINS = 64 << 7, 64
#: Denominator of decimal fractions, which many rows often have as prediction.
_DECIMALS = 1e6
#: Numbers of some draws that are held at once: 32 MiB.
_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Consistency(SumMetric):
    """The p-value of a calibration error of P(y = 1), from sums by cell of the prediction.

    No cell crosses a border of the metric's bins, if these are few, or of the ``strips`` of equal
    width of P(y = 1) and of P(y = 0). Weights are counts if they are ``whole``, which sums cannot
    show. A row with any other weight has one label, which counts that often: in a cell of differing
    weights, as many labels of equal weight are drawn as give the right variance.
    """

    metric: Metric
    draws: int
    seed: int
    whole: bool
    strips: int = 1
    rows = 4

    @property
    def _bins(self) -> int:
        """Number of the metric's bins, if they are few, else 1."""
        cells = self.metric.cells if isinstance(self.metric, SumMetric) else 1
        return cells if cells <= _BINS else 1

    @property
    def cells(self) -> int:
        return (2 * (_SIDE + self.strips) - 1) * self._bins

    def _bin(self, predicted: np.ndarray, precision: float) -> np.ndarray:
        """Find the bin (n,) of each prediction; 0 if the metric does not have a few bins."""
        ones = np.ones(len(predicted))
        if isinstance(self.metric, SumMetric) and self._bins > 1:
            data = Predictions(predicted, ones.astype(int), ones, EPS, None, precision)
            cell = self.metric.pieces(data, np)[0].cell
            if isinstance(cell, np.ndarray) and cell.ndim == 1:
                return cell
        return np.zeros(len(predicted), int)

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        cell = np.clip(relative_cell(data.probs) - MIDDLE, -_SIDE, _SIDE) + _SIDE
        if self.strips > 1:
            lower, upper = (
                equal_width_cell(p, self.strips, np, data.precision)
                for p in (data.probs, 1 - data.probs)
            )
            cell = cell + lower + self.strips - 1 - upper
        cell = cell * self._bins + self._bin(data.probs, data.precision)
        values = None, data.probs, data.y.astype(float), data.weights
        return tuple(Piece(cell, value) for value in values)

    def width(self, columns: int) -> int:
        return 1

    def points(self, sums: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Compute mean prediction, weight, and outcomes of the cells that hold rows, ascending.

        The fourth array times p (1 - p) is the variance of the outcomes: sums of squared weights,
        or of weights that are counts.
        """
        used = np.flatnonzero(sums[0])
        mass, predicted, happened, squares = sums[:, used]
        mean = np.minimum(predicted / mass, 1)
        # Rounding must neither change the mean of equal decimal fractions nor move its bin.
        decimal = np.rint(mean * _DECIMALS) / _DECIMALS
        single = np.abs(mean - mean.astype(np.float32)) <= 1e-12 * mean
        mean = np.where(
            np.abs(mean - decimal) <= np.where(single, SINGLE, 1e-12) * mean, decimal, mean
        )
        for nudge in (-1e-12, 1e-12, -4 * SINGLE, 4 * SINGLE):
            inside = self._bin(mean, EPS) == used % self._bins
            mean = np.where(inside, mean, predicted / mass * (1 + nudge))
        return np.clip(mean, 0, 1), mass, happened, mass if self.whole else squares

    def value(self, sums: Array, xp: ModuleType) -> Array:
        mean, mass, happened, squares = self.points(sums)
        y = np.repeat([1, 0], len(mean))
        data = Predictions(np.tile(mean, 2), y, np.ones(len(y)), EPS)
        rng = generator(self.seed)
        # Number of labels of equal weight that gives the variance, on average over both roundings.
        size = np.maximum(mass**2 / squares, 1)
        low = np.floor(size * (1 + 1e-12))
        size = low + (rng.random(len(low)) >= np.minimum(low * (low + 1) / size - low, 1))
        at_once, remaining = max(1, _ELEMENTS // len(y)), self.draws
        hits = happened[None]
        batches = []
        while True:
            factors = np.concatenate([hits, np.maximum(mass - hits, 0)], axis=1).T
            batches.append(of_factors(self.metric, data, np.ascontiguousarray(factors)))
            if remaining == 0:
                break
            drawn = rng.binomial(size.astype(int), mean, (min(at_once, remaining), len(mean)))
            hits, remaining = drawn * (mass / size), remaining - len(drawn)
        observed, *values = np.concatenate(batches)
        slack = 1e-12 * (1 + abs(observed))
        reached = np.sum(np.array(values) >= observed - slack)
        return np.asarray((1 + reached) / (self.draws + 1))
