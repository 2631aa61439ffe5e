"""``bayescal fit``, ``apply``, ``export``: fit a calibrator to a file, and use it on others."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, cast

import numpy as np
import typer

import bayescal as bc
from bayescal.calibrators.catalog import METHODS
from bayescal.cli import _options
from bayescal.cli._errors import CommandError, library_call, say, show, watched
from bayescal.cli._options import check_inputs, completing
from bayescal.cli.tables.append import Added, append, check_form, compute_known
from bayescal.cli.tables.cells import enumerate_names
from bayescal.cli.tables.columns import ModelColumns, are_percentages
from bayescal.cli.tables.files import Format, check_new_columns, check_source, check_target
from bayescal.cli.tables.labeled import Training
from bayescal.cli.tables.streams import open_rows

if TYPE_CHECKING:
    from bayescal._core.arrays import AnyModel

#: Names of Platt scaling that are not names of classes.
_PLATT = ("platt", "sigmoid")
_METHODS = sorted([*_PLATT, *(name.lower() for name in METHODS)])


def fit_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="File with scores and labels: CSV, TSV, JSON lines, Parquet or Feather, .gz or "
            ".zst too; - is standard input. Large ones are read in blocks, several times.",
            show_default=False,
        ),
    ],
    *,
    label: _options.Label,
    out: Annotated[Path, typer.Option(help="File for the calibrator; usually NAME.safetensors.")],
    columns: Annotated[
        str | None,
        typer.Option(
            help="Column of the second class, or columns of all classes separated by commas. By "
            "default all other columns of numbers, if these can only be the scores."
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Labels separated by commas, in the order of the columns.")
    ] = None,
    inputs: Annotated[
        str,
        completing(
            "probs",
            "percent",
            "logits",
            "scores",
            help="What the columns hold: probs, percent, logits or scores.",
        ),
    ] = "probs",
    weights: _options.Weights = None,
    method: Annotated[
        str,
        completing(
            *_METHODS, help="A calibrator, such as beta or isotonic; bayescal methods lists them."
        ),
    ] = "Auto",
    option: Annotated[
        list[str] | None,
        typer.Option(
            help="Option of the method as NAME=VALUE, such as inference=laplace; can be repeated."
        ),
    ] = None,
    seed: _options.Seed = 0,
    sep: _options.Sep = None,
    encoding: _options.Encoding = None,
    decimal: _options.Decimal = ".",
    skip_missing: _options.SkipMissing = False,
) -> None:
    """Fit a calibrator to scores from a file, and report what to expect."""
    check_inputs(inputs, "probs", "percent", "logits", "scores")
    form = Format(sep, encoding, decimal, inputs == "percent", skip_missing)
    inputs = "probs" if form.percent else inputs
    check_target(out, "--out")
    _check_method(method)
    start = time.perf_counter()
    with watched() as watch:
        training = Training(open_rows(file, form), label, weights, watch)
        (model,) = training.choose([] if columns is None else [columns], classes)
        training.names = model.ordered(training.classes)
        with library_call():
            calibrator = _make(method, inputs, training.classes, seed, option or [])
            training.fit(calibrator)
            calibrator.feature_names_in_ = np.array(training.names, object)
            bc.save(calibrator, out)
    seconds = time.perf_counter() - start
    show(getattr(calibrator, "report_", f"{method}: {calibrator.status_}"))
    training.say_skipped()
    say(
        f"{training.count - training.skipped:,} rows of {enumerate_names(training.names, str)}, "
        f"{training.passes} "
        f"{'pass' if training.passes == 1 else 'passes'} over the file, {seconds:.1f} s; "
        f"written: {out}"
    )


def apply_file(
    calibrator: _options.CalibratorFile,
    file: Annotated[
        Path,
        typer.Argument(
            help="File with the same columns of scores, in any form that fit takes.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        Path,
        typer.Option(
            help="File to write: the rows and their probabilities, as Parquet, Feather or JSON "
            "lines if it ends in .parquet, .feather or .jsonl, else as text; - prints."
        ),
    ],
    prefix: Annotated[
        str, typer.Option(help="Prefix of the new columns; the names of the classes follow.")
    ] = "calibrated_",
    interval: Annotated[
        float | None,
        typer.Option(
            help="Add columns NAME_lower and NAME_upper: intervals of this level, of calibrators "
            "that have a posterior."
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            help="percent if the columns hold percentages; by default the same as for fit."
        ),
    ] = None,
    sep: _options.Sep = None,
    encoding: _options.Encoding = None,
    decimal: _options.Decimal = ".",
    skip_missing: _options.SkipMissing = False,
) -> None:
    """Calibrate the scores in a file."""
    check_target(out)
    if inputs not in (None, "percent"):
        raise CommandError(f"--inputs must be percent or left out, got {inputs!r}")
    if interval is not None and not 0 < interval < 1:
        raise CommandError(f"--interval must lie strictly between 0 and 1, got {interval:g}")
    check_source(calibrator)
    source = open_rows(file, Format(sep, encoding, decimal, inputs == "percent", skip_missing))
    check_form(source, out)
    fitted = SavedCalibrator.read(calibrator)
    added = [f"{prefix}{label}" for label in fitted.classes]
    if interval is not None:
        # For two classes the interval is that of the second.
        bounded = added if len(added) > 2 else added[1:]
        added += [f"{name}_{end}" for end in ("lower", "upper") for name in bounded]
    predicted = 0

    def predict(scores: np.ndarray) -> np.ndarray:
        nonlocal predicted
        predicted += len(scores)
        return fitted.predict(scores, interval)

    check_new_columns(source.head, dict.fromkeys(added, "choose another --prefix"))
    with watched() as watch:
        show = partial(watch, file.name)
        count = append(source, out, Added(added, predict, fitted.columns, "--columns"), show)
    say(f"{count:,} rows with columns {enumerate_names(added)}")
    if predicted < count:
        say(f"rows without scores, which got empty cells: {count - predicted:,}")


class SavedCalibrator(NamedTuple):
    """A calibrator from a file, and the columns that it was fitted to."""

    calibrator: AnyModel
    columns: list[str]

    @classmethod
    def read(cls, path: Path) -> SavedCalibrator:
        """Read a file that ``bayescal fit`` has written."""
        check_source(path)
        with library_call():
            calibrator = bc.load(path)
        columns = [str(name) for name in getattr(calibrator, "feature_names_in_", [])]
        if not columns:
            raise CommandError(f"{path}: the file must be written by bayescal fit")
        # Scores come as arrays, without names.
        del calibrator.feature_names_in_
        return cls(calibrator, columns)

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of the columns of probabilities."""
        return [str(label) for label in self.calibrator.classes_]

    @property
    def inputs(self) -> str:
        """The kind of the scores."""
        return getattr(self.calibrator, "inputs", "probs")

    def models(self) -> list[ModelColumns]:
        """Return the models to evaluate, without "raw" if scores are not probabilities."""
        mapped = ModelColumns("calibrated", self.columns, self._predict_known)
        return [mapped] if self.inputs == "scores" else [ModelColumns("raw", self.columns), mapped]

    def _predict_known(self, scores: np.ndarray) -> np.ndarray:
        """Predict; rows with missing scores have missing probabilities."""
        probs = compute_known(self.predict, scores, len(self.classes))
        return probs[:, 1] if scores.shape[1] == 1 else probs

    def predict(self, scores: np.ndarray, interval: float | None = None) -> np.ndarray:
        """Return probabilities (n, k), and intervals of a level in further columns."""
        fitted = self.calibrator
        if self.inputs == "probs" and are_percentages(scores):
            raise CommandError(
                f"scores must be probabilities, got {scores.max():g}; for percentages pass "
                "--inputs percent"
            )
        with library_call():
            probs = fitted.predict_proba(scores)
            if interval is None:
                return probs
            try:
                lower, upper = fitted.predict_interval(scores, interval)
            except AttributeError:
                raise CommandError(
                    f"--interval needs a posterior, which {fitted!r} does not have; fit it with "
                    "--option inference=laplace, if it has parameters, or use Auto"
                ) from None
            ends = [end.reshape(len(probs), -1) for end in (lower, upper)]
            return np.concatenate([probs, *ends], axis=1)


