"""Rows that come in blocks: a function of each block, and the results added."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bayescal._core.blas import single_threaded_blas
from bayescal._core.checkpoint import Checkpoint, Sums, digest_of_block
from bayescal._core.dask_sources import of_dask
from bayescal._core.sources import Part, Source, iterated, of_array, of_arrow

__all__ = ["Block", "Blocks", "add", "as_blocks"]

Result = TypeVar("Result")
#: Called with the pass, the blocks done in it, and their number, if it is known.
Progress = Callable[[int, int, int | None], None]
#: Bytes of an array mapped from a file that are rather read at once.
_IN_MEMORY = 1 << 25
#: Results that are added at once on a scheduler of Dask.
_FAN = 8


class Block(NamedTuple):
    """Some of the rows: scores, labels and weights as users give them, or None."""

    #: Its number, from 0.
    number: int
    scores: Any
    y: Any = None
    weights: Any = None


def add(first: Sums, second: Sums) -> Sums:
    """Return sums of equal names, added."""
    return {name: value + second[name] for name, value in first.items()}


class Blocks:
    """Rows in blocks that are read again for each pass, of data that need not fit into memory.

    Calibrators and metrics take it in the place of scores, without labels and weights of their own.
    They ask one thing of it: to call a function with each block, and to add the results. Blocks
    are read one after the other and worked on in threads, which hold a few of them; those of Dask
    are tasks for its scheduler.

    Parameters
    ----------
    make_iterator : callable or iterable
        Without arguments it returns an iterator over tuples ``(scores, labels)``, ``(scores,
        labels, weights)`` or ``(scores,)``, anew and with the same rows for each pass; or a
        sequence of them. Whatever estimators and metrics take may be in a block.
    checkpoint : path, optional
        A file that keeps the results of passes, with which an interrupted fit goes on, and which
        is deleted when the fit ends.
    progress : callable, optional
        Called with the number of the pass, how many of its blocks are done, and how many there
        are, None while this is not known; of Dask, whose scheduler shows more, after each pass.
    threads : int, optional
        By default as many as processors.

    Attributes
    ----------
    passes : int
        How many passes have been made.

    Raises
    ------
    TypeError
        For an iterator, which can be read once only.
    ValueError
        In a pass, if there are more or fewer blocks than before; or if the checkpoint is of other
        data or of another fit.

    Notes
    -----
    Results do not depend on the number of threads, and on how rows are cut into blocks by rounding
    alone.

    Examples
    --------
    >>> import numpy as np
    >>> import bayescal as bc
    >>> def make():
    ...     for seed in range(3):
    ...         rng = np.random.default_rng(seed)
    ...         p = rng.uniform(size=1000)
    ...         yield p, rng.uniform(size=1000) < p**2
    >>> blocks = bc.Blocks(make)
    >>> beta = bc.Beta().fit(blocks)
    >>> round(beta.a_, 1), round(beta.b_, 1)
    (1.7, 1.0)
    >>> blocks.passes
    2
    """

    def __init__(
        self,
        make_iterator: Callable[[], Iterable[Any]] | Iterable[Any],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> None:
        self._setup(iterated(make_iterator), checkpoint, progress, threads)

    def _setup(
        self,
        source: Source,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> None:
        self._source = source
        self._checkpoint = None if checkpoint is None else Checkpoint(checkpoint)
        self._progress = progress
        self._threads = threads or _processors()
        self._first: str | None = None
        self.passes = 0

    @classmethod
    def of(
        cls,
        scores: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Blocks:
        """Return the blocks of data in another form.

        Parameters
        ----------
        scores : array-like or data set
            A Dask array or data frame, a ``pyarrow.dataset``, a Zarr array, one of h5py, or any
            array of NumPy, mapped from a file or not.
        y, sample_weight : array-like or str, optional
            Of the same kind, or any arrays in memory; of data sets and data frames also the name
            of a column: the others are then the scores.
        checkpoint, progress, threads
            As of the class.

        Returns
        -------
        Blocks

        Raises
        ------
        TypeError
            If there is no reading the data in blocks.

        Examples
        --------
        >>> import numpy as np
        >>> import bayescal as bc
        >>> p, y = np.linspace(0.1, 0.9, 1000), np.arange(1000) % 3 == 0
        >>> blocks = bc.Blocks.of(p, y)
        >>> round(bc.metrics.ece(blocks), 3)
        0.236
        """
        source = _source_of(scores, y, sample_weight, arrays=True)
        if source is None:
            raise TypeError(f"scores must be arrays or data sets, got {type(scores).__name__}")
        made = cls.__new__(cls)
        made._setup(source, checkpoint, progress, threads)
        return made

    @property
    def names(self) -> list[object] | None:
        """Names of the columns of scores, where the source has them and blocks do not."""
        return self._source.names

    def total(
        self,
        function: Callable[[Block], Sums | None],
        merge: Callable[[Sums, Sums], Sums] = add,
    ) -> Sums:
        """Make a pass: call a function with each block, and add what is not None.

        On a scheduler of Dask it, and how results are added, go to other processes.
        """
        kept = self._checkpoint
        if kept is not None:
            if self._first is None:
                self._first = next(iter(self.each(lambda block: digest_of_block(block[1:]))), "")
            found = kept.recall(self.passes, function, self._first)
            if found is not None:
                self.passes += 1
                return found
        if self._source.delayed is not None:
            parts = self._source.delayed()
            sums = _on_scheduler(parts, function, merge)
            self._say(True, len(parts), len(parts))
        else:
            sums = None
            for part in self._work(function):
                if part is not None:
                    sums = part if sums is None else merge(sums, part)
        self.passes += 1
        if sums is None:
            raise ValueError("blocks must hold rows, got none")
        if kept is not None:
            kept.keep(sums)
        return sums

    def each(self, function: Callable[[Block], Result]) -> Iterator[Result]:
        """Yield what a function makes of each block, in their order."""
        return self._work(function, report=False)

    def mapped(self, function: Callable[[Block], Any]) -> Blocks:
        """Return blocks with other scores, which are computed when they are read."""
        made = Blocks.__new__(Blocks)
        made._setup(self._source.mapped(partial(_mapped, function)), threads=self._threads)
        return made

    def finish(self) -> None:
        """Forget what a checkpoint keeps: what it was for is done."""
        if self._checkpoint is not None:
            self._checkpoint.delete()

    def _work(self, function: Callable[[Block], Result], report: bool = True) -> Iterator[Result]:
        """Yield results in order, of a few blocks that are worked on at a time."""
        known = self._source.count
        waiting: deque[Future[Result]] = deque()
        with single_threaded_blas(), ThreadPoolExecutor(self._threads) as pool:
            try:
                done = 0
                for number, part in enumerate(self._source.parts()):
                    waiting.append(pool.submit(_call, function, number, part))
                    if len(waiting) > self._threads:
                        yield waiting.popleft().result()
                        done += 1
                        self._say(report, done, known)
                while waiting:
                    yield waiting.popleft().result()
                    done += 1
                    self._say(report, done, known)
                if report:
                    self._source.count = self._unchanged(known, done)
            finally:
                for future in waiting:
                    future.cancel()

    def _unchanged(self, known: int | None, found: int) -> int:
        if known is not None and known != found:
            raise ValueError(
                f"make_iterator must yield the same blocks for each pass, got {found} after {known}"
            )
        return found

    def _say(self, report: bool, done: int, known: int | None) -> None:
        if report and self._progress is not None:
            self._progress(self.passes, done, known)


def _mapped(function: Callable[[Block], Any], number: int, given: tuple[Any, ...]) -> Any:
    return (function(Block(number, *given)), *given[1:])


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _call(function: Callable[[Block], Result], number: int, part: Part) -> Result:
    try:
        given = part()
        if not isinstance(given, tuple) or not 1 <= len(given) <= 3:
            raise TypeError(
                "blocks must be tuples (scores, labels) or (scores, labels, weights), got "
                f"{type(given).__name__}"
            )
        return function(Block(number, *given))
    except (TypeError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"block {number}: {error}") from error
    except Exception as error:
        error.add_note(f"in block {number}")
        raise


def _on_scheduler(
    parts: list[Any],
    function: Callable[[Block], Sums | None],
    merge: Callable[[Sums, Sums], Sums],
) -> Sums | None:
    """Return the total as a graph of Dask, on the scheduler that is set."""
    from dask.base import compute
    from dask.delayed import delayed

    # A task of its own, which a worker fetches once: it may hold megabytes of parameters.
    shared = delayed(function, pure=False, traverse=False)
    task = delayed(_call_here, pure=False)
    level = [task(shared, number, part) for number, part in enumerate(parts)]
    joined = delayed(partial(_merge_all, merge), pure=False)
    while len(level) > 1:
        level = [joined(level[first : first + _FAN]) for first in range(0, len(level), _FAN)]
    with single_threaded_blas():
        return compute(level[0])[0]


def _call_here(function: Callable[[Block], Result], number: int, given: tuple[Any, ...]) -> Result:
    return _call(function, number, lambda: tuple(given))


def _merge_all(merge: Callable[[Sums, Sums], Sums], parts: list[Sums | None]) -> Sums | None:
    sums = None
    for part in parts:
        if part is not None:
            sums = part if sums is None else merge(sums, part)
    return sums


def map_chunks(function: Callable[[Block], Any], scores: Any, columns: int) -> Any:
    """Return what a function makes of the chunks of a Dask array, as one with so many columns."""
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
    chunk: Any, function: Callable[[Block], Any], block_id: tuple[int, ...] = (0,)
) -> Any:
    return _call(function, block_id[0], lambda: (chunk,))


def _source_of(scores: Any, y: Any, weights: Any, arrays: bool = False) -> Source | None:
    """Return the source of data that are read in blocks, or None for others.

    With ``arrays`` there is one of any array with a shape, and else only of those in files.
    """
    library = type(scores).__module__.partition(".")[0]
    if library in ("dask", "dask_expr"):
        return of_dask(scores, y, weights)
    if library == "pyarrow" and hasattr(scores, "to_batches"):
        return of_arrow(scores, y, weights)
    mapped = isinstance(scores, np.memmap) and scores.nbytes > _IN_MEMORY
    filed = mapped or library in ("zarr", "h5py")
    if not (filed or (arrays and len(getattr(scores, "shape", ())) in (1, 2))):
        return None
    return of_array(scores, y, weights)


def as_blocks(scores: Any, y: Any = None, sample_weight: Any = None) -> Blocks | None:
    """Return data that are read in blocks as such, and None for arrays in memory."""
    if isinstance(scores, Blocks):
        if y is not None or sample_weight is not None:
            raise ValueError("y and weights must be left out: Blocks hold their own")
        return scores
    source = _source_of(scores, y, sample_weight)
    if source is None:
        return None
    made = Blocks.__new__(Blocks)
    made._setup(source)
    return made
