"""Sources of blocks of rows: iterators, arrays in files, Arrow data sets, and Dask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np

from bayescal._core.arrays import UserData, XArray, on_host
from bayescal._core.execution.chunks import slices
from bayescal.data.blocks.checkpoint import RowsChanged, check_unchanged, fingerprint
from bayescal.data.label_names import as_labels

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Result = TypeVar("Result")

#: Returns a block: scores, with labels and weights if there are any.
Part: TypeAlias = Callable[[], tuple[UserData, ...]]
#: Numbers in a block, and maximum of its rows, unless the source determines its size.
_NUMBERS, _ROWS = 1 << 20, 1 << 17
#: Modules of iterators that cannot be restarted, such as generators.
_READ_ONCE = "builtins", "itertools"
#: Number of batches of a data set that are read ahead.
_AHEAD = 4


class Block(NamedTuple):
    """Some of the rows: scores, labels and weights as users give them, or None."""

    #: Number of the block, from 0.
    number: int
    scores: UserData
    y: UserData = None
    weights: UserData = None


@dataclass
class BlockSource:
    """A way to read blocks, repeatable for each pass."""

    #: Yields functions that read the blocks in order; they may be called in other threads.
    parts: Callable[[], Iterator[Part]]
    #: Number of blocks, if the source knows it, and the number that a pass counted.
    count: int | None = None
    counted: int | None = None
    #: Names of the columns of scores, if blocks do not have them.
    names: list[object] | None = None
    #: Returns blocks that a Dask scheduler is to read.
    delayed: Callable[[], list[UserData]] | None = None
    #: Fingerprints of the blocks read so far, by number.
    known: dict[int, np.ndarray] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget which blocks were read, so that the next pass is the first."""
        self.known.clear()
        self.counted = None


def read_block(
    steps: tuple[Callable[[Block], Block], ...],
    function: Callable[[Block], Result],
    number: int,
    part: Part,
    before: np.ndarray | None = None,
) -> tuple[np.ndarray, Result]:
    """Check the fingerprint of a block, and apply a function to the block; return both."""
    try:
        given = part()
        if isinstance(given, list) and all(hasattr(entry, "shape") for entry in given):
            given = tuple(given)  # batches of PyTorch's DataLoader
        if not isinstance(given, tuple) or not 1 <= len(given) <= 3:
            raise TypeError(
                "blocks must be tuples (scores, labels) or (scores, labels, weights), got "
                f"{type(given).__name__}"
            )
        print_now = fingerprint(given)
        check_unchanged(number, before, print_now)
        block = Block(number, *given)
        for step in steps:
            block = step(block)
        return print_now, function(block)
    except RowsChanged:
        raise
    except (TypeError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"block {number}: {error}") from error
    except Exception as error:
        error.add_note(f"in block {number}")
        raise


def iterated(make: Callable[[], Iterable[UserData]] | Iterable[UserData]) -> BlockSource:
    """Make a source of the blocks that a callable yields or an iterable holds."""
    if isinstance(make, Iterator) or not (callable(make) or isinstance(make, Iterable)):
        raise TypeError(
            "make_iterator must be a function that returns an iterator, or a sequence, since "
            f"blocks are read more than once; got {type(make).__name__}"
        )

    before: list[object] = []

    def parts() -> Iterator[Part]:
        blocks = iter(make() if callable(make) else make)
        if type(blocks).__module__ in _READ_ONCE:
            if before and before[0] is blocks:
                raise TypeError(
                    "make_iterator must return a new iterator for each pass, since blocks are read "
                    f"more than once, got the same {type(blocks).__name__} again; create it inside "
                    "the function"
                )
            before[:] = [blocks]
        for given in blocks:
            yield lambda given=given: given

    return BlockSource(parts)


