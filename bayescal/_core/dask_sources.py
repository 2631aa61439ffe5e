"""Blocks of Dask's arrays and data frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from operator import getitem
from typing import Any

import numpy as np

from bayescal._core.sources import Part, Source, score_columns

__all__ = ["of_dask"]


def of_dask(scores: Any, y: Any, weights: Any) -> Source:
    """Return chunks of an array, each with all columns of its rows, or parts of a data frame."""
    from dask.base import compute, persist
    from dask.delayed import delayed

    names, pick = None, delayed(getitem, pure=True)
    if hasattr(scores, "chunks"):
        if len(scores.shape) == 2 and len(scores.chunks[1]) > 1:
            scores = scores.rechunk({1: -1})
    else:
        named = [own if isinstance(own, str) else None for own in (y, weights)]
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
    for own, name in zip(beside, ("y", "sample_weight"), strict=True):
        if isinstance(own, str):
            # A part of the frame is read once, with all its columns.
            columns.append([pick(part, own) for part in parts])
            columns[0] = [pick(part, names) for part in parts]
        else:
            columns.append([None] * len(parts) if own is None else _tasks(own))
        if len(columns[-1]) != len(parts):
            raise ValueError(
                f"{name} must have {len(parts)} chunks to match scores, got {len(columns[-1])}"
            )

    @cache
    def together() -> list[tuple[Any, ...]]:
        # What is in memory goes to the scheduler once, and not in each pass.
        sent = [
            persist(*(delayed(part, pure=False, traverse=False) for part in own))
            if isinstance(beside[j], list)
            else own
            for j, own in enumerate(columns[1:])
        ]
        return list(zip(columns[0], *sent, strict=True))

    def local() -> Iterator[Part]:
        return ((lambda part=part: compute(*part)) for part in together())

    return Source(local, len(parts), names, together)


def _tasks(given: Any) -> list[Any]:
    """Return what makes each chunk, or the chunks."""
    if isinstance(given, list):
        return given
    if hasattr(given, "chunks"):
        return given.to_delayed(optimize_graph=False).ravel().tolist()
    return list(given.to_delayed())


def _optimized(given: list[Any]) -> list[Any]:
    """Return arrays with graphs in which what they have in common is one task, read once."""
    from dask import config
    from dask.base import optimize

    arrays = [own for own in given if hasattr(own, "chunks")]
    with config.set({"optimization.fuse.active": False}):
        found = iter(optimize(*arrays))
    return [next(found) if hasattr(own, "chunks") else own for own in given]


def _matched(own: Any, scores: Any, name: str) -> Any:
    """Return labels or weights in the chunks of scores; those in memory as a list."""
    if own is None or isinstance(own, str):
        return own
    sizes = scores.chunks[0] if hasattr(scores, "chunks") else (math.nan,)
    known, rows = not any(math.isnan(size) for size in sizes), sum(sizes)
    if not hasattr(own, "to_delayed"):
        if not known:
            raise TypeError(
                f"{name} must be Dask's, too, where the sizes of the chunks of scores are unknown"
            )
        if len(own) != rows:
            raise ValueError(f"{name} must have {rows} rows to match scores, got {len(own)}")
        return [own[first:last] for first, last in pairwise(np.cumsum([0, *sizes]).tolist())]
    chunks = own.chunks[0] if hasattr(own, "chunks") else (math.nan,)
    if known and chunks != sizes and not any(math.isnan(size) for size in chunks):
        if sum(chunks) != rows:
            raise ValueError(f"{name} must have {rows} rows to match scores, got {sum(chunks)}")
        own = own.rechunk({0: sizes})
    return own
