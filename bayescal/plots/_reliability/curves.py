"""Estimates, with bands, of the observed frequency as a function of the prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from bayescal._core.binning import begins_score, equal_width_cell
from bayescal._core.numerics import effective_size, ignoring_underflow
from bayescal._core.random.keys import generator
from bayescal.data.checks import check_choice, check_level
from bayescal.data.predictions import EPS, Predictions
from bayescal.data.weights import as_counts
from bayescal.metrics import ReliabilityCurve, reliability_curve, smooth_ece

#: Number of sets of labels drawn for a band of consistency.
RESAMPLES = 200
#: Number of distinct predictions above which bands are computed with neighbors pooled.
_MAX_CELLS = 4096
#: Number of cells of the grid for kernels; every _STRIDE-th node is drawn.
_GRID, _STRIDE = 2000, 5
#: The narrowest default kernel, in cells, so that the grid resolves it. A kernel with a standard
#: deviation of more than the latter is constant.
_NARROWEST, _WIDEST = 2, 2.0
#: A smooth curve ends where the kernels add up to less than one row, except for rounding.
_MIN_ROWS = 1 - 1e-9

_EMPTY = np.empty(0)


@dataclass(frozen=True)
class Options:
    """Options of an estimate; what does not depend on the data is checked here."""

    method: str
    band: str
    level: float | None
    bins: int
    binning: Literal["equal_width", "equal_mass"]
    bandwidth: float | None
    seed: int

    def __post_init__(self) -> None:
        check_choice(self.method, "method", ("binned", "corp", "smooth"))
        check_choice(self.band, "band", ("consistency", "confidence"))
        if self.level is not None:
            check_level(self.level)
        if self.bandwidth is not None and not 0 < self.bandwidth < np.inf:
            raise ValueError(f"bandwidth must be positive and finite, got {self.bandwidth:g}")


class Estimate(NamedTuple):
    """A curve (m,), NaN where it is unknown, and the ends (r,) of its band at other predictions.

    Without a level the band is empty.
    """

    x: np.ndarray
    y: np.ndarray
    at: np.ndarray = _EMPTY
    lower: np.ndarray = _EMPTY
    upper: np.ndarray = _EMPTY


class _CurveCells(NamedTuple):
    """Cells in ascending order: mean predictions (m,), numbers of rows and of events in them."""

    predicted: np.ndarray
    cases: np.ndarray
    happened: np.ndarray


class CurveEvents(NamedTuple):
    """Probabilities (n,) of events, whether they happened (as numbers), and numbers of rows.

    Weights that are not counts are scaled to add up to as many rows as they are worth.
    """

    predicted: np.ndarray
    happened: np.ndarray
    weights: np.ndarray
    #: Machine epsilon of the type of the given probabilities.
    precision: float

    def counted(self) -> CurveEvents:
        """Return events whose weights are counts, for random draws of rows."""
        counts = as_counts(self.weights, self.predicted, self.happened)
        used = counts > 0
        return CurveEvents(self.predicted[used], self.happened[used], counts[used], self.precision)

    def curve(self, bins: int, binning: Literal["equal_width", "equal_mass"]) -> ReliabilityCurve:
        """Compute the reliability curve; ties stay together, since bands need counts in bins."""
        happened = self.happened.astype(int)
        data: Any = Predictions(
            self.predicted, happened, self.weights, EPS, precision=self.precision
        )
        return reliability_curve(data, data.y, bins=bins, binning=binning, ties="together")

    def histogram(self, bins: int) -> np.ndarray:
        """Compute the proportion (bins,) of rows in bins of equal width."""
        cell = equal_width_cell(self.predicted, bins, np, self.precision)
        return np.bincount(cell, self.weights, bins) / self.weights.sum()


def read_events(data: Predictions, kind: str) -> CurveEvents:
    """Read the events of one model."""
    probs, y = data.probs, data.y
    # Let the metric raise for a wrong kind.
    reliability_curve(probs, y, kind=cast("Any", kind), weights=data.weights)
    if kind == "binary":
        predicted, happened = (probs if probs.ndim == 1 else probs[:, 1]), y == 1
    else:
        if probs.ndim == 1:
            probs = np.stack([1 - probs, probs], axis=1)
        predicted, happened = probs.max(axis=1), probs.argmax(axis=1) == y
    weights = data.weights
    if not data.whole:
        total = weights.sum()
        weights = weights * (max(1.0, np.rint(effective_size(total, weights @ weights))) / total)
    return CurveEvents(predicted, happened.astype(float), weights, data.precision)


def estimate(events: CurveEvents, options: Options) -> Estimate:
    """Estimate the curve of one model."""
    methods = {"binned": _binned, "corp": _corp, "smooth": _smooth}
    return methods[options.method](events, options)


def _binned(events: CurveEvents, options: Options) -> Estimate:
    curve = events.curve(options.bins, options.binning)
    x, observed = curve.predicted, curve.observed
    if options.level is None:
        return Estimate(x, observed)
    if options.band == "confidence":
        return Estimate(x, observed, x, *_wilson(observed, curve.weight, options.level))
    from scipy.stats import binom

    cases = np.maximum(np.rint(curve.weight), 1)
    lower, upper = (binom.ppf(q, cases, np.clip(x, 0, 1)) / cases for q in _tails(options.level))
    return Estimate(x, observed, x, lower, upper)


def _wilson(
    frequency: np.ndarray, cases: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the ends of Wilson's intervals, which are also valid for fractional counts."""
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    center = (frequency * cases + z**2 / 2) / (cases + z**2)
    half = z * np.sqrt(frequency * (1 - frequency) * cases + z**2 / 4) / (cases + z**2)
    # At 0 and 1 they end exactly there, except for rounding.
    return np.clip(center - half, 0, frequency), np.clip(center + half, frequency, 1)


