"""Rows of a fit in blocks: properties of all rows, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import on_host
from bayescal._core.execution.chunks import slices
from bayescal._core.numerics import FLOOR
from bayescal.data.blocks.stream import Block, Blocks
from bayescal.data.checks import as_numpy
from bayescal.data.kept_rows import KeptRows
from bayescal.data.label_names import column_names, find_positions, in_order, of_one_kind
from bayescal.data.labels import label_array
from bayescal.data.language_models.top_logits import pack
from bayescal.data.rows import Merge, Rows, Sums, add, greatest, merge_parts
from bayescal.data.scores import Domain, Inputs, check_options, convert, widen
from bayescal.data.weights import check_weights_of

#: Called with rows: scores in the domain of a calibrator, labels as positions, positive weights.
OfRows: TypeAlias = Callable[[Rows], Sums]
#: Number of rows, and maximum of numbers, in the sample from which fits start.
_SAMPLE, _NUMBERS = 1 << 18, 1 << 22
#: Maximum of numbers that are processed at once, beside the block that holds them; at least as
#: large as the sample.
AT_WORK = 1 << 22


@dataclass(frozen=True)
class Reader:
    """Conversion of blocks to scores in a domain, positions of labels, and weights."""

    inputs: Inputs
    domain: Domain
    names: list[object] | None
    columns: int
    classes: np.ndarray
    least: np.ndarray | None
    #: Exponent of the power of two by which weights are multiplied.
    power: int

    def parts(self, block: Block, numbers: int) -> Iterator[Rows]:
        """Yield the rows of positive weight in parts of at most ``numbers`` numbers."""
        given = block_rows(block, self.names, self.inputs, self.columns, self.classes)
        given, y, weights = labeled(given, block, self.power)
        y = find_positions(y, self.classes)
        check_options(given, y, weights, self.inputs)
        for part in slices(len(given), max(1, numbers // self.columns)):
            scores = convert(given[part], self.inputs, self.domain, self.least)[0]
            yield Rows(scores, y[part], weights[part])


@dataclass(frozen=True)
class RowBlocks:
    """Rows in blocks, a :class:`Source`, and the results of a first pass over them."""

    blocks: Blocks
    reader: Reader
    #: Numbers of rows and classes, the sum of weights, and the sum by class (k,).
    n: int
    k: int
    weight: float
    mass: np.ndarray
    #: Whether weights are integers, and the sum of their squares.
    whole: bool
    squares: float
    #: The largest absolute score and, for one column, the smallest and the largest score.
    largest: float
    low: float
    high: float
    #: A sample of the rows, drawn evenly; and a smaller one of rows as the user gave them.
    sample: Rows
    kept: KeptRows
    #: Steps that are applied to rows before anything else.
    steps: tuple[Callable[[Rows], Rows], ...] = ()

    @property
    def few(self) -> bool:
        """Whether all rows fit in a sample."""
        return self.n <= rows_of_sample(self.reader.columns)

    @property
    def units(self) -> float:
        """The number of rows; integer weights are counts."""
        return self.weight if self.whole else self.n

    @property
    def ends(self) -> tuple[float, float]:
        least = self.reader.least
        # Zeros that become more than the floor take a pass.
        if least is None or least.max() <= FLOOR:
            return self.low, self.high
        ends = self.total(_ends, greatest)
        return -float(ends["low"]), float(ends["high"])

    @property
    def share(self) -> float:
        """The proportion of the total weight that the sample holds."""
        return float(self.sample.weights.sum()) / self.weight

    def total(self, function: OfRows, merge: Merge = add, numbers: int | None = None) -> Sums:
        numbers = AT_WORK if numbers is None else numbers
        return self.blocks.total(
            partial(_on_rows, self.reader, self.steps, numbers, function, merge), merge
        )

    def part(self, numbers: int, least: int) -> Rows:
        return self.sample

    def designs(
        self, make: Callable[[Rows], object], numbers: int, keep: bool = True
    ) -> BlockDesigns:
        return BlockDesigns(self, make, numbers)

    def all(self) -> Rows:
        if len(self.sample.y) == self.n:
            return self.sample
        return Rows(**self.total(_as_sums, concatenate))

    def mapped(self, step: Callable[[Rows], Rows], largest: float) -> RowBlocks:
        with np.errstate(all="ignore"):
            sample = step(self.sample)
        k = sample.scores.shape[1] if sample.scores.ndim == 2 else self.k
        return replace(self, steps=(*self.steps, step), sample=sample, largest=largest, k=k)

    def divided(self, unit: float) -> RowBlocks:
        return self if unit == 1 else self.mapped(partial(_divide, unit), self.largest / unit)


@dataclass(frozen=True)
class BlockDesigns:
    """Prepared parts of rows in blocks, made again in each pass from ``numbers`` numbers each."""

    rows: RowBlocks
    make: Callable[[Rows], object]
    numbers: int

    def total(self, function: Callable[..., Sums], *args: object, merge: Merge = add) -> Sums:
        """Make a pass: add up ``function(*args, design)``."""
        of_rows = partial(_of_design, self.make, partial(function, *args))
        return self.rows.total(of_rows, merge, self.numbers)


def _ends(rows: Rows) -> Sums:
    return {"low": -rows.scores.min(), "high": rows.scores.max()}


def _divide(unit: float, rows: Rows) -> Rows:
    return rows._replace(scores=rows.scores / unit)


def _as_sums(rows: Rows) -> Sums:
    return rows._asdict()


def concatenate(first: Sums, second: Sums) -> Sums:
    """Join arrays of rows by name."""
    return {name: np.concatenate([value, second[name]]) for name, value in first.items()}


def _of_design(
    make: Callable[[Rows], object], function: Callable[[object], Sums], rows: Rows
) -> Sums:
    return function(make(rows))


def labeled(
    rows: np.ndarray, block: Block, power: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of positive weight of a block, labels, and weights times 2**power."""
    y = label_array(block.y, len(rows), weights=block.weights)
    weights = np.ones(len(rows))
    if block.weights is not None:
        weights = np.ldexp(check_weights_of(block.weights, len(rows), "sample_weight"), power)
        if not weights.all():
            used = weights > 0
            rows, y, weights = rows[used], y[used], weights[used]
    return rows, of_one_kind(y), weights


