"""Metrics that are functions of weighted sums over rows.

A metric defines a few sums by cell and a function of them. Everything else follows. Sums of batches
add up, bootstrap replicates are products with other weights, and gradients of the function give
standard errors. The formulas work in NumPy, on blocks of rows, and in JAX, mapped and compiled.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import numpy as np

from bayescal._core.arrays import AnyArray, Array
from bayescal._core.execution.precision import float64
from bayescal._core.lazy import jax, jnp
from bayescal._core.numerics import effective_size
from bayescal._core.shapes import Float, Int, Shaped
from bayescal.data.blocks.predictions import PredictionBlocks
from bayescal.data.predictions import Predictions
from bayescal.data.rows import Sums
from bayescal.data.weights import are_no_counts, are_ones

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Arrays by their axes.
ManySums: TypeAlias = 'Float[np.ndarray, "*sets sums cells"]'
PerDraw: TypeAlias = 'Float[np.ndarray, " draws"]'
#: Numbers in a block of rows on the host, which fit into the processor's cache.
_BLOCK = 1 << 16
#: Numbers in a block that is multiplied by many columns.
_WIDE_BLOCK = 1 << 20


class Piece(NamedTuple):
    """What each row of data adds to one row of sums, before it is multiplied by its weight."""

    #: Cells of the numbers, (n,) or (n, g); None for cell 0, and ... for one number in each cell.
    cell: AnyArray
    #: The numbers, (n,) for one cell and (n, g) or (n, 1) for g cells; None means ones.
    value: AnyArray


class Metric:
    """A metric of checked predictions; its fields are its options."""

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value that the metric can have."""
        return 0.0, 1.0


class SumMetric(Metric, ABC):
    """A metric that is a function of weighted sums: ``pieces``, ``value`` and ``cells``."""

    #: Number of rows of sums.
    rows: ClassVar[int]

    @property
    def cells(self) -> int:
        """Number of cells of each row of sums."""
        return 1

    @abstractmethod
    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        """Compute what rows of data add to each row of sums; ``xp`` is NumPy or jax.numpy."""

    def add(self, sums: Float[np.ndarray, "sums cells"], block: Predictions) -> None:
        """Add a block of rows to the sums (rows, cells), in place."""
        add_pieces(sums, self.pieces(block, np), block.weights)

    @abstractmethod
    def value(self, sums: Float[Array, "sums cells"], xp: ModuleType) -> Float[Array, ""]:
        """Compute the metric from sums (rows, cells)."""

    def values(self, sums: Float[np.ndarray, "sets sums cells"]) -> Float[np.ndarray, " sets"]:
        """Compute the metric (b,) from many sums (b, rows, cells)."""
        return np.array([self.value(part, np) for part in sums])

    def gradient(self, sums: Float[np.ndarray, "sums cells"]) -> Float[np.ndarray, "sums cells"]:
        """Differentiate the metric with respect to sums."""
        with float64():
            return np.asarray(_gradient(self, sums.shape)(jnp.asarray(sums)))

    def calibrated(self, sums: ManySums) -> ManySums:
        """Replace outcomes in sums (..., rows, cells) by what the predictions expect."""
        raise NotImplementedError(f"{type(self).__name__} does not measure calibration")

    def width(self, columns: int) -> int:
        """Estimate how many numbers are held for each row while sums are computed."""
        return columns + 1

    def bound(self, sums: Float[np.ndarray, "sums cells"]) -> float:
        """Bound the error of the value that is due to cells."""
        return 0.0


class MeanMetric(SumMetric):
    """A weighted mean over rows; subclasses define the cost of each row."""

    rows = 2

    @abstractmethod
    def cost(self, data: Predictions, xp: ModuleType) -> Float[Array, " rows"]:
        """Compute the cost of each row, (n,)."""

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        return Piece(None, self.cost(data, xp)), Piece(None, None)

    def value(self, sums: Float[Array, "sums cells"], xp: ModuleType) -> Float[Array, ""]:
        return sums[0, 0] / sums[1, 0]

    def gradient(self, sums: Float[np.ndarray, "sums cells"]) -> Float[np.ndarray, "sums cells"]:
        return np.array([[1.0], [-sums[0, 0] / sums[1, 0]]]) / sums[1, 0]


#: Predictions, outcomes and weights that are binned together.
Group: TypeAlias = tuple[AnyArray, AnyArray, AnyArray]


