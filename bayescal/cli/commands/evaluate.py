"""``bayescal evaluate``: judge the probabilities in a file, on the terminal and an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayescal.cli import _options
from bayescal.cli._errors import CommandError, library_call, plain, say, show, watched
from bayescal.cli._options import check_inputs
from bayescal.cli.commands.calibrate import SavedCalibrator
from bayescal.cli.tables.cells import enumerate_names
from bayescal.cli.tables.files import (
    Format,
    check_target,
    is_standard_output,
    write_atomically,
    write_json,
)
from bayescal.cli.tables.labeled import Judged
from bayescal.cli.tables.streams import open_rows

if TYPE_CHECKING:
    from bayescal.evaluation import Evaluation

#: Largest number of columns of one model that are listed.
_LISTED = 12


def evaluate_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="File with probabilities and labels: CSV, TSV, JSON lines, Parquet or Feather, "
            ".gz or .zst too; - is standard input. Large ones are read in blocks, several times.",
            show_default=False,
        ),
    ],
    *,
    label: _options.Label,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=COLUMN, the probability of the second class, or NAME=COLUMN,COLUMN,... with "
            "a column for each class; can be repeated. By default all other columns of "
            "numbers, if they can only be one model."
        ),
    ] = None,
    calibrator: Annotated[
        Path | None,
        typer.Option(
            help="Calibrator file written by fit, to compare its columns (raw) with what it makes "
            "of them (calibrated), on rows that it was not fitted to."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Labels separated by commas, in the order of the columns; by default sorted. "
            "Columns that are named like the classes go by their names."
        ),
    ] = None,
    inputs: _options.Inputs = "probs",
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Divide the columns of each row by their sum.")
    ] = False,
    weights: _options.Weights = None,
    groups: _options.Groups = None,
    by: _options.By = None,
    level: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.9,
    replicates: Annotated[int, typer.Option(help="Resamples for intervals.")] = 1000,
    bins: Annotated[int, typer.Option(help="Bins of calibration errors and diagrams.")] = 15,
    seed: _options.Seed = 0,
    sep: _options.Sep = None,
    encoding: _options.Encoding = None,
    decimal: _options.Decimal = ".",
    skip_missing: _options.SkipMissing = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with figures, tables and explanations.")
    ] = None,
    json_file: _options.JsonFile = None,
) -> None:
    """Evaluate probabilities: metrics with intervals, tests, and a self-contained HTML page."""
    check_inputs(inputs, "probs", "percent", "logits")
    form = Format(sep, encoding, decimal, inputs == "percent", skip_missing)
    inputs = "probs" if form.percent else inputs
    fitted = None if calibrator is None else SavedCalibrator.read(calibrator)
    if fitted is not None:
        if classes is not None:
            raise CommandError("--classes must be left out, because --calibrator knows them")
        if inputs == "logits" != fitted.inputs:
            raise CommandError(
                f"--inputs must be as in the fit of --calibrator, {fitted.inputs}, got {inputs!r}"
            )
        inputs = "logits" if fitted.inputs == "logits" else "probs"
    check_target(html, "--html")
    check_target(json_file)
    with watched() as watch:
        source = open_rows(file, form)
        data = Judged(source, label, weights, watch, groups, by=by)
        if fitted is None:
            models = data.choose(model or [], classes)
        else:
            models = data.choose(model or [], fitted.classes, fitted.models())
        columns = {choice.name: choice.ordered(data.classes) for choice in models}
        calibrated = [choice.name for choice in models if choice.calibrate is not None]
        plainly = {name: names for name, names in columns.items() if name not in calibrated}
        with library_call():
            evaluation = data.evaluate(
                models,
                inputs,
                normalize,
                classes=data.classes,
                level=level,
                replicates=replicates,
                bins=bins,
                seed=seed,
                progress=None if source.large else watch,
            )
        data.say_skipped()
        about = _describe(data, file.name, plainly, inputs)
        if calibrator is not None and fitted is not None:
            text = enumerate_names(fitted.columns, str)
            about["Model calibrated"] = f"{calibrator.name} applied to {text}"
        if html is not None:
            page = evaluation.to_html(about=about, progress=watch).encode()
            write_atomically(html, lambda stream: stream.write(page))
    if json_file is not None:
        values = {"file": str(file), "columns": columns, **evaluation.to_dict()}
        write_json(json_file, values)
    if json_file is None or not is_standard_output(json_file):
        _show(evaluation, about)
    for target in (html, json_file):
        if target is not None and not is_standard_output(target):
            say(f"written: {target}")


def _describe(
    data: Judged, name: str, columns: dict[str, list[str]], inputs: str
) -> dict[str, str]:
    """Describe what was read, by headings."""
    classes, label = data.classes, data.label
    about = {"File": name, "Rows": f"{data.count - data.skipped:,}", "Label column": label}
    for name, names in columns.items():
        if len(names) == 1:
            what = "P" if inputs == "probs" else "log odds of P"
            text = f"{plain(names[0])} is {what}({plain(label)} = {plain(classes[1])})"
        else:
            pairs = [f"{plain(c)} = {plain(k)}" for c, k in zip(names, classes, strict=True)]
            more = f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
            what = "probabilities" if inputs == "probs" else inputs
            text = f"{what} of classes: {', '.join(pairs[:_LISTED])}{more}"
        about[f"Model {plain(name)}" if len(columns) > 1 else "Columns"] = text
    others = {
        "Weight column": data.weights,
        "Group column": data.groups,
        "Subgroup column": data.by,
    }
    return about | {name: column for name, column in others.items() if column is not None}


def _show(evaluation: Evaluation, about: dict[str, str]) -> None:
    """Print what was read, the findings and the table, wide enough for all its columns."""
    lines = [f"{plain(name)}: {text}" for name, text in about.items()]
    findings = [f"{plain(name)}: {text}" for name, text in evaluation.summary().items()]
    show("\n".join(lines), "")
    show(*findings, "", evaluation.report.table(), wrap=True)
    if evaluation.by:
        show("", evaluation.subgroups().for_terminal(), wrap=True)
