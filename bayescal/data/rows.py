"""Sources of rows: scores with labels and weights, and sums over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial, reduce
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from bayescal._core.arrays import AnyArray, on_host
from bayescal._core.execution.chunks import slices
from bayescal._core.execution.threads import threads
from bayescal._core.lazy import jax

Result = TypeVar("Result")
#: Sums over rows: arrays by name.
Sums: TypeAlias = dict[str, np.ndarray]
Merge: TypeAlias = Callable[[Sums, Sums], Sums]
#: Largest designs that are kept in memory, in numbers; others are made again for each sum.
_KEPT_NUMBERS = 1 << 24
#: Number of scores from which threads compute the parts of a sum, and number of groups of parts.
_NUMBERS_OF_THREADS, _GROUPS = 1 << 22, 8
#: Weights that are compared at once, so that their copies fit in the processor's cache.
_WEIGHTS_AT_ONCE = 1 << 15


def add(first: Sums, second: Sums) -> Sums:
    """Add sums by name."""
    return {name: value + second[name] for name, value in first.items()}


def greatest(first: Sums, second: Sums) -> Sums:
    """Compute the elementwise maximum of two results."""
    return {name: np.maximum(value, second[name]) for name, value in first.items()}


def merge_parts(merge: Merge, parts: Iterable[Sums | None]) -> Sums | None:
    """Merge the results of parts of the rows; None are those of parts without rows."""
    merged = None
    for part in parts:
        if part is not None:
            merged = part if merged is None else merge(merged, part)
    return merged


class Designs(Protocol):
    """Prepared parts of the rows of a source, and sums over them."""

    #: Sum ``function(*args, design)`` over the designs of parts of the rows.
    def total(self, function: Callable[..., Sums], *args: object, merge: Merge = add) -> Sums: ...


class Source(Protocol):
    """The rows of a fit: in memory, on an accelerator or in blocks.

    Scores are in the domain of the calibrator, labels are positions among the classes, and weights
    are positive.
    """

    #: The number of rows.
    @property
    def n(self) -> int: ...
    #: The number of classes.
    @property
    def k(self) -> int: ...
    #: The sum of the weights.
    @property
    def weight(self) -> float: ...
    #: The sum of the weights of each class (k,).
    @property
    def mass(self) -> np.ndarray: ...
    #: The sum of the squares of the weights.
    @property
    def squares(self) -> float: ...
    #: Whether all weights are integers.
    @property
    def whole(self) -> bool: ...
    #: The largest absolute score, or an upper bound.
    @property
    def largest(self) -> float: ...
    #: The smallest and the largest score.
    @property
    def ends(self) -> tuple[float, float]: ...
    #: Evenly drawn rows in memory; all rows, unless the source is in blocks.
    @property
    def sample(self) -> Rows: ...
    def total(
        self, function: Callable[[Rows], Sums], merge: Merge = add, numbers: int | None = None
    ) -> Sums:
        """Sum ``function(rows)`` over parts of the rows with ``numbers`` scores."""
        ...

    def designs(self, make: Callable[[Rows], object], numbers: int, keep: bool = True) -> Designs:
        """Prepare ``make(rows)`` for parts of the rows with ``numbers`` scores.

        Designs of rows in memory are kept if ``keep``, unless they are large.
        """
        ...

    #: Select rows with about ``numbers`` scores and ``least`` rows; None if rows are few.
    def part(self, numbers: int, least: int) -> Rows | None: ...

    #: Read all rows at once.
    def all(self) -> Rows: ...

    #: Apply a step that changes scores; ``largest`` bounds the new absolute scores.
    def mapped(self, step: Callable[[Rows], Rows], largest: float) -> Source: ...

    #: Divide the scores by a number.
    def divided(self, unit: float) -> Source: ...


class Rows(NamedTuple):
    """Rows in memory or on an accelerator.

    Scores (n,) or (n, k) may be JAX arrays. Labels (n,), which are positions among the classes, and
    weights (n,) are NumPy arrays. See :class:`Source` for the properties and methods.
    """

    scores: AnyArray
    y: np.ndarray
    weights: np.ndarray

    def take(self, rows: np.ndarray | slice) -> Self:
        """Select rows by a mask, positions or a slice."""
        return type(self)(*(column[rows] for column in self))

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def k(self) -> int:
        return self.scores.shape[1] if self.scores.ndim == 2 else 2

    @property
    def weight(self) -> float:
        return float(self.weights.sum())

    @property
    def mass(self) -> np.ndarray:
        return np.bincount(self.y, self.weights, self.k)

    @property
    def squares(self) -> float:
        return float(self.weights @ self.weights)

    @property
    def whole(self) -> bool:
        parts = (self.weights[part] for part in slices(self.n, _WEIGHTS_AT_ONCE))
        return all(bool((part == np.floor(part)).all()) for part in parts)

    @property
    def largest(self) -> float:
        return float(max(self.scores.max(initial=0), -self.scores.min(initial=0)))

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.scores.min()), float(self.scores.max())

    @property
    def sample(self) -> Rows:
        return self

    def total(
        self, function: Callable[[Rows], Sums], merge: Merge = add, numbers: int | None = None
    ) -> Sums:
        if numbers is None or self.scores.size <= numbers or not on_host(self.scores):
            return function(self)
        parts = slices(self.n, max(1, numbers // max(1, self.scores.size // self.n)))

        def sum_parts(parts: list[slice]) -> Sums:
            return reduce(merge, (function(self.take(part)) for part in parts))

        # Always as many groups, in the same order, so that no digit depends on the machine.
        count = -(-len(parts) // _GROUPS)
        groups = [parts[first : first + count] for first in range(0, len(parts), count)]
        with threads(self.scores.size >= _NUMBERS_OF_THREADS) as map_fn:
            return reduce(merge, map_fn(sum_parts, groups))

    def part(self, numbers: int, least: int) -> Rows | None:
        stride = min(self.scores.size // numbers, self.n // least)
        if stride <= 2 or not on_host(self.scores):
            return None
        return self.take(slice(None, None, stride))

    def designs(self, make: Callable[[Rows], object], numbers: int, keep: bool = True) -> Designs:
        if not on_host(self.scores):
            return _DeviceDesign(_call(make, self))
        columns = self.scores.shape[1] if self.scores.ndim == 2 else 1
        parts = slices(self.n, max(1, numbers // columns))
        if keep and self.scores.size <= _KEPT_NUMBERS:
            kept = [make(self.take(part)) for part in parts]
            return _HostDesigns(lambda: kept)
        return _HostDesigns(lambda: (make(self.take(part)) for part in parts))

    def all(self) -> Rows:
        return self

    def mapped(self, step: Callable[[Rows], Rows], largest: float = 0.0) -> Rows:
        return step(self)

    def divided(self, unit: float) -> Rows:
        return self if unit == 1 else self._replace(scores=self.scores / unit)


def weight_of_row(rows: Source) -> float:
    """Compute the weight that counts as one row: one if weights are counts, else their mean.

    The mean is weighted by the weights themselves, so that light rows hardly count.
    """
    return 1.0 if rows.whole else float(rows.squares / rows.weight)


class _HostDesigns(NamedTuple):
    """Designs of parts of rows that fit in a processor's cache."""

    #: Returns the designs, which are kept or made anew.
    designs: Callable[[], Iterable[object]]

    def total(self, function: Callable[..., Sums], *args: object, merge: Merge = add) -> Sums:
        return reduce(merge, (function(*args, design) for design in self.designs()))


class _DeviceDesign(NamedTuple):
    """The design of all rows on an accelerator; each function is one compiled program."""

    design: object

    def total(self, function: Callable[..., Sums], *args: object, merge: Merge = add) -> Sums:
        sums = _call(function, *args, self.design)
        return {name: np.asarray(value) for name, value in sums.items()}


def _call(function: Callable[..., Result], *args: object) -> Result:
    """Call a function as a compiled program; keywords that ``partial`` has bound are static."""
    if isinstance(function, partial):
        bound = function.keywords
        return compiled(function.func, tuple(bound))(*function.args, *args, **bound)
    return compiled(function)(*args)


@cache
def compiled(function: Callable[..., object], static: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Compile a function, once for each shape of its arguments."""
    return jax.jit(function, static_argnames=static)