class BinMetric(Metric, ABC):
    """A function of sums (3, groups * bins) over bins; each group has separate bins."""

    bins: int

    @property
    @abstractmethod
    def groups(self) -> int:
        """Number of groups."""

    @abstractmethod
    def split(self, data: Predictions, xp: ModuleType) -> Iterator[Group]:
        """Yield the rows of each group; with JAX all rows, with weights of zero for the others."""

    @abstractmethod
    def by_cell(
        self, data: Predictions, cells: int | np.ndarray, xp: ModuleType
    ) -> tuple[Piece, Piece, Piece]:
        """Compute weights, predictions and outcomes by cell, group after group.

        ``cells`` are of equal width, or have the given borders.
        """

    @abstractmethod
    def finish(self, sums: Array, ratio: Array | float | None, xp: ModuleType) -> Array:
        """Compute the metric from sums; ``ratio`` is the number of rows per unit of weight.

        Sums (b, 3, groups * bins) and ratios (b, 1) give values (b,).
        """


class WidthMetric(BinMetric, SumMetric):
    """A function of sums over bins of equal width."""

    rows = 3

    @property
    def cells(self) -> int:
        return self.groups * self.bins

    def pieces(self, data: Predictions, xp: ModuleType) -> tuple[Piece, ...]:
        return self.by_cell(data, self.bins, xp)

    def add(self, sums: Float[np.ndarray, "sums cells"], block: Predictions) -> None:
        pieces = self.pieces(block, np)
        (cell, _), (_, predicted), (_, happened) = pieces[:3]
        if cell.ndim == 2 or not are_ones(block.weights):
            add_pieces(sums, pieces, block.weights)
            return
        # Counting is most of the work, so rows with and without the outcome are counted at once.
        cells = len(sums[0])
        without, having = np.bincount(cell + cells * happened, minlength=2 * cells).reshape(2, -1)
        sums[:3] += without + having, np.bincount(cell, predicted, cells), having
        add_pieces(sums[3:], pieces[3:], block.weights)

    def value(
        self, sums: Float[Array, "*sets sums cells"], xp: ModuleType
    ) -> Float[Array, " *sets"]:
        return self.finish(sums, None, xp)

    def values(self, sums: Float[np.ndarray, "sets sums cells"]) -> Float[np.ndarray, " sets"]:
        return np.asarray(self.value(sums, np))

    def calibrated(self, sums: ManySums) -> ManySums:
        return as_predicted(sums)


def as_predicted(sums: ManySums) -> ManySums:
    """Replace outcomes, the third row of sums over bins, by predictions, the second."""
    return sums[..., [0, 1, 1, *range(3, sums.shape[-2])], :]


class DirectMetric(Metric, ABC):
    """A metric that needs all rows at once, because it sorts them or compares pairs."""

    @abstractmethod
    def compute(self, data: Predictions, xp: ModuleType) -> Float[Array, ""]:
        """Compute the metric; ``xp`` is NumPy or jax.numpy."""

    def compute_in_blocks(self, data: PredictionBlocks) -> float:
        """Compute the metric of predictions in blocks, or raise if it needs all rows at once."""
        return data.probs

    def compute_many(self, data: Predictions, factors: Shaped[np.ndarray, "rows draws"]) -> PerDraw:
        """Compute the metric (b,) for factors (n, b) of the weights."""
        values = []
        for factor in factors.T:
            if data.whole:
                rows, weights = np.flatnonzero(factor), factor[factor > 0]
            else:
                rows = np.repeat(np.arange(len(factor)), factor.astype(int))
                weights = data.weights[rows]
            values.append(compute(self, data.part(rows)._replace(weights=weights)))
        return np.array(values)


def compute(metric: Metric, data: Predictions | PredictionBlocks, xp: ModuleType = np) -> AnyArray:
    """Compute a metric: a float with NumPy, a scalar that can be mapped with jax.numpy.

    Of predictions on an accelerator, only sums are copied to the host.
    """
    direct = isinstance(metric, DirectMetric)
    if not (direct or isinstance(metric, SumMetric)):
        raise TypeError(f"no such kind of metric: {type(metric).__name__}")
    if isinstance(data, PredictionBlocks):
        if direct:
            value = metric.compute_in_blocks(data)
        else:
            sums = data.total(partial(_named_sums, metric))["sums"]
            value = float(metric.value(sums, np))
        data.blocks.finish()
        return value
    on_device = xp is np and isinstance(data.probs, jax.Array)
    with float64() if on_device else nullcontext():
        if direct:
            result = metric.compute(data, jnp if on_device else xp)
        else:
            sums = collect_on_device(metric, data) if on_device else collect(metric, data, xp)
            result = metric.value(np.asarray(sums) if on_device else sums, xp)
        return float(result) if xp is np else result


