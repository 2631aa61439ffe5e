"""``bayescal fit``, ``apply``, ``export``: learn a calibration from a file, use it on others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

import bayescal as bc
from bayescal.cli._errors import CommandError, library_call, say, watched
from bayescal.cli._files import (
    Show,
    append_columns,
    check_new_columns,
    check_target,
    enumerate_names,
    is_standard_output,
    numeric_column,
    write_table,
)
from bayescal.cli._options import Label, Seed, Weights
from bayescal.cli._streams import ParquetFile, RowFile, open_rows
from bayescal.cli._training import Training


def fit_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV or Parquet file with scores and labels; .gz too. Large ones are read in "
            "blocks, several times.",
            show_default=False,
        ),
    ],
    *,
    label: Label,
    out: Annotated[Path, typer.Option(help="File for the calibrator; usually NAME.safetensors.")],
    columns: Annotated[
        str | None,
        typer.Option(
            help="Column of the second class, or one for each class with commas between. By "
            "default all other columns of numbers, if these can only be the scores."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Labels with commas between, in the order of the columns."),
    ] = None,
    inputs: Annotated[
        str, typer.Option(help="What the columns hold: probs, logits or scores.")
    ] = "probs",
    weights: Weights = None,
    method: Annotated[
        str, typer.Option(help="A calibrator's class in any case, as temperature; or sigmoid.")
    ] = "Auto",
    seed: Seed = 0,
) -> None:
    """Learn to calibrate scores from a CSV or Parquet file, and say what to expect."""
    if inputs not in ("probs", "logits", "scores"):
        raise CommandError(f"--inputs must be probs, logits or scores, got {inputs!r}")
    if is_standard_output(out):
        raise CommandError("--out must be a file, got -")
    check_target(out)
    start = time.perf_counter()
    with watched() as show:
        training = Training(open_rows(file), label, weights, show)
        (model,) = training.choose([] if columns is None else [f"scores={columns}"], classes)
        training.names = model.ordered(training.classes)
        with library_call():
            calibrator = _make(method, inputs, training.classes, seed)
            training.fit(calibrator)
            calibrator.feature_names_in_ = np.array(training.names, object)
            bc.save(calibrator, out)
    seconds = time.perf_counter() - start
    print(getattr(calibrator, "report_", f"{method}: {calibrator.status_}"))
    say(
        f"{training.count:,} rows of {', '.join(training.names)}, {training.passes} "
        f"{'pass' if training.passes == 1 else 'passes'} over the file, {seconds:.1f} s; "
        f"written: {out}"
    )


def apply_file(
    calibrator: Annotated[Path, typer.Argument(help="Written by fit.", show_default=False)],
    file: Annotated[
        Path,
        typer.Argument(
            help="CSV or Parquet file with the same columns of scores.", show_default=False
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(
            help="File to write: the rows and their probabilities, as Parquet if it ends in "
            ".parquet; - prints."
        ),
    ],
    prefix: Annotated[
        str, typer.Option(help="Of the new columns, before the names of the classes.")
    ] = "calibrated_",
) -> None:
    """Calibrate the scores in a CSV or Parquet file."""
    check_target(out)
    with library_call():
        fitted = bc.load(calibrator)
    names = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
    if not names:
        raise CommandError(f"{calibrator}: the file must be written by bayescal fit")
    del fitted.feature_names_in_
    source = open_rows(file)
    added = [f"{prefix}{label}" for label in fitted.classes_]
    check_new_columns(source.head, dict.fromkeys(added, "choose another --prefix"))
    with watched() as watch:
        show = partial(watch, file.name)
        if out.suffix.lower() == ".parquet":
            if not isinstance(source, ParquetFile):
                raise CommandError(f"{out}: rows of a CSV file are written as CSV, not as Parquet")
            count = source.extend(out, names, added, partial(_predict, fitted), show)
        else:
            count = _extend(source, out, names, added, fitted, show)
    say(f"{count:,} rows with columns {enumerate_names(added)}")


def _extend(
    source: RowFile, out: Path, names: list[str], added: list[str], fitted: Any, show: Show
) -> int:
    """Write all rows and their probabilities as CSV, and return how many there are."""
    count = 0

    def rows() -> Iterator[list[str]]:
        nonlocal count
        for table in source.tables(show):
            scores = [numeric_column(table, name, "--columns") for name in names]
            probs = _predict(fitted, np.stack(scores, axis=1))
            count += len(table.rows)
            yield from append_columns(table, probs)

    made = rows()
    # What is wrong with the first block is said before anything is printed.
    first = next(made)
    write_table(out, [*source.head.header, *added], chain([first], made))
    return count


def _predict(fitted: Any, scores: np.ndarray) -> np.ndarray:
    with library_call():
        return fitted.predict_proba(scores)


def export_file(
    calibrator: Annotated[Path, typer.Argument(help="Written by fit.", show_default=False)],
    out: Annotated[
        Path,
        typer.Argument(help="File to write: .onnx, .stablehlo or .pt2.", show_default=False),
    ],
    *,
    dtype: Annotated[
        str, typer.Option(help="Of scores and probabilities: float32 or float64.")
    ] = "float32",
) -> None:
    """Write a calibrator as a program that runs without bayescal."""
    check_target(out)
    with library_call():
        bc.export(bc.load(calibrator), out, dtype=cast(Any, dtype))
    say(f"written: {out}")


def _make(method: str, inputs: str, classes: Sequence[str], seed: int) -> Any:
    """Return a calibrator by the name of its class."""
    from bayescal.calibrators.names import make_calibrator

    made = make_calibrator(method, argument="--method", inputs=inputs, classes=tuple(classes))
    if "random_state" in made.get_params():
        made.set_params(random_state=seed)
    return made