def of_array(scores: XArray, y: XArray, weights: XArray) -> BlockSource:
    """Return slices of any array with a shape, with labels and weights, as a source."""
    if len(scores.shape) not in (1, 2):
        raise ValueError(f"scores must have shape (n,) or (n, k), got {tuple(scores.shape)}")
    n, width = scores.shape[0], math.prod(scores.shape[1:])
    rows = max(1, min(_ROWS, _NUMBERS // max(1, width)))
    chunk = getattr(scores, "chunks", None)
    if chunk and chunk[0] and not on_host(scores):
        # Read whole chunks, so that none is read twice.
        rows = chunk[0] * max(1, rows // chunk[0])
    columns = [column for column in (scores, y, weights) if column is not None]
    for values, name in ((y, "y"), (weights, "sample_weight")):
        if values is not None:
            check_beside(values, name, n)
    parts = slices(n, rows)

    def read(part: slice) -> tuple[UserData, ...]:
        # Data frames and series count rows by position with iloc.
        block = [getattr(column, "iloc", column)[part] for column in columns]
        return tuple(block if weights is None or y is not None else [block[0], None, block[1]])

    return BlockSource(lambda: ((lambda part=part: read(part)) for part in parts), len(parts))


def check_beside(values: XArray, name: str, n: int) -> None:
    """Check that labels or weights are an array of ``n`` rows."""
    shape = getattr(values, "shape", None)
    if shape is None:
        raise TypeError(f"{name} must be an array, got {type(values).__name__}")
    if shape[:1] != (n,):
        raise ValueError(f"{name} must have {n} rows to match scores, got {[*shape, 0][0]}")


def of_arrow(dataset: UserData, y: UserData, weights: UserData) -> BlockSource:
    """Return batches of a ``pyarrow`` data set or table; labels and weights are named columns."""
    columns = list(dataset.schema.names)
    names = score_columns(columns, y, weights)
    wanted = [*names, *(name for name in (y, weights) if name is not None)]
    rows = max(1, min(_ROWS, _NUMBERS // max(1, len(names))))

    def parts() -> Iterator[Part]:
        if hasattr(dataset, "to_table"):
            batches = dataset.to_batches(columns=wanted, batch_size=rows, **_options(dataset))
        else:
            batches = dataset.select(wanted).to_batches(max_chunksize=rows)
        for batch in batches:
            if batch.num_rows:
                yield lambda batch=batch: read(batch)

    def read(batch: RecordBatch) -> tuple[UserData, ...]:
        def column(name: str) -> np.ndarray:
            return batch.column(name).to_numpy(zero_copy_only=False)

        scores = column(names[0]) if len(names) == 1 else np.stack([column(n) for n in names], 1)
        labels = None if y is None else as_labels(batch.column(y))
        return scores, labels, None if weights is None else column(weights)

    return BlockSource(parts, names=names)


def _options(dataset: object) -> dict[str, object]:
    """Return options that keep few batches of a data set in memory.

    By default, Arrow reads sixteen batches of four files ahead and buffers whole Parquet files.
    """
    options: dict[str, object] = {"batch_readahead": _AHEAD, "fragment_readahead": 1}
    if type(getattr(dataset, "format", None)).__name__ == "ParquetFileFormat":
        from pyarrow.dataset import ParquetFragmentScanOptions

        options["fragment_scan_options"] = ParquetFragmentScanOptions(pre_buffer=False)
    return options


def score_columns(columns: list[UserData], y: object, weights: object) -> list[UserData]:
    """Return the columns of scores: those that are neither labels nor weights."""
    repeated = [name for i, name in enumerate(columns) if name in columns[:i]]
    if repeated:
        raise ValueError(
            f"columns must have names that differ, got {repeated[0]!r} twice; rename one"
        )
    for column, name in ((y, "y"), (weights, "sample_weight")):
        if column is None:
            continue
        if not isinstance(column, str):
            raise TypeError(
                f"{name} must be the name of a column, got {type(column).__name__}; add it to the "
                "table as a column, or pass only arrays"
            )
        if column not in columns:
            raise ValueError(f"{name} must be the name of a column, {columns}, got {column!r}")
    if y is not None and y == weights:
        raise ValueError(f"y and sample_weight must be different columns, got {y!r} for both")
    names = [column for column in columns if column not in (y, weights)]
    if not names:
        raise ValueError(f"scores must have at least one column, got only {columns}")
    return names
