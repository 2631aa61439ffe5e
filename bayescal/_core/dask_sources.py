"""Blocks of Dask's arrays and data frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from bayescal._core.sources import Part, Source, score_columns

__all__ = ["of_dask"]


def of_dask(scores: Any, y: Any, weights: Any) -> Source:
    """Return chunks of an array, each with all columns of its rows, or parts of a data frame."""
    names = None
    if hasattr(scores, "chunks"):
        if len(scores.shape) == 2 and len(scores.chunks[1]) > 1:
            scores = scores.rechunk({1: -1})
    else:
        named = [own if isinstance(own, str) else None for own in (y, weights)]
        names = [scores.name] if len(scores.shape) == 1 else list(scores.columns)
        if any(named):
            names = score_columns(names, *named)
            y, weights = (scores[own] if isinstance(own, str) else own for own in (y, weights))
            scores = scores[names]
    parts = _tasks(scores)
    labels = _beside(y, scores, len(parts), "y")
    heavy = _beside(weights, scores, len(parts), "sample_weight")
    together = list(zip(parts, labels, heavy, strict=True))

    def read(part: Any) -> tuple[Any, ...]:
        from dask.base import compute

        return compute(*part)

    def local() -> Iterator[Part]:
        return ((lambda part=part: read(part)) for part in together)

    return Source(local, len(together), names, lambda: together)


def _tasks(given: Any) -> list[Any]:
    found = given.to_delayed()
    return found.ravel().tolist() if isinstance(found, np.ndarray) else list(found)


def _beside(own: Any, scores: Any, count: int, name: str) -> list[Any]:
    """Return the parts of labels or weights that belong to the chunks of scores."""
    if own is None:
        return [None] * count
    sizes = scores.chunks[0] if hasattr(scores, "chunks") else (math.nan,)
    known, rows = not any(math.isnan(size) for size in sizes), sum(sizes)
    if not hasattr(own, "to_delayed"):
        # An array in memory is cut where the scores are.
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
    parts = _tasks(own)
    if len(parts) != count:
        raise ValueError(f"{name} must have {count} chunks to match scores, got {len(parts)}")
    return parts
