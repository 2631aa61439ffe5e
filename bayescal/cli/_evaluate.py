"""``bayescal evaluate``: judge the probabilities in a file, in the terminal and on an HTML page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bayescal.cli._columns import Labels, choose_models, read_labels, read_probabilities
from bayescal.cli._errors import CommandError, library_call, running, say
from bayescal.cli._files import (
    Table,
    check_target,
    check_values,
    is_standard_output,
    numeric_column,
    read_table,
    write_atomically,
)
from bayescal.cli._options import Label, Seed, Weights
from bayescal.evaluation import Evaluation, evaluate

#: Columns of one model that are named one by one.
_LISTED = 12
#: Cases drawn for intervals that take minutes.
_MANY_DRAWS = 10**9


def evaluate_file(
    file: Annotated[
        Path,
        typer.Argument(help="CSV file with probabilities and labels; .gz too.", show_default=False),
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
    level: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.9,
    replicates: Annotated[
        int, typer.Option(help="Resamples for intervals; fewer are faster on very many rows.")
    ] = 1000,
    bins: Annotated[int, typer.Option(help="Bins of calibration errors and diagrams.")] = 15,
    seed: Seed = 0,
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
    with running() as progress:
        progress("reading", 0, 1)
        table = read_table(file)
        labels = read_labels(table, label, classes)
        models = choose_models(table, model or [], label, weights, labels.classes)
        own = None
        if weights is not None:
            own = numeric_column(table, weights, "--weights")
            check_values(table, weights, own, own >= 0, "weights that are not negative")
        probs, columns = {}, {}
        for each in models:
            probs[each.name], columns[each.name] = read_probabilities(
                table, each, labels.classes, inputs, normalise
            )
        draws = replicates * len(table.rows) * len(models)
        if draws >= _MANY_DRAWS:
            say(
                f"{replicates:,} resamples of {len(table.rows):,} rows take minutes; fewer "
                "--replicates take less"
            )
        with library_call():
            found = evaluate(
                probs,
                labels.codes,
                classes=labels.classes,
                weights=own,
                level=level,
                replicates=replicates,
                bins=bins,
                seed=seed,
                progress=progress,
            )
        about = _describe(table, label, labels, columns, inputs, weights)
        if html is not None:
            page = found.to_html(about=about, progress=progress).encode()
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
    table: Table,
    label: str,
    labels: Labels,
    columns: dict[str, list[str]],
    inputs: str,
    weights: str | None,
) -> dict[str, str]:
    """Return what was read, by what it is called."""
    about = {"File": table.path.name, "Rows": f"{len(table.rows):,}", "Label column": label}
    for name, own in columns.items():
        if len(own) == 1:
            what = "P" if inputs == "probs" else "log odds of P"
            said = f"{own[0]} is {what}({label} = {labels.classes[1]})"
        else:
            pairs = [f"{c} = {k}" for c, k in zip(own, labels.classes, strict=True)]
            more = f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
            what = "probabilities" if inputs == "probs" else inputs
            said = f"{what} of classes: {', '.join(pairs[:_LISTED])}{more}"
        about[f"Model {name}" if len(columns) > 1 else "Columns"] = said
    if weights is not None:
        about["Weight column"] = weights
    return about


def _show(found: Evaluation, about: dict[str, str]) -> None:
    """Print what was read, the findings and the table, wide enough for all its columns."""
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
