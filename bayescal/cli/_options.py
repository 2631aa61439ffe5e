"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayescal.cli._errors import CommandError

if TYPE_CHECKING:
    from typer.models import OptionInfo


def completing(*values: str, help: str) -> OptionInfo:
    """Make an option whose values a shell completes."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete.lower())]

    return typer.Option(help=help, autocompletion=complete)


def check_inputs(inputs: str, *allowed: str) -> None:
    """Raise unless ``inputs`` is allowed."""
    if inputs not in allowed:
        *others, last = allowed
        raise CommandError(f"--inputs must be {', '.join(others)} or {last}, got {inputs!r}")


Scores = Annotated[
    Path,
    typer.Argument(
        help="File with scores and labels, in any form that fit takes.", show_default=False
    ),
]
CalibratorFile = Annotated[
    Path, typer.Argument(help="Calibrator file written by fit.", show_default=False)
]
Label = Annotated[str, typer.Option(help="Column of FILE with the labels, of any kind.")]
Sep = Annotated[
    str | None,
    typer.Option(help="Separator of cells in text; by default a tab in .tsv, else a comma."),
]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of text, such as latin-1 or utf-16; default UTF-8.")
]
SkipMissing = Annotated[
    bool,
    typer.Option("--skip-missing", help="Leave out rows whose scores are missing: empty or NA."),
]
Decimal = Annotated[
    str,
    completing(
        ".", ",", help="Decimal point of numbers in text: . or , (a comma), read and written."
    ),
]
Inputs = Annotated[
    str,
    completing(
        "probs", "percent", "logits", help="What the columns hold: probs, percent or logits."
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the numbers as JSON; - prints them.")
]
Weights = Annotated[str | None, typer.Option(help="Column of FILE with case weights.")]
Groups = Annotated[
    str | None,
    typer.Option(
        help="Column of FILE with labels of groups, such as patients: rows of a group may depend "
        "on each other, rows of different groups do not."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        help="Column of FILE with labels of subgroups, which are also evaluated separately."
    ),
]
Integrator = Annotated[
    str,
    completing(
        "montecarlo",
        "sobol",
        "importance",
        "quadrature",
        "nuts",
        help="montecarlo, sobol, importance, quadrature or nuts.",
    ),
]
NumSamples = Annotated[int, typer.Option(help="Number of draws from the prior.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
