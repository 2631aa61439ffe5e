"""Rows in blocks: apply a function to each block, and add the results."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from bayescal._core.arrays import AnyArray, UserData, on_host
from bayescal._core.execution.blas import single_threaded_blas
from bayescal._core.execution.threads import core_count
from bayescal.data.blocks.checkpoint import Checkpoint, RowsChanged, rows_of
from bayescal.data.blocks.dask import map_chunks, of_dask, on_scheduler
from bayescal.data.blocks.sources import (
    Block,
    BlockSource,
    iterated,
    of_array,
    of_arrow,
    read_block,
)
from bayescal.data.checks import check_count
from bayescal.data.rows import Merge, Sums, add, merge_parts

Result = TypeVar("Result")
#: Called with the number of the pass, of its finished blocks, and of all blocks, if known.
Progress = Callable[[int, int, int | None], None]
#: Size in bytes up to which an array mapped from a file is read at once.
_IN_MEMORY = 1 << 25
#: Libraries of arrays in files.
_FILES = "zarr", "h5py"


class Blocks:
    """Rows that are read block by block in every pass, for data larger than memory.

    Pass it to calibrators and metrics in place of scores, labels and weights, which it contains.
    They call a function with each block and add the results. Blocks are read one after the other
    and processed in threads, which hold a few of them in memory. Blocks of Dask are tasks for its
    scheduler.

    Parameters
    ----------
    make_iterator : callable or iterable
        A function without arguments that returns a new iterator over the same rows for each pass;
        or a sequence. Items are tuples ``(scores, labels)``, ``(scores, labels, weights)`` or
        ``(scores,)``, of anything that estimators and metrics accept.
    checkpoint : path, optional
        A file that keeps the results of passes, so that an interrupted fit can resume. It is
        deleted when the fit, metric or report is finished. Only one fit at a time may use it.
    progress : callable, optional
        Called with the number of the pass, the number of its finished blocks, and the total, None
        while unknown. For Dask, whose scheduler shows more, it is called after each pass.
    threads : int, optional
        Number of threads, by default that of processors.

    Attributes
    ----------
    passes : int
        Number of passes made so far.

    Raises
    ------
    TypeError
        For an iterator, which can be read only once.
    ValueError
        In a pass, if blocks or rows have changed since the last one; or if the checkpoint was
        written for other data or by a different fit.
    OSError
        If the checkpoint cannot be written.

    Notes
    -----
    Blocks without rows, and rows of weight zero, add nothing. Changes of rows between passes are
    detected by the number of rows, by the sums of each quarter of a block (of scores up to one part
    in a million), and by some thousands of its texts. This takes 5 % of the cheapest pass, over
    arrays in memory, and less of others.

    Results do not depend on the number of threads, and depend on how rows are cut into blocks only
    by rounding.

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
        make_iterator: Callable[[], Iterable[UserData]] | Iterable[UserData],
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> None:
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function, got {type(progress).__name__}")
        is_source = isinstance(make_iterator, BlockSource)
        self._source = make_iterator if is_source else iterated(make_iterator)
        self._steps: tuple[Callable[[Block], Block], ...] = ()
        self._checkpoint = None if checkpoint is None else Checkpoint(checkpoint)
        self._unread = checkpoint is not None
        self._restored = False
        self._progress = progress
        self._threads = core_count() if threads is None else check_count(threads, "threads")
        self.passes = 0

    @classmethod
    def of(
        cls,
        scores: np.ndarray,
        y: UserData = None,
        sample_weight: UserData = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        threads: int | None = None,
    ) -> Blocks:
        """Make blocks of data from Dask, Arrow, Zarr, h5py or NumPy.

        Parameters
        ----------
        scores : array-like or data set
            A Dask array or data frame, a ``pyarrow.dataset``, a Zarr or h5py array, or any NumPy
            array, mapped from a file or not.
        y, sample_weight : array-like or str, optional
            Data of the type of ``scores``, or arrays in memory; for data sets and data frames,
            names of columns, which are then left out of the scores.
        checkpoint, progress, threads
            As for :class:`Blocks`.

        Returns
        -------
        Blocks

        Raises
        ------
        TypeError
            If the data cannot be read in blocks.

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
        return cls(source, checkpoint=checkpoint, progress=progress, threads=threads)

    @property
    def names(self) -> list[object] | None:
        """Names of the columns of scores, if the source has names and blocks do not."""
        return None if self._steps else self._source.names

    def total(self, function: Callable[[Block], Sums | None], merge: Merge = add) -> Sums:
        """Make a pass: call a function with each block, and add the results that are not None.

        A Dask scheduler sends the function and the addition of results to other processes.
        """
        kept = self._checkpoint
        if kept is not None:
            self._restore(kept)
            result = kept.recall(function)
            if result is not None:
                self.passes += 1
                return result
        sums = self._pass(function, merge)
        self.passes += 1
        if sums is None:
            raise ValueError("blocks must hold rows, got none")
        if kept is not None:
            known = self._source.known
            kept.keep(sums, np.stack([known[number] for number in range(len(known))]))
        return sums

    def each(self, function: Callable[[Block], Result]) -> Generator[Result, None, None]:
        """Yield the result of a function for each block, in order."""
        return self._work(function, report=False)

    def mapped(self, function: Callable[[Block], object]) -> Blocks:
        """Return blocks with other scores, which are computed when they are read."""
        source: UserData = self._source
        made = Blocks(source, threads=self._threads)
        made._steps = (*self._steps, partial(_mapped, function))
        return made

    def finish(self) -> None:
        """Delete what a checkpoint keeps, once its task is done.

        If all results came from the checkpoint, one more pass compares the rows.
        """
        if self._checkpoint is not None and not self._unread:
            if self._restored:
                self._pass(_nothing, add)
            self._checkpoint.delete()

    def _pass(self, function: Callable[[Block], Sums | None], merge: Merge) -> Sums | None:
        """Read all blocks; after a failure, the next pass may see different blocks."""
        source, function = self._source, partial(_unless_empty, function)
        with self._comparing():
            if source.delayed is None:
                sums = merge_parts(merge, self._work(function))
            else:
                parts = source.delayed()
                work = partial(read_block, self._steps, function)
                prints, sums = on_scheduler(parts, work, merge, source.known)
                source.known.update(prints)
                self._say(True, len(parts), len(parts))
        self._restored = False
        return sums

    def _restore(self, kept: Checkpoint) -> None:
        """Read a checkpoint once, and compare the first block."""
        if not self._unread:
            return
        prints, self._unread = kept.read(), False
        if prints is None:
            return
        self._source.known = dict(enumerate(prints))
        self._source.counted, self._restored = len(prints), True
        with self._comparing():
            next(self.each(_nothing), None)

    @contextmanager
    def _comparing(self) -> Iterator[None]:
        """Explain an error if rows differ from a checkpoint; else forget rows after a failure."""
        try:
            yield
        except RowsChanged as error:
            if not self._restored or self._checkpoint is None:
                self._source.forget()
                raise
            raise ValueError(
                f"checkpoint {self._checkpoint.path} was written for other data ({error}); delete "
                "the file to start over"
            ) from error
        except BaseException:
            if not self._restored:
                self._source.forget()
            raise

    def _work(
        self, function: Callable[[Block], Result], report: bool = True
    ) -> Generator[Result, None, None]:
        """Process a few blocks at a time, and yield the results in order."""
        source = self._source
        known, before = source.counted if source.count is None else source.count, source.known
        waiting: deque[Future[tuple[np.ndarray, Result]]] = deque()
        work = partial(read_block, self._steps, function)
        done = 0

        def take() -> Result:
            nonlocal done
            before[done], result = waiting.popleft().result()
            done += 1
            return result

        with single_threaded_blas(), ThreadPoolExecutor(self._threads) as pool:
            try:
                for number, part in enumerate(source.parts()):
                    waiting.append(pool.submit(work, number, part, before.get(number)))
                    if len(waiting) > self._threads:
                        yield take()
                        self._say(report, done, known)
                while waiting:
                    yield take()
                    self._say(report, done, known)
                if known is not None and known != done:
                    raise RowsChanged(
                        f"make_iterator must yield the same blocks for each pass, got {done} after "
                        f"{known}; return a new iterator over the same rows each time"
                    )
                source.counted = done
            finally:
                for future in waiting:
                    future.cancel()

    def _say(self, report: bool, done: int, known: int | None) -> None:
        if report and self._progress is not None:
            self._progress(self.passes, done, known)


def _mapped(function: Callable[[Block], object], block: Block) -> Block:
    return block._replace(scores=function(block))


def _nothing(block: Block) -> None:
    """Ignore a block, which is only read."""


def _unless_empty(function: Callable[[Block], Sums | None], block: Block) -> Sums | None:
    return function(block) if rows_of(block.scores) else None


def _source_of(scores: UserData, y: UserData, weights: UserData, arrays: bool = False) -> UserData:
    """Return the :class:`BlockSource` of data that are read in blocks, or None for other data.

    With ``arrays``, any array with a shape is read in blocks, otherwise only arrays in files.
    """
    library = type(scores).__module__.partition(".")[0]
    if library in ("dask", "dask_expr"):
        return of_dask(scores, y, weights)
    if library == "pyarrow" and hasattr(scores, "to_batches"):
        return of_arrow(scores, y, weights)
    if library in _FILES and not hasattr(scores, "shape"):
        raise TypeError(
            f"scores must be an array, got a {type(scores).__name__} of {library}; give one of the "
            "arrays in it"
        )
    is_file = isinstance(scores, np.memmap) and scores.nbytes > _IN_MEMORY
    if is_file or library in _FILES or (arrays and hasattr(scores, "shape")):
        return of_array(scores, y, weights)
    return None


def map_blocks(
    function: Callable[[Block], AnyArray], blocks: Blocks, scores: object, columns: int
) -> Any:
    """Apply a function to each block of ``scores``, and return results of the corresponding kind.

    Arrays mapped from files give arrays, Dask arrays give Dask arrays with ``columns`` columns, and
    other scores give blocks.
    """
    if on_host(scores):
        return np.concatenate([*blocks.each(function)])
    if hasattr(scores, "map_blocks") and hasattr(scores, "chunks"):
        return map_chunks(function, scores, columns)
    return blocks.mapped(function)


def as_blocks(
    scores: UserData, y: UserData = None, sample_weight: UserData = None
) -> Blocks | None:
    """Return blocks for data that are read in blocks, and None for arrays in memory."""
    if isinstance(scores, Blocks):
        if y is not None or sample_weight is not None:
            raise ValueError("y and weights must be left out: Blocks contain them")
        return scores
    source = _source_of(scores, y, sample_weight)
    return None if source is None else Blocks(source)