def block_rows(
    block: Block, names: list[object] | None, inputs: Inputs, columns: int, classes: np.ndarray
) -> np.ndarray:
    """Return scores (n, columns) of a block as users give them, in the order of the classes."""
    if inputs == "top_logits":
        # The sample is packed already.
        rows = block.scores if on_host(block.scores) else pack(block.scores, len(classes))
    else:
        rows = as_numbers(block, inputs)
    if rows.shape[1] != columns:
        raise ValueError(f"scores must have {columns} columns, got {rows.shape[1]}")
    return in_order(rows, column_names(block.scores) or names, classes, "scores")


def _on_rows(
    reader: Reader,
    steps: tuple[Callable[[Rows], Rows], ...],
    numbers: int,
    function: OfRows,
    merge: Merge,
    block: Block,
) -> Sums | None:
    def of_part(rows: Rows) -> Sums | None:
        if not rows.n:
            return None
        with np.errstate(all="ignore"):
            return function(reduce(lambda changed, step: step(changed), steps, rows))

    return merge_parts(merge, map(of_part, reader.parts(block, numbers)))


def rows_of_sample(columns: int) -> int:
    """Compute the number of rows of a sample; data with at most as many are fitted in memory."""
    return max(1, min(_SAMPLE, _NUMBERS // columns))


def as_numbers(block: Block, inputs: Inputs) -> np.ndarray:
    """Return scores (n, columns) as numbers of single or double precision."""
    rows = as_numpy(widen(block.scores, inputs), "scores")
    if rows.ndim == 1:
        rows = rows.reshape(-1, 1)
    if rows.ndim != 2 or not rows.shape[1]:
        raise ValueError(f"scores must have shape (n,), (n, 1) or (n, k), got {rows.shape}")
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(float)
