"""Blocks of Dask's arrays and data frames, and passes over them on its scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from operator import getitem
from typing import TypeAlias

import numpy as np

from bayescal._core.arrays import AnyModel, UserData, XArray
from bayescal._core.execution.blas import single_threaded_blas
from bayescal.data.blocks.sources import (
    Block,
    BlockSource,
    Part,
    check_beside,
    read_block,
    score_columns,
)
from bayescal.data.rows import Merge, Sums, merge_parts

#: Number of results that one task adds.
_FAN = 8


def of_dask(scores: UserData, y: UserData, weights: UserData) -> BlockSource:
    """Return chunks of an array (all columns of their rows), or of a data frame, as a source."""
    from dask.base import compute, persist
    from dask.delayed import delayed

    if not scores.shape:
        raise ValueError("scores must have shape (n,) or (n, k), got ()")
    names, pick = None, delayed(getitem, pure=True)
    if hasattr(scores, "chunks"):
        if len(scores.shape) == 2 and len(scores.chunks[1]) > 1:
            scores = scores.rechunk({1: -1})
    else:
        named = [name if isinstance(name, str) else None for name in (y, weights)]
        names = [scores.name] if len(scores.shape) == 1 else list(scores.columns)
        if any(named):
            names = score_columns(names, *named)
            scores = scores[list(dict.fromkeys([*names, *filter(None, named)]))]
        elif len(scores.shape) == 1:
            names = None  # parts have it
    beside = [_matched(y, scores, "y"), _matched(weights, scores, "sample_weight")]
    scores, *beside = _optimized([scores, *beside])
    parts = _tasks(scores)
    columns = [parts]
    for values, name in zip(beside, ("y", "sample_weight"), strict=True):
        if isinstance(values, str):
            # A part of the frame is read once, with all its columns.
            columns.append([pick(part, values) for part in parts])
            wanted = names[0] if names and len(names) == 1 else names
            columns[0] = [pick(part, wanted) for part in parts]
        else:
            columns.append([None] * len(parts) if values is None else _tasks(values))
        if len(columns[-1]) != len(parts):
            raise ValueError(
                f"{name} must have {len(parts)} chunks to match scores, got {len(columns[-1])}"
            )

    @cache
    def together() -> list[tuple[object, ...]]:
        # Send arrays in memory to the scheduler once, not in each pass.
        sent = [
            persist(*(delayed(part, pure=False, traverse=False) for part in column))
            if isinstance(beside[j], list)
            else column
            for j, column in enumerate(columns[1:])
        ]
        return list(zip(columns[0], *sent, strict=True))

    def local() -> Iterator[Part]:
        return ((lambda part=part: compute(*part)) for part in together())

    return BlockSource(local, len(parts), names=names, delayed=together)


def _tasks(data: UserData) -> list[object]:
    """Return the delayed chunks, or the chunks of a list."""
    if isinstance(data, list):
        return data
    if hasattr(data, "chunks"):
        return data.to_delayed(optimize_graph=False).ravel().tolist()
    return list(data.to_delayed())


def _optimized(parts: list[AnyModel]) -> list[object]:
    """Optimize the graphs of arrays together, so that common tasks run once."""
    from dask import config
    from dask.base import optimize

    arrays = [part for part in parts if hasattr(part, "chunks")]
    with config.set({"optimization.fuse.active": False}):
        optimized = iter(optimize(*arrays))
    return [next(optimized) if hasattr(part, "chunks") else part for part in parts]


def _matched(values: UserData, scores: UserData, name: str) -> UserData:
    """Split labels or weights into the chunks of scores; those in memory become a list."""
    if values is None or isinstance(values, str):
        return values
    sizes = scores.chunks[0] if hasattr(scores, "chunks") else (math.nan,)
    known, rows = not any(math.isnan(size) for size in sizes), sum(sizes)
    if not hasattr(values, "to_delayed"):
        if not known:
            remedy = "add it as a column, and pass the name"
            if hasattr(scores, "compute_chunk_sizes"):
                remedy = "scores.compute_chunk_sizes() finds them"
            raise TypeError(
                f"{name} must be Dask data because chunks of scores have unknown sizes, got "
                f"{type(values).__name__}; {remedy}"
            )
        values = values if hasattr(values, "shape") else np.asarray(values)
        check_beside(values, name, int(rows))
        return [values[first:last] for first, last in pairwise(np.cumsum([0, *sizes]).tolist())]
    if not values.shape:
        raise ValueError(f"{name} must have a value for each row of scores, got one for all")
    chunks = values.chunks[0] if hasattr(values, "chunks") else (math.nan,)
    if known and chunks != sizes and not any(math.isnan(size) for size in chunks):
        if sum(chunks) != rows:
            raise ValueError(f"{name} must have {rows} rows to match scores, got {sum(chunks)}")
        values = values.rechunk({0: sizes})
    return values


#: Fingerprints of some blocks by number, and the sum of results.
_Total: TypeAlias = tuple[dict[int, np.ndarray], Sums | None]


def on_scheduler(
    parts: list[AnyModel],
    work: Callable[..., tuple[np.ndarray, Sums | None]],
    merge: Merge,
    known: dict[int, np.ndarray],
) -> _Total:
    """Build the Dask graph that computes the total, for the scheduler that is set."""
    from dask.base import compute
    from dask.delayed import delayed

    # A separate task, which a worker fetches once: it may hold megabytes of parameters.
    shared = delayed(work, pure=False, traverse=False)
    task = delayed(_read_here, pure=False)
    level = [task(shared, number, part, known.get(number)) for number, part in enumerate(parts)]
    joined = delayed(partial(_merge_all, merge), pure=False)
    while len(level) > 1:
        level = [joined(level[first : first + _FAN]) for first in range(0, len(level), _FAN)]
    with single_threaded_blas():
        return compute(level[0])[0]


def _read_here(
    work: Callable[..., tuple[np.ndarray, Sums | None]],
    number: int,
    given: tuple[object, ...],
    before: np.ndarray | None,
) -> _Total:
    fingerprint, sums = work(number, lambda: tuple(given), before)
    return {number: fingerprint}, sums


def _merge_all(merge: Merge, parts: list[_Total]) -> _Total:
    prints = {
        number: fingerprint for of_part, _ in parts for number, fingerprint in of_part.items()
    }
    return prints, merge_parts(merge, (sums for _, sums in parts))


def map_chunks(function: Callable[[Block], object], scores: UserData, columns: int) -> object:
    """Map a function over the chunks of a Dask array; the result has ``columns`` columns."""
    from dask.delayed import delayed

    chunks = scores.chunks[0], (columns,)
    scores = scores if scores.ndim == 1 else scores.rechunk({1: -1})
    new = 1 if scores.ndim == 1 else None
    shared = delayed(function, pure=False, traverse=False)
    return scores.map_blocks(
        _apply_to_chunk, shared, dtype=float, chunks=chunks, new_axis=new, meta=_NOTHING
    )


_NOTHING = np.empty((0, 0))


def _apply_to_chunk(
    chunk: XArray, function: Callable[[Block], XArray], block_id: tuple[int, ...] = (0,)
) -> XArray:
    return read_block((), function, block_id[0], lambda: (chunk,))[1]