def _check_method(method: str) -> None:
    """Raise if no calibrator has this name."""
    known = [*METHODS, *_PLATT]
    key, names = re.sub(r"[\W_]", "", method).lower(), {name.lower(): name for name in known}
    if key not in names:
        similar = get_close_matches(key, names, 1)
        hint = f"; did you mean {names[similar[0]]!r}?" if similar else ""
        raise CommandError(f"--method must be one of {', '.join(known)}, got {method!r}{hint}")


def export_file(
    calibrator: _options.CalibratorFile,
    out: Annotated[
        Path, typer.Argument(help="File to write: .onnx, .stablehlo or .pt2.", show_default=False)
    ],
    *,
    dtype: Annotated[
        str,
        completing(
            "float32", "float64", help="Type of scores and probabilities: float32 or float64."
        ),
    ] = "float32",
) -> None:
    """Write a calibrator as a program that runs without bayescal."""
    check_source(calibrator)
    check_target(out)
    with library_call():
        bc.export(bc.load(calibrator), out, dtype=cast("Literal['float32', 'float64']", dtype))
    say(f"written: {out}")


def _make(
    method: str, inputs: str, classes: Sequence[str], seed: int, options: Sequence[str]
) -> AnyModel:
    """Make a calibrator by the name of its class, with options NAME=VALUE."""
    from bayescal.calibrators.names import make_calibrator

    made = make_calibrator(method, argument="--method", inputs=inputs, classes=tuple(classes))
    known = made.get_params()
    if "random_state" in known:
        made.set_params(random_state=seed)
    for entry in options:
        name, _, text = entry.partition("=")
        allowed = sorted(known.keys() - {"inputs", "classes", "random_state"})
        if name not in allowed or not text:
            raise CommandError(
                f"--option must be NAME=VALUE with one of {', '.join(allowed)} for "
                f"{type(made).__name__}, got {entry!r}"
            )
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            value = text
        made.set_params(**{name: value})
    return made
