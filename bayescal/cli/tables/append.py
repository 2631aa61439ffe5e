"""Copies of files with columns added: the original rows, with new numbers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from bayescal.cli._errors import CommandError
from bayescal.cli.tables.cells import numeric_column
from bayescal.cli.tables.files import (
    FileTable,
    Show,
    is_standard_output,
    write_atomically,
    write_lines,
    write_table,
)
from bayescal.cli.tables.json_lines import is_json, with_members
from bayescal.cli.tables.streams import ParquetFile, RowFile

_ARROW = (".parquet", ".feather")


class Added(NamedTuple):
    """Columns to add, computed from others."""

    names: Sequence[str]
    #: Maps numbers (n, k) to those of the new columns (n, added).
    compute: Callable[[np.ndarray], np.ndarray]
    #: The columns to read, and the option that named them.
    read: Sequence[str]
    option: str


def check_form(source: RowFile, out: Path) -> None:
    """Raise if the rows of a file cannot be written in the format that the name implies."""
    if out.suffix.lower() in _ARROW and not isinstance(source, ParquetFile):
        raise CommandError(
            f"{out}: rows of text are written as text, CSV, TSV or JSON lines; pass --out NAME.csv"
        )
    if is_json(out) and not source.head.objects:
        raise CommandError(f"{out}: only JSON lines are written as JSON lines; pass --out NAME.csv")


def append(source: RowFile, out: Path, added: Added, show: Show) -> int:
    """Write all rows with the added columns, in blocks, and return the number of rows.

    The name of the new file implies its format, which :func:`check_form` has allowed.
    """
    if isinstance(source, ParquetFile) and out.suffix.lower() in _ARROW:
        return _append_in_arrow(source, out, added, show)
    count = 0

    def blocks() -> Iterator[tuple[FileTable, list[list[float]]]]:
        nonlocal count
        for table in source.tables(show):
            read = [numeric_column(table, name, added.option) for name in added.read]
            scores = source.stack(read, len(table.rows))
            new = compute_known(added.compute, scores, len(added.names)).tolist()
            count += len(new)
            yield table, new

    # Compute the first block first, so that its errors come before any output.
    made = blocks()
    made = chain([next(made)], made)
    if is_json(out) or (is_standard_output(out) and source.head.objects):
        write_lines(
            out,
            (
                with_members(line, added.names, numbers)
                for table, new in made
                for line, numbers in zip(table.objects, new, strict=True)
            ),
        )
        return count
    rows = (
        [*row, *map(source.form.print, numbers)]
        for table, new in made
        for row, numbers in zip(table.rows, new, strict=True)
    )
    write_table(out, [*source.head.header, *added.names], rows, source.form.between(out))
    return count


def compute_known(
    compute: Callable[[np.ndarray], np.ndarray], scores: np.ndarray, columns: int
) -> np.ndarray:
    """Compute columns for rows (n, k); rows with a missing number get NaN."""
    known = ~np.isnan(scores).any(axis=1)
    if known.all():
        return compute(scores)
    computed = np.full((len(scores), columns), np.nan)
    if known.any():
        computed[known] = compute(scores[known])
    return computed


def _append_in_arrow(source: ParquetFile, out: Path, added: Added, show: Show) -> int:
    import pyarrow
    from pyarrow import ipc, parquet

    count, schema = 0, source.schema
    for name in added.names:
        schema = schema.append(pyarrow.field(name, pyarrow.float64()))

    def write(stream: BinaryIO) -> None:
        nonlocal count
        new = parquet.ParquetWriter if out.suffix.lower() == ".parquet" else ipc.new_file
        with new(stream, schema) as writer:
            for batch in source.batches(None, show):
                read = [source.numbers(batch, name, added.option, count) for name in added.read]
                scores = source.stack(read, batch.num_rows)
                probs = compute_known(added.compute, scores, len(added.names))
                made = [pyarrow.array(column, from_pandas=True) for column in probs.T]
                columns = [*batch.columns, *made]
                writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
                count += batch.num_rows

    write_atomically(out, write)
    return count
