"""``bayescal fit`` and ``bayescal apply``: learn a calibration from one file, use it on others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bayescal as bc
from bayescal.cli._columns import Columns, Labels, by_name, find_columns, parse_models, read_labels
from bayescal.cli._errors import CommandError, library_call, say
from bayescal.cli._files import (
    Table,
    check_target,
    enumerate_names,
    is_standard_output,
    numeric_column,
    read_table,
    write_table,
)

#: Calibrators that cannot be made by their name alone.
_OTHER = {"Calibrator", "OneVsRest"}


def fit_file(
    file: Path,
    *,
    label: str,
    columns: str | None,
    classes: str | None,
    inputs: str,
    weights: str | None,
    method: str,
    seed: int,
    out: Path,
) -> None:
    """Read labels and scores, fit, write the calibrator, and say what to expect of it."""
    if inputs not in ("probs", "logits", "scores"):
        raise CommandError(f"--inputs must be probs, logits or scores, got {inputs!r}")
    if seed < 0:
        raise CommandError(f"--seed must not be negative, got {seed}")
    if is_standard_output(out):
        raise CommandError("--out must be a file, got -")
    check_target(out)
    table = read_table(file)
    labels = read_labels(table, label, classes)
    names = _choose_columns(table, label, columns, weights, labels)
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


def apply_file(calibrator: Path, file: Path, *, out: Path, prefix: str) -> None:
    """Read a calibrator and scores, and write the rows with calibrated probabilities."""
    check_target(out)
    try:
        with library_call():
            fitted = bc.load(calibrator)
    except OSError as error:
        raise CommandError(f"{calibrator}: cannot read the file: {error.strerror}") from error
    names = [str(name) for name in getattr(fitted, "feature_names_in_", [])]
    if not names:
        raise CommandError(f"{calibrator}: the file must be written by bayescal fit")
    del fitted.feature_names_in_
    table = read_table(file)
    added = [f"{prefix}{label}" for label in fitted.classes_]
    for name in added:
        if name in [own.strip() for own in table.header]:
            raise CommandError(
                f"{file}: the file has a column {name!r} already; choose another --prefix"
            )
    with library_call():
        probs = fitted.predict_proba(_read(table, names))

    def rows() -> Iterator[list[str]]:
        for row, values in zip(table.rows, probs, strict=True):
            yield [*row, *(repr(float(value)) for value in values)]

    write_table(out, [*table.header, *added], rows())
    say(f"{len(table.rows):,} rows with columns {enumerate_names(added)}")


def _choose_columns(
    table: Table, label: str, columns: str | None, weights: str | None, labels: Labels
) -> list[str]:
    """Return the columns of the scores, in the order of the classes where they are named so."""
    if columns is None:
        apart = [label.strip(), *([] if weights is None else [weights.strip()])]
        model, left_out = find_columns(table, apart, labels.classes)
        if left_out:
            say(f"columns without numbers are left out: {enumerate_names(left_out)}")
    else:
        model: Columns = parse_models([f"scores={columns}"], labels.classes)[0]
    if len(model.columns) == 1:
        return model.columns
    return by_name(model.columns, labels.classes) or model.columns


def _read(table: Table, names: Sequence[str]) -> np.ndarray:
    return np.stack([numeric_column(table, name, "--columns") for name in names], axis=1)


def _make(method: str, inputs: str, classes: Sequence[str], seed: int) -> Any:
    """Return a calibrator by the name of its class."""
    known = {name: getattr(bc, name) for name in bc.__all__ if name not in _OTHER}
    able = {n: k for n, k in known.items() if isinstance(k, type) and issubclass(k, bc.Calibrator)}
    able["Auto"] = bc.Auto
    if method not in able:
        raise CommandError(f"--method must be one of {', '.join(sorted(able))}, got {method!r}")
    made = able[method](inputs=inputs, classes=tuple(classes))
    if "random_state" in made.get_params():
        made.set_params(random_state=seed)
    return made
