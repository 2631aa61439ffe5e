"""Copies of files with columns added: the original rows, with new numbers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bayescal.cli._cells import numeric_column
from bayescal.cli._errors import CommandError
from bayescal.cli._files import (
    Show,
    Table,
    is_standard_output,
    write_atomically,
    write_lines,
    write_table,
)
from bayescal.cli._json_lines import is_json, with_members
from bayescal.cli._streams import ParquetFile, RowFile

#: A function from numbers (n, k) to those of the new columns (n, added).
Compute = Callable[[np.ndarray], np.ndarray]
_ARROW = (".parquet", ".feather")


def check_form(source: RowFile, out: Path) -> None:
    """Raise if the rows of a file cannot be written in the format that the name implies."""
    if out.suffix.lower() in _ARROW and not isinstance(source, ParquetFile):
        raise CommandError(
            f"{out}: rows of text are written as text, CSV, TSV or JSON lines; pass --out NAME.csv"
        )
    if is_json(out) and not source.head.objects:
        raise CommandError(f"{out}: only JSON lines are written as JSON lines; pass --out NAME.csv")


def append(
    source: RowFile,
    out: Path,
    names: Sequence[str],
    added: Sequence[str],
    compute: Compute,
    show: Show,
    option: str,
) -> int:
    """Write all rows with the columns computed from some of them, and return their number.

    Rows are read and written in blocks; ``option`` is the option that named the columns. The name
    of the new file implies its format, which :func:`check_form` has allowed.
    """
    if isinstance(source, ParquetFile) and out.suffix.lower() in _ARROW:
        return _append_in_arrow(source, out, names, added, compute, show, option)
    count = 0

    def blocks() -> Iterator[tuple[Table, list[list[float]]]]:
        nonlocal count
        for table in source.tables(show):
            read = [numeric_column(table, name, option) for name in names]
            new = _computed(compute, source.stack(read, len(table.rows)), len(added)).tolist()
            count += len(new)
            yield table, new

    # Compute the first block first, so that its errors come before any output.
    made = blocks()
    made = chain([next(made)], made)
    if is_json(out) or (is_standard_output(out) and source.head.objects):
        write_lines(
            out,
            (
                with_members(line, added, numbers)
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
    write_table(out, [*source.head.header, *added], rows, source.form.between(out))
    return count


def _computed(compute: Compute, scores: np.ndarray, added: int) -> np.ndarray:
    """Compute columns for rows (n, k); rows with a missing number get NaN."""
    known = ~np.isnan(scores).any(axis=1)
    if known.all():
        return compute(scores)
    computed = np.full((len(scores), added), np.nan)
    if known.any():
        computed[known] = compute(scores[known])
    return computed


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
                read = [source.numbers(batch, name, option, count) for name in names]
                probs = _computed(compute, source.stack(read, batch.num_rows), len(added))
                made = [pyarrow.array(column, from_pandas=True) for column in probs.T]
                columns = [*batch.columns, *made]
                writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
                count += batch.num_rows

    write_atomically(out, write)
    return count
