"""Where blocks of rows come from: iterators, arrays in files, data sets of Arrow, and Dask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bayescal._core.arrays import on_host
from bayescal._core.blocks import slices

__all__ = ["Part", "Source", "iterated", "of_array", "of_arrow", "score_columns"]

#: Returns a block: scores, and labels and weights where there are any.
Part: TypeAlias = Callable[[], tuple[Any, ...]]
#: Numbers of a block, and rows at most, where the source leaves them open.
_NUMBERS, _ROWS = 1 << 20, 1 << 17
#: Batches of a data set that are read while others are worked on.
_AHEAD = 4


@dataclass
class Source:
    """A way to read blocks, again for each pass."""

    #: Yields what reads a block, in order; it may be called in another thread.
    parts: Callable[[], Iterator[Part]]
    #: How many blocks there are, as soon as it is known.
    count: int | None = None
    #: Names of the columns of scores, where blocks do not have them.
    names: list[object] | None = None
    #: Returns blocks that a scheduler of Dask is to read.
    delayed: Callable[[], list[Any]] | None = None

    def mapped(self, function: Callable[[int, tuple[Any, ...]], tuple[Any, ...]]) -> Source:
        """Return a source of what a function makes of a block's number and what is in it."""

        def parts() -> Iterator[Part]:
            for number, part in enumerate(self.parts()):
                yield lambda number=number, part=part: function(number, part())

        delayed = self.delayed
        if delayed is None:
            return Source(parts, self.count)

        def tasks() -> list[Any]:
            from dask.delayed import delayed as later

            shared = later(function, pure=False, traverse=False)
            task = later(_call, pure=False)
            return [task(shared, number, part) for number, part in enumerate(delayed())]

        return Source(parts, self.count, delayed=tasks)


def _call(
    function: Callable[[int, tuple[Any, ...]], tuple[Any, ...]], number: int, part: Any
) -> tuple[Any, ...]:
    return function(number, tuple(part))


def iterated(make: Callable[[], Iterable[Any]] | Iterable[Any]) -> Source:
    """Return what a callable yields, or an iterable, as a source."""
    if isinstance(make, Iterator) or not (callable(make) or isinstance(make, Iterable)):
        raise TypeError(
            "make_iterator must be a function that returns an iterator, or a sequence, since "
            f"blocks are read more than once; got {type(make).__name__}"
        )

    def parts() -> Iterator[Part]:
        for given in make() if callable(make) else make:
            yield lambda given=given: given

    return Source(parts)


def of_array(scores: Any, y: Any, weights: Any) -> Source:
    """Return slices of any array with a shape, and of labels and weights beside it."""
    n, width = scores.shape[0], math.prod(scores.shape[1:])
    rows = max(1, min(_ROWS, _NUMBERS // max(1, width)))
    chunk = getattr(scores, "chunks", None)
    if chunk and chunk[0] and not on_host(scores):
        # Whole chunks: none is read twice.
        rows = chunk[0] * max(1, rows // chunk[0])
    columns = [own for own in (scores, y, weights) if own is not None]
    for own, name in zip(columns[1:], ("y", "sample_weight"), strict=False):
        if not hasattr(own, "shape"):
            raise TypeError(f"{name} must be an array, got {type(own).__name__}")
        if len(own) != n:
            raise ValueError(f"{name} must have {n} rows to match scores, got {len(own)}")
    parts = slices(n, rows)

    def read(part: slice) -> tuple[Any, ...]:
        # Data frames and series count rows by position with iloc.
        found = [getattr(own, "iloc", own)[part] for own in columns]
        return tuple(found if weights is None or y is not None else [found[0], None, found[1]])

    return Source(lambda: ((lambda part=part: read(part)) for part in parts), len(parts))


def of_arrow(dataset: Any, y: Any, weights: Any) -> Source:
    """Return batches of a ``pyarrow`` data set or table; labels and weights are named columns."""
    columns = list(dataset.schema.names)
    names = score_columns(columns, y, weights)
    wanted = [*names, *(own for own in (y, weights) if own is not None)]
    rows = max(1, min(_ROWS, _NUMBERS // max(1, len(names))))

    def parts() -> Iterator[Part]:
        if hasattr(dataset, "to_table"):
            batches = dataset.to_batches(columns=wanted, batch_size=rows, **_options(dataset))
        else:
            batches = dataset.select(wanted).to_batches(max_chunksize=rows)
        for batch in batches:
            if batch.num_rows:
                yield lambda batch=batch: read(batch)

    def read(batch: Any) -> tuple[Any, ...]:
        def column(name: str) -> np.ndarray:
            return batch.column(name).to_numpy(zero_copy_only=False)

        scores = column(names[0]) if len(names) == 1 else np.stack([column(n) for n in names], 1)
        return tuple([scores, *(own if own is None else column(own) for own in (y, weights))])

    return Source(parts, names=names)


def _options(dataset: Any) -> dict[str, Any]:
    """Return how to read a data set without holding what is not worked on.

    By default sixteen batches of four files are read ahead, and whole Parquet files are buffered.
    """
    found: dict[str, Any] = {"batch_readahead": _AHEAD, "fragment_readahead": 1}
    if type(getattr(dataset, "format", None)).__name__ == "ParquetFileFormat":
        from pyarrow.dataset import ParquetFragmentScanOptions

        found["fragment_scan_options"] = ParquetFragmentScanOptions(pre_buffer=False)
    return found


def score_columns(columns: list[Any], y: Any, weights: Any) -> list[Any]:
    """Return the columns of scores: those that are neither labels nor weights."""
    for own, name in ((y, "y"), (weights, "sample_weight")):
        if own is not None and own not in columns:
            raise ValueError(f"{name} must be the name of a column, {columns}, got {own!r}")
    names = [column for column in columns if column not in (y, weights)]
    if not names:
        raise ValueError(f"scores must have columns beside {[y, weights]}, got {columns}")
    return names