def _corp(events: CurveEvents, options: Options) -> Estimate:
    predicted, index = _scores(events)
    cells = _count(events, index, len(predicted))
    curve = _pool_adjacent_violators(cells.happened, cells.cases)
    # The ends of a block are enough to draw it.
    change = np.diff(curve) != 0
    ends = np.append(True, change) | np.append(change, True)
    x, y = predicted[ends], curve[ends]
    if options.level is None:
        return Estimate(x, y)
    if options.band == "confidence":
        from bayescal.calibrators import Isotonic

        count = len(predicted)
        at = predicted[np.linspace(0, count - 1, min(count, _MAX_CELLS)).astype(int)]
        isotonic = Isotonic(classes=[0, 1])
        isotonic.fit(events.predicted, events.happened.astype(int), events.weights)
        return Estimate(x, y, at, *isotonic.predict_interval(at, options.level))
    events = events.counted()
    predicted, index = _scores(events)
    cells = _count(events, index, len(predicted))
    if len(predicted) > _MAX_CELLS:
        before = np.cumsum(cells.cases) - cells.cases
        pool = np.unique(before * _MAX_CELLS // cells.cases.sum(), return_inverse=True)[1]
        cells = _count(events, pool[index], int(pool[-1]) + 1)
    drawn = [_pool_adjacent_violators(h, cells.cases) for h in _draw_happened(cells, options.seed)]
    return Estimate(x, y, cells.predicted, *np.quantile(drawn, _tails(options.level), axis=0))


def _scores(events: CurveEvents) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct predictions (m,), and the index (n,) of that of each row."""
    predicted, index = np.unique(events.predicted, return_inverse=True)
    begins = begins_score(predicted)
    return predicted[begins], (np.cumsum(begins) - 1)[index]


def _pool_adjacent_violators(happened: np.ndarray, cases: np.ndarray) -> np.ndarray:
    from sklearn.isotonic import isotonic_regression

    return isotonic_regression(happened / cases, sample_weight=cases)


@ignoring_underflow
def _smooth(events: CurveEvents, options: Options) -> Estimate:
    cells = _nodes(events)
    width = options.bandwidth
    if width is None:
        happened = events.happened.astype(int)
        error = smooth_ece(events.predicted, happened, weights=events.weights)
        width = max(error, _NARROWEST / _GRID)
    x, kernel = np.linspace(0, 1, _GRID + 1)[::_STRIDE], _kernel(min(width, _WIDEST))

    def rows(cells: _CurveCells) -> np.ndarray:
        mass = kernel @ cells.cases
        return np.where(mass >= _MIN_ROWS, mass, np.nan)

    curve = np.minimum(kernel @ cells.happened / rows(cells), 1)
    if options.level is None:
        return Estimate(x, curve)
    cells = _nodes(events.counted())
    if options.band == "confidence":
        size = rows(cells) ** 2 / (kernel**2 @ cells.cases)
        return Estimate(x, curve, x, *_wilson(curve, size, options.level))
    drawn = np.minimum(_draw_happened(cells, options.seed) @ kernel.T / rows(cells), 1)
    return Estimate(x, curve, x, *np.quantile(drawn, _tails(options.level), axis=0))


def _nodes(events: CurveEvents) -> _CurveCells:
    """Return cells around the nodes of the grid."""
    return _count(events, np.rint(events.predicted * _GRID).astype(np.intp), _GRID + 1)


def _kernel(width: float) -> np.ndarray:
    """Compute the weights (drawn, m) of cells at drawn nodes: Gaussians, reflected at 0 and 1."""
    at = np.linspace(0, 1, _GRID + 1)
    x, farthest = at[::_STRIDE, None], math.ceil(4 * width)
    kernel = np.zeros((len(x), len(at)))
    for image in [sign * at + 2 * i for i in range(-farthest, farthest + 1) for sign in (-1, 1)]:
        kernel += np.exp(-(((x - image) / width) ** 2) / 2)
    return kernel


def _count(events: CurveEvents, index: np.ndarray, cells: int) -> _CurveCells:
    predicted, happened, weights = events[:3]
    cases = np.bincount(index, weights, cells)
    total = np.bincount(index, weights * predicted, cells)
    mean = np.clip(total / np.where(cases > 0, cases, 1), 0, 1)
    return _CurveCells(mean, cases, np.bincount(index, weights * happened, cells))


def _draw_happened(cells: _CurveCells, seed: int) -> np.ndarray:
    """Draw numbers of events (resamples, m) from the predictions."""
    shape = RESAMPLES, len(cells.predicted)
    return generator(seed).binomial(cells.cases.astype(np.int64), cells.predicted, shape)


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2