def _named_sums(metric: SumMetric, data: Predictions) -> Sums:
    return {"sums": collect(metric, data)}


def collect(
    metric: SumMetric, data: Predictions, xp: ModuleType = np
) -> Float[AnyArray, "sums cells"]:
    """Compute the sums (rows, cells) of a metric, which add up over batches of rows."""
    if xp is not np:
        pieces = metric.pieces(data, xp)
        return jnp.stack([_segment_sum(p, data.weights, metric.cells) for p in pieces])
    sums = np.zeros((metric.rows, metric.cells))
    for part in blocks(metric, data):
        metric.add(sums, data.part(part))
    return sums


@partial(jax.jit, static_argnums=0)
def collect_on_device(metric: SumMetric, data: Predictions) -> Float[jax.Array, "sums cells"]:
    """Compute the sums of a metric in one compiled program."""
    return jnp.asarray(collect(metric, data, jnp))


def blocks(metric: SumMetric, data: Predictions, columns: int = 1) -> Iterator[slice]:
    """Yield blocks of rows; they are larger if many ``columns`` are computed from each."""
    n, numbers = len(data.y), _BLOCK if columns < _BLOCK else _WIDE_BLOCK
    step = max(numbers // max(metric.width(data.probs.size // n), 1), 16)
    return (slice(first, first + step) for first in range(0, n, step))


def collect_many(
    metric: SumMetric, data: Predictions, factors: Shaped[np.ndarray, "rows draws"]
) -> Float[np.ndarray, "draws sums cells"]:
    """Compute the sums (b, rows, cells) for factors (n, b) of the weights."""
    sums = np.zeros((metric.rows, metric.cells, factors.shape[1]))
    for part in blocks(metric, data, _WIDE_BLOCK):
        block = data.part(part)
        weights = factors[part] * block.weights[:, None]
        for row, piece in zip(sums, metric.pieces(block, np), strict=True):
            _add_many(row, piece, weights)
    return np.moveaxis(sums, 2, 0)


def standard_error(
    metric: SumMetric, data: Predictions, other: Predictions | None = None
) -> tuple[float, float]:
    r"""Compute standard error and skewness of a metric by the delta method; 0 without a slope.

    With predictions of another model for the same rows, compute both for the difference. The metric
    is linearized in its sums. Let :math:`f_i` be the product of the gradient and the numbers of row
    i. The squared standard error is :math:`\sum_i w_i f_i^2` for weights that are counts (all
    integers), and :math:`\sum_i w_i^2 f_i^2` for others. Skewness is the corresponding sum of third
    powers over the cube of the standard error. If rows lie in clusters, :math:`w_i f_i` are added
    up by cluster first.
    """
    influence = _influence(metric, data)
    if other is not None:
        influence -= _influence(metric, other)
    cases, weights = np.ones(1), data.weights
    if data.clusters is not None:
        terms = np.bincount(data.clusters, weights * influence)
    elif data.whole:
        cases, terms = weights, influence
    else:
        terms = weights * influence
    cases = np.broadcast_to(cases, terms.shape)
    error = math.sqrt(np.einsum("i,i,i->", cases, terms, terms))
    cubes = float(np.einsum("i,i,i,i->", cases, terms, terms, terms))
    return error, cubes / error**3 if error**3 > 0 else 0.0


@lru_cache(64)
def _gradient(metric: SumMetric, _shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Compile the gradient with respect to sums; of one shape, equal metrics have one value."""
    return jax.jit(jax.grad(lambda sums: metric.value(sums, jnp)))


def _influence(metric: SumMetric, data: Predictions) -> Float[np.ndarray, " rows"]:
    """Compute the product of the metric's gradient and the numbers of each row."""
    slope = metric.gradient(collect(metric, data))
    influence = np.zeros(len(data.y))
    for rows in blocks(metric, data):
        block = influence[rows]
        for row, piece in zip(slope, metric.pieces(data.part(rows), np), strict=True):
            part = row[0] if piece.cell is None else row[piece.cell]
            part = part if piece.value is None else part * piece.value
            block += part if np.ndim(part) < 2 else part.sum(axis=1)
    return influence


def size_pieces(cell: Array | None, weights: Array) -> tuple[Piece, Piece]:
    """Compute the pieces that :func:`sizes` needs: squares, and whether weights are integers."""
    row_weights = weights if cell is None or cell.ndim == 1 else weights[:, None]
    return Piece(cell, row_weights), Piece(None, are_no_counts(weights).astype(weights.dtype))


def sizes(
    mass: Float[Array, " *cells"],
    squares: Float[Array, " *cells"],
    fractions: Float[Array, " *sets"],
    xp: ModuleType,
) -> Float[Array, " *cells"]:
    """Compute numbers of rows: sums of weights that are counts, else effective sample sizes."""
    return xp.where(fractions > 0, effective_size(mass, squares, xp), mass)


def add_pieces(
    sums: Float[np.ndarray, "sums cells"],
    pieces: Iterable[Piece],
    weights: Float[np.ndarray, " rows"],
) -> None:
    """Add a block's pieces to sums (rows, cells), in place."""
    for row, piece in zip(sums, pieces, strict=True):
        _add(row, piece, weights)


def _add(row: np.ndarray, piece: Piece, weights: np.ndarray) -> None:
    """Add a block's piece to a row of sums, in place."""
    cell, value = piece
    ones = are_ones(weights)
    if cell is None:
        if value is None or ones:
            row[0] += (weights if value is None else value).sum()
        else:  # in one thread, unlike a product of matrices
            row[0] += np.einsum("i,i...->", weights, value)
        return
    if cell is ...:
        row += value.sum(axis=0) if ones else weights @ value
        return
    if not ones:
        row_weights = weights if cell.ndim == 1 else weights[:, None]
        value = row_weights if value is None else row_weights * value
    if value is not None and cell.ndim == 2:
        value = np.broadcast_to(value, cell.shape).ravel()
    row += np.bincount(cell.ravel(), value, minlength=len(row))


def _add_many(
    sums: Float[np.ndarray, "cells draws"], piece: Piece, weights: Float[np.ndarray, "rows draws"]
) -> None:
    """Add a block's piece, times each column of weights (n, b), to sums (cells, b), in place."""
    cell, value = piece
    if cell is None:
        sums[0] += weights.sum(axis=0) if value is None else multiply(value, weights)
    elif cell is ...:
        sums += value.T @ weights
    else:
        sums += sum_matrix(cell, value, len(sums)) @ weights


def multiply(
    value: Shaped[np.ndarray, " rows *columns"], weights: Float[np.ndarray, "rows draws"]
) -> Float[np.ndarray, "*columns draws"]:
    """Sum values (n, ...) times weights (n, b); a weight of zero drops infinite values."""
    finite = np.isfinite(value)
    if finite.all():
        return value.T @ weights
    sums = np.where(finite, value, 0).T @ weights
    return np.where((~finite).T.astype(float) @ (weights > 0) > 0, np.inf, sums)


def sum_matrix(
    cell: Int[np.ndarray, " rows *parts"],
    value: Shaped[np.ndarray, " rows *columns"] | None,
    cells: int,
) -> csr_array:
    """Build the sparse matrix (cells, n) that sums the values of rows by cell."""
    from scipy.sparse import csr_array

    n = len(cell)
    values = np.broadcast_to(1.0 if value is None else value, cell.shape)
    case = np.arange(n) if cell.ndim == 1 else np.repeat(np.arange(n), cell.shape[1])
    return csr_array((values.ravel(), (cell.ravel(), case)), shape=(cells, n))


def _segment_sum(
    piece: Piece, weights: Float[jax.Array, " rows"], cells: int
) -> Float[jax.Array, " cells"]:
    cell, value = piece
    shape = weights.shape if value is None else value.shape
    if cell is not None and cell is not ...:
        shape = cell.shape
    row_weights = weights if len(shape) == 1 else weights[:, None]
    # A weight of zero drops a row, even if it adds infinity.
    added = row_weights if value is None else jnp.where(row_weights > 0, row_weights * value, 0)
    added = jnp.broadcast_to(added, shape)
    if cell is ...:
        return added.sum(axis=0)
    if cell is None:
        cell = jnp.zeros(shape, jnp.int32)
    return jax.ops.segment_sum(added.ravel(), cell.ravel(), cells)
