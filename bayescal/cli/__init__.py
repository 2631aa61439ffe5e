"""The command line: ``bayescal demo``, ``fit``, ``apply``, ``predict``, ``evaluate``.

Input errors end with one line on standard error and exit code 2.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bayescal.cli import _calibrate, _demo, _errors, _evaluate, _predict

__all__ = ["main"]

_INTERRUPTED = 130


class _Group(TyperGroup):
    """Says every input error in one line, those of the command line itself too."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        try:
            code = super().main(*args, standalone_mode=False, **extra)
        except _errors.CommandError as error:
            _errors.say(error, "error")
            code = 2
        except typer.Abort:
            code = _INTERRUPTED
        except Exception as error:
            # The errors of the command line's parser have no public base class.
            describe = getattr(error, "format_message", None)
            if describe is None:
                raise
            _errors.say(describe(), "error")
            code = 2
        code = code if isinstance(code, int) else 0
        if code == _INTERRUPTED:
            _errors.say("interrupted")
        if standalone_mode:
            sys.exit(code)
        return code


app = typer.Typer(
    cls=_Group,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Bayesian calibration of the probabilities of classifiers.",
)

_Method = Annotated[str, typer.Option(help="predictive, preds, coeffs or map.")]
_Integrator = Annotated[
    str, typer.Option(help="montecarlo, sobol, importance, quadrature or nuts.")
]
_NumSamples = Annotated[int, typer.Option(help="Number of draws from the prior.")]
_Seed = Annotated[int, typer.Option(help="Seed of all random numbers.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from bayescal import __version__

        print(f"bayescal {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("demo")
def _run_demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure; made if it is missing.")] = Path(
        "bayescal-demo"
    ),
    seed: _Seed = 0,
    num_samples: _NumSamples = 100_000,
    integrator: _Integrator = "importance",
) -> None:
    """Calibrate a linear SVM on a built-in data set: a table and a reliability diagram."""
    _demo.demo(out=out, seed=seed, num_samples=num_samples, integrator=integrator)


@app.command("fit")
def _run_fit(
    file: Annotated[
        Path, typer.Argument(help="CSV file with scores and labels; .gz too.", show_default=False)
    ],
    label: Annotated[str, typer.Option(help="Column of FILE with the labels, of any kind.")],
    out: Annotated[Path, typer.Option(help="File for the calibrator; usually NAME.npz.")],
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
    weights: Annotated[str | None, typer.Option(help="Column of FILE with case weights.")] = None,
    method: Annotated[str, typer.Option(help="A calibrator's class, as Temperature.")] = "Auto",
    seed: _Seed = 0,
) -> None:
    """Learn to calibrate scores from a CSV file, and say what to expect."""
    _calibrate.fit_file(
        file,
        label=label,
        columns=columns,
        classes=classes,
        inputs=inputs,
        weights=weights,
        method=method,
        seed=seed,
        out=out,
    )


@app.command("apply")
def _run_apply(
    calibrator: Annotated[Path, typer.Argument(help="Written by fit.", show_default=False)],
    file: Annotated[
        Path, typer.Argument(help="CSV file with the same columns of scores.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option(help="File to write: the rows and their probabilities; - prints.")
    ],
    prefix: Annotated[
        str, typer.Option(help="Of the new columns, before the names of the classes.")
    ] = "calibrated_",
) -> None:
    """Calibrate the scores in a CSV file."""
    _calibrate.apply_file(calibrator, file, out=out, prefix=prefix)


@app.command("predict")
def _run_predict(
    scores: Annotated[
        Path, typer.Argument(help="CSV file with scores and labels; .gz too.", show_default=False)
    ],
    label: Annotated[str, typer.Option(help="Column of SCORES with the labels, 0 or 1.")],
    score: Annotated[str, typer.Option(help="Column with the scores, in both files.")],
    prior: Annotated[
        str,
        typer.Option(
            help="Family and priors of its parameters, such as "
            "'gaussian:mu0=uniform(-2.5,0),mu1=1+beta(2,5),sigma=1'."
        ),
    ],
    new: Annotated[Path, typer.Option(help="CSV file with the scores to predict at.")],
    out: Annotated[
        Path,
        typer.Option(help="File to write: the rows of --new and their probabilities; - prints."),
    ],
    method: _Method = "predictive",
    integrator: _Integrator = "montecarlo",
    num_samples: _NumSamples = 100_000,
    class_prior: Annotated[float, typer.Option(help="Probability of class 1 in --new.")] = 0.5,
    seed: _Seed = 0,
    interval: Annotated[
        float | None,
        typer.Option(help="Add columns lower and upper: a credible interval of this level."),
    ] = None,
    column: Annotated[str, typer.Option(help="Name of the new column.")] = "prob",
) -> None:
    """Add calibrated probabilities to the rows of a CSV file."""
    _predict.predict(
        scores,
        label=label,
        score=score,
        prior=prior,
        new=new,
        out=out,
        method=method,
        integrator=integrator,
        num_samples=num_samples,
        class_prior=class_prior,
        seed=seed,
        interval=interval,
        column=column,
    )


@app.command("evaluate")
def _run_evaluate(
    file: Annotated[
        Path,
        typer.Argument(help="CSV file with probabilities and labels; .gz too.", show_default=False),
    ],
    label: Annotated[str, typer.Option(help="Column of FILE with the labels, of any kind.")],
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
    weights: Annotated[str | None, typer.Option(help="Column of FILE with case weights.")] = None,
    level: Annotated[float, typer.Option(help="Level of the confidence intervals.")] = 0.9,
    replicates: Annotated[
        int, typer.Option(help="Resamples for intervals; fewer are faster on very many rows.")
    ] = 1000,
    bins: Annotated[int, typer.Option(help="Bins of calibration errors and diagrams.")] = 15,
    seed: _Seed = 0,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with figures, tables and explanations.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers as JSON; - prints them.")
    ] = None,
) -> None:
    """Judge probabilities: metrics with intervals, tests, and a self-contained HTML page."""
    _evaluate.evaluate_file(
        file,
        label=label,
        model=model or [],
        classes=classes,
        inputs=inputs,
        normalise=normalise,
        weights=weights,
        level=level,
        replicates=replicates,
        bins=bins,
        seed=seed,
        html=html,
        json_file=json_file,
    )


def main() -> None:
    """Run the command line, as the program ``bayescal`` does.

    Raises
    ------
    SystemExit
        Always: with 0 on success, 2 on wrong input and 130 if interrupted.

    Examples
    --------
    >>> import contextlib, sys, unittest.mock
    >>> with unittest.mock.patch.object(sys, "argv", ["bayescal", "--version"]):
    ...     with contextlib.suppress(SystemExit):
    ...         main()
    bayescal ...
    """
    try:
        app(prog_name="bayescal")
    except SystemExit as stop:
        if stop.code == _INTERRUPTED:
            # JAX may still compute in other threads, and Python's own end under them is a crash.
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(_INTERRUPTED)
        raise
