"""``bayescal evaluate``: judge the probabilities in a file, in the terminal and on an HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayescal.cli._errors import CommandError, library_call, say, watched
from bayescal.cli._files import Format, check_target, is_standard_output, write_atomically
from bayescal.cli._labelled import Judged
from bayescal.cli._options import Encoding, Groups, Label, Seed, Sep, Weights
from bayescal.cli._streams import open_rows

if TYPE_CHECKING:
    from bayescal.evaluation import Evaluation

#: Columns of one model that are named one by one.
_LISTED = 12


def evaluate_file(
    file: Annotated[
        Path,
        typer.Argument(
            help="File with probabilities and labels: CSV, TSV, Parquet or Feather, .gz or .zst "
            "too; - is standard input. Large ones are read in blocks, several times.",
            show_default=False,
        ),
    ],
    *,
    label: Label,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=COLUMN, the probability of the second class, or NAME=COLUMN,COLUMN,... with "
            "a column for each class; may be given several times. By default all other columns of "
            "numbers, if they can only be one model.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="Labels with commas between, in the order of the columns; by default sorted. "
            "Columns that are named like the classes go by their names."
        ),
    ] = None,
    inputs: Annotated[str, typer.Option(help="What the columns hold: probs or logits.")] = "probs",
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Divide the columns of each row by their sum.")
    ] = False,
    weights: Weights = None,
    groups: Groups = None,
    level: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.9,
    replicates: Annotated[int, typer.Option(help="Resamples for intervals.")] = 1000,
    bins: Annotated[int, typer.Option(help="Bins of calibration errors and diagrams.")] = 15,
    seed: Seed = 0,
    sep: Sep = None,
    encoding: Encoding = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with figures, tables and explanations.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers as JSON; - prints them.")
    ] = None,
) -> None:
    """Judge probabilities: metrics with intervals, tests, and a self-contained HTML page."""
    if inputs not in ("probs", "logits"):
        raise CommandError(f"--inputs must be probs or logits, got {inputs!r}")
    if html is not None and is_standard_output(html):
        raise CommandError("--html must be a file, got -")
    for target in (html, json_file):
        if target is not None:
            check_target(target)
    with watched() as show:
        source = open_rows(file, Format(sep, encoding))
        data = Judged(source, label, weights, show, groups)
        models = data.choose(model or [], classes)
        columns = {each.name: each.ordered(data.classes) for each in models}
        with library_call():
            found = data.evaluate(
                models,
                inputs,
                normalise,
                classes=data.classes,
                level=level,
                replicates=replicates,
                bins=bins,
                seed=seed,
                progress=None if source.large else show,
            )
        about = _describe(data, file.name, label, columns, inputs, weights, groups)
        if html is not None:
            page = found.to_html(about=about, progress=show).encode()
            write_atomically(html, lambda stream: stream.write(page))
    if json_file is not None:
        values = {"file": str(file), "columns": columns, **found.to_dict()}
        text = json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        if is_standard_output(json_file):
            print(text, end="")
        else:
            write_atomically(json_file, lambda stream: stream.write(text.encode()))
    if json_file is None or not is_standard_output(json_file):
        _show(found, about)
    for target in (html, json_file):
        if target is not None and not is_standard_output(target):
            say(f"written: {target}")


def _describe(
    data: Judged,
    name: str,
    label: str,
    columns: dict[str, list[str]],
    inputs: str,
    weights: str | None,
    groups: str | None,
) -> dict[str, str]:
    """Return what was read, by what it is called."""
    classes = data.classes
    about = {"File": name, "Rows": f"{data.count:,}", "Label column": label}
    for name, own in columns.items():
        if len(own) == 1:
            what = "P" if inputs == "probs" else "log odds of P"
            said = f"{own[0]} is {what}({label} = {classes[1]})"
        else:
            pairs = [f"{c} = {k}" for c, k in zip(own, classes, strict=True)]
            more = f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
            what = "probabilities" if inputs == "probs" else inputs
            said = f"{what} of classes: {', '.join(pairs[:_LISTED])}{more}"
        about[f"Model {name}" if len(columns) > 1 else "Columns"] = said
    if weights is not None:
        about["Weight column"] = weights
    if groups is not None:
        about["Group column"] = groups
    return about


def _show(found: Evaluation, about: dict[str, str]) -> None:
    """Print what was read, the findings and the table, wide enough for all its columns."""
    from rich.console import Console

    console = Console()
    table = found.report.table()
    width = console.measure(table, options=console.options.update(width=10_000)).maximum
    # A terminal wraps lines that are too long; a table that is cut loses figures.
    console = Console(width=max(console.width, width), highlight=False, markup=False)
    for name, said in about.items():
        console.print(f"{name}: {said}", soft_wrap=True)
    console.print()
    for name, said in found.summary().items():
        console.print(f"{name}: {said}")
    console.print()
    console.print(table)
