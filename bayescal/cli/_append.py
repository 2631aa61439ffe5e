"""Files with columns added: their rows as they are, and new numbers beside each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bayescal.cli._cells import numeric_column
from bayescal.cli._errors import CommandError
from bayescal.cli._files import Show, write_atomically, write_table
from bayescal.cli._streams import ParquetFile, RowFile

#: Makes of numbers (n, k) those of the new columns (n, added).
Compute = Callable[[np.ndarray], np.ndarray]
_ARROW = (".parquet", ".feather")


def check_form(source: RowFile, out: Path) -> None:
    """Raise if the rows of a file cannot be written in the form that a name asks for."""
    if out.suffix.lower() in _ARROW and not isinstance(source, ParquetFile):
        raise CommandError(f"{out}: rows of text are written as text, CSV or TSV")


def append(
    source: RowFile,
    out: Path,
    names: Sequence[str],
    added: Sequence[str],
    compute: Compute,
    show: Show,
    option: str,
) -> int:
    """Write all rows with what is computed of some columns, and return how many there are.

    Rows are read and written in blocks; the option named the columns. The name of the new file
    says its form, which :func:`check_form` allowed.
    """
    if isinstance(source, ParquetFile) and out.suffix.lower() in _ARROW:
        return _append_in_arrow(source, out, names, added, compute, show, option)
    count = 0

    def rows() -> Iterator[list[str]]:
        nonlocal count
        for table in source.tables(show):
            read = [numeric_column(table, name, option) for name in names]
            new = compute(source.stack(read, len(table.rows))).tolist()
            count += len(new)
            for row, own in zip(table.rows, new, strict=True):
                yield [*row, *map(source.form.print, own)]

    made = rows()
    # What is wrong with the first block is said before anything is printed.
    first = next(made)
    header, sep = [*source.head.header, *added], source.form.between(out)
    write_table(out, header, chain([first], made), sep)
    return count


def _append_in_arrow(
    source: ParquetFile,
    out: Path,
    names: Sequence[str],
    added: Sequence[str],
    compute: Compute,
    show: Show,
    option: str,
) -> int:
    import pyarrow
    from pyarrow import ipc, parquet

    count, schema = 0, source.schema
    for name in added:
        schema = schema.append(pyarrow.field(name, pyarrow.float64()))

    def write(stream: BinaryIO) -> None:
        nonlocal count
        new = parquet.ParquetWriter if out.suffix.lower() == ".parquet" else ipc.new_file
        with new(stream, schema) as writer:
            for batch in source.batches(None, show):
                read = [source.numbers(batch, name, count, option) for name in names]
                probs = compute(source.stack(read, batch.num_rows))
                columns = [*batch.columns, *map(pyarrow.array, probs.T)]
                writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
                count += batch.num_rows

    write_atomically(out, write)
    return count
