"""``bayescal fit``, ``apply``, ``export``: learn a calibration from a file, use it on others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer

import bayescal as bc
from bayescal.cli._columns import choose_models, read_labels
from bayescal.cli._errors import CommandError, library_call, say
from bayescal.cli._files import (
    Table,
    append_columns,
    check_new_columns,
    check_target,
    enumerate_names,
    is_standard_output,
    numeric_column,
    read_table,
    write_table,
)
from bayescal.cli._options import Label, Scores, Seed, Weights

#: Calibrators that cannot be made by their name alone.
_OTHER = {"Calibrator", "OneVsRest"}


def fit_file(
    file: Scores,
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
    method: Annotated[str, typer.Option(help="A calibrator's class, as Temperature.")] = "Auto",
    seed: Seed = 0,
) -> None:
    """Learn to calibrate scores from a CSV file, and say what to expect."""
    if inputs not in ("probs", "logits", "scores"):
        raise CommandError(f"--inputs must be probs, logits or scores, got {inputs!r}")
    if is_standard_output(out):
        raise CommandError("--out must be a file, got -")
    check_target(out)
    table = read_table(file)
    labels = read_labels(table, label, classes)
    named = [] if columns is None else [f"scores={columns}"]
    (model,) = choose_models(table, named, label, weights, labels.classes)
    names = model.ordered(labels.classes)
    scores = _read(table, names)
    own = None if weights is None else numeric_column(table, weights, "--weights")
    start = time.perf_counter()
    with library_call():
        calibrator = _make(method, inputs, labels.classes, seed)
        calibrator.fit(scores, np.asarray(labels.classes)[labels.codes], own)
        calibrator.feature_names_in_ = np.array(names, object)
        bc.save(calibrator, out)
    seconds = time.perf_counter() - start
    print(getattr(calibrator, "report_", f"{method}: {calibrator.status_}"))
    say(f"{len(table.rows):,} rows of {', '.join(names)}, {seconds:.1f} s; written: {out}")


def apply_file(
    calibrator: Annotated[Path, typer.Argument(help="Written by fit.", show_default=False)],
    file: Annotated[
        Path, typer.Argument(help="CSV file with the same columns of scores.", show_default=False)
    ],
    *,
    out: Annotated[
        Path, typer.Option(help="File to write: the rows and their probabilities; - prints.")
    ],
    prefix: Annotated[
        str, typer.Option(help="Of the new columns, before the names of the classes.")
    ] = "calibrated_",
) -> None:
    """Calibrate the scores in a CSV file."""
    check_target(out)
    with library_call():
        fitted = bc.load(calibrator)
    names = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
    if not names:
        raise CommandError(f"{calibrator}: the file must be written by bayescal fit")
    del fitted.feature_names_in_
    table = read_table(file)
    added = [f"{prefix}{label}" for label in fitted.classes_]
    check_new_columns(table, dict.fromkeys(added, "choose another --prefix"))
    with library_call():
        probs = fitted.predict_proba(_read(table, names))
    write_table(out, [*table.header, *added], append_columns(table, probs))
    say(f"{len(table.rows):,} rows with columns {enumerate_names(added)}")


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


def _read(table: Table, names: Sequence[str]) -> np.ndarray:
    return np.stack([numeric_column(table, name, "--columns") for name in names], axis=1)


def _make(method: str, inputs: str, classes: Sequence[str], seed: int) -> Any:
    """Return a calibrator by the name of its class."""
    known: dict[str, Any] = {n: getattr(bc, n) for n in bc.__all__ if n not in _OTHER}
    able = [n for n, k in known.items() if isinstance(k, type) and issubclass(k, bc.Calibrator)]
    able.append("Auto")
    if method not in able:
        raise CommandError(f"--method must be one of {', '.join(sorted(able))}, got {method!r}")
    made = known[method](inputs=inputs, classes=tuple(classes))
    if "random_state" in made.get_params():
        made.set_params(random_state=seed)
    return made
